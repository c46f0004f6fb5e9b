"""What is compared is measured in turns, so that a busy machine slows both; in this process or in another one."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Rate(NamedTuple):
    """How much was done per second, and per second of processor time."""

    wall: float
    cpu: float


def timed(seconds: float, work: Callable[[], int]) -> Rate:
    """Work for so long; `work` says how much it did in one call."""
    began, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        done += work()
    return Rate(done / (time.perf_counter() - began), done / (time.process_time() - cpu))


def in_turns(turns: int, **workers: Callable[[], Rate]) -> dict[str, list[Rate]]:
    """How fast each worked, turn by turn; the first turn is for warming up."""
    rates: dict[str, list[Rate]] = {name: [] for name in workers}
    for turn in range(turns + 1):
        for name, work in workers.items():
            rate = work()
            if turn:
                rates[name].append(rate)
    return rates


def median(rates: Sequence[Rate]) -> float:
    """Of the rates per second."""
    return statistics.median(rate.wall for rate in rates)


def ratio(one: Sequence[Rate], other: Sequence[Rate], cpu: bool = False) -> list[float]:
    """How much faster one was than the other, turn by turn, per second or per second of processor time."""
    return [a.cpu / b.cpu if cpu else a.wall / b.wall for a, b in zip(one, other, strict=True)]


def serve(seconds: float, work: Callable[[], int]) -> None:
    """Answers every line on standard input with the rates of one turn."""
    for _ in sys.stdin:
        print(*timed(seconds, work), flush=True)


class Served:
    """A program that calls `serve`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def turn(self) -> Rate:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wall, cpu = map(float, self.process.stdout.readline().split())
        return Rate(wall, cpu)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
