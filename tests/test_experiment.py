"""What an algorithm may have of its own in how its clients train."""

import dataclasses
import json
from pathlib import Path

import pytest

from fedawe.core.errors import UserError
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings

SETTINGS = Settings(model="softmax", clients=10, rounds=5, batch=16, steps=3, evaluate_every=5, alpha=0.5, eta0=0.5)


def losses(out: Path, settings: Settings, *algorithms: str) -> dict[str, tuple[float, bytes]]:
    """The last test loss and the model of each."""
    experiment = experiment_of(settings, algorithms, (0,))
    experiment.run(out, engine="stacked", workers=1)
    found = {}
    for label in experiment.algorithms:
        folder = out / label / "seed-0"
        last = json.loads((folder / "record.jsonl").read_text().splitlines()[-2])
        found[label] = (last["test_loss"], (folder / "model.safetensors").read_bytes())
    return found


def test_a_clip_of_ones_own_is_the_clip_of_all(tmp_path: Path) -> None:
    """Each run among others with another clip, or none, is bit for bit the run in which everyone is clipped so."""
    mixed = losses(tmp_path / "mixed", SETTINGS, "fedawe:clip_grad=0.1", "fedavg", "mifa:clip_grad=0.3", "mifa")
    for clip, own, plain in (
        (0.1, "fedawe(clip_grad=0.1)", "fedawe"),
        (0.3, "mifa(clip_grad=0.3)", "mifa"),
    ):
        alike = losses(tmp_path / plain, dataclasses.replace(SETTINGS, clip_grad=clip), plain, "fedavg")
        assert mixed[own] == alike[plain]
        assert mixed["fedavg"][0] != alike["fedavg"][0]
    none = losses(tmp_path / "none", SETTINGS, "mifa", "fedavg")
    assert mixed["mifa"] == none["mifa"]
    assert mixed["fedavg"] == none["fedavg"]
    assert mixed["mifa"][0] != mixed["mifa(clip_grad=0.3)"][0]


def test_what_is_ones_own_comes_before_what_is_common() -> None:
    settings = dataclasses.replace(SETTINGS, clip_grad=2.0, batches="epochs")
    for text, eta0, clip in (
        ("fedawe", 0.5, 2.0),
        ("fedawe:eta0=0.2", 0.2, 2.0),
        ("fedawe:clip_grad=0.7", 0.5, 0.7),
        ("fedawe:clip_grad=0.7,eta0=0.2,clip=0.4", 0.2, 0.7),
    ):
        experiment = experiment_of(settings, [text])
        (label,) = experiment.algorithms
        local = experiment.local_of(label)
        assert (local.rate.eta0, local.clip_grad) == (eta0, clip)
        assert (local.steps, local.batch, local.batches) == (3, 16, "epochs")


def test_it_is_not_an_option_of_the_algorithm() -> None:
    plain, own = experiment_of(
        SETTINGS, ["fedawe:clip=0.4", "fedawe:clip=0.4,clip_grad=0.7,eta0=0.2"]
    ).algorithms.values()
    assert own == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mifa:clip_grad=0", "mifa(clip_grad=0): clip_grad is 0.0; expected a positive number"),
        ("mifa:clip_grad=-1", "mifa(clip_grad=-1): clip_grad is -1.0; expected a positive number"),
        ("mifa:clip_grad=x", "mifa:clip_grad is 'x'; expected a number"),
    ],
)
def test_an_invalid_clip_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        experiment_of(SETTINGS, [text])
    assert said in str(refused.value)
