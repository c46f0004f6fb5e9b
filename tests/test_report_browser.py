"""The page in a real Chromium: it draws, toggles, sorts, downloads, prints, and never asks the network for anything."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from playwright.sync_api import Browser, Page

import fedawe
from fedawe.cli.report import ReportCommand
from fedawe.results.curves import curve
from fedawe.results.folder import load
from fedawe.results.standings import compare
from fedawe.results.summary import summary_table

CURVES = "document.querySelector('[data-figure=curves]')"
SHOWN = f"{CURVES}.data.filter(trace => trace.meta).map(trace => trace.meta)"  # the mean curves, by algorithm


Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def out(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = samples.experiment(tmp_path_factory.mktemp("browser") / "x", rounds=100)
    samples.diverge(made, "mifa", 1)
    samples.interrupt(made, "fedau", 2)
    fedawe.load(made).report()
    return made


@pytest.fixture
def page(visit: Visit, out: Path) -> Page:
    """The page, opened afresh, its curves drawn."""
    page = visit(out / "report.html")
    show(page, "curves")
    return page


def show(page: Page, figure: str, article: int = 0) -> None:
    """Scroll to a figure and wait until it is drawn."""
    found = page.locator(f"[data-figure={figure}]").nth(article)
    found.evaluate("plot => plot.scrollIntoView({behavior: 'instant'})")
    found.locator(".main-svg").first.wait_for(state="attached")


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_everything_without_errors(visit: Visit, out: Path, width: int, scheme: str) -> None:
    page = visit(out / "report.html", width=width, scheme=scheme)
    figures = page.evaluate("[...document.querySelectorAll('[data-figure]')].map(plot => plot.dataset.figure)")
    assert figures == ["classes", "curves", "stripes", "probabilities", "echoes", "staleness"]
    for figure in figures:
        show(page, figure)
    assert page.evaluate("document.documentElement.scrollWidth") == width  # no scrolling sideways
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


def test_curves_toggle_with_mouse_and_keyboard(page: Page) -> None:
    assert sorted(page.evaluate(SHOWN)) == sorted(samples.ALGORITHMS)
    page.locator(".chips [data-key=fedvarp]").click()
    assert sorted(page.evaluate(SHOWN)) == sorted(set(samples.ALGORITHMS) - {"fedvarp"})
    assert page.evaluate("document.querySelector('.chips [data-key=fedvarp]').ariaPressed") == "false"
    page.locator(".chips [data-key=fedvarp]").focus()
    page.keyboard.press("Enter")
    assert sorted(page.evaluate(SHOWN)) == sorted(samples.ALGORITHMS)
    page.get_by_role("button", name=re.compile("^only")).click()
    assert sorted(page.evaluate(SHOWN)) == ["fedavg", "fedawe"]
    page.locator(".chips [data-key='fedawe/latest']").click()
    assert sorted(page.evaluate(SHOWN)) == ["fedavg", "fedawe", "fedawe/latest"]


def test_runs_that_do_not_count_are_drawn_as_such(page: Page) -> None:
    names = page.evaluate(f"{CURVES}.data.map(trace => trace.name)")
    assert "MIFA, seed 1: diverged" in names
    assert "FedAU, seed 2: unfinished" in names


def choose(page: Page, control: str, value: object) -> None:
    page.evaluate(
        f"(() => {{ const found = document.querySelector('[data-control={control}]'); found.value = '{value}';"
        "found.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def test_metric_spread_range_and_smoothing_change_the_curves(page: Page, out: Path) -> None:
    mean = f"{CURVES}.data.find(trace => trace.meta === 'fedavg').y"
    found = curve(load(out).complete("fedavg"), "train_loss")
    assert found is not None
    whole = page.evaluate(f"{CURVES}.layout.yaxis.range[0]")
    assert whole < min(page.evaluate(mean))  # nothing is cut off
    choose(page, "range", "end")
    assert page.evaluate(f"{CURVES}.layout.yaxis.range[0]") > whole
    choose(page, "range", "all")
    assert page.evaluate(f"{CURVES}.layout.yaxis.range[0]") == whole
    lines = page.evaluate(f"{CURVES}.data.length")
    choose(page, "band", "none")
    assert page.evaluate(f"{CURVES}.data.length") == lines - 8
    choose(page, "band", "seeds")
    assert page.evaluate(f"{CURVES}.data.length") == lines - 8 + 6 * 3 + 2 * 2
    rough = page.evaluate(mean)
    choose(page, "smooth", 0.5)
    smooth = [rough[0]]
    for value in rough[1:]:
        smooth.append(0.5 * smooth[-1] + 0.5 * value)
    assert page.evaluate(mean) == pytest.approx(smooth)
    choose(page, "smooth", 0)
    choose(page, "metric", "train_loss")
    assert page.evaluate(mean) == pytest.approx(found.mean.tolist(), rel=1e-4)


# Where the mean curves are on the screen: pixels from the top of the plot, and how much of its width they take.
DRAWN = """() => {
  const plot = document.querySelector('[data-figure=curves]'), { h, w } = plot._fullLayout._size;
  const paths = [...plot.querySelectorAll('.scatterlayer .trace')].map((trace) => trace.querySelector('path.js-line'));
  return plot.data.map((trace, n) => [trace, paths[n]]).filter(([trace]) => trace.meta).map(([trace, path]) => {
    const ends = [0, path.getTotalLength()].map((length) => path.getPointAtLength(length).y);
    return { key: trace.meta, ends, height: h, width: path.getBBox().width / w };
  });
}"""


@pytest.mark.parametrize("wide", [True, False])
def test_a_loss_that_decides_opens_with_visible_curves(visit: Visit, tmp_path: Path, wide: bool) -> None:
    """Six runs; the deciding metric falls over two magnitudes, on a logarithmic axis, or by little, on a linear one."""
    final = {"fedavg": 9.0, "new": 0.6} if wide else {"fedavg": 90.0, "new": 70.0}
    made = samples.experiment(tmp_path / "x", ["fedavg", "new"], task="text", final=final)
    page = visit(fedawe.load(made).report())
    show(page, "curves")
    assert page.evaluate(f"{CURVES}.layout.yaxis.type") == ("log" if wide else "linear")
    for choice in ("all", "end"):
        choose(page, "range", choice)
        drawn = page.evaluate(DRAWN)
        assert {each["key"] for each in drawn} == {"fedavg", "new"}
        for each in drawn:
            first, last = each["ends"]  # pixels from the top of the plot
            assert 0 < last < each["height"]
            assert each["width"] > 0.9 or choice == "end"
            assert first < last  # it falls
            assert choice == "end" or first > 0
        better, worse = (next(each["ends"][1] for each in drawn if each["key"] == key) for key in ("new", "fedavg"))
        assert better - worse > 20  # the lower curve is the lower one on the screen, and one can see it
    assert page.locator(".headline").inner_text().startswith("new is better than FedAvg: its test perplexity")


def test_the_keyboard_reads_and_zooms_the_curves(page: Page, out: Path) -> None:
    found = curve(load(out).complete("fedavg"), "test_accuracy")
    assert found is not None
    page.locator("[data-figure=curves]").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    told = page.evaluate("document.querySelector('.readout').textContent")
    assert told.startswith("Round 95: FedAWE ")
    assert f"FedAvg {100 * found.mean[-2]:.2f} %" in told
    page.keyboard.press("+")
    assert page.evaluate(f"{CURVES}.layout.xaxis.range") == [50, 100]
    page.keyboard.press("0")
    assert page.evaluate(f"{CURVES}.layout.xaxis.range") == [0, 100]


def test_tables_sort_and_what_is_missing_stays_last(page: Page) -> None:
    names = "[...document.querySelectorAll('[data-name=results] tbody tr')].map(row => row.cells[1].textContent.trim())"
    heading = page.locator("[data-name=results] thead button")
    unranked = {"FedAU", "MIFA", "FedAWE, last aggregate"}
    heading.nth(0).focus()
    page.keyboard.press("Enter")  # by rank, the best first
    up = page.evaluate(names)
    page.keyboard.press("Enter")
    down = page.evaluate(names)
    assert page.evaluate("document.querySelector('[data-name=results] thead th').ariaSort") == "descending"
    assert up[:6] == down[:6][::-1]
    assert set(up[6:]) == set(down[6:]) == unranked
    heading.nth(1).click()
    assert page.evaluate(names) == sorted(page.evaluate(names), key=str.lower)


def test_downloads_contain_the_table_as_sorted(page: Page, out: Path) -> None:
    page.locator("[data-name=results] thead button").nth(1).click()
    table = summary_table(compare(load(out)))
    for kind in ("csv", "md", "tex"):
        with page.expect_download() as download:
            page.locator(f"[data-name=results] [data-export={kind}]").click()
        assert download.value.suggested_filename == f"results.{kind}"
        text = download.value.path().read_text()
        export = table.export(kind)  # type: ignore[arg-type]
        assert text != str(export)
        assert sorted(text.splitlines()) == sorted(str(export).splitlines())
        if kind == "csv":
            assert next(csv.DictReader(io.StringIO(text)))["algorithm"] == "F3AST"


def test_stripes_show_the_trace(page: Page, out: Path) -> None:
    show(page, "stripes")
    choose(page, "seed", 1)  # the second in the list
    drawn = page.evaluate("document.querySelector('[data-figure=stripes]').data[1].z")
    trace = load(out).traces[1]
    order = page.evaluate("document.querySelector('[data-figure=stripes]').data[1].text.map(row => row[0])")
    clients = [int(text.split(",")[0].removeprefix("client ")) for text in order]
    assert drawn == trace.on[:, clients].T.astype(int).tolist()


def test_the_theme_can_be_chosen_and_paper_is_light(visit: Visit, out: Path) -> None:
    page = visit(out / "report.html", scheme="light")
    show(page, "curves")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert page.evaluate(f"{CURVES}.data.find(trace => trace.meta === 'fedawe').line.color") == "#ff7f32"
    page.evaluate(
        "window.seen = []; addEventListener('beforeprint', () => seen.push(document.documentElement.dataset.theme))"
    )
    assert page.pdf(print_background=True).startswith(b"%PDF")
    assert page.evaluate("seen") == ["light"]
    assert (
        page.evaluate("document.querySelectorAll('[data-figure] .main-svg').length") >= 6
    )  # all of them, for the paper
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("#theme").click()


@pytest.mark.long
def test_ninety_six_runs_are_drawn(visit: Visit, tmp_path: Path) -> None:
    for dynamics in ("stationary", "staircase", "sine", "interleaved"):
        samples.experiment(tmp_path / "x" / dynamics, rounds=2000, every=10, clients=100, availability=dynamics)
    ReportCommand(tmp_path / "x").run()
    page = visit(tmp_path / "x" / "report.html")
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    assert page.locator("article").count() == 4
    for article in range(4):
        show(page, "curves", article)


@pytest.mark.parametrize("kind", ["quadratic", "nothing complete", "no traces"])
def test_lesser_experiments_are_drawn_too(visit: Visit, tmp_path: Path, kind: str) -> None:
    task = "quadratic" if kind == "quadratic" else "digits"
    made = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], [0, 1], task=task, recorded=kind == "no traces")
    if kind == "nothing complete":
        for label in ("fedawe", "fedavg"):
            samples.interrupt(made, label, 0)
            samples.damage(made, label, 1)
    if kind == "no traces":
        for path in (*made.glob("traces/*"), *made.glob("clients/*")):
            path.unlink()
    page = visit(fedawe.load(made).report())
    for figure in page.evaluate("[...document.querySelectorAll('[data-figure]')].map(plot => plot.dataset.figure)"):
        show(page, figure)
