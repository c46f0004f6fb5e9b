"""Runs the simulator on the trace of a federation; its model must equal that of the federation.

python -m fedawe.deploy.replay OUT [MODULE:CLIENT_APP]
"""

import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload, reads_more_than_innovations
from fedawe.algorithms.facts import lacks_seed
from fedawe.availability.trace import Trace
from fedawe.core.describe import rebuilt
from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.deploy import digits, wire
from fedawe.deploy.checkpoint import INITIAL, MODEL, run_of
from fedawe.experiments.names import attribute
from fedawe.results import record as records
from fedawe.tasks.base import Metrics, Task, Work
from fedawe.tasks.layout import Entry, Kind, Layout
from fedawe.training.engines import Inline
from fedawe.training.local import Local
from fedawe.training.simulate import simulate

WITHOUT_DATA = "a replay has no data: only the client app can train, and only the server app can evaluate"


class Recorded(Task):
    """A federation as a task for the simulator; only the federation's client app can train its clients."""

    stacked = False

    def __init__(self, x0: Tensor, layout: Layout, clients: int) -> None:
        self.x0, self.layout, self.buffers, self.m = x0, layout, layout.buffers, clients

    @property
    def clients(self) -> int:
        """The number of clients m."""
        return self.m

    def initial(self, seed: int) -> Tensor:
        """The initial model of the federation, [d + b]."""
        del seed
        return self.x0

    def batches(self, work: Work) -> Any:
        """Raises, because only the client app has data."""
        del work
        raise UserError(WITHOUT_DATA)

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        """Raises, because only the client app has data."""
        del x, batches, step
        raise UserError(WITHOUT_DATA)

    def evaluate(self, x: Tensor) -> Metrics:
        """Raises, because only the server app can evaluate."""
        del x
        raise UserError(WITHOUT_DATA)


class AppEngine(Inline):
    """An engine that trains each client by calling a Flower client app in this process."""

    def __init__(self, task: Recorded, layout: Layout, app: ClientApp, said: dict[str, Any], needs_facts: bool) -> None:
        super().__init__(task, Local())
        self.layout, self.app, self.m, self.said, self.needs_facts = layout, app, task.clients, said, needs_facts

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        """The upload from the client app's replies: G = sent - returned, weights, rates and losses."""
        del seed, visits
        return wire.upload_of([self._one(down, row, i, t) for row, i in enumerate(A.tolist())], self.task.initial(0))

    def _one(self, down: Broadcast, row: int, client: int, t: int) -> wire.Reply:
        arrays, config = self.said["keys"]
        x = down.x[row]
        sent = wire.record(self.layout, x)
        said = {**self.said["train_config"], wire.ROUND: t + 1}
        content = wire.content(sent, down, row, (arrays, config), said)
        node: dict[str, bool | float | int | str] = {
            "client-id": client,
            "partition-id": client,
            "num-partitions": self.m,
        }
        context = Context(1, client + 1, node, RecordDict(), dict(self.said["config"]))
        reply = self.app(Message(content, client + 1, MessageType.TRAIN), context)
        if reply.has_error():
            raise UserError(f"the client app failed for client {client} in round {t + 1}: {reply.error.reason}")
        try:
            end = wire.returned(self.layout, reply.content)
            facts = wire.facts(content, reply.content, self.needs_facts)
        except wire.Refused as error:
            raise UserError(f"the client app's reply for client {client} in round {t + 1}: {error}") from None
        d, counted = self.layout.parameters, self.said.get("weighted_by", "num-examples")
        G = torch.cat([wire.read(self.layout, sent)[:d] - end[:d], x[d:] - end[d:]])
        return wire.Reply(G, **facts, samples=wire.samples_in(reply.content, counted))


def replay(out: str | Path, client: ClientApp | None = None) -> Tensor:
    """The model that the simulator computes on a federation's trace, [d + b].

    The simulator itself trains the digits; the client app `client` trains any other federation.
    """
    run = complete(out)
    header = records.read(run / records.NAME).header
    said, seed = header["deployment"], header["seed"]
    trace = Trace.load(Path(out) / "traces" / f"seed-{seed}.npz")
    algorithm = rebuilt(header["algorithm"])
    if lacks_seed(algorithm):
        raise UserError(f"{out}: the noise of a private federation is secret and was not kept; it cannot be replayed")
    if client is None:
        if (header["task"] or {}).get("app") != digits.NAME:
            raise UserError(
                f"{out}: this federation was not trained by the app of the digits; name its client app, as in "
                "--client my_app.client_app:app"
            )
        task, local = digits.task(said["config"]), digits.local(said["config"])
        # One client at a time, as on devices.
        *_, last = simulate(task, algorithm, trace, local, seed=seed, engine=Inline(task, local, stacked=False))
        return last.x
    initial = safetensors.torch.load_file(existing_file(run / INITIAL))
    layout = _layout(header, initial)
    recorded = Recorded(layout.vector(initial), layout, trace.clients)
    # Flower creates no message without these.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    engine = AppEngine(recorded, layout, client, said, reads_more_than_innovations(algorithm))
    unused = Local(steps=1)  # the client app trains as its configuration says
    *_, last = simulate(recorded, algorithm, trace, unused, seed=seed, engine=engine)
    return last.x


def complete(out: str | Path) -> Path:
    """The folder of the federation's run; refuses a run that is not complete."""
    run = run_of(out)
    record = records.read(run / records.NAME)
    if "deployment" not in record.header:
        raise UserError(f"{out} holds a run of the simulator; expected the folder of a federation")
    if not (run / MODEL).is_file():
        raise UserError(f"{out}: the federation is not complete: it has no {MODEL} yet; replay it when it has ended")
    if record.end is None:  # the model may be that of fewer rounds, if the federation was continued
        raise UserError(
            f"{out}: the federation is not complete: its record has no last line yet; replay it when it has ended"
        )
    return run


def deployed(out: str | Path) -> Tensor:
    """The final model of the federation, [d + b]."""
    run = complete(out)
    tensors = safetensors.torch.load_file(existing_file(run / MODEL))
    return _layout(records.read(run / records.NAME).header, tensors).vector(tensors)


def _layout(header: dict[str, Any], tensors: dict[str, Tensor]) -> Layout:
    """The layout of a record's model, with the shapes and dtypes of `tensors`."""
    buffers, aliases = header["deployment"]["buffers"], header["deployment"]["aliases"]
    names = [*header["parameters"], *sorted(set(tensors) - set(header["parameters"]) - set(aliases))]
    entries, constants = [], {}
    for name in names:
        kind: Kind = "buffer" if name in buffers else "parameter" if name in header["parameters"] else "constant"
        if name not in tensors:
            raise UserError(f"the model has no {name}; expected the tensors that the record names")
        entries.append(Entry(name, tuple(tensors[name].shape), tensors[name].dtype, kind))
        if kind == "constant":
            constants[name] = tensors[name]
    return Layout(tuple(entries), constants, aliases)


def main(out: str, client: str | None = None) -> str:
    """Compare the model of the replay with that of the federation; returns a sentence, or raises if they differ."""
    app = None if client is None else client_app_at(client)
    x, y = replay(out, app), deployed(out)
    difference = float((x - y).abs().max())
    if not torch.allclose(x, y, rtol=1e-4, atol=1e-5):
        raise UserError(f"{out}: the simulator arrives at another model; a parameter differs by up to {difference:.3g}")
    return f"the simulator arrives at the same model: {len(x)} parameters differ by at most {difference:.3g}"


def client_app_at(place: str) -> ClientApp:
    """The client app at `module:name` or `file.py:name`, which is an app or a function that returns one."""
    module, _, name = place.rpartition(":")
    if not module:
        raise UserError(f"--client is {place!r}; expected module:name or file.py:name")
    found = attribute(module, name)
    app = found if isinstance(found, ClientApp) or not callable(found) else found()
    if not isinstance(app, ClientApp):
        raise UserError(f"{place} is a {type(app).__name__}; expected a Flower ClientApp")
    return app


if __name__ == "__main__":
    try:
        print(main(*sys.argv[1:]))
    except (UserError, TypeError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
