"""Where the arrays of a transform are: on the device, or on the host if they are too large."""

from __future__ import annotations

from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import on_every_rank
from slipstream.device import Device, HostDevice
from slipstream.device.device_choice import home_of
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_plan import Plan
from slipstream.fft.fft_tuning import choose
from slipstream.outofcore.memory_budget import devices_of, fits_on_all, memory_limit


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
    from slipstream.fft.streaming_tuning import streamed_plan

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
