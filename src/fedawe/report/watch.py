"""Watch a run or a deployment: a local web page that shows the state of its folder."""

import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from fedawe.algorithms import FedAvg, FedAWE
from fedawe.audit.as_json import plain
from fedawe.audit.fleet import describe
from fedawe.audit.influence import influence
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.results import record as records
from fedawe.results.metrics import declared_in
from fedawe.results.record import Line, Record

PAGE = Path(__file__).parent / "templates" / "watch.html"
SHOWN = 400  # largest number of points of a curve
LATE = 5  # an alarm after this many times the usual duration of a round without a new round
RECENT = 20  # last rounds that alarms are about
FORGOTTEN = 8  # clients with the least influence that are listed
POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
HOSTS = ("127.0.0.1", "localhost", "[::1]")


def runs_in(folder: Path) -> list[Path]:
    """The folders with a record, the most recently written first."""
    found = [path.parent for path in folder.rglob(records.NAME)] if folder.is_dir() else []
    if not found:
        raise UserError(
            f"{folder}: has no record of a run or of a deployment yet; expected a folder that fedawe writes to"
        )
    return sorted(found, key=lambda path: -(path / records.NAME).stat().st_mtime)


def state_of(folder: Path, now: float | None = None) -> dict[str, Any]:
    """All data of the page, for the most recently written run."""
    run = runs_in(folder)[0]
    record = records.read(run / records.NAME)
    written = (run / records.NAME).stat().st_mtime
    trace = _trace(folder, run, record)
    if trace is not None and not record.rounds:  # a simulation: its trace was drawn for all rounds in advance
        trace = trace.first(_last(record)) if _last(record) else None
    quiet = max((time.time() if now is None else now) - written, 0.0)
    rounds, evaluations = record.rounds, _evaluations(record)
    metric = _metric(record, evaluations)
    out: dict[str, Any] = {
        "name": str(record.header.get("name") or record.header.get("label") or run.name),
        "folder": run.name,
        "status": record.status,
        "done": rounds[-1]["round"] if rounds else _last(record),
        "rounds": record.header.get("rounds"),
        "quiet_seconds": quiet,
        "evaluations": evaluations,
        "metric": None if metric is None else {"name": metric.name, "title": metric.title},
        "active": _series([(line["round"], len(line.get("clients", ()))) for line in rounds]),
        "bytes": _series(_cumulated(rounds)),
        "seconds": _series([(line["round"], line["round_seconds"]) for line in rounds if "round_seconds" in line]),
        "refused": _refusals(rounds),
        "last": rounds[-1] if rounds else None,
        "influence": None if trace is None else _influence(trace),
        "alarms": _alarms(record, trace, quiet),
    }
    return dict(plain(out))


def _trace(folder: Path, run: Path, record: Record) -> Trace | None:
    """The trace so far; None if there is none yet, or if its file cannot be read while it is being replaced."""
    seed = record.header.get("seed", 0)
    for place in (folder, *run.parents[:3]):
        path = place / "traces" / f"seed-{seed}.npz"
        if path.is_file():
            try:
                return Trace.load(path)
            except UserError:
                return None
    return None


def _last(record: Record) -> int:
    return int(record.evaluations[-1]["round"]) if record.evaluations else 0


def _series(points: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    step = max(1, -(-len(points) // SHOWN))
    kept = list(points[::step])
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def _cumulated(rounds: Sequence[Line]) -> list[tuple[int, int]]:
    total, out = 0, []
    for line in rounds:
        total += line.get("bytes_down", 0) + line.get("bytes_up", 0)
        out.append((line["round"], total))
    return out


def _refusals(rounds: Sequence[Line]) -> dict[str, int]:
    """The numbers of refused replies by reason, over all rounds."""
    total: Counter[str] = Counter()
    for line in rounds:
        total.update({reason: int(n) for reason, n in line.get("refused", {}).items()})
    return dict(total.most_common())


def _evaluations(record: Record) -> dict[str, list[tuple[int, float]]]:
    """The curve of each metric over the rounds."""
    out: dict[str, list[tuple[int, float]]] = {}
    for line in record.evaluations:
        for name, value in line.items():
            if name not in ("kind", "round") and isinstance(value, int | float) and not name.endswith("_seconds"):
                out.setdefault(name, []).append((line["round"], value))
    return {name: _series(points) for name, points in out.items()}


def _metric(record: Record, evaluations: Collection[str]) -> Metric | None:
    """The metric whose curve is shown: the one that decides, else one with a direction, else one that is undeclared."""
    declared = declared_in(record.header)
    found = [declared.get(name, Metric(name, better=None)) for name in evaluations if name != "active"]

    def order(metric: Metric) -> tuple[bool, bool, bool, bool]:
        named = metric.better is None and "accuracy" not in metric.name
        return not metric.decides, metric.better is None, metric.name in declared, named

    return min(found, key=order, default=None)


def _influence(trace: Trace) -> dict[str, Any]:
    """The influence of clients so far under FedAWE and under FedAvg, whichever algorithm runs."""
    fleet = describe(trace)
    after = sorted({int(n) for n in np.linspace(1, trace.rounds, min(40, trace.rounds))})
    curves = {}
    for name, algorithm in (("fedawe", FedAWE()), ("fedavg", FedAvg())):
        found = influence(algorithm, trace, after)
        least = [i for i in found.forgotten(trace.clients) if fleet.seen[i]]
        curves[name] = {
            "bias": list(zip(after, found.over_time(), strict=True)),
            "least": [{"client": i, "fair": found.fair[i], "rate": fleet.rates[i]} for i in least[:FORGOTTEN]],
        }
    return {
        "clients": trace.clients,
        "never": len(fleet.never),
        "multiplier": fleet.multiplier,
        "staleness": fleet.staleness.mean,
        "longest": fleet.staleness.most,
        "live_versions": int(fleet.live_versions[-1]),
        "curves": curves,
        "rates": np.sort(fleet.rates),
    }


def _alarms(record: Record, trace: Trace | None, quiet: float) -> list[str]:
    out = []
    rounds = record.rounds[-RECENT:]
    lasting = [line["round_seconds"] for line in rounds if "round_seconds" in line]
    if record.end is None and lasting and quiet > max(LATE * float(np.median(lasting)), 30):
        usual = float(np.median(lasting))
        out.append(f"No round was finished for {quiet:.0f} s; the usual length of a round is {usual:.1f} s.")
    if record.status == "diverged":
        out.append(f"The run has diverged: {(record.end or {}).get('message', 'numbers stopped being finite')}")
    if record.problem is not None:
        out.append(f"The record is damaged: {record.problem}")
    empty = sum(not line.get("clients") for line in rounds)
    if rounds and empty > len(rounds) / 4:
        out.append(f"{empty} of the last {len(rounds)} rounds had no active client.")
    refused = sum(sum(map(int, line.get("refused", {}).values())) for line in rounds)
    accepted = sum(len(line.get("clients", ())) for line in rounds)
    if refused > max(accepted / 4, 2):
        out.append(f"{refused} replies were refused in the last {len(rounds)} rounds; {accepted} were accepted.")
    if trace is not None and trace.rounds >= RECENT:
        never = int((~trace.on.any(0)).sum())
        if never:
            were = "was" if never == 1 else "were"
            out.append(f"{never} of {trace.clients} clients {were} never active in {trace.rounds} rounds.")
        drift = describe(trace).drift
        if drift is not None and drift.fleet_changes:
            out.append(f"The number of active clients changed around round {drift.change} (p = {drift.fleet_p:.3f}).")
    return out


class _Handler(BaseHTTPRequestHandler):
    folder: Path

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in HOSTS:  # a web page of another site must not read this one through DNS rebinding
            self._send(403, "text/plain", b"only for this machine\n")
        elif self.path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif self.path == "/state.json":
            try:
                content = json.dumps(state_of(self.folder), allow_nan=False)
                self._send(200, "application/json", content.encode())
            except UserError as error:
                self._send(503, "application/json", json.dumps({"error": str(error)}).encode())
        else:
            self._send(404, "text/plain", b"not found\n")

    def _send(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for the page that only this machine can reach; port 0 selects a free port."""
    runs_in(folder)
    handler = type("Handler", (_Handler,), {"folder": folder})
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OverflowError:
        raise UserError(f"port is {port}; expected a whole number from 0 to 65535") from None
    except OSError as error:
        raise UserError(f"cannot listen on port {port}: {error.strerror}; choose another with --port") from None
