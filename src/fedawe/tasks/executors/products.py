"""Products of matrices by kernels of our own."""

from torch import Tensor


def addresses(*tensors: Tensor) -> list[int]:
    """Where the numbers of tensors begin."""
    return [each.data_ptr() for each in tensors]


def product(x: Tensor, w: Tensor, strides: tuple[int, ...], N: int) -> Tensor:
    """x w for x [N, K] with such strides, and w [K, M] of whole vectors."""
    from fedawe.tasks.executors.kernels import matrices as kernels  # LLVM is loaded when it is first needed

    K, M = w.shape
    out = w.new_empty(N, M)
    kernels.product(min(N, kernels.tile(M)[0]), M, *strides, w.stride(0))(*addresses(x, w, out), N, K)
    return out
