"""Classification: labelled data shared out among clients, and a network."""

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.core.describe import checksum
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.core.rng import streams
from fedawe.tasks.augment import PAD, Augment
from fedawe.tasks.base import Metrics, Task, Update, Work
from fedawe.tasks.batches import Batches
from fedawe.tasks.data.labelled import Data, Role
from fedawe.tasks.executors import Batch
from fedawe.tasks.models import Model, network_for
from fedawe.tasks.module import ModuleNetwork
from fedawe.tasks.partition import Partition, checked_parts, hold_out, label_frequencies, partition_of
from fedawe.tasks.parts import Indices
from fedawe.tasks.sampling import Sampling

PIECE = 1024  # samples evaluated at once
AT_ONCE = 2**22  # the most numbers that are fetched for a whole round at once
TRAINING = ("batches", "gradients", "descend")  # the methods by which clients are trained
PERPLEXITY = Metric("test_perplexity", better="lower", decides=True)
VALIDATION = (Metric("validation_accuracy", unit="%"), Metric("validation_loss", better="lower"))


class Classification(Task):
    """A classification task: `network` learns `data`, of which client i has the samples `parts[i]`.

    The objective F is the mean of the clients' mean losses.

    A client with no more samples than a batch uses them all in every step. A client without samples is refused, unless
    `keep_empty`: it then takes part with an innovation of zero. `held_out[i]` are further samples of client i, on which
    it does not train: together they are the validation set, in the place of one that the data has. Models are evaluated
    on the parts of the data that `evaluate_on` names; None: on all.
    """

    mixed = True
    sizes: Indices
    frequencies: npt.NDArray[np.float64]
    metrics: tuple[Metric, ...] = (
        Metric("test_accuracy", unit="%", decides=True),
        Metric("test_loss", better="lower"),
        Metric("train_accuracy", unit="%"),
        Metric("train_loss", better="lower"),
        Metric("client_accuracy", "train accuracy, uniform over clients", unit="%"),
        Metric("client_loss", "train loss, uniform over clients", better="lower"),
    )

    def __init__(
        self,
        data: Data,
        network: ModuleNetwork,
        parts: Sequence[Indices],
        keep_empty: bool = False,
        augment: Augment | None = None,
        held_out: Sequence[Indices] | None = None,
        evaluate_on: Collection[Role] | None = None,
    ) -> None:
        of_subclass = set(vars(self))
        self.data = data = data.checked()
        parts = checked_parts(parts, len(data.y_train))
        held_out = None if held_out is None else checked_parts(held_out, len(data.y_train))
        if held_out is not None and len(held_out) != len(parts):
            raise UserError(
                f"held_out is of {len(held_out)} clients, parts of {len(parts)}; expected one for each client"
            )
        if type(self).ask is Classification.ask:
            network.check_fits(data)
        self.network, self.augment = network, augment
        self.sampling = Sampling(parts)
        self.sizes = self.sampling.sizes
        if not keep_empty and (self.sizes == 0).any():
            empty = np.flatnonzero(self.sizes == 0)
            raise UserError(
                f"{len(empty)} of {len(parts)} clients have no data (the first is {empty[0]}): use fewer clients, "
                "a larger alpha, or keep them with keep_empty (--keep-empty)"
            )
        # Samples that are held out count here: whether there is validation does not change a client's availability.
        whole = [np.concatenate(both) for both in zip(parts, held_out, strict=True)] if held_out else parts
        self.frequencies = label_frequencies(data.y_train.cpu().numpy(), whole)
        # F counts clients, not samples: a sample of client i weighs 1/(m n_i).
        owner_weight = np.repeat(1 / np.maximum(self.sizes, 1) / (self.sizes > 0).sum(), self.sizes)
        self.rows: dict[Role, Indices] = {}  # the rows of the data on which models are evaluated
        self.rows["train"], where = np.unique(self.sampling.order, return_inverse=True)
        self.client_weights = torch.zeros(len(self.rows["train"]), dtype=torch.float64).index_add_(
            0, torch.from_numpy(where), torch.from_numpy(owner_weight)
        )
        self.held_out = held_out is not None
        if held_out is not None:
            self.rows["validation"] = np.unique(held_out.order)
        elif data.y_val is not None:
            self.rows["validation"] = np.arange(len(data.y_val))
        self.rows["test"] = np.arange(len(data.y_test))
        if evaluate_on is not None:
            self.rows = _evaluated(self.rows, evaluate_on)
        self.metrics = self._metrics()
        self.layout, self.buffers = network.layout, network.layout.buffers
        self.input_shape = tuple(data.shape)
        self.computed = network.executor(len(data.shape))
        self.executor, self.executor_why = self.computed.name, self.computed.why
        self.stacked = self._stacked()
        self._made = {"_made", *vars(self)} - of_subclass  # the attributes that every classification has

    def described(self) -> dict[str, Any]:
        """The fields that identify the task in the header of a record, with data and parts as checksums."""
        further = {name: value for name, value in vars(self).items() if name not in self._made}
        return {
            "data": {"name": self.data.name, "sha256": checksum(self.data)},
            "parts": {"clients": self.clients, "sha256": checksum([self.sampling.order, self.sizes])},
            "network": self.network,
            "augment": self.augment,
            "held_out": {"sha256": checksum(self.rows.get("validation"))} if self.held_out else None,
            "evaluate_on": list(self.rows),
            **{k: v for k, v in further.items() if not isinstance(getattr(type(self), k, None), cached_property)},
        }

    def _stacked(self) -> bool | None:
        """The class attribute if it is set, else what the executor decides from two samples.

        None, so that a trial decides, if the executor would stack clients but a subclass trains in its own way.
        """
        if (said := type(self).stacked) is not None:
            return said
        x_train, network = self.data.x_train, self.network
        rows = torch.arange(min(2, len(x_train)), device=x_train.device)
        x = network.layout.vector(network.module.state_dict()).to(x_train.device)
        found = self.computed.stacked(x, self.data.inputs(x_train, rows), self.data.y_train[rows])
        own = any(getattr(type(self), name) is not getattr(Classification, name) for name in TRAINING)
        return None if found and own else found

    def _metrics(self) -> tuple[Metric, ...]:
        """The metrics of the parts that are evaluated; for text also the perplexity, which then decides."""
        every = Classification.metrics
        if self.data.text:
            every = (PERPLEXITY, *(replace(metric, decides=False) for metric in every))
        prefixes = {"train": ("train_", "client_"), "validation": ("validation_",), "test": ("test_",)}
        kept = tuple(prefix for role in self.rows for prefix in prefixes[role])
        out = [metric for metric in (*every, *VALIDATION) if metric.name.startswith(kept)]
        if not any(metric.decides for metric in out):  # the test set is not evaluated
            deciding = "validation_accuracy" if "validation" in self.rows else "train_accuracy"
            out = [replace(metric, decides=metric.name == deciding) for metric in out]
        return tuple(out)

    @property
    def clients(self) -> int:
        """m."""
        return len(self.sizes)

    def to(self, device: torch.device) -> "Classification":
        """The task with its data on another device."""
        out = copy.copy(self)
        out.data = self.data.to(device)
        out.stacked = out._stacked()
        return out

    def initial(self, seed: int) -> Tensor:
        """The initial vector of the network, [d + b]."""
        return self.network.initial(seed).to(self.data.x_train.device)

    def batches(self, work: Work) -> Batches:
        """The samples of the round, drawn by name; all clients are padded to the same width."""
        samples, sizes = self.sampling.rows(work)
        width, clients = samples.shape[2], work.A.tolist()
        weights = (np.arange(width) < sizes[:, None]) / np.maximum(sizes, 1)[:, None]
        device = self.data.x_train.device
        inputs, targets, rows = self._prepared(samples)
        draws = seeds = None
        if self.augment is not None:
            named = streams(work.seed, "augment", work.t, last=clients)
            draws = torch.zeros((*samples.shape, 3), dtype=torch.int64)
            for row, each in enumerate(named):
                steps = work.steps_of(row)
                draws[:steps, row] = self.augment.draw(steps, width, each)
            draws = draws.to(device)
        if self.computed.random:
            named = streams(work.seed, "network", work.t, last=clients)
            seeds = np.stack([each.integers(2**63, size=work.steps) for each in named], 1).tolist()
        return Batches(
            inputs,
            targets,
            torch.from_numpy(rows).to(device),
            torch.from_numpy(weights).to(device, self.network.layout.dtype),
            sizes.tolist(),
            draws,
            seeds,
        )

    def samples(self, i: int, visits: int, work: Work) -> Indices:
        """The rows of x_train that client i uses in every step, [s, b]; it was active in `visits` rounds before."""
        rows, real = self.sampling.rows(replace(work, A=torch.tensor([i]), visits=torch.tensor([visits]), counts=None))
        return rows[:, 0, : real[0]]

    def _prepared(self, rows: Indices) -> tuple[Tensor, Tensor, Indices]:
        """Inputs, targets, and `rows` as rows of these; images become floats, and are padded, once a round."""
        if self.data.x_train.dtype != torch.uint8 and self.augment is None:
            return self.data.x_train, self.data.y_train, rows
        used, where = np.unique(rows, return_inverse=True)
        picked = torch.from_numpy(used).to(self.data.x_train.device)
        inputs = self.data.inputs(self.data.x_train, picked, margin=PAD if self.augment is not None else 0)
        return inputs, self.data.y_train[picked], where.reshape(rows.shape)

    def gradients(self, x: Tensor, batches: Batches, step: int) -> Tensor:
        """The gradient of the network for each client, on the samples of this step, [k, d]."""
        if self.computed.mixes and batches.padded:  # padding would change the statistics of a batch
            alone = enumerate(batches.alone)
            return torch.cat([self.gradients(x[n : n + 1], one, step) for n, one in alone])
        batch = self._batch(batches, step)
        if batch is None:
            return torch.zeros_like(x[:, : x.shape[1] - self.buffers])
        return self.computed.gradients(x, batch, batches.kept)

    def descend(self, x: Tensor, batches: Batches, steps: int, update: Update) -> None:
        """Makes the steps in place; gradient and step are one operation if the update is plain."""
        if not update.plain:
            super().descend(x, batches, steps, update)
        elif self.computed.mixes and batches.padded:
            for n, one in enumerate(batches.alone):
                self.descend(x[n : n + 1], one, steps, update)
        else:
            self.computed.descend(x, self._all_batches(batches, steps), update.rate)

    def _all_batches(self, batches: Batches, steps: int) -> Iterator[Batch]:
        """The batches of the steps, without empty ones; if the samples of a round are few, they are fetched at once."""
        n = batches.samples.numel()
        if batches.draws is not None or len(batches.sizes) == 1 or n * batches.inputs[0].numel() > AT_ONCE:
            found = (self._batch(batches, step) for step in range(steps))
            return (batch for batch in found if batch is not None)
        flat, shape = batches.samples.view(-1), batches.samples.shape
        inputs = batches.inputs.index_select(0, flat).view(*shape, *batches.inputs.shape[1:])  # [s, k, B, ...]
        targets = batches.targets.index_select(0, flat).view(*shape, *batches.targets.shape[1:])
        seeds: Sequence[list[int] | None] = batches.seeds or [None] * steps
        return ((inputs[step], targets[step], batches.weights, seeds[step]) for step in range(steps))

    def _batch(self, batches: Batches, step: int) -> Batch | None:
        """Inputs [k, B, ...], targets [k, B, ...], weights [k, B], seeds [k] of a step; None if it has no samples."""
        width = batches.sizes[0] if len(batches.sizes) == 1 else None  # one client: its padding need not be computed
        samples, weights = batches.samples[step, :, :width], batches.weights[:, :width]
        if samples.numel() == 0:
            return None
        flat = samples.reshape(-1)
        if batches.draws is not None:
            inputs = Augment.apply(batches.inputs, flat, batches.draws[step, :, :width].reshape(-1, 3))
        else:
            inputs = batches.inputs.index_select(0, flat)  # several times as fast as indexing with a tensor
        targets = batches.targets[flat]
        inputs, targets = (each.view(*samples.shape, *each.shape[1:]) for each in (inputs, targets))
        return inputs, targets, weights, batches.seeds[step] if batches.seeds else None

    def losses(self, x: Tensor, batches: Batches) -> Tensor:
        """The mean loss of each client on the samples of its first step, in evaluation mode, [k]."""
        losses = x.new_zeros(len(x))
        with torch.no_grad():
            for row, one in enumerate(batches.alone):
                if (batch := self._batch(one, 0)) is not None:
                    losses[row] = self.network.loss(self.computed.outputs(x[row], batch[0][0]), batch[1][0]).mean()
        return losses

    def pieces(self) -> list[tuple[Role, int]]:
        """The pieces of the data, which can be evaluated separately: (train, validation or test, first row)."""
        return [(role, first) for role, rows in self.rows.items() for first in range(0, len(rows), PIECE)]

    def ask(self, x: Tensor, piece: tuple[Role, int]) -> Tensor:
        """For each sample of a piece: whether it is classified correctly, and its loss, [n, 2] float64."""
        role, first = piece
        images, labels = self.data.part("train" if role == "validation" and self.held_out else role)
        rows = torch.from_numpy(self.rows[role][first : first + PIECE]).to(labels.device)
        labels = labels[rows]
        outputs = self.computed.outputs(x, self.data.inputs(images, rows))
        hits = (outputs.argmax(-1) == labels).to(torch.float64)
        hits = hits.mean(1) if hits.ndim > 1 else hits  # of a text: the share of correct characters
        return torch.stack([hits, self.network.loss(outputs, labels).to(torch.float64)], 1).cpu()

    def summary(self, answers: Sequence[Tensor]) -> Metrics:
        """The metrics, from the answers of all pieces; test accuracy by class, training also uniform over clients."""
        parts = torch.cat(list(answers)).split([len(rows) for rows in self.rows.values()])
        found = {role: part.T for role, part in zip(self.rows, parts, strict=True)}
        out: dict[str, float | list[float]] = {}
        for role in ("test", "train"):
            if role in found:
                out[f"{role}_accuracy"], out[f"{role}_loss"] = (float(each.mean()) for each in found[role])
        if "train" in found:
            weighted = (float((each * self.client_weights).sum()) for each in found["train"])
            out["client_accuracy"], out["client_loss"] = weighted
        if "validation" in found:
            out["validation_accuracy"], out["validation_loss"] = (float(each.mean()) for each in found["validation"])
        if "test" in found and self.data.text:
            out["test_perplexity"] = float(found["test"][1].mean().exp())
        elif "test" in found:
            y = self.data.y_test.cpu()
            of_class = torch.bincount(y, minlength=self.data.classes)  # NaN for a class that no test sample has
            by_class = torch.bincount(y, weights=found["test"][0], minlength=self.data.classes) / of_class
            out["test_accuracy_by_class"] = [round(share, 6) for share in by_class.tolist()]
        return out

    def evaluate(self, x: Tensor) -> Metrics:
        """The metrics of the model x [d + b]."""
        return self.summary([self.ask(x, piece) for piece in self.pieces()])


def _evaluated(rows: dict[Role, Indices], asked: Collection[Role]) -> dict[Role, Indices]:
    """The rows of the parts of the data that were asked for."""
    if not asked or not set(asked) <= set(rows):
        known = ", ".join(rows) if "validation" in rows else "train, test (for validation data: --validation)"
        raise UserError(f"evaluate_on is {' '.join(asked) or 'empty'}; expected one or more of {known}")
    return {role: each for role, each in rows.items() if role in asked}


def classification(
    data: Data,
    model: Model = "mlp",
    clients: int | None = None,
    alpha: float | None = None,
    seed: int = 0,
    *,
    partition: Partition | None = None,
    validation: float | None = None,
    keep_empty: bool = False,
    augment: Augment | None = None,
    evaluate_on: Collection[Role] | None = None,
) -> Classification:
    """A classification task: the data, shared out among clients under `seed`, and a network.

    model       a name or your own network: see `network_for`
    clients     m; None: as many as the partition has, or 100 where any number is possible
    alpha       parameter of the Dirichlet partition, 0.1 unless given; smaller is more uneven
    partition   natural, dirichlet, iid, lists of samples or a function (labels, seed): see `partition_of`. None: as the
                data says, or dirichlet where it does not say which client has which sample
    validation  the share of every client's samples that is held out to validate; None: only that of the data
    keep_empty  keep clients that the partition leaves without data
    augment     random crops and flips
    evaluate_on train, validation, test: the parts of the data on which models are evaluated; None: on all
    """
    data = data.checked()
    if validation is not None and data.y_val is not None:
        raise UserError(f"{data.name} has validation samples of its own (x_val, y_val); omit validation (--validation)")
    network = network_for(data, model)
    parts = partition_of(data, partition, clients, alpha, seed)
    kept, held = (parts, None) if validation is None else hold_out(parts, validation, seed)
    return Classification(data, network, kept, keep_empty, augment, held, evaluate_on)
