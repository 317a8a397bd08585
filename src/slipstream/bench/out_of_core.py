"""What benchmarks of arrays on the host share: ways to stream, rates of the bus, and timers.

The bound is the bytes that cross the bus in each direction, over the rate of copies that go both
ways at once, measured in the same run. The synchronous algorithm, of which nothing overlaps, stands
beside the pipelined one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from slipstream.array_types import Comm
from slipstream.bench.harness import (
    Column,
    left_out,
    medians,
    number_of,
    over_ranks,
    show_table,
    text_of,
)
from slipstream.byte_sizes import bytes_text
from slipstream.device import Device, Operation, Stream
from slipstream.errors import InputError
from slipstream.fft import Streaming
from slipstream.report.number_text import quantity
from slipstream.schedule import Timeline

Made = TypeVar("Made")

_BUFFER = 256 << 20
_REPEATED = 8
_PROFILED = 3


@dataclass(frozen=True)
class Variant:
    """One way to stream, by name; the policy "serial" overlaps nothing."""

    name: str
    streaming: Streaming
    schedule: str = "overlap"

    def changed(self, name: str, **options: Any) -> Variant:
        """Return the pipelined variant with other options."""
        return Variant(name, replace(self.streaming, **options))


def variants_of(
    streaming: Streaming,
    schedule: str,
    others: Callable[[Variant, str], Iterable[Variant]] | None,
) -> list[Variant]:
    """Return what is measured: as asked, synchronous, and what a sweep varies, each once."""
    how = f"{streaming.streams} streams" if streaming.streams else "pipelined"
    asked = "synchronous" if schedule == "serial" else how
    first = Variant(f"{asked}, as asked", streaming, schedule)
    result = [first, Variant("synchronous", streaming, "serial")]
    if others is not None:
        result += others(first, how)
    once: dict[tuple[Streaming, str], Variant] = {}
    for one in result:
        once.setdefault((one.streaming, one.schedule), one)
    return list(once.values())


def streams_of_ghost(first: Variant) -> list[Variant]:
    """Return the variants with streams, in place of the pipeline, that GHOST was measured with."""
    return [first.changed(f"{streams} streams", streams=streams) for streams in (1, 2, 4, 8, 16)]


def measure_variants(
    variants: Iterable[Variant],
    make: Callable[[Variant], Made],
    where: Callable[[Made], tuple[Sequence[Device], Device, Comm]],
    measure: Callable[[Variant, Made, Mapping[str, float]], dict[str, Any]],
    seconds: str,
) -> dict[str, Any]:
    """Return rates of the bus, a row for each variant, or why memory has no room. Collective.

    `make` gives what a variant needs, and raises on all ranks alike; `where` says on which devices,
    beside which host. The first variant and the synchronous one, with which others are compared by
    what rows call `seconds`, must be possible.
    """
    rates: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for variant in variants:
        try:
            made = make(variant)
        except InputError as error:
            if not rows or variant.schedule == "serial":
                raise
            left_out[variant.name] = str(error)
            continue
        rates = rates or bus_rates(*where(made))
        rows.append(measure(variant, made, rates))
        del made  # the next one may take as much
        gc.collect()
    synchronous = next(row for row in rows if row["schedule"] == "serial")
    for row in rows:
        row["synchronous / this"] = synchronous[seconds] / row[seconds]
    bus = {way: rate / 1e9 for way, rate in rates.items()}
    return {"bus (GB/s)": bus, "rows": rows, "left out": left_out}


def bus_rates(devices: Sequence[Device], home: Device, comm: Comm) -> dict[str, float]:
    """Return bytes per second in, out, and each way at once, to each device with all at work."""
    lanes: dict[str, list[tuple[Stream, Operation]]] = {"in": [], "out": []}
    for device in devices:
        for way, lane in lanes.items():
            host, there = home.empty((_BUFFER,), np.uint8), device.empty((_BUFFER,), np.uint8)
            host[...] = 1
            pair = (there, host) if way == "in" else (host, there)
            lane.append((device.stream(), device.copy(*pair)))

    def run(*ways: str) -> Callable[[], None]:
        chosen = [one for way in ways for one in lanes[way]]

        def action() -> None:
            for _ in range(_REPEATED):
                for stream, copy in chosen:
                    stream.submit(copy)
            for stream, _ in chosen:
                stream.synchronize()

        return action

    actions = {"in": run("in"), "out": run("out"), "both": run("in", "out")}
    seconds = medians(devices[0], actions, 5, comm)
    return {name: _REPEATED * _BUFFER / one for name, one in seconds.items()}


def bus_bound(
    variant: Variant, sizes: Iterable[int], rates: Mapping[str, float], comm: Comm
) -> tuple[list[float], float]:
    """Return the bytes in and out of each device, the most of a rank, and the bound in seconds."""
    ways = [over_ranks(comm, one, max) / variant.streaming.devices for one in sizes]
    return ways, max(ways) / rates["both"]


def quietest(profile: Callable[[], Timeline]) -> Timeline:
    """Return what ran when in the shortest of some profiled runs: one alone may be disturbed."""
    runs = [Timeline.merged([profile()], forget=True) for _ in range(_PROFILED)]
    return min(runs, key=Timeline.duration)


def timers_of(timeline: Timeline) -> dict[str, Any]:
    """Return busy seconds by category, and those in which nothing else ran."""
    totals = timeline.totals()
    ways = {
        label: sum(e.stop - e.start for e in timeline.entries if e.label == label)
        for label in ("copy in", "copy out")
    }
    return {
        "total": timeline.duration(),
        **totals,
        **ways,
        "exposed": {name: timeline.exposed(name) for name in totals},
    }


def print_variants(
    title: str,
    result: Mapping[str, Any],
    columns: Mapping[str, Column],
    timers: str,
    parts: Sequence[str],
    notes: Iterable[str],
) -> None:
    """Print a row for each variant, with its own columns and the times of parts, and notes."""

    def part(name: str) -> Column:
        return lambda row: quantity(row[timers][name], "s") if name in row[timers] else ""

    shown: dict[str, Column] = {"": text_of("name")}
    # Records of earlier versions say "pencils".
    shown["tiles"] = lambda row: np.max(row.get("tiles") or row["pencils"])
    shown |= columns
    shown["times\nsynchr."] = number_of("synchronous / this", ".2f")
    shown |= {name: part(name) for name in parts}
    show_table(title, shown, result["rows"], [*notes, *left_out(result)])


def bus_notes(result: Mapping[str, Any], what: str) -> list[str]:
    """Return what there is to say of the bus, and of the bound of the first row."""
    rates = ", ".join(f"{name} {rate:.3g}" for name, rate in result["bus (GB/s)"].items())
    first = result["rows"][0]
    sizes = first.get("bytes over the bus, in and out")
    # Records of earlier versions have one number.
    sizes = sizes or [first["bytes each way over the bus"]]
    crossing = " and ".join(map(bytes_text, sizes))
    return [
        f"bus in this run (GB/s, each way): {rates}",
        f"{crossing} cross it in and out{what} {quantity(first['bound (s)'], 's')}",
    ]
