"""Experiment folders as `fedawe run` writes them, with numbers that look like training and are made in no time."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedawe.availability.dynamics import Sine
from fedawe.availability.trace import Trace
from fedawe.core.rng import rng
from fedawe.results.record import seal

ALGORITHMS = ("fedawe", "fedavg", "fedavg-all", "fedavg-known", "fedau", "f3ast", "mifa", "fedvarp")
FINAL = dict(zip(ALGORITHMS, (0.82, 0.78, 0.70, 0.80, 0.79, 0.72, 0.81, 0.815), strict=True))
CLASSES = 10


def experiment(
    out: Path,
    algorithms: Sequence[str] = ALGORITHMS,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    rounds: int = 60,
    every: int = 5,
    clients: int = 30,
    noise: float = 0.004,
    final: Mapping[str, float] = FINAL,
    settings: Mapping[str, Any] | None = None,
    task: str = "digits",
    recorded: bool = False,
) -> Path:
    """A complete experiment; `final` is the accuracy each algorithm goes to (for `quadratic`, the distance)."""
    shared = {"task": task, "model": "mlp", "dynamics": "sine", "clients": clients, "alpha": 0.1, "rounds": rounds}
    shared |= {"evaluate_every": every, "clip_grad": None} | dict(settings or {})
    out.mkdir(parents=True)
    head = {"format": 1, "command": f"fedawe run --task {task} --out runs/x", "settings": shared}
    head["environment"] = {"fedawe": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "cpu": "some cpu", "cores": 2}
    (out / "experiment.json").write_text(json.dumps(head))
    for seed in seeds:
        world(out, seed, rounds, clients, task, recorded)
        for label in algorithms:
            lines = run(label, seed, rounds, every, final.get(label, 0.75), noise, task)
            header = {"kind": "header", "format": 1, "algorithm": label.split("(")[0], "label": label, "seed": seed}
            header |= {"hyper_parameters": f"{label}(eta_g=1.0)", "parameters": 4810, "settings": shared}
            write(out, label, seed, [header, *lines, {"kind": "end", "status": "complete", "elapsed_seconds": 9.0}])
    return out


def world(out: Path, seed: int, rounds: int, clients: int, task: str, recorded: bool) -> None:
    """The trace and the clients of a seed."""
    draw = rng(seed, "sample")
    frequencies = draw.dirichlet(0.1 * np.ones(CLASSES), clients)
    p = frequencies @ draw.random(CLASSES) * 0.9 + 0.05
    trace = Trace.draw(Sine(), p, rounds, seed)
    (out / "traces").mkdir(exist_ok=True)
    (Trace(trace.on) if recorded else trace).save(out / "traces" / f"seed-{seed}.npz")
    arrays = {"sizes": draw.integers(5, 60, clients)}
    arrays |= {} if task == "quadratic" else {"frequencies": frequencies}
    arrays |= {} if recorded else {"p": p}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    (out / "clients").mkdir(exist_ok=True)
    (out / "clients" / f"seed-{seed}.npz").write_bytes(buffer.getvalue())


def run(label: str, seed: int, rounds: int, every: int, final: float, noise: float, task: str) -> list[dict[str, Any]]:
    """The evaluations of one run; what a seed has in common is common to all algorithms, as in truth."""
    draw, common = rng(seed, "sample", label), float(rng(seed, "sample", "common").normal(0, 3 * noise))
    lines = []
    for n in [*range(0, rounds, every), rounds]:
        rise = 1 - float(np.exp(-n / (0.12 * rounds)))
        line: dict[str, Any] = {"kind": "evaluation", "round": n, "active": int(draw.integers(3, 20))}
        if task == "quadratic":
            line |= {
                "distance": 50 * (1 - rise) + abs(final + float(draw.normal(0, noise))),
                "loss": 900.0 - 100 * rise,
            }
        else:
            value = 0.1 + rise * (final + common - 0.1 + float(draw.normal(0, noise)))
            line |= metrics(value, draw)
            if label.startswith("fedawe"):
                line |= {f"latest_{name}": v for name, v in metrics(value - 0.03 * rise, draw).items()}
                line["live_versions"] = int(draw.integers(5, 20))
        lines.append({**line, "elapsed_seconds": round(0.1 * n, 3)})
    return lines


def metrics(accuracy: float, draw: np.random.Generator) -> dict[str, Any]:
    """What an evaluation has, around one accuracy."""
    loss = round(2.3 * (1 - accuracy), 6)
    by_class = np.clip(accuracy + draw.normal(0, 0.03, CLASSES), 0, 1).round(6).tolist()
    return {
        "test_accuracy": accuracy,
        "test_loss": loss,
        "train_accuracy": min(1.0, accuracy + 0.02),
        "train_loss": loss * 0.9,
        "client_accuracy": accuracy,
        "client_loss": loss,
        "test_accuracy_by_class": by_class,
    }


def record(out: Path, label: str, seed: int) -> Path:
    """Where a run's record is."""
    return out / label / f"seed-{seed}" / "record.jsonl"


def write(out: Path, label: str, seed: int, lines: Sequence[dict[str, Any]]) -> None:
    """A record of these lines."""
    path = record(out, label, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(seal(line) + "\n" for line in lines))


def lines(out: Path, label: str, seed: int) -> list[dict[str, Any]]:
    """The lines of a record, to be written back changed."""
    found = [json.loads(text) for text in record(out, label, seed).read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "crc"} for line in found]


def diverge(out: Path, label: str, seed: int) -> None:
    """The run stopped half-way."""
    kept = lines(out, label, seed)[:-1]
    end = {
        "kind": "end",
        "status": "diverged",
        "message": f"{label}, seed {seed}: diverged in round 31",
        "elapsed_seconds": 4,
    }
    write(out, label, seed, [*kept[: len(kept) // 2], end])


def interrupt(out: Path, label: str, seed: int) -> None:
    """The run has no last line yet."""
    write(out, label, seed, lines(out, label, seed)[:-3])


def damage(out: Path, label: str, seed: int) -> None:
    """A byte of the record is another one."""
    path = record(out, label, seed)
    texts = path.read_text().splitlines(keepends=True)
    texts[3] = texts[3].replace("1", "2")
    path.write_text("".join(texts))
