"""Damaged and hostile inputs for every reader, in child processes with limits on memory and time.

    python tests/fuzz/campaign.py --seconds 600                       all readers in turn, until the time is up
    python tests/fuzz/campaign.py --only log-csv --seed 3             one of them, other inputs
    python tests/fuzz/campaign.py --again log-csv/0/1234              one input once more, in this process

A reader may return or refuse in one line. Every other exception, a process that ends, 30 seconds without an answer,
more memory than the limit, and a file written outside of the input's own folder are faults. An input is named by
reader, seed and number, and is the same on every machine.
"""

import argparse
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutated
from readers import TARGETS, Target, refusals

PATIENCE = 30.0  # seconds for one input, on a machine that may be busy
MEMORY = 4 * 2**30  # bytes of address space for one input, beyond what the process has when it begins
TURN = 20.0  # seconds that a child works for one reader


@dataclass
class Tally:
    """What was seen of one reader."""

    tried: int = 0
    faults: list[str] = field(default_factory=list)


def name_of(target: Target, seed: int, n: int) -> str:
    """What an input is called."""
    return f"{target.name}/{seed}/{n}"


def try_one(target: Target, seed: int, n: int, seeds: list[bytes], place: Path) -> str | None:
    """What is wrong with how the input is read; None if nothing is."""
    folder = place / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        target.read(mutated(name_of(target, seed, n), seeds), folder)
    except refusals() as refused:
        if "\n" in str(refused):
            return f"a refusal of several lines: {str(refused)[:300]!r}"
    except BaseException:
        return traceback.format_exc()
    return None


def _watched(place: Path, outside: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that notes what is written outside of `place`; what is named relative to an open folder is not
    looked at."""
    allowed = (str(place), str(Path(tempfile.gettempdir())), "/dev/", "/proc/")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if (writes or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir")) and isinstance(arguments[0], str):
            path = os.path.realpath(arguments[0])
            if event != "open" and arguments[-1] not in (-1, None):
                return
            if not path.startswith(allowed) and "__pycache__" not in path:
                outside.append(f"{event} {path}")

    return hook


def _child(target: Target, seed: int, first: int, seconds: float, place: Path, said: int) -> None:
    """Inputs from the first on, one after another; every number goes to the parent before it is tried."""
    outside: list[str] = []

    def say(*words: Any) -> None:
        os.write(said, (json.dumps(words) + "\n").encode())

    seeds, may_refuse = target.seeds(), refusals()  # imports take their time
    for content in seeds:  # a reader that refuses what is good would test nothing
        folder = place / "good"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with contextlib.suppress(*may_refuse):
            target.read(content, folder)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    sys.addaudithook(_watched(place, outside))
    n, until = first, time.monotonic() + seconds
    while time.monotonic() < until:
        say("begin", n)
        fault = try_one(target, seed, n, seeds, place)
        if fault is None and outside:
            fault = f"written outside of its folder: {outside}"
        if fault is not None:
            say("fault", n, fault[-4000:])
            outside.clear()
        n += 1
    say("end", n)


def turn(target: Target, seed: int, first: int, seconds: float, tally: Tally) -> int:
    """A child works for some seconds; the number of the next input."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(os.open(place / "stderr", os.O_CREAT | os.O_WRONLY), 2)
            _child(target, seed, first, seconds, place, write)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    at, buffer, began = first, b"", False
    try:
        while True:
            ready, _, _ = select.select([read], [], [], PATIENCE if began else 300.0)  # imports take their time
            chunk = os.read(read, 65536) if ready else b""
            if not chunk:
                os.kill(pid, signal.SIGKILL)
                said = (place / "stderr").read_text(errors="replace")[-1500:]
                why = f"the process ended: {said}" if ready else f"no answer within {PATIENCE:g} s"
                tally.faults.append(f"{name_of(target, seed, at)}: {why}")
                return at + 1
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                kind, n, *what = json.loads(line)
                began = True
                if kind == "end":
                    return int(n)
                at = int(n)
                if kind == "fault":
                    tally.faults.append(f"{name_of(target, seed, at)}: {what[0]}")
                else:
                    tally.tried += 1
    finally:
        os.close(read)
        os.waitpid(pid, 0)
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Until the time is up; the exit code says whether there were faults."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seconds", type=float, default=60.0)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--only", nargs="*", choices=list(TARGETS), default=list(TARGETS))
    flags.add_argument("--again", help="reader/seed/number of an input")
    flags.add_argument("--turn", type=float, default=TURN, help="seconds that a child works for one reader")
    given = flags.parse_args()
    if given.again:
        name, seed, n = given.again.split("/")
        target = TARGETS[name]
        seeds = target.seeds()
        print(mutated(given.again, seeds)[:2000])
        fault = try_one(target, int(seed), int(n), seeds, Path(tempfile.mkdtemp(prefix="fuzz-")))
        print(fault or "nothing is wrong")
        return int(fault is not None)
    tallies, nexts = {name: Tally() for name in given.only}, dict.fromkeys(given.only, 0)
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        for name in given.only:
            left = end - time.monotonic()
            if left <= 0:
                break
            seen = len(tallies[name].faults)
            nexts[name] = turn(TARGETS[name], given.seed, nexts[name], min(given.turn, left), tallies[name])
            for fault in tallies[name].faults[seen:]:
                print(fault, flush=True)
    print("| reader | inputs | faults |\n|---|---|---|")
    for name, tally in tallies.items():
        print(f"| {name} | {tally.tried:,} | {len(tally.faults)} |")
    found = sum(len(tally.faults) for tally in tallies.values())
    print(f"| all | {sum(tally.tried for tally in tallies.values()):,} | {found} |")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
