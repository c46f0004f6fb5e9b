"""Experiment folders as `fedawe run` writes them, with numbers that look like training and are made in no time."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedawe.availability.dynamics import Sine
from fedawe.availability.trace import Trace
from fedawe.core.rng import rng
from fedawe.results.head import head_content
from fedawe.results.record import seal

CLASS_OF = {  # and display name
    "fedawe": ("fedawe.algorithms.fedawe:FedAWE", "FedAWE"),
    "fedavg": ("fedawe.algorithms.fedavg:FedAvg", "FedAvg"),
    "fedavg-all": ("fedawe.algorithms.fedavg:FedAvgAll", "FedAvg-all"),
    "fedavg-known": ("fedawe.algorithms.fedavg_known:FedAvgKnown", "FedAvg-known"),
    "fedau": ("fedawe.algorithms.fedau:FedAU", "FedAU"),
    "f3ast": ("fedawe.algorithms.f3ast:F3AST", "F3AST"),
    "mifa": ("fedawe.algorithms.memory:MIFA", "MIFA"),
    "fedvarp": ("fedawe.algorithms.memory:FedVARP", "FedVARP"),
}
ALGORITHMS = tuple(CLASS_OF)
FINAL = dict(zip(ALGORITHMS, (0.82, 0.78, 0.70, 0.80, 0.79, 0.72, 0.81, 0.815), strict=True))
CLASSES = 10


def metric(name: str, better: str | None, title: str = "", unit: str = "", decides: bool = False) -> dict[str, Any]:
    return {"name": name, "title": title or name.replace("_", " "), "better": better, "unit": unit, "decides": decides}


# What the tasks declare, by the name of a task.
METRICS = {
    "digits": [
        metric("test_accuracy", "higher", unit="%", decides=True),
        metric("test_loss", "lower"),
        metric("train_accuracy", "higher", unit="%"),
        metric("train_loss", "lower"),
        metric("client_accuracy", "higher", "train accuracy, uniform over clients", "%"),
        metric("client_loss", "lower", "train loss, uniform over clients"),
    ],
    "quadratic": [
        metric("distance", "lower", "distance to the optimum", decides=True),
        metric("loss", "lower", "objective"),
    ],
    "text": [metric("test_perplexity", "lower", decides=True)],
    "undecided": [metric("consensus", None), metric("test_perplexity", "lower"), metric("hits", "higher")],
    "undeclared": [],
}
DIAGNOSTICS = [metric("active", None, "active clients"), metric("live_versions", None, "FedAWE: versions held")]


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
    task: str = "digits",
    availability: str = "sine",
    header: Mapping[str, Any] | None = None,
    locals_: Mapping[str, Mapping[str, Any]] | None = None,
    recorded: bool = False,
) -> Path:
    """A complete experiment; `final` is the value each algorithm goes to (an accuracy, a distance, a perplexity)."""
    shared = shared_fields(task, availability, clients, rounds, every)
    out.mkdir(parents=True)
    head = {"format": 2, "command": f"fedawe run --task {task} --out runs/x", "experiment": shared}
    head |= {"algorithms": list(algorithms), "stacked": True, "environment": ENVIRONMENT}
    (out / "experiment.json").write_bytes(head_content(head))
    for seed in seeds:
        population(out, seed, rounds, clients, task, recorded)
        for label in algorithms:
            evaluations = run(label, seed, rounds, every, final.get(label, 0.75), noise, task)
            first = header_of(label, seed, shared, task, clients) | dict(header or {})
            first["local"] = first["local"] | dict((locals_ or {}).get(label, {}))
            end = {"kind": "end", "status": "complete", "elapsed_seconds": 9.0}
            write(out, label, seed, [first, *evaluations, end])
    return out


ENVIRONMENT = {"fedawe": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "cpu": "some cpu", "cores": 2}


def shared_fields(task: str, availability: str, clients: int, rounds: int, every: int) -> dict[str, Any]:
    """What all runs share."""
    of_task: dict[str, Any] = {"class": f"my.tasks:{task.title()}"}
    if task == "digits":
        of_task = {"class": "fedawe.tasks.named:NamedTask", "name": "digits", "model": "mlp", "clients": clients}
        of_task |= {"alpha": 0.1, "image_size": None}
    of_availability = {"class": "fedawe.availability.dynamics:Sine", "gamma": 0.3, "title": availability}
    fields = {"task": of_task, "availability": of_availability, "p": None, "rounds": rounds, "evaluate_every": every}
    return {**fields, "evaluate_received": False}


def header_of(label: str, seed: int, shared: Mapping[str, Any], task: str, clients: int) -> dict[str, Any]:
    """The first line of a record."""
    base, _, options = label.partition("(")
    kind, name = CLASS_OF.get(base, (f"my.rules:{base.title()}", base))
    own = dict(option.split("=", 1) for option in options.rstrip(")").split(",") if "=" in option)
    own.pop("eta0", None)  # how clients train is not an option of the algorithm
    local = {"class": "fedawe.training.local:Local", "rate": {"class": "fedawe.training.local:Rate", "eta0": 0.1}}
    return {
        "kind": "header",
        "format": 2,
        "label": label,
        "name": f"{name} ({options}" if options else name,
        "algorithm": {"class": kind, "eta_g": 1.0, **own},
        "local": {**local, "steps": 10, "clip_grad": None},
        **shared,
        "metrics": [*METRICS[task], *DIAGNOSTICS],
        "needs_p": base == "fedavg-known",
        "parameters": {"x": [4810]},
        "inputs": [1, 8, 8] if task == "digits" else None,
        "classes": CLASSES if task == "digits" else None,
        "clients": clients,
        "seed": seed,
        "stacked": True,
        "versions": ENVIRONMENT,
    }


def population(out: Path, seed: int, rounds: int, clients: int, task: str, recorded: bool) -> None:
    """The trace and the clients of a seed."""
    draw = rng(seed, "sample")
    frequencies = draw.dirichlet(0.1 * np.ones(CLASSES), clients)
    p = frequencies @ draw.random(CLASSES) * 0.9 + 0.05
    trace = Trace.draw(Sine(), p, rounds, seed)
    (out / "traces").mkdir(exist_ok=True)
    (Trace(trace.on) if recorded else trace).save(out / "traces" / f"seed-{seed}.npz")
    arrays = {"sizes": draw.integers(5, 60, clients)}
    arrays |= {"frequencies": frequencies} if task == "digits" else {}
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
        elif task == "digits":
            value = 0.1 + rise * (final + common - 0.1 + float(draw.normal(0, noise)))
            line |= metrics(value, draw)
            if label.startswith("fedawe"):
                line |= {f"latest_{name}": v for name, v in metrics(value - 0.03 * rise, draw).items()}
                line["live_versions"] = int(draw.integers(5, 20))
        else:
            line["consensus"] = 3.0 - rise * final / 100  # the other way round: whoever ranks by it is wrong
            line["test_perplexity"] = 60 * (1 - rise) + final + common + float(draw.normal(0, noise))
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
    return out / quote(label, safe="()=,. +") / f"seed-{seed}" / "record.jsonl"


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
