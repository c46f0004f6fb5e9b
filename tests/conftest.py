"""What all tests share: one thread, no display, the same examples in every run, and a browser where one starts."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

os.environ["MPLBACKEND"] = "Agg"
sys.path.insert(0, str(Path(__file__).parent))  # for `import table`, wherever pytest was started

torch.set_num_threads(1)
# No deadline: nothing here is about time. The examples depend on the test alone, so that a failure comes back.
settings.register_profile("fedawe", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.load_profile("fedawe")

# Each file is run by one worker, so that what its tests share is made once. With these first, both workers end at about
# the same time; a file that is missing here costs time and nothing else.
LONGEST = (
    "test_ray",
    "test_runs",
    "test_reproduce",
    "test_trackers",
    "test_examples",
    "test_audit_browser",
    "test_docs",
    "test_flower_deploy",
    "test_report_browser",
    "test_site",
)

NO_BROWSER = "no Chromium or Chrome on this machine starts"
FLAGS = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
PATIENCE = 60_000.0  # milliseconds until a page that does not do what is waited for is given up


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-browser", action="store_true", help="without a browser, fail instead of skipping")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for a browser is selected by `-m browser`; the files that take longest come first."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all tests that were skipped because no browser starts."""
    skipped = sum(NO_BROWSER in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        terminalreporter.write_line(
            f"{skipped} browser tests were skipped: {NO_BROWSER}. "
            "Install one, for example with `apt-get install chromium`, and run `make test-browser`."
        )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`fedawe ...` in this process, since another takes seconds to start: exit code, standard output and error."""
    from fedawe.cli.main import main

    def typed(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedawe", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
        assert isinstance(code, int)
        return code, *capfd.readouterr()

    return typed


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> Iterator["Browser"]:
    """The system's Chromium, if it starts; one per module, because an event loop runs as long as it is open."""
    from playwright.sync_api import Error, sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    reasons = []
    with sync_playwright() as playwright:
        for path in filter(None, map(shutil.which, names)):
            try:
                browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            except Error as error:
                reasons.append(str(error))
                continue
            yield browser
            browser.close()
            return
    if request.config.getoption("--require-browser"):
        pytest.fail("\n".join([f"{NO_BROWSER}; looked for {', '.join(names)}", *reasons]), pytrace=False)
    pytest.skip(NO_BROWSER)


@pytest.fixture
def visit(chromium: "Browser") -> Iterator[Callable[..., "Page"]]:
    """Opens a file in a window of its own; at the end, no page has reported an error or used the network."""
    errors: list[str] = []
    requests: list[str] = []
    contexts = []

    def opened(path: Path, width: int = 1400, scheme: str = "light") -> "Page":
        context = chromium.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on(
            "console", lambda told: errors.append(told.text) if told.type in ("error", "warning", "assert") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture(autouse=True)
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Python file that a test wrote and loaded is not loaded for the next test, which may write another one."""
    yield
    written = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(written):
            del sys.modules[name]
