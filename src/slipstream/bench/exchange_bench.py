"""How fast ranks exchange, device to device: by pattern, by transport and by size of message.

Three patterns, as in figure 4 of Shaiek, Tomov, Ayala et al., FFT-ECP (2019): one rank sends to
another, two send to each other, all send to all. What counts is the bytes that leave one rank in a
second, beside the limit of the same machine in the same run. All transports execute the same plans,
and are timed in turn, so that they see the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.bench.exchange_patterns import (
    ELEMENT,
    PATTERNS,
    message_sizes,
    pattern_plan,
    senders_and_receivers,
)
from slipstream.bench.idle_ranks import wait_idly
from slipstream.bench.repetitions import copy_bandwidth, medians
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import TRANSPORTS, ExchangePlan, Transport, make_transport
from slipstream.exchange.transport_registry import transport_class
from slipstream.schedule import StepGraph, commit

# A timing lasts at least so many seconds: less is mostly the start of a loop and its noise.
_SHORTEST_TIMING = 1.5e-3
_MOST_REPEATS = 1000
# What the arrays may take of the memory that is free.
_SHARE_OF_MEMORY = 0.8

LIMITS = {
    "cpu": "half the copy bandwidth of the ranks that send, all at once, as a message is read and "
    "written at least once and a copy counts both; messages that stay in cache, and libraries that "
    "write past it, may exceed this",
    "cuda": "the largest uni-directional rate of this run, by any transport",
}


class ExchangeTimer:
    """Times exchanges over several transports, side by side. Collective, like its methods.

    Parameters
    ----------
    device : Device
        This rank's device.
    comm : mpi4py.MPI.Comm
        At least two ranks.
    transports : mapping of str to Transport
        What to compare.
    largest : int
        Bytes of the largest message between two ranks.

    Raises
    ------
    InputError
        If the arrays do not fit into memory.
    """

    def __init__(
        self, device: Device, comm: Any, transports: Mapping[str, Transport], largest: int
    ) -> None:
        self.device, self.comm, self.transports = device, comm, dict(transports)
        elements = (comm.size - 1) * (largest // ELEMENT.itemsize)
        _check_memory(device, comm, 2 * len(self.transports) * elements * ELEMENT.itemsize, largest)
        self._arrays = {
            name: [_filled(device, transport.empty((elements,), ELEMENT)) for _ in range(2)]
            for name, transport in self.transports.items()
        }

    def seconds(self, pattern: str, size: int, repetitions: int) -> dict[str, float]:
        """Return the median seconds of one exchange over each transport, of the slowest rank.

        Parameters
        ----------
        pattern : str
            One of `PATTERNS`.
        size : int
            Bytes of the message between two ranks, a multiple of an element.
        repetitions : int
            Number of timings.
        """
        elements = size // ELEMENT.itemsize
        plan = pattern_plan(pattern, self.comm.rank, self.comm.size, elements)
        runs = {name: self._exchange(name, plan) for name in self.transports}
        # The first exchanges make connections, and tell how many make one timing.
        single = medians(self.device, runs, 3, self.comm)
        repeats = {
            name: min(_MOST_REPEATS, max(1, math.ceil(_SHORTEST_TIMING / one)))
            for name, one in single.items()
        }
        actions = {name: _repeated(run, repeats[name]) for name, run in runs.items()}
        timed = medians(self.device, actions, repetitions, self.comm)
        return {name: seconds / repeats[name] for name, seconds in timed.items()}

    def _exchange(self, name: str, plan: ExchangePlan) -> Callable[[], None]:
        graph, (source, target) = StepGraph(self.device), self._arrays[name]
        pair = source[: plan.send_size], target[: plan.receive_size]
        self.transports[name].record(graph, plan, [pair], "exchange")
        return commit(graph, "overlap").run


@dataclass(frozen=True)
class ExchangeRequest:
    """What to measure.

    Attributes
    ----------
    transports : sequence of str
        Names of transports; empty for all that are usable.
    sizes : sequence of int
        Bytes of the message between two ranks.
    repetitions : int
        Timings of each exchange.
    """

    transports: Sequence[str] = ()
    sizes: Sequence[int] = tuple(message_sizes())
    repetitions: int = 15


def measure_exchange(request: ExchangeRequest, device: Device, comm: Any) -> dict[str, Any]:
    """Measure the bandwidth of exchanges. Collective.

    Parameters
    ----------
    request : ExchangeRequest
        What to measure.
    device : Device
        This rank's device.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Returns
    -------
    dict
        Settings, the limit of each pattern in GB/s per rank, why transports were left out, and one
        row for each pattern, transport and size.

    Raises
    ------
    InputError
        If there are fewer than two ranks, a name is unknown, or no transport is usable.
    """
    if comm is None or comm.size < 2:
        raise InputError("exchanges need at least 2 ranks; start them with --ranks 2")
    transports, skipped = usable_transports(request.transports, device, comm)
    limits = _copy_limits(device, comm) if device.kind == "cpu" else {}
    timer = ExchangeTimer(device, comm, transports, max(request.sizes))
    rows = []
    for pattern in PATTERNS:
        messages = comm.size - 1 if pattern == "all-to-all" else 1
        for size in request.sizes:
            for name, seconds in timer.seconds(pattern, size, request.repetitions).items():
                rate = messages * size / seconds
                rows.append(
                    {
                        "pattern": pattern,
                        "transport": name,
                        "bytes": size,
                        "seconds": seconds,
                        "GB/s per rank": rate / 1e9,
                    }
                )
    if not limits:
        fastest = max(r["GB/s per rank"] for r in rows if r["pattern"] == "uni-directional")
        limits = dict.fromkeys(PATTERNS, fastest * 1e9)
    for row in rows:
        row["fraction of the limit"] = row["GB/s per rank"] * 1e9 / limits[row["pattern"]]
    return {
        "ranks": comm.size,
        "repetitions": request.repetitions,
        "limit": LIMITS[device.kind],
        "limits (GB/s per rank)": {name: rate / 1e9 for name, rate in limits.items()},
        "left out": skipped,
        "rows": rows,
    }


def check_names(names: Sequence[str]) -> None:
    """Raise InputError if a name is no transport's."""
    accepted = ("auto", *TRANSPORTS)
    for name in names:
        if name not in accepted:
            raise InputError(f"transport {name!r} is unknown; accepted: {', '.join(accepted)}")


def usable_transports(
    names: Sequence[str], device: Device, comm: Any
) -> tuple[dict[str, Transport], dict[str, str]]:
    """Make the transports of some names, or all that there are. Collective.

    Returns
    -------
    dict of str to Transport, dict of str to str
        Those that can be used here, by what they call themselves, and why others cannot.

    Raises
    ------
    InputError
        If a name is unknown, or none can be used.
    """
    check_names(names)
    made: dict[str, Transport] = {}
    skipped: dict[str, str] = {}
    for name in names or TRANSPORTS:
        same = transport_class(name).without_gpu if name in TRANSPORTS else None
        if not names and device.kind == "cpu" and same:
            skipped[name] = f"transport {name!r} is the same as {same!r} without a GPU"
            continue
        try:
            transport = make_transport(name, comm, device)
        except InputError as error:
            skipped[name] = str(error)
        else:
            made.setdefault(transport.name, transport)
    if not made:
        raise InputError("no transport is usable here: " + "; ".join(skipped.values()))
    return made, skipped


def _copy_limits(device: Device, comm: Any) -> dict[str, float]:
    """Return half the copy bandwidth of one rank, in bytes per second, while all senders copy."""
    measure, limits = copy_bandwidth(device), {}
    for pattern in PATTERNS:
        senders = {sender for sender, _ in senders_and_receivers(pattern, comm.size)}
        comm.Barrier()
        mine = measure() if comm.rank in senders else math.inf
        wait_idly(comm)
        limits[pattern] = min(comm.allgather(mine)) / 2
    return limits


def _check_memory(device: Device, comm: Any, wanted: int, largest: int) -> None:
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


def _filled(device: Device, array: Any) -> Any:
    """Fill an array with random numbers: zeros, and memory never written, would be flattered."""
    values = np.random.default_rng(0).random(min(array.size, 1 << 20))
    for start in range(0, array.size, values.size):
        part = array[start : start + values.size]
        device.run(device.copy(part, values[: part.size]))
    return array


def _repeated(run: Callable[[], None], count: int) -> Callable[[], None]:
    def action() -> None:
        for _ in range(count):
            run()

    return action
