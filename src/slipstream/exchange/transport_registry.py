"""The transports: their names, the choice of "auto", and their construction.

A transport is a subclass of `Transport`, with the devices that it supports and its requirements. To
add one, write its module, enter it in `TRANSPORTS`, and add its description to
`slipstream.accepted`. Modules are imported on use, so a single rank imports none of them.
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
# The candidates of "auto", which selects the first usable one; some are for one node only.
AUTOMATIC = ("peer", "nccl", "mpi-p2p")
# The largest message between two ranks, in bytes, for which aggregation may be faster.
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
    """Return the transports of this process on a kind of device, without initialising MPI."""
    classes = {name: transport_class(name) for name in TRANSPORTS}
    return [
        name
        for name, one in classes.items()
        if not one.without_gpu and kind in one.devices and not one.lacks(kind)
    ]


def chosen_transport(name: str, comm: Comm, device: Device) -> str:
    """Return the transport that a name stands for, "none" on a single rank. Collective.

    "auto" stands for shared memory if all ranks are on one node (each with its own GPU, on GPUs),
    else NCCL if every rank has its own GPU, else MPI's point-to-point messages. Raises
    `InputError`, on all ranks, for unknown names and unusable transports.
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
    """Return the transports worth measuring for messages of a size in bytes. Collective."""
    problems = _problems(TRANSPORTS, comm, device)
    aggregated = can_aggregate(comm) and message <= _SMALL
    return [
        name
        for name, problem in problems.items()
        if not problem
        and (aggregated or not transport_class(name).aggregates)
        # Without a GPU some transports are equal.
        and not (device.kind == "cpu" and transport_class(name).without_gpu)
    ]


def can_store(name: str) -> bool:
    """Return whether ranks with this transport store into each other's memory, if shared."""
    return transport_class(name).can_store


def make_transport(
    name: str, comm: Comm, device: Device, wire: str | None = None
) -> Transport | None:
    """Make the transport of a name; None for "none", nothing to exchange. Collective.

    With a `wire`, data are sent in that precision. A communicator that is not from
    `slipstream.collective.own` is duplicated. Errors are those of `chosen_transport`.
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
    """Make the transport between ranks that share no memory. Collective."""
    # On one node there are hardly any, so a transport without much setup is enough.
    name = "mpi-p2p" if one_node(comm) else _automatic(comm, device, False)
    return transport_class(name).make(comm, device)


def _automatic(comm: Communicator, device: Device, is_one_node: bool) -> str:
    # One by one: transports after the first usable one are not imported.
    for name in AUTOMATIC:
        reaches_all = is_one_node or not transport_class(name).within_node
        if reaches_all and not _problems([name], comm, device)[name]:
            return name
    raise RuntimeError("no transport is usable, though MPI's messages always are")


def _problems(names: Iterable[str], comm: Communicator, device: Device) -> dict[str, str]:
    """Return why each transport is unusable for these ranks, "" if it is usable. Collective."""
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
        return "needs one GPU for every rank"
    return next((rank.lacks[name] for rank in ranks if rank.lacks[name]), "")
