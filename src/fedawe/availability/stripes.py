"""A picture of a trace for notebooks: one row per client, dark where it is available, as in the paper's figure 6."""

import base64
import html
import io
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS, COLUMNS = 100, 800  # largest size of the picture; more clients or rounds are averaged
PAPER, INK, UNKNOWN = np.array([255, 255, 255]), np.array([31, 79, 216]), np.array([230, 230, 230])


def stripes(on: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_] | None, title: str) -> str:
    """HTML that contains the picture; `on` and `known` are [T, m]."""
    from PIL import Image

    available = _averaged(on)
    pixels = PAPER + (INK - PAPER) * available[:, :, None]
    if known is not None:
        pixels = UNKNOWN + (pixels - UNKNOWN) * _averaged(known)[:, :, None]
    buffer = io.BytesIO()
    Image.fromarray(np.rint(pixels).astype(np.uint8)).save(buffer, "png")
    data = base64.b64encode(buffer.getvalue()).decode()
    height = 12 * len(available) if len(available) <= 20 else 240
    return (
        f'<figure style="margin:0;max-width:800px"><img alt="availability of {on.shape[1]} clients" '
        f'src="data:image/png;base64,{data}" style="width:100%;height:{height}px;image-rendering:pixelated;'
        'border:1px solid #888">'
        f'<figcaption style="font-size:90%">{html.escape(title)}. Rounds from left to right, a row per client; dark: '
        f"available{'' if known is None else ', grey: unknown'}.</figcaption></figure>"
    )


def _averaged(on: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Shares of availability, averaged to at most ROWS rows of clients and COLUMNS columns of rounds."""
    shares = on.T.astype(np.float64)
    for axis, most in ((0, ROWS), (1, COLUMNS)):
        n = shares.shape[axis]
        starts = np.linspace(0, n, min(n, most), endpoint=False).astype(np.int64)
        sizes = np.diff(np.append(starts, n))
        shares = np.add.reduceat(shares, starts, axis) / (sizes[:, None] if axis == 0 else sizes)
    return shares
