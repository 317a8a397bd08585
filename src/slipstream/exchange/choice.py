"""Which transport a name stands for, on the devices at hand."""

from __future__ import annotations

from typing import Any

from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange.mpi import MpiTransport
from slipstream.exchange.nccl import NcclTransport, nccl_is_available
from slipstream.exchange.transport import Transport

TRANSPORTS = ("mpi-p2p", "mpi", "nccl")


def chosen_transport(name: str, communicator: Any, device: Device) -> str:
    """Return the transport that a name stands for. Collective.

    Parameters
    ----------
    name : {"auto", "mpi-p2p", "mpi", "nccl"}
        "auto" is NCCL where every rank has a GPU of its own, else MPI's point-to-point messages,
        the faster variant in shared memory by our measurements.
    communicator : mpi4py.MPI.Comm or None
        The ranks; with None or a single one there is nothing to exchange.
    device : Device
        This rank's device.

    Returns
    -------
    str
        One of `TRANSPORTS`, or "none".

    Raises
    ------
    InputError
        If the name is unknown, or NCCL is asked for where it cannot be; on all ranks alike.
    """
    if name not in ("auto", *TRANSPORTS):
        raise InputError(f"transport {name!r} is unknown; accepted: auto, {', '.join(TRANSPORTS)}")
    if communicator is None or communicator.size == 1:
        return "none"
    if name in ("mpi", "mpi-p2p"):
        return name
    usable = device.kind == "cuda" and nccl_is_available()
    ranks = communicator.allgather((usable, device.identity))
    identities = [identity for _, identity in ranks]
    if not all(able for able, _ in ranks):
        problem = "needs a GPU, and CuPy with the NCCL library, on every rank"
    elif len(set(identities)) < len(identities):
        problem = "needs a GPU of its own for every rank"
    else:
        return "nccl"
    if name == "nccl":
        raise InputError(f"transport 'nccl' {problem}; accepted here: auto, mpi, mpi-p2p")
    return "mpi-p2p"


def check_devices(communicator: Any, device: Device) -> None:
    """Make sure that all ranks have the same kind of device. Collective.

    Raises
    ------
    InputError
        If they have not, on all ranks; exchanged rows would differ in length.
    """
    if communicator is None:
        return
    kinds = communicator.allgather(device.kind)
    if len(set(kinds)) > 1:
        odd = [rank for rank, kind in enumerate(kinds) if kind != kinds[0]]
        raise InputError(
            f"device 'auto' found {kinds[0]!r} on rank 0, but {kinds[odd[0]]!r} on rank {odd[0]}; "
            "name the device, 'cpu' or 'cuda', and see 'slipstream info' on that rank's machine"
        )


def make_transport(name: str, communicator: Any, device: Device) -> Transport | None:
    """Make the transport of a name; None where there is nothing to exchange. Collective.

    Parameters and errors as for `chosen_transport`.
    """
    chosen = chosen_transport(name, communicator, device)
    if chosen == "none":
        return None
    return (
        NcclTransport(communicator, device)
        if chosen == "nccl"
        else MpiTransport(communicator, chosen)
    )


def local_rank(communicator: Any) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    if communicator is None:
        return 0
    from mpi4py import MPI

    node = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    rank = node.rank
    node.Free()
    return rank
