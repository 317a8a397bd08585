"""Where the arrays of a transform live: on the device, or on the host if they are too large."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.device.pinned_host import home_of
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.outofcore.memory_budget import fits_on_all
from slipstream.outofcore.streaming_options import Streaming

if TYPE_CHECKING:
    from slipstream.fft.out_of_core_fft import StreamedPlan

RESIDENCIES = ("device", "host", "auto")


def check_options(residency: str, memory: Any, streaming: Any) -> None:
    """Refuse what has no effect, with `InputError`."""
    for name, value in (("memory", memory), ("streaming", streaming)):
        if residency == "device" and value is not None:
            raise InputError(f"{name} is for residency 'host' and 'auto'; leave it out")


def in_core_bytes(arguments: Arguments) -> int:
    """Return about how many bytes a rank needs where all arrays are on its device."""
    a = arguments
    physical = max(box.size for box in a.input_boxes) * a.fields * a.dtype.itemsize
    # The spectral array, what is sent and received, and one on the way.
    spectral = max(box.size for box in a.output_boxes) * a.fields * a.complex_dtype.itemsize
    return physical + 4 * spectral


def chosen_residency(residency: str, arguments: Arguments, limit: int, comm: Comm) -> str:
    """Return "device" or "host"; "auto" is the device if all ranks have the memory. Collective."""
    if residency != "auto":
        return residency
    return "device" if fits_on_all(comm, in_core_bytes(arguments), limit) else "host"


def streamed(
    arguments: Arguments,
    devices: Sequence[Device],
    comm: Comm,
    transport: str,
    workers: int | None,
    streaming: Streaming,
    limit: int,
    is_free: bool,
    tune: str,
    schedule: str,
) -> tuple[StreamedPlan, Device]:
    """Return the plan of arrays on the host, and the host. Collective.

    Parameters
    ----------
    limit : int
        Bytes that may be allocated on each device.
    is_free : bool
        Whether that is what was free, and not the user's limit.
    tune, schedule : str
        Whether to measure what streams fastest, and by which policy.
    """
    # What is on a device does without all of this.
    from slipstream.fft.out_of_core_fft import StreamedPlan
    from slipstream.fft.streaming_tuning import choose_streaming

    if arguments.wire:
        raise InputError(f"wire {arguments.wire!r} with residency 'host'; accepted: None")
    if transport == "nccl" and not streaming.from_device:
        raise InputError(
            "transport 'nccl' exchanges between GPUs; with residency 'host' add "
            "streaming={'exchange': 'device'}, or leave the transport out"
        )
    home = home_of(devices[0])
    common = arguments, devices, home, comm, transport, workers or arguments.ranks
    plan = partial(StreamedPlan, *common)
    if tune != "off":
        choose = partial(choose_streaming, *common, streaming, limit, is_free, tune, schedule)
        tuned = choose()
        try:
            return plan(tuned, limit), home
        except InputError:  # on all ranks alike
            # What was fastest may need more than is free today.
            streaming = choose(again=True) if tuned != streaming else streaming
    return plan(streaming, limit), home
