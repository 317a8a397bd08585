"""What a step of a case moves, counted from plans as ranks make them; no field is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.case import SpectralCase
from slipstream.device import open_device
from slipstream.errors import InputError
from slipstream.forecast.machine_description import Machine
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.problem_of_case import problem_of_case

# Rows of modes are aligned to so many bytes on GPUs.
_ROW_BYTES = 128
# In how many chunks an overlapped exchange goes.
_CHUNKS = 4


@dataclass(frozen=True)
class StepCounts:
    """What the first rank, which has most to do, moves in a step.

    Attributes
    ----------
    memory_bytes : float
        Read and written in the memory of its device, by passes that take each number once.
    bus_in_bytes, bus_out_bytes : float
        Copied to its device from the host, and back.
    in_node_bytes, off_node_bytes : float
        Sent to ranks of its node, and of others.
    message_bytes : float
        What it sends at a time to one rank of another node.
    exchanges : float
        Number of times that it waits for messages.
    fields_bytes : float
        What it keeps, on the device or on the host.
    ranks_of_node, devices_of_rank : int
        How many ranks a node has, and each of them devices.
    is_overlapped : bool
        Whether these go on at the same time.
    """

    memory_bytes: float
    bus_in_bytes: float
    bus_out_bytes: float
    in_node_bytes: float
    off_node_bytes: float
    message_bytes: float
    exchanges: float
    fields_bytes: float
    ranks_of_node: int
    devices_of_rank: int
    is_overlapped: bool


def spectral_counts(
    case: SpectralCase, machine: Machine, ranks: int, devices_of_rank: int = 1
) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    Raises
    ------
    InputError
        If a rank would have nothing to do, or its fields do not fit.
    """
    nz = case.grid.points_xyz[2]
    problem = problem_of_case(case, 0, ranks, _ROW_BYTES).problem
    geometry = problem.geometry
    if ranks > nz:
        raise InputError(f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most")
    ranks_of_node = min(ranks, machine.devices_per_node // devices_of_rank)
    device_memory = machine.device.memory_gib * 2**30 * devices_of_rank
    fields = problem.memory(open_device("cpu"))
    residency = case.run.residency
    is_on_host = residency == "host" or (residency == "auto" and fields > device_memory)
    room, where = device_memory, "device"
    if is_on_host:
        room, where = machine.node.memory_gib * 2**30 / ranks_of_node, "host"
    if fields > room:
        raise InputError(
            f"{ranks} ranks: fields take {fields / 2**30:.3g} GiB of the {where}'s"
            f" {room / 2**30:.3g} GiB for each; take more nodes"
            + ("" if is_on_host else ", or --set run.residency=auto")
        )
    update = case.run.streaming.update if case.run.streaming else "device"
    bus_in, bus_out = crossings(problem, update) if is_on_host else (0, 0)
    substages, item = problem.method.substages, problem.complex_dtype.itemsize
    exchanged = len(problem.model.inputs) + len(problem.model.products)
    to_others = [block for block in geometry.plan.sends if block.peer]
    off_node = [block for block in to_others if block.peer >= ranks_of_node]
    elements = sum(block.count for block in off_node)
    # Fields of one kind travel together, and an overlapped exchange goes in chunks.
    is_overlapped = case.run.schedule == "overlap"
    chunks = _CHUNKS if is_overlapped else 1
    return StepCounts(
        memory_bytes=problem.substage_bytes() * substages,
        bus_in_bytes=bus_in,
        bus_out_bytes=bus_out,
        in_node_bytes=(sum(block.count for block in to_others) - elements)
        * exchanged
        * substages
        * item,
        off_node_bytes=elements * exchanged * substages * item,
        message_bytes=max((block.count for block in off_node), default=0)
        * item
        * exchanged
        / (2 * chunks),
        exchanges=2 * chunks * substages,
        fields_bytes=fields,
        ranks_of_node=ranks_of_node,
        devices_of_rank=devices_of_rank,
        is_overlapped=is_overlapped,
    )
