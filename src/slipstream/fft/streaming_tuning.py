"""Tuning of streams of arrays on the host, measured for the whole transform and remembered.

The choices are the options of `Streaming` that the user has not set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream import tuner
from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_tuning import pair_of, transform_key
from slipstream.fft.streamed_transform import StreamedPlan
from slipstream.outofcore.streaming_options import DEFAULT, Streaming

# The values to try for options that the user has not set.
_TRIED: dict[str, tuple[Any, ...]] = {
    "streams": (0, 2, 4),
    "tiles": (None, 4, 16, 64),
    "copies": ("memcpy2D", "zero-copy"),
    "tiles_per_exchange": (None, 1, 4),
    "exchange": ("host", "device"),
}
_BETWEEN_RANKS = ("tiles_per_exchange", "exchange")


def streamed_plan(
    arguments: Arguments, devices: Sequence[Device], home: Device, comm: Comm, limit: int
) -> StreamedPlan:
    """Return the plan of arrays on the host that streams fastest within a limit. Collective."""
    a = arguments

    def plan(streaming: Streaming) -> StreamedPlan:
        return StreamedPlan(a, devices, home, comm, streaming, limit)

    if a.tune == "off":
        return plan(a.streaming)
    # A limit from the free memory differs between runs, and is not part of the key.
    memory = "what is free" if a.memory is None else f"{limit} bytes"
    given = a.streaming.of_transform()
    key = (
        f"{transform_key(a, devices[0])}; on the host, {memory}; "
        f"{', '.join(f'{name} {value}' for name, value in given.items())}"
    )
    options = {
        name: values
        for name, values in _TRIED.items()
        if getattr(a.streaming, name) == getattr(DEFAULT, name)
        and (a.ranks > 1 or name not in _BETWEEN_RANKS)
        and (a.streaming.devices == 1 or name != "exchange")
    }

    def chosen(again: bool) -> Streaming:
        return tuner.tuned(
            key,
            _from_record,
            tuner.variations(a.streaming, options, a.tune),
            lambda candidate: pair_of(plan(candidate), a, devices[0], home, comm),
            comm,
            a.tune,
            again,
            Streaming.of_transform,
        )

    streaming = chosen(again=False)
    try:
        return plan(streaming)
    except InputError:  # the same on all ranks
        # The fastest plan may need more memory than is free now.
        return plan(chosen(again=True) if streaming != a.streaming else streaming)


def _from_record(record: dict[str, Any]) -> Streaming | None:
    """Return remembered options; None if they are from another version."""
    try:
        return Streaming(**{name: record[name] for name in DEFAULT.of_transform()})
    except (TypeError, KeyError, InputError):
        return None
