"""The flags that say how runs are executed. PyTorch is imported only when needed, so that parsing them is fast."""

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from fedawe.core.errors import UserError
from fedawe.experiments.flags import Whole, hint, one_of

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Execution:
    """How runs are executed. No field changes a result, except that `engine` may change its last bits."""

    engine: str = "auto"
    """train clients one after another (one) or stacked into one computation (stacked); auto decides by the size of the
    network. ray, ray:HOST:PORT and ray://HOST:PORT train on a Ray cluster"""
    workers: Whole = None
    """number of processes that share the clients of a round (default: all cores if rounds take long, else 1)"""
    jobs: int = 1
    """number of runs at once, with one core each"""
    device: Annotated[Device | None, hint, one_of(Device)] = None
    """where to compute (default: a CUDA device if there is one)"""
    checkpoint_every: int = 50
    """rounds between two checkpoints"""

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster, or None if `engine` names none."""
        from fedawe.training.engines.ray_cluster import address_of

        return address_of(self.engine)

    def where(self) -> "torch.device":
        """The device to compute on."""
        import torch

        found = "cuda" if torch.cuda.is_available() and self.cluster is None else "cpu"
        return torch.device(self.device or found)

    def check(self) -> None:
        """Refuses invalid fields, and a device or a cluster that is not available."""
        import torch

        from fedawe.training.engines.ray_cluster import FORMS, reach

        if not isinstance(self.engine, str) or (self.engine not in ("auto", "one", "stacked") and self.cluster is None):
            raise UserError(f"engine is {self.engine!r}; expected auto, one, stacked, {FORMS}")
        for name in ("jobs", "checkpoint_every", *(["workers"] if self.workers is not None else [])):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise UserError(f"{name} is {value!r}; expected a whole number from 1")
        if self.jobs > 1 and (self.workers or 1) > 1:
            raise UserError(f"{self.jobs} jobs with {self.workers} workers each: choose one of the two")
        try:
            kind = self.where().type
        except (RuntimeError, TypeError):  # PyTorch has no device of that name
            kind = ""
        if kind not in get_args(Device):
            raise UserError(f"device is {self.device!r}; expected cpu or cuda")
        if kind == "cuda" and not torch.cuda.is_available():
            raise UserError("device is cuda, but this machine has no CUDA device; omit --device")
        if kind == "cuda" and (self.jobs > 1 or (self.workers or 1) > 1 or self.cluster is not None):
            raise UserError("jobs, workers and ray do not work with a CUDA device; omit them, or use --device cpu")
        if self.cluster is not None:
            reach(self.cluster)
