"""`fedawe flower`: Run a federation of real processes on this machine, and repeat it in the simulator."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedawe.core.errors import UserError
from fedawe.experiments.build import algorithm_spec
from fedawe.experiments.flags import Word
from fedawe.results import record as records
from fedawe.results.record import Line

ROUND_SECONDS = 30.0  # a node that does not answer by then is not active in the round
START_SECONDS = 120.0
ATTEMPTS = 5  # losses in a row without a completed round after which `up` gives up


@dataclass(frozen=True)
class Up:
    """Train on the bundled digits with a SuperLink and nodes on this machine; the same command again resumes."""

    nodes: int = 3
    """number of nodes; each is a client with its own part of the digits"""
    rounds: int = 10
    """number of rounds"""
    algorithm: str = "fedawe"
    """the algorithm, with options as in fedau:K=20 or fedawe:clip=0.5"""
    out: Path = Path("federation")
    """folder for record, trace and model; logs, keys and Flower's own files are in its folder `local`"""
    seed: int = 0
    """seed of partition, initial model and batches"""
    tls: bool = False
    """encrypt connections, and accept only nodes whose key is registered"""
    port: int = 0
    """port of the SuperLink; 0: any free one"""

    def run(self) -> None:
        """Start the federation, run the app, and stop."""
        for name, value in (("nodes", self.nodes), ("rounds", self.rounds)):
            if value < 1:
                raise UserError(f"{name} is {value}; expected a whole number from 1")
        if self.seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {self.seed}")
        algorithm_spec(self.algorithm)
        from fedawe.deploy.apps import algorithm_from  # Flower is an extra
        from fedawe.deploy.checkpoint import MODEL, run_of
        from fedawe.deploy.local.app import write_app
        from fedawe.deploy.local.federation import Federation

        config: dict[str, Any] = {"algorithm": self.algorithm, "num-rounds": self.rounds, "clients": self.nodes}
        algorithm_from(config)
        config |= {"seed": self.seed, "timeout": ROUND_SECONDS, "out": self.out.absolute(), "authenticated": self.tls}
        with Federation(self.nodes, self.out / "local", tls=self.tls, port=self.port) as federation:
            print(f"{self.nodes} nodes at a SuperLink on 127.0.0.1:{federation.port}; Ctrl-C stops them", flush=True)
            app = write_app(federation.folder / "app")
            shown = _Shown(self.out, self.rounds)
            limit = START_SECONDS + self.rounds * (ROUND_SECONDS + 5)
            status, log = _completed(federation, shown, lambda: federation.run(app, config, limit, shown.tell))
        if status == "late":
            raise UserError(f"the run took longer than {limit:.0f} s; the same command continues it; see {log}")
        if status != "finished:completed":
            raise UserError(f"the run failed ({status}): {_reason(log)}; see {log}")
        model, check = run_of(self.out) / MODEL, shlex.join(["fedawe", "flower", "replay", str(self.out)])
        print(f"model: {model}\ncheck that the simulator arrives at it too: {check}")


def _completed(federation: Any, shown: "_Shown", run: Callable[[], str]) -> tuple[str, Path]:
    """Run the app until it ends; after a loss again, as long as rounds complete. Returns the last status and log."""
    losses = 0
    while True:
        before = shown.told
        status = run()
        shown.tell()
        log = federation.folder / "logs" / f"run-{federation.runs - 1}.log"
        if status not in ("lost", "died"):
            return status, log
        losses = losses + 1 if shown.told == before else 0
        gone = "the SuperLink" if status == "lost" else "the server app"
        if losses == ATTEMPTS:
            why = _reason(federation.link.log if status == "lost" else log)
            raise UserError(f"{gone} ended {losses} times without completing a round: {why}; see {log}")
        print(f"{gone} ended; continuing with round {shown.told + 1}", flush=True)
        if not federation.link.alive:
            federation.start_link()


@dataclass(frozen=True)
class Replay:
    """Run the simulator on the trace of a federation, and compare the two models."""

    out: tyro.conf.Positional[Path]
    """a folder that `fedawe flower up` or a server app wrote"""
    client: Word = None
    """the client app of the federation, as in my_app.client_app:app or client.py:app; not needed for the digits"""

    def run(self) -> None:
        """Replay the federation, and print how far the models differ."""
        from fedawe.deploy import replay  # Flower is an extra

        print(replay.main(str(self.out), self.client))


class _Shown:
    """Prints the rounds of the record as they complete."""

    def __init__(self, out: Path, rounds: int) -> None:
        self.out, self.rounds = out, rounds
        self.told: int = sum(1 for _ in self._lines())
        if self.told:
            print(f"{self.told} of {rounds} rounds were complete already")

    def tell(self) -> None:
        """Print the rounds that are new."""
        for line in self._lines():
            if line["round"] > self.told:
                self.told = line["round"]
                accuracy = f"{line['test_accuracy']:.3f}"
                print(
                    f"round {self.told} of {self.rounds}: {line['active']} clients active; test accuracy {accuracy}",
                    flush=True,
                )

    def _lines(self) -> list[Line]:
        """The evaluations after each round."""
        found = sorted(self.out.glob(f"*/seed-*/{records.NAME}"))
        return [line for path in found[:1] for line in records.read(path).evaluations if line["round"]]


def _reason(log: Path) -> str:
    """The last error in the log of a server app."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.split("Error:")[-1].strip() for line in reversed(lines) if "Error:" in line), "no reason given")


VERB = Annotated[Up, tyro.conf.subcommand("up")] | Annotated[Replay, tyro.conf.subcommand("replay")]
