"""Records read back: metrics, standings, curves, tables, data frames and exports."""
