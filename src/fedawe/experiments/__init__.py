"""Experiments: their settings, and their runs on disk with records and checkpoints, one at a time or several."""
