"""The places of a communicator's ranks, and the devices that they open."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from slipstream.accepted import DEVICES
from slipstream.array_types import Comm, Communicator
from slipstream.collective import on_every_rank
from slipstream.device import Device, choose_gpus, current_gpu, open_device, visible_gpus
from slipstream.errors import InputError

T = TypeVar("T")

# The variable that makes one machine count as several nodes.
RANKS_PER_NODE = "SLIPSTREAM_RANKS_PER_NODE"


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
    place, there = on_node(comm, comm.rank)
    told = comm.bcast(os.environ.get(RANKS_PER_NODE, ""))
    if told and not (told.isdecimal() and int(told)):
        raise InputError(f"{RANKS_PER_NODE} is {told!r}; accepted: a positive number of ranks")
    everyone = comm.allgather((there[0], place // int(told) if told else 0))
    numbers = {node: number for number, node in enumerate(dict.fromkeys(everyone))}
    return tuple(numbers[node] for node in everyone)


def one_node(comm: Communicator) -> bool:
    """Return whether all ranks are on one node. Collective."""
    return max(node_numbers(comm)) == 0


@dataclass(frozen=True)
class RankPlace:
    """The number of this rank, the number of ranks, and the number of ranks on a node.

    If these are some of the ranks of a process grid, they are ranks `first`, ``first + apart`` ...
    of all, of which `ranks_of_node` consecutive ones share a node.
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
        place, part = divmod(self.rank, grid[1])
        along = RankPlace(place, grid[0], self.ranks_of_node, part, grid[1])
        return along, RankPlace(part, grid[1], self.ranks_of_node, self.rank - part)


def local_rank(comm: Comm) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    return on_node(comm, None)[0]


def on_node(comm: Comm, mine: T) -> tuple[int, list[T]]:
    """Return `local_rank`, and the value `mine` of each rank of the node. Collective."""
    if comm is None:
        return 0, [mine]
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, all_there = node.rank, node.allgather(mine)
    node.Free()
    return rank, all_there


def open_matching_device(device: Device | str, comm: Comm) -> Device:
    """Return this rank's device, opened if it is a name, of the same kind on all ranks. Collective.

    Without a communicator it is the GPU that is CuPy's current device. All ranks raise `InputError`
    if there is none.
    """
    wants_gpu = isinstance(device, str) and device != "cpu"
    # Ranks may ask for different devices, so all take part here.
    gpus = on_every_rank(comm, lambda: visible_gpus() if wants_gpu else [])
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
