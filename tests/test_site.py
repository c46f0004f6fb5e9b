"""The documentation site: every public name has an entry, and the built pages work in a browser without a network."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fedawe

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ("algorithms", "audit", "availability", "deploy", "tasks", "testing", "trackers", "training.engines")
LATE = ("PIL", "jinja2", "matplotlib", "pandas", "plotly", "polars.dataframe", "scipy.stats", "sklearn")


def entries() -> list[str]:
    """The dotted names that the reference documents."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)]


def found(dotted: str) -> object:
    """What a dotted name stands for."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(dotted)


def test_every_public_name_is_in_the_reference_once() -> None:
    names = entries()
    assert len(names) == len(set(names))
    documented = {id(found(name)) for name in names}
    missing = [f"fedawe.{name}" for name in fedawe.__all__ if f"fedawe.{name}" not in names]
    modules = [f"fedawe.{name}" for name in PUBLIC]
    missing = [name for name in missing if name not in modules and id(found(name)) not in documented]
    for module in modules:
        for name in importlib.import_module(module).__all__:
            if id(found(f"{module}.{name}")) not in documented:
                missing.append(f"{module}.{name}")
    assert missing == [], "add a line `::: NAME` to a page in docs/reference"


def test_every_entry_has_a_docstring_of_sentences() -> None:
    clipped = []
    for name in entries():
        thing = found(name)
        said = (getattr(thing, "__doc__", None) or "").strip()
        documented = inspect.isclass(thing) or inspect.isroutine(thing)  # constants have a comment in the source
        if documented and (not said or said.split("\n\n")[0].rstrip()[-1] not in ".:"):
            clipped.append(name)
    assert clipped == []


def test_algorithms_cite_their_papers() -> None:
    own = {"FedAvgAll", "Weighted", "Chosen"}  # not from a paper of their own
    lacking = [
        name
        for name, rule in fedawe.algorithms.ALGORITHMS.items()
        if rule.__name__ not in own and not re.search(r"arXiv:\d{4}\.\d{4,5}|ICLR 2024", rule.__doc__ or "")
    ]
    assert lacking == []


def test_the_core_imports_little() -> None:
    """Names of the core load neither plots nor tables nor data readers."""
    code = "import sys, fedawe; fedawe.simulate, fedawe.Experiment, fedawe.load; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in LATE if name in told] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning of the build is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.long
def test_the_site_in_a_browser(visit: Callable[..., "Page"], site: Path) -> None:
    """`visit` fails the test on an error in the console and on a request to a network."""
    pages = sorted(site.rglob("*.html"))
    loaded = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']?(?:https?:)?//""")
    assert [page.name for page in pages if loaded.search(page.read_text("utf-8"))] == []

    drawn = "".join(page.read_text("utf-8") for page in pages if page.parent.name == "reference")
    for name in entries():  # a module of the same name must not take the place of a function
        kind = re.search(rf'<h2 id="{re.escape(name)}"[^>]*>\s*<code class="doc-symbol[^"]*doc-symbol-(\w+)', drawn)
        assert kind is not None, name
        assert (kind[1] == "module") == inspect.ismodule(found(name)), name

    page = visit(site / "index.html")  # wide and light
    assert page.locator("body").get_attribute("data-md-color-scheme") == "default"
    page.locator(".md-tabs").get_by_role("link", name="Explanation").click()
    page.get_by_role("heading", name="Why plain averaging is biased").wait_for()
    first = page.locator("math").first
    assert first.bounding_box()["height"] > 15  # type: ignore[index]
    page.locator(".md-nav--primary").get_by_role("link", name="How FedAWE works").click()
    page.get_by_role("heading", name="How FedAWE works").wait_for()

    page.get_by_role("textbox", name="Search").click()
    page.get_by_text("Type to start searching").wait_for()  # the index is loaded
    # The word is entered at once, like a pasted one: the theme's search library logs an error for the query "S" alone.
    page.get_by_role("textbox", name="Search").fill("SCAFFOLD")
    page.keyboard.press("End")  # the search begins when a key is released
    hit = page.locator(".md-search-result__link").first
    hit.wait_for()
    hit.click()
    page.wait_for_function("location.pathname.endsWith('.html') && !location.pathname.endsWith('fedawe.html')")
    assert "SCAFFOLD" in page.locator("article").inner_text()

    page = visit(site / "reference" / "algorithms.html")
    signature = page.locator("[id='fedawe.FedAWE'] + .doc-signature, [id='fedawe.FedAWE'] ~ .doc-signature").first
    assert "eta_g" in signature.inner_text()
    signature.hover()
    signature.locator("button.md-code__button").first.click()
    page.get_by_text("Copied to clipboard").wait_for()

    for scheme, name in (("light", "default"), ("dark", "slate")):
        page = visit(site / "reference" / "cli.html", width=400, scheme=scheme)
        assert page.locator("body").get_attribute("data-md-color-scheme") == name
        assert page.evaluate("document.documentElement.scrollWidth") == 400  # no scrolling sideways
        page.locator(".md-header__button[for=__drawer]").click()
        page.locator(".md-nav--primary").get_by_text("Reference").first.wait_for(state="visible")
