"""The look of all pictures: quiet, and readable on paper and on a projector.

Colour-blind readers can distinguish the colours (Okabe and Ito 2008), which also differ in
lightness for prints in grey. Colour maps are perceptually uniform.
"""

import contextlib
import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter
from matplotlib.transforms import Bbox

from slipstream.printable_text import escaped, one_line
from slipstream.report.number_text import pi_text

BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREY = "#666666"
# For curves side by side, in this order.
COLOURS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SEQUENCE = "viridis_r"
# Where there is nothing to show.
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

_LONGEST_TITLE = 120
# SVG within a page: without the frame of a file, and with unique names.
# Of fields, which are pixels: enough for a page that is as wide as a screen.
_DOTS_PER_INCH = 80
# Inches, of a title in one line.
_TITLE_HEIGHT = 0.3
_SVG_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "slipstream",
    "figure.constrained_layout.use": False,
}
_HEAD = re.compile(r"<svg [^>]*?viewBox=\"([-0-9. ]+)\"[^>]*>")


@contextlib.contextmanager
def in_our_style(changes: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Draw in the style of all pictures, with some changes.

    A ``matplotlibrc`` has no effect: the current folder may have somebody else's, with which
    Matplotlib would start LaTeX.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | dict(changes or {}))
        yield


def new_figure(size: tuple[float, float], title: str) -> Figure:
    """Return a figure without panels, of a size in inches, headed by a title that may be empty.

    The title is a person's: dollars in it are no mathematics.
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
    """Return a figure with its panels where they are to stay."""
    # Left to do it itself, Matplotlib draws everything once more to lay it out, and so it does with
    # an engine that does nothing.
    engine = figure.get_layout_engine()
    if engine is not None:
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
    """Tell what the curves are, within the axes: over curves, on a pane that lets them be seen."""
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
    """Set limits of logarithmic axes without a curve, as those of a fluid at rest."""
    axes.set(xlim=(1, 10), ylim=(1e-6, 1))


def label_in_plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis of at most two decades with plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def svg_of(figure: Figure, name: str) -> str:
    """Return a figure, which has been laid out, without its title, which the page has.

    `name` tells it from the others of a page, and to those who do not see it.
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
