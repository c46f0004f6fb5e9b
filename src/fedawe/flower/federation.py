"""A federation on this machine: one SuperLink and its SuperNodes as real processes on loopback ports."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedawe.errors import UserError
from fedawe.files import new_folder
from fedawe.flower import federation_keeper, federation_processes
from fedawe.flower.federation_processes import Process, Supervisor, answers, check_port, free_port, until

CONNECTION = "federation"  # what `flwr` calls the SuperLink
START_SECONDS = 60.0
COMMAND_SECONDS = 60.0


def check_flower() -> None:
    """Refuses to go on without Flower, or where processes cannot be had as they are needed."""
    if importlib.util.find_spec("flwr") is None:
        raise UserError("Flower is not installed; run: pip install 'fedawe[flower]'")
    if os.name != "posix":
        raise UserError(f"a local federation needs Linux or macOS, not {sys.platform}")


class Federation:
    """One SuperLink and `nodes` SuperNodes, node i with `client-id=i`; all of them gone when the block ends.

        with Federation(4, folder) as federation:
            federation.run(app, {"num-rounds": 10}, deadline=300)

    folder: logs, Flower's own files and the SuperLink's database; a federation in the same folder goes on from there.
    tls: certificates, and nodes that must show their key. port: the SuperLink's, 0 for any that is free.
    warm: clients are forked from a process that has PyTorch loaded, instead of loading it for every message.
    """

    def __init__(self, nodes: int, folder: Path, *, tls: bool = False, port: int = 0, warm: bool = True) -> None:
        if nodes < 1:
            raise UserError(f"nodes is {nodes}; expected a whole number from 1")
        check_flower()
        self.folder, self.tls = new_folder(folder.absolute()), tls
        self.port = check_port(port) if port else free_port()
        self._mark = uuid.uuid4().hex
        self._commands = Path(sys.executable).parent
        if not (self._commands / "flower-superlink").exists():
            raise UserError(f"there is no flower-superlink beside {sys.executable}; run: pip install 'fedawe[flower]'")
        self._short = Path(tempfile.mkdtemp(prefix="fedawe-"))  # the path of a socket has at most 100 letters
        self._warm = warm
        self._keeper: subprocess.Popen[bytes] | None = None
        self._supervisor: Supervisor | None = None
        self._commands_run: list[Process] = []
        for old in new_folder(self.folder / "logs").glob("*.log"):
            old.unlink()
        self.link = self._process("superlink", ["flower-superlink", *self._link_flags()])
        self.nodes = [self._process(f"node-{i}", ["flower-supernode", *self._node_flags(i)]) for i in range(nodes)]

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
        self._write_connection()
        if self.tls:
            self._make_keys()
        self._start_keeper()
        self.start_link()
        if self.tls:
            self._register_nodes()
        self._supervisor = Supervisor()
        for i in range(len(self.nodes)):
            self.start_node(i)
        if not until(lambda: all(node.said("SuperNode ID") for node in self.nodes), START_SECONDS):
            silent = next(node for node in self.nodes if not node.said("SuperNode ID"))
            raise UserError(f"{silent.name} did not reach the SuperLink: {silent.last_words()}; see {silent.log}")

    def close(self) -> None:
        """Stop all: nodes first, so that they can say goodbye, then whatever is left of it."""
        try:
            if self._supervisor is not None:
                self._supervisor.close()
            for process in (*self._commands_run, *self.nodes):
                process.ask_to_stop()
            for process in (*self._commands_run, *self.nodes):
                process.see_stopped()
            self.link.stop()
        finally:
            if self._keeper is not None:
                assert self._keeper.stdin is not None
                self._keeper.stdin.close()  # it sweeps
                try:
                    self._keeper.wait(federation_processes.GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    self._keeper.kill()
            federation_processes.sweep(self._mark)
            shutil.rmtree(self._short, ignore_errors=True)

    # Single processes

    def start_link(self) -> None:
        """Start the SuperLink and see it listen; with its database it knows its nodes again."""
        self.link.start()
        until(lambda: answers(self.port) or not self.link.alive, START_SECONDS)
        if not (self.link.alive and answers(self.port)):
            raise UserError(f"the SuperLink did not start: {self.link.last_words()}; see {self.link.log}")

    def kill_link(self) -> None:
        """SIGKILL to the SuperLink, and to the server app, which would only look for it in vain."""
        followers = self.server_processes()
        self.link.kill()
        for pid in followers:
            _kill(pid)

    def server_processes(self) -> list[int]:
        """Flower's executor and the server app it started, which are no children of ours."""
        address = f"127.0.0.1:{self.port}"
        return [
            pid
            for pid in federation_processes.marked(self._mark)
            if pid != self.link.pid and address in (words := federation_processes.command_of(pid))
            if any(Path(word).name in ("flower-superexec", "flwr-serverapp") for word in words[:2])
        ]

    def server_app(self) -> int | None:
        """The process of the server app, while there is one."""
        for pid in self.server_processes():
            if any(Path(word).name == "flwr-serverapp" for word in federation_processes.command_of(pid)[:2]):
                return pid
        return None

    def kill_server_app(self) -> bool:
        """SIGKILL to the server app alone; whether there was one."""
        pid = self.server_app()
        return pid is not None and _kill(pid)

    def start_node(self, i: int) -> None:
        """Start node i; from now on it is started again whenever it exits."""
        assert self._supervisor is not None, "inside the block only"
        self._supervisor.keep(self.nodes[i])

    def stop_node(self, i: int) -> None:
        """SIGTERM: the node leaves in good order and stays away until it is started."""
        assert self._supervisor is not None, "inside the block only"
        self._supervisor.release(self.nodes[i])
        self.nodes[i].stop()

    def kill_node(self, i: int, *, stay_away: bool = False) -> None:
        """SIGKILL to the node and all it runs; the supervisor starts it again unless it is to stay away."""
        assert self._supervisor is not None, "inside the block only"
        if stay_away:
            self._supervisor.release(self.nodes[i])
        self.nodes[i].kill()

    @property
    def restarts(self) -> int:
        """How often the supervisor has started a node again."""
        return 0 if self._supervisor is None else self._supervisor.restarts

    # Runs

    def run(
        self,
        app: Path,
        config: Mapping[str, Any],
        deadline: float,
        watch: Callable[[], None] | None = None,
    ) -> str:
        """`flwr run` of an app until it ends; Flower's word for how it did, such as "finished:completed".

        "lost" if the SuperLink is gone, "died" if the server app is, "late" after `deadline` seconds; a run that is
        left in Flower's books is stopped. `watch` is called several times a second meanwhile.
        """
        flags = [part for key, value in config.items() for part in ("-c", f"{key}={_toml(value)}")]
        log = self.folder / "logs" / f"run-{len(self._commands_run)}.log"
        stream = self._process(log.stem, ["flwr", "run", str(app), CONNECTION, "--stream", *flags])
        self._commands_run.append(stream)
        stream.start()
        end = time.monotonic() + deadline
        how = self._follow(stream, end, watch or (lambda: None))
        stream.kill()
        found = re.search(r"started run (\d+)", log.read_text(errors="replace"))
        if how == "ended" and found is None:
            raise UserError(f"flwr run did not start: {stream.last_words()}; see {log}")
        if how == "ended" and found is not None:
            return self._status(found[1], max(end - time.monotonic(), COMMAND_SECONDS / 2))
        if how != "lost" and found is not None:
            self.flwr("stop", found[1], CONNECTION)
        return how

    def _follow(self, stream: Process, end: float, watch: Callable[[], None]) -> str:
        """How it came that there is no more to follow."""
        seen, app, looked = False, None, 0.0
        while stream.alive:
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
        """Flower's word for a run whose log has ended; its status follows a little later."""
        status = ""

        def known() -> bool:
            nonlocal status
            if not self.link.alive:
                status = "lost"
                return True
            listed = json.loads(self.flwr("list", CONNECTION, "--run-id", run, "--format", "json"))
            status = str(listed["runs"][0]["status"])
            return status.startswith("finished")

        until(known, seconds)
        return status

    def flwr(self, *words: str) -> str:
        """What a `flwr` command says."""
        try:
            done = subprocess.run(
                [str(self._commands / "flwr"), *words],
                env=self._environment(),
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

    # How they are started

    def _process(self, name: str, command: list[str]) -> Process:
        program = str(self._commands / command[0])
        return Process(name, [program, *command[1:]], self.folder / "logs" / f"{name}.log", self._environment())

    def _environment(self) -> dict[str, str]:
        path = f"{self._short}{os.pathsep}{self._commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return os.environ | {
            "PATH": path,  # Flower starts its own parts by name
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds before a message is looked at; Flower's own: 1
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            federation_processes.MARK: self._mark,
        }

    def _link_flags(self) -> list[str]:
        flags = ["--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.folder / "superlink.db")]
        flags += ["--disable-runtime-dependency-installation"]
        if not self.tls:
            return [*flags, "--insecure"]
        keys = self.folder / "keys"
        flags += ["--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "server.crt")]
        return [*flags, "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"]

    def _node_flags(self, i: int) -> list[str]:
        flags = ["--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(free_port())]
        flags += ["--node-config", f"client-id={i}"]
        if not self.tls:
            return [*flags, "--insecure"]
        keys = self.folder / "keys"
        return [
            *flags,
            "--root-certificates",
            str(keys / "ca.crt"),
            "--auth-supernode-private-key",
            str(keys / f"n{i}"),
        ]

    def _write_connection(self) -> None:
        how = (
            f"root-certificates = {json.dumps(str(self.folder / 'keys' / 'ca.crt'))}" if self.tls else "insecure = true"
        )
        home = new_folder(self.folder / "flower")
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n'
            f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n{how}\n'
        )

    def _start_keeper(self) -> None:
        address = self._short / "keeper"
        command = [sys.executable, "-m", federation_keeper.__name__, self._mark]
        if self._warm:
            federation_keeper.write_launcher(self._short / "flwr-clientapp", address, self._commands / "flwr-clientapp")
            command.append(str(address))
        with (self.folder / "logs" / "keeper.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment(), process_group=0
            )

    def _make_keys(self) -> None:
        from fedawe.flower import federation_keys

        keys = self.folder / "keys"
        if not (keys / "ca.crt").exists():
            federation_keys.make_certificates(keys)
        for i in range(len(self.nodes)):
            if not (keys / f"n{i}").exists():
                federation_keys.make_key_pair(keys, f"n{i}")

    def _register_nodes(self) -> None:
        for i in range(len(self.nodes)):
            public = self.folder / "keys" / f"n{i}.pub"
            try:
                self.flwr("supernode", "register", str(public), CONNECTION)
            except UserError as error:
                if "already" not in str(error):  # the database of an earlier time knows the key
                    raise


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return False
    return True


def _toml(value: object) -> str:
    """A value as `flwr run -c` reads it; JSON and TOML agree on numbers, truth values and strings."""
    return json.dumps(str(value) if isinstance(value, Path) else value)
