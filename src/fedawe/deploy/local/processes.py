"""Processes of a local federation, each with a log and a process group of its own; none remain at the end."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedawe.core.errors import UserError

MARK = "FEDAWE_FEDERATION"  # variable in the environment of all processes of a federation and their children
GRACE_SECONDS = 6.0  # Flower itself gives its own shutdown 5 s
PAUSE_SECONDS = 0.05


def until(happened: Callable[[], bool], seconds: float) -> bool:
    """Wait until `happened()` is true, at most so many seconds; returns whether it became true."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def free_port() -> int:
    """A port of the loopback interface that is not in use now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(port: int) -> int:
    """The port; refuses one that is not free."""
    if not 1 <= port <= 65535:
        raise UserError(f"port is {port}; expected a whole number from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}); give another one, or 0 for any free one"
            ) from None
    return port


def answers(port: int) -> bool:
    """Whether a process listens at a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A command in a process group of its own, so that signals reach its children too."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        self._command, self._environment = list(command), dict(environment)
        self._popen: subprocess.Popen[bytes] | None = None
        self._suspended = False

    @property
    def pid(self) -> int:
        """The id of the process that runs, or ran last."""
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; also reaps an ended one, so that its id disappears."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def suspended(self) -> bool:
        """Whether the process is suspended."""
        return self.alive and self._suspended

    def start(self) -> None:
        """Start the process; its output is appended to its log."""
        assert not self.alive, f"{self.name} runs already"
        self._suspended = False
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                process_group=0,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, if it still exists."""
        if self._popen is not None:
            try:
                os.killpg(self._popen.pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:  # macOS raises this for a group with only ended processes
                pass

    def suspend(self) -> None:
        """Suspend the group with SIGSTOP; its connections stay open."""
        self.signal(signal.SIGSTOP)
        self._suspended = True

    def resume(self) -> None:
        """Continue a suspended group with SIGCONT."""
        self.signal(signal.SIGCONT)
        self._suspended = False

    def kill(self) -> None:
        """Kill the group with SIGKILL; it cannot sign off."""
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait(GRACE_SECONDS)

    def stop(self) -> None:
        """Stop the process with SIGTERM, then kill the rest of its group with SIGKILL."""
        self.ask_to_stop()
        self.see_stopped()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process alone, which ends its own children."""
        if self.alive:
            self.resume()
            os.kill(self.pid, signal.SIGTERM)

    def see_stopped(self) -> None:
        """Wait for the end after `ask_to_stop`, then kill what is left of the group."""
        until(lambda: not self.alive, GRACE_SECONDS)
        self.kill()

    def said(self, words: str) -> bool:
        """Whether the log contains these words, also from before a restart."""
        return words.encode() in self.log.read_bytes() if self.log.exists() else False

    def last_words(self) -> str:
        """The last line of the log that is not empty."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


class Supervisor:
    """Restarts processes that exit; waits longer before each restart if they exit soon after the last one."""

    FIRST_SECONDS, MOST_SECONDS, SETTLED_SECONDS = 0.5, 16.0, 30.0

    def __init__(self) -> None:
        self._wanted: dict[Process, tuple[float, float]] = {}  # process: (time of its start, pause before the next)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self.restarts = 0
        self._thread.start()

    def keep(self, process: Process) -> None:
        """Start the process if it does not run, and restart it whenever it exits."""
        with self._lock:
            if not process.alive:
                process.start()
            self._wanted[process] = (time.monotonic(), self.FIRST_SECONDS)

    def release(self, process: Process) -> None:
        """No longer restart the process."""
        with self._lock:
            self._wanted.pop(process, None)

    def close(self) -> None:
        """Stop restarting any process."""
        self._over.set()
        self._thread.join(GRACE_SECONDS)

    def _watch(self) -> None:
        gone_since: dict[Process, float] = {}
        while not self._over.wait(PAUSE_SECONDS):
            with self._lock:
                now = time.monotonic()
                for process, (started, pause) in list(self._wanted.items()):
                    if process.alive:
                        gone_since.pop(process, None)
                        continue
                    if process not in gone_since:
                        gone_since[process] = now
                        process.kill()  # a process that is left in its group would occupy the port
                    gone = gone_since[process]
                    if gone - started > self.SETTLED_SECONDS:
                        pause = self.FIRST_SECONDS
                    if now - gone >= pause and not self._over.is_set():
                        process.start()
                        del gone_since[process]
                        self.restarts += 1
                        self._wanted[process] = (now, min(2 * pause, self.MOST_SECONDS))


def marked(mark: str) -> list[int]:
    """The ids of all processes of a federation, also of those without a parent or outside their group (Linux only)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
    return [pid for pid in found if pid != os.getpid()]


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def own_bytes(pid: int) -> int:
    """The private resident memory of a process, without shared memory and mapped files; 0 if it has ended."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def sweep(mark: str) -> list[int]:
    """Kill all processes that are left of a federation; returns their ids."""
    swept: list[int] = []

    def none_left() -> bool:
        left = marked(mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            swept.append(pid)
        return not left

    until(none_left, GRACE_SECONDS)
    return swept
