"""Weights & Biases: one run per algorithm and seed, grouped by algorithm, with the rounds as steps."""

import os
import shutil
from collections.abc import Mapping
from typing import Any, Literal

from fedawe.core.files import new_folder
from fedawe.trackers.base import TrackedRun, Tracker, needs, numbers


class WandB(Tracker):
    """Weights & Biases, online or offline; its files are in the folder `wandb` of the experiment.

    An offline run is a file that cannot be read back. When a run is resumed, the file is written again from the record,
    so there is always one offline folder per run, with every step once.

    project  project in Weights & Biases (default: $WANDB_PROJECT, or fedawe)
    entity   user or team (default: as Weights & Biases is configured)
    mode     online or offline (default: $WANDB_MODE, or online)
    """

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: Literal["online", "offline"] | None = None,
    ) -> None:
        self._wandb: Any = needs("wandb", "wandb")
        self.project = project or os.environ.get("WANDB_PROJECT") or "fedawe"
        self.entity = entity
        self.mode = mode or os.environ.get("WANDB_MODE") or "online"
        self._runs: dict[str, Any] = {}

    @property
    def destination(self) -> str:
        """The mode, the user or team, and the project."""
        return " ".join(["wandb", self.mode, *([self.entity] if self.entity else []), self.project])

    def started(self, run: TrackedRun) -> int:
        """Online, continue the run after its last step on the server; offline, begin it again."""
        if self.mode != "online":
            for old in (run.out / "wandb").glob(f"offline-run-*-{run.id}"):
                shutil.rmtree(old, ignore_errors=True)
        theirs = self._wandb.init(
            id=run.id,
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            dir=str(new_folder(run.out / "wandb").parent),
            name=run.name,
            group=run.label,
            config=run.settings,
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # several runs may be open at once
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        self._runs[run.id] = theirs
        return int(theirs.step) - 1 if theirs.resumed else -1

    def evaluated(self, run: TrackedRun, rounds: int, metrics: Mapping[str, Any]) -> None:
        """Write one step."""
        self._runs[run.id].log(numbers(metrics), step=rounds)

    def finished(self, run: TrackedRun, status: str) -> None:
        """Finish the run; everything is written or sent when this returns."""
        self._runs.pop(run.id).finish(exit_code=0 if status == "complete" else 1)
