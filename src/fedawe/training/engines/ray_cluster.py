"""Reaching Ray: a cluster that runs, or one of our own on this machine. Ray is imported only when it is asked for."""

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
INITS = 3  # tries to connect
ANSWER = 10.0  # seconds in which whoever listens must say something
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # HTTP/2 and empty settings
SETTINGS = 4  # the kind of frame with which an HTTP/2 server answers it
TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def address_of(engine: str) -> str | None:
    """Where the cluster is that an engine names; empty for whatever runs here or is started; None if it names none.

    >>> address_of("ray"), address_of("ray:10.0.0.1:6379"), address_of("ray://head:10001"), address_of("auto")
    ('', '10.0.0.1:6379', 'ray://head:10001', None)
    """
    if engine == "ray":
        return ""
    if engine.startswith("ray://"):
        return engine
    return engine.removeprefix("ray:") or engine if engine.startswith("ray:") else None


def imported() -> Any:
    """Ray, which reads in this moment that it must not start another when a connection is lost."""
    lent = _lend({"RAY_ENABLE_AUTO_CONNECT": "0"})
    try:
        import ray
    except ImportError:
        raise UserError("engine ray needs Ray, which is not installed here: pip install 'fedawe[ray]'") from None
    finally:
        _take_back(lent)
    return ray


def _lend(wanted: dict[str, str]) -> list[str]:
    """Put into the environment what is not there, and say what."""
    lent = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in lent})
    return lent


def _take_back(lent: list[str]) -> None:
    for name in lent:
        os.environ.pop(name, None)


def reach(address: str) -> str:
    """The address at which a cluster answers; empty if one has to be started. Takes a few seconds at most."""
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
    """What `ray start` left word of on this machine; it may have ended since."""
    folder = next((os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "/tmp")
    with suppress(OSError):
        return Path(folder, "ray", "ray_current_cluster").read_text().strip() or None
    return None


def _answers(address: str) -> bool:
    """Whether a server of Ray's kind listens there; Ray itself would try for many minutes before it gave up."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"{address!r} is no address of a Ray cluster; expected {FORMS}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as line:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return True  # it would not answer a plain greeting
            line.sendall(GREETING)
            return line.recv(9)[3:4] == bytes([SETTINGS])
    except (OSError, OverflowError, UnicodeError):
        return False


class RayCluster:
    """A connection to Ray: the one this program has already, or a new one that ends with `close`.

    address  HOST:PORT from a machine of the cluster, ray://HOST:PORT from any other; "auto" for the one that
             `ray start` began here; empty for $RAY_ADDRESS, or that one, or else one of our own with `number` cores
    """

    def __init__(self, address: str = "", number: int | None = None) -> None:
        where = reach(address)
        self.ray = imported()
        self.ours = not self.ray.is_initialized()
        self.lent: list[str] = []
        if self.ours:
            self._connect(where, number or cores())

    def _connect(self, where: str, number: int) -> None:
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not where:
            how |= {"num_cpus": number, "include_dashboard": False}
            self._lend_environment()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Ray Client connection timed out")  # we say so ourselves
                self._init(where or "local", **how)
        except (OSError, RuntimeError, ValueError, ImportError, self.ray.exceptions.RayError) as error:
            self.close()
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"cannot use Ray at {where or 'this machine'}: {said}; is it the right port, and has the cluster a "
                "token (then set RAY_AUTH_MODE=token)?"
            ) from None

    def _init(self, where: str, **how: Any) -> None:
        for left in reversed(range(INITS)):
            try:
                self.ray.init(where, **how)
                return
            except ConnectionAbortedError:  # the head of ray:// is slow or stumbles over itself when it is busy
                if left == 0:
                    raise
                self.ray.shutdown()

    def _lend_environment(self) -> None:
        """A Ray of our own tells nobody of itself, and has a password that it need not leave in the home folder."""
        wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
        if not any(name in os.environ for name in TOKENS) and not (Path.home() / ".ray" / "auth_token").exists():
            wanted["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        self.lent = _lend(wanted)

    def cores(self) -> int:
        """Of all nodes together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """End the connection, if it is ours, and with it a Ray that was started for it."""
        if self.ours:
            with suppress(ConnectionError):
                self.ray.shutdown()
        _take_back(self.lent)

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        cut = self.ours and not self.ray.is_initialized()
        self.close()
        # Of a head that no longer answers Ray first says that much, and then that there never was a connection.
        if type(error) is ConnectionError or (isinstance(error, Exception) and cut):
            raise UserError(
                f"the connection to Ray is lost ({error}); the same command goes on from the last checkpoint"
            ) from None
