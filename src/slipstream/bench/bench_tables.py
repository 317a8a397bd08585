"""What benchmarks print, and the notation of their options: sizes and lists of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slipstream.byte_sizes import bytes_text
from slipstream.report.console import make_console, quantity

# Ratios of a comparison, and the columns that show them.
PAIRS = {"pair / plain pair": "of plain", "pair / unpruned pair": "of unpruned"}


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def print_figures(title: str, result: Mapping[str, Any]) -> None:
    """Print figures by name, those of a group as ``group: name``."""
    table = Table(title=Text(title), show_header=False, box=box.HORIZONTALS)
    for name, value in result.items():
        inner = value.items() if isinstance(value, Mapping) else [(None, value)]
        for key, one in inner:
            table.add_row(Text(name if key is None else f"{name}: {key}"), Text(_text(one)))
    make_console().print(table, highlight=False)


def print_exchange(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.exchange_bench.measure_exchange` returned."""
    table = Table(title=Text(title), box=box.HORIZONTALS)
    for heading, width in (("pattern", 15), ("transport", 9)):
        table.add_column(heading, min_width=width)
    for heading in ("message", "time", "GB/s per rank", "of limit"):
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in result["rows"]:
        groups.setdefault((row["pattern"], row["transport"]), []).append(row)
    for (pattern, name), rows in groups.items():
        for place, row in enumerate(rows):
            table.add_row(
                "" if place else pattern,
                "" if place else name,
                bytes_text(row["bytes"]),
                quantity(row["seconds"], "s"),
                f"{row['GB/s per rank']:.3g}",
                f"{row['fraction of the limit']:.2f}",
            )
        table.add_section()
    console = make_console()
    console.print(table, highlight=False)
    limits = result["limits (GB/s per rank)"].items()
    text = ", ".join(f"{pattern} {limit:.3g}" for pattern, limit in limits)
    console.print(f"limit (GB/s per rank): {text}; {result['limit']}", highlight=False)
    for reason in result["left out"].values():
        console.print(f"left out: {reason}", highlight=False, markup=False)


def print_fft(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.fft_bench.measure_fft` returned."""
    apart = ("comparison", "notes")
    print_figures(title, {name: value for name, value in result.items() if name not in apart})
    compared = result["comparison"]
    shown = [key for key in PAIRS if any(key in one for one in compared.values())]
    table = Table(title=Text("forward and backward, and pairs of both"), box=box.HORIZONTALS)
    table.add_column("", no_wrap=True)
    for heading in ("forward", "backward", "pair", *(PAIRS[key] for key in shown)):
        table.add_column(heading, justify="right")
    for name, one in compared.items():
        forward, backward = one["forward"], one["backward"]
        times = [quantity(x, "s") for x in (forward, backward, forward + backward)]
        table.add_row(Text(name), *times, *(f"{one[key]:.3g}" for key in shown))
    console = make_console()
    console.print(table, highlight=False)
    for note in result["notes"]:
        console.print(note, highlight=False, markup=False)


def print_advection(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.advection_bench.measure_advection` returned."""
    table = Table(title=Text(title), box=box.HORIZONTALS)
    table.add_column("strategy", no_wrap=True)
    for heading in ("Gpoint/s", "GF", "of copy", "exposed", "lines", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        table.add_row(
            row["strategy"],
            f"{row['Gpoint/s']:.3g}",
            f"{row['GF']:.4g}",
            f"{row['fraction of copy']:.2f}",
            quantity(row["exposed (s per step)"], "s"),
            str(row["lines"]),
            f"{row['error']:.2e}",
        )
    console = make_console()
    console.print(table, highlight=False)
    copies = result["copy bandwidth (B/s)"].items()
    bound = ", ".join(f"{name} {rate / 1e9:.4g} GB/s" for name, rate in copies)
    lines = result["lines"]
    rows = result["rows"]
    ratio = lines["all strategies"] / lines["first two strategies"]
    for line in (
        f"copy bandwidth of all ranks in this run: {bound}",
        "all strategies give the same bits" if result["same bits"] else "strategies DIFFER",
        f"lines of the strategies file: {lines['first two strategies']} for the first two, "
        f"{lines['all strategies']} for all ({ratio:.2f} times)",
        *(f"{row['strategy']}: shell of {row['shell']}" for row in rows if "shell" in row),
        *(f"left out: {name}: {reason}" for name, reason in result["left out"].items()),
    ):
        console.print(line, highlight=False, markup=False)


def print_lattice(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.lattice_bench.measure_lattice` returned."""
    ranks = result["ranks"]
    table = Table(title=Text(title), box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    table.add_column("", max_width=16)
    pair = ("MLUPS", "of\ncopy", "MLUPS\neven/odd", "bytes\neven/odd", "of copy\neven/odd")
    for heading in (*pair, *(("exposed",) if ranks > 1 else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        exposed = [quantity(row["exposed (s per step)"], "s")] if ranks > 1 else []
        table.add_row(
            row["name"],
            _rate(row["MLUPS"]),
            f"{row['fraction of copy, pair']:.2f}",
            " / ".join(_rate(x) for x in row["MLUPS of the two steps"]),
            " / ".join(f"{x:.0f}" for x in row["bytes per update"]),
            " / ".join(f"{x:.2f}" for x in row["fraction of copy"]),
            *exposed,
        )
    console = make_console()
    _print_whole(console, table)
    first = result["rows"][0]
    neighbours = first["most neighbours"]
    for line in (
        "MLUPS: million sites updated per second, by all ranks, in pairs of steps and in even and "
        "odd ones; bytes: an update's; of copy: bytes per second over the copy bandwidth"
        + ("; exposed: communication per step that nothing hides" if ranks > 1 else ""),
        f"{result['pore sites'] / 1e6:.3g} million pore sites, porosity {result['porosity']:.3f}, "
        f"{ranks} rank{'s' * (ranks != 1)}, transport {result['transport']}",
        f"as asked: {first['storage']}; {first['partition']}, {first['schedule']}; "
        f"{_rate(first['MLUPS per device'])} MLUPS a device",
        f"copy bandwidth in this run: {first['copy bandwidth (B/s)'] / 1e9:.4g} GB/s",
        f"imbalance {first['imbalance']:.3f}, at most {neighbours} "
        f"neighbour{'s' * (neighbours != 1)}; "
        f"set-up {first['set-up (s)']:.2f} s = {first['set-up in steps']:.0f} steps",
    ):
        console.print(line, highlight=False, markup=False)


def print_streaming(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.fft_out_of_core_bench.measure_streaming` returned."""
    table = Table(title=Text(title), box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    table.add_column("", no_wrap=True)
    parts = ("copy in", "fft", "copy out", "pack", "communication")
    for heading in ("tiles", "forward", "back", "of bus\nbound", "times\nsynchr.", *parts):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        timers = row["timers of forward (s)"]
        table.add_row(
            row["name"],
            str(max(row["tiles"])),
            *(quantity(one, "s") for one in row["seconds"].values()),
            f"{row['of the bound']['forward']:.2f}",
            f"{row['synchronous / this']:.2f}",
            *(quantity(timers[one], "s") if one in timers else "" for one in parts),
        )
    console = make_console()
    _print_whole(console, table)
    bus = ", ".join(f"{name} {rate:.3g}" for name, rate in result["bus (GB/s)"].items())
    first = result["rows"][0]
    squares = first["error of the sum of squares"]
    for line in (
        result["plan"],
        f"bus in this run (GB/s, each way): {bus}",
        f"{' and '.join(map(bytes_text, first['bytes over the bus, in and out']))} cross it in and "
        f"out: bound {quantity(first['bound (s)'], 's')}, of a forward transform",
        f"largest error of {first['error of sampled modes']:.1e} in 1000 sampled modes"
        + ("" if squares is None else f", {squares:.1e} of the sum of squares"),
        *_left_out(result),
    ):
        console.print(line, highlight=False, markup=False)


def print_streamed_step(title: str, result: Mapping[str, Any]) -> None:
    """Print what `slipstream.bench.dns_out_of_core_bench.measure_streamed_step` returned."""
    table = Table(title=Text(title), box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    table.add_column("", no_wrap=True)
    parts = ("copy in", "fft", "compute", "copy out", "pack", "communication")
    for heading in ("tiles", "step", "of bus\nbound", "times\nsynchr.", *parts):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        timers = row["timers (s)"]
        table.add_row(
            row["name"],
            str(row["tiles"]),
            quantity(row["seconds per step"], "s"),
            f"{row['of the bound']:.2f}",
            f"{row['synchronous / this']:.2f}",
            *(quantity(timers[one], "s") if one in timers else "" for one in parts),
        )
    console = make_console()
    _print_whole(console, table)
    first = result["rows"][0]
    bus = ", ".join(f"{name} {rate:.3g}" for name, rate in result["bus (GB/s)"].items())
    exposed = ", ".join(
        f"{name} {quantity(seconds, 's')}"
        for name, seconds in first["timers (s)"]["exposed"].items()
        if seconds > 0
    )
    for line in (
        f"{result['model']}, {' x '.join(map(str, result['points']))} points, "
        f"{result['precision']}, {result['integrator']}, ranks {result['ranks']}; "
        f"{bytes_text(first['device memory (bytes)'])} of a device",
        f"columns of {first['ky whose columns stay']} of {first['ky']} ky stay there",
        f"bus in this run (GB/s, each way): {bus}",
        f"{' and '.join(map(bytes_text, first['bytes over the bus, in and out']))} cross it in and "
        f"out in a step: bound {quantity(first['bound (s)'], 's')}",
        f"alone, with nothing beside: {exposed or 'nothing'}",
        *_left_out(result),
    ):
        console.print(line, highlight=False, markup=False)


def _left_out(result: Mapping[str, Any]) -> list[str]:
    return [f"left out: {name}: {why}" for name, why in result["left out"].items()]


def _rate(millions: float) -> str:
    """Return a rate with three digits at least, and without powers of ten."""
    return f"{millions:.0f}" if millions >= 1000 else f"{millions:.3g}"


def _print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as its numbers need: lines too long for a screen, but no number cut."""
    needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    width, console.width = console.width, max(console.width, needed)
    console.print(table, highlight=False)
    console.width = width


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "none"
    return " x ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
