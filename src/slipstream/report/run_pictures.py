"""Pictures of a run: curves against time, spectrum, plane of a field, and all three for a talk.

Each panel is a function that draws into given axes, so that single pictures and the composed
one show the same thing. No global state of matplotlib is touched.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from slipstream.report.figure_style import (
    BLUE,
    GREY,
    SEQUENCE,
    STYLE,
    VERMILLION,
    new_figure,
    save_figure,
)
from slipstream.report.picture_choice import PictureChoice
from slipstream.report.plane_gather import Plane
from slipstream.report.plane_picture import (
    draw_plane,
    height_over_width,
    in_lines,
    largest_value,
)

Spectra = Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]

_COLOURS = (BLUE, VERMILLION)
# Spectra of symmetric flows are full of zeros, which rounding raises to about the square of
# the machine's precision.
_SMALLEST_SHOWN = 1e-12
_SPECTRA_SHOWN = 6
# Up to so many shells are shown as points, and more than so many deserve a guide of slope -5/3.
_FEW_SHELLS = 3
_SHELLS_FOR_GUIDE = 16


def write_pictures(
    folder: str | Path,
    *,
    choice: PictureChoice,
    title: str,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    spectra: Spectra,
    plane: Plane | None,
) -> list[Path]:
    """Draw every picture for which there are data.

    Parameters
    ----------
    folder : str or pathlib.Path
        Gets ``spectrum.png``, ``summary.png`` and the files that the choice names.
    choice : PictureChoice
        What is drawn.
    title : str
        Heads each picture.
    series : mapping of str to numpy.ndarray
        Columns of the time series, with ``time``.
    labels : mapping of str to str
        Long names, with units.
    spectra : sequence of (time, {name: (wavenumber, values)})
        Spectra in the order of time; the first of each is drawn.
    plane : Plane or None
        A plane of the chosen field.

    Returns
    -------
    list of pathlib.Path
        The pictures.
    """
    has_curves = len(series.get("time", ())) > 1 and any(name in series for name in choice.curves)
    has_spectrum = any(one for _, one in spectra)
    labels = _axis_labels(labels, choice)
    written = []
    with matplotlib.rc_context(STYLE):
        if has_curves:
            figure = new_figure((6.4, 5.2), title)
            draw_curves(figure, series, labels, choice)
            written.append(save_figure(figure, folder, choice.curves_file))
        if has_spectrum:
            figure = new_figure((6.4, 4.8), title)
            draw_spectrum(figure.subplots(), spectra, labels)
            written.append(save_figure(figure, folder, "spectrum.png"))
        if plane is not None:
            width = max(4.2, min(6.4, 2.0 + 4.4 / height_over_width(plane)))
            figure = new_figure((width, 5.4), title)
            # A picture of fixed shape leaves room that labels may need.
            figure.set_layout_engine("compressed")
            draw_plane(figure.subplots(), plane, labels, choice)
            written.append(save_figure(figure, folder, choice.field_file))
        if has_curves and has_spectrum and plane is not None:
            figure = _summary(title, series, labels, spectra, plane, choice)
            written.append(save_figure(figure, folder, "summary.png"))
    return written


def draw_curves(
    figure: Figure | SubFigure,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    choice: PictureChoice,
) -> None:
    """Draw diagnostics against time, one above the other.

    Parameters
    ----------
    figure : matplotlib.figure.Figure or SubFigure
        Where to draw.
    series : mapping of str to numpy.ndarray
        Columns of the time series.
    labels : mapping of str to str
        What to write at the axes.
    choice : PictureChoice
        Which diagnostics, and which peak to mark.
    """
    curves = [
        (name, _COLOURS[index % len(_COLOURS)])
        for index, name in enumerate(choice.curves)
        if name in series
    ]
    rows = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    time = series["time"]
    for axes, (name, colour) in zip(rows, curves, strict=True):
        axes.plot(time, series[name], color=colour)
        axes.set_ylabel(labels.get(name, name))
        axes.set_ylim(bottom=0, top=1.08 * largest_value(series[name]))
        axes.yaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        if name == choice.peak:
            _mark_peak(axes, time, series[name], colour)
    rows[-1].set_xlim(time[0], time[-1])
    rows[-1].set_xlabel(choice.time_label)
    figure.align_ylabels(rows)


def _mark_peak(axes: Axes, time: np.ndarray, values: np.ndarray, colour: str) -> None:
    """Mark a maximum inside the run with its time; one at either end is no peak."""
    index = int(np.argmax(values))
    if not 0 < index < len(values) - 1:
        return
    axes.plot(time[index], values[index], "o", color=colour, markersize=4.5)
    is_late = time[index] > 0.5 * (time[0] + time[-1])
    axes.annotate(
        f"peak at $t$ = {time[index]:.3g}",
        (time[index], values[index]),
        xytext=(-8 if is_late else 8, 2),
        textcoords="offset points",
        ha="right" if is_late else "left",
        color=GREY,
        fontsize="small",
    )


def draw_spectrum(axes: Axes, spectra: Spectra, labels: Mapping[str, str]) -> None:
    """Draw the last spectrum in front of some earlier ones, with a guide where there is a slope.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    spectra : sequence of (time, {name: (wavenumber, values)})
        Spectra in the order of time.
    labels : mapping of str to str
        What to write at the axes.
    """
    name = next(iter(spectra[-1][1]))
    shown = [spectra[i] for i in _spread(len(spectra), _SPECTRA_SHOWN)]
    # A spectrum of one or two waves, such as that of an initial state, is no curve.
    shown = [one for one in shown[:-1] if len(_visible(*one[1][name])[0]) > 2] + shown[-1:]
    times = [time for time, _ in shown]
    colours = matplotlib.colormaps[SEQUENCE]
    shade = Normalize(times[0], times[-1] if len(times) > 1 else times[0] + 1)
    for time, one in shown:
        is_last = time == times[-1]
        wavenumber, values = _visible(*one[name])
        # The lightest end of the map would vanish on white paper.
        colour = colours(0.12 + 0.88 * shade(time)) if len(times) > 1 else BLUE
        axes.plot(
            wavenumber,
            values,
            color=colour,
            linewidth=2.4 if is_last else 1.1,
            marker="o" if len(values) <= _FEW_SHELLS else "",
            zorder=3 if is_last else 2,
            label=f"$t$ = {time:.3g}",
        )
    axes.set(xscale="log", yscale="log")
    wavenumber, values = _visible(*shown[-1][1][name])
    if len(values):
        _limit(axes, shown, name)
        if len(values) > _SHELLS_FOR_GUIDE:
            _draw_guide(axes, wavenumber, values)
    else:
        # Logarithmic axes cannot choose limits where a fluid at rest leaves them nothing to show.
        axes.set(xlim=(1, 10), ylim=(1e-6, 1))
    axes.set_xlabel("wavenumber $k$ (non-dimensional)")
    axes.set_ylabel(labels.get(name, name))
    # Beside the axes: inside, there is no place that the curves of every flow leave free.
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        fontsize="small",
        handlelength=1.4,
    )


def _limit(axes: Axes, shown: Spectra, name: str) -> None:
    """Show all of the last spectrum, and as much of the earlier ones as fits beside it."""
    curves = [curve for _, one in shown if len((curve := _visible(*one[name]))[0])]
    top = max(largest_value(values) for _, values in curves)
    bottom = 10.0 ** (math.floor(math.log10(curves[-1][1].min())) - 1)
    axes.set_ylim(bottom, top * 6)
    # A few points need an axis that is longer than they are.
    margins = (0.5, 2.0) if len(curves[-1][0]) <= _FEW_SHELLS else (0.9, 1.15)
    axes.set_xlim(
        min(wavenumber[0] for wavenumber, _ in curves) * margins[0],
        max(wavenumber[-1] for wavenumber, _ in curves) * margins[1],
    )
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # Wavenumbers span two decades at most: plain numbers are read faster than powers.
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_guide(axes: Axes, wavenumber: np.ndarray, values: np.ndarray) -> None:
    """Draw a line of slope -5/3 a little above the spectrum's inertial range."""
    first = min(wavenumber[-1], max(2.0, 2 * wavenumber[0]))
    last = max(first, wavenumber[-1] ** 0.75)
    if last < 2 * first:
        return
    ends = np.array([first, last])
    inside = (wavenumber >= first) & (wavenumber <= last)
    height = 3.0 * (values[inside] * wavenumber[inside] ** (5 / 3)).max()
    axes.plot(ends, height * ends ** (-5 / 3), "--", color=GREY, linewidth=1.2, zorder=1)
    middle = math.sqrt(first * last)
    axes.annotate(
        r"$k^{-5/3}$",
        (middle, height * middle ** (-5 / 3)),
        xytext=(5, 4),
        textcoords="offset points",
        color=GREY,
    )


def _summary(
    title: str,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    spectra: Spectra,
    plane: Plane,
    choice: PictureChoice,
) -> Figure:
    """Compose the three panels on a page as wide as a slide."""
    figure = new_figure((15.0, 5.0), title)
    # A tall plane is narrow and leaves its room to the curves.
    width = max(0.6, min(1.12, 0.35 + 0.77 / height_over_width(plane)))
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.0, 1.0, width), wspace=0.03)
    draw_curves(left, series, labels, choice)
    draw_spectrum(middle.subplots(), spectra, labels)
    draw_plane(right.subplots(), plane, labels, choice)
    return figure


def _axis_labels(long_names: Mapping[str, str], choice: PictureChoice) -> dict[str, str]:
    """Return the labels of axes: short ones that are known, or the long names in lines."""
    short = {
        name: f"{text}\n({choice.units.get(name, 'non-dimensional')})"
        for name, text in choice.short_labels.items()
    }
    return {**{name: in_lines(text) for name, text in long_names.items()}, **short}


def _visible(wavenumber: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of a spectrum that is worth showing on logarithmic axes."""
    wavenumber, values = np.asarray(wavenumber), np.asarray(values)
    shown = (wavenumber > 0) & (values > _SMALLEST_SHOWN * largest_value(values))
    return wavenumber[shown], values[shown]


def _spread(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` indices spread over `count`, the last among them."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, wanted))})
