"""The options of a federation, apart from the algorithm, and their names in a run configuration."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from fedawe.algorithms.base import is_whole
from fedawe.core.errors import UserError

Identity = Literal["node", "client-id"]
N = TypeVar("N", int, float)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The options of a federation. For limits, zero means that there is none.

    clients         m, the number of clients
    quorum          a round ends as soon as this many valid replies have arrived; 0: when every client that is waited
                    for has answered
    out             folder for checkpoint, trace, record and model; None: nothing is kept and nothing can be resumed
    identity        "node": each Flower node is a client, numbered in the order of arrival; "client-id": a node says
                    which client it is
    authenticated   the SuperLink requires authentication: a client belongs permanently to the key that first claimed it
    max_norm        largest norm of an innovation
    max_statistics  limit on a client's running statistics, as a multiple of the server's
    max_versions    how many of the clients' models (for MIFA and FedVARP, innovations) are held in memory; the others
                    are on disk
    evaluate        send the model to the clients for evaluation after every round
    groups          a CSV with the columns `client` and `group`; the metrics of evaluations are also averaged by group
    weighted_by     the metric that contains a client's number of samples; it weights the mean of the clients' metrics
    arrays_key, config_key   the names of the records in a message
    """

    clients: int
    quorum: int = 0
    out: str | Path | None = None
    identity: Identity = "node"
    authenticated: bool = False
    max_norm: float = 0.0
    max_statistics: float = 100.0
    max_versions: int = 0
    evaluate: bool = False
    groups: str | Path | None = None
    weighted_by: str = "num-examples"
    arrays_key: str = "arrays"
    config_key: str = "config"

    def __post_init__(self) -> None:
        if not is_whole(self.clients) or self.clients < 1:
            raise UserError(f"clients is {self.clients!r}; expected the number of clients, from 1")
        for name in ("quorum", "max_versions"):
            value = getattr(self, name)
            if not is_whole(value) or value < 0:
                raise UserError(f"{name} is {value!r}; expected a whole number from 1, or 0 for none")
        if self.quorum > self.clients:
            raise UserError(f"quorum is {self.quorum}, but there are {self.clients} clients")
        for name in ("max_norm", "max_statistics"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise UserError(f"{name} is {value!r}; expected a positive number, or 0 for no limit")
        for name in ("authenticated", "evaluate"):
            if not isinstance(getattr(self, name), bool):  # the text "false" would count as true
                raise UserError(f"{name} is {getattr(self, name)!r}; expected true or false, without quotes")
        if self.identity not in get_args(Identity):
            raise UserError(f"identity is {self.identity!r}; expected 'node' or 'client-id'")
        if self.groups is not None and not self.evaluate:
            raise UserError(
                f"groups is {str(self.groups)!r}, which needs evaluations by the clients; give evaluate=true"
            )
        if self.max_versions and self.out is None:
            raise UserError("max_versions needs a folder for the versions that are not in memory; give out")

    @property
    def folder(self) -> Path | None:
        """The absolute path of `out`, or None."""
        return None if self.out is None else Path(self.out).expanduser().absolute()


# The options that a run configuration may contain; the others can be given in Python only.
CONFIGURED = (
    "clients", "quorum", "out", "authenticated", "max_norm", "max_statistics", "max_versions", "evaluate",
    "groups",
)  # fmt: skip


def options_from(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options in an app's run configuration, where their names have dashes."""
    said = {name: config[name.replace("_", "-")] for name in CONFIGURED if name.replace("_", "-") in config}
    return {name: None if value == "" and name in ("out", "groups") else value for name, value in said.items()}


def number(config: Mapping[str, Any], name: str, default: N) -> N:
    """The number of this name in a run configuration, of the type of its default; refuses anything else."""
    value = config.get(name, default)
    try:
        found = type(default)(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or (isinstance(value, float) and found != value):
        expected = "a whole number" if isinstance(default, int) else "a number"
        raise UserError(f"{name} is {value!r}; expected {expected}")
    return found


def checked_rules(said: Mapping[str, Any]) -> Rules:
    """The options as `Rules`; refuses unknown ones."""
    known = [field.name for field in fields(Rules)]
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise UserError(f"unknown option {unknown[0]!r}; expected {', '.join(known)}")
    if "clients" not in said:
        raise UserError("clients is missing; give the number of clients, as in clients=10")
    return Rules(**said)
