"""A picture of one plane of any field, and a small one without axes for tables."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from slipstream.report.figure_style import DIVERGING, INTENSITY, STYLE, new_figure
from slipstream.report.picture_choice import PictureChoice
from slipstream.report.plane_gather import Plane
from slipstream.report.run_pictures import draw_plane, height_over_width

FORMATS = tuple(sorted(FigureCanvasAgg.get_supported_filetypes()))
# Points along the longer edge.
_MOST_SHOWN = 256
_DOTS_PER_INCH = 110


def draw_field(plane: Plane, format: str = "png") -> bytes:
    """Return the picture of a plane, in a format of `FORMATS`."""
    choice = PictureChoice((), "", plane.name, "", plane="")
    with matplotlib.rc_context(STYLE):
        width = max(4.2, min(6.4, 2.0 + 4.4 / height_over_width(plane)))
        figure = new_figure((width, 5.2), "")
        figure.set_layout_engine("compressed")
        draw_plane(figure.subplots(), plane, {}, choice, limits_of(plane.values))
        content = io.BytesIO()
        figure.savefig(content, format=format, dpi=_DOTS_PER_INCH)
    return content.getvalue()


def small_picture(values: np.ndarray) -> bytes:
    """Return a plane of values as PNG: a pixel for each, or for some of many."""
    stride = -(-max(values.shape) // _MOST_SHOWN)
    seen = values[::stride, ::stride]
    low, high = limits_of(seen)
    content = io.BytesIO()
    matplotlib.image.imsave(
        content,
        np.nan_to_num(seen),
        vmin=low,
        vmax=high,
        cmap=DIVERGING if low < 0 else INTENSITY,
        origin="lower",
        format="png",
    )
    return content.getvalue()


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """Return from where to where colours go: about 0 if values have both signs."""
    seen = np.ma.compressed(np.ma.masked_invalid(values))
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    elif 0 <= low < 0.5 * high:
        low = 0.0
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def format_of(path: Path) -> str | None:
    """Return the format of a picture by its file's name; None if it is not known."""
    ending = path.suffix[1:].lower()
    return ending if ending in FORMATS else None
