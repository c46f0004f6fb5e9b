"""What an algorithm may have of its own in how its clients train."""

import dataclasses
import json
from pathlib import Path

import pytest

from fedawe.core.errors import UserError
from fedawe.experiments import schedule as suite
from fedawe.experiments.schedule import Execution
from fedawe.experiments.settings import Contender, Settings, World

SETTINGS = Settings(model="softmax", clients=10, rounds=5, batch=16, steps=3, evaluate_every=5, alpha=0.5, eta0=0.5)


def losses(out: Path, settings: Settings, *algorithms: str) -> dict[str, tuple[float, bytes]]:
    """The last test loss and the model of each."""
    contenders = [Contender.parse(text) for text in algorithms]
    how = Execution(engine="stacked", workers=1)
    for _ in suite.run(settings, contenders, (0,), out, command="test", execution=how):
        pass
    found = {}
    for contender in contenders:
        folder = out / contender.label / "seed-0"
        last = json.loads((folder / "record.jsonl").read_text().splitlines()[-2])
        found[contender.label] = (last["test_loss"], (folder / "model.safetensors").read_bytes())
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
    settings = dataclasses.replace(SETTINGS, clip_grad=2.0).resolved()
    common = settings.local()
    for text, eta0, clip in (
        ("fedawe", 0.5, 2.0),
        ("fedawe:eta0=0.2", 0.2, 2.0),
        ("fedawe:clip_grad=0.7", 0.5, 0.7),
        ("fedawe:clip_grad=0.7,eta0=0.2,clip=0.4", 0.2, 0.7),
    ):
        local = Contender.parse(text).local(settings)
        assert (local.rate.eta0, local.clip_grad) == (eta0, clip)
        assert (local.steps, local.batch, local.batches) == (common.steps, common.batch, common.batches)


def test_it_is_not_an_option_of_the_algorithm() -> None:
    settings = SETTINGS.resolved()
    trace = World.of(settings, 0).trace
    plain = Contender.parse("fedawe:clip=0.4").algorithm(settings, trace)
    assert Contender.parse("fedawe:clip=0.4,clip_grad=0.7,eta0=0.2").algorithm(settings, trace) == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mifa:clip_grad=0", "mifa(clip_grad=0): clip_grad is 0.0; expected a positive number"),
        ("mifa:clip_grad=-1", "mifa(clip_grad=-1): clip_grad is -1.0; expected a positive number"),
        ("mifa:clip_grad=x", "mifa:clip_grad is 'x'; expected a number"),
    ],
)
def test_a_clip_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        Contender.parse(text).local(SETTINGS.resolved())
    assert said in str(refused.value)
