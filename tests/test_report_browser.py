"""The page in a real Chromium: it draws, toggles, sorts, downloads, prints, and never asks the network for anything."""

import csv
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import samples
from browser import CHROMIUM, Browser

from fedawe import report
from fedawe import results as compare

CURVES = "document.querySelector('[data-figure=curves]')"
SHOWN = f"{CURVES}.data.filter(trace => trace.meta).map(trace => trace.meta)"  # the mean curves, by algorithm


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Browser]:
    opened = Browser(downloads)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = samples.experiment(tmp_path_factory.mktemp("browser") / "x", rounds=100)
    samples.diverge(made, "mifa", 1)
    samples.interrupt(made, "fedau", 2)
    report.write(made)
    return made


@pytest.fixture
def page(browser: Browser, out: Path) -> Browser:
    """The page, opened afresh, its curves drawn."""
    browser.open(out / "report.html")
    show(browser, "curves")
    return browser


def show(browser: Browser, figure: str) -> None:
    """Scroll to a figure and wait until it is drawn."""
    browser.ask(f"document.querySelector('[data-figure={figure}]').scrollIntoView({{behavior: 'instant'}})")
    browser.until(f"document.querySelector('[data-figure={figure}] .main-svg') !== null")


def quiet(browser: Browser) -> None:
    """Nothing went wrong, and nothing was fetched but the file itself."""
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_everything_without_errors(browser: Browser, out: Path, width: int, scheme: str) -> None:
    browser.open(out / "report.html", width=width, scheme=scheme)
    figures = browser.ask("[...document.querySelectorAll('[data-figure]')].map(plot => plot.dataset.figure)")
    assert figures == ["curves", "stripes", "probabilities", "echoes", "staleness", "classes"]
    for figure in figures:
        show(browser, figure)
    assert browser.ask("document.documentElement.scrollWidth") == width  # no scrolling sideways
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")
    quiet(browser)


def test_curves_toggle_with_mouse_and_keyboard(page: Browser) -> None:
    assert sorted(page.ask(SHOWN)) == sorted(samples.ALGORITHMS)
    page.ask("document.querySelector('.chips [data-key=fedvarp]').click()")
    assert sorted(page.ask(SHOWN)) == sorted(set(samples.ALGORITHMS) - {"fedvarp"})
    assert page.ask("document.querySelector('.chips [data-key=fedvarp]').ariaPressed") == "false"
    page.ask("document.querySelector('.chips [data-key=fedvarp]').focus()")
    page.press("Enter")
    assert sorted(page.ask(SHOWN)) == sorted(samples.ALGORITHMS)
    page.ask("[...document.querySelectorAll('.chips button')].find(b => b.textContent.startsWith('only')).click()")
    assert sorted(page.ask(SHOWN)) == ["fedavg", "fedawe"]
    page.ask("document.querySelector('.chips [data-key=\"fedawe/latest\"]').click()")
    assert sorted(page.ask(SHOWN)) == ["fedavg", "fedawe", "fedawe/latest"]
    quiet(page)


def test_runs_that_do_not_count_are_drawn_as_such(page: Browser) -> None:
    names = page.ask(f"{CURVES}.data.map(trace => trace.name)")
    assert "MIFA, seed 1: diverged" in names
    assert "FedAU, seed 2: unfinished" in names


def choose(browser: Browser, control: str, value: object) -> None:
    browser.ask(
        f"(() => {{ const found = document.querySelector('[data-control={control}]'); found.value = '{value}';"
        "found.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def test_metric_spread_range_and_smoothing_change_the_curves(page: Browser, out: Path) -> None:
    mean = f"{CURVES}.data.find(trace => trace.meta === 'fedavg').y"
    curve = compare.curve(compare.load(out).complete("fedavg"), "train_loss")
    assert curve is not None
    narrow = page.ask(f"{CURVES}.layout.yaxis.range[0]")
    choose(page, "range", "all")
    assert page.ask(f"{CURVES}.layout.yaxis.range[0]") < narrow
    lines = page.ask(f"{CURVES}.data.length")
    choose(page, "band", "none")
    assert page.ask(f"{CURVES}.data.length") == lines - 8
    choose(page, "band", "seeds")
    assert page.ask(f"{CURVES}.data.length") == lines - 8 + 6 * 3 + 2 * 2
    rough = page.ask(mean)
    choose(page, "smooth", 0.5)
    smooth = [rough[0]]
    for value in rough[1:]:
        smooth.append(0.5 * smooth[-1] + 0.5 * value)
    assert page.ask(mean) == pytest.approx(smooth)
    choose(page, "smooth", 0)
    choose(page, "metric", "train_loss")
    assert page.ask(mean) == pytest.approx(curve.mean.tolist(), rel=1e-4)
    assert page.ask(f"{CURVES}.layout.yaxis.type") == "log"
    quiet(page)


def test_the_keyboard_reads_and_zooms_the_curves(page: Browser, out: Path) -> None:
    curve = compare.curve(compare.load(out).complete("fedavg"), "test_accuracy")
    assert curve is not None
    page.ask(f"{CURVES}.focus()")
    page.press("End")
    page.press("ArrowLeft")
    told = page.ask("document.querySelector('.readout').textContent")
    assert told.startswith("Round 95: FedAWE ")
    assert f"FedAvg {100 * curve.mean[-2]:.2f} %" in told
    page.press("+")
    assert page.ask(f"{CURVES}.layout.xaxis.range") == [50, 100]
    page.press("0")
    assert page.ask(f"{CURVES}.layout.xaxis.range") == [0, 100]
    quiet(page)


def test_tables_sort_and_what_is_missing_stays_last(page: Browser) -> None:
    names = "[...document.querySelectorAll('[data-name=results] tbody tr')].map(row => row.cells[1].textContent.trim())"
    heading = "document.querySelectorAll('[data-name=results] thead button')[{}]"
    unranked = {"FedAU", "MIFA", "FedAWE, last aggregate"}
    page.ask(heading.format(0) + ".focus()")
    page.press("Enter")  # by rank, the best first
    up = page.ask(names)
    page.press("Enter")
    down = page.ask(names)
    assert page.ask("document.querySelector('[data-name=results] thead th').ariaSort") == "descending"
    assert up[:6] == down[:6][::-1]
    assert set(up[6:]) == set(down[6:]) == unranked
    page.ask(heading.format(1) + ".click()")
    assert page.ask(names) == sorted(page.ask(names), key=str.lower)
    quiet(page)


def test_downloads_contain_the_table_as_sorted(page: Browser, downloads: Path, out: Path) -> None:
    page.ask("document.querySelectorAll('[data-name=results] thead button')[1].click()")
    table = compare.summary_table(compare.compare(compare.load(out)))
    for kind in ("csv", "md", "tex"):
        page.ask(f"document.querySelector('[data-name=results] [data-export={kind}]').click()")
        begun = page.wait_for("Browser.downloadWillBegin")
        assert begun["suggestedFilename"] == f"results.{kind}"
        while page.wait_for("Browser.downloadProgress")["state"] != "completed":
            pass
        text = (downloads / f"results.{kind}").read_text()
        export = table.export(kind)  # type: ignore[arg-type]
        assert text != str(export)
        assert sorted(text.splitlines()) == sorted(str(export).splitlines())
        if kind == "csv":
            assert next(csv.DictReader(io.StringIO(text)))["algorithm"] == "F3AST"
    quiet(page)


def test_stripes_show_the_trace(page: Browser, out: Path) -> None:
    show(page, "stripes")
    choose(page, "seed", 1)  # the second in the list
    drawn = page.ask("document.querySelector('[data-figure=stripes]').data[1].z")
    trace = compare.load(out).traces[1]
    order = page.ask("document.querySelector('[data-figure=stripes]').data[1].text.map(row => row[0])")
    clients = [int(text.split(",")[0].removeprefix("client ")) for text in order]
    assert drawn == trace.on[:, clients].T.astype(int).tolist()


def test_the_theme_can_be_chosen_and_paper_is_light(browser: Browser, out: Path) -> None:
    browser.open(out / "report.html", scheme="light")
    show(browser, "curves")
    browser.ask("document.getElementById('theme').click()")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert browser.ask(f"{CURVES}.data.find(trace => trace.meta === 'fedawe').line.color") == "#ff7f32"
    browser.ask(
        "window.seen = []; addEventListener('beforeprint', () => seen.push(document.documentElement.dataset.theme))"
    )
    assert browser.pdf().startswith(b"%PDF")
    assert browser.ask("seen") == ["light"]
    assert browser.ask("document.querySelectorAll('[data-figure] .main-svg').length") >= 6  # all of them, for the paper
    assert browser.ask("document.documentElement.dataset.theme") == "dark"
    browser.ask("document.getElementById('theme').click()")
    quiet(browser)


def test_ninety_six_runs_are_drawn(browser: Browser, tmp_path: Path) -> None:
    for dynamics in ("stationary", "staircase", "sine", "interleaved"):
        samples.experiment(
            tmp_path / "x" / dynamics, rounds=2000, every=10, clients=100, settings={"dynamics": dynamics}
        )
    page = report.write(tmp_path / "x")
    browser.open(page)
    browser.until("document.documentElement.dataset.ready === 'yes'")
    ready = browser.ask("performance.now()")
    assert browser.ask("document.querySelectorAll('article').length") == 4
    for article in range(4):
        began = time.perf_counter()
        browser.ask(
            f"document.querySelectorAll('[data-figure=curves]')[{article}].scrollIntoView({{behavior: 'instant'}})"
        )
        browser.until(
            f"document.querySelectorAll('[data-figure=curves]')[{article}].querySelector('.main-svg') !== null"
        )
        print(f"curves {article}: {time.perf_counter() - began:.2f} s")
    print(f"96 runs, {page.stat().st_size / 1e6:.1f} MB: ready after {ready / 1000:.2f} s")
    quiet(browser)


@pytest.mark.parametrize("kind", ["quadratic", "nothing complete", "no traces"])
def test_lesser_experiments_are_drawn_too(browser: Browser, tmp_path: Path, kind: str) -> None:
    task = "quadratic" if kind == "quadratic" else "digits"
    made = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], [0, 1], task=task, recorded=kind == "no traces")
    if kind == "nothing complete":
        for label in ("fedawe", "fedavg"):
            samples.interrupt(made, label, 0)
            samples.damage(made, label, 1)
    if kind == "no traces":
        for path in (*made.glob("traces/*"), *made.glob("clients/*")):
            path.unlink()
    browser.open(report.write(made))
    for figure in browser.ask("[...document.querySelectorAll('[data-figure]')].map(plot => plot.dataset.figure)"):
        show(browser, figure)
    quiet(browser)


if CHROMIUM is None:
    for name in [name for name in globals() if name.startswith("test_")]:
        del globals()[name]

    def test_without_a_browser(capfd: pytest.CaptureFixture[str]) -> None:
        """Nothing above can be run; say so."""
        with capfd.disabled():
            print("\nno Chromium was found: the report page was not tested in a browser")
