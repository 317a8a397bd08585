"""How arrays on the host stream, measured for the whole transform and remembered.

What may be chosen are the options of `Streaming` that the user has left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slipstream import tuner
from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_tuning import pair_of, transform_key
from slipstream.fft.out_of_core_fft import StreamedPlan
from slipstream.outofcore.streaming_options import Streaming

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
    comm: Comm,
    transport: str,
    workers: int,
    streaming: Streaming,
    limit: int,
    is_free: bool,
    tune: str,
    schedule: str,
    again: bool = False,
) -> Streaming:
    """Return how a transform streams fastest, measured again if so asked. Collective.

    If the limit is what was free, which differs from run to run, it is not remembered.
    """
    given = streaming.of_transform()
    memory = "what is free" if is_free else f"{limit} bytes"
    key = (
        f"{transform_key(arguments, devices[0], comm, transport, workers, schedule)}; on the host, "
        f"{memory}; {', '.join(f'{name} {value}' for name, value in given.items())}"
    )
    default = Streaming()
    options = {
        name: values
        for name, values in _TRIED.items()
        if getattr(streaming, name) == getattr(default, name)
        and (arguments.ranks > 1 or name not in _BETWEEN_RANKS)
        and (streaming.devices == 1 or name != "exchange")
    }

    def prepare(candidate: Streaming) -> Callable[[], None]:
        plan = StreamedPlan(arguments, devices, home, comm, transport, workers, candidate, limit)
        return pair_of(plan, arguments, devices[0], home, comm, schedule)

    candidates = tuner.variations(streaming, options, tune)
    return tuner.tuned(
        key, _from_record, candidates, prepare, comm, tune, again, Streaming.of_transform
    )


def _from_record(record: dict[str, Any]) -> Streaming | None:
    """Return remembered options; None if they are not those of this version."""
    try:
        known = Streaming(**{name: record[name] for name in Streaming().of_transform()})
        known.check()
    except (TypeError, KeyError, InputError):
        return None
    return known
