"""The eight algorithms as Flower strategies, with the names and options that they have everywhere in this package.

All take the options of `fedawe.deploy.Rules` besides their own; `clients` must be given.
"""

from typing import Any, Literal

from fedawe import algorithms
from fedawe.deploy.rules import checked_rules
from fedawe.deploy.strategy import AlgorithmStrategy


class FedAWE(AlgorithmStrategy):
    """Clients start from their own last model, and make up for the rounds they missed (`fedawe.FedAWE`)."""

    def __init__(
        self, *, eta_g: float = 1.0, clip: float | None = None, max_echo: int | None = None, **rules: Any
    ) -> None:
        super().__init__(algorithms.FedAWE(eta_g, clip, max_echo), checked_rules(rules))


class FedAvg(AlgorithmStrategy):
    """The mean over whoever answers, each client alike (`fedawe.FedAvg`)."""

    def __init__(self, *, eta_g: float = 1.0, clip: float | None = None, **rules: Any) -> None:
        super().__init__(algorithms.FedAvg(eta_g, clip), checked_rules(rules))


class FedAvgAll(AlgorithmStrategy):
    """Whoever does not answer counts as zero (`fedawe.FedAvgAll`)."""

    def __init__(self, *, eta_g: float = 1.0, clip: float | None = None, **rules: Any) -> None:
        super().__init__(algorithms.FedAvgAll(eta_g, clip), checked_rules(rules))


class FedAvgKnown(AlgorithmStrategy):
    """Weighted by probabilities p [rounds, clients] that are known beforehand (`fedawe.FedAvgKnown`)."""

    def __init__(self, p: Any, *, eta_g: float = 1.0, clip: float | None = None, **rules: Any) -> None:
        super().__init__(algorithms.FedAvgKnown(p, eta_g, clip), checked_rules(rules))


class FedAU(AlgorithmStrategy):
    """Weighted by the mean interval between a client's rounds (`fedawe.FedAU`)."""

    def __init__(self, *, K: int = 50, eta_g: float = 1.0, clip: float | None = None, **rules: Any) -> None:
        super().__init__(algorithms.FedAU(K, eta_g, clip), checked_rules(rules))


class F3AST(AlgorithmStrategy):
    """Weighted by a moving average of how often a client is there (`fedawe.F3AST`)."""

    def __init__(
        self,
        *,
        beta: float = 0.001,
        eta_g: float = 1.0,
        capacity: int | None = None,
        r0: float | Literal["share"] = 1.0,
        normalise: Literal["clients", "capacity", "self"] = "clients",
        clip: float | None = None,
        **rules: Any,
    ) -> None:
        super().__init__(algorithms.F3AST(beta, eta_g, capacity, r0, normalise, clip), checked_rules(rules))


class MIFA(AlgorithmStrategy):
    """Every client's last innovation counts in every round (`fedawe.MIFA`)."""

    def __init__(
        self,
        *,
        eta_g: float = 1.0,
        clip: float | None = None,
        memory_rate: Any = None,
        warmup: Literal["none", "all-seen"] = "none",
        **rules: Any,
    ) -> None:
        super().__init__(algorithms.MIFA(eta_g, clip, memory_rate, warmup), checked_rules(rules))


class FedVARP(AlgorithmStrategy):
    """The mean of last innovations, corrected by whoever answers (`fedawe.FedVARP`)."""

    def __init__(self, *, eta_g: float = 1.0, clip: float | None = None, memory_rate: Any = None, **rules: Any) -> None:
        super().__init__(algorithms.FedVARP(eta_g, clip, memory_rate), checked_rules(rules))
