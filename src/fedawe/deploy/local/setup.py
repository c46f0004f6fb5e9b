"""How the processes of a local federation are started: ports, environment, certificates, flags."""

import importlib.util
import json
import os
import sys
import tempfile
import uuid
from pathlib import Path

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder
from fedawe.deploy.local.processes import MARK, Process, check_port, free_port

CONNECTION = "federation"  # the SuperLink's name in the configuration of `flwr`


def check_flower() -> None:
    """Refuses a system without Flower or its commands, or without POSIX processes."""
    if importlib.util.find_spec("flwr") is None:
        raise UserError("Flower is not installed; run: pip install 'fedawe[flower]'")
    if os.name != "posix":
        raise UserError(f"a local federation needs Linux or macOS, not {sys.platform}")
    if not (Path(sys.executable).parent / "flower-superlink").exists():
        raise UserError(
            f"there is no command flower-superlink in the folder of {sys.executable}; run: pip install 'fedawe[flower]'"
        )


class Setup:
    """The folder of a federation, the SuperLink's port, and the commands that start its processes."""

    def __init__(self, folder: Path, *, tls: bool, port: int, database: bool) -> None:
        check_flower()
        self.port = check_port(port) if port else free_port()
        self.folder, self.tls, self.database = new_folder(folder.absolute()), tls, database
        self.mark = uuid.uuid4().hex
        self.commands = Path(sys.executable).parent
        self.keys = self.folder / "keys"
        self.first = Path(tempfile.gettempdir()) / f"fedawe-{self.mark[:12]}"  # first in the PATH of all processes
        for old in new_folder(self.folder / "logs").glob("*.log"):
            old.unlink()

    def process(self, name: str, command: str, *flags: str) -> Process:
        """A process for one of Flower's commands, not started yet."""
        return Process(name, [str(self.commands / command), *flags], self.log(name), self.environment())

    def log(self, name: str) -> Path:
        """The log of the process of this name."""
        return self.folder / "logs" / f"{name}.log"

    def environment(self) -> dict[str, str]:
        """The environment of this process, with Flower's files in the folder and without its telemetry."""
        path = os.pathsep.join([str(self.first), str(self.commands), os.environ.get("PATH", os.defpath)])
        return os.environ | {
            "PATH": path,  # Flower starts its own parts by name
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds between polls for messages; Flower's default: 1
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            MARK: self.mark,
        }

    def link(self) -> Process:
        """The SuperLink's process; with its database it recognises its nodes after a crash."""
        flags = ["--host", "127.0.0.1", "--port", str(self.port), "--disable-runtime-dependency-installation"]
        if self.database:
            flags += ["--database", str(self.folder / "superlink.db")]
        if self.tls:
            flags += ["--ssl-ca-certfile", str(self.keys / "ca.crt"), "--ssl-certfile", str(self.keys / "server.crt")]
            flags += ["--ssl-keyfile", str(self.keys / "server.key"), "--enable-supernode-auth"]
        else:
            flags += ["--insecure"]
        return self.process("superlink", "flower-superlink", *flags)

    def node(self, i: int, port: int) -> Process:
        """The process of node i, which connects to the SuperLink at `port`."""
        flags = ["--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", str(free_port())]
        flags += ["--node-config", f"client-id={i}"]
        if self.tls:
            flags += ["--root-certificates", str(self.keys / "ca.crt")]
            flags += ["--auth-supernode-private-key", str(self.key(i))]
        else:
            flags += ["--insecure"]
        return self.process(f"node-{i}", "flower-supernode", *flags)

    def key(self, i: int) -> Path:
        """The file of the private key of node i; the public key has the suffix .pub."""
        return self.keys / f"node-{i}"

    def write(self, nodes: int) -> None:
        """Write the folders, Flower's configuration and, with TLS, missing certificates and keys."""
        self.first.mkdir(mode=0o700)
        how = "insecure = true"
        if self.tls:
            from fedawe.deploy.local import keys

            how = f"root-certificates = {json.dumps(str(self.keys / 'ca.crt'))}"
            if not (self.keys / "ca.crt").exists():
                keys.make_certificates(self.keys)
            for i in range(nodes):
                if not self.key(i).exists():
                    keys.make_key_pair(self.key(i))
        lines = ["[superlink]", f'default = "{CONNECTION}"', "", f"[superlink.{CONNECTION}]"]
        lines += [f'address = "127.0.0.1:{self.port}"', how, ""]
        (new_folder(self.folder / "flower") / "config.toml").write_text("\n".join(lines))
