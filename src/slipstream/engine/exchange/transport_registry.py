"""The transports: their names, the choice of "auto", and their construction."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from slipstream.engine.accepted import DEVICES
from slipstream.engine.array_types import Comm, Communicator
from slipstream.engine.collective import largest, on_every_rank, own
from slipstream.engine.device import (
    Device,
    choose_gpus,
    cuda_device_count,
    current_gpu,
    open_device,
    visible_gpus,
)
from slipstream.engine.errors import InputError, name_among
from slipstream.engine.exchange.transport_base import Transport

if TYPE_CHECKING:
    from slipstream.engine.own_communicator import OwnCommunicator


T = TypeVar("T")

# The variable that makes one machine count as several nodes.
RANKS_PER_NODE = "SLIPSTREAM_RANKS_PER_NODE"
# By name: module in this package, and class.
TRANSPORTS = {
    "peer": ("peer_transport", "PeerTransport"),
    "nccl": ("nccl_transport", "NcclTransport"),
    "mpi-p2p": ("mpi_transport", "MpiPointToPoint"),
    "mpi": ("mpi_transport", "MpiAllToAll"),
    "mpi-hierarchical": ("mpi_transport", "MpiHierarchical"),
    "mpi-device-p2p": ("mpi_transport", "MpiDevicePointToPoint"),
    "mpi-device": ("mpi_transport", "MpiDeviceAllToAll"),
}
# The candidates of "auto", which selects the first usable one; some are for one node only.
AUTOMATIC = ("peer", "nccl", "mpi-p2p")
# The largest message between two ranks, in bytes, for which aggregation may be faster.
_SMALL = 16 << 10


def world_ranks(comm: Communicator) -> tuple[int, ...]:
    """Return the numbers of a communicator's ranks in MPI's world."""
    from mpi4py import MPI

    group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = tuple(MPI.Group.Translate_ranks(group, range(comm.size), world))
    group.Free()
    world.Free()
    return ranks


def node_numbers(comm: Communicator) -> tuple[int, ...]:
    """Return the node of each rank: 0, 1, ... in the order of their first ranks. Collective.

    With ``SLIPSTREAM_RANKS_PER_NODE`` on the first rank, that many ranks count as a node.
    """
    rank_on_node, ranks_there = on_node(comm, comm.rank)
    setting = comm.bcast(os.environ.get(RANKS_PER_NODE, ""))
    if setting and not (setting.isdecimal() and int(setting)):
        raise InputError(f"{RANKS_PER_NODE} is {setting!r}; accepted: a positive number of ranks")
    everyone = comm.allgather((ranks_there[0], rank_on_node // int(setting) if setting else 0))
    numbers = {node: number for number, node in enumerate(dict.fromkeys(everyone))}
    return tuple(numbers[node] for node in everyone)


def one_node(comm: Communicator) -> bool:
    """Return whether all ranks are on one node. Collective."""
    return max(node_numbers(comm)) == 0


@dataclass(frozen=True)
class RankPlace:
    """The number of this rank, the number of ranks, and the number of ranks on a node.

    If these are some of the ranks of a process grid, they are ranks `first`, ``first + apart`` ...
    of all; `ranks_of_node` consecutive ranks share a node.
    """

    rank: int
    ranks: int
    ranks_of_node: int
    first: int = 0
    apart: int = 1

    @classmethod
    def of(cls, comm: Comm) -> RankPlace:
        """Return this rank's place, assuming equally many ranks on all nodes. Collective."""
        if comm is None:
            return cls(0, 1, 1)
        nodes = node_numbers(comm)
        return cls(comm.rank, comm.size, nodes.count(nodes[comm.rank]))

    @property
    def node(self) -> int:
        """The number of this rank's node."""
        return self.number(self.rank) // self.ranks_of_node

    def is_near(self, peer: int) -> bool:
        """Return whether a rank is on the same node."""
        return self.number(peer) // self.ranks_of_node == self.node

    @property
    def is_one_node(self) -> bool:
        """Whether all ranks are on one node."""
        return self.is_near(0) and self.is_near(self.ranks - 1)

    def number(self, peer: int) -> int:
        """Return the number among all ranks of one of these ranks."""
        return self.first + self.apart * peer

    def of_grid(self, grid: tuple[int, int]) -> tuple[RankPlace, RankPlace]:
        """Return the places along both axes of a process grid, as in `GridTransports`."""
        row, column = divmod(self.rank, grid[1])
        along = RankPlace(row, grid[0], self.ranks_of_node, column, grid[1])
        return along, RankPlace(column, grid[1], self.ranks_of_node, self.rank - column)


def local_rank(comm: Comm) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    return on_node(comm, None)[0]


def on_node(comm: Comm, value: T) -> tuple[int, list[T]]:
    """Return `local_rank`, and the `value` of each rank of the node. Collective."""
    if comm is None:
        return 0, [value]
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, all_there = node.rank, node.allgather(value)
    node.Free()
    return rank, all_there


def open_matching_device(device: Device | str, comm: Comm) -> Device:
    """Return this rank's device, opened if it is a name, of the same kind on all ranks. Collective.

    Without a communicator it is the GPU that is CuPy's current device. All ranks raise `InputError`
    if there is none.
    """
    if isinstance(device, Device) and comm is None:
        return device
    wants_gpu = isinstance(device, str) and device != "cpu"
    if isinstance(device, str) and comm is None:
        return open_device(device, current_gpu() if wants_gpu and cuda_device_count() else 0)
    # Ranks may ask for different devices, so all take part here.
    gpus = on_every_rank(comm, lambda: visible_gpus() if wants_gpu else [])
    local, seen = on_node(comm, gpus)

    def opened() -> Device:
        if isinstance(device, Device):
            return device
        if isinstance(device, str):
            assert comm is not None  # as without one it is open
            number = choose_gpus(seen)[local] if seen[local] else local
            return open_device(device, number, comm.size)
        accepted = ", ".join(["auto", *DEVICES])
        raise InputError(f"device {device!r}; accepted: {accepted}, or an open device")

    opened_device = on_every_rank(comm, opened)
    # Exchanged rows of different kinds of devices differ in length.
    kinds = [opened_device.kind] if comm is None else comm.allgather(opened_device.kind)
    if len(set(kinds)) > 1:
        odd = [rank for rank, kind in enumerate(kinds) if kind != kinds[0]]
        raise InputError(
            f"device 'auto' found {kinds[0]!r} on rank 0, but {kinds[odd[0]]!r} on rank {odd[0]}; "
            "name the device, 'cpu' or 'cuda', and see 'slipstream info' on that rank's machine"
        )
    return opened_device


@dataclass(frozen=True)
class GridTransports:
    """The transports of a rank of a process grid, whose ranks are in C order.

    `along` connects ranks along the first axis, with the same place along the last; `across`
    connects neighbours in rank order. None for a single rank. A rank has at most `lanes` lanes: all
    divide exchanged data equally.
    """

    along: Transport | None
    across: Transport | None
    lanes: int

    def relative_error(self, comm: Comm = None) -> float:
        """Return the larger of the errors of exchanges along both axes. Collective."""
        both = (self.along, self.across)
        return max((one.relative_error(comm) for one in both if one is not None), default=0.0)


class _RankFacts(NamedTuple):
    kind: str
    identity: str
    lacks: dict[str, str]


def transport_class(name: str) -> type[Transport]:
    """Return the class of a transport, importing its module."""
    module, attribute = TRANSPORTS[name]
    result: type[Transport] = getattr(
        import_module(f"slipstream.engine.exchange.{module}"), attribute
    )
    return result


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
        return _choose_automatic(comm, device, one_node(comm))
    problem = _find_problems([name], comm, device)[name]
    if problem:
        problems = _find_problems(TRANSPORTS, comm, device)
        usable = [other for other in TRANSPORTS if not problems[other]]
        raise InputError(f"transport {name!r} {problem}; accepted here: auto, {', '.join(usable)}")
    return name


def can_aggregate(comm: Communicator) -> bool:
    """Return whether there are several nodes, and several ranks on one of them. Collective."""
    return 1 < len(set(node_numbers(comm))) < comm.size


def transports_to_try(comm: Communicator, device: Device, message: float) -> list[str]:
    """Return the transports worth measuring for messages of a size in bytes. Collective."""
    problems = _find_problems(TRANSPORTS, comm, device)
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
    `slipstream.engine.collective.own` is duplicated. Errors are those of `chosen_transport`.
    """
    chosen = name if name == "none" else chosen_transport(name, comm, device)
    if chosen == "none":
        return None
    owned = cast("OwnCommunicator", own(comm, f"transport {chosen}"))
    transport = transport_class(chosen).make(owned, device)
    if wire is None:
        return transport
    from slipstream.engine.exchange.reduced_precision_wire import NarrowWire

    return NarrowWire(transport, device, owned, wire)


def make_grid_transports(
    name: str, comm: Comm, device: Device, grid: tuple[int, int], wire: str | None = None
) -> GridTransports:
    """Make the transports along both axes of a process grid; see `make_transport`. Collective."""
    owned = cast("OwnCommunicator", own(comm, "process grid"))
    row, column = divmod(owned.rank, grid[1])
    along, across = (
        make_transport(name, owned.divided(number), device, wire) for number in (column, row)
    )
    return GridTransports(along, across, largest(owned, device.lanes))


def make_far_transport(comm: OwnCommunicator, device: Device) -> Transport:
    """Make the transport between ranks that share no memory. Collective."""
    # On one node there are hardly any, so a transport without much setup is enough.
    name = "mpi-p2p" if one_node(comm) else _choose_automatic(comm, device, False)
    return transport_class(name).make(comm, device)


def _choose_automatic(comm: Communicator, device: Device, is_one_node: bool) -> str:
    # One by one: transports after the first usable one are not imported.
    for name in AUTOMATIC:
        reaches_all = is_one_node or not transport_class(name).within_node
        if reaches_all and not _find_problems([name], comm, device)[name]:
            return name
    raise RuntimeError("no transport is usable, though MPI's messages always are")


def _find_problems(names: Iterable[str], comm: Communicator, device: Device) -> dict[str, str]:
    """Return the faults of transports for these ranks by name, "" if usable. Collective."""
    classes = {name: transport_class(name) for name in names}
    lacks = {name: one.lacks(device.kind) for name, one in classes.items()}
    ranks = comm.allgather(_RankFacts(device.kind, device.identity, lacks))
    kinds = {rank.kind for rank in ranks}
    shares_a_gpu = "cpu" not in kinds and len({rank.identity for rank in ranks}) < len(ranks)
    problems = {}
    for name, transport in classes.items():
        problems[name] = next((rank.lacks[name] for rank in ranks if rank.lacks[name]), "")
        if not kinds <= set(transport.devices):
            problems[name] = "needs a GPU on every rank"
        elif transport.needs_own_gpu and shares_a_gpu:
            problems[name] = "needs one GPU for every rank"
    return problems
