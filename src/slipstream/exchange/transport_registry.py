"""Which transports there are, which of them "auto" takes, and how one is made.

A transport is a subclass of `Transport`, which says what devices it serves and what a rank may
lack. To add one, write its module, enter it in `TRANSPORTS`, and add its line for people to
`slipstream.accepted`. Modules are imported when a transport of theirs is asked for, so that a
single rank imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from slipstream.argument_checks import name_among
from slipstream.array_types import Comm, Communicator
from slipstream.collective import largest, own
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange.communicators import node_numbers, one_node
from slipstream.exchange.grid_transports import GridTransports
from slipstream.exchange.transport_base import Transport

if TYPE_CHECKING:
    from slipstream.collective.own_communicator import OwnCommunicator

# By name: module in this package, and class.
TRANSPORTS = {
    "peer": ("peer_transport", "PeerTransport"),
    "nccl": ("nccl_transport", "NcclTransport"),
    "mpi-p2p": ("mpi_transport", "MpiPointToPoint"),
    "mpi": ("mpi_transport", "MpiAllToAll"),
    "mpi-hierarchical": ("hierarchical_transport", "MpiHierarchical"),
    "mpi-device-p2p": ("mpi_transport", "MpiDevicePointToPoint"),
    "mpi-device": ("mpi_transport", "MpiDeviceAllToAll"),
}
# What "auto" stands for: the first that can be used; what is for one node, only on one node.
AUTOMATIC = ("peer", "nccl", "mpi-p2p")
# Up to this many bytes between two ranks, aggregated messages may be faster.
_SMALL = 16 << 10


class _RankFacts(NamedTuple):
    kind: str
    identity: str
    lacks: dict[str, str]


def transport_class(name: str) -> type[Transport]:
    """Return the class of a transport, importing its module."""
    module, attribute = TRANSPORTS[name]
    found: type[Transport] = getattr(import_module(f"slipstream.exchange.{module}"), attribute)
    return found


def names_on(kind: str) -> list[str]:
    """Return the transports that this process has on a kind of device, told without MPI."""
    classes = {name: transport_class(name) for name in TRANSPORTS}
    return [
        name
        for name, one in classes.items()
        if not one.without_gpu and kind in one.devices and not one.lacks(kind)
    ]


def chosen_transport(name: str, comm: Comm, device: Device) -> str:
    """Return the transport that a name stands for, "none" on a single rank. Collective.

    "auto" stands for shared memory where all ranks are on one node (GPUs: each with one of its
    own), else NCCL where every rank has a GPU of its own, else MPI's point-to-point messages.
    Raises `InputError`, on all ranks, for unknown names and for what cannot be here.
    """
    name_among("transport", name, ("auto", *TRANSPORTS))
    if comm is None or comm.size == 1:
        return "none"
    if name == "auto":
        return _automatic(comm, device, one_node(comm))
    problem = _problems([name], comm, device)[name]
    if problem:
        problems = _problems(TRANSPORTS, comm, device)
        usable = [other for other in TRANSPORTS if not problems[other]]
        raise InputError(f"transport {name!r} {problem}; accepted here: auto, {', '.join(usable)}")
    return name


def can_aggregate(comm: Communicator) -> bool:
    """Return whether there are several nodes, and several ranks on one of them. Collective."""
    return 1 < len(set(node_numbers(comm))) < comm.size


def transports_to_try(comm: Communicator, device: Device, message: float) -> list[str]:
    """Return what is worth measuring for messages of so many bytes between ranks. Collective."""
    problems = _problems(TRANSPORTS, comm, device)
    aggregated = can_aggregate(comm) and message <= _SMALL
    return [
        name
        for name, problem in problems.items()
        if not problem
        and (aggregated or not transport_class(name).aggregates)
        # Without a GPU some are the same as others.
        and not (device.kind == "cpu" and transport_class(name).without_gpu)
    ]


def can_store(name: str) -> bool:
    """Return whether ranks store into each other's memory by this transport, where they see it."""
    return transport_class(name).can_store


def make_transport(
    name: str, comm: Comm, device: Device, wire: str | None = None
) -> Transport | None:
    """Make the transport of a name; None for "none", nothing to exchange. Collective.

    With a `wire`, data travel in that precision. A communicator that is not from
    `slipstream.collective.own` is duplicated. Raises what `chosen_transport` does.
    """
    chosen = name if name == "none" else chosen_transport(name, comm, device)
    if chosen == "none":
        return None
    owned = cast("OwnCommunicator", own(comm, f"transport {chosen}"))
    transport = transport_class(chosen).make(owned, device)
    if wire is None:
        return transport
    from slipstream.exchange.reduced_precision_wire import NarrowWire

    return NarrowWire(transport, device, owned, wire)


def make_grid_transports(
    name: str, comm: Comm, device: Device, grid: tuple[int, int], wire: str | None = None
) -> GridTransports:
    """Make the transports along both axes of a process grid; see `make_transport`. Collective."""
    owned = cast("OwnCommunicator", own(comm, "process grid"))
    place, part = divmod(owned.rank, grid[1])
    along, across = (
        make_transport(name, owned.divided(number), device, wire) for number in (part, place)
    )
    return GridTransports(along, across, largest(owned, device.lanes))


def make_far_transport(comm: OwnCommunicator, device: Device) -> Transport:
    """Make what serves the ranks that one made for a node does not reach. Collective."""
    # On one node there are hardly any, for which nothing is to be set up that they might not need.
    name = "mpi-p2p" if one_node(comm) else _automatic(comm, device, False)
    return transport_class(name).make(comm, device)


def _automatic(comm: Communicator, device: Device, is_one_node: bool) -> str:
    # One after the other: whatever comes behind the first that can be used is not even imported.
    for name in AUTOMATIC:
        reaches_all = is_one_node or not transport_class(name).within_node
        if reaches_all and not _problems([name], comm, device)[name]:
            return name
    raise RuntimeError("no transport can be used, though MPI's messages always can")


def _problems(names: Iterable[str], comm: Communicator, device: Device) -> dict[str, str]:
    """Return why each transport cannot be used by these ranks, "" if it can. Collective."""
    classes = {name: transport_class(name) for name in names}
    lacks = {name: one.lacks(device.kind) for name, one in classes.items()}
    ranks = comm.allgather(_RankFacts(device.kind, device.identity, lacks))
    return {name: _problem(name, one, ranks) for name, one in classes.items()}


def _problem(name: str, transport: type[Transport], ranks: Sequence[_RankFacts]) -> str:
    kinds = {rank.kind for rank in ranks}
    if not kinds <= set(transport.devices):
        return "needs a GPU on every rank"
    shares_a_gpu = "cpu" not in kinds and len({rank.identity for rank in ranks}) < len(ranks)
    if transport.needs_own_gpu and shares_a_gpu:
        return "needs a GPU of its own for every rank"
    return next((rank.lacks[name] for rank in ranks if rank.lacks[name]), "")
