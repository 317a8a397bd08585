"""Ways to stream arrays on the host through devices, and their bound: shared by step and transform.

The bound is the bytes that cross the bus in each direction, over the rate of simultaneous copies in
both directions, measured in the same run. The synchronous algorithm, which overlaps nothing, is
measured as well as the pipelined one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bench.harness import (
    Column,
    Measured,
    Way,
    left_out,
    measure_ways,
    over_ranks,
    show_table,
)
from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.fft import Streaming
from slipstream.report.number_text import quantity
from slipstream.schedule import StepGraph

# A further variant of arrays on disk.
WITHOUT_DRIVE = "without the drive"


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
    """Return the variants: as requested, synchronous, and those of a sweep, each once."""
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


def measure_streams(
    variants: Sequence[Variant],
    make: Callable[[Variant, dict[str, float]], Way],
    repetitions: int,
    seconds: str,
) -> tuple[dict[str, Any], Measured]:
    """Return rates of the bus, a row for each variant, or why there is none. Collective.

    `make` writes the rates of the bus, beside what it makes first, into the dict that it gets. The
    first variant and the synchronous one, with which others are compared by what rows call
    `seconds`, must be possible.
    """
    rates: dict[str, float] = {}
    ways = {one.name: partial(make, one, rates) for one in variants}
    needed = {variants[0].name, *(one.name for one in variants if one.schedule == "serial")}
    found = measure_ways(ways, needed, repetitions)
    synchronous = next(row for row in found.rows if row["schedule"] == "serial")
    for row in found.rows:
        row["synchronous / this"] = synchronous[seconds] / row[seconds]
    bus = {way: rate / 1e9 for way, rate in rates.items()}
    return {"bus (GB/s)": bus, "rows": found.rows, "left out": found.left_out}, found


def streamed_row(
    variant: Variant,
    sizes: Iterable[float],
    rates: Mapping[str, float],
    comm: Comm,
    goes_both_ways: bool = True,
) -> dict[str, Any]:
    """Return what rows of all variants have: the bytes in and out of each device, and the bound."""
    ways = [over_ranks(comm, one, max) / variant.streaming.devices for one in sizes]
    one_way = [ways[0] / rates["in"], ways[1] / rates["out"]]
    one_by_one = sum(one_way)
    # A bus has a rate each way; a drive one for all that it reads and writes.
    both = max(ways) / rates["both"] if "both" in rates else sum(ways) / rates["mixed"]
    if "mixed" in rates:
        both = max(both, *one_way)
    return {
        "name": variant.name,
        "schedule": variant.schedule,
        "bytes over the bus, in and out": ways,
        "bound (s)": both if goes_both_ways else one_by_one,
    }


def without_drive(graph: StepGraph) -> StepGraph:
    """Return a graph whose transfers of files do nothing: what all else takes."""
    graph = copy.copy(graph)
    graph.nodes = [
        replace(node, operation=lambda stream: None) if node.category == "io" else node
        for node in graph.nodes
    ]
    return graph


def bounds_of_drive(row: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the two bounds of arrays on disk, and the longer one; nothing of others."""
    if WITHOUT_DRIVE not in seconds:
        return {}
    drive, alone = row["bound (s)"], seconds[WITHOUT_DRIVE]
    return {
        "bound by the drive (s)": drive,
        "seconds without the drive": alone,
        "bound (s)": max(drive, alone),
    }


def drive_notes(row: Mapping[str, Any]) -> list[str]:
    """Return which of two bounds arrays on disk have: the drive, or all else."""
    if "seconds without the drive" not in row:
        return []
    drive, alone = row["bound by the drive (s)"], row["seconds without the drive"]
    holds = "the drive" if drive >= alone else "all else"
    bounds = f"{quantity(drive, 's')} by the drive, {quantity(alone, 's')} by all else"
    return [f"bounds: {bounds}; {holds} takes longer"]


def print_ways(
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

    shown: dict[str, Column] = {"": "name"}
    # Records of earlier versions say "pencils".
    shown["tiles"] = lambda row: np.max(row.get("tiles") or row["pencils"])
    shown |= columns
    shown["times\nsynchr."] = "synchronous / this|.2f"
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
    is_drive = "mixed" in result["bus (GB/s)"]
    name = "drive in this run (GB/s)" if is_drive else "bus in this run (GB/s, each way)"
    return [
        f"{name}: {rates}",
        f"{crossing} cross it in and out{what} {quantity(first['bound (s)'], 's')}",
    ]
