"""The bandwidth of exchanges between ranks, by pattern, transport and size of message.

Three patterns, as in figure 4 of Shaiek, Tomov, Ayala et al., FFT-ECP (2019): one rank sends to
another, two send to each other, all send to all. The figure is the bytes per second that leave one
rank, with the limit of the machine in the same run. All transports execute the same plans and are
timed alternately. Messages to other nodes and within the node are counted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from bench.harness import (
    Column,
    Outcome,
    Picture,
    Request,
    choice,
    headline,
    names_of,
    notes_of,
    option,
    show_table,
)
from bench.pictures import plot_exchange
from slipstream.api.forecast.measured_rates import (
    ELEMENT,
    PATTERNS,
    ExchangeTimer,
    copy_bandwidth,
    senders_and_receivers,
    usable_transports,
)
from slipstream.engine import accepted
from slipstream.engine.array_types import Comm, Communicator
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, bytes_of, bytes_text
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE, node_numbers

# The ratio of successive sizes of messages.
_FACTOR = 4
# What is counted, and by which receivers.
WHAT = ("messages", "bytes")
WHERE = ("to other nodes", "within the node")
LIMITS = {
    "cpu": "half the copy bandwidth of all sending ranks together, as a message is read and "
    "written at least once and a copy counts both; messages that stay in cache, and libraries that "
    "write past it, may exceed this",
    "gpu": "the largest uni-directional rate of this run, by any transport",
}


def message_sizes(smallest: int = 1 << 12, largest: int = 1 << 28) -> list[int]:
    """Return the sizes to measure, in bytes: each is four times its predecessor."""
    if smallest < ELEMENT.itemsize or smallest % ELEMENT.itemsize:
        raise InputError(
            f"the smallest message has {smallest} bytes; accepted: a multiple of {ELEMENT.itemsize}"
        )
    if largest < smallest:
        raise InputError(
            f"the largest message, {largest} bytes, is smaller than the smallest, {smallest} bytes"
        )
    count = int(math.log(largest / smallest, _FACTOR) + 1e-9) + 1
    return [smallest * _FACTOR**power for power in range(count)]


@dataclass(frozen=True, kw_only=True)
class ExchangeRequest(Request):
    """Measure bandwidth between ranks: one way, both ways and all to all, by transport.

    Bound: the bytes that leave the rank, at the rate of a large copy on CPUs and of the fastest
    one-way exchange on GPUs.
    """

    transports: Annotated[
        tuple[str, ...],
        choice(
            accepted.TRANSPORTS,
            "With commas, all by default: {}.",
            "--transport",
            parse=names_of,
            metavar="NAMES",
        ),
    ] = ()
    smallest: Annotated[
        int,
        option(
            "Smallest message between two ranks.",
            parse=bytes_of,
            metavar="SIZE",
            show_default="4KiB",
        ),
    ] = 1 << 12
    largest: Annotated[
        int,
        option(
            "Largest; each is four times its predecessor.",
            parse=bytes_of,
            metavar="SIZE",
            show_default="256MiB",
        ),
    ] = 1 << 28
    ranks_per_node: Annotated[
        int | None, option("Count every N ranks as a node, on any machine.", metavar="N", min=1)
    ] = None
    plot: Picture = None

    @property
    def sizes(self) -> list[int]:
        return message_sizes(self.smallest, self.largest)

    def check(self) -> None:
        names = ("auto", *accepted.TRANSPORTS)
        for name in self.transports if self.sizes else ():
            if name not in names:
                raise InputError(f"transport {name!r} is unknown; accepted: {', '.join(names)}")


def run(request: ExchangeRequest, device: Device, comm: Comm) -> Outcome:
    """Measure all exchanges. Collective."""
    with _treat_as_nodes(request.ranks_per_node):
        result = measure_exchange(request, device, comm)
    ranks = 1 if comm is None else comm.size
    title = f"exchange between {ranks} ranks on {device.name}"
    headlines = {
        f"{row['pattern']}, {row['transport']}, {row['bytes']} bytes": headline(row["seconds"])
        for row in result["rows"]
    }
    plot = partial(plot_exchange, result=result)
    return Outcome("exchange", title, device, result, print_exchange, headlines, plot)


@contextlib.contextmanager
def _treat_as_nodes(ranks: int | None) -> Iterator[None]:
    """Treat every N ranks as one node; None takes N from the environment."""
    before = {key: value for key, value in os.environ.items() if key == RANKS_PER_NODE}
    if ranks is not None:
        os.environ[RANKS_PER_NODE] = str(ranks)
    try:
        yield
    finally:
        os.environ.pop(RANKS_PER_NODE, None)
        os.environ.update(before)


def measure_exchange(request: ExchangeRequest, device: Device, comm: Comm) -> dict[str, Any]:
    """Return limits, why transports were left out, and a row for each exchange. Collective."""
    if comm is None or comm.size < 2:
        raise InputError("exchanges need at least 2 ranks; start them with --ranks 2")
    transports, skipped = usable_transports(request.transports, device, comm)
    limits = _copy_limits(device, comm) if device.kind == "cpu" else {}
    timer = ExchangeTimer(device, comm, transports, max(request.sizes))
    nodes = node_numbers(comm)
    rows: list[dict[str, Any]] = []
    for pattern, size in itertools.product(PATTERNS, request.sizes):
        messages = comm.size - 1 if pattern == "all-to-all" else 1
        for name, seconds in timer.seconds(pattern, size, request.repetitions).items():
            row: dict[str, Any] = {
                "pattern": pattern,
                "transport": name,
                "bytes": size,
                "seconds": seconds,
            }
            row["GB/s per rank"] = messages * size / seconds / 1e9
            rows.append(row | _most_messages(timer.messages[name], nodes, comm))
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
    messages: Iterable[tuple[int, int]], nodes: Sequence[int], comm: Communicator
) -> dict[str, int]:
    """Return the largest traffic of a rank to other nodes and within its node. Collective."""
    counts = dict.fromkeys((f"{what} {where}" for where in WHERE for what in WHAT), 0)
    for peer, size in messages:
        where = WHERE[nodes[peer] == nodes[comm.rank]]
        for what, one in zip(WHAT, (1, size), strict=True):
            counts[f"{what} {where}"] += one
    everyone = comm.allgather(counts)
    return {name: max(one[name] for one in everyone) for name in counts}


def _copy_limits(device: Device, comm: Communicator) -> dict[str, float]:
    """Return half the copy bandwidth of one rank, in bytes per second, while all senders copy."""
    measure, limits = copy_bandwidth(device), {}
    for pattern in PATTERNS:
        senders = {sender for sender, _ in senders_and_receivers(pattern, comm.size)}
        comm.Barrier()
        mine = measure() if comm.rank in senders else math.inf
        comm.Barrier()
        limits[pattern] = min(comm.allgather(mine)) / 2
    return limits


def print_exchange(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each exchange, and the limits."""
    columns: dict[str, Column] = {
        "pattern": "pattern",
        "transport": "transport",
        "message": lambda row: bytes_text(row["bytes"]),
        "time": "seconds|s",
        "GB/s per rank": "GB/s per rank|.3g",
        "of limit": "fraction of the limit|.2f",
    }
    if result["nodes"] > 1:
        for where in WHERE:
            columns[where] = partial(_traffic, where)
    rows = sorted(result["rows"], key=lambda row: PATTERNS.index(row["pattern"]))
    show_table(title, columns, rows, notes_of(result))


def _traffic(where: str, row: Mapping[str, Any]) -> str:
    """Return the messages and bytes of the rank that sends most."""
    return f"{row[f'messages {where}']}, {bytes_text(row[f'bytes {where}'])}"
