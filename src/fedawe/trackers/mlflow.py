"""MLflow: one run per algorithm and seed, with the settings as parameters and the metrics over the rounds."""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from fedawe.core.errors import UserError
from fedawe.core.files import brief
from fedawe.trackers.base import TrackedRun, Tracker, needs, numbers

TAG = "fedawe.run"  # the tag with the id of a run, by which the run is found when it is resumed
AT_ONCE = 1000  # largest number of metrics in one call of MLflow
STATUS = {"complete": "FINISHED", "diverged": "FAILED", "unfinished": "KILLED"}


class MLflow(Tracker):
    """MLflow, local or on a server.

    uri         address of the tracking server or store (default: $MLFLOW_TRACKING_URI, or the default of MLflow)
    experiment  MLflow experiment of the runs (default: $MLFLOW_EXPERIMENT_NAME, or fedawe)
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self._mlflow: Any = needs("mlflow", "mlflow")
        self.uri = uri or str(self._mlflow.get_tracking_uri())
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedawe"
        try:
            self._client: Any = self._mlflow.MlflowClient(self.uri)
        except Exception as error:  # stores raise many kinds of errors
            raise UserError(f"MLflow cannot use {self.uri} ({brief(error)})") from None
        self._runs: dict[str, str] = {}  # id of a run -> its id in MLflow
        self._resumed: set[str] = set()  # resumed runs, until their first evaluation

    @property
    def destination(self) -> str:
        """The server or store, and the experiment."""
        return f"mlflow {self.uri} {self.experiment}"

    def started(self, run: TrackedRun) -> int:
        """Find the run by its tag, or create it. Returns the last round that MLflow has."""
        client, found = self._client, self._client.get_experiment_by_name(self.experiment)
        place = client.create_experiment(self.experiment) if found is None else found.experiment_id
        before = client.search_runs([place], f"tags.`{TAG}` = '{run.id}'")
        if before:
            theirs = before[0]
            client.update_run(theirs.info.run_id, status="RUNNING")
            self._resumed.add(run.id)
        else:
            theirs = client.create_run(place, run_name=run.name, tags={TAG: run.id})
        self._runs[run.id] = theirs.info.run_id
        self._settings(run, theirs)
        # The metric `round` is written last, so for each of its steps all other metrics are there too.
        return max((each.step for each in client.get_metric_history(theirs.info.run_id, "round")), default=-1)

    def _settings(self, run: TrackedRun, theirs: Any) -> None:
        """Write the settings as parameters. Existing ones cannot change, such as `rounds` of a run that is extended."""
        known = theirs.data.params
        settings = {_name(name): str(value) for name, value in run.settings.items()}
        params = [self._mlflow.entities.Param(name, value) for name, value in settings.items() if name not in known]
        for n in range(0, len(params), 100):
            self._client.log_batch(theirs.info.run_id, params=params[n : n + 100])

    def evaluated(self, run: TrackedRun, rounds: int, metrics: Mapping[str, Any]) -> None:
        """Write one step of every metric."""
        theirs, values = self._runs[run.id], {_name(name): value for name, value in numbers(metrics).items()}
        if run.id in self._resumed:  # a store of files may have only some metrics of this step
            self._resumed.remove(run.id)
            values = {name: value for name, value in values.items() if not self._has(theirs, name, rounds)}
        now = int(time.time() * 1000)
        batch = [self._mlflow.entities.Metric(name, float(value), now, rounds) for name, value in values.items()]
        for n in range(0, len(batch), AT_ONCE):
            self._client.log_batch(theirs, metrics=batch[n : n + AT_ONCE])

    def _has(self, theirs: str, name: str, step: int) -> bool:
        return any(each.step == step for each in self._client.get_metric_history(theirs, name))

    def finished(self, run: TrackedRun, status: str) -> None:
        """Write the status of the run."""
        self._client.set_terminated(self._runs.pop(run.id), STATUS[status])


def _name(name: str) -> str:
    """The name with every character that MLflow does not allow replaced by _."""
    return re.sub(r"[^\w\-. /]", "_", name)
