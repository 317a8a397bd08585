"""Devices of several ranks: all of the same kind, and those of a node shared in turn."""

from __future__ import annotations

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.device import Device, open_device
from slipstream.errors import InputError
from slipstream.exchange.communicators import local_rank


def open_matching_device(device: str | Device, comm: Comm) -> Device:
    """Return this rank's device, opened if need be. Collective.

    Raises `InputError` on all ranks unless all have the same kind of device: exchanged rows would
    differ in length.
    """
    if isinstance(device, str):
        kind, local = device, local_rank(comm)
        device = on_every_rank(comm, lambda: open_device(kind, local))
    if comm is None:
        return device
    kinds = comm.allgather(device.kind)
    if len(set(kinds)) > 1:
        odd = [rank for rank, kind in enumerate(kinds) if kind != kinds[0]]
        raise InputError(
            f"device 'auto' found {kinds[0]!r} on rank 0, but {kinds[odd[0]]!r} on rank {odd[0]}; "
            "name the device, 'cpu' or 'cuda', and see 'slipstream info' on that rank's machine"
        )
    return device
