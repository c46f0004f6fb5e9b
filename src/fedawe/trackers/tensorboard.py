"""TensorBoard: event files that grow during runs, with the tags of `fedawe export`."""

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedawe.core.files import new_folder
from fedawe.results.events import NAME, evaluation_event, first_events
from fedawe.results.metrics import declared_in, variants_in
from fedawe.trackers.base import TrackedRun, Tracker, needs


class TensorBoard(Tracker):
    """TensorBoard: an event file for every run, in the folder `tensorboard` of the experiment."""

    def __init__(self) -> None:
        needs("tensorboard", "tensorboard")

    @property
    def destination(self) -> str:
        """The name of the folder, which is always the same."""
        return "tensorboard"

    def started(self, run: TrackedRun) -> int:
        """Cut the file after its last complete event. Returns the step of that event."""
        file = _file(run)
        whole, last = _read(file) if file.exists() else (0, -1)
        with file.open("r+b" if whole else "wb") as opened:
            opened.truncate(whole)
        if not whole:
            settings = {name: value for name, value in run.settings.items() if name != "seed"}
            _append(file, first_events(settings, time.time()))
        return last

    def evaluated(self, run: TrackedRun, rounds: int, metrics: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Append one event with all numbers."""
        declared = declared_in(run.header)
        ranked = {name for name, metric in declared.items() if metric.better is not None}
        _append(_file(run), evaluation_event(time.time(), metrics, variants_in(metrics, declared, run.header), ranked))


def _file(run: TrackedRun) -> Path:
    return new_folder(run.out / "tensorboard" / run.name) / NAME


def _append(file: Path, content: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(content)


def _read(file: Path) -> tuple[int, int]:
    """The number of bytes of complete events at the start of the file, and the last step in them.

    An event is its length (8 bytes), a checksum of that (4), the message, and a checksum of the message (4).
    """
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import masked_crc32c  # type: ignore[import-untyped]

    content, at, last = file.read_bytes(), 0, -1
    while len(head := content[at : at + 12]) == 12:
        size = struct.unpack("<Q", head[:8])[0]
        message, check = content[at + 12 : at + 12 + size], content[at + 12 + size : at + 16 + size]
        if head[8:] != masked_crc32c(head[:8]) or check != masked_crc32c(message):
            break
        event = Event.FromString(message)
        if any(not value.metadata.plugin_data.plugin_name for value in event.summary.value):
            last = max(last, event.step)
        at += 16 + size
    return at, last
