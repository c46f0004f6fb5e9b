"""Laws that every algorithm obeys, over the table of algorithms."""

import copy
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table import ROUNDS, ROWS, History, Row, differences, histories, history, run

import fedawe
from fedawe.algorithms import ALGORITHMS
from fedawe.algorithms.base import pack, unpack

every_row = pytest.mark.parametrize("row", ROWS, ids=repr)
a_few = settings(max_examples=8)  # histories, each of which every row goes through
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
NOBODY = torch.empty(0, dtype=torch.int64)
BUSY = [[2, 0], [], [1, 3, 0], [3], [], [2, 1], [0, 1, 2, 3]]  # five clients, of which one is never there


def started(row: Row, dtype: torch.dtype = torch.float64) -> tuple[Any, Any, History]:
    """The algorithm of the row in the midst of things: every kind of state it can have has been used."""
    past = history(5, BUSY, seed=1, dtype=dtype)
    algorithm = row.make(past.p)
    return algorithm, run(algorithm, past), past


# The table itself


def test_every_algorithm_is_in_the_table() -> None:
    p = torch.ones(ROUNDS, 2)
    assert {type(row.make(p)) for row in ROWS} == set(ALGORITHMS.values())


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_every_hyper_parameter_is_varied_in_the_table(kind: type[Any]) -> None:
    rows = [row.make(torch.ones(ROUNDS, 2)) for row in ROWS]
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            values = {getattr(algorithm, field.name) for algorithm in rows if type(algorithm) is kind}
            assert values - {field.default}, f"no row of the table changes {field.name} of {kind.__name__}"


def test_the_contract_of_names_and_defaults() -> None:
    p = torch.ones(1, 1)
    assert fedawe.FedAWE() == fedawe.FedAWE(eta_g=1.0, clip=None, max_echo=None) == fedawe.FedAWE(1.0, None, None)
    assert fedawe.FedAvg() == fedawe.FedAvg(eta_g=1.0) == fedawe.FedAvg(1.0)
    assert fedawe.FedAvgAll() == fedawe.FedAvgAll(eta_g=1.0) == fedawe.FedAvgAll(1.0)
    assert fedawe.FedAvgKnown(p).eta_g == 1.0
    assert fedawe.FedAvgKnown(p, 0.5).eta_g == 0.5
    assert fedawe.FedAU() == fedawe.FedAU(K=50, eta_g=1.0) == fedawe.FedAU(50, 1.0)
    assert fedawe.F3AST() == fedawe.F3AST(beta=0.001, eta_g=1.0, capacity=None) == fedawe.F3AST(0.001, 1.0, None)
    assert fedawe.F3AST() == fedawe.F3AST(r0=1.0, normalise="self")
    assert fedawe.MIFA() == fedawe.MIFA(eta_g=1.0) == fedawe.MIFA(1.0)
    assert fedawe.FedVARP() == fedawe.FedVARP(eta_g=1.0) == fedawe.FedVARP(1.0)
    assert [*ALGORITHMS][:8] == ["fedawe", "fedavg", "fedavg-all", "fedavg-known", "fedau", "f3ast", "mifa", "fedvarp"]
    neighbours = "fedprox scaffold feddyn fednova fedavgm fedadam fedyogi fedadagrad amplified fedstale mimic fedpbc "
    neighbours += "fedbuff fedasync ca2fl area fedlaavg clusterfedvarp weighted chosen robust private"
    assert [*ALGORITHMS][8:] == neighbours.split()


# Everyone always present


@pytest.mark.parametrize("row", [row for row in ROWS if row.counts_everyone], ids=repr)
def test_everyone_always_there_weighs_the_same(row: Row) -> None:
    # Client i pushes along coordinate i: what coordinate i has moved is what client i weighs.
    m, rounds = 4, 9
    algorithm = row.make(torch.ones(ROUNDS, m))
    state = algorithm.init(torch.zeros(m, dtype=torch.float64), m)
    for t in range(rounds):
        state = algorithm.aggregate(state, t, torch.arange(m), torch.eye(m, dtype=torch.float64))
    moved = -algorithm.model(state)
    assert (moved > 0).all()
    torch.testing.assert_close(moved, moved[:1].expand(m), rtol=1e-12, atol=0)


@a_few
@given(m=st.integers(1, 5), rounds=st.integers(1, 12), seed=st.integers(0, 1000))
def test_everyone_always_there_is_fedavg(m: int, rounds: int, seed: int) -> None:
    # The innovations depend on where a client starts, so that a wrong start would show as well.
    for row in [row for row in ROWS if row.fedavg is not None]:
        algorithm, fedavg = row.make(torch.ones(ROUNDS, m)), row.fedavg
        assert fedavg is not None
        everyone, past = torch.arange(m), history(m, [list(range(m))] * rounds, seed)
        state, plain = algorithm.init(past.x0, m), fedavg.init(past.x0, m)
        for t, (_, noise) in enumerate(past.rounds):
            X, x = algorithm.start(state, everyone), fedavg.start(plain, everyone)
            torch.testing.assert_close(X, x, rtol=0, atol=1e-11)
            state = algorithm.aggregate(state, t, everyone, torch.tanh(X) + noise)
            plain = fedavg.aggregate(plain, t, everyone, torch.tanh(x) + noise)
        torch.testing.assert_close(algorithm.model(state), fedavg.model(plain), rtol=0, atol=1e-10)
        torch.testing.assert_close(state.latest, plain.latest, rtol=0, atol=1e-10)


# Names and order


@a_few
@given(past=histories(max_rounds=8), data=st.data())
def test_relabelling_clients_changes_nothing(past: History, data: st.DataObject) -> None:
    # At first client 0 alone, then client 1 alone and so on: now no two clients look alike, so that a capacity has no
    # ties to break by number, which is the one thing that a client's number may decide.
    m, first = past.m, history(past.m, [[i] for i in range(past.m)], seed=7)
    new_name = torch.tensor(data.draw(st.permutations(range(m))))
    old_name = new_name.argsort()
    past = dataclasses.replace(past, rounds=first.rounds + past.rounds)
    renamed = dataclasses.replace(past, p=past.p[:, old_name], rounds=[(new_name[A], G) for A, G in past.rounds])
    for row in ROWS:
        one, other = row.make(past.p), row.make(renamed.p)
        before, after = run(one, past), run(other, renamed)
        everyone = torch.arange(m)
        torch.testing.assert_close(one.model(before), other.model(after), rtol=0, atol=1e-10)
        torch.testing.assert_close(before.latest, after.latest, rtol=0, atol=1e-10)
        torch.testing.assert_close(one.start(before, everyone), other.start(after, new_name), rtol=0, atol=1e-10)


@every_dtype
@a_few
@given(data=st.data())
def test_the_order_of_arrival_changes_nothing_bit_for_bit(dtype: torch.dtype, data: st.DataObject) -> None:
    past = data.draw(histories(dtype=dtype))
    shuffled = []
    for A, G in past.rounds:
        order = torch.tensor(data.draw(st.permutations(range(len(A)))), dtype=torch.int64)
        shuffled.append((A[order], G[order]))
    for row in ROWS:
        algorithm = row.make(past.p)
        assert differences(run(algorithm, past), run(algorithm, dataclasses.replace(past, rounds=shuffled))) == []


# Saving


@every_dtype
@a_few
@given(data=st.data())
def test_save_load_continue_is_never_stopping_bit_for_bit(dtype: torch.dtype, data: st.DataObject) -> None:
    past = data.draw(histories(dtype=dtype))
    stops = data.draw(st.sets(st.integers(0, len(past.rounds))))
    for row in ROWS:
        algorithm = row.make(past.p)
        state = algorithm.init(past.x0, past.m)
        for t in range(len(past.rounds) + 1):
            if t in stops:
                stored = safetensors.torch.save(pack(state))
                fresh = algorithm.init(torch.zeros_like(past.x0), past.m)
                loaded = unpack(fresh, safetensors.torch.load(stored))
                assert differences(loaded, state) == []
                state = loaded
            if t < len(past.rounds):
                state = algorithm.aggregate(state, t, *past.rounds[t])
        never_stopped = run(algorithm, past)
        assert differences(state, never_stopped) == []
        assert torch.equal(algorithm.model(state), algorithm.model(never_stopped))


# Nobody's numbers are changed behind their back


@a_few
@given(past=histories())
def test_no_call_touches_the_state_it_is_given(past: History) -> None:
    for row in ROWS:
        algorithm = row.make(past.p)
        state = algorithm.init(past.x0, past.m)
        for t, (A, G) in enumerate(past.rounds):
            before, A_before, G_before = copy.deepcopy(state), A.clone(), G.clone()
            algorithm.start(state, A)
            algorithm.model(state)
            after = algorithm.aggregate(state, t, A, G)
            assert differences(before, state) == []
            assert torch.equal(A, A_before)
            assert torch.equal(G, G_before)
            again = algorithm.aggregate(state, t, A, G)
            assert differences(after, again) == []
            state = after


@every_row
@pytest.mark.parametrize("active", [[], [2], [0, 2, 3]], ids=str)
def test_what_goes_in_and_comes_out_can_be_written_to(row: Row, active: list[int]) -> None:
    past = history(4, [[0, 1], [], [3], active], seed=3)
    algorithm = row.make(past.p)
    x0 = past.x0.clone()
    state = algorithm.init(x0, past.m)
    x0.fill_(float("nan"))
    for t, (A, G) in enumerate(past.rounds):
        A, G = A.clone(), G.clone()
        states = [state, algorithm.aggregate(state, t, A, G)]
        kept = copy.deepcopy(states)
        A.fill_(0)
        G.fill_(float("nan"))
        for one in states:
            algorithm.model(one).fill_(float("nan"))
            for k in range(past.m + 1):  # also one row, and all rows
                algorithm.start(one, torch.arange(k)).fill_(float("nan"))
        for now, before in zip(states, kept, strict=True):
            assert differences(now, before) == []
        state = states[1]
    assert differences(state, run(algorithm, past)) == []


@every_row
def test_innovations_may_carry_a_graph_and_the_state_does_not(row: Row) -> None:
    algorithm, state, _ = started(row)
    state = algorithm.aggregate(state, 20, torch.tensor([0, 4]), torch.ones(2, 3, dtype=torch.float64).requires_grad_())
    assert not any(tensor.requires_grad for tensor in pack(state).values())
    assert not algorithm.model(state).requires_grad


@every_row
@every_dtype
def test_dtype_and_device_are_kept(row: Row, dtype: torch.dtype) -> None:
    algorithm, state, past = started(row, dtype)
    for tensor in (algorithm.start(state, torch.tensor([4, 0])), algorithm.model(state), state.latest):
        assert tensor.dtype == dtype
        assert tensor.device == past.x0.device
    for name, tensor in pack(state).items():
        assert tensor.dtype in (dtype, torch.int64), name
        assert tensor.device == past.x0.device
    assert algorithm.start(state, torch.tensor([4, 0])).shape == (2, 3)
    assert algorithm.model(state).shape == state.latest.shape == (3,)


@every_row
def test_repr_shows_every_hyper_parameter(row: Row) -> None:
    algorithm = row.make(torch.full((ROUNDS, 2), 0.5))
    for field in dataclasses.fields(algorithm):
        if field.name == "seed":  # it may be a secret
            continue
        assert f"{field.name}={getattr(algorithm, field.name)!r}" in repr(algorithm)
    assert repr(algorithm).startswith(type(algorithm).__name__ + "(")


@every_row
def test_hyper_parameters_are_frozen(row: Row) -> None:
    algorithm = row.make(torch.ones(ROUNDS, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        algorithm.eta_g = 2.0


# Empty rounds


@every_row
@every_dtype
def test_an_empty_round_is_legal_everywhere(row: Row, dtype: torch.dtype) -> None:
    algorithm, busy, past = started(row, dtype)
    states = (algorithm.init(past.x0, past.m), busy)
    for state, nobody in itertools.product(states, (NOBODY, torch.tensor([]), [])):
        assert algorithm.start(state, nobody).shape == (0, 3)
        assert algorithm.start(state, nobody).dtype == dtype
        after = algorithm.aggregate(state, state.t + 1, nobody, torch.empty(0, 3, dtype=dtype))
        assert after.t == state.t + 1
        assert torch.isfinite(algorithm.model(after)).all()
        assert algorithm.model(after).dtype == dtype


@every_row
def test_empty_rounds_move_no_model_but_mifas(row: Row) -> None:
    algorithm, state, _ = started(row)
    after = algorithm.aggregate(state, 7, NOBODY, torch.empty(0, 3, dtype=torch.float64))
    waits = getattr(algorithm, "warmup", "none") == "all-seen"  # and client 4 has never been there
    moves = isinstance(getattr(algorithm, "rule", algorithm), fedawe.MIFA) and not waits
    moves = moves or getattr(algorithm, "denominator", None) is not None  # noise hides that nobody was active
    # Clients absent for long hold another version now; the one that does so here, 4, has never been active.
    renews = getattr(algorithm, "max_absence", None) is not None and algorithm.average != "active"
    assert torch.equal(algorithm.model(after), algorithm.model(state)) is not (moves or renews)
    assert torch.equal(after.latest, state.latest) is not moves


@a_few
@given(past=histories())
def test_a_skipped_round_is_an_empty_round(past: History) -> None:
    for row in ROWS:
        algorithm = row.make(past.p)
        told = skipping = algorithm.init(past.x0, past.m)
        for t, (A, G) in enumerate(past.rounds):
            told = algorithm.aggregate(told, t, A, G)
            if len(A):
                skipping = algorithm.aggregate(skipping, t, A, G)
                assert differences(told, skipping) == []
        if len(past.rounds):
            end = (len(past.rounds), torch.tensor([0]), torch.ones(1, 3, dtype=torch.float64))
            assert differences(algorithm.aggregate(told, *end), algorithm.aggregate(skipping, *end)) == []


# Refusals: a ValueError that names what was received, and the state given is still valid


def rows_of(k: int, d: int = 3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.ones(k, d, dtype=dtype)


def with_entry(value: float) -> torch.Tensor:
    G = rows_of(2)
    G[1, 2] = value
    return G


# The state of `started` has seen round 6, has five clients and three coordinates in float64.
REFUSED: dict[str, tuple[Any, Any, Any, str]] = {
    "fewer rows than clients": (7, torch.tensor([0, 1]), rows_of(1), r"\[1, 3\]"),
    "more rows than clients": (7, torch.tensor([0, 1]), rows_of(3), r"\[3, 3\]"),
    "rows for nobody": (7, NOBODY, rows_of(1), r"\[1, 3\]"),
    "no rows": (7, torch.tensor([1]), rows_of(0), r"\[0, 3\]"),
    "short rows": (7, torch.tensor([0, 1]), rows_of(2, 2), r"\[2, 2\]"),
    "one coordinate to be repeated": (7, torch.tensor([0, 1]), rows_of(2, 1), r"\[2, 1\]"),
    "one row without a batch": (7, torch.tensor([0]), rows_of(1)[0], r"\[3\]"),
    "too many dimensions": (7, torch.tensor([0]), rows_of(1)[None], r"\[1, 1, 3\]"),
    "not a tensor": (7, torch.tensor([0]), [[1.0, 1.0, 1.0]], "list"),
    "A is a table": (7, torch.tensor([[0, 1]]), rows_of(2), r"\[1, 2\]"),
    "A is a number": (7, torch.tensor(1), rows_of(1), r"\[\]"),
    "unknown client": (7, torch.tensor([0, 5]), rows_of(2), "client 5"),
    "negative client": (7, torch.tensor([-1, 3]), rows_of(2), "client -1"),
    "repeated client": (7, torch.tensor([2, 0, 2]), rows_of(3), "client 2"),
    "client numbers as floats": (7, torch.tensor([0.0, 1.0]), rows_of(2), "float32"),
    "a mask for client numbers": (7, torch.tensor([True, False]), rows_of(2), "bool"),
    "the round again": (6, torch.tensor([0]), rows_of(1), "round 6"),
    "an earlier round": (3, torch.tensor([0]), rows_of(1), "round 3"),
    "the round again, empty": (6, NOBODY, rows_of(0), "round 6"),
    "a negative round": (-1, torch.tensor([0]), rows_of(1), "round -1"),
    "half a round": (7.5, torch.tensor([0]), rows_of(1), "7.5"),
    "a truth for a round": (True, torch.tensor([0]), rows_of(1), "True"),
    "nan": (7, torch.tensor([3, 1]), with_entry(float("nan")), "client 1 in round 7"),
    "infinity": (7, torch.tensor([3, 1]), with_entry(float("inf")), "client 1 in round 7"),
    "minus infinity": (7, torch.tensor([1, 3]), with_entry(float("-inf")), "client 3 in round 7"),
    "float32 for float64": (7, torch.tensor([0, 1]), rows_of(2, dtype=torch.float32), "float32"),
    "float32 for float64 from nobody": (7, NOBODY, rows_of(0, dtype=torch.float32), "float32"),
    "whole numbers": (7, torch.tensor([0, 1]), rows_of(2, dtype=torch.int64), "int64"),
}


def refusal(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The one line with which a call is refused; empty if it is not."""
    try:
        call(*arguments, **named)
    except fedawe.UserError as error:
        return str(error)
    return ""


@every_row
def test_aggregate_refuses_and_the_state_is_still_valid(row: Row) -> None:
    assert issubclass(fedawe.UserError, ValueError)
    algorithm, state, _ = started(row)
    before, good = copy.deepcopy(state), (7, torch.tensor([4, 1]), rows_of(2))
    expected = algorithm.aggregate(before, *good)
    for case, (t, A, G, message) in REFUSED.items():
        said = refusal(algorithm.aggregate, state, t, A, G)
        assert re.search(message, said), case
        assert "\n" not in said, case
        assert differences(state, before) == [], case
        assert differences(algorithm.aggregate(state, *good), expected) == [], case


@every_row
def test_infinities_that_cancel_are_refused(row: Row) -> None:
    algorithm, state, _ = started(row)
    G = torch.tensor([[float("inf"), float("-inf"), 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="client 2 in round 7"):
        algorithm.aggregate(state, 7, torch.tensor([2]), G)


@every_row
def test_a_finite_row_whose_sum_overflows_is_no_infinity(row: Row) -> None:
    algorithm, state, _ = started(row, torch.float32)
    G = torch.tensor([[3e38, 3e38, 0.0]], dtype=torch.float32)
    assert algorithm.aggregate(state, 7, torch.tensor([2]), G).t == 7


UNKNOWN: list[tuple[torch.Tensor, str]] = [
    (torch.tensor([0, 5]), "client 5"),
    (torch.tensor([-2]), "client -2"),
    (torch.tensor([1, 1]), "client 1"),
    (torch.tensor([0.0]), "float32"),
    (torch.tensor([True]), "bool"),
    (torch.tensor([[0]]), r"\[1, 1\]"),
]


@every_row
def test_start_refuses_clients_that_are_not(row: Row) -> None:
    algorithm, state, _ = started(row)
    before = copy.deepcopy(state)
    for A, message in UNKNOWN:
        assert re.search(message, refusal(algorithm.start, state, A)), A
        assert differences(state, before) == [], A


NO_START: list[tuple[Any, Any, str]] = [
    (torch.zeros(2, 3), 5, r"\[2, 3\]"),
    (torch.tensor(0.0), 5, r"\[\]"),
    (torch.zeros(0), 5, r"\[0\]"),
    (torch.zeros(3, dtype=torch.int64), 5, "int64"),
    ([0.0, 0.0], 5, "list"),
    (torch.tensor([0.0, float("nan")]), 5, "coordinate 1"),
    (torch.tensor([float("inf"), 0.0]), 5, "coordinate 0"),
    (torch.zeros(3), 0, "0"),
    (torch.zeros(3), -5, "-5"),
    (torch.zeros(3), 2.5, "2.5"),
    (torch.zeros(3), True, "True"),
]


@every_row
def test_init_refuses(row: Row) -> None:
    for x0, m, message in NO_START:
        algorithm = row.make(torch.ones(ROUNDS, m if type(m) is int and m > 0 else 1))
        assert re.search(message, refusal(algorithm.init, x0, m)), (x0, m)


BAD_RATES = [("eta_g", value) for value in (0.0, -1.0, float("nan"), float("inf"))]
BAD_RATES += [("clip", value) for value in (0.0, -0.5, float("nan"), float("inf"))]


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_rates_that_are_not_positive_are_refused(kind: type[Any]) -> None:
    needed = {"p": torch.ones(1, 1)} if kind is fedawe.FedAvgKnown else {}
    own = {field.name for field in dataclasses.fields(kind)}
    for name, value in BAD_RATES:
        if name in own:  # a wrapper leaves both to its rule
            assert f"{name} is {value}" in refusal(kind, **needed, **{name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.FedAWE(max_echo=0), "max_echo is 0"),
        (lambda: fedawe.FedAWE(max_echo=-3), "max_echo is -3"),
        (lambda: fedawe.FedAWE(max_echo=1.5), "max_echo is 1.5"),
        (lambda: fedawe.FedAWE(carry=True), "carry is True; use it together with max_echo"),
        (lambda: fedawe.FedAU(K=0), "K is 0"),
        (lambda: fedawe.FedAU(K=2.5), "K is 2.5"),
        (lambda: fedawe.FedAU(K=float("nan")), "K is nan"),
        (lambda: fedawe.F3AST(beta=0.0), "beta is 0"),
        (lambda: fedawe.F3AST(beta=1.5), "beta is 1.5"),
        (lambda: fedawe.F3AST(beta=float("nan")), "beta is nan"),
        (lambda: fedawe.F3AST(capacity=0), "capacity is 0"),
        (lambda: fedawe.F3AST(capacity=1.5), "capacity is 1.5"),
        (lambda: fedawe.F3AST(r0=0.0), "r0 is 0"),
        (lambda: fedawe.F3AST(r0=float("nan")), "r0 is nan"),
        (lambda: fedawe.F3AST(r0="mine"), "r0 is 'mine'"),
        (lambda: fedawe.F3AST(normalise="no"), "normalise is 'no'"),
        (lambda: fedawe.MIFA(warmup="all"), "warmup is 'all'"),
        (lambda: fedawe.FedAvgKnown(torch.ones(3)), r"\[3\]"),
        (lambda: fedawe.FedAvgKnown(torch.ones(2, 2, dtype=torch.int64)), "int64"),
        (lambda: fedawe.FedAvgKnown(torch.tensor([[0.5, 1.5]])), "p has entries"),
        (lambda: fedawe.FedAvgKnown(torch.tensor([[0.5, -0.5]])), "p has entries"),
        (lambda: fedawe.FedAvgKnown(torch.tensor([[0.5, float("nan")]])), "p has entries"),
        (lambda: fedawe.FedAvgKnown([["a"]]), "p must be probabilities"),
        (lambda: fedawe.FedAvgKnown(torch.ones(4, 2)).init(torch.zeros(1), 3), "2 columns for 3 clients"),
    ],
)
def test_hyper_parameters_that_cannot_be_meant_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        make()


# Scale


def opcodes(call: Callable[[], Any]) -> int:
    """How many Python instructions the call takes; what torch does inside is not counted."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@every_row
def test_python_work_of_a_round_does_not_depend_on_the_number_of_clients(row: Row) -> None:
    def work(m: int) -> int:
        draw = np.random.default_rng(5)
        active = [sorted(draw.choice(200, 20, replace=False).tolist()) for _ in range(4)]
        past = history(m, active)
        algorithm = row.make(past.p)
        state = algorithm.init(past.x0, m)

        def rounds() -> None:
            nonlocal state
            for t, (A, G) in enumerate(past.rounds):
                algorithm.start(state, A)
                state = algorithm.aggregate(state, t, A, G)
                algorithm.model(state)

        return opcodes(rounds)

    # The interpreter may do a little of its own in between, but no loop over 19,800 more clients is this short.
    assert work(20_000) - work(200) < 1_000
