"""Where the arrays of a transform are: on the device, or on the host if they are too large.

Options of `Streaming` that the user has not set are measured for the whole transform, and
remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream import tuner
from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import on_every_rank
from slipstream.device import Device, HostDevice
from slipstream.device.device_choice import home_of
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_plan import Plan
from slipstream.fft.fft_tuning import choose, pair_of, transform_key
from slipstream.fft.streamed_transform import StreamedPlan
from slipstream.outofcore.memory_budget import devices_of, fits_on_all, memory_limit
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


def make_plan(arguments: Arguments, device: Device, comm: Comm) -> tuple[Plan, Device, Device]:
    """Return a plan, the device that transforms, and the device of its arrays. Collective."""
    a = arguments
    home: Device = device if a.residency == "device" else home_of(device)
    if a.residency == "disk":
        from slipstream.outofcore.file_arrays import TileHost, file_home

        memory = home
        home = on_every_rank(comm, lambda: file_home(a.scratch, memory))
        if isinstance(device, HostDevice):
            device = TileHost(device)
    _check_sizes(a, home, 0 if comm is None else comm.rank)
    if a.residency == "device":
        return Plan(a, device, comm, choose(a, device, comm)), device, device
    devices = devices_of(device, comm, a.streaming.devices)
    limit = memory_limit(devices, a.memory, comm)
    if a.residency == "auto" and fits_on_all(comm, in_core_bytes(a), limit):
        return Plan(a, device, comm, choose(a, device, comm)), device, device
    # Plans on a device do not need this import.

    if not a.is_usual or len(a.shape) > 3:
        raise InputError(
            "residency 'host', or 'auto' if the device is too small, is for Fourier transforms "
            "along all axes of at most three, the last one first; accepted here: 'device'"
        )
    if a.wire:
        raise InputError(f"wire {a.wire!r} with residency 'host'; accepted: None")
    if a.transport == "nccl" and not a.streaming.from_device:
        raise InputError(
            "transport 'nccl' exchanges between GPUs; with residency 'host' add "
            "streaming={'exchange': 'device'}, or leave the transport out"
        )
    return streamed_plan(a, devices, home, comm, limit), device, home


def _check_sizes(arguments: Arguments, place: Device, rank: int) -> None:
    """Refuse arrays that exceed all memory; `InputError`, perhaps on some ranks only."""
    a = arguments
    points = a.input_boxes[rank].size * a.fields * a.dtype.itemsize
    modes = a.output_boxes[rank].size * a.fields * a.complex_dtype.itemsize
    total, free = place.memory_total(), place.memory_free()
    # The plan has arrays as large as the modes, unless there is only one axis.
    if points + modes > total or (len(a.shape) > 1 and modes > free):
        raise InputError(
            f"shape {a.shape}, fields {a.fields}: points and modes of rank {rank} take "
            f"{bytes_text(points)} and {bytes_text(modes)}; of {bytes_text(total)}, "
            f"{bytes_text(free)} are free"
        )


def in_core_bytes(arguments: Arguments) -> int:
    """Return an estimate of the bytes that a rank needs with all arrays on its device."""
    a = arguments
    physical = max(box.size for box in a.input_boxes) * a.fields * a.dtype.itemsize
    # The spectral array, sent and received blocks, and one array in between.
    spectral = max(box.size for box in a.output_boxes) * a.fields * a.complex_dtype.itemsize
    return physical + 4 * spectral
