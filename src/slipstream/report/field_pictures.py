"""A picture of one plane of any field, and a small one without axes for tables."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.image
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from slipstream.report.colour_scale import colour_scale
from slipstream.report.figure_style import in_our_style
from slipstream.report.plane_gather import FieldPlane
from slipstream.report.run_pictures import plane_figure
from slipstream.simulation.solver_values import PlaneChoice

FORMATS = tuple(sorted(FigureCanvasAgg.get_supported_filetypes()))
# Points along the longer edge.
_MOST_SHOWN = 256
_DOTS_PER_INCH = 110


def draw_field(plane: FieldPlane, format: str = "png") -> bytes:
    """Return the picture of a plane, in a format of `FORMATS`."""
    with in_our_style():
        figure = plane_figure(plane, "", {}, PlaneChoice(plane.name, plane.name))
        content = io.BytesIO()
        figure.savefig(content, format=format, dpi=_DOTS_PER_INCH)
    return content.getvalue()


def small_picture(values: np.ndarray) -> bytes:
    """Return a plane of values as PNG: a pixel for each, or for some of many."""
    stride = -(-max(values.shape) // _MOST_SHOWN)
    seen = values[::stride, ::stride]
    scale = colour_scale(values)
    content = io.BytesIO()
    matplotlib.image.imsave(
        content,
        np.nan_to_num(seen),
        vmin=scale.low,
        vmax=scale.high,
        cmap=scale.map_name,
        origin="lower",
        format="png",
    )
    return content.getvalue()


def format_of(path: Path) -> str | None:
    """Return the format of a picture by its file's name; None if it is not known."""
    ending = path.suffix[1:].lower()
    return ending if ending in FORMATS else None
