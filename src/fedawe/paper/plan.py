"""The experiments that every table and figure needs.

Their folders are named after data and dynamics, such as `svhn-sine`, and are shared: table 8, figure 7, and one column
each of tables 9 and 10 use runs of table 2.
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
from fedawe.paper.readings import Clip, Clipped, Only, RateKind, Readings

ALGORITHMS = {name_of(algorithm).lower(): algorithm for algorithm in PAPER}  # the eight of the paper
NAMES = {name: name_of(algorithm) for name, algorithm in ALGORITHMS.items()}  # display names
DYNAMICS = ("stationary", "staircase", "sine", "interleaved")  # those of table 2
BEYOND = ("markov", "cyclic", "outages")
WITHOUT_FEDVARP = tuple(name for name in ALGORITHMS if name != "fedvarp")  # tables 8, 9, 10
GAMMAS, ALPHAS = ("0.3", "0.2", "0.1"), ("0.05", "0.1", "1.0")
FIGURE3 = ((0.1, 0.3, 0.5, 1.0), (0.1, 0.2, 0.3, 0.5))  # p and gamma
NORM = 0.5  # the norm of every clip
# Algorithms whose rates are searched for, and whether they are clipped. At the rates that were found without a clip, it
# hardly changes the other algorithms.
SEARCHED = (*((name, False) for name in ALGORITHMS), ("fedawe", True))


@dataclass(frozen=True)
class Variant:
    """One of the paper's algorithms with its learning rates and its clip."""

    name: str
    rates: Rates | None = None  # None: those of the settings
    options: tuple[tuple[str, float], ...] = ()  # clip, clip_grad, max_echo

    @property
    def spec(self) -> Spec:
        """The spec of the command line, with eta_g only if it is not 1."""
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
        """The text of the spec.

        >>> print(Variant("fedawe", (0.5, 1.0), (("clip", 0.5),)), Variant("fedavg-all", (0.2, 5.0)))
        fedawe:eta0=0.5,clip=0.5 fedavg-all:eta0=0.2,eta_g=5
        """
        said = ",".join(f"{key}={value}" for key, value in self.spec.options.items())
        return f"{self.name}:{said}" if said else self.name


@dataclass(frozen=True)
class Planned:
    """An experiment that an item needs, and its folder."""

    folder: str
    title: str  # distinguishes it from the other experiments of its item
    settings: Settings
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]

    @property
    def data(self) -> str:
        """The data set."""
        return self.settings.task

    def experiment(self) -> Experiment:
        """Build the experiment."""
        return experiment_of(self.settings, [str(variant) for variant in self.variants], self.seeds)

    def variant(self, name: str) -> Variant | None:
        """The first variant of an algorithm, if it is compared."""
        return next((variant for variant in self.variants if variant.name == name), None)


@dataclass(frozen=True)
class Plan:
    """A preset, the readings, the selected part, and the paths of a recorded trace and of the data."""

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
                    raise UserError(
                        f"{name!r} is not among the {what} of {self.preset.name}; choose from {_listed(known)}"
                    )

    def variant(
        self, data: str, name: str, kind: RateKind | None = None, clip: Clip | None = None, whom: Clipped | None = None
    ) -> Variant:
        """An algorithm with the rates and the clip of the readings, unless others are given."""
        kind = kind or self.readings.rates or self.preset.rates
        clip, whom = clip or self.readings.clip, whom or self.readings.clip_whom
        clipped = clip != "none" and (whom == "all" or name == "fedawe")
        by_update = clipped and clip == "update"
        option = "clip" if by_update else "clip_grad"
        return Variant(name, self.preset.rate(kind, data, name, by_update), ((option, NORM),) if clipped else ())

    def planned(
        self, data: str, dynamics: str, algorithms: Sequence[str] = tuple(ALGORITHMS), name: str = "", **changes: Any
    ) -> Planned:
        """The experiment with some algorithms on a data set under dynamics."""
        settings = self.preset.on(data, dynamics, data=self.data, **changes)
        folder = f"{data}-{name or dynamics.replace(':', '-')}"
        if self.readings.augment is not None:
            settings, folder = replace(settings, augment=self.readings.augment), f"{folder}-{self.readings.augment}wise"
        variants = tuple(self.variant(data, each) for each in algorithms)
        return Planned(folder, name or dynamics, settings, variants, self.preset.seeds)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The selected data sets of the preset."""
        return tuple(data for data in self.preset.data if not self.only.datasets or data in self.only.datasets)

    @property
    def first(self) -> str:
        """The data set of the tables and figures that have only one."""
        return self.datasets[0]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The selected algorithms of the paper."""
        return tuple(name for name in ALGORITHMS if not self.only.algorithms or name in self.only.algorithms)

    def narrowed(self, item: str, planned: Sequence[Planned]) -> list[Planned]:
        """The selected part of the experiments that an item needs; refuses an empty selection."""
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
                f"no run of {item} is selected; choose other --dynamics, --algorithms or --seeds (its seeds are "
                f"{all_seeds})"
            )
        return out

    def table2(self) -> list[Planned]:
        """Table 2: eight algorithms under four dynamics, on every data set."""
        return [self.planned(data, dynamics) for data in self.datasets for dynamics in DYNAMICS]

    def sine(self) -> list[Planned]:
        """Table 8 and figure 7: the experiments of table 2 under sine."""
        return [self.planned(data, "sine") for data in self.datasets]

    def table9(self) -> list[Planned]:
        """Table 9: several amplitudes γ of the sine."""
        return [replace(self._gamma(gamma), title=f"γ = {gamma}") for gamma in GAMMAS]

    def _gamma(self, gamma: str) -> Planned:
        if gamma == "0.3":
            return self.planned(self.first, "sine")
        return self.planned(self.first, f"sine:gamma={gamma}", WITHOUT_FEDVARP)

    def table10(self) -> list[Planned]:
        """Table 10: several parameters α of the Dirichlet partition."""
        return [replace(self._alpha(alpha), title=f"α = {alpha}") for alpha in ALPHAS]

    def _alpha(self, alpha: str) -> Planned:
        if float(alpha) == self.preset.settings.alpha:
            return self.planned(self.first, "sine")
        return self.planned(
            self.first, "sine", WITHOUT_FEDVARP, f"sine-alpha={alpha}", alpha=float(alpha), keep_empty=True
        )

    def figure3(self) -> list[Planned]:
        """Figure 3: FedAvg for several p, the same for all clients, and several γ."""
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
        """The search for rates: under sine, every algorithm with every eta0 and eta_g, compared on validation data."""
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
        """Fairness: under sine, all protocols, and FedAWE without its echo."""
        planned = self.planned(self.first, "sine")
        chosen = [variant for variants in self.protocols().values() for variant in variants] + [self.gossip_alone()]
        return [replace(planned, variants=tuple(dict.fromkeys((*planned.variants, *chosen))))]

    def protocols(self) -> Mapping[str, tuple[Variant, ...]]:
        """Variants of the algorithms by protocol: which rates they have, and which of them are clipped."""

        def of(kind: RateKind, clip: Clip, whom: Clipped = "fedawe") -> tuple[Variant, ...]:
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
        """Rates that were searched for, or equal ones if none were searched for."""
        return "tuned" if self.first in tuned_rates().get(self.preset.name, {}) else "equal"

    def gossip_alone(self) -> Variant:
        """FedAWE without echo and clip: every echo is 1."""
        rates = self.variant(self.first, "fedawe", self.best_known, "none").rates
        return Variant("fedawe", rates, (("max_echo", 1),))

    def beyond(self) -> list[Planned]:
        """Dynamics that the paper does not have: Markov chains, cycles, outages, and a recorded trace."""
        found = [self.planned(self.first, dynamics) for dynamics in BEYOND]
        if self.trace is not None:
            known = [name for name, algorithm in ALGORITHMS.items() if not getattr(algorithm, "needs_p", False)]
            name = f"trace-{self.trace.stem}"
            found.append(self.planned(self.first, str(self.trace), known, name, clients=None, rounds=None))
        return found


def _listed(known: Iterable[object]) -> str:
    return ", ".join(map(str, known))


def figure3_title(p: float, gamma: float) -> str:
    """The title of an experiment of figure 3."""
    return f"p = {p:g}, γ = {gamma:g}"


def merged(planned: Sequence[Planned]) -> list[Planned]:
    """One experiment per folder, with the variants of all experiments in that folder."""
    found: dict[str, Planned] = {}
    for each in planned:
        before = found.get(each.folder)
        if before is not None and before.settings != each.settings:
            raise UserError(f"{each.folder} is needed with two different settings")
        variants = dict.fromkeys((*(before.variants if before else ()), *each.variants))
        found[each.folder] = replace(each, variants=tuple(variants))
    return list(found.values())
