"""Read records, and make metrics, standings, curves, tables, data frames and exports from them."""
