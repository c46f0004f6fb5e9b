"""The keeper of a local federation: a separate process with two tasks.

It starts client apps. Flower starts a new Python process for every message, and loading PyTorch takes far longer than
a round of a small model. The keeper has loaded PyTorch and forks. The nodes find a command `flwr-clientapp` first in
their PATH that sends its arguments to the keeper; Flower's own entry point then runs in the fork, in the process group
of the node.

And when the process that started the federation has ended, for whatever reason, the keeper kills all processes that
are left of the federation.
"""

import array
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LOADED = ("torch", "flwr.supernode.cli", "flwr.clientapp", "fedawe.deploy.digits", "sklearn.datasets")
LAUNCHER = """#!{python} -IS
import array, json, os, socket, sys
keeper = socket.socket(socket.AF_UNIX)
try:
    keeper.connect({address!r})
except OSError:  # no keeper: start it as Flower does
    os.execv({command!r}, sys.argv)
said = json.dumps([sys.argv, os.getcwd(), dict(os.environ), os.getpgid(0)]).encode()
keeper.sendmsg([said[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
keeper.sendall(said[1:])
keeper.shutdown(socket.SHUT_WR)
keeper.recv(1)  # ends when the fork does
"""


def write_launcher(path: Path, address: Path, command: Path) -> None:
    """Write the command that the nodes find instead of Flower's `flwr-clientapp`."""
    text = LAUNCHER.format(python=sys.executable, address=str(address), command=str(command))
    path.write_text(text)
    path.chmod(0o700)


def keep(mark: str, address: str | None) -> None:
    """Serve until standard input ends, which it does when the process at its other end is gone; then sweep."""
    from fedawe.deploy.local.processes import sweep

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks are not waited for
    doors: list[socket.socket] = []
    if address is not None:
        for name in LOADED:
            with suppress(ImportError):
                importlib.import_module(name)
        door = socket.socket(socket.AF_UNIX)
        door.bind(address)
        door.listen(64)
        doors.append(door)
    while True:
        ready, _, _ = select.select([sys.stdin, *doors], [], [])
        if sys.stdin in ready:
            break
        caller, _ = doors[0].accept()
        with caller:
            _fork(caller, doors[0])
    sweep(mark)


def _fork(caller: socket.socket, door: socket.socket) -> None:
    fds = array.array("i")
    caller.settimeout(5)
    try:
        said, ancillary, _, _ = caller.recvmsg(1, socket.CMSG_SPACE(2 * fds.itemsize))
        for _, _, content in ancillary:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        while part := caller.recv(1 << 16):
            said += part
        call = json.loads(said)
    except (OSError, ValueError):
        return
    if os.fork():
        for fd in fds:
            os.close(fd)
        return
    code = 1
    try:
        door.close()
        _become(call, fds)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # no exit handlers of the keeper run in a fork


def _become(call: Sequence[object], fds: "array.array[int]") -> None:
    """Turn this fork into the requested process: its group, streams, folder, environment and arguments."""
    arguments, folder, environment, group = call
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    with suppress(OSError):  # the node was killed meanwhile; Flower's check for its parent ends the fork
        os.setpgid(0, int(str(group)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, fd in enumerate([nothing, *fds]):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(str(folder))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    from flwr.supernode.cli import flwr_clientapp

    flwr_clientapp()


if __name__ == "__main__":
    keep(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
