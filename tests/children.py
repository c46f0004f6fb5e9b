"""`fedawe ...` in a real process that can be killed: a fork of this one, which has PyTorch loaded already."""

import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path


def fork() -> int:
    """As `os.fork`. Threads of the test runner do not matter to a child that ends with `os._exit`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Child:
    """One command under way; it has no part in what this process prints, and ends with it."""

    def __init__(self, *arguments: object) -> None:
        from fedawe.cli.main import main

        self.folder = Path(tempfile.mkdtemp())
        self.code: int | None = None
        self.pid = fork()
        if self.pid == 0:
            code: object = 1
            try:
                for number, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT), number)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                sys.argv = ["fedawe", *map(str, arguments)]
                main()
                code = 0
            except SystemExit as stopped:
                code = stopped.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 1)

    def running(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is None

    def wait(self) -> tuple[int, str, str]:
        """Its exit code, standard output and standard error, once it has ended."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code, (self.folder / "out").read_text(), (self.folder / "err").read_text()

    def kill_when(self, ready: Callable[[], bool], delay: float = 0.0) -> int:
        """SIGKILL as soon as it is ready, or a little later; its exit code."""
        while self.running() and not ready():
            time.sleep(0.005)
        time.sleep(delay)
        if self.running():
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()[0]
