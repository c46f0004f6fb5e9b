"""A federation on this machine: one SuperLink and its SuperNodes as real processes on loopback ports."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedawe.core.errors import UserError
from fedawe.deploy.local import keeper, processes
from fedawe.deploy.local.processes import Process, Supervisor, answers, until
from fedawe.deploy.local.setup import CONNECTION, Setup

START_SECONDS = 180.0  # long, because a busy machine starts processes slowly
COMMAND_SECONDS = 60.0


class Federation:
    """One SuperLink and `nodes` SuperNodes, node i with `client-id=i`; all of them end with the block.

        with Federation(4, folder) as federation:
            federation.run(app, {"num-rounds": 10}, deadline=300)

    folder: logs, Flower's own files and the SuperLink's database; a federation in the same folder continues from them.
    tls: encrypt connections, and require nodes to authenticate. port: the SuperLink's; 0 for any free one.
    warm: client apps are forked from a process that has loaded PyTorch, instead of loading it for every message.
    database: the SuperLink keeps its state in SQLite, and recognises its nodes after it was killed; in memory it serves
    more nodes at once (with 200 of them SQLite reports "database is locked").
    """

    def __init__(
        self,
        nodes: int,
        folder: Path,
        *,
        tls: bool = False,
        port: int = 0,
        warm: bool = True,
        database: bool = True,
    ) -> None:
        if nodes < 1:
            raise UserError(f"nodes is {nodes}; expected a whole number from 1")
        self.setup = Setup(folder, tls=tls, port=port, database=database)
        self.folder, self.port = self.setup.folder, self.setup.port
        self._warm = warm
        self._keeper: subprocess.Popen[bytes] | None = None
        self._supervisor: Supervisor | None = None
        self._streams: list[Process] = []
        self.link = self.setup.link()
        self.nodes = [self.setup.node(i, self.node_superlink()) for i in range(nodes)]

    def node_superlink(self) -> int:
        """The port to which nodes connect."""
        return self.port

    # Starting and ending

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self.setup.write(len(self.nodes))
        self._start_keeper()
        self.start_link()
        if self.setup.tls:
            self._register_nodes()
        self._supervisor = Supervisor()
        for i in range(len(self.nodes)):
            self.start_node(i)
        if not until(lambda: all(node.said("SuperNode ID") for node in self.nodes), START_SECONDS):
            silent = next(node for node in self.nodes if not node.said("SuperNode ID"))
            raise UserError(f"{silent.name} did not reach the SuperLink: {silent.last_words()}; see {silent.log}")

    def close(self) -> None:
        """Stop all processes: first the nodes, so that they can sign off, then the SuperLink, then the rest."""
        try:
            if self._supervisor is not None:
                self._supervisor.close()
            for process in (*self._streams, *self.nodes):
                process.ask_to_stop()
            for process in (*self._streams, *self.nodes):
                process.see_stopped()
            self.link.stop()
        finally:
            if self._keeper is not None:
                assert self._keeper.stdin is not None
                self._keeper.stdin.close()  # the keeper then kills all processes that are left
                try:
                    self._keeper.wait(processes.GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    self._keeper.kill()
                    self._keeper.wait()
            processes.sweep(self.setup.mark)
            shutil.rmtree(self.setup.first, ignore_errors=True)

    # Single processes

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens; with its database it recognises its nodes."""
        self.link.start()
        until(lambda: answers(self.port) or not self.link.alive, START_SECONDS)
        if not (self.link.alive and answers(self.port)):
            raise UserError(f"the SuperLink did not start: {self.link.last_words()}; see {self.link.log}")

    def kill_link(self) -> None:
        """Kill the SuperLink with SIGKILL, and the server app, which could not continue without it."""
        followers = self.server_processes()
        self.link.kill()
        for pid in followers:
            _kill(pid)

    def server_processes(self) -> list[int]:
        """The ids of Flower's executor and of the server app that it started; they are not children of this process."""
        address = f"127.0.0.1:{self.port}"
        return [
            pid
            for pid in processes.marked(self.setup.mark)
            if pid != self.link.pid and address in (words := processes.command_of(pid))
            if any(Path(word).name in ("flower-superexec", "flwr-serverapp") for word in words[:2])
        ]

    def server_app(self) -> int | None:
        """The id of the server app's process; None if there is none."""
        for pid in self.server_processes():
            if any(Path(word).name == "flwr-serverapp" for word in processes.command_of(pid)[:2]):
                return pid
        return None

    def kill_server_app(self) -> bool:
        """Kill only the server app with SIGKILL; returns whether there was one."""
        pid = self.server_app()
        return pid is not None and _kill(pid)

    def start_node(self, i: int) -> None:
        """Start node i, and start it again whenever it exits."""
        assert self._supervisor is not None, "inside the block only"
        self._supervisor.keep(self.nodes[i])

    def stop_node(self, i: int) -> None:
        """Stop node i with SIGTERM, so that it signs off; it is not started again."""
        assert self._supervisor is not None, "inside the block only"
        self._supervisor.release(self.nodes[i])
        self.nodes[i].stop()

    def kill_node(self, i: int) -> None:
        """Kill node i and all its processes with SIGKILL; the supervisor starts it again."""
        self.nodes[i].kill()

    @property
    def restarts(self) -> int:
        """How often the supervisor has restarted a node."""
        return 0 if self._supervisor is None else self._supervisor.restarts

    # Runs

    @property
    def runs(self) -> int:
        """The number of runs so far; the log of the last one is run-(this - 1).log."""
        return len(self._streams)

    def run(
        self,
        app: Path,
        config: Mapping[str, Any],
        deadline: float,
        watch: Callable[[], None] | None = None,
    ) -> str:
        """Execute `flwr run` until the run ends; returns Flower's status of the run, such as "finished:completed".

        The result is "lost" if the SuperLink ended, "died" if the server app ended, and "late" after `deadline` s.
        In the last two cases Flower is told to stop the run. `watch` is called several times a second during the run.
        """
        flags = [part for key, value in config.items() for part in ("-c", f"{key}={_toml(value)}")]
        name = f"run-{len(self._streams)}"
        stream = self.setup.process(name, "flwr", "run", str(app), CONNECTION, "--stream", *flags)
        self._streams.append(stream)
        stream.start()
        end = time.monotonic() + deadline
        how = self._follow(stream, end, watch or (lambda: None))
        stream.kill()
        found = re.search(r"started run (\d+)", stream.log.read_text(errors="replace"))
        if found is None:
            if how == "ended":
                raise UserError(f"flwr run did not start: {stream.last_words()}; see {stream.log}")
            return how
        if how == "ended":
            return self._status(found[1], max(end - time.monotonic(), COMMAND_SECONDS / 2))
        if how == "died" and (status := self._status(found[1], 0)).startswith("finished"):
            return status  # the run had ended; only its log was delayed
        if how != "lost":
            with contextlib.suppress(UserError):  # a SuperLink that does not answer gives up the run by itself
                self.flwr("stop", found[1], CONNECTION)
        return how

    def _follow(self, stream: Process, end: float, watch: Callable[[], None]) -> str:
        """Wait for the end of a run; returns "ended", "died", "lost" or "late"."""
        seen, app, looked = False, None, 0.0
        while stream.alive or app is not None:  # a busy SuperLink may end the log before the run
            if not self.link.alive:
                return "lost"
            if (now := time.monotonic()) > end:
                return "late"
            if now - looked > 1:
                looked, app = now, self.server_app()
                seen = seen or app is not None
                if seen and app is None:
                    return "ended" if until(lambda: not stream.alive, 5) else "died"
            watch()
            time.sleep(0.2)
        return "ended"

    def _status(self, run: str, seconds: float) -> str:
        """Flower's status of a run whose log has ended; Flower sets it a little later than that."""
        status = ""

        def known() -> bool:
            nonlocal status
            if not self.link.alive:
                status = "lost"
                return True
            # The SuperLink may be suspended, or so busy that it answers with an error.
            with contextlib.suppress(UserError, ValueError, LookupError):
                listed = json.loads(self.flwr("list", CONNECTION, "--run-id", run, "--format", "json"))
                status = str(listed["runs"][0]["status"])
            return status.startswith("finished")

        until(known, seconds)
        return status

    def flwr(self, *words: str) -> str:
        """The output of a `flwr` command; raises if it fails."""
        try:
            done = subprocess.run(
                [str(self.setup.commands / "flwr"), *words],
                env=self.setup.environment(),
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"flwr {words[0]} took longer than {COMMAND_SECONDS:.0f} s") from None
        if done.returncode:
            raise UserError(f"flwr {words[0]} failed: {' '.join((done.stderr or done.stdout).split())}")
        return done.stdout

    def _start_keeper(self) -> None:
        address = self.setup.first / "keeper"
        command = [sys.executable, "-m", keeper.__name__, self.setup.mark]
        if self._warm:
            stock = self.setup.commands / "flwr-clientapp"
            keeper.write_launcher(self.setup.first / "flwr-clientapp", address, stock)
            command.append(str(address))
        with self.setup.log("keeper").open("ab") as log:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.setup.environment(), process_group=0
            )

    def _register_nodes(self) -> None:
        for i in range(len(self.nodes)):
            try:
                self.flwr("supernode", "register", f"{self.setup.key(i)}.pub", CONNECTION)
            except UserError as error:
                if "already" not in str(error):  # the database of an earlier federation has the key
                    raise


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _toml(value: object) -> str:
    """A value as `flwr run -c` reads it; JSON and TOML write numbers, booleans and strings in the same way."""
    return json.dumps(str(value) if isinstance(value, Path) else value)
