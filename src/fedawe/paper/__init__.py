"""The paper's tables and figures: presets, published numbers, and one function per table or figure.

`items.ITEMS` lists them by name. Each is a function from experiments to a table or figure.
"""
