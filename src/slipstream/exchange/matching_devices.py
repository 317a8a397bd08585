"""Devices of several ranks: all of the same kind, and on a node one each if there are enough."""

from __future__ import annotations

from slipstream.accepted import DEVICES
from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.device import Device, choose_gpus, current_gpu, open_device, visible_gpus
from slipstream.errors import InputError
from slipstream.exchange.communicators import on_node


def open_matching_device(device: Device | str, comm: Comm) -> Device:
    """Return this rank's device, opened if it is a name, of the same kind on all ranks. Collective.

    Without a communicator it is the GPU that is CuPy's current device. All ranks raise `InputError`
    if there is none.
    """
    wants_gpu = isinstance(device, str) and device != "cpu"
    # Ranks may ask for different devices: they meet here whatever they want.
    vendor = "hip" if wants_gpu and device == "hip" else "cuda"
    gpus = on_every_rank(comm, lambda: visible_gpus(vendor) if wants_gpu else [])
    local, seen = on_node(comm, gpus)

    def opened() -> Device:
        if isinstance(device, Device):
            return device
        if isinstance(device, str):
            if comm is None:
                return open_device(device, current_gpu() if seen[0] else 0)
            place = choose_gpus(seen)[local] if seen[local] else local
            return open_device(device, place, comm.size)
        accepted = ", ".join(["auto", *DEVICES])
        raise InputError(f"device {device!r}; accepted: {accepted}, or an open device")

    mine = on_every_rank(comm, opened)
    # Exchanged rows of different kinds of devices differ in length.
    kinds = [mine.kind] if comm is None else comm.allgather(mine.kind)
    if len(set(kinds)) > 1:
        odd = [rank for rank, kind in enumerate(kinds) if kind != kinds[0]]
        raise InputError(
            f"device 'auto' found {kinds[0]!r} on rank 0, but {kinds[odd[0]]!r} on rank {odd[0]}; "
            "name the device, 'cpu' or 'cuda', and see 'slipstream info' on that rank's machine"
        )
    return mine
