"""What notebooks show: stripes of a trace, bars of an audit, formula and options of an algorithm."""

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

import fedawe
from fedawe.algorithms import ALGORITHMS, name_of
from fedawe.audit import audit


def picture(html: str) -> np.ndarray:
    found = re.search(r'src="data:image/png;base64,([^"]+)"', html)
    assert found is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))))


def test_stripes_are_dark_where_a_client_is_available() -> None:
    on = fedawe.rng(0, "stripes").random((40, 7)) < 0.4
    pixels = picture(fedawe.Trace(on)._repr_html_())
    assert pixels.shape == (7, 40, 3)
    assert ((pixels.sum(2) < 600) == on.T).all()


def test_a_large_trace_is_averaged_and_unknown_rounds_are_grey() -> None:
    trace = fedawe.Trace(np.arange(3000 * 450).reshape(3000, 450) % 2)
    pixels = picture(trace._repr_html_())
    assert pixels.shape == (100, 800, 3)
    assert np.abs(pixels.mean((0, 1)) - [(255 + c) / 2 for c in (31, 79, 216)]).max() < 1  # half of it
    grey = picture(fedawe.Trace([[np.nan, 1.0], [0.0, 1.0]])._repr_html_())
    assert grey[0].tolist() == [[230, 230, 230], [255, 255, 255]]


def test_an_audit_has_a_bar_for_each_client() -> None:
    found = audit(fedawe.Trace.draw(fedawe.Stationary(), np.linspace(0.1, 0.9, 30), 200, seed=0))
    html = found._repr_html_()
    drawings = [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", html)]
    assert len(drawings) == 2
    for drawing, name in zip(drawings, ("fedavg", found.advice.algorithm), strict=True):
        bars = drawing.findall("g/rect")
        fair = found.influences[name].fair[np.argsort(found.fleet.rates, kind="stable")]
        said = [float(bar.findtext("title", "").split()[0]) for bar in bars]
        assert np.allclose(said, fair, atol=0.006)
        heights = np.array([float(bar.get("height", "")) for bar in bars])
        assert np.allclose(heights / heights.max(), np.minimum(fair, 4) / np.minimum(fair, 4).max(), atol=0.01)
    assert found.advice.headline in html


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_shows_its_name_and_all_its_options(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    html = algorithm._repr_html_()
    assert f"<b>{name_of(algorithm)}</b>" in html
    for option in algorithm.__dataclass_fields__.values():
        assert (f"<code>{option.name}</code>" in html) == option.init
    assert html.count("<b>") == 1  # all options have their defaults


def test_an_option_that_was_changed_is_bold_and_text_is_escaped() -> None:
    @dataclass(frozen=True)
    class Mine(fedawe.FedAvg):
        """Weights <above> 1.

            x <- x - G & so on

        note  what a user
              writes
        """

        note: str = "a"

    html = Mine(note="<b>")._repr_html_()
    assert "<b>&#x27;&lt;b&gt;&#x27;</b>" in html
    assert "Weights &lt;above&gt; 1." in html
    assert "<pre>x &lt;- x - G &amp; so on</pre>" in html
    assert ">what a user writes<" in html
