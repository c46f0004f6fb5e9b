"""What a comparison has in common: a task, a way to come and go, a way to train; and from a seed, all of it."""

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fedawe.algorithms import ALGORITHMS, Algorithm
from fedawe.availability.dynamics import DYNAMICS, Array, as_probabilities, class_weights, probabilities_from_labels
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.experiments.flags import Number, Numbers, Whole
from fedawe.experiments.spec import Spec
from fedawe.tasks import Augment, Data, Quadratic, Task, classification, digits, from_npz
from fedawe.tasks.base import Rule
from fedawe.tasks.data import default_folder, load
from fedawe.tasks.data.cache import names
from fedawe.tasks.data.sets import KNOWN
from fedawe.training.local import Local, Rate


@dataclass(frozen=True)
class Settings:
    """Everything that the runs of one folder share."""

    task: str = "digits"
    """digits (bundled handwritten digits), quadratic (the paper's Example 1), the path of your own .npz, or
    a data set added with `fedawe data`: svhn, cifar10, cinic10"""
    model: Literal["softmax", "mlp", "cnn", "paper"] | None = None
    """network (default: paper, the paper's own, for svhn, cifar10 and cinic10; mlp for the others)"""
    image_size: Whole = None
    """height and width to which images are shrunk by averaging; a divisor of theirs (default: as they are)"""
    dynamics: str = "sine"
    """stationary, staircase, sine, interleaved, markov, cyclic, outages, with options as in sine:gamma=0.2,period=40;
    or the path of a recorded trace (.npz or .csv)"""
    p: Numbers = ()
    """base probabilities: one for all clients or one for each (default: the paper's rule, from the labels they have)"""
    clients: Whole = None
    """how many (default 100, 2 for quadratic, or as in the recorded trace)"""
    alpha: float = 0.1
    """Dirichlet parameter of the partition; smaller is more uneven"""
    rounds: Whole = None
    """how many (default 300, or as in the recorded trace)"""
    round_seconds: Number = None
    """length of a round, for a recorded trace of intervals in seconds"""
    eta0: Number = None
    """local learning rate (default 0.1; 0.005 for quadratic); one algorithm's own: fedawe:eta0=0.2"""
    schedule: Literal["paper", "constant"] = "paper"
    """paper: eta0 / sqrt(t/10 + 1)"""
    steps: int = 10
    """local steps per round"""
    batch: Whole = None
    """samples per step; a client that has fewer uses all (default 128 for sets of `fedawe data`, else 32)"""
    batches: Rule = "iid"
    """iid: drawn anew in every step; epochs: shuffled epochs that go on from round to round, as the authors have it"""
    augment: Literal["none", "image", "batch"] | None = None
    """random crops, and flips except for svhn: of each image, or of a whole batch alike as the authors have it
    (default: image for sets of `fedawe data`, else none)"""
    clip_grad: Number = None
    """largest norm of a stochastic gradient (default: no clip); one algorithm's own: fedawe:clip_grad=0.5"""
    evaluate_every: int = 5
    """rounds between evaluations"""
    evaluate_received: bool = False
    """evaluate besides the mean over all clients of the model each received last, which FedAWE's own model is"""
    keep_empty: bool = False
    """keep clients that the partition leaves without data"""

    def resolved(self) -> "Settings":
        """With every default filled in, and nothing impossible left."""
        quadratic, recorded = self.task == "quadratic", self._recorded()
        if recorded is not None:
            clients, rounds = self.clients or recorded.clients, self.rounds or recorded.rounds
            if clients != recorded.clients or rounds > recorded.rounds:
                raise UserError(
                    f"{self.dynamics} has {recorded.clients} clients over {recorded.rounds} rounds; "
                    f"asked for were {clients} over {rounds}"
                )
            if self.p:
                raise UserError("p has no meaning for a recorded trace; leave --p away")
        else:
            clients = self.clients if self.clients is not None else len(self.p) if len(self.p) > 1 else 100
            if quadratic and self.clients is None and len(self.p) < 2:
                clients = 2
            rounds = 300 if self.rounds is None else self.rounds
        for name, value in (("clients", clients), ("rounds", rounds), ("evaluate_every", self.evaluate_every)):
            if value < 1:
                raise UserError(f"{name} is {value}; expected a whole number from 1")
        if len(self.p) not in (0, 1, clients):
            raise UserError(f"p has {len(self.p)} numbers for {clients} clients; give one for all or one for each")
        if self.p:
            as_probabilities(self.p)
        eta0 = self.eta0 if self.eta0 is not None else 0.005 if quadratic else 0.1
        kept = self.is_image_set()
        settings = dataclasses.replace(
            self,
            clients=clients,
            rounds=rounds,
            eta0=eta0,
            model=self.model or ("paper" if kept else "mlp"),
            batch=self.batch if self.batch is not None else 128 if kept else 32,
            augment=self.augment or ("image" if kept else "none"),
        )
        settings.local()
        if quadratic and (self.image_size is not None or self.evaluate_received):
            raise UserError("image_size and evaluate_received are for data; leave them away for quadratic")
        return settings

    def is_image_set(self) -> bool:
        """Whether the task is one of the data sets that `fedawe data` keeps."""
        return self.task not in ("digits", "quadratic") and not self.task.endswith(".npz")

    def _recorded(self) -> Trace | None:
        """The recorded trace, if that is what `dynamics` names."""
        if self.dynamics.split(":")[0] in DYNAMICS:
            return None
        if not self.dynamics.endswith((".npz", ".csv")):
            Spec.parse(self.dynamics, DYNAMICS, "dynamics")
        return Trace.load(self.dynamics, round_seconds=self.round_seconds, clients=self.clients, rounds=None)

    def knows_p(self) -> bool:
        """Whether the probabilities of every round are known, as FedAvg-known needs them."""
        recorded = self._recorded()
        return recorded is None or recorded.p is not None

    def local(self) -> Local:
        """How clients train."""
        assert self.eta0 is not None, "resolved first"
        assert self.batch is not None
        return Local(Rate(self.eta0, self.schedule), self.steps, self.batch, self.clip_grad, self.batches)


@dataclass(frozen=True)
class World:
    """One seed's clients, their data and their comings and goings; every algorithm lives in the same."""

    seed: int
    task: Task
    trace: Trace
    p: Array | None  # base probabilities [m]; unknown for a recorded trace

    @classmethod
    def of(
        cls, settings: Settings, seed: int, folder: Path | None = None, device: torch.device | None = None
    ) -> "World":
        """seed -> partition -> label frequencies -> p_i -> trace; image sets are looked for in `folder`."""
        if seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {seed}")
        assert settings.clients is not None
        assert settings.rounds is not None
        task = _task(settings, seed, folder, device or torch.device("cpu"))
        recorded = settings._recorded()
        if recorded is not None:
            return cls(seed, task, recorded.first(settings.rounds), None)
        if settings.p:
            p = np.broadcast_to(np.array(settings.p, dtype=np.float64), settings.clients).copy()
        elif task.frequencies is not None:
            p = probabilities_from_labels(task.frequencies, class_weights(task.frequencies.shape[1], rng(seed, "phi")))
        else:
            p = np.linspace(0.9, 0.3, settings.clients)  # whoever has a small optimum comes more often
        spec = Spec.parse(settings.dynamics, DYNAMICS, "dynamics")
        dynamics = spec.build(DYNAMICS[spec.name])
        return cls(seed, task, Trace.draw(dynamics, p, settings.rounds, seed), p)


def _task(settings: Settings, seed: int, folder: Path | None, device: torch.device) -> Task:
    assert settings.clients is not None
    assert settings.model is not None
    if settings.task == "quadratic":
        return Quadratic(torch.linspace(0, 100, settings.clients, dtype=torch.float64, device=device)[:, None])
    if settings.is_image_set():
        data = stored(settings.task, folder)
    else:
        data = digits() if settings.task == "digits" else from_npz(settings.task)
    if settings.image_size is not None:
        data = data.shrunk(settings.image_size)
    if settings.augment != "none" and len(data.shape) != 3:
        raise UserError(f"augment is for images; the samples of {data.name} have the shape {list(data.shape)}")
    per = settings.augment
    augment = Augment(settings.task != "svhn", per) if per == "image" or per == "batch" else None
    return classification(
        data.to(device),
        settings.model,
        settings.clients,
        settings.alpha,
        seed,
        keep_empty=settings.keep_empty,
        augment=augment,
    )


def stored(name: str, folder: Path | None) -> Data:
    """A data set that `fedawe data` keeps, as it lies in the cache."""
    if name not in KNOWN and name not in names(folder or default_folder()):
        known = ", ".join(["digits", "quadratic", *KNOWN])
        raise UserError(f"unknown task {name!r}; expected {known}, a set added with fedawe data, or an .npz file")
    found = load(name, folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to it
        x_train, x_test = torch.from_numpy(found.x_train), torch.from_numpy(found.x_test)
    y_train, y_test = (torch.from_numpy(np.array(y)) for y in (found.y_train, found.y_test))
    return Data(found.name, x_train, y_train, x_test, y_test, found.mean, found.std)


OWN = ("eta0", "clip_grad")  # what an algorithm may have of its own in how its clients train


@dataclass(frozen=True)
class Contender:
    """An algorithm as asked for, with its own learning rate if it has one."""

    spec: Spec

    @classmethod
    def parse(cls, text: str) -> "Contender":
        return cls(Spec.parse(text, ALGORITHMS, "algorithm"))

    @property
    def label(self) -> str:
        """What tables and folders call it."""
        return str(self.spec)

    def local(self, settings: Settings) -> Local:
        """How clients train for this algorithm: as all others do, but for the `eta0` and `clip_grad` of its own."""
        common = settings.local()
        own: dict[str, float] = {}
        for key in OWN:
            if (value := self.spec.options.get(key)) is not None:
                try:
                    own[key] = float(value)
                except ValueError:
                    raise UserError(f"{self.spec.name}:{key} is {value!r}; expected a number") from None
        try:
            rate = Rate(own["eta0"], settings.schedule) if "eta0" in own else common.rate
            return dataclasses.replace(common, rate=rate, clip_grad=own.get("clip_grad", common.clip_grad))
        except UserError as error:
            raise UserError(f"{self.label}: {error}") from None

    def algorithm(self, settings: Settings, trace: Trace) -> Algorithm[Any]:
        """The algorithm; FedAvg-known takes p from the trace, a normalised memory the rate from the settings."""
        given: dict[str, Any] = {}
        spec = self.spec.without(*OWN)
        if spec.name == "fedavg-known":
            if trace.p is None:
                raise UserError("fedavg-known needs the probabilities of every round; a recorded trace has none")
            given["p"] = trace.p
        if spec.options.get("memory_rate") == "local":
            given["memory_rate"] = self.local(settings).rate
            spec = spec.without("memory_rate")
        algorithm: Algorithm[Any] = spec.build(ALGORITHMS[spec.name], **given)
        return algorithm
