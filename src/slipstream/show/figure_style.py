"""The look of all pictures, and pictures of a plane of any field."""

from __future__ import annotations

import contextlib
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter
from matplotlib.transforms import Bbox

from slipstream.engine.fields import PlaneChoice
from slipstream.engine.text import escaped, one_line, pi_text, printable, scaled_unit
from slipstream.show.field_planes import ColourScale, FieldPlane, colour_scale

BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREY = "#666666"
# For curves side by side, in this order.
COLOURS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SEQUENCE = "viridis_r"
# The colour where there is nothing to show.
NOTHING = "#c9c9c9"

STYLE: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.labelcolor": "#222222",
    "axes.edgecolor": "#444444",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "xtick.direction": "out",
    "ytick.direction": "out",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "mathtext.fontset": "dejavusans",
}

# Characters of a title, at most.
_LONGEST_TITLE = 120
# For fields within a page, which are pixels: enough for a page that is as wide as a screen.
_DOTS_PER_INCH = 80
# Inches of a title in one line.
_TITLE_HEIGHT = 0.3
# SVG within a page: without the frame of a file, and with unique names.
_SVG_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "slipstream",
    "figure.constrained_layout.use": False,
}
_HEAD = re.compile(r"<svg [^>]*?viewBox=\"([-0-9. ]+)\"[^>]*>")
FORMATS = tuple(sorted(FigureCanvasAgg.get_supported_filetypes()))
# Characters of a label that fit next to a colour bar.
_ONE_LINE = 48
# Points along the longer edge of a small picture.
_MOST_SHOWN = 256
# For a small picture of a plane.
_PLANE_DOTS_PER_INCH = 110


@contextlib.contextmanager
def in_our_style(changes: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Draw in the style of all pictures, with some changes.

    A ``matplotlibrc`` has no effect: the current folder may have somebody else's, with which
    Matplotlib would start LaTeX.
    """
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A letter that the fonts lack is drawn as a box; Matplotlib would quote it as it is.
        warnings.filterwarnings("ignore", "Glyph [0-9]+ ", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | dict(changes or {}))
        yield


def new_figure(size: tuple[float, float], title: str) -> Figure:
    """Return a figure without panels, of a size in inches, headed by a title that may be empty.

    The title is free text: dollars in it do not start mathematics.
    """
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    if title:
        text = one_line(title, _LONGEST_TITLE)
        heading = figure.suptitle(text, fontsize=13, fontweight="bold", x=0.01, ha="left")
        heading.set_parse_math(False)
    return figure


def save_figure(figure: Figure, folder: str | Path, name: str) -> Path:
    """Write a figure into a folder, in the format of its name; return the path."""
    path = Path(folder) / name
    # The usual compression takes a tenth longer, for a twentieth of the size.
    extra: Any = {"pil_kwargs": {"compress_level": 4}} if name.endswith(".png") else {}
    laid_out(figure).savefig(path, **extra)
    return path


def laid_out(figure: Figure) -> Figure:
    """Return a figure with its panels in their final positions, and its text harmless."""
    for text in figure.findobj(Text):
        said = text.get_text()
        if printable(said) != said:
            text.set_text(printable(said))
    # Left to do it itself, Matplotlib draws everything once more to lay it out, and so it does with
    # an engine that does nothing.
    engine = figure.get_layout_engine()
    if engine is not None:
        with warnings.catch_warnings():
            # Where labels leave no room, panels stay where they are.
            warnings.filterwarnings("ignore", "constrained_layout", UserWarning)
            engine.execute(figure)
        with matplotlib.rc_context({"figure.constrained_layout.use": False}):
            figure.set_layout_engine(None)
    return figure


def label_in_pi(axis_of: Axes, which: str, coordinates: np.ndarray) -> bool:
    """Label the "x" or "y" axis in multiples of pi if its length is one; return whether it is."""
    if len(coordinates) < 2:
        return False
    length = len(coordinates) * (coordinates[1] - coordinates[0])
    multiple = length / math.pi
    if multiple < 0.5 or abs(multiple - round(multiple)) > 1e-6:
        return False
    axis = axis_of.xaxis if which == "x" else axis_of.yaxis
    spacing = max(0.5, round(multiple) / 4)
    axis.set_major_locator(MultipleLocator(spacing * math.pi))
    axis.set_major_formatter(FuncFormatter(lambda value, _: pi_text(value / math.pi)))
    return True


def legend_inside(axes: Axes, place: str = "best", columns: int = 1) -> None:
    """Add a legend inside the axes, on a translucent background."""
    where: Any = place
    axes.legend(
        loc=where,
        ncols=columns,
        fontsize="small",
        handlelength=1.4,
        labelspacing=0.3,
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
    )


def largest_value(values: np.ndarray) -> float:
    """Return the largest value, or 1 if that is not positive, as the end of a scale."""
    largest = float(np.max(values))
    return largest if largest > 0 else 1.0


def set_empty_limits(axes: Axes) -> None:
    """Set limits of logarithmic axes that have no curve, such as for a fluid at rest."""
    axes.set(xlim=(1, 10), ylim=(1e-6, 1))


def label_in_plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis of at most two decades with plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def svg_of(figure: Figure, name: str) -> str:
    """Return a figure, which has been laid out, without its title, which the page has.

    `name` makes its identifiers unique on a page, and is its label for screen readers.
    """
    content = io.BytesIO()
    with matplotlib.rc_context(_SVG_SETTINGS):
        # Panels stay in place, although Matplotlib would lay them out again without the title.
        figure.set_layout_engine(None)
        figure.savefig(
            content,
            format="svg",
            dpi=_DOTS_PER_INCH,
            facecolor="white",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            bbox_inches=_below_title(figure),
        )
    text = content.getvalue().decode()
    head = _HEAD.search(text)
    if head is None:  # pragma: no cover
        return ""
    body = text[head.end() :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    # Names of several figures on one page must not be mixed up.
    body = re.sub(r"\bid=\"", rf'id="{name}-', body)
    body = re.sub(r"(href=\"#|url\(#)", rf"\g<1>{name}-", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    label = escaped(name.replace("_", " "))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' viewBox="{head.group(1)}" role="img" aria-label="{label}">{body.strip()}'
    )


def _below_title(figure: Figure) -> Bbox | None:
    """Return the box of a figure without its title, which is hidden."""
    heading = figure._suptitle  # type: ignore[attr-defined]
    if heading is None:
        return None
    heading.set_visible(False)
    width, height = figure.get_size_inches()
    return Bbox([[0, 0], [width, height - _TITLE_HEIGHT]])


def draw_grid(axes: Axes) -> None:
    """Draw pale horizontal lines behind the curves."""
    axes.grid(axis="y", color="#e4e4e4")
    axes.set_axisbelow(True)


def in_lines(text: str) -> str:
    """Return a text in lines short enough for an axis."""
    return "\n".join(textwrap.wrap(text, 28))


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
    """Return the ends of the cells around equally spaced points."""
    spacing = coordinates[1] - coordinates[0] if len(coordinates) > 1 else 1.0
    return float(coordinates[0] - spacing / 2), float(coordinates[-1] + spacing / 2)


def draw_field(plane: FieldPlane, format: str = "png") -> bytes:
    """Return the picture of a plane, in a format of `FORMATS`."""
    with in_our_style():
        figure = plane_figure(plane, "", {}, PlaneChoice(plane.name, plane.name))
        content = io.BytesIO()
        laid_out(figure).savefig(content, format=format, dpi=_PLANE_DOTS_PER_INCH)
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
