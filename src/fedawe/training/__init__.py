"""Training: what clients do with their data, the round loop, and the engines that execute it."""
