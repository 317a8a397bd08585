"""Choices that do not change a transform's result: measured options, and residency of arrays."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from slipstream.engine import tuner
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.device import Device, HostDevice
from slipstream.engine.device.device_choice import home_of
from slipstream.engine.errors import InputError, bytes_text
from slipstream.engine.exchange import TRANSPORTS, can_store, chosen_transport, transports_to_try
from slipstream.engine.fft.fft_arguments import Arguments
from slipstream.engine.fft.fft_plan import Choices, Plan, SlabOptions
from slipstream.engine.fft.streamed_transform import StreamedPlan
from slipstream.engine.outofcore.memory_budget import (
    DEFAULT,
    Streaming,
    devices_of,
    fits_on_all,
    memory_limit,
)
from slipstream.engine.schedule import StepGraph, commit

# The size in bytes of a GPU's modes from which copy engines beat transforms that store into other
# GPUs: they are faster, but take longer to start.
_COPIED = 192 << 20
# The bytes of a chunk, for 4 to 8 chunks.
_CHUNK = 384 << 20

# The numbers of points along the longest axis with which cuFFT's plan is faster on one GPU.
_WHOLE = range(256, 513)
# The values to try for options that the user has not set.
_TRIED: dict[str, tuple[Any, ...]] = {
    "streams": (0, 2, 4),
    "tiles": (None, 4, 16, 64),
    "copies": ("memcpy2D", "zero-copy"),
    "tiles_per_exchange": (None, 1, 4),
    "exchange": ("host", "device"),
}
# The options of these that matter to several ranks only.
_BETWEEN_RANKS = ("tiles_per_exchange", "exchange")


def choose(arguments: Arguments, device: Device, comm: Comm) -> Choices:
    """Return the choices that the arguments of a transform leave open. Collective.

    "off" follows rules from our measurements. "quick" measures transports and divisions, one after
    the other; "full" also numbers of workers, and all combinations that are not far behind.
    """
    a = arguments
    name = chosen_transport(a.transport, comm, device)
    slab = SlabOptions(whole=device.kind != "cpu" and max(a.shape) in _WHOLE)
    if device.kind != "cpu" and a.ranks > 1:
        bytes_per_rank = _count_modes_bytes(a) // a.ranks
        if bytes_per_rank >= _COPIED:
            chunks = max(4, min(8, bytes_per_rank // _CHUNK))
            slab = dataclasses.replace(slab, kx_chunks=chunks, store=False)
    default = Choices(name, a.workers or a.ranks, slab)
    if a.tune == "off":
        return default
    best: Choices = tuner.tuned(
        transform_key(a, device),
        partial(_read_choices, ranks=a.ranks, comm=comm, device=device),
        partial(_candidates, a, device, comm, default),
        lambda choices: pair_of(Plan(a, device, comm, choices), a, device, device, comm),
        comm,
        a.tune,
    )
    return best


def _read_choices(record: dict[str, Any], ranks: int, comm: Comm, device: Device) -> Choices | None:
    """Return remembered choices; None if they are from another version or machine."""
    try:
        known = Choices(record["transport"], record["workers"], SlabOptions(**record["slab"]))
        numbers = [
            operator.index(n)
            for n in (known.workers, known.slab.kx_chunks, known.slab.plane_chunks)
        ]
        switches = [known.slab.store, known.slab.tiled, known.slab.whole]
    except (TypeError, KeyError):
        return None
    valid = min(numbers) >= 1 and all(isinstance(switch, bool) for switch in switches)
    named = known.transport in ("none", *TRANSPORTS) and record.get("tune") in ("quick", "full")
    if not (valid and named) or known.workers > ranks:
        return None
    if ranks == 1:
        return known if known.transport == "none" else None
    if known.transport == "none":
        return None
    try:
        chosen_transport(known.transport, comm, device)
    except InputError:  # of a transport that this machine does not have
        return None
    return known


def _candidates(
    arguments: Arguments,
    device: Device,
    comm: Comm,
    default: Choices,
    times: tuner.Times[Choices],
) -> Iterator[Choices]:
    several, full = arguments.ranks > 1, arguments.tune == "full"
    names = [default.transport]
    if arguments.transport == "auto" and several and comm is not None:
        names = transports_to_try(comm, device, _count_modes_bytes(arguments) / arguments.ranks**2)
    chunks = (1, 2, 4, 8, 16) if several else (1,)
    # The numbers of chunks of planes worth measuring for a number of chunks of kx.
    planes = {p: ((1,) if p > 1 else chunks) if device.kind == "cpu" else (1, 2) for p in chunks}
    divisions = [
        SlabOptions(kx_chunks=p, plane_chunks=q, store=store, tiled=tiled, whole=whole)
        for p in chunks
        for q in (planes[p] if full and several else (1,))
        for store in ((True, False) if several else (True,))
        for tiled in ((True, False) if device.tiled_transforms() else (True,))
        for whole in ((True, False) if device.kind != "cpu" and not several else (False,))
    ]
    teams = [default.workers]
    if arguments.workers is None and several and full:
        teams.append(1)
    options: dict[str, list[Any]] = {"transport": names, "workers": teams, "slab": divisions}
    for choices in tuner.variations(default, options, arguments.tune)(times):
        # Other transports cannot store at the receivers, and one worker exchanges nothing.
        stores = several and can_store(choices.transport)
        stores = stores or choices.slab.store == default.slab.store
        alone = several and choices.workers == 1
        as_default = dataclasses.replace(choices.slab, tiled=default.slab.tiled) == default.slab
        if stores and (not alone or as_default):
            yield choices


def _count_modes_bytes(arguments: Arguments) -> int:
    modes = math.prod(arguments.spectral_shape) * arguments.fields
    return modes * arguments.complex_dtype.itemsize


def pair_of(
    plan: Plan, arguments: Arguments, device: Device, home: Device, comm: Comm
) -> Callable[[], None]:
    """Return a function that runs a forward and a backward transform between arrays of `home`."""
    rank = comm.rank if comm is not None else 0
    boxes = arguments.input_boxes[rank], arguments.output_boxes[rank]
    physical = home.zeros((arguments.fields, *boxes[0].shape), arguments.dtype)
    spectral = home.zeros((arguments.fields, *boxes[1].shape), arguments.spectral_dtype)
    forward, backward = StepGraph(device), StepGraph(device)
    plan.record_forward(forward, physical, spectral)
    plan.record_backward(backward, spectral, physical)
    steps = [commit(graph, arguments.schedule) for graph in (forward, backward)]

    def run() -> None:
        for step in steps:
            step.run()
            if home is not device:  # only a step orders several devices
                step.synchronize()
        device.synchronize()

    return run


def transform_key(arguments: Arguments, device: Device) -> str:
    """Return the readable key of a transform on this machine."""
    a = arguments
    # There can be many boxes: the first ones make the key readable, a digest makes it unique.
    boxes = [f"{b[0].shape}" for b in (a.input_boxes, a.output_boxes)]
    digest = hash((a.input_boxes, a.output_boxes)) % 16**6
    unusual = "" if a.is_usual else f"axes {a.axes}, {' '.join(a.kinds)}; "
    return (
        f"{device.name}; {a.ranks} ranks; {unusual}{'x'.join(map(str, a.shape))} {a.dtype.name}; "
        f"{'x'.join(map(str, a.spectral_shape))} modes; {a.fields} fields; "
        f"boxes {' '.join(boxes)} {digest:06x}; wire {a.wire}; transport {a.transport}; "
        f"workers {a.workers or 'any'}; {a.schedule}"
    )


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
    memory = "free memory" if a.memory is None else f"{limit} bytes"
    settings = a.streaming.of_transform()
    key = (
        f"{transform_key(a, devices[0])}; on the host, {memory}; "
        f"{', '.join(f'{name} {value}' for name, value in settings.items())}"
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
            _read_streaming,
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


def _read_streaming(record: dict[str, Any]) -> Streaming | None:
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
        from slipstream.engine.outofcore.file_arrays import TileHost, file_home

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


def _check_sizes(arguments: Arguments, home: Device, rank: int) -> None:
    """Refuse arrays that exceed all memory; `InputError`, perhaps on some ranks only."""
    a = arguments
    points = a.input_boxes[rank].size * a.fields * a.dtype.itemsize
    modes = a.output_boxes[rank].size * a.fields * a.complex_dtype.itemsize
    total, free = home.memory_total(), home.memory_free()
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
