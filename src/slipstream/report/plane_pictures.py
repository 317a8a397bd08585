"""Pictures of one plane of any field, with axes and colour bar, and small ones without."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slipstream.report.field_planes import ColourScale, FieldPlane, colour_scale
from slipstream.report.figure_style import (
    BLUE,
    NOTHING,
    draw_grid,
    in_lines,
    in_our_style,
    label_in_pi,
    new_figure,
)
from slipstream.report.number_text import pi_text, scaled_unit
from slipstream.simulation.solver_values import PlaneChoice

FORMATS = tuple(sorted(FigureCanvasAgg.get_supported_filetypes()))
# Characters of a label that fit next to a colour bar.
_ONE_LINE = 48
# Points along the longer edge of a small picture.
_MOST_SHOWN = 256
_DOTS_PER_INCH = 110


def plane_figure(
    plane: FieldPlane,
    title: str,
    labels: Mapping[str, str],
    choice: PlaneChoice,
    scale: ColourScale | None = None,
) -> Figure:
    """Return the picture of a plane alone."""
    width = max(4.2, min(6.4, 2.0 + 4.4 / height_over_width(plane)))
    figure = new_figure((width, 5.4), title)
    # A picture of fixed shape leaves room that labels may need.
    figure.set_layout_engine("compressed")
    draw_plane(figure.subplots(), plane, labels, choice, scale)
    return figure


def draw_plane(
    axes: Axes,
    plane: FieldPlane,
    labels: Mapping[str, str] | None = None,
    choice: PlaneChoice | None = None,
    scale: ColourScale | None = None,
) -> None:
    """Draw a plane of a field, grey where it has no values; a single line as a curve."""
    plane, labels = in_handy_unit(plane), labels or {}
    choice = choice or PlaneChoice(plane.name, plane.name)
    label = labels.get(plane.name, in_lines(plane.label))
    if min(plane.values.shape) == 1 and max(plane.values.shape) > 1:
        _draw_line(axes, plane, label)
        return
    scale = scale or colour_scale(plane.values, choice.brightest)
    image = axes.imshow(
        plane.values,
        origin="lower",
        extent=(*extent_of(plane.columns), *extent_of(plane.rows)),
        cmap=matplotlib.colormaps[scale.map_name].with_extremes(bad=NOTHING),
        vmin=scale.low,
        vmax=scale.high,
        # Masked regions keep sharp borders.
        interpolation="auto" if np.ma.is_masked(plane.values) else "bicubic",
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    _set_plane_title(axes, plane, label_axes(axes, plane), choice.remark)
    bar = axes.figure.colorbar(image, ax=axes, extend=scale.extend, fraction=0.046, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
    bar.ax.yaxis.get_offset_text().set_horizontalalignment("left")
    bar.set_label(label.replace("\n", " ") if len(label) < _ONE_LINE else label)


def _set_plane_title(axes: Axes, plane: FieldPlane, position: str, remark: str) -> None:
    time = f"$t$ = {_digits(plane.time)}"
    if not plane.normal_name:
        axes.set_title(time)
        return
    title = [f"${plane.normal_name}$ = {position}", time]
    if not remark:
        title = [",  ".join(title)]
    elif height_over_width(plane) < 1.3:
        title = [f"{title[0]} ({remark}),  {title[1]}"]
    else:
        title = [",  ".join(title), f"({remark})"]
    axes.set_title("\n".join(title))


def _draw_line(axes: Axes, plane: FieldPlane, label: str) -> None:
    """Draw the values of a field along one axis."""
    is_row = plane.values.shape[0] == 1
    along, name = (plane.columns, plane.column_name) if is_row else (plane.rows, plane.row_name)
    axes.plot(along, np.ma.filled(np.ma.ravel(plane.values).astype(float), np.nan), color=BLUE)
    axes.set_xlabel(f"${name}${_unit_text(plane)}")
    axes.set_ylabel(label)
    if plane.unit == "1":
        label_in_pi(axes, "x", along)
    draw_grid(axes)
    axes.set_title(f"$t$ = {_digits(plane.time)}")


def _unit_text(plane: FieldPlane) -> str:
    return "" if plane.unit == "1" else f" ({plane.unit})"


def label_axes(axes: Axes, plane: FieldPlane) -> str:
    """Label the axes of a plane, and return its position as text."""
    axes.set_xlabel(f"${plane.column_name}${_unit_text(plane)}")
    axes.set_ylabel(f"${plane.row_name}${_unit_text(plane)}")
    if plane.unit != "1":
        return f"{plane.position:.4g} {plane.unit}"
    is_in_pi = label_in_pi(axes, "x", plane.columns)
    label_in_pi(axes, "y", plane.rows)
    return pi_text(plane.position / math.pi) if is_in_pi else f"{plane.position:.3g}"


def in_handy_unit(plane: FieldPlane) -> FieldPlane:
    """Return a plane whose coordinates are neither tiny nor huge, if their unit can be changed."""
    longest = max(abs(plane.columns[-1]), abs(plane.rows[-1]))
    factor, unit = scaled_unit(plane.unit, float(longest))
    return replace(
        plane,
        rows=plane.rows / factor,
        columns=plane.columns / factor,
        position=plane.position / factor,
        unit=unit,
    )


def _digits(value: float) -> str:
    """Return a number with three digits, or with all digits if it is whole."""
    return f"{value:.0f}" if value == round(value) and value < 1e9 else f"{value:.3g}"


def height_over_width(plane: FieldPlane) -> float:
    """Return the shape of the picture of a plane."""
    if min(plane.values.shape) == 1:
        return 0.8
    (left, right), (bottom, top) = extent_of(plane.columns), extent_of(plane.rows)
    return (top - bottom) / (right - left)


def extent_of(coordinates: np.ndarray) -> tuple[float, float]:
    """Return where the cells around equally spaced points begin and end."""
    spacing = coordinates[1] - coordinates[0] if len(coordinates) > 1 else 1.0
    return float(coordinates[0] - spacing / 2), float(coordinates[-1] + spacing / 2)


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
