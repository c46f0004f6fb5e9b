"""The neighbouring algorithms against references of a few lines each: numpy, m copies, local training included.

Everything goes through the simulator, so that what clients add to their gradients, rounds of work that are owed and
choices before training are covered as well.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from table import history

import fedawe
from fedawe.algorithms.base import pack, unpack
from fedawe.audit import by_identity, influence
from fedawe.training.engines import Processes

M, D, T, S = 5, 3, 16, 3
NOISE, SEED, RATE = 0.3, 4, fedawe.Rate(0.2)
LOCAL = fedawe.Local(RATE, steps=S)
draw_ = np.random.default_rng(7)
U, H = draw_.normal(size=(M, D)) * 3, draw_.uniform(0.5, 1.5, size=(M, D))
ON = draw_.random((T, M)) < [0.9, 0.7, 0.5, 0.3, 0.25]
ON[6] = False  # an empty round
TRACE = fedawe.Trace(ON)
P = draw_.uniform(0.3, 1.0, size=(T, M))
X0 = np.zeros(D)
Vector = Any
Extra = Callable[[Vector], Vector]


def task() -> fedawe.Quadratic:
    return fedawe.Quadratic(torch.from_numpy(U), torch.from_numpy(H), NOISE)


def gradients(i: int, t: int) -> list[Extra]:
    """The stochastic gradients of client i in round t, as functions of the iterate."""
    noise = fedawe.rng(SEED, "batch", t, i).normal(0, NOISE, (S, D))
    return [lambda y, n=n: H[i] * (y - U[i]) + n for n in noise]


def train(i: int, t: int, x: Vector, extra: Extra = lambda y: 0 * y) -> Vector:
    """Where client i ends that starts round t at x."""
    y = x.copy()
    for g in gradients(i, t):
        y = y - RATE(t) * (g(y) + extra(y))
    return y


def rounds() -> list[tuple[int, list[int]]]:
    return [(t, np.flatnonzero(ON[t]).tolist()) for t in range(T)]


def mean(rows: Any) -> Vector:
    return np.mean(list(rows), axis=0)


def simulated(algorithm: Any, local: fedawe.Local = LOCAL, trace: fedawe.Trace = TRACE) -> Vector:
    *_, last = fedawe.simulate(task(), algorithm, trace, local, seed=SEED)
    return last.x.numpy()


def fedavg(extra: Callable[[Vector], Extra] = lambda x: lambda y: 0 * y) -> Vector:
    x = X0
    for t, A in rounds():
        if A:
            x = mean(train(i, t, x, extra(x)) for i in A)
    return x


def fedprox() -> Vector:
    return fedavg(lambda x: lambda y: 0.5 * (y - x))


def scaffold(option: int, period: int = 1, amplify: float = 1.0) -> Vector:
    """With the mean raw gradients of every client, step by step, instead of what follows from G."""
    x, c_i, before = X0, np.zeros((M, D)), X0
    seen: dict[int, list[Vector]] = {}
    for t, A in rounds():
        c, ends = c_i.mean(0), []
        for i in A:
            y, found = x.copy(), []
            for g in gradients(i, t):
                found.append(g(x) if option == 1 else g(y))
                y = y - RATE(t) * (g(y) - c_i[i] + c)
            seen.setdefault(i, []).extend(found)
            ends.append(y)
        x = mean(ends) if A else x
        if (t + 1) % period == 0:
            for i, found in seen.items():
                c_i[i] = mean(found)
            seen = {}
            x = before + amplify * (x - before)
            before = x
    return x


def feddyn() -> Vector:
    """In the words of its authors: gradients of the last local models, h, and the shift of the mean by h/alpha."""
    alpha, x, h, grad = 0.2, X0, np.zeros(D), np.zeros((M, D))
    for t, A in rounds():
        if not A:
            continue
        ends = {i: train(i, t, x, lambda y, i=i, x=x: -grad[i] + alpha * (y - x)) for i in A}
        for i in A:
            grad[i] = grad[i] - alpha * (ends[i] - x)
        h = h - alpha / M * sum(ends[i] - x for i in A)
        x = mean(ends.values()) - h / alpha
    return x


def fedavgm() -> Vector:
    x, b = X0, np.zeros(D)
    for t, A in rounds():
        if A:
            b = 0.5 * b + x - mean(train(i, t, x) for i in A)
            x = x - 0.7 * b
    return x


def fedopt(second: Callable[[Vector, Vector], Vector], b1: float) -> Vector:
    x, m1, V = X0, np.zeros(D), np.full(D, 0.1**2)
    for t, A in rounds():
        if A:
            v = x - mean(train(i, t, x) for i in A)
            m1, V = b1 * m1 + (1 - b1) * v, second(V, v * v)
            x = x - 0.2 * m1 / (np.sqrt(V) + 0.1)
    return x


def amplified() -> Vector:
    x, before = X0, X0
    for t, A in rounds():
        x = mean(train(i, t, x) for i in A) if A else x
        if (t + 1) % 3 == 0:
            x = before + 1.5 * (x - before)
            before = x
    return x


def fedstale() -> Vector:
    x, h = X0, np.zeros((M, D))
    for t, A in rounds():
        if A:
            G = {i: x - train(i, t, x) for i in A}
            x = x - sum((G[i] - 0.4 * h[i]) / P[t, i] for i in A) / M - 0.4 * h.mean(0)
            for i in A:
                h[i] = G[i]
    return x


def mimic() -> Vector:
    x, c = X0, np.zeros((M, D))
    for t, A in rounds():
        if A:
            G = {i: x - train(i, t, x) for i in A}
            v = mean(G[i] + c[i] for i in A)
            x = x - v
            for i in A:
                c[i] = v - G[i]
    return x


def fedpbc() -> Vector:
    """All clients train in all rounds; the model is the mean of what each received last."""
    y, got = [X0] * M, [X0] * M
    for t, A in rounds():
        y = [train(i, t, y[i]) for i in range(M)]
        if A:
            x = mean(y[i] for i in A)
            for i in A:
                y[i] = got[i] = x
    return mean(got)


def held(K: int, cached: bool) -> Vector:
    """FedBuff and CA2FL: clients start from the model of their last visit."""
    x, got, stamp = X0, [X0] * M, [0] * M
    buffer: list[Vector] = []
    h, h_bar, updates = np.zeros((M, D)), np.zeros(D), 0
    for t, A in rounds():
        G = {i: got[i] - train(i, t, got[i]) for i in A}
        for i in A:
            buffer.append(G[i] - h[i] if cached else G[i] / np.sqrt(1 + updates - stamp[i]))
            h[i] = G[i] if cached else h[i]
        if len(buffer) >= K:
            x = x - mean(buffer) - (h_bar if cached else 0)
            buffer, h_bar, updates = [], h.mean(0), updates + 1
        for i in A:
            got[i], stamp[i] = x, updates
    return x


def fedasync() -> Vector:
    x, got, stamp, updates = X0, [X0] * M, [0] * M, 0
    for t, A in rounds():
        if A:
            x = mean((1 - a) * x + a * train(i, t, got[i]) for i in A for a in [0.6 * (1 + updates - stamp[i]) ** -0.5])
            updates += 1
            for i in A:
                got[i], stamp[i] = x, updates
    return x


def area() -> Vector:
    """The mean of the last local model of everyone."""
    y, got = [X0] * M, [X0] * M
    for t, A in rounds():
        for i in A:
            y[i] = train(i, t, got[i])
        for i in A:
            got[i] = mean(y)
    return mean(y)


def fedlaavg(k: int) -> Vector:
    x, y, tau = X0, np.zeros((M, D)), [-1] * M
    for t, available in rounds():
        A = sorted(sorted(available, key=lambda i: (tau[i], i))[:k])
        for i in A:
            y[i], tau[i] = (x - train(i, t, x)) / RATE(t), t
        x = x - RATE(t) * y.mean(0) if A else x
    return x


def clustered(of: list[int]) -> Vector:
    x, y = X0, np.zeros((max(of) + 1, D))
    for t, A in rounds():
        if A:
            G = {i: x - train(i, t, x) for i in A}
            x = x - mean(G[i] - y[of[i]] for i in A) - mean(y[c] for c in of)
            for c in {of[i] for i in A}:
                y[c] = mean(G[i] for i in A if of[i] == c)
    return x


def weighted(w: Any, over_all: bool) -> Vector:
    x = X0
    for t, A in rounds():
        if A:
            x = x - sum(w[i] * (x - train(i, t, x)) for i in A) / (1 if over_all else sum(w[i] for i in A))
    return x


W = np.arange(1.0, M + 1)
YOGI = fedawe.FedYogi(eta_s=0.2, b1=0.9, b2=0.9, tau=0.1)
REFERENCES: dict[str, tuple[Any, Callable[[], Vector]]] = {
    "fedavg": (fedawe.FedAvg(), fedavg),
    "fedprox": (fedawe.FedProx(mu=0.5), fedprox),
    "scaffold": (fedawe.SCAFFOLD(), lambda: scaffold(2)),
    "scaffold option 1": (fedawe.SCAFFOLD(option=1), lambda: scaffold(1)),
    "amplified scaffold": (fedawe.Amplified(fedawe.SCAFFOLD(period=3), 3, 1.2), lambda: scaffold(2, 3, 1.2)),
    "feddyn": (fedawe.FedDyn(alpha=0.2), feddyn),
    "fednova": (fedawe.FedNova(), fedavg),
    "fedavgm": (fedawe.FedAvgM(beta=0.5, eta_s=0.7), fedavgm),
    "fedadam": (fedawe.FedAdam(0.2, 0.9, 0.9, 0.1), lambda: fedopt(lambda V, q: 0.9 * V + 0.1 * q, 0.9)),
    "fedyogi": (YOGI, lambda: fedopt(lambda V, q: V - 0.1 * q * np.sign(V - q), 0.9)),
    "fedadagrad": (fedawe.FedAdagrad(0.2, 0.1), lambda: fedopt(lambda V, q: V + q, 0.0)),
    "amplified": (fedawe.Amplified(period=3), amplified),
    "fedstale": (fedawe.FedStale(beta=0.4, p=P), fedstale),
    "mimic": (fedawe.MimiC(), mimic),
    "fedpbc": (fedawe.FedPBC(), fedpbc),
    "fedbuff": (fedawe.FedBuff(K=4), lambda: held(4, cached=False)),
    "ca2fl": (fedawe.CA2FL(K=4), lambda: held(4, cached=True)),
    "fedasync": (fedawe.FedAsync(), fedasync),
    "area": (fedawe.AREA(), area),
    "fedlaavg": (fedawe.FedLaAvg(k=2), lambda: fedlaavg(2)),
    "clusterfedvarp": (fedawe.ClusterFedVARP([0, 1, 0, 2, 1]), lambda: clustered([0, 1, 0, 2, 1])),
    "clusterfedvarp by number": (fedawe.ClusterFedVARP(2), lambda: clustered([0, 1, 0, 1, 0])),
    "weighted": (fedawe.Weighted(fedawe.FedAvg(), W), lambda: weighted(W, over_all=False)),
    "weighted all": (fedawe.Weighted(fedawe.FedAvgAll(), W), lambda: weighted(W / W.sum(), over_all=True)),
    "mifa client": (fedawe.MIFA(memory="client"), lambda: simulated(fedawe.MIFA())),
    "fedvarp client": (fedawe.FedVARP(memory="client"), lambda: simulated(fedawe.FedVARP())),
}
every_reference = pytest.mark.parametrize("name", REFERENCES)


@every_reference
def test_the_simulator_is_the_reference(name: str) -> None:
    algorithm, reference = REFERENCES[name]
    np.testing.assert_allclose(simulated(algorithm), reference(), rtol=0, atol=1e-10)


def test_every_neighbour_has_a_reference() -> None:
    from fedawe.algorithms import NEIGHBOURS

    elsewhere = {fedawe.Chosen, fedawe.Robust, fedawe.Private}  # test_robust.py, test_private.py
    assert {type(algorithm) for algorithm, _ in REFERENCES.values()} | elsewhere >= set(NEIGHBOURS)


# Limits and identities


SAME = {
    "fedprox 0": (fedawe.FedProx(mu=0), fedawe.FedAvg()),
    "fedavgm 0": (fedawe.FedAvgM(beta=0), fedawe.FedAvg()),
    "amplified 1": (fedawe.Amplified(gamma=1.0, period=3), fedawe.FedAvg()),
    "amplified every round": (fedawe.Amplified(gamma=1.4, period=1), fedawe.FedAvg(eta_g=1.4)),
    "amplified scaffold 1": (fedawe.Amplified(fedawe.SCAFFOLD(period=1), 1, 1.0), fedawe.SCAFFOLD()),
    "fedstale 0 p": (fedawe.FedStale(beta=0, p=P), fedawe.FedAvgKnown(P)),
    "fedstale 0": (fedawe.FedStale(beta=0, K=3), fedawe.FedAU(K=3)),
    "clusters of one": (fedawe.ClusterFedVARP(list(range(M))), fedawe.FedVARP()),
    "fedlaavg": (fedawe.FedLaAvg(), None),
    "equal weights": (fedawe.Weighted(fedawe.FedAWE(), np.full(M, 0.3)), fedawe.FedAWE()),
    "chosen all": (fedawe.Chosen(fedawe.FedAWE(), fedawe.Uniform(M)), fedawe.FedAWE()),
    "longest absent": (fedawe.Chosen(fedawe.FedLaAvg(), fedawe.LongestAbsent(2)), fedawe.FedLaAvg(k=2)),
}


@pytest.mark.parametrize("name", SAME)
def test_limits_in_which_one_rule_is_another(name: str) -> None:
    one, other = SAME[name]
    trace = TRACE
    if other is None:  # MIFA moves in empty rounds, FedLaAvg does not
        other, trace = fedawe.MIFA(memory_rate=RATE), fedawe.Trace(ON[ON.any(1)])
    np.testing.assert_allclose(simulated(one, trace=trace), simulated(other, trace=trace), rtol=0, atol=1e-12)


def test_everyone_and_one_step_is_fedavg_for_scaffold_and_mimic() -> None:
    always, one = fedawe.Trace(np.ones((8, M), dtype=bool)), fedawe.Local(RATE, steps=1)
    expected = simulated(fedawe.FedAvg(), one, always)
    for algorithm in (fedawe.SCAFFOLD(), fedawe.SCAFFOLD(option=1), fedawe.MimiC(), fedawe.FedPBC(), fedawe.AREA()):
        np.testing.assert_allclose(simulated(algorithm, one, always), expected, rtol=0, atol=1e-12)


def test_a_proximal_innovation_of_a_constant_gradient_has_a_closed_form() -> None:
    flat = fedawe.Quadratic(torch.tensor([[1e9]], dtype=torch.float64), torch.tensor([[1e-9]], dtype=torch.float64))
    local, mu, eta = fedawe.Local(fedawe.Rate(0.1, "constant"), steps=7), 2.0, 0.1
    (done,) = fedawe.simulate(flat, fedawe.FedProx(mu=mu), fedawe.Trace([[1]]), local, seed=0)
    assert float(done.x) == pytest.approx((1 - (1 - eta * mu) ** 7) / mu, rel=1e-6)  # the gradient is -1


@pytest.mark.parametrize("rule", [fedawe.FedProx(mu=10.0), fedawe.FedDyn(alpha=10.0)])
def test_a_proximal_term_that_pushes_away_is_refused(rule: Any) -> None:
    """mu times the rate, 10 times 0.2, makes of y - x its mirror image in every step, and two gradients cancel."""
    refused = "mu .* times the learning rate is 10 times 0.2 in round 0; expected less than 2"
    for algorithm in (rule, fedawe.Chosen(rule, fedawe.Uniform(2))):
        for local in (LOCAL, fedawe.Local(RATE, steps=2), fedawe.Local(RATE, steps=2, optimiser=fedawe.SGD())):
            with pytest.raises(fedawe.UserError, match=refused):
                fedawe.simulate(task(), algorithm, TRACE, local, seed=SEED)
        for local in (fedawe.Local(fedawe.Rate(0.19), steps=2), fedawe.Local(RATE, steps=1)):
            assert len(list(fedawe.simulate(task(), algorithm, TRACE, local, seed=SEED))) == T
    growing = fedawe.Local(lambda t: 0.1 if t < 3 else 0.3, steps=2)
    with pytest.raises(fedawe.UserError, match=r"10 times 0.3 in round 3"):
        list(fedawe.simulate(task(), rule, TRACE, growing, seed=SEED))


def test_momentum_of_a_constant_move_has_a_closed_form() -> None:
    fedavgm_ = fedawe.FedAvgM(beta=0.8)
    state = fedavgm_.init(torch.zeros(1, dtype=torch.float64), 1)
    for t in range(9):
        state = fedavgm_.aggregate(state, t, torch.tensor([0]), torch.ones(1, 1, dtype=torch.float64))
        assert float(state.b) == pytest.approx((1 - 0.8 ** (t + 1)) / (1 - 0.8))


def test_the_mean_of_the_control_variates_is_c_and_feddyn_sums_what_it_received() -> None:
    given = history(4, [[0, 2], [], [1], [0, 1, 3], [3]])
    scaffold_, feddyn_ = fedawe.SCAFFOLD(), fedawe.FedDyn(alpha=0.3)
    a, b = scaffold_.init(given.x0, 4), feddyn_.init(given.x0, 4)
    total = torch.zeros(3, dtype=torch.float64)
    for t, (A, G) in enumerate(given.rounds):
        a, b, total = scaffold_.aggregate(a, t, A, G), feddyn_.aggregate(b, t, A, G), total + G.sum(0)
        torch.testing.assert_close(a.c, sum(a.c_i.values(), torch.zeros(3, dtype=torch.float64)) / 4)
        torch.testing.assert_close(b.lam_bar, -total / 4)


def test_mimic_moves_as_if_everyone_were_active_once_all_have_been() -> None:
    G = torch.from_numpy(U)
    mimic_ = fedawe.MimiC()
    state = mimic_.aggregate(mimic_.init(torch.zeros(D, dtype=torch.float64), M), 0, torch.arange(M), G)
    for t, A in enumerate(([1], [0, 3], [2, 4, 1]), 1):
        before = mimic_.model(state)
        state = mimic_.aggregate(state, t, torch.tensor(A), G[A])
        torch.testing.assert_close(before - mimic_.model(state), G.mean(0))


def test_fedpbc_is_fedawe_where_gradients_are_constant() -> None:
    np.testing.assert_allclose(
        by_identity(fedawe.FedPBC(), TRACE).counted, influence(fedawe.FedAWE(), TRACE).counted, rtol=1e-12
    )


def test_fednova_undoes_unequal_numbers_of_steps() -> None:
    """Constant gradients: whoever makes more steps moves FedAvg more, and FedNova not."""
    up = fedawe.Upload(torch.tensor([[2.0, 0.0], [0.0, 8.0]]), weight=torch.tensor([2.0, 8.0]), rate=0.1)
    state = fedawe.FedNova().init(torch.zeros(2), 2)
    moved = fedawe.FedNova().model(fedawe.FedNova().absorb(state, 0, torch.tensor([0, 1]), up))
    torch.testing.assert_close(moved, torch.tensor([-2.5, -2.5]))  # mean weight 5, half a unit each


def test_weighted_fednova_has_the_weights_in_both_means() -> None:
    """w = 1/4, 3/4: tau_eff = 2/4 + 8 * 3/4 = 6.5, and the normalised innovations are unit vectors."""
    algorithm = fedawe.Weighted(fedawe.FedNova(), weights=[1.0, 3.0])
    up = fedawe.Upload(torch.tensor([[0.0, 8.0], [2.0, 0.0]]), weight=torch.tensor([8.0, 2.0]), rate=0.1)
    state = algorithm.absorb(algorithm.init(torch.zeros(2), 2), 0, torch.tensor([1, 0]), up)
    torch.testing.assert_close(algorithm.model(state), torch.tensor([-6.5 / 4, -6.5 * 3 / 4]))


@pytest.mark.parametrize("rule", [fedawe.FedAvg(), fedawe.FedNova(), fedawe.F3AST(), fedawe.FedAvgM()], ids=repr)
def test_a_round_in_which_nobody_has_a_weight_is_an_empty_one(rule: Any) -> None:
    algorithm, none = fedawe.Weighted(rule, weights=[0.0, 1.0, 3.0]), torch.tensor([], dtype=torch.int64)
    state, plain = algorithm.init(torch.zeros(2), 3), rule.init(torch.zeros(2), 3)
    A, G = torch.tensor([1]), torch.tensor([[4.0, -1.0]])
    state, plain = algorithm.aggregate(state, 0, A, G), rule.aggregate(plain, 0, A, G)
    up = fedawe.Upload(G, torch.ones(1), 0.1, loss=torch.ones(1), samples=torch.zeros(1))
    for mine in (algorithm, fedawe.Weighted(rule)):
        after = mine.absorb(state, 1, torch.tensor([0]), up)
        assert torch.equal(mine.model(after), rule.model(rule.aggregate(plain, 1, none, G[:0])))
    both = algorithm.aggregate(state, 1, torch.tensor([0, 1]), torch.tensor([[7.0, 7.0], [4.0, -1.0]]))
    other = algorithm.aggregate(state, 1, torch.tensor([0, 1]), torch.tensor([[0.0, 9.0], [4.0, -1.0]]))
    assert torch.equal(algorithm.model(both), algorithm.model(other))  # client 0 is active, and does not count


def test_clients_without_samples_weigh_nothing_in_an_experiment(tmp_path: Any) -> None:
    data = fedawe.digits()
    parts: list[Any] = [np.arange(30), [], np.arange(30, 50)]
    task = fedawe.tasks.Classification(data, fedawe.tasks.network_for(data, "softmax"), parts, keep_empty=True)
    experiment = fedawe.Experiment(
        task=task,
        algorithms={"avg": fedawe.Weighted(fedawe.FedAvg()), "awe": fedawe.Weighted(fedawe.FedAWE())},
        availability=fedawe.Trace([[0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 1, 1]]),
        local=fedawe.Local(fedawe.Rate(0.1), steps=2, batch=8),
        rounds=4,
        seeds=(0,),
    )
    frame = experiment.run(tmp_path / "out").frame()
    assert np.isfinite(frame["test_loss"].to_numpy()).all()


@pytest.mark.parametrize("kind", [fedawe.FedDyn, fedawe.FedPBC, fedawe.FedAsync, fedawe.AREA, fedawe.FedVARP])
def test_a_clip_shortens_the_move_of_the_aggregate(kind: Any) -> None:
    """From the same state, by the same innovations: the same direction, and at most as long as the clip."""
    free, bound = kind(), kind(clip=0.01)
    state = free.init(torch.zeros(D), M)
    for t, A in rounds()[:5]:
        G = torch.from_numpy(np.random.default_rng(t).normal(size=(len(A), D))).float()
        before = state[torch.tensor(A)].mean(0) if kind is fedawe.FedPBC else state.latest
        moved = [each.aggregate(state, t, torch.tensor(A), G).latest - before for each in (free, bound)]
        whole = moved[0].norm()
        torch.testing.assert_close(moved[1], moved[0] * min(1.0, 0.01 / whole))
        assert whole > 0.01
        state = free.aggregate(state, t, torch.tensor(A), G)
    assert free.linear
    assert not bound.linear


WARM_UP = fedawe.Local(lambda t: 0.1 * t, steps=S)  # rate 0 in the first round


@pytest.mark.parametrize(
    "algorithm",
    [
        fedawe.FedAvg(),
        fedawe.FedProx(mu=0.3),
        fedawe.FedDyn(alpha=0.3),
        fedawe.FedAvgM(),
        fedawe.FedNova(),
        fedawe.Weighted(fedawe.FedAvg(), weights=[1.0] * M),
        fedawe.Chosen(fedawe.FedAvg(), fedawe.Uniform(2)),
    ],
    ids=repr,
)
def test_a_rate_of_zero_moves_nothing(algorithm: Any) -> None:
    first, *_ = fedawe.simulate(task(), algorithm, TRACE, WARM_UP, seed=SEED)
    assert not first.x.any()


@pytest.mark.parametrize(
    "algorithm",
    [fedawe.SCAFFOLD(), fedawe.FedLaAvg(), fedawe.MIFA(memory_rate=WARM_UP.rate)],
    ids=fedawe.algorithms.name_of,
)
def test_rules_that_divide_by_the_rate_refuse_zero(algorithm: Any) -> None:
    with pytest.raises(fedawe.UserError, match=r"the rate of round 0 is 0.0; .* divides innovations by it"):
        list(fedawe.simulate(task(), algorithm, TRACE, WARM_UP, seed=SEED))


# Laws of the exchange, for rules that use it


EXCHANGES = {
    "scaffold": fedawe.SCAFFOLD(),
    "scaffold 1": fedawe.SCAFFOLD(option=1),
    "fedprox": fedawe.FedProx(mu=0.3),
    "feddyn": fedawe.FedDyn(alpha=0.3),
    "fedpbc": fedawe.FedPBC(),
    "adam around scaffold": fedawe.FedAdam(rule=fedawe.SCAFFOLD()),
    "uniform": fedawe.Chosen(fedawe.FedAWE(), fedawe.Uniform(2)),
    "power of choice": fedawe.Chosen(fedawe.SCAFFOLD(), fedawe.PowerOfChoice(3, 2)),
    "oort": fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(2)),
    "oort around fedpbc": fedawe.Chosen(fedawe.FedPBC(), fedawe.Oort(2)),
    "f3ast": fedawe.F3AST(beta=0.1, capacity=2),
    "momentum around f3ast": fedawe.FedAvgM(rule=fedawe.F3AST(beta=0.1, capacity=2)),
    "fedlaavg": fedawe.FedLaAvg(k=2),
}
every_exchange = pytest.mark.parametrize("name", EXCHANGES)
DIGITS = fedawe.digits()
SMALL = fedawe.Local(fedawe.Rate(0.1), steps=2, batch=8, batches="epochs")
FEW = fedawe.Trace(np.random.default_rng(3).random((6, 8)) < 0.6)


def digits() -> Any:
    return fedawe.classification(DIGITS, "softmax", clients=8, alpha=1.0)


def digits_run(name: str, **given: Any) -> list[Any]:
    return list(fedawe.simulate(digits(), EXCHANGES[name], FEW, SMALL, seed=0, **given))


@every_exchange
def test_resumed_is_uninterrupted_bit_for_bit(name: str) -> None:
    whole = digits_run(name)
    kept = unpack(whole[0].state, pack(whole[2].state))
    assert torch.equal(digits_run(name, resume=kept)[-1].x, whole[-1].x)


@every_exchange
def test_stacked_is_one_at_a_time(name: str) -> None:
    from fedawe.training.engines import Inline

    one, many = (digits_run(name, engine=Inline(digits(), SMALL, stacked=way))[-1].x for way in (False, True))
    torch.testing.assert_close(one, many, rtol=0, atol=2e-6)


@pytest.fixture(scope="module")
def two() -> Any:
    engine = Processes(digits(), SMALL, 2, 8, digits().initial(0))
    yield engine
    engine.close()


@every_exchange
def test_processes_are_inline_bit_for_bit(name: str, two: Any) -> None:
    two.use(digits(), SMALL)
    assert torch.equal(digits_run(name, engine=two)[-1].x, digits_run(name)[-1].x)


def test_a_shift_is_for_parameters_and_buffers_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With batch normalisation: SCAFFOLD's control variates have d numbers, models d + b."""
    import batch_norm

    problem = batch_norm.task()
    *_, last = fedawe.simulate(problem, fedawe.SCAFFOLD(), batch_norm.trace(), fedawe.Local(steps=2, batch=8), seed=0)
    assert last.state.own.c.shape == (problem.layout.parameters,)
    assert last.x.shape == problem.initial(0).shape


# Choosing


def chosen_rounds(algorithm: Any, trace: fedawe.Trace = TRACE, seed: int = SEED) -> list[list[int]]:
    return [done.A.tolist() for done in fedawe.simulate(task(), algorithm, trace, LOCAL, seed=seed)]


@pytest.mark.parametrize(
    "chooser", [fedawe.Uniform(2), fedawe.LongestAbsent(2), fedawe.PowerOfChoice(3, 2), fedawe.Oort(2)]
)
def test_a_chooser_takes_k_of_the_available(chooser: Any) -> None:
    algorithm = fedawe.Chosen(fedawe.FedAvg(), chooser)
    found = chosen_rounds(algorithm)
    for t, A in rounds():
        assert len(found[t]) == min(2, len(A))
        assert set(found[t]) <= set(A)
    assert found == chosen_rounds(algorithm)  # the same draws again


class Choice:
    """A rule, or a chooser, with a choice that is given as a function of the available clients."""

    k = 1

    def __init__(self, choice: Callable[[Any], Any]) -> None:
        self.choice = choice

    def __getattr__(self, verb: str) -> Any:
        return getattr(fedawe.FedAvg(), verb)

    def choose(self, state: Any, t: int, A: Any, draw: Any) -> Any:
        del state, t, draw
        return self.choice(A)

    pick = choose


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (lambda A: torch.arange(len(A))[:1], "returned client 0 in round 0, which is not available; expected some of"),
        (lambda A: [7], "returned client 7 in round 0, which is not available"),
        (lambda A: [-1], "returned client -1 in round 0, which is not available"),
        (lambda A: A[[1, 0, 1]], "returned client 2 more than once in round 0; expected"),
        (lambda A: A.double(), r"returned torch.float64 of shape \[2\] in round 0; .*: return A\[positions\]"),
        (lambda A: A > 1, r"returned torch.bool of shape \[2\] in round 0; expected some of the available clients A"),
        (lambda A: A[0], r"returned torch.int64 of shape \[\] in round 0"),
        (lambda A: None, "returned a NoneType in round 0; expected some of the available clients A"),
        (lambda A: set(A.tolist()), "returned a set in round 0; expected some of the available clients A"),
    ],
)
def test_only_available_clients_can_be_chosen(choice: Callable[[Any], Any], said: str) -> None:
    trace = fedawe.Trace([[False, True, True, False, False]])
    for verb, algorithm in (("choose", Choice(choice)), ("pick", fedawe.Chosen(fedawe.FedAvg(), Choice(choice)))):
        with pytest.raises(fedawe.UserError, match=f"Choice.{verb} {said}"):
            chosen_rounds(algorithm, trace)


@pytest.mark.parametrize("kind", [list, np.asarray, torch.Tensor.int])
def test_a_choice_may_be_a_list_or_an_array(kind: Callable[[Any], Any]) -> None:
    for choice, chosen in ((lambda A: kind(A[[1]]), [2]), (lambda A: kind(A[:0]), [])):
        trace = fedawe.Trace([[False, True, True, False, False]])
        assert chosen_rounds(Choice(choice), trace) == [chosen]
        assert chosen_rounds(fedawe.Chosen(fedawe.FedAvg(), Choice(choice)), trace) == [chosen]


def test_nobody_can_be_chosen_of_nobody() -> None:
    with pytest.raises(fedawe.UserError, match=r"Choice.choose returned client 0 in round 0, which is not available"):
        chosen_rounds(Choice(lambda A: [0]), fedawe.Trace([[False] * 5]))


def test_a_rule_may_choose_of_a_choice_in_any_order() -> None:
    from fedawe.algorithms.exchange import choose

    A = torch.tensor([4, 0, 2])
    assert choose(Choice(lambda A: A[:2]), fedawe.FedAvg().init(torch.zeros(1), 5), 0, A, draw_).tolist() == [4, 0]


def test_unchosen_clients_do_not_train() -> None:
    class Counting(fedawe.Quadratic):
        asked: list[int] = []  # noqa: RUF012

        def batches(self, work: Any) -> Any:
            self.asked.extend(work.A.tolist())
            return super().batches(work)

    problem = Counting(torch.from_numpy(U))
    found = list(fedawe.simulate(problem, fedawe.F3AST(beta=0.1, capacity=1), TRACE, LOCAL, seed=0))
    assert Counting.asked == [i for done in found for i in done.A.tolist()]
    assert len(Counting.asked) == int(ON.any(1).sum())


class Visited(fedawe.Quadratic):
    """Writes down which clients are trained, and how often each was active before."""

    def batches(self, work: Any) -> Any:
        self.seen.extend(zip(work.A.tolist(), work.visits.tolist(), strict=True))
        return super().batches(work)


CHOOSING = {
    "f3ast": fedawe.F3AST(beta=0.1, capacity=2),
    "fedlaavg": fedawe.FedLaAvg(k=2),
    "wrapped": fedawe.FedAvgM(rule=fedawe.Weighted(fedawe.F3AST(beta=0.1, capacity=2), np.ones(M))),
    "chosen": fedawe.Chosen(fedawe.F3AST(beta=0.1, capacity=2), fedawe.Uniform(3)),
    "one's own": Choice(lambda A: A[:2]),
    "all": fedawe.FedAWE(),
}


@pytest.mark.parametrize("stop", [None, 0, 7])
@pytest.mark.parametrize("name", CHOOSING)
def test_epochs_go_on_from_one_active_round_to_the_next(name: str, stop: int | None) -> None:
    problem, local = Visited(torch.from_numpy(U)), fedawe.Local(RATE, steps=S, batches="epochs")
    run = lambda **given: list(fedawe.simulate(problem, CHOOSING[name], TRACE, local, seed=SEED, **given))  # noqa: E731
    problem.seen = []
    found = run()
    before = [0] * M
    expected: list[tuple[int, int]] = []
    for done in found:
        if done.t == (stop if stop is not None else -1) + 1:
            tail = len(expected)
        for i in done.A.tolist():
            expected.append((i, before[i]))
            before[i] += 1
    assert problem.seen == expected
    if stop is not None:
        problem.seen = []
        again = run(resume=unpack(found[-1].state, pack(found[stop].state)))
        assert problem.seen == expected[tail:]
        assert torch.equal(again[-1].x, found[-1].x)


def test_an_experiment_that_goes_on_has_the_batches_of_one_that_never_stopped(tmp_path: Any) -> None:
    import batch_norm

    problem = batch_norm.task()
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8, batches="epochs")

    def run(folder: str, rounds: int) -> set[tuple[int, int, int]]:
        """Round, client and how often it was active before; round 0 is also used to see how clients are grouped."""
        seen: set[tuple[int, int, int]] = set()

        def batches(work: Any) -> Any:
            seen.update((work.t, i, n) for i, n in zip(work.A.tolist(), work.visits.tolist(), strict=True) if work.t)
            return type(problem).batches(problem, work)

        problem.batches = batches
        experiment = fedawe.Experiment(
            task=problem,
            algorithms={"f3ast": EXCHANGES["f3ast"]},
            availability=batch_norm.trace(6),
            local=local,
            rounds=rounds,
            seeds=(0,),
        )
        experiment.run(tmp_path / folder, workers=1)
        return seen

    whole = run("whole", 6)
    for i in range(6):
        counts = [n for _, client, n in sorted(whole) if client == i]
        assert np.diff(counts).tolist() == [1] * (len(counts) - 1)
    assert run("resumed", 4) == {each for each in whole if each[0] < 4}
    assert run("resumed", 6) == {each for each in whole if each[0] >= 4}


def test_fedpbc_draws_the_batches_of_owed_rounds_alone() -> None:
    problem = Visited(torch.from_numpy(U))
    problem.seen = []
    found = list(fedawe.simulate(problem, fedawe.FedPBC(), TRACE, LOCAL, seed=SEED))
    last = [max([done.t for done in found if i in done.A], default=-1) for i in range(M)]
    assert sorted(i for i, _ in problem.seen) == [i for i in range(M) for _ in range(last[i] + 1)]


def test_uniform_is_uniform_and_depends_on_the_seed() -> None:
    always = fedawe.Trace(np.ones((500, M), dtype=bool))
    algorithm = fedawe.Chosen(fedawe.FedAvg(), fedawe.Uniform(2))
    found = chosen_rounds(algorithm, always)
    counts = np.bincount(np.concatenate(found), minlength=M)
    assert np.abs(counts - 200).max() < 5 * np.sqrt(500 * 0.4 * 0.6)
    assert found != chosen_rounds(algorithm, always, seed=5)


def test_power_of_choice_prefers_the_unknown_then_the_largest_loss() -> None:
    algorithm = fedawe.Chosen(fedawe.FedAvg(), fedawe.PowerOfChoice(4, 1))
    state = algorithm.init(torch.zeros(1), 4)
    draw = np.random.default_rng
    up = lambda *loss: fedawe.Upload(  # noqa: E731
        torch.zeros(len(loss), 1), torch.ones(len(loss)), 0.1, torch.tensor(loss)
    )
    state = algorithm.absorb(state, 0, torch.tensor([0, 1, 3]), up(1.0, 3.0, 2.0))
    assert algorithm.choose(state, 1, torch.arange(4), draw(0)).tolist() == [2]
    state = algorithm.absorb(state, 1, torch.tensor([2]), up(0.5))
    assert algorithm.choose(state, 2, torch.arange(4), draw(0)).tolist() == [1]
    assert algorithm.broadcast(state, 2, torch.tensor([1])).loss
    state = algorithm.absorb(state, 2, torch.arange(4), up(-9.0, -5.0, -1.0, -7.0))  # a likelihood may give such losses
    assert all(algorithm.choose(state, 3, torch.arange(4), draw(seed)).tolist() == [2] for seed in range(5))


def test_oort_explores_first_and_then_draws_by_utility() -> None:
    oort = fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(1, explore=0.0))
    state = oort.init(torch.zeros(1), 3)
    up = fedawe.Upload(torch.zeros(3, 1), torch.ones(3), 0.1, torch.tensor([5.0, 1.0, 1.0]))
    state = oort.absorb(state, 0, torch.arange(3), up)
    assert {int(oort.choose(state, 1, torch.arange(3), np.random.default_rng(n))) for n in range(20)} == {0}
    eager = fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(1, explore=1.0))
    fresh = eager.init(torch.zeros(1), 3)
    fresh = eager.absorb(
        fresh, 0, torch.tensor([0]), fedawe.Upload(torch.zeros(1, 1), torch.ones(1), 0.1, torch.ones(1))
    )
    found = {int(eager.choose(fresh, 1, torch.arange(3), np.random.default_rng(n))) for n in range(20)}
    assert found == {1, 2}


# The audit


AUDITED = [name for name, (algorithm, _) in REFERENCES.items() if getattr(algorithm, "linear", False)]


@pytest.mark.parametrize("name", AUDITED)
def test_the_audit_is_what_training_shows(name: str) -> None:
    """Constant gradients v_i: the model is the sum of what each client counts, times -v_i."""
    algorithm, v = REFERENCES[name][0], U

    class Constant(fedawe.Quadratic):
        def gradients(self, x: Any, batches: Any, step: int) -> Any:
            return batches[0]

    *_, last = fedawe.simulate(
        Constant(torch.from_numpy(v)), algorithm, TRACE, fedawe.Local(fedawe.Rate(1.0, "constant"), steps=1), seed=0
    )
    np.testing.assert_allclose(last.x.numpy(), -influence(algorithm, TRACE).counted[-1] @ v, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (fedawe.FedAdam(), "FedAdam is not linear in the innovations"),
        (fedawe.FedYogi(), "not linear"),
        (fedawe.FedAvgM(rule=fedawe.FedAvg(clip=0.4)), "FedAvgM with clip=0.4: a clip is not linear"),
        (fedawe.Amplified(fedawe.MIFA(memory_rate=RATE)), "memory_rate depends on the learning rates"),
        (fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(2)), "Chosen is not linear"),
    ],
)
def test_what_is_not_linear_is_refused_with_a_reason(algorithm: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        influence(algorithm, TRACE)


# Refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.FedProx(mu=-1), "mu is -1"),
        (lambda: fedawe.SCAFFOLD(option=3), "option is 3"),
        (lambda: fedawe.FedDyn(alpha=0), "alpha is 0"),
        (lambda: fedawe.FedAvgM(beta=1), "beta is 1; expected a number at least 0 and below 1"),
        (lambda: fedawe.FedAdam(tau=0), "tau is 0"),
        (lambda: fedawe.FedAdam(rule=fedawe.FedAvg), "rule is <class"),
        (lambda: fedawe.FedAdam(rule=fedawe.FedAWE()).init(torch.zeros(1), 2), "no single global model"),
        (lambda: fedawe.Amplified(gamma=0.5), "gamma is 0.5"),
        (lambda: fedawe.FedStale(beta=1.5), "beta is 1.5"),
        (lambda: fedawe.FedAsync(alpha=0), "alpha is 0; expected a number above 0 and at most 1"),
        (lambda: fedawe.ClusterFedVARP([0, 1]).init(torch.zeros(1), 3), "2 numbers for 3 clients"),
        (lambda: fedawe.ClusterFedVARP([0.5]), "whole numbers from 0"),
        (lambda: fedawe.Weighted(fedawe.SCAFFOLD(), [1.0]), "SCAFFOLD cannot be weighted: it computes corrections"),
        (lambda: fedawe.Weighted(fedawe.FedAU()).init(torch.zeros(1), 2), "needs the weights of all clients for FedAU"),
        (lambda: fedawe.Weighted(fedawe.FedAvg(), [1.0, -1.0]), "weights must be numbers from 0"),
        (lambda: fedawe.Weighted(fedawe.FedAvg(), [0.0, 0.0]), "weights must be numbers from 0, .* not all are 0"),
        (lambda: fedawe.MIFA(memory="both"), "memory is 'both'"),
        (lambda: fedawe.Uniform(0), "k is 0"),
        (lambda: fedawe.Oort(explore=1.5), "explore is 1.5; expected a number at least 0 and at most 1"),
        (lambda: fedawe.Oort(explore="all"), "explore is 'all'"),
        (lambda: fedawe.F3AST(beta=0), "beta is 0; expected a number above 0 and at most 1"),
        (lambda: fedawe.F3AST(beta="small"), "beta is 'small'"),
        (lambda: fedawe.PowerOfChoice(2, 3), "d is 2 and k 3"),
        (lambda: fedawe.Chosen(fedawe.FedAvg(), 20), "chooser is 20, which has no method pick"),
        (lambda: fedawe.Chosen(fedawe.FedAvg(), fedawe.Uniform), "which is a class; expected an object"),
        (lambda: fedawe.SCAFFOLD(option=1).absorb(
            fedawe.SCAFFOLD(option=1).init(torch.zeros(1), 1), 0, torch.tensor([0]), fedawe.Upload.of(torch.ones(1, 1))
        ), "needs the gradient at the start"),
        (lambda: simulated(fedawe.SCAFFOLD(), fedawe.Local(optimiser=fedawe.Adam())), "SCAFFOLD needs local steps of"),
        (lambda: simulated(fedawe.FedAvg(), fedawe.Local(epochs=1)), "does not say how many samples"),
    ],
)  # fmt: skip
def test_hyper_parameters_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        make()
