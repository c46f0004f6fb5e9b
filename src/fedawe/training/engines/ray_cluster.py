"""Connecting to Ray: to a running cluster, or to a new Ray on this machine. Ray is imported only when it is used."""

import logging
import os
import secrets
import socket
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedawe.core.errors import UserError
from fedawe.training.engines.calibrate import cores

FORMS = "ray, ray:HOST:PORT or ray://HOST:PORT"
INITS = 3  # attempts to connect
ANSWER = 10.0  # seconds in which a server at the address must answer
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # HTTP/2 and empty settings
SETTINGS = 4  # the type of the frame with which an HTTP/2 server answers the greeting
TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def address_of(engine: str) -> str | None:
    """The address in the name of an engine; empty if the name has no address; None if it is not an engine of Ray.

    >>> address_of("ray"), address_of("ray:10.0.0.1:6379"), address_of("ray://head:10001"), address_of("auto")
    ('', '10.0.0.1:6379', 'ray://head:10001', None)
    """
    if engine == "ray":
        return ""
    if engine.startswith("ray://"):
        return engine
    return engine.removeprefix("ray:") or engine if engine.startswith("ray:") else None


def imported() -> Any:
    """The module `ray`, imported with a setting that prevents it from starting a new Ray when a connection is lost."""
    added = _set_missing({"RAY_ENABLE_AUTO_CONNECT": "0"})
    try:
        import ray
    except ImportError:
        raise UserError("engine ray needs Ray, which is not installed here: pip install 'fedawe[ray]'") from None
    finally:
        _unset(added)
    return ray


def _set_missing(wanted: dict[str, str]) -> list[str]:
    """Set the environment variables that are not set yet, and return their names."""
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    return added


def _unset(added: list[str]) -> None:
    for name in added:
        os.environ.pop(name, None)


def reach(address: str) -> str:
    """The address of a cluster that answers; empty if a new Ray has to be started. Takes a few seconds at most.

    Refuses an address at which no Ray answers.
    """
    imported()
    asked = address or os.environ.get("RAY_ADDRESS", "")
    if asked == "local":
        return ""
    if asked in ("", "auto"):
        started = _started_here()
        if started is not None and _answers(started):
            return started
        if asked == "auto":
            raise UserError("no Ray runs on this machine; start one with: ray start --head, or use --engine ray")
        return ""
    if not _answers(asked):
        raise UserError(
            f"no Ray answers at {asked}; expected a running cluster: ray://HOST:10001, or from one of its own machines "
            "ray:HOST:6379"
        )
    return asked


def _started_here() -> str | None:
    """The address that `ray start` wrote on this machine, or None; that cluster may have ended since."""
    folder = next((os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "/tmp")
    with suppress(OSError):
        return Path(folder, "ray", "ray_current_cluster").read_text().strip() or None
    return None


def _answers(address: str) -> bool:
    """Whether an HTTP/2 server, as Ray's is, listens at the address. Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"{address!r} is not the address of a Ray cluster; expected {FORMS}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as line:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return True  # the server would not answer an unencrypted greeting
            line.sendall(GREETING)
            return line.recv(9)[3:4] == bytes([SETTINGS])
    except (OSError, OverflowError, UnicodeError):
        return False


class RayCluster:
    """A connection to Ray: the existing one of this process, or a new one that ends with `close`.

    address  HOST:PORT from a machine of the cluster, ray://HOST:PORT from any other; "auto" for the cluster that
             `ray start` started on this machine; empty for $RAY_ADDRESS, otherwise the cluster of `ray start`,
             otherwise a new Ray with `number` cores (default: all) on this machine
    """

    def __init__(self, address: str = "", number: int | None = None) -> None:
        where = reach(address)
        self.ray = imported()
        self.ours = not self.ray.is_initialized()
        self.added: list[str] = []  # environment variables that `close` removes
        if self.ours:
            self._connect(where, number or cores())

    def _connect(self, where: str, number: int) -> None:
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not where:
            how |= {"num_cpus": number, "include_dashboard": False}
            self._set_environment()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Ray Client connection timed out")  # the error below says so
                self._init(where or "local", **how)
        except (OSError, RuntimeError, ValueError, ImportError, self.ray.exceptions.RayError) as error:
            self.close()
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"cannot use Ray at {where or 'this machine'}: {said}; is the port right, and does the cluster "
                "have a token (then set RAY_AUTH_MODE=token)?"
            ) from None

    def _init(self, where: str, **how: Any) -> None:
        for left in reversed(range(INITS)):
            try:
                self.ray.init(where, **how)
                return
            except ConnectionAbortedError:  # the head of ray:// may abort a connection when it is busy
                if left == 0:
                    raise
                self.ray.shutdown()

    def _set_environment(self) -> None:
        """Settings of a new Ray: no usage reports, and a random token, which is then not written to the home folder."""
        wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
        if not any(name in os.environ for name in TOKENS) and not (Path.home() / ".ray" / "auth_token").exists():
            wanted["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        self.added = _set_missing(wanted)

    def cores(self) -> int:
        """The number of cores of all nodes together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """End the connection and the Ray that was started for it, unless the connection existed before."""
        if self.ours:
            with suppress(ConnectionError):
                self.ray.shutdown()
        _unset(self.added)

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        cut = self.ours and not self.ray.is_initialized()
        self.close()
        # After the head stops answering, Ray raises a ConnectionError first and later claims that it is not connected.
        if type(error) is ConnectionError or (isinstance(error, Exception) and cut):
            raise UserError(
                f"the connection to Ray is lost ({error}); the same command continues from the last checkpoint"
            ) from None
