"""The paper's tables and figures: presets, published numbers, and one function per table or figure.

`items.ITEMS` names them. A table is a function: experiments in, table out.
"""
