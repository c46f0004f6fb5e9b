"""Killed anywhere and started again: nothing is lost, no round counts twice."""

import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from flower_grid import CONFIG, FakeGrid, connected, record_in, run_digits, shipped, strategy_on
from flwr.app import ArrayRecord, MetricRecord

import fedawe
from fedawe.algorithms.base import pack, unpack
from fedawe.algorithms.versions import Versions
from fedawe.core.errors import UserError
from fedawe.deploy import checkpoint, digits, store
from fedawe.deploy.about import deployment_header
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.replay import deployed, main, replay
from fedawe.deploy.store import Store
from fedawe.experiments.checkpoint import is_undamaged
from fedawe.results import record as records

ROUNDS = 3


class Killed(BaseException):
    """As a SIGKILL does it: nothing of ours catches it."""


class Fuse:
    """Kills at the n-th of all the places where something could happen, before or after it does."""

    def __init__(self, n: int) -> None:
        self.left = n

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def burning(*args: Any, **kwargs: Any) -> Any:
            self.burn()
            result = function(*args, **kwargs)
            self.burn()
            return result

        return burning

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def unsteady(t0: int = 0) -> FakeGrid:
    """Clients 0 and 1 always there, 2 in even rounds, 3 in odd ones, by the number of the round alone."""
    grid = FakeGrid()
    for client in range(4):

        def behave(message: Any, reply: Any, client: int = client) -> Any:
            away = client >= 2 and message.metadata.message_type == "train"
            return [] if away and int(message.metadata.group_id) % 2 == client % 2 else [(1.0, reply())]

        grid.connect(100 + client, client, behave)
    return grid


def start(grid: FakeGrid, out: Path, rounds: int = ROUNDS, **rules: Any) -> Any:
    def evaluate(n: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(dict(digits.evaluate(dict(arrays.to_torch_state_dict()), grid.config)))

    strategy = strategy_on(grid, out, quorum=3, **rules)
    initial = ArrayRecord(digits.initial(grid.config))
    return strategy, strategy.start(grid, initial, num_rounds=rounds, timeout=30.0, evaluate_fn=evaluate)


def without_seconds(out: Path) -> list[dict[str, Any]]:
    read = record_in(out)
    assert read.problem is None
    return [
        {key: value for key, value in line.items() if not key.endswith("_seconds")}
        for line in [*read.lines, read.end or {}]
    ]


def test_killed_in_every_place_of_a_round_it_ends_as_if_never_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = start(unsteady(), tmp_path / "whole")
    kills = 0
    for n in itertools.count(1, 3):  # a third of the places; an odd step takes befores and afters in turn
        out, grid, fuse = tmp_path / str(n), unsteady(), Fuse(n)
        with monkeypatch.context() as patched:
            for module, name in ((checkpoint, "write_atomically"), (store, "write_atomically")):
                patched.setattr(module, name, fuse.around(getattr(module, name)))
            patched.setattr(records.Writer, "write", fuse.around(records.Writer.write))
            patched.setattr(FakeGrid, "push_messages", fuse.around(FakeGrid.push_messages))
            patched.setattr(digits, "evaluate", fuse.around(digits.evaluate))
            try:
                start(grid, out)
            except Killed:
                kills += 1
        _, result = start(unsteady(), out)  # another run of the app: new messages, the same nodes
        assert without_seconds(out) == without_seconds(tmp_path / "whole")
        assert result.evaluate_metrics_serverapp.keys() >= set(range(1, ROUNDS + 1))
        for name, array in whole.arrays.items():
            assert np.array_equal(result.arrays[name].numpy(), array.numpy())
        assert torch.equal(replay(out), deployed(out))
        if fuse.left > 0:
            break
    assert kills >= 15


def test_the_same_command_again_changes_nothing(tmp_path: Path) -> None:
    _, first = start(unsteady(), tmp_path)
    content = {
        path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and path.suffix != ".jsonl"
    }
    nobody = FakeGrid()
    _, second = start(nobody, tmp_path)
    assert nobody.sent == []
    assert second.evaluate_metrics_serverapp[ROUNDS] == first.evaluate_metrics_serverapp[ROUNDS]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name in content} == content
    assert [line.get("round") for line in without_seconds(tmp_path)] == [0, 1, 1, 2, 2, 3, 3, None]


def test_more_rounds_continue(tmp_path: Path) -> None:
    start(unsteady(), tmp_path / "apart", 2)
    start(unsteady(), tmp_path / "apart", 5)
    start(unsteady(), tmp_path / "together", 5)
    assert torch.equal(deployed(tmp_path / "apart"), deployed(tmp_path / "together"))


@pytest.mark.parametrize("spec", ["fedawe", "fedau:K=3", "mifa", "fedvarp", "f3ast"])
def test_every_kind_of_state_is_kept(tmp_path: Path, spec: str) -> None:
    def grid() -> FakeGrid:
        made = unsteady()
        made.config = {**CONFIG, "algorithm": spec}
        return made

    start(grid(), tmp_path / "apart", 3, max_versions=1)
    apart, _ = start(grid(), tmp_path / "apart", 6, max_versions=1)
    together, _ = start(grid(), tmp_path / "together", 6)
    assert torch.equal(shipped(apart), shipped(together))
    assert torch.equal(replay(tmp_path / "apart"), deployed(tmp_path / "apart"))


def test_a_damaged_checkpoint_costs_one_round(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 3)
    newest = max(run_of(tmp_path).glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    start(unsteady(), tmp_path, 3)
    assert [line.get("round") for line in without_seconds(tmp_path)] == [0, 1, 1, 2, 2, 3, 3, None]
    assert torch.equal(replay(tmp_path), deployed(tmp_path))
    kept = list(run_of(tmp_path).glob("checkpoint-*"))  # the same name again if the round took as many milliseconds
    assert len(kept) == 2
    assert all(is_undamaged(each) for each in kept)
    start(unsteady(), tmp_path / "whole", 3)
    assert torch.equal(deployed(tmp_path / "whole"), deployed(tmp_path))


def test_a_missing_version_costs_one_round_too(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 3)
    new = {path.name for path in (run_of(tmp_path) / "versions").iterdir()}
    start(unsteady(), tmp_path / "short", 2)
    for name in new - {path.name for path in (run_of(tmp_path / "short") / "versions").iterdir()}:
        (run_of(tmp_path) / "versions" / name).unlink()
    start(unsteady(), tmp_path, 4)
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_files_half_written_are_removed(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 1)
    halves = [
        run_of(tmp_path) / ".checkpoint-00000002.1a2b.part",
        run_of(tmp_path) / "versions" / ".abc.safetensors.1a2b.part",
    ]
    for half in halves:
        half.write_bytes(b"half")
    halves.append(tmp_path / ".tensorboard.1a2b.part")
    (halves[-1] / "fedawe").mkdir(parents=True)
    start(unsteady(), tmp_path, 2)
    assert not any(half.exists() for half in halves)


def test_nothing_but_damage_is_said_and_not_begun_anew(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 2)
    for path in run_of(tmp_path).glob("checkpoint-*"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="all are damaged"):
        start(unsteady(), tmp_path, 3)


def test_another_federation_is_refused(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 1)
    other = unsteady()
    other.config = {**CONFIG, "eta0": 0.9}
    with pytest.raises(UserError, match=r"eta0 = 0.3, not 0.9"):
        start(other, tmp_path, 2)
    other.config = {**CONFIG, "algorithm": "fedawe:max_absence=3"}
    with pytest.raises(UserError, match=r"label = fedawe, not fedawe\(max_absence=3\)"):
        start(other, tmp_path, 2)


def test_two_server_apps_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PATIENCE", 0.0)
    strategy = strategy_on(unsteady(), tmp_path)
    layout = digits.layout(digits.task(digits.settings(CONFIG)))
    header = deployment_header(strategy.about, strategy.given, strategy.algorithm, layout, 4, 1)
    folder = checkpoint.Folder(tmp_path, header, 0)
    with folder.held(), pytest.raises(UserError, match="in use by another"):
        start(unsteady(), tmp_path, 1)


def test_identities_outlast_the_server(tmp_path: Path) -> None:
    run_digits(connected(), tmp_path, 1)
    again = connected()
    run_digits(again, tmp_path, 2)
    assert [message.metadata.message_type for message in again.sent] == ["train"] * 4  # nobody is asked who it is


# Versions on disk


def aged(rounds: int, d: int = 1000) -> Versions:
    """A state in which every client holds a version of its own."""
    algorithm = fedawe.FedAWE()
    state = algorithm.init(torch.zeros(d), rounds)
    for t in range(rounds):
        state = algorithm.aggregate(state, t, torch.tensor([t]), torch.full((1, d), 0.1 * (t + 1)))
    return state


def test_versions_beyond_the_limit_are_on_disk_and_the_numbers_the_same(tmp_path: Path) -> None:
    state = aged(20)
    bounded, rest, index = Store(tmp_path, 3).put(state)
    rows = Store(tmp_path, 3)
    again = rows.get(fedawe.FedAWE().init(torch.zeros(1000), 20), rest, index)
    for one in (bounded, again):
        assert all(torch.equal(one.models[v], state.models[v]) for v in state.models)
        assert torch.equal(fedawe.FedAWE().model(one), fedawe.FedAWE().model(state))
    in_memory = [v for v in state.models if bounded.models[v] is state.models[v]]
    assert in_memory == sorted(state.models)[-3:]
    assert "models.19" not in rest
    assert unpack(state, pack(bounded)).tau.equal(state.tau)


def test_versions_on_disk_are_given_up_in_memory(tmp_path: Path) -> None:
    algorithm, kept, made = fedawe.FedAWE(), Store(tmp_path, 2), []
    state = algorithm.init(torch.zeros(10), 30)
    for t in range(30):
        state = algorithm.aggregate(state, t, torch.tensor([t]), torch.full((1, 10), float(t)))
        made.append(weakref.ref(state.latest))
        state, _, index = kept.put(state)
        kept.prune(index)
    assert len(state.models) == len(list(tmp_path.iterdir())) == 30
    assert [ref() is not None for ref in made] == [False] * 28 + [True] * 2
    file = kept.kept["models.0"].file
    assert file in Path("/proc/self/maps").read_text()  # read from where it is, not copied


def test_a_damaged_version_is_written_again(tmp_path: Path) -> None:
    state, like = aged(5), fedawe.FedAWE().init(torch.zeros(1000), 5)
    _, rest, index = Store(tmp_path, 0).put(state)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for content in (b"", b"\0" * 10, before[index["models.3"]][:-1] + b"\1"):
        (tmp_path / index["models.3"]).write_bytes(content)
        with pytest.raises(UserError, match="is damaged"):
            Store(tmp_path, 0).get(like, rest, index)
        assert Store(tmp_path, 0).put(state)[2] == index  # the round is done again
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        again = Store(tmp_path, 0).get(like, rest, index)
        assert all(torch.equal(again.models[v], state.models[v]) for v in state.models)


def test_files_of_versions_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    start(unsteady(), tmp_path, 12)
    assert len(list((run_of(tmp_path) / "versions").iterdir())) <= 2 * 5
    state = safetensors.torch.load_file(max(run_of(tmp_path).glob("checkpoint-*")))
    assert "own.models.11" not in state
    assert state["own.tau"].tolist()[0] == 11


# Clients that are away for very long


def test_who_is_away_too_long_holds_the_newest_model(tmp_path: Path) -> None:
    grid = connected([0, 1, 2], {"algorithm": "fedawe:max_absence=4"})
    grid.plan(15.0, lambda: grid.connect(103, 3))
    strategy = run_digits(grid, tmp_path, 20)
    on = fedawe.Trace.load(tmp_path / "traces" / "seed-0.npz").on
    first = int(np.flatnonzero(on[:, 3])[0])
    assert first > 5
    assert len(strategy.session.state.own.models) <= 5
    assert torch.equal(replay(tmp_path), deployed(tmp_path))
    assert main(str(tmp_path)).endswith("at most 0")


def test_what_reads_experiments_reads_a_deployment(tmp_path: Path) -> None:
    strategy = run_digits(connected(), tmp_path / "fleet", rounds=ROUNDS)
    found = fedawe.load(tmp_path / "fleet")
    assert [(run.label, run.status, run.rounds) for run in found.runs.runs] == [("fedawe", "complete", ROUNDS)]
    assert found.runs.problems == ()
    assert found.runs.names == {"fedawe": "FedAWE"}
    assert found.runs.traces[0].on.tolist() == strategy.session.on.tolist()
    frame = found.frame()
    rounds = {line["round"]: line for line in record_in(tmp_path / "fleet").rounds}
    assert frame["round"].tolist()[-ROUNDS:] == list(rounds)
    assert frame.bytes_up.tolist()[-ROUNDS:] == [line["bytes_up"] for line in rounds.values()]
    assert found.report().stat().st_size > 100_000
    assert found.compare().note.startswith("Nothing is ranked: no evaluation has test_accuracy or")  # nobody evaluated
    network = digits.task(found.runs.header("fedawe")["deployment"]["config"]).network
    assert isinstance(network, fedawe.tasks.ModuleNetwork)
    model = fedawe.load_model(run_of(tmp_path / "fleet"), network.make())
    assert torch.equal(network.layout.vector(model.state_dict()), shipped(strategy))
