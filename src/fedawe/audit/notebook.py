"""HTML of an audit for notebooks: the advice, and the influence of every client as bars."""

import html
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedawe.algorithms import ALGORITHMS
from fedawe.audit.influence import Influence
from fedawe.audit.recommend import Advice
from fedawe.core.describe import path_of
from fedawe.core.palette import Look, looks

BARS = 100  # bars at most; with more clients, a bar is the mean of several
WIDTH, HEIGHT = 800, 90  # size of a row of bars
MOST = 4  # a bar is cut at this multiple of the fair share


def summary(about: str, rates: npt.NDArray[np.float64], influences: Mapping[str, Influence], advice: Advice) -> str:
    """HTML with the advice, and bars for fedavg and for the advised algorithm; clients are sorted by `rates`."""
    names = [name for name in dict.fromkeys(("fedavg", advice.algorithm)) if name in influences] or [*influences][:1]
    colours = looks({name: path_of(ALGORITHMS.get(name)) for name in names})
    order = np.argsort(rates, kind="stable")
    said = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in (advice.headline, advice.text) if sentence)
    top = min(MOST, max(2, int(np.ceil(max(influences[name].fair.max() for name in names)))))
    rows = "".join(bars(name, influences[name].fair[order], colours[name], top, HEIGHT) for name in names)
    each = "each client" if len(rates) <= BARS else f"the clients, averaged in {BARS} groups of similar availability"
    return (
        f'<div style="max-width:{WIDTH}px"><p><b>{html.escape(about)}</b></p>{said}{rows}'
        f'<p style="font-size:90%">Influence of {each}, from the least available (left) to the most available. '
        f"The line is the fair share; bars end at {top} times the fair share.</p></div>"
    )


def bars(name: str, fair: npt.NDArray[np.float64], look: Look, top: int, tall: int) -> str:
    """A row of bars, one for each client or few clients, cut at `top` times the fair share; `tall` units high."""
    parts = [float(part.mean()) for part in np.array_split(fair, min(len(fair), BARS))]
    step = WIDTH / len(parts)
    drawn = "".join(
        f'<rect x="{n * step:.1f}" y="{tall * (1 - height / top):.1f}" width="{max(step * 0.8, 0.5):.1f}" '
        f'height="{tall * height / top:.1f}"><title>{value:.2f} times the fair share</title></rect>'
        for n, value in enumerate(parts)
        for height in [min(max(value, 0.0), top)]
    )
    line = tall * (1 - 1 / top)
    return (
        f"<div><strong>{html.escape(name)}</strong>: {fair.min():.2f} to {fair.max():.2f} times the fair share</div>"
        f'<svg class="bars" viewBox="0 0 {WIDTH} {tall}" preserveAspectRatio="none" role="img" '
        f'style="width:100%;--light:{look.light};--dark:{look.dark}" aria-label="influence under {html.escape(name)}">'
        f'<g fill="{look.light}">{drawn}</g><line x1="0" '
        f'x2="{WIDTH}" y1="{line:.1f}" y2="{line:.1f}" stroke="#888" stroke-dasharray="6 4"/></svg>'
    )
