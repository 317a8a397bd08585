"""How fast ranks exchange, device to device: by pattern, by transport and by size of message.

Three patterns, as in figure 4 of Shaiek, Tomov, Ayala et al., FFT-ECP (2019): one rank sends to
another, two send to each other, all send to all. What counts is the bytes that leave one rank in a
second, beside the limit of the same machine in the same run. All transports execute the same plans,
and are timed in turn, so that they see the same noise. Messages are counted, too: those to other
nodes, and those within the node.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.bench.comparison import headline
from slipstream.bench.harness import (
    Outcome,
    copy_bandwidth,
    draw_rules,
    mark_ticks,
    medians,
    number_of,
    picture,
    repeated,
    seconds_of,
    show_table,
    wait_idly,
)
from slipstream.bench.requests import ExchangeRequest
from slipstream.byte_sizes import bytes_text
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import (
    TRANSPORTS,
    Block,
    ExchangePlan,
    Transport,
    make_transport,
)
from slipstream.exchange.communicators import RANKS_PER_NODE, node_numbers
from slipstream.exchange.transport_registry import can_aggregate, transport_class
from slipstream.schedule import StepGraph, commit

PATTERNS = ("uni-directional", "bi-directional", "all-to-all")
ELEMENT = np.dtype("float64")
WHAT, WHERE = ("messages", "bytes"), ("to other nodes", "within the node")
_COUNTED = "to other nodes, within the node: messages and bytes of the rank that sends most"
_MOST_TICKS = 5
# A timing lasts at least so many seconds: less is mostly the start of a loop and its noise.
_SHORTEST_TIMING = 1.5e-3
_MOST_REPEATS = 1000
# What the arrays may take of the memory that is free.
_SHARE_OF_MEMORY = 0.8

LIMITS = {
    "cpu": "half the copy bandwidth of the ranks that send, all at once, as a message is read and "
    "written at least once and a copy counts both; messages that stay in cache, and libraries that "
    "write past it, may exceed this",
    "gpu": "the largest uni-directional rate of this run, by any transport",
}


def run(request: ExchangeRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    with told_ranks_per_node(request.ranks_per_node):
        result = measure_exchange(request, device, comm)
    title = f"exchange between {comm.size} ranks on {device.name}"
    draw = [(request.plot, partial(plot_exchange, result=result))]
    headlines = {
        f"{row['pattern']}, {row['transport']}, {row['bytes']} bytes": headline(row["seconds"])
        for row in result["rows"]
    }
    return Outcome("exchange", title, device, result, print_exchange, draw, headlines=headlines)


@contextlib.contextmanager
def told_ranks_per_node(ranks: int | None) -> Iterator[None]:
    """Take so many ranks for a node meanwhile; None for what the environment says."""
    before = os.environ.get(RANKS_PER_NODE)
    if ranks is not None:
        os.environ[RANKS_PER_NODE] = str(ranks)
    try:
        yield
    finally:
        if ranks is not None:
            del os.environ[RANKS_PER_NODE]
            os.environ.update({} if before is None else {RANKS_PER_NODE: before})


def senders_and_receivers(pattern: str, ranks: int) -> list[tuple[int, int]]:
    """Return who sends to whom in a pattern, as pairs of ranks."""
    if pattern == "uni-directional":
        return [(0, 1)]
    if pattern == "bi-directional":
        return [(0, 1), (1, 0)]
    return [(s, r) for s in range(ranks) for r in range(ranks) if s != r]


def pattern_plan(pattern: str, rank: int, ranks: int, elements: int) -> ExchangePlan:
    """Return one rank's plan of a pattern, in which nobody sends to itself."""
    pairs = senders_and_receivers(pattern, ranks)

    def blocks(own: int, other: int) -> tuple[Block, ...]:
        mine = [pair for pair in pairs if pair[own] == rank]
        starts = [(sender * ranks + receiver) * elements for sender, receiver in mine]
        return tuple(
            Block(pair[other], Box((start,), (start + elements,)), place * elements, elements)
            for place, (pair, start) in enumerate(zip(mine, starts, strict=True))
        )

    sends, receives = blocks(0, 1), blocks(1, 0)
    return ExchangePlan(rank, sends, receives, len(sends) * elements, len(receives) * elements)


class ExchangeTimer:
    """Times exchanges over several transports, side by side. Collective, like its methods.

    InputError says if arrays for messages of so many bytes do not fit into memory.
    """

    def __init__(
        self, device: Device, comm: Comm, transports: Mapping[str, Transport], largest: int
    ) -> None:
        self.device, self.comm, self.transports = device, comm, dict(transports)
        elements = (comm.size - 1) * (largest // ELEMENT.itemsize)
        _check_memory(device, comm, 2 * len(self.transports) * elements * ELEMENT.itemsize, largest)
        self._arrays = {
            name: [_filled(device, transport.empty((elements,), ELEMENT)) for _ in range(2)]
            for name, transport in self.transports.items()
        }
        # Of the exchanges timed last: receiver and bytes of what this rank sends.
        self.messages: dict[str, list[tuple[int, int]]] = {}

    def seconds(self, pattern: str, size: int, repetitions: int) -> dict[str, float]:
        """Return the median seconds of one exchange over each transport, of the slowest rank."""
        elements = size // ELEMENT.itemsize
        plan = pattern_plan(pattern, self.comm.rank, self.comm.size, elements)
        runs = {name: self._exchange(name, plan) for name in self.transports}
        # The first exchanges make connections, and tell how many make one timing.
        single = medians(self.device, runs, 3, self.comm)
        repeats = {
            name: min(_MOST_REPEATS, max(1, math.ceil(_SHORTEST_TIMING / one)))
            for name, one in single.items()
        }
        actions = {name: repeated(run, repeats[name]) for name, run in runs.items()}
        timed = medians(self.device, actions, repetitions, self.comm)
        return {name: seconds / repeats[name] for name, seconds in timed.items()}

    def _exchange(self, name: str, plan: ExchangePlan) -> Callable[[], None]:
        graph, (source, target) = StepGraph(self.device), self._arrays[name]
        pair = source[: plan.send_size], target[: plan.receive_size]
        exchange = self.transports[name].prepare(plan, [pair], whole=True)
        exchange.record_close(graph, "exchange")
        self.messages[name] = exchange.messages()
        return commit(graph, "overlap").run


def measure_exchange(request: ExchangeRequest, device: Device, comm: Comm) -> dict[str, Any]:
    """Return limits, why transports were left out, and a row for each exchange. Collective."""
    if comm is None or comm.size < 2:
        raise InputError("exchanges need at least 2 ranks; start them with --ranks 2")
    transports, skipped = usable_transports(request.transports, device, comm)
    limits = _copy_limits(device, comm) if device.kind == "cpu" else {}
    timer = ExchangeTimer(device, comm, transports, max(request.sizes))
    nodes = node_numbers(comm)
    rows: list[dict[str, Any]] = []
    for pattern in PATTERNS:
        messages = comm.size - 1 if pattern == "all-to-all" else 1
        for size in request.sizes:
            for name, seconds in timer.seconds(pattern, size, request.repetitions).items():
                counted = _most_messages(timer.messages[name], nodes, comm)
                rate = messages * size / seconds
                rows.append(
                    {
                        "pattern": pattern,
                        "transport": name,
                        "bytes": size,
                        "seconds": seconds,
                        "GB/s per rank": rate / 1e9,
                        **counted,
                    }
                )
    if not limits:
        fastest = max(r["GB/s per rank"] for r in rows if r["pattern"] == "uni-directional")
        limits = dict.fromkeys(PATTERNS, fastest * 1e9)
    for row in rows:
        row["fraction of the limit"] = row["GB/s per rank"] * 1e9 / limits[row["pattern"]]
    return {
        "ranks": comm.size,
        "nodes": len(set(nodes)),
        "repetitions": request.repetitions,
        "limit": LIMITS[device.processor],
        "limits (GB/s per rank)": {name: rate / 1e9 for name, rate in limits.items()},
        "left out": skipped,
        "rows": rows,
    }


def _most_messages(
    messages: Iterable[tuple[int, int]], nodes: Sequence[int], comm: Comm
) -> dict[str, int]:
    """Return what the rank with most of it sends to other nodes and within its own. Collective."""
    counts = dict.fromkeys((f"{what} {where}" for where in WHERE for what in WHAT), 0)
    for peer, size in messages:
        where = WHERE[nodes[peer] == nodes[comm.rank]]
        for what, one in zip(WHAT, (1, size), strict=True):
            counts[f"{what} {where}"] += one
    everyone = comm.allgather(counts)
    return {name: max(one[name] for one in everyone) for name in counts}


def usable_transports(
    names: Sequence[str], device: Device, comm: Comm
) -> tuple[dict[str, Transport], dict[str, str]]:
    """Make some transports, or all that are usable; return why others are not. Collective."""
    made: dict[str, Transport] = {}
    skipped: dict[str, str] = {}
    for name in names or TRANSPORTS:
        same = transport_class(name).without_gpu if name in TRANSPORTS else None
        if not names and device.kind == "cpu" and same:
            skipped[name] = f"transport {name!r} is the same as {same!r} without a GPU"
            continue
        if not names and transport_class(name).aggregates and not can_aggregate(comm):
            skipped[name] = f"transport {name!r} is for several ranks on each of several nodes"
            continue
        try:
            transport = make_transport(name, comm, device)
        except InputError as error:
            skipped[name] = str(error)
            continue
        if transport is not None:
            made.setdefault(transport.name, transport)
    if not made:
        raise InputError("no transport is usable here: " + "; ".join(skipped.values()))
    return made, skipped


def _copy_limits(device: Device, comm: Comm) -> dict[str, float]:
    """Return half the copy bandwidth of one rank, in bytes per second, while all senders copy."""
    measure, limits = copy_bandwidth(device), {}
    for pattern in PATTERNS:
        senders = {sender for sender, _ in senders_and_receivers(pattern, comm.size)}
        comm.Barrier()
        mine = measure() if comm.rank in senders else math.inf
        wait_idly(comm)
        limits[pattern] = min(comm.allgather(mine)) / 2
    return limits


def _check_memory(device: Device, comm: Comm, wanted: int, largest: int) -> None:
    """Raise InputError on all ranks if ranks want more than there is where they are."""
    facts = comm.allgather((device.identity, device.memory_free()))
    sharing = [identity for identity, _ in facts]
    fits = min(_SHARE_OF_MEMORY * free / sharing.count(identity) for identity, free in facts)
    if wanted > fits:
        at_most = int(largest * fits / wanted) >> 20
        raise InputError(
            f"messages of {largest} bytes need {wanted / 2**30:.3g} GiB on every rank; "
            f"at most --largest {at_most}MiB fits"
        )


def _filled(device: Device, array: Array) -> Array:
    """Fill an array with random numbers: zeros, and memory never written, would be flattered."""
    values = np.random.default_rng(0).random(min(array.size, 1 << 20))
    for start in range(0, array.size, values.size):
        part = array[start : start + values.size]
        device.run(device.copy(part, values[: part.size]))
    return array


def print_exchange(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each exchange, and the limits."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        group = groups.setdefault((row["pattern"], row["transport"]), [])
        group.append({**row, "is first": not group})
    for group in groups.values():
        group[-1]["ends group"] = True
    limits = result["limits (GB/s per rank)"].items()
    text = ", ".join(f"{pattern} {limit:.3g}" for pattern, limit in limits)
    counted = {
        where: lambda row, where=where: (
            f"{row[f'messages {where}']}, {bytes_text(row[f'bytes {where}'])}"
        )
        for where in WHERE
        if result["nodes"] > 1
    }
    show_table(
        title,
        {
            "pattern": lambda row: row["pattern"] if row["is first"] else "",
            "transport": lambda row: row["transport"] if row["is first"] else "",
            "message": lambda row: bytes_text(row["bytes"]),
            "time": seconds_of("seconds"),
            "GB/s per rank": number_of("GB/s per rank"),
            "of limit": number_of("fraction of the limit", ".2f"),
            **counted,
        },
        [row for group in groups.values() for row in group],
        [
            f"limit (GB/s per rank): {text}; {result['limit']}",
            *([_COUNTED] if counted else []),
            *(f"left out: {reason}" for reason in result["left out"].values()),
        ],
        left=2,
    )


def plot_exchange(path: str | Path, title: str, result: Mapping[str, Any]) -> None:
    """Draw bandwidth per rank against size of message, a panel for each pattern."""
    names = list(dict.fromkeys(row["transport"] for row in result["rows"]))
    with picture(path, (9.6, 4.0), title) as figure:
        panels = figure.subplots(1, len(PATTERNS), sharex=True, sharey=True)
        for axes, pattern in zip(panels, PATTERNS, strict=True):
            _draw_pattern(axes, pattern, names, result)
        panels[0].set_ylabel("sent per rank (GB/s)")
        panels[0].set_ylim(bottom=0)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names) + 1
        )


def _draw_pattern(axes: Any, pattern: str, names: list[str], result: Mapping[str, Any]) -> None:
    from slipstream.report.figure_style import GREY
    from slipstream.schedule.timeline import COLOURS

    # Colours for colour-blind readers, and a mark each for those of a grey print.
    categories = ("fft", "communication", "compute", "pack", "copy", "io")
    lines = [(COLOURS[one], mark) for one, mark in zip(categories, "os^DvP", strict=True)]
    for number, name in enumerate(names):
        colour, mark = lines[number % len(lines)]
        rows = [r for r in result["rows"] if (r["pattern"], r["transport"]) == (pattern, name)]
        axes.plot(
            [row["bytes"] for row in rows],
            [row["GB/s per rank"] for row in rows],
            color=colour,
            marker=mark,
            markersize=4.5,
            label=name,
        )
    limit = result["limits (GB/s per rank)"][pattern]
    axes.axhline(limit, color=GREY, linestyle="--", linewidth=1.2, label="limit")
    sizes = sorted({row["bytes"] for row in result["rows"]})
    axes.set_title(pattern)
    axes.set_xscale("log", base=2)
    every = -(-len(sizes) // _MOST_TICKS)
    mark_ticks(axes.xaxis, sizes[::every], bytes_text)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.set_xlabel("message between two ranks")
    draw_rules(axes)
