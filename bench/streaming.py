"""Ways to stream arrays on the host through devices, and their bound, for steps and transforms.

The bound is the bytes that cross the bus in each direction, at the rate of simultaneous copies in
both directions. For arrays on disk it is the longer of two times: the reads and writes, at the rate
of a drive that gets the same shares of both, and everything else. The synchronous algorithm, which
overlaps nothing, is measured as well as the pipelined one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from bench.harness import (
    Column,
    Measured,
    Request,
    Sweep,
    Way,
    choice,
    measure_ways,
    notes_of,
    option,
    over_ranks,
    show_table,
)
from slipstream.api.forecast.measured_rates import bus_rates, drive_rates
from slipstream.engine import accepted
from slipstream.engine.array_types import Comm
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, bytes_text
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.schedule import StepGraph
from slipstream.engine.text import quantity
from slipstream.fft import Streaming

# An action of arrays on disk.
WITHOUT_DRIVE = "without the drive"
# The timers that a table shows.
_PARTS = ("copy in", "fft", "compute", "copy out", "pack", "communication", "io")


@dataclass(frozen=True, kw_only=True)
class StreamedRequest(Request):
    """The options of benchmarks whose arrays are on the device, on the host or on disk."""

    residency: Annotated[
        str,
        choice(
            accepted.RESIDENCIES,
            "{}; from the host and from disk, arrays stream through the device.",
        ),
    ] = "device"
    scratch: Annotated[
        str | None, option("The folder of arrays with residency disk.", metavar="FOLDER")
    ] = None
    memory: Annotated[
        str | None, option("The memory of a device that a rank may use: 8 GiB.", metavar="SIZE")
    ] = None
    devices: Annotated[int, option("GPUs of a rank.", min=1)] = 1
    sweep: Sweep = False

    @property
    def streaming(self) -> Streaming:
        """The requested way to stream."""
        return Streaming(devices=self.devices)

    @property
    def where(self) -> str:
        """Where the arrays are, for titles."""
        return "on disk" if self.residency == "disk" else "on the host"

    def check_residency(self, more: Mapping[str, bool]) -> None:
        """Refuse an unknown residency, and options that have no effect with it."""
        if self.residency not in accepted.RESIDENCIES:
            names = ", ".join(accepted.RESIDENCIES)
            raise InputError(f"--residency {self.residency!r}; accepted: {names}")
        if self.residency != "disk" and self.scratch is not None:
            raise InputError("--scratch is for --residency disk; leave it out, or ask for that")
        changed = {
            "--memory": self.memory is not None,
            "--devices": self.devices != 1,
            "--sweep": self.sweep,
            **more,
        }
        unused = [name for name, is_changed in changed.items() if is_changed]
        if self.residency == "device" and unused:
            raise InputError(f"{unused[0]} is for --residency host; leave it out, or ask for that")


@dataclass(frozen=True)
class Variant:
    """A named way to stream; the schedule "serial" overlaps nothing."""

    name: str
    streaming: Streaming
    schedule: str = "overlap"


def variants_of(
    streaming: Streaming, schedule: str, sweep: Mapping[str, Mapping[str, Any]] | None
) -> list[Variant]:
    """Return the variants: as requested, synchronous, and those of a sweep, each once.

    A sweep has the changed options of each variant by its name, with the numbers of streams that
    GHOST was measured with.
    """
    how = f"{streaming.streams} streams" if streaming.streams else "pipelined"
    asked = "synchronous" if schedule == "serial" else how
    variants = [
        Variant(f"{asked}, as asked", streaming, schedule),
        Variant("synchronous", streaming, "serial"),
    ]
    if sweep is not None:
        streams = {f"{number} streams": {"streams": number} for number in (1, 2, 4, 8, 16)}
        changes: dict[str, Mapping[str, Any]] = {how: {}, **streams, **sweep}
        variants += [Variant(name, replace(streaming, **one)) for name, one in changes.items()]
    once: dict[tuple[Streaming, str], Variant] = {}
    for variant in variants:
        once.setdefault((variant.streaming, variant.schedule), variant)
    return list(once.values())


def measure_streams(
    variants: Sequence[Variant],
    make: Callable[[Variant, dict[str, float]], Way],
    repetitions: int,
    seconds: str,
) -> tuple[dict[str, Any], Measured]:
    """Return rates of the bus, and a row for each variant or why it was left out. Collective.

    `make` stores the rates in the dict that it gets. The first variant and the synchronous one,
    with which the others are compared by the key `seconds` of rows, must be possible.
    """
    rates: dict[str, float] = {}
    ways = {one.name: partial(make, one, rates) for one in variants}
    needed = {variants[0].name, *(one.name for one in variants if one.schedule == "serial")}
    measured = measure_ways(ways, needed, repetitions)
    synchronous = next(row for row in measured.rows if row["schedule"] == "serial")
    for row in measured.rows:
        row["synchronous / this"] = synchronous[seconds] / row[seconds]
    bus = {way: rate / 1e9 for way, rate in rates.items()}
    return {"bus (GB/s)": bus, "rows": measured.rows, "left out": measured.left_out}, measured


def measure_rates(
    rates: dict[str, float],
    devices: Sequence[Device],
    home: Device,
    comm: Comm,
    moved: tuple[float, float],
) -> None:
    """Measure the drive or the bus of arrays at home, unless the rates are known. Collective."""
    if not rates:
        if isinstance(home, FileHome):
            rates.update(drive_rates(home, comm, moved))
        else:
            rates.update(bus_rates(devices, home, comm))


def streamed_row(
    variant: Variant,
    moved: Iterable[float],
    rates: Mapping[str, float],
    comm: Comm,
    seconds: Mapping[str, float],
    is_simultaneous: bool = True,
) -> dict[str, Any]:
    """Return the figures of every variant: the bytes in and out per device, and the bound."""
    ways = [over_ranks(comm, one, max) / variant.streaming.devices for one in moved]
    one_way = [ways[0] / rates["in"], ways[1] / rates["out"]]
    # A bus has a rate each way, a drive a single one for all that it reads and writes.
    if "both" in rates:
        bound = max(ways) / rates["both"]
    else:
        bound = max(sum(ways) / rates["mixed"], *one_way)
    row = {
        "name": variant.name,
        "schedule": variant.schedule,
        "bytes over the bus, in and out": ways,
        "bound (s)": bound if is_simultaneous else sum(one_way),
    }
    if WITHOUT_DRIVE in seconds:
        alone = seconds[WITHOUT_DRIVE]
        row |= {"bound by the drive (s)": row["bound (s)"], "seconds without the drive": alone}
        row["bound (s)"] = max(row["bound (s)"], alone)
    return row


def without_drive(graph: StepGraph) -> StepGraph:
    """Return a graph whose transfers of files do nothing: it times everything else."""
    graph = copy.copy(graph)
    graph.nodes = [
        replace(node, operation=lambda stream: None) if node.category == "io" else node
        for node in graph.nodes
    ]
    return graph


def print_ways(
    title: str, result: Mapping[str, Any], columns: Mapping[str, Column], timers: str
) -> None:
    """Print a row for each variant with the times of its parts, and the bound of the first one."""

    def part(name: str) -> Column:
        return lambda row: quantity(row[timers][name], "s") if name in row[timers] else ""

    first = result["rows"][0]
    shown: dict[str, Column] = {"": "name", "tiles": lambda row: np.max(row["tiles"])}
    shown |= columns
    shown["times\nsynchr."] = "synchronous / this|.2f"
    shown |= {name: part(name) for name in _PARTS if name in first[timers]}
    moved = " and ".join(map(bytes_text, first["bytes over the bus, in and out"]))
    notes = [f"as asked: {moved} in and out per device, bound {quantity(first['bound (s)'], 's')}"]
    if "seconds without the drive" in first:
        drive, alone = first["bound by the drive (s)"], first["seconds without the drive"]
        longer = "the drive" if drive >= alone else "the rest"
        times = f"{quantity(drive, 's')} by the drive, {quantity(alone, 's')} by the rest"
        notes.append(f"bounds: {times}; {longer} takes longer")
    show_table(title, shown, result["rows"], [*notes, *notes_of(result)])
