"""Choices that do not change a transform's result, measured and remembered.

A forward and a backward transform are timed, as the user will run them.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from slipstream import tuner
from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import TRANSPORTS, can_store, chosen_transport, transports_to_try
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_plan import Choices, Plan
from slipstream.fft.slab_transform import SlabOptions
from slipstream.schedule import StepGraph, commit

# The size in bytes of a GPU's modes from which copy engines beat transforms that store into other
# GPUs: they are faster, but take longer to start. And the bytes of a chunk, for 4 to 8 chunks.
_COPIED, _CHUNK = 192 << 20, 384 << 20

# The numbers of points along the longest axis with which cuFFT's plan is faster on one GPU.
_WHOLE = range(256, 513)


def choose(arguments: Arguments, device: Device, comm: Comm) -> Choices:
    """Return the choices that the arguments of a transform leave open. Collective.

    "off" follows rules from our measurements. "quick" measures transports and divisions, one after
    the other; "full" also numbers of workers, and all combinations that are not far behind.
    """
    a = arguments
    name = chosen_transport(a.transport, comm, device)
    slab = SlabOptions(whole=device.kind != "cpu" and max(a.shape) in _WHOLE)
    if device.kind != "cpu" and a.ranks > 1:
        bytes_per_rank = _modes_bytes(a) // a.ranks
        if bytes_per_rank >= _COPIED:
            chunks = max(4, min(8, bytes_per_rank // _CHUNK))
            slab = dataclasses.replace(slab, kx_chunks=chunks, store=False)
    default = Choices(name, a.workers or a.ranks, slab)
    if a.tune == "off":
        return default
    best: Choices = tuner.tuned(
        transform_key(a, device),
        partial(_from_record, ranks=a.ranks, comm=comm, device=device),
        partial(_candidates, a, device, comm, default),
        lambda choices: pair_of(Plan(a, device, comm, choices), a, device, device, comm),
        comm,
        a.tune,
    )
    return best


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
        names = transports_to_try(comm, device, _modes_bytes(arguments) / arguments.ranks**2)
    chunks = (1, 2, 4, 8, 16) if several else (1,)
    divisions = [
        SlabOptions(kx_chunks=p, plane_chunks=q, store=store, tiled=tiled, whole=whole)
        for p in chunks
        for q in (_plane_chunks(device, p, chunks) if full else (1,))
        for store in ((True, False) if several else (True,))
        for tiled in ((True, False) if device.tiled_transforms() else (True,))
        for whole in ((True, False) if device.kind != "cpu" and not several else (False,))
    ]
    teams = [default.workers]
    if arguments.workers is None and several and full:
        teams.append(1)
    options: dict[str, list[Any]] = {"transport": names, "workers": teams, "slab": divisions}
    for one in tuner.variations(default, options, arguments.tune)(times):
        # Other transports cannot store at the receivers, and one worker exchanges nothing.
        stores = several and can_store(one.transport)
        stores = stores or one.slab.store == default.slab.store
        alone = several and one.workers == 1
        as_default = dataclasses.replace(one.slab, tiled=default.slab.tiled) == default.slab
        if stores and (not alone or as_default):
            yield one


def _modes_bytes(arguments: Arguments) -> int:
    modes = math.prod(arguments.spectral_shape) * arguments.fields
    return modes * arguments.complex_dtype.itemsize


def _plane_chunks(device: Device, kx_chunks: int, chunks: Sequence[int]) -> Sequence[int]:
    """Return the numbers of chunks of planes worth measuring for a number of chunks of kx."""
    if device.kind != "cpu":
        return (1, 2) if len(chunks) > 1 else (1,)
    return chunks if kx_chunks == 1 else (1,)


def _usable(name: str, comm: Comm, device: Device) -> bool:
    try:
        chosen_transport(name, comm, device)
    except InputError:
        return False
    return True


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


def _from_record(record: dict[str, Any], ranks: int, comm: Comm, device: Device) -> Choices | None:
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
    return known if known.transport != "none" and _usable(known.transport, comm, device) else None
