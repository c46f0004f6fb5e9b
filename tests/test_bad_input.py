"""Mistakes: each gives one line that says what is wrong, exit code 2, and leaves nothing behind."""

import sys

import numpy as np
import pytest
import torch

import fedawe
from fedawe.cli.main import main


def fedawe_says(monkeypatch, capsys, *arguments: str) -> tuple[int, str]:
    """The exit code and what was written to standard error."""
    monkeypatch.setattr(sys, "argv", ["fedawe", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0), capsys.readouterr().err


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def text(content: str):
    return lambda path: path.write_text(content)


X, Y = np.zeros((40, 4), dtype=np.float32), np.arange(40) % 4
GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}

COMMANDS = [  # (arguments, what the line must say)
    ("run --roundz 3", "unknown option --roundz; perhaps you meant --rounds"),
    ("report --basline fedavg runs", "unknown option --basline; perhaps you meant --baseline"),
    ("run --checkpoint-evry 3", "unknown option --checkpoint-evry; perhaps you meant --checkpoint-every"),
    ("trace draw x.csv --dynamcs sine", "unknown option --dynamcs; perhaps you meant --dynamics"),
    ("flower up --nods 3", "unknown option --nods; perhaps you meant --nodes"),
    ("run --zzz", "unknown option --zzz; see fedawe run --help"),
    ("run --rounds many", "Error parsing --rounds: invalid literal for int() with base 10: 'many'"),
    ("run --rounds 0", "rounds is 0; expected a whole number from 1"),
    ("run --rounds -5", "rounds is -5; expected a whole number from 1"),
    ("run --clients 0", "clients is 0; expected a whole number from 1"),
    ("run --clients 100000", "100000 clients cannot share 1438 samples"),
    ("run --alpha 0", "alpha is 0.0; expected a positive number"),
    ("run --alpha nan", "alpha is nan; expected a positive number"),
    ("run --clients 1000 --alpha 0.01", "clients have no data"),
    ("run --eta0 -1", "eta0 is -1.0; expected a positive number"),
    ("run --eta0 inf", "eta0 is inf; expected a positive number"),
    ("run --steps 0", "steps is 0; expected a whole number from 1"),
    ("run --batch 0", "batch is 0; expected a whole number from 1"),
    ("run --clip-grad 0", "clip_grad is 0.0; expected a positive number"),
    ("run --precision float16", "invalid choice 'float16' for argument '--precision'. Expected one of ('float32', 'bf"),
    (
        "run --task quadratic --precision bfloat16",
        "precision is bfloat16, but Quadratic is not trained under torch.aut",
    ),
    ("run --evaluate-every 0", "evaluate_every is 0; expected a whole number from 1"),
    ("run --checkpoint-every 0", "checkpoint_every is 0; expected a whole number from 1"),
    ("run --seeds -1", "a seed is a whole number from 0, not -1"),
    ("run --seeds", "no value given; name at least one"),
    ("run --seeds 1 1", "a seed was given twice: 1 1"),
    ("run --algorithms fedsgd", "unknown algorithm 'fedsgd'; choose from fedawe, fedavg, fedavg-all"),
    ("run --algorithms fedawe fedawe", "an algorithm was given twice: fedawe fedawe"),
    ("run --algorithms", "Error parsing --algorithms: no value given; name at least one, or omit the option"),
    ("run --p", "Error parsing --p: no value given; name at least one, or omit the option"),
    ("run --evaluate-on", "Error parsing --evaluate-on: no value given; name at least one, or omit the option"),
    ("run --evaluate-on tests", "invalid choice 'tests' for argument '--evaluate-on'"),
    (
        "run --algorithms fedavg fedawe fedawe:eta_g=1.0",
        "fedawe and fedawe(eta_g=1.0) are the same algorithm with the same local training; omit one of them",
    ),
    (
        "run --algorithms fedawe fedawe:eta0=0.1 --choose uniform:k=3",
        "fedawe and fedawe(eta0=0.1) are the same algorithm",
    ),
    ("run --epochs 2 --steps 3", "steps is 3 and epochs is 2, but epochs replace steps; omit one of the two"),
    ("run --epochs 2 --steps 10", "steps is 10 and epochs is 2, but epochs replace steps"),
    (
        "run --round-seconds 10",
        "round_seconds is 10, but sine is not a recorded trace of intervals in seconds; omit it",
    ),
    ("run --optimiser adam:lrr=1", "adam has no option 'lrr'; it has lr, b1, b2, eps, weight_decay"),
    (
        "run --task digits:x=1",
        "the task digits takes no options, but received 'x=1'; use flags such as --clients",
    ),
    ("run --task quadratic:clients=3", "the task quadratic takes no options, but received 'clients=3'"),
    ("run --task nofile.npz:x=1", "the task nofile.npz takes no options"),
    ("run --task nofile.npz", "fedawe: nofile.npz: no such file"),
    ("run --algorithms fedau:K", "cannot read 'fedau:K'; expected fedau:key=value"),
    ("run --algorithms fedau:K=x", "fedau:K is 'x'; expected a whole number"),
    ("run --algorithms fedau:L=3", "fedau has no option 'L'; it has K, eta_g, clip"),
    ("run --algorithms fedau:K=0", "K is 0; expected a whole number from 1"),
    ("run --algorithms fedawe:clip=-1", "clip is -1.0; expected a positive number"),
    ("run --algorithms fedawe:eta0=-1", "fedawe(eta0=-1): eta0 is -1.0; expected a positive number"),
    ("run --algorithms fedawe:eta0=x", "fedawe:eta0 is 'x'; expected a number"),
    ("run --algorithms f3ast:normalise=no", "f3ast:normalise is 'no'; expected self, clients, capacity"),
    ("run --dynamics cosine", "unknown dynamics 'cosine'; choose from stationary, staircase, sine, interleaved"),
    ("run --dynamics sine:gamma=-1", "gamma is -1.0; expected a number at least 0"),
    ("run --dynamics sine:period=0", "period is 0; expected a number at least 1"),
    ("run --dynamics none.npz", "none.npz: no such file"),
    ("run --p nan", "the probability of client 0 is nan; expected a number in [0, 1]"),
    ("run --p 0.5 0.5 --clients 3", "p has 2 numbers for 3 clients"),
    ("run --task mnist", "unknown task 'mnist'; expected digits, chars, quadratic, synthetic, svhn, cifar10,"),
    ("run --task none.npz", "none.npz: no such file"),
    ("run --model resnet", "unknown network 'resnet'; choose from softmax, mlp, cnn, paper, lstm, or name your"),
    ("trace show none.csv", "none.csv: no such file"),
    ("theory --clients 0", "clients is 0; expected a whole number from 1"),
    (f"data list --data {__file__}", "is not a folder; --data takes the folder where data sets are kept"),
    ("trace draw x.txt", "x.txt: a trace is written as .npz or .csv"),
    ("trace draw x.npz --rounds 0", "rounds must be a whole number from 1, not 0"),
    ("trace draw x.npz --p 0.1 0.2", "p has 2 numbers for 100 clients"),
    ("trace draw x.npz --clients 0", "clients is 0; expected a whole number from 1"),
    ("trace", "Expected one of {draw, show, check}"),
    ("report nowhere", "nowhere"),
    ("fit none.csv --rounds 9", "--rounds, --clients and --seed describe the trace that is drawn; give its file with"),
    ("fit none.csv --clients 9", "--rounds, --clients and --seed describe the trace that is drawn; give its file with"),
    ("run --image-size 3", "image_size is 3; expected a divisor of the height and width of images"),
    ("run --task quadratic --evaluate-received", "image_size and evaluate_received are for data"),
    ("run --dynamics outages:groups=0", "groups is 0; expected a number at least 1"),
    ("run --dynamics outages:rate=2", "rate is 2.0; expected a number at least 0 and at most 1"),
    ("run --dynamics outages:groups=1.5", "outages:groups is '1.5'; expected a whole number"),
    ("run --algorithms mifa:clip_grad=0", "mifa(clip_grad=0): clip_grad is 0.0; expected a positive number"),
    ("reproduce tabel2", "tabel2"),
    ("reproduce table2 --preset huge", "invalid choice 'huge' for argument '--preset'"),
    ("reproduce table2 --clip both", "invalid choice 'both' for argument '--clip'"),
    ("reproduce table2 --preset smoke --jobs 0", "jobs is 0; expected a whole number from 1"),
    ("reproduce table2 --preset smoke --jobs 0 --dry-run", "jobs is 0; expected a whole number from 1"),
    ("reproduce fig2 --preset smoke --jobs 0", "jobs is 0; expected a whole number from 1"),
    ("reproduce table2 --preset smoke --trace t.npz", "--trace is for beyond; table2 has no recorded trace"),
    ("reproduce beyond --preset smoke --trace none.npz", "none.npz: no such file"),
    ("reproduce all --preset smoke --trace none.csv", "none.csv: no such file"),
    ("reproduce table2 --data none", "the data set svhn is not in none; download it (fedawe data download svhn)"),
    ("reproduce fig4 --data none", "the data set cifar10 is not in none"),
    ("reproduce all --preset paper --data none", "the data set svhn is not in none"),
    ("reproduce table2 --rates tuned --data none", "no rates were searched for on svhn with the preset mini"),
    ("fly", "fly"),
]


@pytest.mark.parametrize(("arguments", "said"), COMMANDS, ids=[arguments for arguments, _ in COMMANDS])
def test_a_mistaken_command(monkeypatch, capsys, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, line = fedawe_says(monkeypatch, capsys, *arguments.split())
    assert code == 2, line
    assert line.startswith("fedawe: ")
    assert said in line
    assert line.count("\n") == 1
    assert files(tmp_path) == set()


TRACES = [  # (name, how it is made, what the line must say after the path)
    ("a.npz", npz(p=np.ones((2, 2))), ": has no array 'on'"),
    ("a.npz", npz(on=np.ones(3, dtype=bool)), ": a trace is a table [rounds, clients]"),
    ("a.npz", npz(on=np.ones((0, 3), dtype=bool)), ": a trace is a table [rounds, clients] with at least one of each"),
    ("a.npz", npz(on=np.full((2, 2), 7)), ": a trace has only 0 and 1"),
    ("a.npz", npz(on=np.ones((2, 2), dtype=bool), p=np.full((2, 2), np.nan)), ": p has entries that are not in [0, 1]"),
    ("a.npz", npz(on=np.ones((2, 2), dtype=bool), p=np.ones((2, 3))), ": p has the shape [2, 3], the trace [2, 2]"),
    ("a.npz", npz(on=np.array([["a", "b"]])), ": a trace has only 0 and 1"),
    ("a.npz", npz(on=np.array([[None]], dtype=object)), ": cannot be read as npz"),
    ("a.npz", text("not a zip"), ": cannot be read as npz"),
    ("a.npz", text(""), ": cannot be read as npz"),
    ("a.csv", text(""), ":1: expected a header 'round,client' or 'client,start,end', not 'nothing'"),
    ("a.csv", text("round,client\n"), ": is empty"),
    ("a.csv", text("time,who\n0,0\n"), ":1: expected a header 'round,client' or 'client,start,end', not 'time,who'"),
    ("a.csv", text("round,client\n0,0\n1\n"), ":3: expected 2 fields, found 1"),
    ("a.csv", text("round,client\n0,0,0\n"), ":2: expected 2 fields, found 3"),
    ("a.csv", text("round,client\n0,-1\n"), ":2: client '-1' is not a whole number from 0"),
    ("a.csv", text("round,client\n0.5,1\n"), ":2: round '0.5' is not a whole number from 0"),
    ("a.csv", text("round,client\n0,0\n0,1\n0,0\n"), ":4: client 0 in round 0 again; it was already in line 2"),
    ("a.csv", text("# rounds=2 clients=2\nround,client\n0,5\n"), ":3: client 5 is unknown: there are 2"),
    ("a.csv", text("# rounds=2 clients=2\nround,client\n7,1\n"), ":3: round 7 is unknown: there are 2"),
    ("a.csv", text("round,client\n0,99999999999999\n"), ":2: client 99999999999999 is too large"),
    ("a.csv", text("client,start,end\n0,0,10\n"), ": intervals in seconds need the length of a round"),
    ("a.csv", lambda path: path.write_bytes(b"round,client\n\xff\xfe,0\n"), ": cannot be read as CSV"),
]


@pytest.mark.parametrize(("name", "make", "said"), TRACES, ids=[said[:60] for _, _, said in TRACES])
@pytest.mark.parametrize("verb", ["check", "run", "reproduce"])
def test_a_mistaken_trace(monkeypatch, capsys, tmp_path, name, make, said, verb):
    make(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    arguments = {
        "check": ["trace", "check", name],
        "run": ["run", "--dynamics", name, "--out", "out"],
        "reproduce": ["reproduce", "beyond", "--preset", "smoke", "--trace", name, "--out", "out"],
    }[verb]
    code, line = fedawe_says(monkeypatch, capsys, *arguments)
    assert code == 2, line
    assert line.startswith(f"fedawe: {name}")
    assert said in line
    assert line.count("\n") == 1
    assert files(tmp_path) == {name}


DATA = [
    (npz(), ": lacks x_test, x_train, y_test, y_train"),
    (npz(x_train=X, y_train=Y), ": lacks x_test, y_test"),
    (npz(**{**GOOD, "x_train": X[:0], "y_train": Y[:0]}), ": x_train must be numbers [N, ...] with N from 1"),
    (npz(**{**GOOD, "x_train": X[:, 0]}), ": x_train must be numbers [N, ...]"),
    (npz(**{**GOOD, "x_train": X[:, :2]}), ": samples of x_train have the shape [2], those of x_test [4]"),
    (npz(**{**GOOD, "x_train": X + np.nan}), ": x_train has entries that are not finite"),
    (
        npz(**{**GOOD, "x_train": X + np.float64(1e300)}),
        ": x_train has entries as large as 1e+300, which is too large for float32; scale the inputs",
    ),
    (npz(**{**GOOD, "x_test": X.astype(str)}), ": x_test must be numbers"),
    (npz(**{**GOOD, "y_train": Y[:-1]}), ": y_train must have one label for each of 40 samples, not shape [39]"),
    (npz(**{**GOOD, "y_train": Y - 1}), ": y_train must be class numbers from 0"),
    (npz(**{**GOOD, "y_train": Y + 0.5}), ": y_train must be class numbers from 0"),
    (npz(**{**GOOD, "y_test": Y + 1}), ": y_test has class 4, which y_train does not have"),
    (npz(**{**GOOD, "y_train": Y + 10**6}), ": y_train has a class number 1000003"),
    (text("PK not really"), ": cannot be read as npz"),
    (npz(**{**GOOD, "y_train": np.array([{}] * 40, dtype=object)}), ": cannot be read as npz"),
]


@pytest.mark.parametrize(("make", "said"), DATA, ids=[said[:60] for _, said in DATA])
def test_mistaken_data(monkeypatch, capsys, tmp_path, make, said):
    make(tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    code, line = fedawe_says(monkeypatch, capsys, "run", "--task", "mine.npz", "--clients", "4", "--out", "out")
    assert code == 2, line
    assert line.startswith("fedawe: mine.npz: ")
    assert said in line
    assert line.count("\n") == 1
    assert files(tmp_path) == {"mine.npz"}


def test_a_cnn_needs_images(monkeypatch, capsys, tmp_path):
    npz(**GOOD)(tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    flags = ["--task", "mine.npz", "--clients", "4", "--model", "cnn"]
    code, line = fedawe_says(monkeypatch, capsys, "run", *flags)
    assert code == 2
    assert "a cnn needs images of at least 4 x 4; the samples of mine have the shape [4]" in line


def test_a_recorded_trace_must_fit(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    fedawe.Trace(np.ones((5, 3), dtype=bool)).save("t.npz")
    for flags, said in (
        ("--clients 4", "t.npz has 3; omit it (--clients)"),
        ("--rounds 6", "rounds is 6, but the recorded trace has 5; use at most as many"),
        ("--p 0.5", "p has no meaning for a recorded trace"),
        ("--round-seconds 10", "t.npz: round_seconds is 10, but the trace has rounds and not intervals in seconds"),
        ("--algorithms fedavg-known", "fedavg-known needs the probabilities of every round, which a recorded"),
    ):
        code, line = fedawe_says(monkeypatch, capsys, "run", "--dynamics", "t.npz", *flags.split())
        assert code == 2
        assert said in line
    assert files(tmp_path) == {"t.npz"}


def test_a_folder_that_is_not_ours_is_left_alone(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    (tmp_path / "file").write_text("")
    for out, said in (("photos", "is not the folder of an experiment"), ("file", "is not the folder of an experiment")):
        code, line = fedawe_says(monkeypatch, capsys, "run", "--out", out, "--rounds", "2")
        assert code == 2
        assert said in line
    assert files(tmp_path) == {"photos", "photos/cat.jpg", "file"}


QUADRATIC = fedawe.Quadratic(torch.zeros(3, 1))
THREE = fedawe.Trace([[1, 1, 1]])


def simulated(algorithm, resume):
    return fedawe.simulate(QUADRATIC, algorithm, THREE, fedawe.Local(), seed=0, resume=resume)


def experiment(**changes):
    made = {"task": QUADRATIC, "algorithms": {"FedAvg": fedawe.FedAvg()}, "availability": THREE, **changes}
    return fedawe.Experiment(**made, local=fedawe.Local(fedawe.Rate(0.1), steps=1))


class Twice(fedawe.Quadratic):
    metrics = (fedawe.Metric("loss"), fedawe.Metric("loss", better="lower"))


CALLS = [
    (lambda: experiment().run(None), "out is None; expected the path of a folder"),
    (lambda: experiment().run("x", tell=None), "tell is None; expected a function of one argument"),
    (lambda: experiment().run("x", warn=3), "warn is 3; expected a function of one argument"),
    (lambda: experiment().run("x", engine=None), "engine is None; expected auto, one, stacked"),
    (lambda: experiment(task=Twice(torch.zeros(3, 1))).run("x"), "has two metrics that are called loss"),
    (lambda: fedawe.load(None), "folder is None; expected the path of a folder"),
    (
        lambda: fedawe.simulate(QUADRATIC, fedawe.FedAvg(), THREE, fedawe.Local(), seed=None),
        "a seed is a whole number from 0, not None",
    ),
    (
        lambda: fedawe.simulate(QUADRATIC, fedawe.FedAvg(), THREE, fedawe.Local(), seed=0, engine="one"),
        "engine is 'one'; expected an engine, as in fedawe.training.engines.Inline(task, local)",
    ),
    (
        lambda: simulated(fedawe.FedAWE(), fedawe.FedAWE().init(torch.zeros(1), 7)),
        "resume has 7 clients and 1 parameters",
    ),
    (
        lambda: simulated(fedawe.FedAWE(), fedawe.FedAWE().init(torch.zeros(2), 3)),
        "resume has 3 clients and 2 parameters",
    ),
    (lambda: simulated(fedawe.FedAWE(), fedawe.FedAvg().init(torch.zeros(1), 3)), "resume is a ServerState; expected"),
    (
        lambda: simulated(fedawe.FedAvg(), next(simulated(fedawe.FedAvg(), None))),
        "resume is a Round; expected the `state`",
    ),
    (
        lambda: fedawe.FedAvg().start(fedawe.FedAvg().init(torch.zeros(1), 3), None),
        "A must be a vector of client numbers",
    ),
    (lambda: fedawe.FedAvg(eta_g="1"), "eta_g is '1'; expected a positive number"),
    (lambda: fedawe.FedAvg(clip="1"), "clip is '1'; expected a positive number"),
    (lambda: fedawe.Trace([[True], [True, False]]), "different lengths"),
    (lambda: fedawe.Trace([]), "at least one of each"),
    (lambda: fedawe.Trace(np.ones((2, 2))).active(2), "rounds 0 to 1, but round 2"),
    (lambda: fedawe.Trace.draw(fedawe.Sine(), [0.5, float("nan")], 3, 0), "probability of client 1 is nan"),
    (lambda: fedawe.Trace.draw(fedawe.Sine(), [], 3, 0), "one number per client"),
    (lambda: fedawe.Trace.draw(fedawe.Sine(), ["a"], 3, 0), "probabilities must be numbers"),
    (lambda: fedawe.Trace.draw(fedawe.Sine(), [0.5], 0, 0), "rounds must be a whole number from 1"),
    (lambda: fedawe.Sine().probabilities(-1, [0.5]), "a round must be a whole number from 0"),
    (lambda: fedawe.Markov(q=0), "q is 0; expected a number above 0 and at most 1"),
    (lambda: fedawe.FedAWE(eta_g=0), "eta_g is 0; expected a positive number"),
    (lambda: fedawe.FedAWE(max_echo=0), "max_echo is 0"),
    (lambda: fedawe.FedAvgKnown(p=torch.ones(3)), "p must be probabilities [rounds, clients]"),
    (lambda: fedawe.FedAvgKnown(p=[[0.5], [0.5, 0.5]]), "p must be probabilities [rounds, clients], not list"),
    (lambda: fedawe.FedAvgKnown(p=2 * torch.ones(3, 3)), "p has entries outside [0, 1]"),
    (lambda: fedawe.F3AST(beta=0), "beta is 0"),
    (lambda: fedawe.F3AST(normalise="no"), "normalise is 'no'"),
    (lambda: fedawe.MIFA(warmup="yes"), "warmup is 'yes'"),
    (
        lambda: fedawe.FedAvg().init(torch.zeros(2, 2), 3),
        "x0 must be a floating-point vector [d], not torch.float32 of",
    ),
    (lambda: fedawe.FedAvg().init(torch.zeros(2, dtype=torch.int64), 3), "x0 must be a floating-point vector"),
    (lambda: fedawe.FedAvg().init(torch.tensor([float("inf")]), 3), "x0 is not finite at coordinate 0"),
    (lambda: fedawe.FedAvg().init(torch.zeros(2), 0), "number of clients must be a whole number from 1, not 0"),
    (lambda: fedawe.Rate(0), "eta0 is 0"),
    (lambda: fedawe.Rate("0.1"), "eta0 is '0.1'; expected a positive number"),
    (lambda: fedawe.Rate(1, "cosine"), "schedule is 'cosine'"),
    (lambda: fedawe.Local(0.2), "rate is 0.2; expected a function of the round, such as fedawe.Rate(0.2)"),
    (lambda: fedawe.Local(fedawe.Rate), "expected a function of the round, such as fedawe.Rate(0.1)"),
    (lambda: fedawe.Local(clip_grad="1"), "clip_grad is '1'; expected a positive number, or None for no clip"),
    (lambda: fedawe.Local(steps=0), "steps is 0"),
    (lambda: fedawe.dirichlet_partition([0, 1], 3, 0.1, np.random.default_rng(0)), "3 clients cannot share 2 samples"),
    (lambda: fedawe.dirichlet_partition([0, 1], 2, 0.1, 0), "rng is 0; expected a generator of random numbers, as in"),
    (
        lambda: fedawe.dirichlet_partition([0, 1], "2", 0.1, np.random.default_rng(0)),
        "clients is '2'; expected a whole",
    ),
    (lambda: fedawe.dirichlet_partition([0, 1], 2, "1", np.random.default_rng(0)), "alpha is '1'; expected a positive"),
    (lambda: fedawe.dirichlet_partition([0.5], 1, 0.1, np.random.default_rng(0)), "labels must be a vector of class"),
    (lambda: fedawe.Quadratic(torch.zeros(3)), "u must be one optimum per client [m, d]"),
    (lambda: fedawe.Quadratic(torch.zeros(2, 3), noise=-0.1), "noise is -0.1; expected a standard deviation from 0"),
    (
        lambda: fedawe.simulate(QUADRATIC, fedawe.FedAvg(), fedawe.Trace([[1]]), fedawe.Local(), seed=0),
        "the trace has 1 clients, the task 3",
    ),
    (lambda: simulated(fedawe.FedAvg, None), "algorithm is a class; expected an object, as in FedAvg()"),
    (lambda: simulated("fedavg", None), "algorithm is a str, which has no init, start, aggregate, model; expected"),
    (
        lambda: fedawe.simulate(QUADRATIC, fedawe.FedAvg(), fedawe.Sine(), fedawe.Local(), seed=0),
        "trace is a Sine; expected a fedawe.Trace, as in fedawe.Trace.draw(fedawe.Sine(), p, ",
    ),
    (
        lambda: fedawe.simulate(QUADRATIC, fedawe.FedAvg(), THREE, 0.1, seed=0),
        "local is 0.1; expected how clients train, as in fedawe.Local(fedawe.Rate(0.1), steps=10)",
    ),
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[said for _, said in CALLS])
def test_a_mistaken_call(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as refused:
        call()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_printed(monkeypatch, capsys, tmp_path):
    fedawe.Trace(np.ones((2, 3))).save(tmp_path / "a.csv")
    monkeypatch.setattr(sys, "argv", ["fedawe", "trace", "show", f"{tmp_path}/a.csv", "--plot", "a.gif"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "fedawe: a.gif: a picture is a .png, .pdf or .svg\n")
