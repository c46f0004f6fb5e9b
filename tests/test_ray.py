"""Ray: the same numbers wherever clients are trained, whatever becomes of the nodes; no wait without end."""

import contextlib
import json
import os
import queue
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import batch_norm
import matplotlib
import numpy as np
import pytest
import torch
from torch import nn
from usage import family, used

import fedawe
from fedawe.experiments.build import experiment_of
from fedawe.experiments.execution import Execution
from fedawe.experiments.settings import Settings
from fedawe.results import record as records
from fedawe.tasks import Augment, Classification, Data, ModuleNetwork
from fedawe.tasks.models import paper
from fedawe.training.engines import Inline, RayCluster, RayEngine, ray_actors, ray_cluster, ray_runs
from fedawe.training.engines.ray_actors import Answer
from fedawe.training.engines.ray_cluster import reach
from fedawe.training.engines.ray_runs import RemoteRun, Runner
from fedawe.training.engines.ray_store import LARGE, LEAST, Store, pack, unpack

NODES = """
import sys
from ray.cluster_utils import Cluster
nodes = Cluster()
nodes.add_node(num_cpus=1, include_dashboard=False, ray_client_server_port=int(sys.argv[1]))
second = nodes.add_node(num_cpus=1)
print(nodes.address, flush=True)
for line in sys.stdin:
    if line == "lose\\n":
        nodes.remove_node(second, allow_graceful=False)
    else:
        second = nodes.add_node(num_cpus=1)
    print("done", flush=True)
nodes.shutdown()
"""


class Nodes:
    """Two nodes of one core; the first can be reached as ray:// too, the second can be lost and regained."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # A process of their own: Ray leaves files open, of which Python warns.
        self.keeper = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", NODES, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self.keeper.stdout.readline().strip()

    def tell(self, word):
        self.keeper.stdin.write(f"{word}\n")
        self.keeper.stdin.flush()
        assert self.keeper.stdout.readline() == "done\n"

    def lose(self):
        self.tell("lose")

    def regain(self):
        self.tell("regain")

    def close(self):
        self.keeper.communicate(timeout=60)


@pytest.fixture(scope="module")
def private():
    """A folder and a password of our own, so that nothing is found or left elsewhere."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(private):
    found = Nodes()
    yield found
    found.close()
    assert processes_of(private) == []


@pytest.fixture(scope="module")
def cluster(nodes):
    with RayCluster(nodes.address) as found:
        yield found


@pytest.fixture(scope="module")
def kept(cluster):
    found = RayEngine(small(), LOCAL, cluster)
    yield found
    found.close()


@pytest.fixture
def engine(kept):
    """With an actor on each node."""
    for _ in range(2 - len(kept.actors) - len(kept.actors.starting)):
        kept.actors._start()
    settle(kept)
    return kept


@pytest.fixture
def vacant(kept, cluster):
    """The cluster, with all cores free."""
    kept.close()
    return cluster


def processes_of(folder):
    """What still runs under a folder of Ray's, after some time to end in."""
    for _ in range(100):
        listed = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=True).stdout
        found = [line for line in listed.splitlines() if f"{folder}/" in line]
        if not found:
            return []
        time.sleep(0.1)
    return found


def small(stacked=False) -> Classification:
    draw = np.random.default_rng(0)
    x, y = draw.integers(256, size=(1440, 16, 16, 3), dtype=np.uint8), draw.integers(4, size=1440)
    assert x.nbytes > LARGE
    test = torch.from_numpy(x[:50]), torch.from_numpy(y[:50])
    data = Data("svhn", torch.from_numpy(x), torch.from_numpy(y), *test, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    task = Classification(
        data, paper((3, 16, 16), (16,), 4), list(np.arange(1440).reshape(20, 72)), augment=Augment(True)
    )
    task.stacked = stacked
    return task


LOCAL = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8, batches="epochs")
TRACE = fedawe.Trace(np.random.default_rng(1).random((4, 20)) < 0.9)


def settle(engine):
    """Wait for all actors."""
    while engine.actors.starting:
        assert engine.actors.next() is None


def outcome(task, engine):
    engine.use(task, LOCAL)
    *_, last = fedawe.simulate(task, fedawe.FedAWE(), TRACE, LOCAL, seed=0, engine=engine)
    return last.x, engine.evaluate(last.x)


def assert_same(one, other):
    assert torch.equal(one[0], other[0])
    assert one[1] == other[1]


@pytest.mark.parametrize("stacked", [False, True])
def test_two_nodes_give_the_bits_of_one_process(engine, stacked):
    assert len(engine.actors) == 2  # of one core each, so each has a node
    task = small(stacked)
    assert_same(outcome(task, engine), outcome(task, Inline(task, LOCAL)))


def test_buffers_have_the_same_bits_too(engine):
    network = ModuleNetwork(lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 4)))
    task, local = batch_norm.task(network), fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8)
    engine.use(task, local)
    assert_same(batch_norm.outcome(task, local, engine), batch_norm.outcome(task, local, Inline(task, local)))


@pytest.mark.parametrize(
    "algorithm",
    [
        fedawe.SCAFFOLD(),
        fedawe.SCAFFOLD(option=1),
        fedawe.FedDyn(alpha=0.2),
        fedawe.FedPBC(),
        fedawe.Chosen(fedawe.FedProx(mu=0.2), fedawe.PowerOfChoice(4, 2)),
    ],
    ids=repr,
)
def test_what_goes_down_and_up_besides_models_has_the_same_bits(engine, algorithm):
    task = small()
    trace = fedawe.Trace(np.random.default_rng(2).random((4, task.clients)) < 0.6)
    engine.use(task, LOCAL)
    one, other = (
        list(fedawe.simulate(task, algorithm, trace, LOCAL, seed=0, engine=way))[-1].x
        for way in (engine, Inline(task, LOCAL))
    )
    assert torch.equal(one, other)


@pytest.mark.long
def test_a_node_lost_in_the_middle_of_a_round_changes_nothing(engine, nodes, monkeypatch):
    asked, ask = [], engine.actors.ask

    def ask_and_lose(*arguments):
        ask(*arguments)
        asked.append(arguments)
        if len(asked) == 12:  # all are at work, in the second round
            nodes.lose()

    monkeypatch.setattr(engine.actors, "ask", ask_and_lose)
    task = small()
    expected = outcome(task, Inline(task, LOCAL))
    assert_same(outcome(task, engine), expected)
    assert (len(engine.actors), len(engine.actors.starting)) == (1, 1)  # the other waits for a node
    nodes.regain()
    settle(engine)
    assert len(engine.actors) == 2
    assert_same(outcome(task, engine), expected)


@pytest.mark.long
def test_a_worker_that_is_silent_is_given_up(engine, monkeypatch):
    monkeypatch.setattr(ray_actors, "LISTEN", 2.0)
    ray, task = engine.actors.ray, small()
    silent = engine.actors.free[0]
    pid = ray.get(silent.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGSTOP)
    assert_same(outcome(task, engine), outcome(task, Inline(task, LOCAL)))
    settle(engine)
    assert silent not in engine.actors.free
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_divergence_names_the_client(engine):
    task, wild = small(), fedawe.Local(fedawe.Rate(1e30), steps=3, batch=4)
    engine.use(task, wild)
    with pytest.raises(fedawe.Diverged, match="round 5 at client 3 with learning rate"):
        engine.train(
            fedawe.Broadcast(task.initial(0).repeat(2, 1)),
            torch.tensor([3, 9]),
            5,
            0,
            torch.tensor([0, 0]),
        )


def test_a_worker_that_fails_says_why(engine):
    task = small()
    task.sampling.order = task.sampling.order + 10**6
    engine.use(task, LOCAL)
    with pytest.raises(RuntimeError, match=r"a worker failed:(.|\n)*index out of range"):
        engine.train(fedawe.Broadcast(task.initial(0)[None]), torch.tensor([3]), 0, 0, torch.tensor([0]))


def test_clients_at_which_every_worker_dies_are_not_tried_for_ever(engine, monkeypatch):
    class Dying:
        def __init__(self):
            self.free = [None]

        def __len__(self):
            return 1

        def ask(self, actor, method, asked, *arguments):
            self.asked = asked

        def next(self):
            self.free = [None]
            return Answer(self.asked)

    monkeypatch.setattr(engine, "actors", Dying())
    with pytest.raises(RuntimeError, match="3 workers died at the same clients"):
        outcome(small(), engine)


def test_other_versions_are_refused_and_other_processors_are_told_of(kept, monkeypatch):
    here, told = ray_actors.about(), []
    there = dict(here)
    monkeypatch.setattr(kept.actors, "ray", SimpleNamespace(get=lambda call, timeout: there))
    monkeypatch.setattr(kept.actors, "free", [])
    monkeypatch.setattr(kept.actors, "here", here)
    monkeypatch.setattr(kept.actors, "warn", told.append)

    def start():
        kept.actors.starting["call"] = "an actor"
        kept.actors._started("call")

    start()
    assert (kept.actors.free, told) == (["an actor"], [])
    there["processor"] = "abacus"
    start()
    assert len(told) == 1
    assert "the last bits of a result then depend on which node trained which client" in told[0]
    there["torch"] = "0.4"
    with pytest.raises(fedawe.UserError, match=r"a node of the cluster has torch 0\.4, this machine \d"):
        start()


def test_a_cluster_that_cannot_start_workers_is_given_up(kept, monkeypatch):
    error, started = kept.actors.ray.exceptions.RayError, []

    def get(call, timeout):
        raise error("No module named\n'fedawe'")

    monkeypatch.setattr(kept.actors, "ray", SimpleNamespace(get=get, exceptions=kept.actors.ray.exceptions))
    monkeypatch.setattr(kept.actors, "_kill", lambda actor: None)
    monkeypatch.setattr(kept.actors, "_start", lambda: started.append("again"))
    for _ in range(6):  # three times for each of two
        kept.actors.starting["call"] = "an actor"
        kept.actors._started("call")
    assert len(started) == 6
    kept.actors.starting["call"] = "an actor"
    with pytest.raises(
        fedawe.UserError, match=r"is fedawe installed on all nodes\? Ray says: No module named 'fedawe'"
    ):
        kept.actors._started("call")


def test_a_cluster_without_a_free_core_is_not_waited_for_for_ever(cluster, monkeypatch):
    monkeypatch.setattr(ray_actors, "PATIENCE", 1.0)
    engine = RayEngine(small(), LOCAL, cluster, 1)
    engine.actors.kind = engine.actors.kind.options(num_cpus=64)
    engine.actors.close()
    engine.actors._start()
    with pytest.raises(fedawe.UserError, match="no core of the Ray cluster became free in 1 s"):
        outcome(small(), engine)
    engine.close()


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_many_rounds_leave_nothing_behind(engine, nodes):
    """Short ones, of one client each; in the end no more memory, files or processes than near the beginning.

    A model has 256 KiB, so one copy that is kept in each round would be 100 MiB more at the end.
    """
    task = fedawe.Quadratic(torch.linspace(0, 1, 8)[:, None].repeat(1, 65536))
    local = fedawe.Local(fedawe.Rate(0.01), steps=1)
    trace = fedawe.Trace(np.eye(8, dtype=bool)[np.arange(500) % 8])
    engine.use(task, local)
    seen = {}
    for step in fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=engine):
        if step.t + 1 in (100, 500):
            seen[step.t + 1] = used([os.getpid(), *family(nodes.keeper.pid)])
    early, late = seen[100], seen[500]
    assert (late.files <= early.files + 5, late.processes <= early.processes) == (True, True)
    assert late.megabytes - early.megabytes < 40  # of a store that may hold 256 MB
    *_, alone = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0)
    assert torch.equal(step.x, alone.x)


def outcome_there(function, root):
    """How a run ends on a node, without a cluster."""
    said = queue.SimpleQueue()
    Runner._work(None, said, function, pack("shared"), RemoteRun(root, Path("part"), None), {"a": b"1"})
    return [said.get() for _ in range(said.qsize())][-1]


def test_whatever_ends_a_run_on_a_node_is_its_outcome(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_runs, "imported", lambda: SimpleNamespace(get=lambda packed: packed))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)

    def refusing(shared, folder, say, keep):
        raise fedawe.UserError(f"{folder / 'part' / 'a'}: is damaged")

    def leaving(shared, folder, say, keep):
        sys.exit("no licence")

    assert outcome_there(lambda shared, folder, say, keep: None, tmp_path).kind == "done"
    refused, left = outcome_there(refusing, tmp_path), outcome_there(leaving, tmp_path)
    assert (refused.kind, refused.said) == ("refused", f"{tmp_path / 'part' / 'a'}: is damaged")
    assert (left.kind, left.said.splitlines()[-1]) == ("failed", "SystemExit: no licence")

    def full():
        raise OSError("no space left")

    monkeypatch.setattr(ray_runs.tempfile, "TemporaryDirectory", full)
    nowhere = outcome_there(refusing, tmp_path)
    assert (nowhere.kind, nowhere.said.splitlines()[-1]) == ("failed", "OSError: no space left")


def test_equal_bytes_lie_in_the_cluster_once(cluster):
    store = Store(spare=2 * LEAST)  # two of them: small ones count as much as a reference costs
    a, b, c = (np.full(1000, value) for value in (1.0, 2.0, 3.0))
    first, second, again = store.put([a, b, a.copy()])
    assert (first == again, first == second, len(store.held)) == (True, False, 2)
    reference = store[first]
    store.put([c])
    assert store[first] is reference  # to spare
    store.put([np.zeros(1000)])
    assert (first in store.held, second in store.held) == (True, False)  # the oldest had to go
    assert store.put([a.astype(np.float32)]) != [first]
    assert store.put([a[:500], a]) != [first, first]


def test_what_is_packed_is_unpacked_where_it_lies():
    large = torch.arange(LARGE, dtype=torch.float32)
    strided = torch.zeros(4, LARGE).t()
    thing = {"large": large, "twice": [large], "small": torch.ones(3), "strided": strided, "text": "x"}
    packed = pack(thing)
    assert [len(piece) for piece in packed[1:]] == [4 * LARGE]
    for piece in packed:
        piece.flags.writeable = False  # as they come from a node's memory
    found = unpack(packed)
    assert torch.equal(found["large"], large)
    assert found["large"].data_ptr() == packed[1].ctypes.data  # no copy
    assert found["twice"][0] is found["large"]
    assert found["strided"].stride() == strided.stride()
    found["small"] += 1  # what is small may be written to


def stable(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith(("_seconds", "crc"))} for line in lines]


def assert_same_runs(one, other):
    found = sorted(path.relative_to(one) for path in one.rglob("record.jsonl"))
    assert found == sorted(path.relative_to(other) for path in other.rglob("record.jsonl"))
    for record in found:
        assert stable(one / record) == stable(other / record)
        model = record.with_name("model.safetensors")
        assert (one / model).read_bytes() == (other / model).read_bytes()
        assert sorted(os.listdir((one / record).parent)) == sorted(os.listdir((other / record).parent))


def grouping(out):
    return "stacked" if json.loads((out / "experiment.json").read_text())["stacked"] else "one"


@pytest.mark.long
def test_runs_spread_over_nodes_are_the_same_runs_even_if_a_node_is_lost(nodes, vacant, tmp_path):
    settings = Settings(model="softmax", clients=20, rounds=400, batch=16, evaluate_every=50)
    experiment = experiment_of(settings, ["fedawe", "mifa"], (0, 1))
    told, warned = [], []

    def tell(progress):
        told.append(progress)
        latest = {each.run: each.rounds for each in told}
        under_way = [rounds for rounds in latest.values() if rounds < settings.rounds]
        if not lost.is_set() and len(under_way) == 2 and min(under_way) >= 20:  # one on each node, with a checkpoint
            lost.set()
            nodes.lose()

    lost, out = threading.Event(), tmp_path / "spread"
    engine = f"ray:{nodes.address}"
    found = experiment.run(out, tell=tell, warn=warned.append, engine=engine, jobs=2, checkpoint_every=20).runs.runs
    nodes.regain()
    assert len(warned) == 1
    assert "a worker or node of the cluster was lost" in warned[0]
    assert [each.rounds for each in told].count(1) == 4  # nobody had to begin again
    assert [run.status for run in found] == ["complete"] * 4
    assert {run.record.path.is_relative_to(out) for run in found} == {True}
    experiment.run(tmp_path / "alone", engine=grouping(out))
    assert_same_runs(out, tmp_path / "alone")


def test_a_run_that_fails_on_a_node_leaves_the_others_complete(nodes, vacant, tmp_path):
    settings = Settings(model="softmax", clients=20, rounds=5, batch=16)
    experiment = experiment_of(settings, ["fedawe", "fedavg"], (0,))
    experiment.run(tmp_path, engine="stacked")
    well, ill = (tmp_path / name / "seed-0" for name in ("fedawe", "fedavg"))
    model = (well / "model.safetensors").read_bytes()
    (well / "model.safetensors").write_bytes(b"damaged")
    (well / "notes").write_text("a user's own")
    (ill / records.NAME).write_text(records.seal({"kind": "header", "format": 0}) + "\n")
    with pytest.raises(fedawe.UserError) as caught:
        experiment.run(tmp_path, engine=f"ray:{nodes.address}", jobs=2)
    first, second = str(caught.value).splitlines()
    assert first == "1 of 2 runs failed, the others are complete:"
    assert second == f"fedavg, seed 0: {ill / records.NAME} was made with format = 0, not 2; choose another --out"
    assert (well / "model.safetensors").read_bytes() == model
    assert (well / "notes").read_text() == "a user's own"


SMALL = shlex.split("--model softmax --clients 20 --seeds 0 --algorithms fedawe --evaluate-every 100")


def command(*flags, **environment):
    """`fedawe run` as a user types it, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedawe", "run", *SMALL, *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )


@pytest.mark.long
def test_a_run_that_was_stopped_on_a_ray_of_its_own_goes_on_at_another(nodes, vacant, tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name)
    out, home = tmp_path / "out", tmp_path / "home"
    home.mkdir()
    flags = ["--out", out, "--rounds", "120", "--checkpoint-every", "10", "--engine"]
    fonts = matplotlib.get_cachedir()  # which it would otherwise gather anew
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        process = command(*flags, "ray", HOME=str(home), RAY_TMPDIR=folder, MPLCONFIGDIR=fonts)
        while not list(out.rglob("checkpoint-*")) and process.poll() is None:
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):  # then it failed, and says why
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=240)
        assert process.returncode == 130, said
        assert said.splitlines()[-1] == "fedawe: stopped; the same command continues from the last checkpoint"
        assert processes_of(folder) == []
    assert not (home / ".ray").exists()  # no password left behind
    monkeypatch.undo()
    process = command(*flags, f"ray://127.0.0.1:{nodes.port}")
    done, said = process.communicate(timeout=240)
    assert "1 of 1 runs complete" in done, said
    settings = Settings(model="softmax", clients=20, rounds=120, evaluate_every=100)
    experiment_of(settings, ["fedawe"], (0,)).run(tmp_path / "alone", engine=grouping(out))
    assert_same_runs(out, tmp_path / "alone")


def greet(listener, greeting):
    with contextlib.suppress(OSError):
        while True:
            with listener.accept()[0] as line:
                line.sendall(greeting)


@pytest.mark.parametrize("greeting", [None, b"HTTP/1.0 505 no\r\n\r\n", b""], ids=["nobody", "another", "silence"])
def test_a_cluster_that_cannot_be_reached_is_said_in_one_line(greeting, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_cluster, "ANSWER", 0.5)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if greeting is not None:
            listener.listen()
        if greeting:
            threading.Thread(target=greet, args=(listener, greeting), daemon=True).start()
        for engine in (f"ray:{address}", f"ray://{address}"):
            with pytest.raises(fedawe.UserError, match=f"no Ray answers at (ray://)?{address}; expected a running"):
                experiment_of(Settings(), ["fedavg"], (0,)).run(tmp_path / "x", engine=engine)
    assert not (tmp_path / "x").exists()


def test_ray_is_imported_only_when_it_is_used_and_a_mistake_is_one_line():
    code = "import sys; from fedawe.cli.main import main; assert 'ray' not in sys.modules; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--engine", "ray://127.0.0.1:9"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedawe: no Ray answers at ray://127.0.0.1:9; expected a running cluster")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("engine", ["ray:", "ray:6379", "ray:head", "ray://", "ray:head:port", "ray:[::1]:99999999"])
def test_what_is_no_address_is_refused(engine):
    with pytest.raises(fedawe.UserError, match=r"(no Ray answers at|not the address of a Ray cluster; expected)"):
        Execution(engine=engine).check()


def test_an_engine_that_is_unknown_or_contradicts_is_refused():
    with pytest.raises(fedawe.UserError, match=r"engine is 'rays'; expected auto, one, stacked, ray, ray:HOST:PORT or"):
        Execution(engine="rays").check()
    with pytest.raises(fedawe.UserError, match="2 jobs with 2 workers each"):
        Execution(engine="ray", jobs=2, workers=2).check()


def test_a_ray_on_this_machine_is_found_if_it_still_answers(private, nodes, monkeypatch):
    assert reach("") == reach("auto") == nodes.address
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    monkeypatch.setenv("RAY_TMPDIR", str(private / "elsewhere"))
    assert reach("") == nodes.address
    monkeypatch.delenv("RAY_ADDRESS")
    assert reach("") == ""  # one has to be started
    (private / "elsewhere" / "ray").mkdir(parents=True)
    (private / "elsewhere" / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    assert reach("") == ""  # the one that was there has ended
    with pytest.raises(fedawe.UserError, match="no Ray runs on this machine; start one with: ray start --head"):
        reach("auto")


def test_a_connection_that_is_lost_is_no_bug_of_ours(cluster, nodes):
    with (
        pytest.raises(fedawe.UserError, match=r"connection to Ray is lost .* continues from the last checkpoint"),
        RayCluster(),
    ):
        raise ConnectionError("Client is shutting down.")
    with pytest.raises(BrokenPipeError), RayCluster():
        raise BrokenPipeError
    assert cluster.cores() == 2  # it was not theirs to close


def test_the_code_in_the_docs_runs(vacant, capsys):
    page = (Path(__file__).parent.parent / "docs" / "ray.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "True\n"


@pytest.mark.parametrize("failures", [2, 3])
def test_a_head_that_stumbles_is_asked_again(cluster, nodes, monkeypatch, failures):
    calls = []

    def init(where, **how):
        calls.append(where)
        if len(calls) <= failures:
            raise ConnectionAbortedError("Initialization failure from server:\nTraceback")

    stub = SimpleNamespace(
        init=init, is_initialized=lambda: False, shutdown=lambda: None, exceptions=cluster.ray.exceptions
    )
    monkeypatch.setattr(ray_cluster, "imported", lambda: stub)
    address = f"ray://127.0.0.1:{nodes.port}"
    if failures == 2:
        RayCluster(address)
    else:
        with pytest.raises(
            fedawe.UserError, match=r"cannot use Ray at ray://.*: Initialization failure from server: Tr"
        ):
            RayCluster(address)
    assert calls == [address] * 3


def test_without_ray_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fedawe.UserError, match=r"needs Ray, which is not installed here: pip install 'fedawe\[ray\]'"):
        Execution(engine="ray").check()
