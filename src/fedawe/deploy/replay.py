"""The simulator on the trace that happened: it must arrive at the model that the federation arrived at.

python -m fedawe.deploy.replay OUT
"""

import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.deploy import digits
from fedawe.deploy.apps import algorithm_from
from fedawe.results import record as records
from fedawe.training.engines import Inline
from fedawe.training.simulate import simulate


def replay(out: str | Path) -> Tensor:
    """The model that the simulator makes of a digits federation's trace and settings, [d]."""
    folder = Path(out)
    said = records.read(existing_file(folder / records.NAME)).header
    if said.get("task") != "digits":
        raise UserError(f"{folder}: only the digits app can be replayed; this record is of another")
    algorithm = algorithm_from({"algorithm": said["spec"], "eta0": said["eta0"]})
    task, local, trace = digits.task(said), digits.local(said), Trace.load(folder / "trace.npz")
    # As devices do it, one client at a time, which decides the last bits of a sum.
    *_, last = simulate(task, algorithm, trace, local, seed=said["seed"], engine=Inline(task, local, stacked=False))
    return last.x


def deployed(out: str | Path) -> Tensor:
    """The model that the federation arrived at, [d]."""
    path = existing_file(Path(out) / "model.safetensors")
    said = records.read(existing_file(Path(out) / records.NAME)).header
    return digits.flat(digits.task(said), safetensors.torch.load(path.read_bytes()))


def main(out: str) -> str:
    """Compare the two."""
    x, y = replay(out), deployed(out)
    difference = float((x - y).abs().max())
    if not torch.allclose(x, y, rtol=1e-4, atol=1e-5):
        raise UserError(f"{out}: the simulator arrives elsewhere, by up to {difference:.3g} in a parameter")
    return f"the simulator arrives at the same model: {len(x)} parameters differ by at most {difference:.3g}"


if __name__ == "__main__":
    try:
        print(main(*sys.argv[1:]))
    except (UserError, TypeError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
