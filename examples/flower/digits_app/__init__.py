"""Federated learning of handwritten digits on devices that are available only some of the time."""
