"""What processes hold: memory, open files, and how many of them there are; from /proc, so on Linux only."""

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Of a process and of all below it."""

    megabytes: float
    files: int
    processes: int


def family(pid: int) -> list[int]:
    """The process, and those below it at any depth."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def used(pids: Sequence[int]) -> Usage:
    """By these processes together; memory of their own, without what they share."""
    gc.collect()
    size, files, count = 0, 0, 0
    for pid in pids:
        try:
            words = (Path("/proc") / str(pid) / "statm").read_text().split()
            files += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        size += (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
        count += 1
    return Usage(size / 2**20, files, count)
