"""The audit's page in a real Chromium: it draws everything, fits its window, and takes names for names."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import fedawe
from fedawe.audit import Log, audit, read_roster
from fedawe.audit import page as audit_page
from fedawe.audit.logs import Clock, Finding
from fedawe.availability.fit import Daily

FIGURES = ["bars", "overTime", "groups", "heat", "hours", "echo", "stays", "away"]
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def file(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty phones over eight days, of which one never comes and one has a name that is markup."""
    folder = tmp_path_factory.mktemp("audit")
    clock = Clock(1800.0, start=1_700_000_000.0, timezone="Europe/Berlin")
    p = np.concatenate([[0.0], np.linspace(0.05, 0.9, 29)])
    trace = fedawe.Trace(fedawe.Trace.draw(Daily(np.ones(24), 0.5, clock), p, rounds=48 * 8, seed=0).on)
    names = (*(f"phone-{i}" for i in range(29)), "<i>odd</i> & <script>alert(1)</script>")
    table = folder / "clients.csv"
    table.write_text("client,group\n" + "".join(f"{name},{'ab'[n % 2]}\n" for n, name in enumerate(names)))
    log = Log(trace, names, clock, (Finding("gaps", 3, "3 gaps " + "and more of them " * 12),), 12345)
    audit_page.write_page(audit(log, groups=read_roster(table)), folder / "page.html")
    return folder / "page.html"


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_everything_and_fits(visit: Visit, file: Path, width: int, scheme: str) -> None:
    page = visit(file, width=width, scheme=scheme)
    assert page.evaluate("[...document.querySelectorAll('[data-figure]')].map(plot => plot.dataset.figure)") == FIGURES
    page.wait_for_function(f"document.querySelectorAll('[data-figure] .main-svg').length >= {len(FIGURES)}")
    assert page.evaluate("document.documentElement.scrollWidth") == width  # no scrolling sideways
    captions = (
        "[...document.querySelectorAll('caption')].map(c => (c.querySelector('span') || c).getBoundingClientRect())"
    )
    assert page.evaluate(f"{captions}.every(box => box.left >= 0 && box.right <= {width})")


@pytest.mark.parametrize(("width", "below"), [(1400, False), (390, True)])
def test_the_legend_leaves_room_for_the_curves(visit: Visit, file: Path, width: int, below: bool) -> None:
    page = visit(file, width=width)
    figure = "document.querySelector('[data-figure=overTime]')"
    page.wait_for_function(f"{figure}.querySelector('.legend') !== null && {figure}._fullLayout._size.h > 0")
    top = page.evaluate(
        f"{figure}.querySelector('.legend').getBoundingClientRect().top - {figure}.getBoundingClientRect().top"
    )
    size = page.evaluate(f"{figure}._fullLayout._size")  # of the part with the curves
    assert (top > size["t"] + size["h"]) is below
    assert size["w"] > 0.6 * page.evaluate(f"{figure}.getBoundingClientRect().width")


def test_names_are_shown_as_they_are_written(visit: Visit, file: Path) -> None:
    page = visit(file)
    page.wait_for_function("document.querySelector('[data-figure=heat] .yaxislayer-above text') !== null")
    ticks = page.evaluate(
        "[...document.querySelectorAll('[data-figure=heat] .yaxislayer-above text')].map(t => t.textContent)"
    )
    assert "<i>odd</i> & <script>alert(1)</script>" in ticks
    assert page.evaluate("document.querySelectorAll('table i:not(.meter i)').length") == 0


def test_long_bins_of_a_histogram_are_no_higher_for_being_long(visit: Visit, file: Path) -> None:
    page = visit(file)
    page.wait_for_function("document.querySelector('[data-figure=echo] .main-svg') !== null")
    bars = page.evaluate(
        "(({y, width, customdata}) => ({y, width, customdata}))(document.querySelector('[data-figure=echo]').data[0])"
    )
    assert max(bars["width"]) > 1
    for height, width, (_, share) in zip(bars["y"], bars["width"], bars["customdata"], strict=True):
        assert height * width == pytest.approx(share)
