"""Which runs every table and figure needs.

Runs lie in folders named by what they are, `svhn-sine`, and are shared: table 8 and figure 7 are made
from the runs of table 2, and one column each of tables 9 and 10 is too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedawe.algorithms import ALGORITHMS
from fedawe.core.errors import UserError
from fedawe.experiments.settings import Contender, Settings
from fedawe.paper.presets import Preset, Rates, presets

Item = Literal[
    "fig2",
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "table2",
    "table8",
    "table9",
    "table10",
    "search",
    "fairness",
    "beyond",
]
Clip = Literal["none", "update", "gradient"]
Whom = Literal["fedawe", "all"]
Evaluate = Literal["mean", "latest", "received"]

DYNAMICS = ("stationary", "staircase", "sine", "interleaved")  # of table 2
BEYOND = ("markov", "cyclic", "outages")
WITHOUT_FEDVARP = tuple(name for name in ALGORITHMS if name != "fedvarp")  # tables 8, 9, 10
GAMMAS, ALPHAS = ("0.3", "0.2", "0.1"), ("0.05", "0.1", "1.0")
FIGURE3 = ((0.1, 0.3, 0.5, 1.0), (0.1, 0.2, 0.3, 0.5))  # p and gamma
NORM = 0.5  # of every clip
# Whose rates are searched for, and whether clipped: at the rates found without it the clip hardly touches the others.
SEARCHED = (*((name, False) for name in ALGORITHMS), ("fedawe", True))


@dataclass(frozen=True)
class Readings:
    """How to read the paper where its text and its code disagree; the defaults are what the code does."""

    clip: Clip = "update"
    clip_whom: Whom = "fedawe"
    evaluate: Evaluate = "mean"
    augment: Literal["image", "batch"] | None = None

    def contender(self, preset: Preset, data: str, algorithm: str) -> str:
        """An algorithm with its clip and its learning rates, as the command line spells it."""
        clipped = self.clip != "none" and (self.clip_whom == "all" or algorithm == "fedawe")
        if clipped and self.clip == "update":
            return contender(algorithm, preset.rate(data, algorithm, clipped=True), f"clip={NORM}")
        more = f"clip_grad={NORM}" if clipped else ""
        return contender(algorithm, preset.rate(data, algorithm), more)


def contender(algorithm: str, rates: Rates, more: str = "") -> str:
    """Spelled as on the command line; eta_g only where it is not 1.

    >>> contender("fedawe", (0.5, 1.0), "clip=0.5"), contender("fedavg-all", (0.2, 5.0))
    ('fedawe:eta0=0.5,clip=0.5', 'fedavg-all:eta0=0.2,eta_g=5')
    """
    eta0, eta_g = rates
    options = [f"eta0={eta0:g}", f"eta_g={eta_g:g}" if eta_g != 1 else "", more]
    return f"{algorithm}:{','.join(option for option in options if option)}"


@dataclass(frozen=True)
class Batch:
    """Runs that share a folder."""

    folder: str
    settings: Settings
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]

    def contenders(self) -> list[Contender]:
        """The algorithms, read."""
        return [Contender.parse(text) for text in self.algorithms]


@dataclass(frozen=True)
class Plan:
    """A preset, the readings, and a recorded trace if there is one."""

    preset: Preset
    readings: Readings = Readings()
    trace: Path | None = None

    def batch(
        self, data: str, dynamics: str, algorithms: Sequence[str] = tuple(ALGORITHMS), name: str = "", **changes: object
    ) -> Batch:
        """Some algorithms on a data set under dynamics."""
        settings = self.preset.on(data, dynamics, **changes)
        folder = f"{data}-{name or dynamics.replace(':', '-')}"
        if self.readings.augment is not None:
            settings, folder = replace(settings, augment=self.readings.augment), f"{folder}-{self.readings.augment}wise"
        chosen = tuple(self.readings.contender(self.preset, data, name) for name in algorithms)
        return Batch(folder, settings, chosen, self.preset.seeds)

    @property
    def first(self) -> str:
        """The data set of the tables and figures that have only one."""
        return self.preset.data[0]

    def table2(self) -> list[Batch]:
        """Eight algorithms under four dynamics, on every data set."""
        return [self.batch(data, dynamics) for data in self.preset.data for dynamics in DYNAMICS]

    def sine(self) -> list[Batch]:
        """Tables 8 and figure 7: table 2 under sine."""
        return [self.batch(data, "sine") for data in self.preset.data]

    def table9(self) -> list[Batch]:
        """How strongly availability swings."""
        return [self._gamma(gamma) for gamma in GAMMAS]

    def _gamma(self, gamma: str) -> Batch:
        if gamma == "0.3":
            return self.batch(self.first, "sine")
        return self.batch(self.first, f"sine:gamma={gamma}", WITHOUT_FEDVARP)

    def table10(self) -> list[Batch]:
        """How uneven the data is."""
        return [self._alpha(alpha) for alpha in ALPHAS]

    def _alpha(self, alpha: str) -> Batch:
        if float(alpha) == self.preset.settings.alpha:
            return self.batch(self.first, "sine")
        return self.batch(
            self.first, "sine", WITHOUT_FEDVARP, f"sine-alpha={alpha}", alpha=float(alpha), keep_empty=True
        )

    def figure3(self) -> list[Batch]:
        """FedAvg when everyone has the same probability: how p and gamma matter."""
        own = self.preset.figure3
        return [
            Batch(
                f"{self.first}-same-p={p:g}-gamma={gamma:g}",
                replace(own, task=self.first, dynamics=f"sine:gamma={gamma:g}", p=(p,)),
                ("fedavg",),
                self.preset.seeds,
            )
            for p in FIGURE3[0]
            for gamma in FIGURE3[1]
        ]

    def search(self) -> list[Batch]:
        """Under sine every eta0 of the grid with eta_g = 1, then every eta_g with the preset's eta0."""
        preset = self.preset
        every = max(1, preset.search_rounds // 16)
        changes = {"rounds": preset.search_rounds, "evaluate_every": every, "evaluate_received": False}
        return [
            Batch(
                f"search-{data}",
                preset.on(data, "sine", **changes),
                tuple(
                    dict.fromkeys(
                        contender(name, rates, f"clip={NORM}" if clipped else "")
                        for name, clipped in SEARCHED
                        for rates in (
                            *((eta0, 1.0) for eta0 in preset.grid),
                            *((preset.rate(data, name, clipped)[0], eta_g) for eta_g in preset.global_grid),
                        )
                    )
                ),
                preset.search_seeds,
            )
            for data in preset.data
        ]

    def fairness(self) -> list[Batch]:
        """Under sine: every protocol, and FedAWE without its echo."""
        batch = self.batch(self.first, "sine")
        chosen = [spec for specs in self.protocols().values() for spec in specs] + [self.gossip_alone(self.first)]
        return merged([batch, replace(batch, algorithms=tuple(chosen))])

    def protocols(self) -> dict[str, tuple[str, ...]]:
        """Ways to treat the algorithms: whose rates, and who is clipped."""
        paper = presets()["paper"]

        def of(preset: Preset, clip: Clip, whom: Whom = "fedawe") -> tuple[str, ...]:
            readings = Readings(clip, whom)
            return tuple(readings.contender(preset, self.first, name) for name in ALGORITHMS)

        return {
            "the paper's rates, only FedAWE clipped": of(paper, "update"),
            "rates searched for, only FedAWE clipped": of(self.preset, "update"),
            "rates searched for, nobody clipped": of(self.preset, "none"),
            "rates searched for, everybody clipped": of(self.preset, "update", "all"),
        }

    def gossip_alone(self, data: str) -> str:
        """FedAWE that multiplies nothing and clips nothing: every echo counts once."""
        return contender("fedawe", self.preset.rate(data, "fedawe"), "max_echo=1")

    def beyond(self) -> list[Batch]:
        """Availability that the paper does not have: Markov chains, cycles, outages, and a recorded trace."""
        batches = [self.batch(self.first, dynamics) for dynamics in BEYOND]
        if self.trace is not None:
            known = tuple(name for name in ALGORITHMS if name != "fedavg-known")
            batches.append(
                self.batch(self.first, str(self.trace), known, f"trace-{self.trace.stem}", clients=None, rounds=None)
            )
        return batches

    def of(self, item: Item) -> list[Batch]:
        """The runs that an item needs; none for those that are drawn or computed directly."""
        needs: dict[str, Callable[[], list[Batch]]] = {
            "fig3": self.figure3,
            "fig7": self.sine,
            "table2": self.table2,
            "table8": self.sine,
            "table9": self.table9,
            "table10": self.table10,
            "search": self.search,
            "fairness": self.fairness,
            "beyond": self.beyond,
        }
        return needs[item]() if item in needs else []


def merged(batches: Sequence[Batch]) -> list[Batch]:
    """Each folder once, with everything that is wanted of it."""
    found: dict[str, Batch] = {}
    for batch in batches:
        before = found.get(batch.folder)
        if before is not None and before.settings != batch.settings:
            raise UserError(f"{batch.folder} is wanted with two kinds of settings")
        algorithms = dict.fromkeys((*(before.algorithms if before else ()), *batch.algorithms))
        found[batch.folder] = replace(batch, algorithms=tuple(algorithms))
    return list(found.values())
