"""Loops over vectors of numbers that are written for the sizes of a layer and compiled for the processor at hand.

`vectors` says for which sizes there are kernels; the other modules load LLVM, and are imported when a kernel is needed.
"""
