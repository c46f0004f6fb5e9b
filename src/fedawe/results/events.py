"""Export records as TensorBoard event files: a folder per run, with its metrics as scalars over the rounds."""

import io
import shutil
import uuid
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.results.fields import Settings, settings_of
from fedawe.results.folder import RunResult, RunSet
from fedawe.results.frame import Warn, below
from fedawe.results.head import folder_name
from fedawe.results.metrics import metrics_of, variants_of
from fedawe.results.participation import SUFFIX

NAME = "events.out.tfevents.fedawe"  # TensorBoard looks for `tfevents`; `fedawe` marks files that we may replace
PARTS = ("test", "train", "client", "validation")  # parts of the data, with which names of metrics may begin


def tag(name: str, variants: Sequence[str] = (), declared: Container[str] = ()) -> str:
    """The tag of a metric in TensorBoard, which groups charts by the text before the slash.

    `variants` are the prefixes of further models. `declared` are the metrics with a direction; all others are
    diagnostics.

    >>> known = ("test_accuracy", "train_loss", "distance")
    >>> [tag(name, ["latest"], known) for name in ("test_accuracy", "latest_train_loss", "distance", "echo_mean")]
    ['accuracy/test', 'loss/train_latest', 'metrics/distance', 'diagnostics/echo_mean']
    """
    for variant in variants:
        if name.startswith(f"{variant}_"):
            return f"{tag(name.removeprefix(f'{variant}_'), (), declared)}_{variant}"
    part, _, kind = name.partition("_")
    if name.removesuffix(SUFFIX) not in declared:
        return f"diagnostics/{name}"
    return f"{kind}/{part}" if part in PARTS and kind else f"metrics/{name}"


def write_tensorboard(folder: Path, out: Path, warn: Warn = warnings.warn) -> None:
    """Write a folder OUT/LABEL/seed-S for every run; with several experiments, OUT/EXPERIMENT/LABEL/seed-S.

    An earlier export is replaced at once, when the new one is complete; a folder with other files is refused.
    """
    try:
        import tensorboard  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise UserError("event files need tensorboard; install it with: pip install 'fedawe[export]'") from None
    if not _is_free(out):
        raise UserError(f"{out} exists and holds other files than `fedawe export` writes; choose another --out")
    runs = list(below(folder, warn))
    out = out.resolve()
    fresh = new_folder(out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.part"))
    try:
        for place, experiment, run in runs:
            if run.record.evaluations:
                settings: Settings = {"folder": place, "label": run.label, **settings_of(run.header)}
                under = experiment.path.relative_to(folder) / folder_name(run.label) / f"seed-{run.seed}"
                write_atomically(new_folder(fresh / under) / NAME, _file(experiment, run, settings))
        _swap(fresh, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_free(out: Path) -> bool:
    """Whether the folder does not exist, or has no other files than an earlier export."""
    if not out.is_dir():
        return not out.exists()
    return all(path.name == NAME or (path.is_dir() and not path.is_symlink()) for path in out.rglob("*"))


def _swap(fresh: Path, out: Path) -> None:
    """Move the new folder to the place of the old one."""
    if not out.exists():
        fresh.rename(out)
        return
    old = fresh.with_suffix(".old")
    out.rename(old)
    try:
        fresh.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old)


def _file(experiment: RunSet, run: RunResult, settings: Settings) -> bytes:
    """The content of an event file: its version, the settings for the tab HPARAMS, and all scalars.

    The record has no start time. It is the time at which the file was last changed minus the seconds of the run.
    """
    began = run.record.path.stat().st_mtime - (run.seconds or 0.0)
    variants = variants_of(experiment)
    declared = {metric.name for metric in metrics_of(experiment) if metric.better is not None}
    events = [
        evaluation_event(began + float(line.get("elapsed_seconds", 0.0)), line, variants, declared)
        for line in run.lines
    ]
    return first_events(settings, began) + b"".join(events)


def first_events(settings: Settings, at: float) -> bytes:
    """The first events of a file: its version, and the settings.

    The settings omit the seed, so that TensorBoard treats runs that differ only in the seed as trials of one session
    group and shows their mean.
    """
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # type: ignore[import-untyped]

    plain = {name: value for name, value in settings.items() if value is not None}
    return _event(at, file_version="brain.Event:2") + _event(at, summary=hparams_pb(plain, start_time_secs=at))


def evaluation_event(
    at: float, line: Mapping[str, Any], variants: Sequence[str] = (), declared: Container[str] = ()
) -> bytes:
    """The event with all numbers of an evaluation."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    values = [Summary.Value(tag=name, simple_value=number) for name, number in scalars(line, variants, declared)]
    return _event(at, step=line["round"], summary=Summary(value=values))


def _event(at: float, **fields: Any) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    file = io.BytesIO()
    RecordWriter(file).write(Event(wall_time=at, **fields).SerializeToString())
    return file.getvalue()


def scalars(
    line: Mapping[str, Any], variants: Sequence[str] = (), declared: Container[str] = ()
) -> Iterator[tuple[str, float]]:
    """The numbers of an evaluation, by tag."""
    for name, value in line.items():
        if isinstance(value, list):
            numbers = enumerate(value) if name.endswith(SUFFIX) else ()
            known = ((c, number) for c, number in numbers if number is not None)
            yield from ((f"{tag(name, variants, declared)}_{c}", number) for c, number in known)
        elif isinstance(value, int | float) and name != "round" and not name.endswith("_seconds"):
            yield tag(name, variants, declared), value
