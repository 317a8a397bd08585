"""Which ranks of a communicator are where: in MPI's world, and on a node."""

from __future__ import annotations

from typing import TypeVar

from slipstream.array_types import Comm

T = TypeVar("T")


def world_ranks(comm: Comm) -> tuple[int, ...]:
    """Return the numbers of a communicator's ranks in MPI's world."""
    from mpi4py import MPI

    group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = tuple(MPI.Group.Translate_ranks(group, range(comm.size), world))
    group.Free()
    world.Free()
    return ranks


def one_node(comm: Comm) -> bool:
    """Return whether all ranks are on one node. Collective."""
    from mpi4py import MPI

    _, size = _rank_and_size_in_node(comm)
    return comm.allreduce(size, MPI.MIN) == comm.size


def local_rank(comm: Comm) -> int:
    """Return this process's rank among those of its node, 0 without a communicator. Collective."""
    return 0 if comm is None else _rank_and_size_in_node(comm)[0]


def on_node(comm: Comm, mine: T) -> tuple[int, list[T]]:
    """Return `local_rank`, and what each rank of the node says. Collective."""
    if comm is None:
        return 0, [mine]
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, all_there = node.rank, node.allgather(mine)
    node.Free()
    return rank, all_there


def _rank_and_size_in_node(comm: Comm) -> tuple[int, int]:
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, size = node.rank, node.size
    node.Free()
    return rank, size
