"""The final model of a run as an nn.Module, for whoever wants to use it."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.results import record as records
from fedawe.results.record import Record
from fedawe.tasks import ConvNet, Data, Dense, ModuleNetwork, Network, network_for
from fedawe.tasks.classification import ModelName

NAME = "model.safetensors"


def load_model(path: str | Path, module: nn.Module | None = None) -> nn.Module:
    """The final model of a run, in evaluation mode.

    path    the folder of the run, as runs/x/fedawe/seed-0, or the model.safetensors in it
    module  where to put the parameters, in the order of `module.parameters()`; None: the run's own network
    """
    if module is not None and not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise UserError(f"module is {what}; expected an object of torch.nn.Module")
    file = Path(path) / NAME if Path(path).is_dir() else Path(path)
    record = _record(file)
    x = _vector(file, record)
    own = None if record is None else _own_module(record, len(x))
    if module is None:
        if own is None:
            raise UserError(f"{file}: {len(x)} numbers whose network is not known; give the nn.Module they belong to")
        module = own.to_empty(device=x.device)
    else:
        _check(file, module, own, len(x))
    sizes = [parameter.numel() for parameter in module.parameters()]
    with torch.no_grad():
        for parameter, piece in zip(module.parameters(), x.split(sizes), strict=True):
            parameter.copy_(piece.view_as(parameter))
    return module.eval()


def _record(file: Path) -> Record | None:
    """The record beside the model, which must be that of a complete run; None if there is none."""
    path = file.with_name(records.NAME)
    if not path.exists():
        if file.name == NAME and not file.exists() and file.parent.is_dir():
            raise UserError(f"{file.parent}: holds no {NAME}; name the folder of one run, as in runs/x/fedawe/seed-0")
        return None
    record = records.read(path)
    if record.problem is not None:
        raise UserError(f"{record.problem}; run the same command again to mend it")
    if record.status != "complete":
        raise UserError(f"{file.parent}: the run is {record.status}, so it has no final model")
    return record


def _vector(file: Path, record: Record | None) -> Tensor:
    """The parameters as one vector [d], if they are those that the record speaks of."""
    content = existing_file(file).read_bytes()
    if record is not None and record.end is not None:
        sha256 = record.end.get("model_sha256")
        if sha256 is not None and sha256 != hashlib.sha256(content).hexdigest():
            raise UserError(f"{file}: is not the model of the record beside it; run the same command again to mend it")
    try:
        tensors = safetensors.torch.load(content)
    except SafetensorError as error:
        raise UserError(f"{file}: cannot be read as safetensors ({error})") from None
    if set(tensors) != {"x"} or tensors["x"].ndim != 1:
        raise UserError(
            f"{file}: is not a model of ours; expected one vector, x, not {', '.join(tensors) or 'nothing'}"
        )
    return tensors["x"]


def _check(file: Path, module: nn.Module, own: nn.Module | None, d: int) -> None:
    """Refuses a module of other shapes than the run's own network, or of another size where that is not known."""
    theirs = list(module.named_parameters())
    if any(is_lazy(parameter) for _, parameter in theirs):
        raise UserError("module has parameters without a shape; call it once with an input, then load")
    if own is not None:
        ours = [list(parameter.shape) for parameter in own.parameters()]
        for (name, parameter), shape in zip(theirs, ours, strict=False):
            if list(parameter.shape) != shape:
                raise UserError(f"{file}: {name} of the module has the shape {list(parameter.shape)}, expected {shape}")
        if len(theirs) != len(ours):
            raise UserError(f"{file}: the module has {len(theirs)} tensors of parameters, expected {len(ours)}")
    size = sum(parameter.numel() for _, parameter in theirs)
    if size != d:
        raise UserError(f"{file}: the module has {size} parameters, expected {d}")


def _own_module(record: Record, d: int) -> nn.Module | None:
    """The run's network without memory for its parameters; None if the record does not tell.

    The record has no shape of the inputs, and the data may be elsewhere; but the network and the number of classes
    leave one shape that makes d parameters. Of an image's sides only (H // 4)(W // 4) matters to it.
    """
    settings = record.header.get("settings", {})
    model, task = settings.get("model"), str(settings.get("task"))
    classes = len(record.evaluations[-1].get("test_accuracy_by_class", [])) if record.evaluations else 0
    if model not in get_args(ModelName) or classes == 0:
        return None
    name = Path(task).stem if task.endswith(".npz") else task
    label = torch.tensor([classes - 1])

    def made(*shape: int) -> nn.Module:
        with torch.device("meta"):  # no memory, no random numbers
            none = torch.empty(1, *shape)
            return as_module(network_for(Data(name, none, label, none, label), model))

    def size(*shape: int) -> int:
        return sum(parameter.numel() for parameter in made(*shape).parameters())

    # The last side of a shape, in steps of what the network can tell apart: d is linear in it.
    dense = model in ("softmax", "mlp")
    step, starts = (1, [()]) if dense else (4, [(channels, 4) for channels in range(1, 5)])
    found = []
    for start in starts:
        least = size(*start, step)
        more = size(*start, 2 * step) - least
        if d >= least and (d - least) % more == 0:
            found.append((*start, step * (1 + (d - least) // more)))
    return made(*found[0]) if len(found) == 1 else None


def as_module(network: Network) -> nn.Module:
    """One of our networks as an nn.Module that has the same parameters in the same order, not yet their values."""
    if isinstance(network, Dense):
        return nn.Sequential(nn.Flatten(), *_linear(network.sizes))
    if isinstance(network, ConvNet):
        layers: list[nn.Module] = []
        for out, channels, side, _ in network.shapes[:4:2]:
            layers += [nn.Conv2d(channels, out, side, padding=1), nn.MaxPool2d(2), nn.ReLU()]
        sizes = (network.shapes[4][1], *network.hidden, network.classes)
        return nn.Sequential(*layers, nn.Flatten(), *_linear(sizes, network.dropout))
    assert isinstance(network, ModuleNetwork)
    return network.make()


def _linear(sizes: Sequence[int], dropout: float = 0.0) -> list[nn.Module]:
    """Fully connected layers with ReLU between them, and dropout before each."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Dropout(dropout)] if dropout else []
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return layers[:-1]
