"""Where the arrays of a transform live: on the device, or on the host because they are too large.

A residency makes the plan, and says which memory is the users'.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from slipstream.byte_sizes import bytes_of
from slipstream.collective import on_every_rank
from slipstream.device import Device, open_devices
from slipstream.device.pinned_memory import home_of
from slipstream.errors import InputError
from slipstream.exchange import local_rank
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.out_of_core_fft import StreamedPlan
from slipstream.fft.streaming_options import Streaming
from slipstream.fft.streaming_tuning import choose_streaming

RESIDENCIES = ("device", "host", "auto")

# Of the memory that is free, what libraries may need besides our arrays.
_USABLE = 0.9


def checked_streaming(value: Streaming | Mapping[str, Any] | None) -> Streaming:
    """Return what a user says of streaming.

    Raises
    ------
    InputError
        If it has a key that does not exist, or a value that cannot be.
    """
    if value is None:
        return Streaming()
    if not isinstance(value, Streaming):
        try:
            value = Streaming(**value)
        except TypeError:
            keys = ", ".join(Streaming.__dataclass_fields__)
            raise InputError(f"streaming {value!r}; accepted: a mapping with {keys}") from None
    value.check()
    return value


def check_options(residency: str, memory: Any, streaming: Any) -> None:
    """Refuse what has no effect.

    Raises
    ------
    InputError
        If something was given that is for another residency.
    """
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


def devices_of(device: Device, comm: Any, count: int) -> list[Device]:
    """Return the devices through which this rank streams. Collective.

    Parameters
    ----------
    device : Device
        The rank's own; others are the next ones of its node.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    count : int
        How many.
    """
    if count == 1:
        return [device]
    local = local_rank(comm)
    return on_every_rank(comm, lambda: open_devices(device, local, count))


def memory_limit(devices: Sequence[Device], memory: int | str | None, comm: Any) -> int:
    """Return how many bytes this rank may take on each of its devices. Collective.

    Parameters
    ----------
    devices : sequence of Device
        The devices.
    memory : int, str or None
        What the user allows each rank; None: its share of what is free.
    comm : mpi4py.MPI.Comm or None
        The ranks, which may share devices.
    """
    mine = [one.identity for one in devices]
    everyone = mine if comm is None else list(itertools.chain(*comm.allgather(mine)))
    if memory is not None:
        return on_every_rank(comm, lambda: bytes_of(memory, "memory"))
    shares = (one.memory_free() / everyone.count(one.identity) for one in devices)
    return int(_USABLE * min(shares))


def chosen_residency(residency: str, arguments: Arguments, limit: int, comm: Any) -> str:
    """Return "device" or "host". Collective.

    Parameters
    ----------
    residency : {"device", "host", "auto"}
        "auto" is the device if all ranks have the memory.
    arguments : Arguments
        The transform.
    limit : int
        Bytes that this rank may take.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    """
    if residency != "auto":
        return residency
    fits = in_core_bytes(arguments) <= limit
    everyone = [fits] if comm is None else comm.allgather(fits)
    return "device" if all(everyone) else "host"


def streamed(
    arguments: Arguments,
    devices: Sequence[Device],
    comm: Any,
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
    arguments, comm, transport, workers
        As of `DistributedFFT`.
    devices : sequence of Device
        Where tiles are transformed.
    streaming : Streaming
        How.
    limit : int
        Bytes that may be allocated on each device.
    is_free : bool
        Whether that is what was free, and not the user's limit.
    tune, schedule : str
        Whether to measure what streams fastest, and by which policy.
    """
    if arguments.wire:
        raise InputError(f"wire {arguments.wire!r} with residency 'host'; accepted: None")
    if transport == "nccl" and not streaming.from_device:
        raise InputError(
            "transport 'nccl' exchanges between GPUs; with residency 'host' add "
            "streaming={'exchange': 'device'}, or leave the transport out"
        )
    device = devices[0]
    home = home_of(device)
    workers = workers or arguments.ranks
    plan = partial(StreamedPlan, arguments, devices, home, comm, transport, workers)
    if tune != "off":
        choose = partial(
            choose_streaming,
            arguments,
            devices,
            home,
            comm,
            transport,
            workers,
            streaming,
            limit,
            is_free,
            tune,
            schedule,
        )
        tuned = choose()
        try:
            return plan(tuned, limit), home
        except InputError:  # on all ranks alike
            # What was fastest may need more than is free today.
            streaming = choose(again=True) if tuned != streaming else streaming
    return plan(streaming, limit), home
