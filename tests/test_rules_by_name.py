"""Rules inside rules, optimisers and choosers as the command line writes them, up to the run folder."""

from pathlib import Path
from typing import Any

import pytest

import fedawe
from fedawe.core.errors import UserError
from fedawe.experiments.build import algorithm_spec, build_algorithm, experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results import record as records


def built(text: str) -> Any:
    return build_algorithm(algorithm_spec(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fedprox:mu=0.1", fedawe.FedProx(mu=0.1)),
        ("scaffold:period=3,option=1", fedawe.SCAFFOLD(option=1, period=3)),
        ("fedadam:rule=fedau,eta_s=0.2", fedawe.FedAdam(eta_s=0.2, rule=fedawe.FedAU())),
        ("fedadam:rule=fedau(K=20,eta_g=0.5),tau=0.1", fedawe.FedAdam(tau=0.1, rule=fedawe.FedAU(K=20, eta_g=0.5))),
        (
            "fedavgm:rule=amplified(rule=scaffold(period=3),period=3)",
            fedawe.FedAvgM(rule=fedawe.Amplified(fedawe.SCAFFOLD(period=3), 3)),
        ),
        ("chosen:rule=fedawe,chooser=oort(k=3)", fedawe.Chosen(fedawe.FedAWE(), fedawe.Oort(3))),
        ("robust:rule=fedawe,by=trimmed(share=0.2)", fedawe.Robust(fedawe.FedAWE(), fedawe.Trimmed(0.2))),
        ("private:rule=fedawe,clip=0.5", fedawe.Private(fedawe.FedAWE(), clip=0.5)),
        ("mifa:memory=client", fedawe.MIFA(memory="client")),
        ("fedpbc:clip=0.5", fedawe.FedPBC(clip=0.5)),
    ],
)
def test_a_rule_may_be_inside_another(text: str, expected: Any) -> None:
    assert built(text) == expected
    assert algorithm_spec(text).label.startswith(text.partition(":")[0] + "(")


def test_a_number_of_clusters_may_be_typed() -> None:
    assert built("clusterfedvarp:clusters=4").clusters == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scaffold:option=3", "option is '3'; expected 1, 2"),
        ("fedadam:rule=nobody", "unknown algorithm 'nobody'"),
        ("fedadam:rule=fedau(K=x)", "fedau:K is 'x'; expected a whole number"),
        ("fedadam:rule=fedau(Q=2)", "fedau has no option 'Q'"),
        ("chosen:chooser=best(k=2)", "unknown way to choose clients 'best'"),
    ],
)
def test_what_is_wrong_inside_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        built(text)
    assert message in str(refusal.value)


def local_of(**settings: Any) -> fedawe.Local:
    return experiment_of(Settings(**settings), ["fedavg"], [0]).local_of("fedavg")


def test_optimisers_by_name() -> None:
    assert local_of().optimiser is None
    assert local_of(optimiser="sgd:momentum=0.9").optimiser == fedawe.SGD(momentum=0.9)
    adam = local_of(optimiser="adam:lr=0.002,b1=0.8", epochs=2)
    assert (adam.optimiser, adam.rate, adam.epochs) == (fedawe.Adam(b1=0.8), fedawe.Rate(0.002), 2)
    assert local_of(optimiser="adamw").rate == fedawe.Rate(0.001)
    assert local_of(optimiser="adam", eta0=0.01).rate == fedawe.Rate(0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "rmsprop"}, "unknown optimiser 'rmsprop'"),
        ({"optimiser": "adam:lr=fast"}, "adam:lr is 'fast'; expected a number"),
        ({"optimiser": "adam:lr=0.1", "eta0": 0.1}, "given twice"),
        ({"optimiser": "sgd:momentum=2"}, "momentum is 2.0"),
        ({"choose": "uniform:k=0"}, "k is 0"),
        ({"aggregate": "trimmed:share=0.7"}, "share is 0.7"),
        ({"aggregate": "mode"}, "unknown robust aggregation 'mode'"),
        ({"choose": "best"}, "unknown way to choose clients 'best'"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        experiment_of(Settings(**settings), ["fedavg"], [0])
    assert message in str(refusal.value)


def test_scaffold_with_adam_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SCAFFOLD needs local steps of plain SGD"):
        experiment_of(Settings(optimiser="adam"), ["scaffold"], [0]).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_with_choosing_samples_as_weights_and_epochs(tmp_path: Path) -> None:
    settings = Settings(
        model="softmax", clients=8, alpha=1.0, rounds=6, epochs=1, choose="power-of-choice:d=4,k=2", evaluate_every=2,
        batches="epochs",
    )  # fmt: skip
    names = ["fedavg", "weighted:rule=fedau", "scaffold", "fedadam:rule=fedavg-known"]
    experiment = experiment_of(settings, names, [0])
    experiment.run(tmp_path / "out", workers=1, checkpoint_every=2)
    for folder in (tmp_path / "out").glob("*/seed-0"):
        record = records.read(folder / "record.jsonl")
        assert record.end is not None
        assert record.end["status"] == "complete"
        assert {line["active"] for line in record.evaluations[1:]} <= {0, 1, 2}
    assert len(list((tmp_path / "out").glob("*/seed-0"))) == 4


def test_weights_by_samples_need_samples(tmp_path: Path) -> None:
    experiment = experiment_of(Settings(task="quadratic", rounds=5), ["weighted:rule=fedau"], [0])
    with pytest.raises(UserError, match="which this task does not know"):
        experiment.run(tmp_path / "out", workers=1)
