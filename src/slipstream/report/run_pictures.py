"""Pictures of a run: curves against time, spectrum, plane of a field, and all three together.

Each panel is a function that draws into given axes, so that single pictures and the summary show
the same. Matplotlib's global state does not change.
"""

import io
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from slipstream.report.figure_style import (
    BLUE,
    DIVERGING,
    GREY,
    INTENSITY,
    NOTHING,
    SEQUENCE,
    STYLE,
    VERMILLION,
    label_in_pi,
    label_in_plain_numbers,
    largest_value,
    new_figure,
    save_figure,
    set_empty_limits,
)
from slipstream.report.number_text import pi_text, scaled_unit
from slipstream.report.picture_choice import PictureChoice, Spectra, shown_spectra
from slipstream.report.plane_gather import Plane

_COLOURS = (BLUE, VERMILLION)
# Spectra of symmetric flows are full of zeros, which rounding turns into about the square of the
# machine's precision.
_SMALLEST_SHOWN = 1e-12
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
    """Draw every picture for which there are data, and return their paths; see `run_pictures`."""
    pictures = run_pictures(
        folder,
        choice=choice,
        title=title,
        series=series,
        labels=labels,
        spectra=spectra,
        plane=plane,
    )
    return [draw() for draw in pictures]


def run_pictures(
    folder: str | Path,
    *,
    choice: PictureChoice,
    title: str,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    spectra: Spectra,
    plane: Plane | None,
) -> list[Callable[[], Path]]:
    """Return what draws each picture for which there are data, and returns its path.

    `series` has a column ``time``, `spectra` are in the order of time, and the first of each time
    is drawn.
    """
    has_curves = len(series.get("time", ())) > 1 and any(name in series for name in choice.curves)
    has_spectrum = len(spectra) > 0 and bool(spectra[-1][1])
    labels = _axis_labels(labels, choice)

    def curves() -> Figure:
        figure = new_figure((6.4, 5.2), title)
        draw_curves(figure, series, labels, choice)
        return figure

    def spectrum() -> Figure:
        figure = new_figure((6.4, 4.8), title)
        draw_spectrum(figure.subplots(), spectra, labels)
        return figure

    def field(plane: Plane) -> Figure:
        width = max(4.2, min(6.4, 2.0 + 4.4 / height_over_width(plane)))
        figure = new_figure((width, 5.4), title)
        # A picture of fixed shape leaves room that labels may need.
        figure.set_layout_engine("compressed")
        draw_plane(figure.subplots(), plane, labels, choice)
        return figure

    pictures: dict[str, Callable[[], Figure]] = {}
    if has_curves:
        pictures[choice.curves_file] = curves
    if has_spectrum:
        pictures["spectrum.png"] = spectrum
    if plane is not None:
        pictures[choice.field_file] = partial(field, plane)
    if has_curves and has_spectrum and plane is not None:
        pictures["summary.png"] = partial(_summary, title, series, labels, spectra, plane, choice)
    return [partial(_drawn, draw, folder, name) for name, draw in pictures.items()]


def scalar_pictures(
    folder: str | Path,
    *,
    title: str,
    scalars: Mapping[str, tuple[np.ndarray, np.ndarray, str]],
) -> list[Callable[[], Path]]:
    """Return what draws the numbers that users have asked for: by name, times, values and label."""
    shown = {
        name: one for name, one in scalars.items() if len(one[0]) > 1 and np.isfinite(one[1]).any()
    }

    def curves() -> Figure:
        figure = new_figure((6.4, 1.2 + 2.0 * len(shown)), title)
        rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for index, (axes, (time, values, label)) in enumerate(
            zip(rows, shown.values(), strict=True)
        ):
            axes.plot(time, values, color=_COLOURS[index % len(_COLOURS)])
            axes.set_ylabel(_in_lines(label), parse_math=False)
            axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
            axes.set_axisbelow(True)
        rows[-1].set_xlabel("time $t$")
        figure.align_ylabels(rows)
        return figure

    return [partial(_drawn, curves, folder, "scalars.png")] if shown else []


def _drawn(draw: Callable[[], Figure], folder: str | Path, name: str) -> Path:
    with matplotlib.rc_context(STYLE):
        return save_figure(draw(), folder, name)


def draw_nothing() -> None:
    """Draw a picture that nobody sees: then fonts are loaded, and usual labels set."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure((6.4, 4.8), "title")
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlim=(0.9, 99), ylim=(1e-12, 10))
        axes.set(xlabel="wavenumber $k$ (non-dimensional)", ylabel=r"$k^{-5/3}$")
        figure.savefig(io.BytesIO())


def draw_curves(
    figure: Figure | SubFigure,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    choice: PictureChoice,
) -> None:
    """Draw diagnostics against time, one above the other."""
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
    """Draw the last spectrum in front of some earlier ones, with a guide if it is long enough."""
    name = next(iter(spectra[-1][1]))
    shown = list(shown_spectra(spectra))
    # A spectrum of one or two waves, such as that of an initial state, makes no curve.
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
        set_empty_limits(axes)
    axes.set_xlabel("wavenumber $k$ (non-dimensional)")
    axes.set_ylabel(labels.get(name, name))
    # Beside the axes, since inside no place is free of curves in every flow.
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
    label_in_plain_numbers(axes.xaxis)


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


def draw_plane(
    axes: Axes,
    plane: Plane,
    labels: Mapping[str, str],
    choice: PictureChoice,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw a plane of a field, bright where it is large and grey where there is nothing.

    Colours go from 0 to what the choice says, or between limits: if the lower one is negative, they
    are those of two signs.
    """
    plane, seen = _in_handy_unit(plane), np.ma.compressed(plane.values)
    if limits is None:
        largest = float(np.quantile(seen, choice.brightest)) if seen.size else 1.0
        limits = 0.0, largest or largest_value(seen)
    colours = DIVERGING if limits[0] < 0 else INTENSITY
    image = axes.imshow(
        plane.values,
        origin="lower",
        extent=(*_extent(plane.columns), *_extent(plane.rows)),
        cmap=matplotlib.colormaps[colours].with_extremes(bad=NOTHING),
        vmin=limits[0],
        vmax=limits[1],
        # Masked regions keep sharp borders.
        interpolation="auto" if np.ma.is_masked(plane.values) else "bicubic",
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    title = [f"${plane.normal_name}$ = {_label_axes(axes, plane)}", f"$t$ = {_digits(plane.time)}"]
    if not choice.plane:
        title = [",  ".join(title)]
    elif height_over_width(plane) < 1.3:
        title = [f"{title[0]} ({choice.plane}),  {title[1]}"]
    else:
        title = [",  ".join(title), f"({choice.plane})"]
    axes.set_title("\n".join(title))
    extend = "max" if choice.brightest < 1 else "neither"
    bar = axes.figure.colorbar(image, ax=axes, extend=extend, fraction=0.046, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
    bar.ax.yaxis.get_offset_text().set_horizontalalignment("left")
    bar.set_label(labels.get(plane.name, _in_lines(plane.label)))


def _label_axes(axes: Axes, plane: Plane) -> str:
    """Label the axes of a plane, and return its position as text."""
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


def _in_lines(text: str) -> str:
    """Return a text in lines short enough for an axis."""
    return "\n".join(textwrap.wrap(text, 28))


def height_over_width(plane: Plane) -> float:
    """Return the shape of the picture of a plane."""
    (left, right), (bottom, top) = _extent(plane.columns), _extent(plane.rows)
    return (top - bottom) / (right - left)


def _extent(coordinates: np.ndarray) -> tuple[float, float]:
    """Return where the cells around equally spaced points begin and end."""
    spacing = coordinates[1] - coordinates[0] if len(coordinates) > 1 else 1.0
    return float(coordinates[0] - spacing / 2), float(coordinates[-1] + spacing / 2)


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
    left, middle, right = figure.subfigures(
        1, 3, squeeze=False, width_ratios=(1.0, 1.0, width), wspace=0.03
    )[0]
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
    return {**{name: _in_lines(text) for name, text in long_names.items()}, **short}


def _visible(wavenumber: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of a spectrum that is worth showing on logarithmic axes."""
    wavenumber, values = np.asarray(wavenumber), np.asarray(values)
    shown = (wavenumber > 0) & (values > _SMALLEST_SHOWN * largest_value(values))
    return wavenumber[shown], values[shown]
