"""Which ranks of a communicator are where: in MPI's world, and on a node."""

from __future__ import annotations

import os
from typing import TypeVar

from slipstream.array_types import Comm, Communicator
from slipstream.errors import InputError

T = TypeVar("T")

# The variable by which one machine can be told to be several nodes.
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

    As many ranks as ``SLIPSTREAM_RANKS_PER_NODE`` says on the first one count as a node.
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


def local_rank(comm: Comm) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    return on_node(comm, None)[0]


def on_node(comm: Comm, mine: T) -> tuple[int, list[T]]:
    """Return `local_rank`, and what each rank of the node says. Collective."""
    if comm is None:
        return 0, [mine]
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, all_there = node.rank, node.allgather(mine)
    node.Free()
    return rank, all_there
