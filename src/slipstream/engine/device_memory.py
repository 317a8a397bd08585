"""How much memory a simulation takes, and whether its devices, which ranks may share, have it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from slipstream.engine.array_types import Comm
from slipstream.engine.device import Device
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import GridTransports, RankPlace, Transport


class MakeTransport(Protocol):
    """Makes the transport of a name for a device that notes."""

    def __call__(
        self,
        name: str,
        device: NotingDevice,
        wire: str | None = None,
        grid: tuple[int, int] | None = None,
    ) -> Any: ...


def noted_memory(make: Callable[[MakeTransport], object], rank: RankPlace) -> dict[str, int]:
    """Return the bytes on the "device", a GPU, and on the "host" that one rank allocates.

    What does so is made on a `NotingDevice`, with the transports of a name that `make` asks for.
    """

    def make_transport(
        name: str,
        device: NotingDevice,
        wire: str | None = None,
        grid: tuple[int, int] | None = None,
    ) -> Transport | GridTransports | None:
        if name == "none" or rank.ranks == 1:
            return None
        # A single rank imports no transport.
        from slipstream.engine.exchange.noting_transport import noting_grid

        return noting_grid(name, rank, device, wire, grid)

    meter = MemoryMeter()
    with meter:
        made = make(make_transport)
        taken = meter.total()
    del made
    return taken


def swap_bytes(transport: str, size: int) -> int:
    """Return the bytes of the buffers by which two arrays swap `size` bytes in turn."""
    if transport == "peer":
        # A single rank imports no transport. Nothing is packed: numbers are stored at receivers.
        from slipstream.engine.exchange.peer_memory import FLAGS, allocated_bytes

        return 2 * allocated_bytes(size) + 8 * FLAGS
    return 4 * size


def ranks_per_device(comm: Comm, device: Device) -> int:
    """Return the number of ranks that share this rank's device. Collective."""
    if comm is None:
        return 1
    return comm.allgather(device.identity).count(device.identity)


def check_memory(
    comm: Comm,
    needs: Sequence[tuple[Device, int]],
    what: str = "grid.points: this grid",
    less: str = "fewer points",
    precision: object = "",
) -> None:
    """Refuse on all ranks a run that exceeds the free memory of some device. Collective.

    Parameters
    ----------
    needs : sequence of (Device, int)
        This rank's devices, and the bytes that all ranks which share one need on it.
    what, less : str
        The cause, beginning with its key in the case, and an alternative that needs less.
    precision : str or dtype, optional
        That of the case, if the need depends on it: shorter numbers are advised where there are.
    """
    local_needs = [
        (device.identity, device.kind, device.name, need, device.memory_free())
        for device, need in needs
    ]
    everyone = [local_needs] if comm is None else comm.allgather(local_needs)
    facts = list(itertools.chain(*everyone))
    for _, kind, name, need, free in facts:
        if need <= free:
            continue
        alike = {
            identity: need_there for identity, other, _, need_there, _ in facts if other == kind
        }
        enough = math.ceil(sum(alike.values()) / max(1, free))
        more = f"more ranks on more devices (about {enough} like this one in all)"
        remedies = f"{less}, or {more}"
        if str(precision) == "float64":
            remedies = f'{less}, {more}, or numerics.precision = "float32"'
        raise InputError(
            f"{what} needs {need / 2**30:.3g} GiB on {name}, which has {free / 2**30:.3g} GiB "
            f"free; use {remedies}; `slipstream project` is for other machines"
        )
