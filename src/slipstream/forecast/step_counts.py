"""What a step of a case moves, whatever its family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.forecast.machine_description import Family, Machine
from slipstream.io.stored_layout import stored_layout


@dataclass(frozen=True)
class OutputSize:
    """What one output has: bytes, in so many files."""

    bytes: int
    files: int


def output_size(
    shape: Sequence[int], boxes: Sequence[Box], item_bytes: Iterable[int]
) -> OutputSize:
    """Return the size of arrays of the same points, of these bytes for each of them."""
    pairs = [(box.start, box.shape) for box in boxes]
    sizes = [
        (math.prod(shape) * item, stored_layout(shape, pairs, item).files(shape))
        for item in item_bytes
    ]
    return OutputSize(sum(one for one, _ in sizes), sum(files for _, files in sizes))


@dataclass(frozen=True)
class StepCounts:
    """What the rank that has most to do moves in a step.

    Attributes
    ----------
    family : {"spectral", "lattice", "advection"}
        Whose passes over memory they are.
    ranks : int
        How many ranks there are.
    ranks_of_node, devices_of_rank : int
        How many of them a node has, and each of them devices.
    memory_bytes : float
        Read and written in the memory of its device, by passes that take each number once.
    fields_bytes : float
        What it keeps, on the device or on the host.
    is_overlapped : bool
        Whether all that follows goes on at the same time.
    host_bytes : float
        Read and written in the memory of the host, by the host's cores.
    bus_in_bytes, bus_out_bytes : float
        Copied to its device from the host, and back.
    in_node_bytes, off_node_bytes : float
        Sent to ranks of its node, and of others.
    in_node_messages, off_node_messages : int
        In so many messages.
    message_bytes : float
        The largest of those to a rank of another node.
    relayed_bytes : float
        Sent within the node, from the host, before and after they travel between nodes.
    is_from_host : bool
        Whether messages leave from the host, not from its device.
    exchanges : float
        Number of times that it waits for messages.
    remark : str
        What is to be known of these numbers, if they are not counted from the whole plan.
    outputs : mapping of str to OutputSize
        A snapshot of all fields ("fields"), and a state ("checkpoint"), of all ranks.
    """

    family: Family
    ranks: int
    ranks_of_node: int
    devices_of_rank: int
    memory_bytes: float
    fields_bytes: float
    is_overlapped: bool
    host_bytes: float = 0.0
    bus_in_bytes: float = 0.0
    bus_out_bytes: float = 0.0
    in_node_bytes: float = 0.0
    off_node_bytes: float = 0.0
    in_node_messages: int = 0
    off_node_messages: int = 0
    message_bytes: float = 0.0
    relayed_bytes: float = 0.0
    is_from_host: bool = False
    exchanges: float = 0.0
    remark: str = ""
    outputs: Mapping[str, OutputSize] = field(default_factory=dict)


def carried_by(transport: str, counts: StepCounts, machine: Machine) -> StepCounts:
    """Return the counts if messages are carried by a transport of a name as in cases.

    Unless it is told to leave them on devices, MPI takes messages from the host. "auto" is taken to
    find a transport from device to device.
    """
    if not transport.startswith("mpi") or transport.startswith("mpi-device") or counts.ranks == 1:
        return counts
    # Fields that are on the host are exchanged there.
    crosses = machine.device.kind == "gpu" and not counts.bus_in_bytes
    staged = counts.in_node_bytes + counts.off_node_bytes if crosses else 0.0
    counts = replace(
        counts,
        is_from_host=True,
        bus_in_bytes=counts.bus_in_bytes + staged,
        bus_out_bytes=counts.bus_out_bytes + staged,
    )
    return aggregated(counts) if transport == "mpi-hierarchical" else counts


def aggregated(counts: StepCounts) -> StepCounts:
    """Return what an exchange of all with all moves whose messages are aggregated on each node."""
    ranks, nodes = counts.ranks_of_node, -(-counts.ranks // counts.ranks_of_node)
    exchanges = round(counts.exchanges) if counts.off_node_bytes else 0
    # Each rank deals with some of the other nodes; it gathers from the others, and scatters.
    return replace(
        counts,
        message_bytes=counts.message_bytes * ranks**2,
        relayed_bytes=2 * counts.off_node_bytes * (ranks - 1) / ranks,
        off_node_messages=-(-(nodes - 1) // ranks) * exchanges,
        in_node_messages=counts.in_node_messages + 2 * (ranks - 1) * exchanges,
    )


def room_of_rank(machine: Machine, ranks: int, where: str, devices_of_rank: int = 1) -> float:
    """Return the bytes of memory that each of so many ranks has, on its "device" or the "host"."""
    if where == "device":
        return machine.device.memory_gib * 2**30 * devices_of_rank
    return machine.node.memory_gib * 2**30 / min(ranks, machine.devices_per_node // devices_of_rank)


def check_fit(ranks: int, need: float, room: float, where: str, hint: str = "") -> None:
    """Refuse fields of a rank that are larger than the room that it has."""
    if need > room:
        raise InputError(
            f"{ranks} ranks: fields take {need / 2**30:.3g} GiB of the {where}'s"
            f" {room / 2**30:.3g} GiB for each; take more nodes{hint}"
        )
