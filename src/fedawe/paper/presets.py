"""The sizes at which the paper's experiments can be repeated.

paper   exactly the paper's settings (section 7 and tables 6 and 7); weeks on two cores
conv    the paper's networks, clients, rounds and steps, on images of 16 x 16 in batches of 32, not augmented,
        and evaluated on the test data alone, since an evaluation on all training data costs more than the training
mini    the same structure for two cores: as conv, but one hidden layer of 64 units, and 800 rounds
smoke   a few seconds, on the bundled digits: for trying it out, and for tests

Evaluations are sparse, every 20 rounds as the paper's table 8 counts. In the last 50 rounds, whose mean is reported,
there is one after every second round: every 20 would always meet the same phase of an availability with period 20.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from fedawe.core.errors import UserError
from fedawe.experiments.settings import Settings
from fedawe.paper.readings import RateKind

Name = Literal["paper", "conv", "mini", "smoke"]
Rates = tuple[float, float]  # eta0, eta_g
EQUAL: Rates = (0.1, 1.0)
DENSE = (50, 2)  # evaluations of the window that is reported: the last 50 rounds, every second one
VALIDATION = 0.1  # the share of every client's samples on which `search` compares rates; other runs train on all


@dataclass(frozen=True)
class Preset:
    """The settings, rates and seeds of one size."""

    name: Name
    data: tuple[str, ...]
    settings: Settings
    rates: RateKind  # used unless others are chosen
    seeds: tuple[int, ...]
    grid: tuple[float, ...]  # values of eta0 for `search`
    global_grid: tuple[float, ...]  # values of eta_g
    search_rounds: int
    search_seeds: tuple[int, ...]
    figure3: Settings  # with other rounds and eta0
    figure2_cells: int  # cells on a side of the heat map
    figure2_rounds: int

    def rate(self, kind: RateKind, data: str, algorithm: str, clipped: bool = False) -> Rates:
        """eta0 and eta_g of an algorithm; FedAWE with a clip has tuned rates of its own."""
        if kind == "equal":
            return EQUAL
        if kind == "paper":
            return (0.1 if algorithm in ("fedawe", "fedavg-known") else 0.05), 1.0  # table 7
        found = tuned_rates().get(self.name, {}).get(data)
        if found is None:
            raise UserError(
                f"rates is tuned, but no rates were searched for on {data} with the preset {self.name}; "
                "choose --rates paper or --rates equal"
            )
        return found["fedawe, clipped" if clipped and algorithm == "fedawe" else algorithm]

    def on(self, task: str, dynamics: str, **changes: Any) -> Settings:
        """The settings of an experiment on a data set under dynamics."""
        return replace(self.settings, task=task, dynamics=dynamics, **changes)


@cache
def tuned_rates() -> Mapping[str, Mapping[str, Mapping[str, Rates]]]:
    """The best rates of `search`: preset -> data set -> algorithm -> eta0 and eta_g."""
    found = json.loads((files("fedawe.paper") / "rates.json").read_text(encoding="utf-8"))
    return {
        preset: {data: {name: (eta0, eta_g) for name, (eta0, eta_g) in each.items()} for data, each in sets.items()}
        for preset, sets in found.items()
    }


@cache
def presets() -> dict[Name, Preset]:
    """All presets by name."""
    paper = Settings(
        model="paper",
        rounds=2000,
        batch=128,
        clients=100,
        alpha=0.1,
        evaluate_every=20,
        evaluate_last=DENSE,
        evaluate_received=True,
    )
    conv = replace(paper, image_size=16, batch=32, augment="none", evaluate_on=("test",))
    mini = replace(conv, model="mlp", rounds=800, evaluate_on=())
    smoke = Settings(
        model="softmax", rounds=6, clients=20, alpha=0.5, steps=2, evaluate_every=3, evaluate_received=True
    )
    found = (
        Preset(
            "paper",
            ("svhn", "cifar10", "cinic10"),
            paper,
            rates="paper",
            seeds=(3, 4, 6),
            grid=(0.1, 0.05, 0.01, 0.005, 0.001, 0.0005),
            global_grid=(0.5, 1.0, 1.5, 5.0, 10.0, 50.0),
            search_rounds=500,
            search_seeds=(3, 4, 6),
            figure3=replace(paper, rounds=1000, eta0=0.05, evaluate_received=False),
            figure2_cells=20,
            figure2_rounds=4000,
        ),
        Preset(
            "conv",
            ("svhn", "cifar10"),
            conv,
            rates="equal",
            seeds=(3, 4, 6),
            grid=(0.05, 0.1, 0.2, 0.4),
            global_grid=(0.5, 1.0, 2.0, 4.0, 8.0),
            search_rounds=200,
            search_seeds=(0, 1),
            figure3=replace(conv, rounds=1000, eta0=0.05, evaluate_received=False, evaluate_on=()),
            figure2_cells=10,
            figure2_rounds=4000,
        ),
        Preset(
            "mini",
            ("svhn", "cifar10"),
            mini,
            rates="equal",
            seeds=(3, 4, 6),
            grid=(0.05, 0.1, 0.2, 0.5, 1.0),
            global_grid=(0.5, 1.0, 1.5, 5.0, 10.0),
            search_rounds=400,
            search_seeds=(0, 1),
            figure3=replace(mini, rounds=400, eta0=0.1, evaluate_received=False),
            figure2_cells=10,
            figure2_rounds=4000,
        ),
        Preset(
            "smoke",
            ("digits",),
            smoke,
            rates="equal",
            seeds=(0, 1),
            grid=(0.1, 0.5),
            global_grid=(1.0, 1.5),
            search_rounds=4,
            search_seeds=(0, 1),
            figure3=replace(smoke, rounds=4, eta0=0.1, evaluate_received=False),
            figure2_cells=3,
            figure2_rounds=1000,
        ),
    )
    return {preset.name: preset for preset in found}
