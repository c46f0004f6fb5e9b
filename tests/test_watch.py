"""A deployment that one can watch: what its folder says so far, the page, and that only this machine may ask."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import samples

from fedawe.audit import logs
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.report import watch
from fedawe.results import record as records

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLIENTS, ROUNDS = 12, 40


class Deployment:
    """A folder as a strategy writes it, round by round."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "fedawe" / "seed-0"
        (folder / "traces").mkdir(parents=True)
        self.run.mkdir(parents=True)
        draw = np.random.default_rng(0)
        self.on = draw.random((ROUNDS, CLIENTS)) < np.linspace(0.05, 0.9, CLIENTS)
        self.on[:, 0] = False
        self.lines = [{"kind": "header", "format": 2, "name": "FedAWE", "label": "fedawe", "seed": 0, "rounds": ROUNDS}]
        self.done = 0

    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            n, row = self.done + 1, self.on[self.done]
            refused = {"too late": 2, "<b>odd</b>": 1} if n % 5 == 0 else {}
            self.lines.append({
                "kind": "round", "round": n, "clients": np.flatnonzero(row).tolist(), "refused": refused,
                "bytes_down": 1000, "bytes_up": 500, "round_seconds": 0.5,
            })  # fmt: skip
            if n % 10 == 0:
                self.lines.append({"kind": "evaluation", "round": n, "test_accuracy": n / ROUNDS})
            self.done = n
        Trace(self.on[: self.done]).save(self.folder / "traces" / "seed-0.npz")
        (self.run / records.NAME).write_text("".join(records.seal(line) + "\n" for line in self.lines))


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = Deployment(tmp_path / "out")
    made.go_on(25)
    return made


def test_a_simulation_shows_nothing_of_rounds_to_come(deployment: Deployment) -> None:
    """Its trace is drawn for all rounds in advance."""
    Trace(deployment.on).save(deployment.folder / "traces" / "seed-0.npz")
    deployment.lines = [line for line in deployment.lines if line["kind"] != "round"]
    record = deployment.run / records.NAME
    record.write_text("".join(records.seal(line) + "\n" for line in deployment.lines))
    state = watch.state_of(deployment.folder)
    assert state["done"] == 20
    assert state["influence"]["curves"]["fedavg"]["bias"][-1][0] == 20
    record.write_text(records.seal(deployment.lines[0]) + "\n")
    assert watch.state_of(deployment.folder)["influence"] is None


def test_the_state_is_what_the_folder_says(deployment: Deployment) -> None:
    state = watch.state_of(deployment.folder)
    assert (state["name"], state["done"], state["rounds"], state["status"]) == ("FedAWE", 25, ROUNDS, "unfinished")
    assert state["active"][-1] == [25, int(deployment.on[24].sum())]
    assert state["refused"] == {"too late": 10, "<b>odd</b>": 5}
    assert state["bytes"][-1] == [25, 25 * 1500]
    assert state["evaluations"]["test_accuracy"] == [[10, 0.25], [20, 0.5]]
    assert state["influence"]["never"] == int((~deployment.on[:25].any(0)).sum())
    assert state["last"]["clients"] == np.flatnonzero(deployment.on[24]).tolist()
    json.dumps(state, allow_nan=False)


def test_the_curve_is_that_of_the_metric_that_decides(deployment: Deployment) -> None:
    def shown(metrics: list[dict[str, Any]], *names: str) -> Any:
        more = dict.fromkeys(names, 0.5)
        lines = [{**deployment.lines[0], "metrics": metrics}, {"kind": "evaluation", "round": 1, "active": 3, **more}]
        text = "".join(records.seal(line) + "\n" for line in lines)
        (deployment.run / records.NAME).write_text(text)
        return watch.state_of(deployment.folder)["metric"]

    active, perplexity = samples.metric("active", None), samples.metric("perplexity", "lower", "the perplexity")
    deciding = samples.metric("cost", "lower", "total cost", decides=True)
    names = ("train_accuracy", "perplexity", "cost")
    assert shown([active, perplexity, deciding], *names) == {"name": "cost", "title": "total cost"}
    assert shown([active, perplexity], *names) == {"name": "perplexity", "title": "the perplexity"}
    assert shown([active], *names[1:], "train_accuracy") == {"name": "train_accuracy", "title": "train accuracy"}
    assert shown([active]) is None


def test_alarms(deployment: Deployment) -> None:
    written = (deployment.run / records.NAME).stat().st_mtime
    said = watch.state_of(deployment.folder, now=written + 1)["alarms"]
    assert any("never active in 25 rounds" in line for line in said)
    assert not any("No round was finished" in line for line in said)
    late = watch.state_of(deployment.folder, now=written + 300)["alarms"]
    assert any("No round was finished for 300 s; the usual length of a round is 0.5 s" in line for line in late)


def test_the_audit_reads_the_trace_so_far(deployment: Deployment) -> None:
    log = logs.read(deployment.folder)
    assert (log.trace.on == deployment.on[:25]).all()
    deployment.go_on(5)
    assert logs.read(deployment.folder).trace.rounds == 30


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="no record of a run or of a deployment yet"):
            watch.server(folder)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_refused(deployment: Deployment, port: int) -> None:
    with pytest.raises(UserError, match=f"port is {port}; expected a whole number from 0 to 65535"):
        watch.server(deployment.folder, port)


@pytest.fixture
def port(deployment: Deployment) -> Iterator[int]:
    serving = watch.server(deployment.folder)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield serving.server_address[1]
    serving.shutdown()
    serving.server_close()


def ask(port: int, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_only_this_machine_may_ask(port: int) -> None:
    assert ask(port, "/")[0] == 200
    assert json.loads(ask(port, "/state.json")[1])["done"] == 25
    assert ask(port, "/state.json", host="evil.example")[0] == 403
    assert ask(port, "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_follows_the_run(chromium: "Browser", deployment: Deployment, port: int, width: int) -> None:
    errors: list[Any] = []
    context = chromium.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_selector("body[data-done='25']")
    assert page.text_content("h1") == "FedAWE: 25 of 40 rounds"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.text_content("#metric-name") == "test accuracy"
    for chart in ("active", "bias", "bytes", "metric"):
        assert page.locator(f"#{chart} polyline").count() >= 1
    assert page.locator("#refused tr").first.text_content() == "too late10"
    assert "<b>odd</b>" in (page.text_content("#refused") or "")  # a name, not markup
    deployment.go_on(5)
    page.wait_for_selector("body[data-done='30']")
    assert page.text_content("#last-name") == f"Active in round 30: {int(deployment.on[29].sum())}"
    context.close()
    assert errors == []
