"""A trace that is drawn is never held as a whole where it is large: the same rounds, the same runs, bit for bit."""

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

import fedawe
from fedawe.availability import DYNAMICS, Past
from fedawe.availability import trace as traces
from fedawe.availability.drawn import Drawn
from fedawe.core import memory
from fedawe.experiments.check import problems
from fedawe.results import record as records

P = np.linspace(0.05, 1.0, 12)


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trace counts as large, and drawing one as a whole is an error."""

    def whole(self: Drawn) -> Any:
        raise AssertionError("the trace was drawn as a whole")

    monkeypatch.setattr(traces, "KEPT", 0)
    monkeypatch.setattr(Drawn, "whole", whole)


@pytest.mark.parametrize("dynamics", [kind() for kind in DYNAMICS.values()], ids=repr)
def test_any_round_is_that_of_the_whole_trace(dynamics: fedawe.availability.Dynamics, request: Any) -> None:
    whole = fedawe.Trace.draw(dynamics, P, 60, 3)
    assert whole.p is not None
    request.getfixturevalue("never_whole")
    trace = fedawe.Trace.draw(dynamics, P, 60, 3)
    for t in (7, 8, 9, 3, 59, 0):  # in order, back, far ahead
        assert np.array_equal(trace.row(t), whole.on[t])
        assert trace.active(t).tolist() == whole.active(t).tolist()
    sent = cloudpickle.loads(cloudpickle.dumps(trace))  # to another process
    assert np.array_equal(sent.row(41), whole.on[41])
    assert np.array_equal(trace.first(30).row(29), whole.on[29])
    assert trace.probabilities[5].tolist() == whole.p[5].tolist()
    assert "drawn round by round" in repr(trace)


def test_the_past_is_that_of_the_table() -> None:
    trace = fedawe.Trace.draw(fedawe.Sine(), P, 40, 1)
    past = Past(trace)
    for t in range(40):
        past.through(t)
        assert past.counts.tolist() == trace.on[: t + 1].sum(0).tolist()
        before = [max(np.flatnonzero(trace.on[:t, i]), default=-1) for i in range(12)]
        assert past.away().tolist() == [t - tau for tau in before]


ALGORITHMS = {
    "fedawe": fedawe.FedAWE(),
    "known": fedawe.FedAvgKnown(),
    "mifa": fedawe.MIFA(),
    "chosen": fedawe.Chosen(fedawe.FedAU(), fedawe.Uniform(2)),
}


def ran(out: Path, rounds: int = 12, **how: Any) -> dict[str, Any]:
    """What the runs came to."""
    fedawe.Experiment(
        task=fedawe.Quadratic(torch.arange(12.0)[:, None], noise=0.1),
        algorithms=ALGORITHMS,
        availability=fedawe.availability.Markov(),
        p=P,
        local=fedawe.Local(fedawe.Rate(0.1), steps=2, batches="epochs"),
        rounds=rounds,
        seeds=(0,),
        evaluate_every=3,
    ).run(out, checkpoint_every=4, engine="stacked", warn=lambda _: None, **{"workers": 1, **how})
    found: dict[str, Any] = {}
    for path in sorted(out.glob("*/seed-0/*")):
        if path.name == records.NAME:
            lines = records.read(path).evaluations
            found[str(path.relative_to(out))] = [
                {k: v for k, v in line.items() if not k.endswith("_seconds")} for line in lines
            ]
        else:
            found[str(path.relative_to(out))] = path.read_bytes()
    return found


def test_runs_are_the_same_and_hold_no_trace(tmp_path: Path, request: Any) -> None:
    """Also when they go on: the folder of a short run has its trace, that of the longer one has none."""
    expected = ran(tmp_path / "kept")
    request.getfixturevalue("never_whole")
    assert ran(tmp_path / "large") == expected
    assert not (tmp_path / "large" / "traces").exists()
    assert list(problems(tmp_path / "large")) == []
    ran(tmp_path / "longer", rounds=5)
    assert ran(tmp_path / "longer") == expected
    page = fedawe.load(tmp_path / "large").report().read_text(encoding="utf-8")
    assert "drawn round by round" in page


def test_a_kept_trace_is_compared_and_removed_when_it_grows_large(tmp_path: Path, request: Any) -> None:
    expected = ran(tmp_path / "whole")
    ran(tmp_path / "out", rounds=5)
    assert (tmp_path / "out" / "traces" / "seed-0.npz").exists()
    request.getfixturevalue("never_whole")
    assert ran(tmp_path / "out") == expected
    assert not (tmp_path / "out" / "traces" / "seed-0.npz").exists()


def test_a_million_clients_over_ten_thousand_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fedawe.Trace.draw(fedawe.Stationary(), np.full(10**6, 0.001), 10**4, 0)
    assert 900 < len(trace.active(9_999)) < 1100
    assert 1000 < trace.most_available() < 1300
    monkeypatch.setattr(memory, "free_memory", lambda: 8 * 10**9)
    with pytest.raises(fedawe.UserError, match=r"10,000 rounds of 1,000,000 clients as one table would take 10\.0 GB"):
        trace.on  # noqa: B018
    with pytest.raises(fedawe.UserError, match=r"would take 240\.0 GB"):
        trace.p  # noqa: B018
