"""Handwritten digits learned by devices that come and go."""
