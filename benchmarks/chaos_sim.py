"""A crash campaign on simulated runs: kills, full disks, read-only folders and flipped bits; nothing may differ.

    python benchmarks/chaos_sim.py                            all of it: `make chaos-sim`
    python benchmarks/chaos_sim.py --kills 10 --engines serial

A small experiment is run once without faults on every engine. Then, again and again in new folders, a process that runs
it is killed with SIGKILL at a random moment (the process, one of its workers, or all of its processes at once), several
times in a row, until the last one is left alone. All files are then compared with those of the undisturbed run, byte by
byte; of records the wall-clock fields are left out. Full and read-only file systems are moments from which on every
write in the folder fails, with the error of the operating system. Bits are flipped in every file of a complete and of
an interrupted folder.
"""

import argparse
import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import fedawe
from fedawe.experiments.build import experiment_of
from fedawe.experiments.check import problems
from fedawe.experiments.settings import Settings
from fedawe.results import record as records

ENGINES: dict[str, dict[str, Any]] = {
    "serial": {"engine": "stacked", "workers": 1},
    "jobs 2": {"engine": "stacked", "jobs": 2},
    "workers 2": {"engine": "stacked", "workers": 2},
    "ray": {"engine": "ray", "workers": 2},
}
SHARE = {"serial": 0.4, "jobs 2": 0.25, "workers 2": 0.2, "ray": 0.15}  # of the kills
SETTINGS = Settings(model="softmax", clients=20, alpha=1.0, rounds=60, evaluate_every=5)
ALGORITHMS = ("fedawe", "mifa")
LONGER = 70  # rounds, where a folder is extended
IN_A_ROW = 4  # kills of one folder, at most
PATIENCE = 300.0  # seconds for one command
LEAVE = 30.0  # seconds after a kill in which all other processes must have ended
RAY_LEAVE = 120.0  # two agents of Ray notice only after a minute that their node is gone


def run(out: Path, how: dict[str, Any], rounds: int = 60) -> None:
    """What `fedawe run` does."""
    settings = Settings(**{**vars(SETTINGS), "rounds": rounds})
    experiment_of(settings, ALGORITHMS, (0,)).run(out, checkpoint_every=5, warn=lambda _: None, **how)


def files(out: Path) -> dict[str, Any]:
    """Everything that must be the same."""
    found: dict[str, Any] = {}
    for path in sorted(each for each in out.rglob("*") if each.is_file() and each.name != ".lock"):
        name = str(path.relative_to(out))
        if path.name == records.NAME:
            record = records.read(path)
            lines = [record.header, *record.evaluations, record.end, record.problem and {"problem": record.problem}]
            found[name] = [{k: v for k, v in (line or {}).items() if not k.endswith("_seconds")} for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def differing(out: Path, expected: dict[str, Any]) -> list[str]:
    """The files that are missing, additional or different."""
    found = files(out)
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


# --- processes -------------------------------------------------------------------------------------------------------
def started(work: Callable[[], None], said: Path) -> int:
    """A child in a session of its own; exit code 2 for a refusal in words, 1 for a traceback, which goes to `said`."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    os.dup2(2, 1)
    try:
        work()
    except fedawe.UserError as refused:
        print(refused, file=sys.stderr, flush=True)
        os._exit(2)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def family(pid: int) -> list[int]:
    """The processes below one, at any depth."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        left = [child for one in left for child in parents.get(one, [])]
        found += left
    return found


def alive(pids: list[int]) -> list[int]:
    """Those of them that have not ended."""
    out = []
    for pid in pids:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                out.append(pid)
        except OSError:
            pass
    return out


def ended(pid: int, seconds: float) -> int | None:
    """The status of a child that ends within so many seconds; None if it does not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    return None


def kill(pids: list[int]) -> None:
    """SIGKILL to processes that may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# --- the campaign ----------------------------------------------------------------------------------------------------
@dataclass
class Seen:
    """One row of the table."""

    faults: int = 0
    folders: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    orphans: int = 0


class Campaign:
    """All folders below one place; every random choice is drawn from one generator."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.place = Path(tempfile.mkdtemp(prefix="chaos-sim-"))
        self.rows: dict[str, Seen] = {}
        self.number = 0

    def folder(self) -> Path:
        """A new one."""
        self.number += 1
        return self.place / str(self.number)

    def complete(self, out: Path, how: dict[str, Any], seen: Seen, rounds: int = 60) -> float:
        """Run to the end, undisturbed; seconds."""
        said, began = self.place / "said", time.monotonic()
        pid = started(lambda: run(out, how, rounds), said)
        status = ended(pid, PATIENCE)
        if status != 0:
            kill([*family(pid), pid])
            seen.tracebacks.append(f"{out}: status {status}: {said.read_text(errors='replace')[-600:]}")
        return time.monotonic() - began

    def killed(self, name: str, kills: int, expected: dict[str, Any]) -> None:
        """So many SIGKILLs under one engine."""
        how, seen = ENGINES[name], self.rows.setdefault(f"SIGKILL, {name}", Seen())
        usual = self.complete(self.folder(), how, seen)
        while seen.faults < kills:
            out = self.folder()
            seen.folders += 1
            for _ in range(self.draw.randint(1, IN_A_ROW)):
                pid = started(lambda out=out: run(out, how), self.place / "said")  # type: ignore[misc]
                if ended(pid, self.draw.uniform(0, 1.1 * usual)) is not None:
                    continue  # it was quicker than we
                below = family(pid)
                kind = self.draw.choice(["process", "all", "worker"] if below else ["process"])
                kill({"process": [pid], "all": [pid, *below], "worker": [self.draw.choice(below or [pid])]}[kind])
                seen.faults += 1
                seen.kinds[kind] += 1
                if ended(pid, PATIENCE) is None:
                    seen.tracebacks.append(f"{out}: hangs after {kind} was killed")
                    kill([pid])
                until = time.monotonic() + (RAY_LEAVE if name == "ray" else LEAVE)
                while (left := alive(below)) and time.monotonic() < until:
                    time.sleep(0.05)
                seen.orphans += len(left)
                kill(left)
            self.complete(out, how, seen)
            seen.differing += [f"{out}: {each}" for each in differing(out, expected)]
            print(f"{name}: {seen.faults} of {kills} kills, {len(seen.differing)} differing files", flush=True)
            shutil.rmtree(out, ignore_errors=True)

    def failing(self, name: str, code: int, times: int, expected: dict[str, Any]) -> None:
        """From a random operation on, everything that writes in the folder fails."""
        seen = self.rows.setdefault(name, Seen())
        for _ in range(times):
            out, left = self.folder(), self.draw.randint(1, 110)
            seen.folders += 1

            def work(out: Path = out, left: int = left) -> None:
                remaining = left

                def hook(event: str, arguments: tuple[Any, ...]) -> None:
                    nonlocal remaining
                    opened = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
                    if (opened or event in ("os.rename", "os.remove", "os.mkdir")) and str(out) in str(arguments[0]):
                        remaining -= 1
                        if remaining < 0:
                            raise OSError(code, os.strerror(code), str(arguments[0]))

                sys.addaudithook(hook)
                run(out, ENGINES["serial"])

            self._refused(work, seen)
            self.complete(out, ENGINES["serial"], seen)
            seen.differing += [f"{out}: {each}" for each in differing(out, expected)]
            shutil.rmtree(out, ignore_errors=True)

    def too_large(self, times: int, expected: dict[str, Any]) -> None:
        """A write in the middle of a file fails: no file may exceed so many bytes."""
        seen = self.rows.setdefault("no room in the middle of a file", Seen())
        largest = max(len(content) for content in expected.values() if isinstance(content, bytes))
        for _ in range(times):
            out, limit = self.folder(), self.draw.randint(1, largest)
            seen.folders += 1

            def work(out: Path = out, limit: int = limit) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                run(out, ENGINES["serial"])

            self._refused(work, seen)
            self.complete(out, ENGINES["serial"], seen)
            seen.differing += [f"{out}: {each}" for each in differing(out, expected)]
            shutil.rmtree(out, ignore_errors=True)

    def _refused(self, work: Callable[[], None], seen: Seen) -> None:
        said = self.place / "said"
        status = ended(started(work, said), PATIENCE)
        seen.faults += 1
        seen.kinds["finished before" if status == 0 else "refused in one line"] += 1
        text = said.read_text(errors="replace")
        if status is None or (status != 0 and os.waitstatus_to_exitcode(status) != 2) or text.count("\n") > 1:
            seen.tracebacks.append(f"status {status}: {text[-600:]}")

    def flipped(self, times: int, expected: dict[str, Any]) -> None:
        """A bit in every file of a complete folder, and of one that is to be continued.

        A complete run has no more use for its checkpoint until it is extended, so it is extended here too.
        """
        serial, longer = ENGINES["serial"], self.folder()
        self.complete(longer, serial, self.rows["no fault"], LONGER)
        extended = files(longer)
        for what, rounds in (("a complete folder", 60), ("an interrupted folder", 32)):
            seen = self.rows.setdefault(f"a flipped bit in {what}", Seen())
            whole = self.folder()
            self.complete(whole, serial, seen, rounds)
            if rounds < 60:  # as a kill would leave it: without the last lines, and without the final model
                for path in whole.rglob(records.NAME):
                    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:-2]) + b"\n")
                for path in whole.rglob("model.safetensors"):
                    path.unlink()
            for path in sorted(each for each in whole.rglob("*") if each.is_file() and each.name != ".lock"):
                for _ in range(times):
                    out = self.folder()
                    shutil.copytree(whole, out)
                    at, content = out / path.relative_to(whole), bytearray(path.read_bytes())
                    n = self.draw.randrange(len(content))
                    content[n] ^= 1 << self.draw.randrange(8)
                    at.write_bytes(content)
                    seen.faults += 1
                    seen.folders += 1
                    seen.kinds["noticed by check" if list(problems(out)) else "not noticed by check"] += 1
                    self.complete(out, serial, seen)
                    wrong = [each for each in differing(out, expected) if not each.endswith(f"/{at.name}")]
                    if not at.name.startswith("checkpoint-"):
                        wrong = differing(out, expected)
                    self.complete(out, serial, seen, LONGER)
                    wrong += differing(out, extended)
                    seen.differing += [f"{out}: bit in {at.name}: {each}" for each in wrong]
                    shutil.rmtree(out, ignore_errors=True)

    def table(self) -> str:
        """What was done, and what was seen."""
        lines = [
            "| fault | times | folders | how | differing files | tracebacks or hangs | orphans |",
            "|---" * 7 + "|",
        ]
        for name, seen in self.rows.items():
            how = ", ".join(f"{kind} {n}" for kind, n in seen.kinds.most_common())
            counts = f"{len(seen.differing)} | {len(seen.tracebacks)} | {seen.orphans}"
            lines.append(f"| {name} | {seen.faults} | {seen.folders} | {how} | {counts} |")
        return "\n".join(lines)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        orphans = [f"{name}: {seen.orphans} orphans" for name, seen in self.rows.items() if seen.orphans]
        return orphans + [each for seen in self.rows.values() for each in (*seen.differing, *seen.tracebacks)]


def main() -> int:
    """All parts, one after another."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--kills", type=int, default=120, help="over all engines")
    flags.add_argument("--engines", nargs="*", choices=list(ENGINES), default=list(ENGINES))
    flags.add_argument(
        "--moments", type=int, default=20, help="of a full disk, a read-only folder and a cut write each"
    )
    flags.add_argument("--flips", type=int, default=2, help="in every file")
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    torch.set_num_threads(1)
    campaign = Campaign(given.seed)
    began = time.monotonic()
    try:
        whole = campaign.folder()
        campaign.complete(whole, ENGINES["serial"], campaign.rows.setdefault("no fault", Seen()))
        expected = files(whole)
        shares = sum(SHARE[name] for name in given.engines)
        for name in given.engines:
            campaign.killed(name, round(given.kills * SHARE[name] / shares), expected)
            print(campaign.table(), flush=True)
        campaign.failing("no space left (ENOSPC)", errno.ENOSPC, given.moments, expected)
        campaign.failing("read-only (EROFS)", errno.EROFS, given.moments, expected)
        campaign.too_large(given.moments, expected)
        campaign.flipped(given.flips, expected)
    finally:
        shutil.rmtree(campaign.place, ignore_errors=True)
    print(campaign.table())
    for each in campaign.wrong:
        print(each)
    print(f"{sum(seen.faults for seen in campaign.rows.values())} faults in {(time.monotonic() - began) / 60:.1f} min")
    return int(bool(campaign.wrong))


if __name__ == "__main__":
    sys.exit(main())
