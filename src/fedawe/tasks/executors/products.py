"""Products of matrices by kernels of this package."""

from collections.abc import Callable, Sequence

from torch import Tensor


def addresses(*tensors: Tensor) -> list[int]:
    """The addresses of the numbers of tensors."""
    return [each.data_ptr() for each in tensors]


def check(fits: bool, plain: Callable[[], Tensor]) -> None:
    """Raises the error of torch's function `plain` unless sizes and types fit; kernels would read out of bounds."""
    if not fits:
        plain()
        raise ValueError("there is no kernel for tensors of such sizes")


def check_images(x: Tensor, weight: Tensor, padding: Sequence[int], least: int, plain: Callable[[], Tensor]) -> None:
    """The same for a convolution of images x; with stride 1 its outputs must have `least` rows and columns or more."""
    fits = x.ndim == 4 and x.dtype == weight.dtype and x.shape[1] == weight.shape[1]
    sizes = zip(x.shape[2:], padding, weight.shape[2:], strict=False)
    check(fits and all(size + 2 * pad - window + 1 >= least for size, pad, window in sizes), plain)


def product(x: Tensor, w: Tensor, strides: tuple[int, ...], N: int) -> Tensor:
    """x w for x [N, K] with these strides, and w [K, M] whose rows are whole vectors."""
    from fedawe.tasks.executors.kernels import matrices as kernels  # LLVM is loaded when it is first needed

    K, M = w.shape
    out = w.new_empty(N, M)
    kernels.product(min(N, kernels.tile(M)[0]), M, *strides, w.stride(0))(*addresses(x, w, out), N, K)
    return out
