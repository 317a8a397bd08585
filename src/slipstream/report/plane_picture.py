"""The picture of a plane of a field: bright where it is large, grey where there is nothing."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import replace

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from slipstream.report.figure_style import INTENSITY, NOTHING, label_in_pi, pi_text, scaled_unit
from slipstream.report.picture_choice import PictureChoice
from slipstream.report.plane_gather import Plane


def draw_plane(axes: Axes, plane: Plane, labels: Mapping[str, str], choice: PictureChoice) -> None:
    """Draw a plane of a field, bright where it is large.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    plane : Plane
        What to draw.
    labels : mapping of str to str
        What to write at the axes.
    choice : PictureChoice
        Says which plane it is.
    """
    plane, seen = _in_handy_unit(plane), np.ma.compressed(plane.values)
    largest = float(np.quantile(seen, choice.brightest)) if seen.size else 1.0
    image = axes.imshow(
        plane.values,
        origin="lower",
        extent=(*extent(plane.columns), *extent(plane.rows)),
        cmap=matplotlib.colormaps[INTENSITY].with_extremes(bad=NOTHING),
        vmin=0,
        vmax=largest or largest_value(seen),
        # Borders of what is drawn are sharp.
        interpolation="auto" if np.ma.is_masked(plane.values) else "bicubic",
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    title = [f"${plane.normal_name}$ = {_label_axes(axes, plane)}", f"$t$ = {_digits(plane.time)}"]
    if height_over_width(plane) < 1.3:
        title = [f"{title[0]} ({choice.plane}),  {title[1]}"]
    else:
        title = [",  ".join(title), f"({choice.plane})"]
    axes.set_title("\n".join(title))
    extend = "max" if choice.brightest < 1 else "neither"
    bar = axes.figure.colorbar(image, ax=axes, extend=extend, fraction=0.046, pad=0.02)
    bar.outline.set_visible(False)
    bar.formatter.set_powerlimits((-2, 4))
    bar.formatter.set_useMathText(True)
    bar.ax.yaxis.get_offset_text().set_horizontalalignment("left")
    bar.set_label(labels.get(plane.name, in_lines(plane.label)))


def _label_axes(axes: Axes, plane: Plane) -> str:
    """Label the axes of a plane; return where it is."""
    unit = "" if plane.unit == "1" else f" ({plane.unit})"
    axes.set_xlabel(f"${plane.column_name}${unit}")
    axes.set_ylabel(f"${plane.row_name}${unit}")
    if unit:
        return f"{plane.position:.4g} {plane.unit}"
    is_in_pi = label_in_pi(axes, "x", plane.columns)
    label_in_pi(axes, "y", plane.rows)
    return pi_text(plane.position / math.pi) if is_in_pi else f"{plane.position:.3g}"


def _in_handy_unit(plane: Plane) -> Plane:
    """Return a plane whose coordinates are neither tiny nor huge, if their unit can be changed."""
    longest = max(abs(plane.columns[-1]), abs(plane.rows[-1]))
    factor, unit = scaled_unit(plane.unit, float(longest))
    rows, columns, position = (n / factor for n in (plane.rows, plane.columns, plane.position))
    return replace(plane, rows=rows, columns=columns, position=position, unit=unit)


def _digits(value: float) -> str:
    """Return a number with three digits; a whole one with all that it has."""
    return f"{value:.0f}" if value == round(value) and value < 1e9 else f"{value:.3g}"


def in_lines(text: str) -> str:
    """Return a text in lines short enough for an axis."""
    return "\n".join(textwrap.wrap(text, 28))


def largest_value(values: np.ndarray) -> float:
    """Return the largest value, or 1 where a scale would otherwise have no length."""
    largest = float(np.max(values))
    return largest if largest > 0 else 1.0


def height_over_width(plane: Plane) -> float:
    """Return the shape of the picture of a plane."""
    (left, right), (bottom, top) = extent(plane.columns), extent(plane.rows)
    return (top - bottom) / (right - left)


def extent(coordinates: np.ndarray) -> tuple[float, float]:
    """Return where the cells around equally spaced points begin and end."""
    spacing = coordinates[1] - coordinates[0] if len(coordinates) > 1 else 1.0
    return float(coordinates[0] - spacing / 2), float(coordinates[-1] + spacing / 2)
