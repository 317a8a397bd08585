"""Pictures of a run: curves against time, spectrum, planes of fields, and all of them together.

Each panel is a function that draws into given axes, so that single pictures and the summary show
the same. Matplotlib's global state does not change.
"""

import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from slipstream.engine.fields import PictureChoice, PlaneChoice, Spectra, has_died
from slipstream.show.field_planes import FieldPlane
from slipstream.show.figure_style import (
    BLUE,
    COLOURS,
    GREY,
    SEQUENCE,
    draw_grid,
    draw_plane,
    height_over_width,
    in_lines,
    in_our_style,
    label_in_plain_numbers,
    laid_out,
    largest_value,
    legend_inside,
    new_figure,
    plane_figure,
    save_figure,
    set_empty_limits,
    svg_of,
)
from slipstream.show.series_statistics import TimeAverage

# Spectra of symmetric flows are full of zeros, which rounding turns into about the square of the
# machine's precision.
_SMALLEST_SHOWN = 1e-12
# Shells, and rows of a series, that are still shown as points.
_FEW_SHELLS = 3
_FEW_ROWS = 12
# Rows of a series in a picture: more than it has pixels.
_MOST_ROWS = 4000
# More shells deserve a guide of slope -5/3.
_SHELLS_FOR_GUIDE = 16
# The largest distance from -5/3 of the slope of an inertial range.
_SLOPE_TOLERANCE = 0.5


@dataclass(frozen=True)
class Picture:
    """A picture to be drawn: the name of its file, without ending, and what makes its figure."""

    name: str
    draw: Callable[[], Figure]
    # Whether it only repeats what others show.
    is_summary: bool = False
    # Changes of the common style.
    style: Mapping[Any, Any] = field(default_factory=dict)

    def write(self, folder: str | Path, format: str = "png") -> Path:
        """Draw it into a file of a folder, and return its path."""
        with in_our_style(self.style):
            return save_figure(self.draw(), folder, f"{self.name}.{format}")

    def svg(self) -> str:
        """Return it as a part of a page."""
        with in_our_style(self.style):
            return svg_of(laid_out(self.draw()), self.name)

    def write_both(self, folder: str | Path, for_page: bool) -> tuple[Path, str]:
        """Draw it into a PNG file, and for a page as SVG unless it only repeats others."""
        with in_our_style(self.style):
            figure = self.draw()
            path = save_figure(figure, folder, f"{self.name}.png")
            has_svg = for_page and not self.is_summary
            return path, svg_of(figure, self.name) if has_svg else ""


def run_pictures(
    *,
    choice: PictureChoice,
    title: str,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    spectra: Spectra,
    planes: Sequence[FieldPlane],
) -> list[Picture]:
    """Return the pictures for which there are data.

    `series` has a column ``time``, `spectra` are in the order of time. Planes are of the fields
    that the choice names; pictures of other fields are named after them.
    """
    has_curves = len(series.get("time", ())) > 1 and any(n in series for n in choice.columns)
    has_spectrum = len(spectra) > 0 and first_spectrum(spectra, choice) is not None
    labels = axis_labels(labels, choice)
    chosen = {one.field: one for one in choice.planes}
    planes = [
        one for one in planes if one.name not in chosen or _lives(series, chosen[one.name].energy)
    ]

    def curves() -> Figure:
        figure = new_figure((6.4, 5.2), title)
        draw_curves(figure, series, labels, choice)
        return figure

    def spectrum() -> Figure:
        figure = new_figure((6.4, 4.8), title)
        draw_spectrum(figure.subplots(), spectra, labels, choice)
        return figure

    def summary() -> Figure:
        # A tall plane is narrow and leaves its room to the curves.
        widths = [max(0.6, min(1.12, 0.35 + 0.77 / height_over_width(plane))) for plane in planes]
        figure = new_figure((10.0 + 5.0 * len(planes), 5.0), title)
        left, middle, *right = figure.subfigures(
            1, 2 + len(planes), squeeze=False, width_ratios=(1.0, 1.0, *widths), wspace=0.03
        )[0]
        draw_curves(left, series, labels, choice)
        draw_spectrum(middle.subplots(), spectra, labels, choice)
        for part, plane in zip(right, planes, strict=True):
            draw_plane(part.subplots(), plane, labels, chosen.get(plane.name))
        return figure

    pictures = []
    if has_curves:
        pictures.append(Picture(choice.curves_file.removesuffix(".png"), curves))
    if has_spectrum:
        pictures.append(Picture("spectrum", spectrum))
    for plane in planes:
        how = chosen.get(plane.name) or PlaneChoice(plane.name, plane.name)
        draw = partial(plane_figure, plane, title, labels, how)
        pictures.append(Picture(how.file.removesuffix(".png"), draw))
    if has_curves and has_spectrum and planes:
        pictures.append(Picture("summary", summary, is_summary=True))
    return pictures


def _lives(series: Mapping[str, np.ndarray], energy: str) -> bool:
    """Return whether a field, by the column of its energy, is more than round-off at the end."""
    values = series.get(energy, np.zeros(0))
    values = values[np.isfinite(values)]
    return not (len(values) and has_died(float(values[-1]), float(values.max())))


def scalar_pictures(
    *, title: str, scalars: Mapping[str, tuple[np.ndarray, np.ndarray, str]]
) -> list[Picture]:
    """Return the picture of the numbers that users ask for: by name, times, values and label."""
    shown = {
        name: one for name, one in scalars.items() if len(one[0]) > 1 and np.isfinite(one[1]).any()
    }

    def curves() -> Figure:
        figure = new_figure((6.4, 1.2 + 2.1 * len(shown)), title)
        rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for index, (axes, (time, values, label)) in enumerate(
            zip(rows, shown.values(), strict=True)
        ):
            axes.plot(time, values, color=COLOURS[index % 2])
            axes.set_ylabel(in_lines(label), parse_math=False, fontsize="small")
            draw_grid(axes)
        rows[-1].set_xlabel("time $t$")
        figure.align_ylabels(rows)
        return figure

    return [Picture("scalars", curves)] if shown else []


def draw_nothing() -> None:
    """Draw a picture that is not shown, to load fonts and lay out usual labels."""
    with in_our_style():
        figure = new_figure((6.4, 4.8), "title")
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlim=(0.9, 99), ylim=(1e-12, 10))
        axes.set(xlabel="wavenumber $k$", ylabel=r"$k^{-5/3}$")
        figure.savefig(io.BytesIO())


def draw_curves(
    figure: Figure | SubFigure,
    series: Mapping[str, np.ndarray],
    labels: Mapping[str, str],
    choice: PictureChoice,
) -> None:
    """Draw diagnostics against time, panels one above the other."""
    every = [[name for name in panel if name in series] for panel in choice.curves]
    panels = [panel for panel in every if panel]
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    time = series["time"]
    for index, (axes, panel) in enumerate(zip(rows, panels, strict=True)):
        # One curve has the colour of its panel, and several those of all curves.
        colours = COLOURS[index % 2 :] if len(panel) == 1 else COLOURS
        for name, colour in zip(panel, colours, strict=False):
            axes.plot(
                *thinned(time, series[name]),
                color=colour,
                marker="o" if len(time) <= _FEW_ROWS else "",
                markersize=4,
                clip_on=False,
                label=choice.legend.get(name, name.replace("_", " ")),
            )
        _limit_curves(axes, [series[name] for name in panel])
        group = choice.group_labels.get(panel[0]) if len(panel) > 1 else None
        axes.set_ylabel(_with_unit(group, panel[0], choice) if group else labels[panel[0]])
        axes.yaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
        draw_grid(axes)
        if len(panel) > 1:
            legend_inside(axes)
        if choice.peak in panel:
            _mark_peak(axes, time, series[choice.peak], axes.lines[panel.index(choice.peak)])
    rows[-1].set_xlim(time[0], time[-1])
    rows[-1].set_xlabel(choice.time_label)
    figure.align_ylabels(rows)


def thinned(time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a long series reduced to the smallest and largest values of short intervals."""
    bins = len(values) // (_MOST_ROWS // 2)
    if bins < 2:
        return time, values
    whole = len(values) // bins * bins
    rows = values[:whole].reshape(-1, bins)
    known = np.where(np.isfinite(rows), rows, 0.0)
    ends = np.sort([known.argmin(axis=1), known.argmax(axis=1)], axis=0)
    kept = (ends + bins * np.arange(len(rows))).T.ravel()
    # With the last row, and with holes where there are any.
    holes = np.flatnonzero(~np.isfinite(values))[:_MOST_ROWS]
    kept = np.unique(np.concatenate([[0], kept, holes, [len(values) - 1]]))
    return time[kept], values[kept]


def _limit_curves(axes: Axes, curves: Sequence[np.ndarray]) -> None:
    """Show all values and zero, which is drawn if values are on both of its sides."""
    finite = np.concatenate([one[np.isfinite(one)] for one in curves])
    top = float(finite.max(initial=0.0))
    bottom = float(finite.min(initial=0.0))
    if top == bottom:
        top = 1.0
    margin = 0.08 * (top - bottom)
    axes.set_ylim(bottom - margin if bottom < 0 else 0, top + margin if top > 0 else 0)
    if bottom < 0 < top:
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)


def _mark_peak(axes: Axes, time: np.ndarray, values: np.ndarray, line: Line2D) -> None:
    """Mark a maximum inside the run with its time; one at either end is no peak."""
    index = int(np.argmax(values))
    if not 0 < index < len(values) - 1 or not np.isfinite(values).all():
        return
    axes.plot(time[index], values[index], "o", color=line.get_color(), markersize=4.5)
    is_late = time[index] > 0.5 * (time[0] + time[-1])
    axes.annotate(
        f"peak at $t$ = {time[index]:.3g}",
        (time[index], values[index]),
        xytext=(-8 if is_late else 8, 2),
        textcoords="offset points",
        ha="right" if is_late else "left",
        color=GREY,
        fontsize="small",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},
    )


def draw_spectrum(
    axes: Axes, spectra: Spectra, labels: Mapping[str, str], choice: PictureChoice
) -> None:
    """Draw the last spectrum in front of some earlier ones, with a guide if it has such a range.

    Those that the choice names besides are drawn at the last time. Of negative values the magnitude
    is drawn, as hollow points. What is left of a field that has decayed to round-off is not drawn.
    """
    name = first_spectrum(spectra, choice)
    if name is None:
        set_empty_limits(axes)
        return
    shown = [(time, spectrum) for time, spectrum in spectra if name in spectrum]
    totals = [float(np.nansum(np.abs(spectrum[name][1]))) for _, spectrum in shown]
    shown = [
        one for one, total in zip(shown, totals, strict=True) if not has_died(total, max(totals))
    ]
    # A spectrum of one or two waves, as in many initial states, makes no curve.
    shown = [timed for timed in shown[:-1] if len(visible_shells(*timed[1][name])[0]) > 2] + shown[
        -1:
    ]
    shown = [
        (time, {kind: resolved_shells(*curve, choice.cutoff) for kind, curve in spectrum.items()})
        for time, spectrum in shown
    ]
    times = [time for time, _ in shown]
    colours = matplotlib.colormaps[SEQUENCE]
    shade = Normalize(times[0], times[-1] if len(times) > 1 else times[0] + 1)
    for time, spectrum in shown:
        is_last = time == times[-1]
        # The lightest end of the map would vanish on white paper.
        colour = colours(0.12 + 0.88 * shade(time)) if len(times) > 1 else BLUE
        _draw_shells(
            axes,
            *spectrum[name],
            color=colour,
            linewidth=2.4 if is_last else 1.1,
            zorder=3 if is_last else 2,
            label=f"$t$ = {time:.3g}",
        )
    last = shown[-1][1]
    least = _SMALLEST_SHOWN * largest_value(np.abs(last[name][1]))
    besides = [
        other
        for other in choice.spectra
        if other in last and other != name and np.abs(last[other][1]).max(initial=0) > least
    ]
    for number, other in enumerate(besides):
        _draw_shells(
            axes,
            *last[other],
            color=COLOURS[(number + 1) % len(COLOURS)],
            linestyle="--",
            linewidth=1.6,
            zorder=2.5,
            label=choice.legend.get(other, other.replace("_", " ")),
        )
    axes.set(xscale="log", yscale="log")
    wavenumber, values = visible_shells(*last[name])
    if len(values):
        _limit(axes, shown, name)
        if choice.may_have_inertial_range and len(values) > _SHELLS_FOR_GUIDE:
            _draw_guide(axes, wavenumber, values)
    else:
        set_empty_limits(axes)
    mark_cutoff(axes, choice.cutoff)
    axes.set_xlabel("wavenumber $k$")
    axes.set_ylabel(labels.get(name, name))
    # Spectra fall: below their beginning there is room.
    legend_inside(axes, "lower left")


def resolved_shells(
    wavenumber: np.ndarray, values: np.ndarray, cutoff: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shells up to the cutoff; all of them where none is known."""
    wavenumber, values = np.asarray(wavenumber), np.asarray(values)
    kept = wavenumber <= cutoff * (1 + 1e-9) if cutoff else np.ones(wavenumber.shape, bool)
    return wavenumber[kept], values[kept]


@dataclass(frozen=True)
class SpectrumWishes:
    """The requested form of a spectrum; whatever is not requested is empty."""

    # By default the first that the run draws.
    name: str = ""
    # Values are multiplied by this power of the wavenumber: a compensated spectrum.
    power: Fraction = Fraction(0)
    # Whether the average over time is drawn, with a band of its standard error.
    is_average: bool = False
    # When the average begins; by default after the spin-up.
    since: float | None = None

    def label(self, label: str) -> str:
        """Return the label of the axis of values, given the label of the spectrum."""
        return f"$k^{{{self.power}}}$ {label}" if self.power else label

    def compensated(self, wavenumber: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return values times that power of the wavenumber, 0 of the mean."""
        with np.errstate(divide="ignore"):
            factors = np.where(wavenumber > 0, wavenumber, np.inf) ** float(self.power)
        return values * np.where(wavenumber > 0, factors, 0.0)


def spectrum_figure(
    title: str,
    spectra: Spectra,
    labels: Mapping[str, str],
    choice: PictureChoice,
    wishes: SpectrumWishes,
    average: TimeAverage | None = None,
) -> Figure:
    """Return the picture of one spectrum: at several times, or its average."""
    figure = new_figure((6.4, 4.8), title)
    axes = figure.subplots()
    labels = {name: wishes.label(text) for name, text in labels.items()}
    if average is not None:
        over = f"mean, $t$ = {average.since:.3g} to {average.until:.3g}"
        draw_average(axes, average, wishes, choice.cutoff, color=BLUE, label=over)
        finish_spectrum(axes, labels.get(average.name, average.name), [choice.cutoff])
        return figure
    of_one = [
        (time, {name: (k, wishes.compensated(k, values)) for name, (k, values) in one.items()})
        for time, one in spectra
    ]
    how = replace(choice, spectra=(wishes.name,), may_have_inertial_range=not wishes.power)
    draw_spectrum(axes, of_one, labels, how)
    return figure


def draw_average(
    axes: Axes, average: TimeAverage, wishes: SpectrumWishes, cutoff: float, **style: Any
) -> None:
    """Draw an averaged spectrum up to its cutoff, with a band of one standard error."""
    axis = np.asarray(next(iter(average.coordinates.values())))
    wavenumber, mean = visible_shells(*resolved_shells(axis, np.asarray(average.mean), cutoff))
    error = np.asarray(average.error)[np.isin(axis, wavenumber)]
    mean, error = (wishes.compensated(wavenumber, one) for one in (np.abs(mean), error))
    (line,) = axes.plot(wavenumber, mean, **style)
    if np.isfinite(error).all() and len(mean):
        low = np.maximum(mean - error, mean / 100)
        axes.fill_between(
            wavenumber, low, mean + error, color=line.get_color(), alpha=0.25, linewidth=0
        )


def finish_spectrum(
    axes: Axes, label: str, cutoffs: Collection[float], has_room: bool = False
) -> None:
    """Make axes of spectra logarithmic, label them, and mark where spectra end."""
    axes.set(xscale="log", yscale="log")
    if not any(len(np.asarray(line.get_xdata())) for line in axes.lines):
        set_empty_limits(axes)
    if any(cutoffs) and not has_room:
        # The word is above the curves.
        axes.set_ylim(top=4 * axes.get_ylim()[1])
    for cutoff in set(cutoffs):
        mark_cutoff(axes, cutoff)
    label_in_plain_numbers(axes.xaxis)
    axes.set_xlabel("wavenumber $k$")
    axes.set_ylabel(label)
    if axes.get_legend_handles_labels()[1]:
        legend_inside(axes, "lower left")


def mark_cutoff(axes: Axes, cutoff: float) -> None:
    """Mark the wavenumber at which spectra end, since shells beyond it are not whole."""
    if not cutoff:
        return
    axes.axvline(cutoff, color=GREY, linestyle=":", linewidth=1.0, zorder=1)
    axes.annotate(
        "cutoff",
        (cutoff, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-3, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        rotation=90,
        color=GREY,
        fontsize="small",
        # Far outside it would leave no room for the axes.
        annotation_clip=True,
    )


def first_spectrum(spectra: Spectra, choice: PictureChoice) -> str | None:
    """Return the spectrum that is drawn at several times: of those chosen, or else the first."""
    there = spectra[-1][1]
    return next((name for name in (*choice.spectra, *there) if name in there), None)


def _draw_shells(axes: Axes, wavenumber: np.ndarray, values: np.ndarray, **style: Any) -> None:
    wavenumber, values = visible_shells(wavenumber, values)
    is_few = len(values) <= _FEW_SHELLS
    (line,) = axes.plot(wavenumber, np.abs(values), marker="o" if is_few else "", **style)
    below = values < 0
    if below.any():
        axes.plot(
            wavenumber[below],
            -values[below],
            "o",
            color=line.get_color(),
            markerfacecolor="white",
            markersize=4,
            zorder=line.get_zorder(),
            label=f"{line.get_label()}, negative",
        )


def _limit(axes: Axes, shown: Spectra, name: str) -> None:
    """Show all of the last spectrum, and as much of the earlier ones as its range allows."""
    curves = [curve for _, one in shown if len((curve := visible_shells(*one[name]))[0])]
    top = max(largest_value(np.abs(values)) for _, values in curves)
    smallest = float(np.abs(curves[-1][1]).min())
    axes.set_ylim(10.0 ** (math.floor(math.log10(smallest)) - 1), top * 6)
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
    """Draw a line of slope -5/3 a little above the inertial range, if the spectrum has one."""
    first = min(wavenumber[-1], max(2.0, 2 * wavenumber[0]))
    last = max(first, wavenumber[-1] ** 0.75)
    inside = (wavenumber >= first) & (wavenumber <= last) & (values > 0)
    if last < 2 * first or inside.sum() < 4:
        return
    # Beside the spectrum of a laminar flow, or of one in a plane, it would only mislead.
    slope = np.polyfit(np.log(wavenumber[inside]), np.log(values[inside]), 1)[0]
    if abs(slope + 5 / 3) > _SLOPE_TOLERANCE:
        return
    ends = np.array([first, last])
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


def axis_labels(long_names: Mapping[str, str], choice: PictureChoice) -> dict[str, str]:
    """Return the labels of axes: short ones that are known, or the long names in lines."""
    names = dict.fromkeys(choice.columns, "") | dict(long_names)
    return {
        **{
            name: in_lines(text.removesuffix(" (non-dimensional)") or name)
            for name, text in names.items()
        },
        **{name: _with_unit(text, name, choice) for name, text in choice.short_labels.items()},
    }


def _with_unit(label: str, name: str, choice: PictureChoice) -> str:
    return f"{label}\n({choice.units[name]})" if name in choice.units else label


def visible_shells(wavenumber: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of a spectrum that logarithmic axes can show."""
    wavenumber, values = np.asarray(wavenumber), np.asarray(values)
    size = np.abs(values)
    largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    shown = (wavenumber > 0) & (size > _SMALLEST_SHOWN * (largest or 1.0)) & np.isfinite(size)
    return wavenumber[shown], values[shown]
