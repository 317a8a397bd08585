"""Which transport a name stands for, on the devices at hand."""

from __future__ import annotations

import ctypes
from typing import Any

from slipstream.collective import on_every_rank
from slipstream.device import Device, open_device
from slipstream.errors import InputError
from slipstream.exchange.mpi_transport import MpiTransport
from slipstream.exchange.nccl_transport import NcclTransport, nccl_is_available
from slipstream.exchange.peer_transport import peer_transport
from slipstream.exchange.transport_base import Transport

TRANSPORTS = ("peer", "nccl", "mpi-p2p", "mpi", "mpi-device-p2p", "mpi-device")


def chosen_transport(name: str, comm: Any, device: Device) -> str:
    """Return the transport that a name stands for. Collective.

    Parameters
    ----------
    name : str
        One of `TRANSPORTS`, or "auto": shared memory where all ranks are on one node (GPUs: each
        with one of its own), else NCCL where every rank has a GPU of its own, else MPI's
        point-to-point messages.
    comm : mpi4py.MPI.Comm or None
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
        If the name is unknown, or stands for what cannot be here; on all ranks alike.
    """
    if name not in ("auto", *TRANSPORTS):
        raise InputError(f"transport {name!r} is unknown; accepted: auto, {', '.join(TRANSPORTS)}")
    if comm is None or comm.size == 1:
        return "none"
    if name in ("mpi", "mpi-p2p"):
        return name
    able = device.kind == "cpu" or nccl_is_available(), device.kind == "cpu" or mpi_takes_gpus()
    facts = comm.allgather((device.kind, device.identity, *able))
    kinds, identities, nccl, direct = zip(*facts, strict=True)
    problems = dict.fromkeys(TRANSPORTS, "")
    if not all(direct):
        problems["mpi-device"] = problems["mpi-device-p2p"] = (
            "needs an MPI library that takes GPU memory (CUDA-aware), and this one does not"
        )
    if "cpu" in kinds:
        problems["nccl"] = "needs a GPU on every rank"
    elif len(set(identities)) < len(identities):
        problems["nccl"] = problems["peer"] = "needs a GPU of its own for every rank"
    elif not all(nccl):
        problems["nccl"] = "needs CuPy with the NCCL library on every rank"
    if name == "auto":
        return _automatic(comm, problems)
    if problems[name]:
        usable = [other for other in TRANSPORTS if not problems[other]]
        raise InputError(
            f"transport {name!r} {problems[name]}; accepted here: auto, {', '.join(usable)}"
        )
    return name


def _automatic(comm: Any, problems: dict[str, str]) -> str:
    if not problems["peer"] and one_node(comm):
        return "peer"
    return "mpi-p2p" if problems["nccl"] else "nccl"


def one_node(comm: Any) -> bool:
    """Return whether all ranks are on one node. Collective."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = node.size
    node.Free()
    return comm.allreduce(size, MPI.MIN) == comm.size


def mpi_takes_gpus() -> bool:
    """Return whether the MPI library says that messages may lie in a GPU's memory."""
    try:
        from mpi4py import MPI

        # The module's file finds the symbols of the library that it is linked with.
        library = ctypes.CDLL(MPI.__file__)
    except (ImportError, OSError):
        return False
    if hasattr(library, "MPIX_Query_cuda_support"):  # Open MPI
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):  # MPICH; 0 stands for CUDA
        supported = ctypes.c_int(0)
        failed = library.MPIX_GPU_query_support(0, ctypes.byref(supported))
        return not failed and bool(supported.value)
    return False


def check_devices(comm: Any, device: Device) -> None:
    """Make sure that all ranks have the same kind of device. Collective.

    Raises
    ------
    InputError
        If they have not, on all ranks; exchanged rows would differ in length.
    """
    if comm is None:
        return
    kinds = comm.allgather(device.kind)
    if len(set(kinds)) > 1:
        odd = [rank for rank, kind in enumerate(kinds) if kind != kinds[0]]
        raise InputError(
            f"device 'auto' found {kinds[0]!r} on rank 0, but {kinds[odd[0]]!r} on rank {odd[0]}; "
            "name the device, 'cpu' or 'cuda', and see 'slipstream info' on that rank's machine"
        )


def open_matching_device(kind: str, comm: Any) -> Device:
    """Open this rank's device, and make sure that all ranks have the same kind. Collective.

    Parameters
    ----------
    kind : {"auto", "cpu", "cuda"}
        As for `open_device`; ranks of a node share its GPUs in turn.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Raises
    ------
    InputError
        If there is no such device, or ranks found different ones.
    """
    local = local_rank(comm)
    device = on_every_rank(comm, lambda: open_device(kind, local))
    check_devices(comm, device)
    return device


def make_transport(name: str, comm: Any, device: Device) -> Transport | None:
    """Make the transport of a name; None for "none", nothing to exchange. Collective.

    Parameters and errors as for `chosen_transport`.
    """
    chosen = name if name == "none" else chosen_transport(name, comm, device)
    if chosen == "none":
        return None
    if chosen == "nccl":
        return NcclTransport(comm, device)
    if chosen != "peer":
        return MpiTransport(comm, device, chosen)
    far = "mpi-p2p" if one_node(comm) else _automatic_for_far(comm, device)
    return peer_transport(comm, device, make_transport(far, comm, device))


def _automatic_for_far(comm: Any, device: Device) -> str:
    """Return the transport for ranks that do not share memory."""
    usable = comm.allreduce(int(device.kind == "cuda" and nccl_is_available()))
    return "nccl" if usable == comm.size else "mpi-p2p"


def local_rank(comm: Any) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    if comm is None:
        return 0
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank = node.rank
    node.Free()
    return rank
