"""The final model of a run or of a deployment as an nn.Module, ready to be used."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.results import record as records
from fedawe.results.record import Record
from fedawe.tasks import Data, Layout, network_for
from fedawe.tasks.models import ModelName

NAME = "model.safetensors"
Shapes = dict[str, list[int]]
Tensors = dict[str, Tensor]


def load_model(path: str | Path, module: nn.Module | None = None) -> nn.Module:
    """The final model of a run, in evaluation mode.

    path    the folder of the run, as runs/x/fedawe/seed-0, or the model.safetensors in it
    module  receives the parameters and buffers: by name if its names are those of the record, else in the order of its
            `state_dict`; None: the run's own network, if it is a bundled one
    """
    if module is not None and not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise UserError(f"module is {what}; expected an object of torch.nn.Module")
    file = Path(path) / NAME if Path(path).is_dir() else Path(path)
    record = _record(file)
    header = {} if record is None else record.header
    tensors = _tensors(file, record)
    own = _own_module(header)
    if module is None:
        if own is None:
            size = sum(tensor.numel() for tensor in tensors.values())
            raise UserError(
                f"{file}: the network of its {size} numbers is not known; give the nn.Module they belong to"
            )
        module = own.to_empty(device="cpu")
    elif any(is_lazy(parameter) for parameter in module.parameters()):
        raise UserError("module has parameters without a shape; call it once with an input, then load")
    module.load_state_dict(_fitted(file, tensors, _shapes(header, own), Layout.of(module)))
    return module.eval()


def _record(file: Path) -> Record | None:
    """The record in the folder of the model, or None if there is none; refuses a run that is not complete."""
    path = file.with_name(records.NAME)
    if not path.exists():
        if file.name == NAME and not file.exists() and file.parent.is_dir():
            raise UserError(f"{file.parent}: holds no {NAME}; name the folder of one run, as in runs/x/fedawe/seed-0")
        return None
    record = records.read(path)
    if record.problem is not None:
        raise UserError(f"{record.problem}; run the same command again to repair it")
    if file.name == NAME and record.status != "complete":
        raise UserError(f"{file.parent}: the run is {record.status}, so it has no final model")
    return record


def _tensors(file: Path, record: Record | None) -> Tensors:
    """The tensors of the file: a vector x, or tensors by name; refuses a file without the checksum of the record."""
    content = existing_file(file).read_bytes()
    if file.name == NAME and record is not None and record.end is not None:
        sha256 = record.end.get("model_sha256")
        if sha256 is not None and sha256 != hashlib.sha256(content).hexdigest():
            raise UserError(
                f"{file}: is not the model of the record beside it; run the same command again to repair it"
            )
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise UserError(f"{file}: cannot be read as safetensors ({error})") from None


def _shapes(header: Mapping[str, Any], own: nn.Module | None) -> Shapes | None:
    """The shapes of parameters and buffers in the order of the vector; None if they are unknown."""
    said = header.get("parameters")
    if isinstance(said, Mapping) and list(said) != ["x"]:
        return {str(name): list(shape) for name, shape in said.items()}
    return None if own is None else {entry.name: list(entry.shape) for entry in Layout.of(own).ordered}


def _fitted(file: Path, tensors: Tensors, shapes: Shapes | None, layout: Layout) -> Tensors:
    """The `state_dict` for the module: by name if the names are the same, else in order; refuses other shapes."""
    theirs = {entry.name: list(entry.shape) for entry in layout.ordered}
    if list(tensors) == ["x"] and tensors["x"].ndim == 1:
        x = tensors["x"]
        size = sum(math.prod(shape) for shape in theirs.values())
        if shapes is None:
            if size != len(x):
                raise UserError(f"{file}: the module has {size} parameters and buffers, expected {len(x)}")
            return layout.state_dict(x)
        sizes = [math.prod(shape) for shape in shapes.values()]
        if sum(sizes) != len(x):
            raise UserError(f"{file}: has {len(x)} numbers, expected {sum(sizes)} as the record beside it says")
        pieces = x.split(sizes)
        tensors = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
    if set(theirs) <= set(tensors):
        known = {*theirs, *layout.constants, *layout.aliases}
        if unknown := [name for name in tensors if name not in known]:
            raise UserError(f"{file}: has {unknown[0]}, which the module does not have")
        ours = {name: tensors[name] for name in theirs}
    elif shapes is not None and set(shapes) <= set(tensors):
        for (name, shape), expected in zip(theirs.items(), shapes.values(), strict=False):
            _same_shape(file, name, shape, expected)
        if len(theirs) != len(shapes):
            raise UserError(f"{file}: the module has {len(theirs)} tensors, expected {len(shapes)}")
        ours = {name: tensors[own] for name, own in zip(theirs, shapes, strict=True)}
    else:
        lacking = next(name for name in theirs if name not in tensors)
        raise UserError(f"{file}: has no {lacking}, which the module has; it has {', '.join(sorted(tensors))}")
    for name, shape in theirs.items():
        _same_shape(file, name, shape, list(ours[name].shape))
    constants = {name: tensors[name] for name in layout.constants if name in tensors}
    return {**layout.state_dict(layout.vector(ours)), **constants}


def _same_shape(file: Path, name: str, shape: list[int], expected: list[int]) -> None:
    if shape != expected:
        raise UserError(f"{file}: {name} of the module has the shape {shape}, expected {expected}")


def _own_module(header: Mapping[str, Any]) -> nn.Module | None:
    """The bundled network of a run, without memory for its parameters; None if the record does not name one."""
    task, inputs, classes = header.get("task"), header.get("inputs"), header.get("classes")
    if not isinstance(task, Mapping) or task.get("model") not in get_args(ModelName) or not inputs or not classes:
        return None
    name = str(task.get("name", ""))
    text = task["model"] == "lstm"
    if text and name != "chars":  # the header does not say whether every position has a label of its own
        return None
    with torch.device("meta"):  # no memory, no random numbers
        x = torch.empty(1, *inputs)
        y = torch.empty(1, *inputs if text else ())
        data = Data(Path(name).stem, x, y, x, y, text=text, known_classes=int(classes))
        return network_for(data, task["model"]).make()
