"""Which experiments every table and figure needs.

They lie in folders named by what they are, `svhn-sine`, and are shared: table 8 and figure 7 are made from the runs of
table 2, and one column each of tables 9 and 10 is too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedawe.algorithms import PAPER, name_of
from fedawe.core.errors import UserError
from fedawe.experiments.build import experiment_of
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.names import Spec
from fedawe.experiments.settings import Settings
from fedawe.paper.presets import DENSE, VALIDATION, Preset, Rates, tuned_rates
from fedawe.paper.readings import Clip, Only, RateKind, Readings, Whom

ALGORITHMS = {name_of(algorithm).lower(): algorithm for algorithm in PAPER}  # the paper's eight, whatever else there is
NAMES = {name: name_of(algorithm) for name, algorithm in ALGORITHMS.items()}  # as people write them
DYNAMICS = ("stationary", "staircase", "sine", "interleaved")  # of table 2
BEYOND = ("markov", "cyclic", "outages")
WITHOUT_FEDVARP = tuple(name for name in ALGORITHMS if name != "fedvarp")  # tables 8, 9, 10
GAMMAS, ALPHAS = ("0.3", "0.2", "0.1"), ("0.05", "0.1", "1.0")
FIGURE3 = ((0.1, 0.3, 0.5, 1.0), (0.1, 0.2, 0.3, 0.5))  # p and gamma
NORM = 0.5  # of every clip
# Whose rates are searched for, and whether clipped: at the rates found without it the clip hardly touches the others.
SEARCHED = (*((name, False) for name in ALGORITHMS), ("fedawe", True))


@dataclass(frozen=True)
class Variant:
    """One of the paper's algorithms with its learning rates and its clip."""

    name: str
    rates: Rates | None = None  # None: those of the settings
    options: tuple[tuple[str, float], ...] = ()  # clip, clip_grad, max_echo

    @property
    def spec(self) -> Spec:
        """As the command line reads it; eta_g only where it is not 1."""
        eta0, eta_g = self.rates if self.rates is not None else (None, 1.0)
        said = {"eta0": eta0, "eta_g": eta_g if eta_g != 1 else None, **dict(self.options)}
        return Spec(self.name, None, {key: f"{value:g}" for key, value in said.items() if value is not None})

    @property
    def label(self) -> str:
        """Its label in tables and folders.

        >>> Variant("fedawe", (0.5, 1.0), (("clip", 0.5),)).label
        'fedawe(clip=0.5,eta0=0.5)'
        """
        return self.spec.label

    def __str__(self) -> str:
        """As it is typed.

        >>> print(Variant("fedawe", (0.5, 1.0), (("clip", 0.5),)), Variant("fedavg-all", (0.2, 5.0)))
        fedawe:eta0=0.5,clip=0.5 fedavg-all:eta0=0.2,eta_g=5
        """
        said = ",".join(f"{key}={value}" for key, value in self.spec.options.items())
        return f"{self.name}:{said}" if said else self.name


@dataclass(frozen=True)
class Planned:
    """An experiment that an item needs, and its folder."""

    folder: str
    title: str  # what tells it from the others of its item
    settings: Settings
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]

    @property
    def data(self) -> str:
        """The data set."""
        return self.settings.task

    def experiment(self) -> Experiment:
        """The experiment itself."""
        return experiment_of(self.settings, [str(variant) for variant in self.variants], self.seeds)

    def variant(self, name: str) -> Variant | None:
        """The first variant of an algorithm, if it is compared."""
        return next((variant for variant in self.variants if variant.name == name), None)


@dataclass(frozen=True)
class Plan:
    """A preset, the readings, the part of it that is wanted, and where data and a recorded trace lie."""

    preset: Preset
    readings: Readings = field(default_factory=Readings)
    only: Only = field(default_factory=Only)
    trace: Path | None = None
    data: Path | None = None

    def __post_init__(self) -> None:
        for known, asked, what in (
            (self.preset.data, self.only.datasets, "data sets"),
            ((*DYNAMICS, *BEYOND, "trace"), self.only.dynamics, "dynamics"),
            (tuple(ALGORITHMS), self.only.algorithms, "algorithms"),
            (sorted({*self.preset.seeds, *self.preset.search_seeds}), self.only.seeds, "seeds"),
        ):
            for name in asked:
                if name not in known:
                    raise UserError(f"{name!r} is none of the {what} of {self.preset.name}: {_listed(known)}")

    def variant(
        self, data: str, name: str, kind: RateKind | None = None, clip: Clip | None = None, whom: Whom | None = None
    ) -> Variant:
        """An algorithm with the rates and the clip of the readings, unless others are asked for."""
        kind = kind or self.readings.rates or self.preset.rates
        clip, whom = clip or self.readings.clip, whom or self.readings.clip_whom
        clipped = clip != "none" and (whom == "all" or name == "fedawe")
        by_update = clipped and clip == "update"
        option = "clip" if by_update else "clip_grad"
        return Variant(name, self.preset.rate(kind, data, name, by_update), ((option, NORM),) if clipped else ())

    def planned(
        self, data: str, dynamics: str, algorithms: Sequence[str] = tuple(ALGORITHMS), name: str = "", **changes: Any
    ) -> Planned:
        """Some algorithms on a data set under dynamics."""
        settings = self.preset.on(data, dynamics, data=self.data, **changes)
        folder = f"{data}-{name or dynamics.replace(':', '-')}"
        if self.readings.augment is not None:
            settings, folder = replace(settings, augment=self.readings.augment), f"{folder}-{self.readings.augment}wise"
        variants = tuple(self.variant(data, each) for each in algorithms)
        return Planned(folder, name or dynamics, settings, variants, self.preset.seeds)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Those of the preset that are wanted."""
        return tuple(data for data in self.preset.data if not self.only.datasets or data in self.only.datasets)

    @property
    def first(self) -> str:
        """The data set of the tables and figures that have only one."""
        return self.datasets[0]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Those of the paper that are wanted."""
        return tuple(name for name in ALGORITHMS if not self.only.algorithms or name in self.only.algorithms)

    def narrowed(self, item: str, planned: Sequence[Planned]) -> list[Planned]:
        """What is wanted of the experiments that an item needs; refused if that is nothing."""
        out = []
        for each in planned:
            dynamics = "trace" if self.trace and each.settings.dynamics == str(self.trace) else each.settings.dynamics
            if self.only.dynamics and dynamics.partition(":")[0] not in self.only.dynamics:
                continue
            variants = tuple(variant for variant in each.variants if variant.name in self.algorithms)
            seeds = tuple(seed for seed in each.seeds if not self.only.seeds or seed in self.only.seeds)
            if variants and seeds:
                out.append(replace(each, variants=variants, seeds=seeds))
        if planned and not out:
            all_seeds = _listed(dict.fromkeys(seed for each in planned for seed in each.seeds))
            raise UserError(
                f"nothing of {item} is left; name other --dynamics, --algorithms or --seeds (its seeds are {all_seeds})"
            )
        return out

    def table2(self) -> list[Planned]:
        """Eight algorithms under four dynamics, on every data set."""
        return [self.planned(data, dynamics) for data in self.datasets for dynamics in DYNAMICS]

    def sine(self) -> list[Planned]:
        """Tables 8 and figure 7: table 2 under sine."""
        return [self.planned(data, "sine") for data in self.datasets]

    def table9(self) -> list[Planned]:
        """How strongly availability swings."""
        return [replace(self._gamma(gamma), title=f"γ = {gamma}") for gamma in GAMMAS]

    def _gamma(self, gamma: str) -> Planned:
        if gamma == "0.3":
            return self.planned(self.first, "sine")
        return self.planned(self.first, f"sine:gamma={gamma}", WITHOUT_FEDVARP)

    def table10(self) -> list[Planned]:
        """How uneven the data is."""
        return [replace(self._alpha(alpha), title=f"α = {alpha}") for alpha in ALPHAS]

    def _alpha(self, alpha: str) -> Planned:
        if float(alpha) == self.preset.settings.alpha:
            return self.planned(self.first, "sine")
        return self.planned(
            self.first, "sine", WITHOUT_FEDVARP, f"sine-alpha={alpha}", alpha=float(alpha), keep_empty=True
        )

    def figure3(self) -> list[Planned]:
        """FedAvg when everyone has the same probability: how p and gamma matter."""
        return [
            Planned(
                f"{self.first}-same-p={p:g}-gamma={gamma:g}",
                figure3_title(p, gamma),
                replace(self.preset.figure3, task=self.first, dynamics=f"sine:gamma={gamma:g}", p=(p,), data=self.data),
                (Variant("fedavg"),),
                self.preset.seeds,
            )
            for p in FIGURE3[0]
            for gamma in FIGURE3[1]
        ]

    def search(self) -> list[Planned]:
        """Under sine every eta0 of the grid with every eta_g, the same for all, compared on validation data."""
        preset, rounds = self.preset, self.preset.search_rounds
        changes = {"rounds": rounds, "evaluate_every": rounds, "evaluate_last": DENSE, "evaluate_received": False}
        changes["evaluate_on"] = ("validation",)
        return [
            Planned(
                f"search-{data}",
                data,
                preset.on(data, "sine", data=self.data, validation=VALIDATION, **changes),
                tuple(
                    Variant(name, (eta0, eta_g), (("clip", NORM),) if clipped else ())
                    for name, clipped in SEARCHED
                    for eta0 in sorted(preset.grid)
                    for eta_g in sorted(preset.global_grid)
                ),
                preset.search_seeds,
            )
            for data in self.datasets
        ]

    def fairness(self) -> list[Planned]:
        """Under sine: every protocol, and FedAWE without its echo."""
        planned = self.planned(self.first, "sine")
        chosen = [variant for variants in self.protocols().values() for variant in variants] + [self.gossip_alone()]
        return [replace(planned, variants=tuple(dict.fromkeys((*planned.variants, *chosen))))]

    def protocols(self) -> Mapping[str, tuple[Variant, ...]]:
        """Ways to treat the algorithms: whose rates, and who is clipped."""

        def of(kind: RateKind, clip: Clip, whom: Whom = "fedawe") -> tuple[Variant, ...]:
            return tuple(self.variant(self.first, name, kind, clip, whom) for name in self.algorithms)

        kind = self.best_known
        rates = "rates searched for" if kind == "tuned" else "equal rates"
        return {
            "the paper's rates, only FedAWE clipped": of("paper", "update"),
            "equal rates, only FedAWE clipped": of("equal", "update"),
            f"{rates}, only FedAWE clipped": of(kind, "update"),
            f"{rates}, nobody clipped": of(kind, "none"),
            f"{rates}, everybody clipped": of(kind, "update", "all"),
        }

    @property
    def best_known(self) -> RateKind:
        """Rates that were searched for, or equal ones where none were."""
        return "tuned" if self.first in tuned_rates().get(self.preset.name, {}) else "equal"

    def gossip_alone(self) -> Variant:
        """FedAWE that multiplies nothing and clips nothing: every echo counts once."""
        rates = self.variant(self.first, "fedawe", self.best_known, "none").rates
        return Variant("fedawe", rates, (("max_echo", 1),))

    def beyond(self) -> list[Planned]:
        """Availability that the paper does not have: Markov chains, cycles, outages, and a recorded trace."""
        found = [self.planned(self.first, dynamics) for dynamics in BEYOND]
        if self.trace is not None:
            known = [name for name, algorithm in ALGORITHMS.items() if not getattr(algorithm, "needs_p", False)]
            name = f"trace-{self.trace.stem}"
            found.append(self.planned(self.first, str(self.trace), known, name, clients=None, rounds=None))
        return found


def _listed(known: Iterable[object]) -> str:
    return ", ".join(map(str, known))


def figure3_title(p: float, gamma: float) -> str:
    """What an experiment of figure 3 is called."""
    return f"p = {p:g}, γ = {gamma:g}"


def merged(planned: Sequence[Planned]) -> list[Planned]:
    """Each folder once, with everything that is wanted of it."""
    found: dict[str, Planned] = {}
    for each in planned:
        before = found.get(each.folder)
        if before is not None and before.settings != each.settings:
            raise UserError(f"{each.folder} is wanted with two kinds of settings")
        variants = dict.fromkeys((*(before.variants if before else ()), *each.variants))
        found[each.folder] = replace(each, variants=tuple(variants))
    return list(found.values())
