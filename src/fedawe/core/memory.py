"""The amount of free memory, and a check before large allocations."""

import os
import sys
from pathlib import Path

from fedawe.core.errors import UserError

MOST = 10**9  # rounds, clients, steps, samples of a batch; a larger number is taken for a typing error
LARGEST = 1e30  # of rates, weights and norms; well below the largest float32


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping and within the limit of this process (`ulimit -v`).

    All physical memory if the system does not say how much is free; None if it does not say that either.
    """
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        if "MemAvailable" in lines:
            return min(int(lines["MemAvailable"].split()[0]) * 1024, _allowed())
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _allowed() -> int:
    """Bytes of address space that this process may still allocate, on Linux."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - size, 0)


def in_bytes(count: int) -> str:
    """A number of bytes as text, in GB.

    >>> in_bytes(9_300_000_000), in_bytes(1_500_000)
    ('9.3 GB', '0.0 GB')
    """
    return f"{count / 1e9:,.1f} GB"


def check_room(what: str, needed: int, instead: str) -> None:
    """Refuses an allocation of more memory than is free."""
    free = free_memory()
    if free is not None and needed > free:
        raise UserError(f"{what} would take {in_bytes(needed)} of memory; {in_bytes(free)} are free: {instead}")
