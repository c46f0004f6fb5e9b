"""Rounds of one algorithm in one process on one thread, by the package and the benchmarks of a given tree.

usage: PYTHONPATH=TREE/src python benchmarks/rounds.py TREE ALGORITHM svhn|mlp SECONDS
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from turns import serve

import fedawe


def benchmark_of(tree: Path) -> Any:
    """The module benchmarks/engine.py of a tree."""
    sys.path.insert(0, str(tree / "benchmarks"))
    spec = importlib.util.spec_from_file_location("engine_of_tree", tree / "benchmarks" / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serves turns until standard input ends."""
    tree, name, network, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    torch.set_num_threads(1)
    engine = benchmark_of(tree)
    engine.keep_freed_memory()
    if network == "svhn":
        task, active, batch = engine.svhn_like(20, 256), 2, 128
    else:
        draw = torch.Generator().manual_seed(0)
        x, y = torch.randn(20_000, 64, generator=draw), torch.randint(10, (20_000,), generator=draw)
        made = getattr(engine, "dense", None) or engine.Dense  # its name in version 0.1
        parts = list(np.arange(20_000).reshape(100, 200))
        task = engine.Classification(engine.Data("synthetic", x, y, x[:10], y[:10]), made((64, 64, 10)), parts)
        active, batch = 30, 32
    trace, local = engine.chosen(100_000, task.clients, active), fedawe.Local(fedawe.Rate(0.05), 10, batch)
    rounds = fedawe.simulate(task, getattr(fedawe, name)(), trace, local, seed=0)

    def work() -> int:
        next(rounds)
        return active * 10

    work()
    serve(seconds, work)


if __name__ == "__main__":
    main()
