"""Pictures of the statistics of the last state: one for each kind that was written.

Where there is no room for all fields the first vector is drawn; files have the rest. Also pictures
of the densities that users choose, with conditional means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from slipstream.engine.fields import Field, PictureChoice
from slipstream.engine.text import one_line
from slipstream.show.field_planes import INTENSITY, colour_scale
from slipstream.show.figure_style import (
    BLUE,
    COLOURS,
    GREY,
    in_lines,
    label_in_plain_numbers,
    largest_value,
    legend_inside,
    new_figure,
    set_empty_limits,
)
from slipstream.show.run_pictures import Picture, mark_cutoff, resolved_shells

Fields = Mapping[str, Field]

# Decades of a spectrum that are shown.
_DECADES = 12
# The quantile of conditional means that gets the last colour: bins of few points have any value.
_BRIGHTEST = 0.98
_TITLES = {
    "component": "fields",
    "curl": "curl",
    "derivative": "derivatives along their own axes",
}


def statistics_pictures(
    *,
    title: str,
    statistics: Mapping[str, tuple[float, Fields]],
    choice: PictureChoice | None = None,
) -> list[Picture]:
    """Return a picture of each kind of statistics; the choice gives the order of the fields."""
    cutoff = choice.cutoff if choice else 0.0
    order = [name.removesuffix("_spectrum") for name in (choice.spectra if choice else ())]
    return [
        Picture(kind, partial(_figure, title, kind, time, _in_order(fields, order), cutoff))
        for kind, (time, fields) in statistics.items()
    ]


def density_pictures(
    *, title: str, densities: Mapping[str, tuple[float, Sequence[str], Fields]]
) -> list[Picture]:
    """Return a picture of each density that users choose, with means where there are any.

    Each, by the name of its store, has a time, one or two variables, and fields: the density and
    then the means.
    """
    return [
        Picture(
            stem if stem.endswith("-density") else f"{stem}-density",
            partial(_density_figure, title, *one),
        )
        for stem, one in densities.items()
    ]


def _density_figure(title: str, time: float, of: Sequence[str], fields: Fields) -> Figure:
    """Draw the density of one variable or two, and the conditional means of others."""
    figure = new_figure((5.4 * len(fields), 4.6), _headline(title, time))
    names = "density", *sorted(name for name in fields if name != "density")
    for axes, name in zip(_panels(figure, len(fields)), names, strict=True):
        field = fields[name]
        label, values = in_lines(str(field.attributes["long_name"])), field.data
        axes.set_xlabel(in_lines(of[0]), parse_math=False)
        if len(of) == 1:
            shown = np.where(values > 0, values, np.nan) if name == "density" else values
            axes.plot(_along(field), shown, color=BLUE, marker=".", markersize=3)
            axes.set_ylabel(label, parse_math=False)
            if name == "density" and np.isfinite(shown).any():
                axes.set_yscale("log")
            continue
        axes.set_ylabel(in_lines(of[1]), parse_math=False)
        if name == "density":
            bar = _draw_mesh(axes, field, *_on_log_scale(values))
        else:
            scale, seen = colour_scale(values, _BRIGHTEST), np.ma.masked_invalid(values)
            norm = Normalize(scale.low, scale.high)
            bar = _draw_mesh(axes, field, seen, norm, scale.map_name, scale.extend)
        bar.set_label(label, parse_math=False)
    return figure


def _headline(title: str, time: float) -> str:
    return ",  ".join(filter(None, [one_line(title), f"t = {time:.4g}"]))


def _in_order(fields: Fields, order: Sequence[str]) -> Fields:
    """Return statistics in an order that does not depend on how they were written."""

    def place(name: str) -> tuple[int, int, str]:
        of = next((n for n, field in enumerate(order) if name.startswith(f"{field}_")), len(order))
        kind = list(_TITLES).index(str(fields[name].attributes.get("kind", "component")))
        return of, kind, name

    return {name: fields[name] for name in sorted(fields, key=place)}


def _figure(title: str, kind: str, time: float, fields: Fields, cutoff: float = 0.0) -> Figure:
    kinds: dict[str, tuple[Callable[[Figure, Fields], None], tuple[float, float]]] = {
        "transfer": (partial(draw_transfer, cutoff=cutoff), (6.4, 5.6)),
        "anisotropic": (draw_anisotropic, (10.4, 4.8)),
        "correlation": (draw_correlations, (6.4, 4.8)),
        "structure": (draw_structure, (10.4, 4.8)),
        "pdf": (draw_densities, (12.4, 4.6)),
    }
    draw, size = kinds[kind]
    figure = new_figure(size, _headline(title, time))
    draw(figure, fields)
    return figure


def draw_transfer(figure: Figure, fields: Fields, cutoff: float = 0.0) -> None:
    """Draw the flux of energy, and below it the transfer to each shell, against wavenumbers.

    Both end at the cutoff.
    """
    rows = figure.subplots(2, 1, sharex=True)
    labels = (r"flux $\Pi(k)$", "transfer to a shell $T(k)$")
    for axes, ending, quantity in zip(rows, ("_flux", "_transfer"), labels, strict=True):
        axes.axhline(0, color=GREY, linewidth=0.8)
        for number, field in enumerate(one for n, one in fields.items() if n.endswith(ending)):
            name = field.name.removesuffix(ending).replace("_", " ")
            wavenumber, values = resolved_shells(_along(field), field.data, cutoff)
            shown = wavenumber > 0
            label = "all fields" if name == "energy" else name
            _draw_curve(axes, wavenumber[shown], values[shown], number, label, markersize=4)
        axes.set_ylabel(quantity)
        axes.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
        mark_cutoff(axes, cutoff)
    if len(fields) > 2:
        legend_inside(rows[0])
    rows[-1].set_xscale("log")
    label_in_plain_numbers(rows[-1].xaxis)
    rows[-1].set_xlabel("wavenumber $k$")
    figure.align_ylabels(rows)


def _draw_curve(
    axes: Axes, x: np.ndarray, y: np.ndarray, number: int, label: str | None, **style: Any
) -> None:
    """Draw points with lines between them, in the colour that has a number."""
    how: dict[str, Any] = {"marker": ".", "markersize": 5, "linestyle": "-"} | style
    axes.plot(x, y, color=COLOURS[number % len(COLOURS)], label=label, **how)


def _along(field: Field) -> np.ndarray:
    return field.coordinates[field.dims[0]]


def draw_anisotropic(figure: Figure, fields: Fields) -> None:
    """Draw the energy over wavenumbers across and along z, and over each of them alone."""
    both = fields["energy_spectrum"]
    # A box of one plane or one column has no map over two wavenumbers.
    is_map = min(both.shape) > 1
    *maps, axes = _panels(figure, 1 + is_map)
    for panel in maps:
        bar = _draw_mesh(panel, both, *_on_log_scale(both.data))
        bar.set_label(r"energy $E(k_\perp, k_\parallel)$")
        panel.set(xlabel=r"$k_\perp$, across $z$", ylabel=r"$k_\parallel$, along $z$")
        panel.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    least = largest_value(both.data) * 10.0**-_DECADES
    for number, (name, label) in enumerate(
        (("perpendicular", r"over $k_\perp$"), ("parallel", r"over $k_\parallel$"))
    ):
        field = fields[f"energy_spectrum_{name}"]
        shown = (_along(field) > 0) & (field.data > least)
        if shown.any():
            _draw_curve(axes, _along(field)[shown], field.data[shown], number, label)
    _logarithmic(axes)
    axes.set(xlabel="wavenumber", ylabel="energy per shell")
    if axes.lines:
        legend_inside(axes, "lower left")


def _on_log_scale(values: np.ndarray) -> tuple[np.ndarray, LogNorm]:
    """Return the values that a logarithmic scale shows, others masked, and that scale."""
    top = largest_value(values)
    seen = np.ma.masked_less_equal(values, top * 10.0**-_DECADES)
    return seen, LogNorm(min(seen.min(), top / 10) if seen.count() else top / 10, top)


def _draw_mesh(
    axes: Axes,
    field: Field,
    seen: np.ndarray,
    norm: Normalize,
    colours: str = INTENSITY,
    extend: str = "neither",
) -> Colorbar:
    """Draw values over the two coordinates of a field; return the bar of their colours."""
    along_x, along_y = (field.coordinates[name] for name in field.dims)
    image = axes.pcolormesh(
        along_x, along_y, seen.T, shading="nearest", cmap=colours, norm=norm, rasterized=True
    )
    bar = axes.figure.colorbar(image, ax=axes, extend=extend, fraction=0.046, pad=0.02)
    bar.outline.set_visible(False)
    return bar


def draw_correlations(figure: Figure, fields: Fields) -> None:
    """Draw correlations of the first field along all axes, over those at no separation."""
    axes, first = figure.subplots(), next(iter(fields))
    stem = first.rsplit("_", 2)[0]
    axes.axhline(0, color=GREY, linewidth=0.8)
    kinds = {"longitudinal": "-", "transverse": "--", "correlation": "-"}
    for number, axis in enumerate("xyz"):
        for kind, style in kinds.items():
            field = fields.get(f"{stem}_{kind}_{axis}")
            if field is not None and field.data[0] > 0:
                label = f"along ${axis}$" if style == "-" else None
                values = field.data / field.data[0]
                _draw_curve(axes, _along(field), values, number, label, linestyle=style, marker="")
    if f"{stem}_transverse_{first[-1]}" in fields:
        axes.set_title("longitudinal (lines), transverse (dashes)")
    axes.set(xlabel="separation $r$", ylabel=f"correlation of {stem.replace('_', ' ')}")
    if axes.get_legend_handles_labels()[1]:
        legend_inside(axes)


def draw_structure(figure: Figure, fields: Fields) -> None:
    """Draw structure functions along one axis, and the third order along all of them."""
    powers = [name for name in fields if "_third_" not in name]
    first = next((name for name in powers if "_longitudinal_" in name), powers[0])
    stem, axis = first.rsplit("_", 1)
    name, kind = stem.rsplit("_", 1)
    is_vector = kind == "longitudinal"
    axes, *right = _panels(figure, 1 + is_vector)
    curves = [(fields[first], "-")]
    if is_vector:
        curves.append((fields[f"{name}_transverse_{axis}"], "--"))
        axes.set_title("longitudinal (lines), transverse (dashes)")
        _draw_third_order(right[0], fields, name)
    for field, style in curves:
        separation = field.coordinates[field.dims[1]]
        for number, values in enumerate(field.data):
            label = f"$p$ = {number + 1}" if style == "-" else None
            values = np.where(values > 0, values, np.nan)
            _draw_curve(axes, separation, values, number, label, linestyle=style)
    _logarithmic(axes)
    name = name.replace("_", " ")
    axes.set(
        xlabel=f"separation $r$ along ${axis}$",
        ylabel=rf"$\langle |\delta u|^p \rangle$ of {name}",
    )
    legend_inside(axes, "lower right", columns=2)


def _draw_third_order(axes: Axes, fields: Fields, name: str) -> None:
    axes.axhline(0, color=GREY, linewidth=0.8)
    for number, axis in enumerate("xyz"):
        field = fields.get(f"{name}_longitudinal_third_{axis}")
        if field is not None:
            separation = _along(field)
            values = -field.data / separation
            _draw_curve(axes, separation, values, number, f"along ${axis}$")
    axes.set_xscale("log")
    label_in_plain_numbers(axes.xaxis)
    axes.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    name = name.replace("_", " ")
    axes.set(
        xlabel="separation $r$",
        ylabel=rf"$-\langle \delta u_\parallel^3 \rangle / r$ of {name}",
    )
    legend_inside(axes)


def draw_densities(figure: Figure, fields: Fields) -> None:
    """Draw probability densities in panels of fields, curls and derivatives."""
    every = {
        name.removesuffix("_pdf"): field
        for name, field in fields.items()
        if "kind" in field.attributes
    }
    # A constant field, such as the third component of a plane flow, is not worth drawing.
    shown = {
        name: field for name, field in every.items() if fields[f"{name}_rms"].data > 0
    } or every
    kinds = dict.fromkeys(str(field.attributes["kind"]) for field in shown.values())
    panels = _panels(figure, len(kinds), sharey=True)
    for axes, kind in zip(panels, kinds, strict=True):
        of_kind = {name: field for name, field in shown.items() if field.attributes["kind"] == kind}
        _draw_panel(axes, of_kind)
        axes.set_title(_TITLES[kind])
    present = np.concatenate([field.data[field.data > 0] for field in shown.values()])
    farthest = max(float(np.abs(_along(f)[f.data > 0]).max()) for f in shown.values())
    # Leave room for legends above the curves.
    panels[0].set(yscale="log", ylim=(present.min() / 2, 30 * present.max()))
    for axes in panels:
        axes.set_xlim(-1.1 * farthest, 1.1 * farthest)
    panels[0].set_ylabel("probability density")


def _draw_panel(axes: Axes, densities: Fields) -> None:
    value = next(iter(densities.values())).coordinates["value"]
    gaussian = np.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
    axes.plot(value, gaussian, "--", color=GREY, linewidth=1.2, label="Gaussian")
    for number, (name, field) in enumerate(densities.items()):
        dashes = "-" if number < len(COLOURS) else ":"
        style = {"linewidth": 1.2, "markersize": 3, "linestyle": dashes}
        values = np.where(field.data > 0, field.data, np.nan)
        _draw_curve(axes, value, values, number, name.replace("_", " "), **style)
    axes.set_xlabel("distance from the mean\n(in root mean squares)")
    axes.legend(
        fontsize="x-small", handlelength=1.2, loc="upper right", ncols=1 + (len(densities) > 5)
    )


def _panels(figure: Figure, count: int, sharey: bool = False) -> list[Axes]:
    """Return panels side by side, in a figure that is as wide as they need."""
    if count == 1:
        figure.set_size_inches(6.4, 4.8)
    return list(figure.subplots(1, count, squeeze=False, sharey=sharey)[0])


def _logarithmic(axes: Axes) -> None:
    if not any(np.any(np.asarray(line.get_ydata()) > 0) for line in axes.lines):
        set_empty_limits(axes)
    axes.set(xscale="log", yscale="log")
    label_in_plain_numbers(axes.xaxis)
    axes.yaxis.set_minor_formatter(NullFormatter())
