"""How arrays on the host stream, measured for the whole transform and remembered.

As `tuning`, of which this uses the file and the clock; what may be chosen are the options of
`Streaming` that the user has left alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_tuning import REPETITIONS, recall, remember, seconds_of, transform_key
from slipstream.fft.out_of_core_fft import StreamedPlan
from slipstream.fft.streaming_options import Streaming

# What is tried for options that the user has left at their defaults.
_TRIED: dict[str, tuple[Any, ...]] = {
    "streams": (0, 2, 4),
    "tiles": (None, 4, 16, 64),
    "copies": ("memcpy2D", "zero-copy"),
    "tiles_per_exchange": (None, 1, 4),
    "exchange": ("host", "device"),
}
_BETWEEN_RANKS = ("tiles_per_exchange", "exchange")


def choose_streaming(
    arguments: Arguments,
    devices: Sequence[Device],
    home: Device,
    comm: Any,
    transport: str,
    workers: int,
    streaming: Streaming,
    limit: int,
    is_free: bool,
    tune: str,
    schedule: str,
    again: bool = False,
) -> Streaming:
    """Return how a transform streams fastest. Collective.

    Parameters
    ----------
    arguments, devices, home, comm, transport, workers, streaming, limit
        As of `StreamedPlan`.
    is_free : bool
        Whether the limit is what was free, which differs from run to run: it is not remembered.
    tune : {"quick", "full"}
        "quick" varies one option after the other; "full" tries all combinations. Both take what an
        earlier measurement found.
    schedule : str
        The policy to measure with.
    again : bool
        Whether to measure even if something is remembered.
    """
    given = dataclasses.asdict(streaming)
    memory = "what is free" if is_free else f"{limit} bytes"
    key = (
        f"{transform_key(arguments, devices[0], comm, transport, workers, schedule)}; on the host, "
        f"{memory}; {', '.join(f'{name} {value}' for name, value in given.items())}"
    )
    known = None if again else _from_record(recall(key, comm), tune, streaming)
    if known is not None:
        return known
    times: dict[Streaming, float] = {}
    for candidates in _rounds(streaming, arguments.ranks, tune, times):
        for candidate in candidates:
            if candidate not in times:
                times[candidate] = _seconds(
                    arguments,
                    devices,
                    home,
                    comm,
                    transport,
                    workers,
                    candidate,
                    limit,
                    REPETITIONS[tune],
                    schedule,
                )
    possible = {way: seconds for way, seconds in times.items() if math.isfinite(seconds)}
    if not possible:
        return streaming  # whose plan says how much memory would do
    best = min(possible, key=possible.__getitem__)
    if comm is None or comm.rank == 0:
        slowest = max(possible.values())
        remember(key, dataclasses.asdict(best), possible[best], slowest, tune)
    return best


def _rounds(
    streaming: Streaming, ranks: int, tune: str, times: dict[Streaming, float]
) -> Iterator[list[Streaming]]:
    """Yield candidates, round after round; later rounds look at the times of earlier ones."""
    default = Streaming()
    left = [
        name
        for name in _TRIED
        if getattr(streaming, name) == getattr(default, name)
        and (ranks > 1 or name not in _BETWEEN_RANKS)
        and (streaming.devices == 1 or name != "exchange")
    ]
    if tune == "full":
        ways = itertools.product(*(_TRIED[name] for name in left))
        yield [dataclasses.replace(streaming, **dict(zip(left, way, strict=True))) for way in ways]
        return
    yield [streaming]
    for name in left:
        best = min(times, key=times.__getitem__)
        yield [dataclasses.replace(best, **{name: value}) for value in _TRIED[name]]


def _seconds(
    arguments, devices, home, comm, transport, workers, streaming, limit, repetitions, schedule
) -> float:
    """Return the median time of a pair of transforms; infinite if memory does not allow it."""
    try:
        plan = StreamedPlan(arguments, devices, home, comm, transport, workers, streaming, limit)
    except InputError:  # on all ranks alike
        return float("inf")
    return seconds_of(plan, arguments, devices[0], home, comm, repetitions, schedule)


def _from_record(record: Any, tune: str, streaming: Streaming) -> Streaming | None:
    """Return remembered options; None if there are none, or not those of this version."""
    if not isinstance(record, dict) or (tune == "full" and record.get("tune") != "full"):
        return None
    try:
        known = Streaming(**{name: record[name] for name in dataclasses.asdict(streaming)})
        known.check()
    except (TypeError, KeyError, InputError):
        return None
    return known
