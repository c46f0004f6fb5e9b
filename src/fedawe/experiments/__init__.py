"""Experiments on disk: settings, runs, records, checkpoints, many runs at once."""
