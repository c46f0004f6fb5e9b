"""`fedawe flower`: a federation of real processes on this machine, and the simulator on what happened in it."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedawe.core.errors import UserError
from fedawe.experiments.build import algorithm_spec

ROUND_SECONDS = 30.0  # a node that does not answer by then was not there
START_SECONDS = 120.0
ATTEMPTS = 5


@dataclass(frozen=True)
class Up:
    """Start a SuperLink and nodes on this machine, learn the bundled digits, stop; the same call again resumes."""

    nodes: int = 3
    """how many, each a client with its own part of the digits"""
    rounds: int = 10
    """how many"""
    algorithm: str = "fedawe"
    """which, with options as in fedau:K=20 or fedawe:clip=0.5"""
    out: Path = Path("federation")
    """folder of record, trace and model; logs, keys and Flower's own files are in its folder `local`"""
    seed: int = 0
    """of partition, initial model and batches"""
    tls: bool = False
    """encrypt, and let in only nodes whose key is registered"""
    port: int = 0
    """of the SuperLink (0: any that is free)"""

    def run(self) -> None:
        """Start, run, stop."""
        for name, value in (("nodes", self.nodes), ("rounds", self.rounds)):
            if value < 1:
                raise UserError(f"{name} is {value}; expected a whole number from 1")
        if self.seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {self.seed}")
        algorithm_spec(self.algorithm)
        from fedawe.deploy.apps import algorithm_from  # Flower is an extra
        from fedawe.deploy.federation import Federation
        from fedawe.deploy.federation_app import write_app

        config: dict[str, Any] = {"algorithm": self.algorithm, "num-rounds": self.rounds, "clients": self.nodes}
        algorithm_from(config)
        config |= {"seed": self.seed, "timeout": ROUND_SECONDS, "out": self.out.absolute(), "authenticated": self.tls}
        with Federation(self.nodes, self.out / "local", tls=self.tls, port=self.port) as federation:
            print(f"{self.nodes} nodes at a SuperLink on 127.0.0.1:{federation.port}; Ctrl-C stops them", flush=True)
            app = write_app(federation.folder / "app")
            shown = _Shown(self.out / "record.jsonl", self.rounds)
            limit = START_SECONDS + self.rounds * (ROUND_SECONDS + 5)
            for _ in range(ATTEMPTS):
                status = federation.run(app, config, limit, shown.tell)
                if status not in ("lost", "died"):
                    break
                print("the SuperLink is gone" if status == "lost" else "the server app is gone", "; going on", sep="")
                if not federation.link.alive:
                    federation.start_link()
            shown.tell()
            log = federation.folder / "logs" / f"run-{federation.runs - 1}.log"
        if status != "finished:completed":
            raise UserError(f"the run ended as {status}: {_reason(log)}; see {log}")
        model, check = self.out / "model.safetensors", shlex.join(["fedawe", "flower", "replay", str(self.out)])
        print(f"model: {model}\ncheck that the simulator arrives at it too: {check}")


@dataclass(frozen=True)
class Replay:
    """Let the simulator replay what happened in a federation of digits, and compare the models."""

    out: tyro.conf.Positional[Path]
    """the folder that `fedawe flower up` or the example app wrote"""

    def run(self) -> None:
        """Replay and compare."""
        from fedawe.deploy import replay  # Flower is an extra

        print(replay.main(str(self.out)))


class _Shown:
    """The record's rounds as they come."""

    def __init__(self, record: Path, rounds: int) -> None:
        self.record, self.rounds = record, rounds
        self.told: int = sum(1 for _ in self._lines())
        if self.told:
            print(f"{self.told} of {rounds} rounds were done already")

    def tell(self) -> None:
        """What is new."""
        for line in self._lines():
            if line["round"] > self.told:
                self.told = line["round"]
                who = " ".join(map(str, line["clients"])) or "nobody"
                accuracy = f"{line['evaluate']['test_accuracy']:.3f}"
                print(f"round {self.told} of {self.rounds}: {who} answered; test accuracy {accuracy}", flush=True)

    def _lines(self) -> list[dict[str, Any]]:
        text = self.record.read_text(encoding="utf-8") if self.record.exists() else ""
        whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in whole if line["kind"] == "evaluation"]


def _reason(log: Path) -> str:
    """What the server app said last of why it failed."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.split("Error:")[-1].strip() for line in reversed(lines) if "Error:" in line), "no reason given")


VERB = Annotated[Up, tyro.conf.subcommand("up")] | Annotated[Replay, tyro.conf.subcommand("replay")]
