"""Keep freed memory in the process, because getting it back from the kernel page by page is slow."""

import ctypes
import sys

M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1  # glibc's names


def keep_freed_memory() -> bool:
    """Ask glibc to reuse large blocks, and return whether it was done; on other systems nothing happens.

    A training step frees and takes tensors of many megabytes. By default the kernel provides new pages for
    each, and the first access to them costs as much time as a convolution.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 1 << 30) and mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1))
