"""What a spectral step moves, counted from plans as ranks make them; no field is allocated."""

from __future__ import annotations

from slipstream.case import SpectralCase
from slipstream.device import open_device
from slipstream.errors import InputError
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.step_counts import (
    OutputSize,
    StepCounts,
    carried_by,
    check_fit,
    output_size,
    room_of_rank,
)
from slipstream.spectral.diagnostic_labels import drawn_curls
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case

# Rows of modes are aligned to so many bytes on GPUs.
_ROW_BYTES = 128
# In how many chunks an overlapped exchange goes.
_CHUNKS = 4


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
    described = problem_of_case(case, 0, ranks, _ROW_BYTES)
    problem = described.problem
    geometry = problem.geometry
    if ranks > nz:
        raise InputError(f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most")
    ranks_of_node = min(ranks, machine.devices_per_node // devices_of_rank)
    device_memory = room_of_rank(machine, ranks, "device", devices_of_rank)
    fields = problem.memory(open_device("cpu"))
    residency = case.run.residency
    is_on_host = residency == "host" or (residency == "auto" and fields > device_memory)
    where = "host" if is_on_host else "device"
    room = room_of_rank(machine, ranks, where, devices_of_rank)
    hint = "" if is_on_host else ", or --set run.residency=auto"
    check_fit(ranks, fields, room, where, hint)
    update = case.run.streaming.update if case.run.streaming else "device"
    bus_in, bus_out = crossings(problem, update) if is_on_host else (0, 0)
    substages, item = problem.method.substages, problem.complex_dtype.itemsize
    exchanged = len(problem.model.inputs) + len(problem.model.products)
    to_others = [block for block in geometry.plan.sends if block.peer]
    off_node = [block for block in to_others if block.peer >= ranks_of_node]
    # Fields of one kind travel together, and an overlapped exchange goes in chunks.
    is_overlapped = case.run.schedule == "overlap"
    exchanges = 2 * (_CHUNKS if is_overlapped else 1) * substages
    of_all = exchanged * substages * item
    elements = sum(block.count for block in off_node)
    counts = StepCounts(
        family="spectral",
        ranks=ranks,
        ranks_of_node=ranks_of_node,
        devices_of_rank=devices_of_rank,
        memory_bytes=problem.substage_bytes() * substages,
        fields_bytes=fields,
        is_overlapped=is_overlapped,
        bus_in_bytes=bus_in,
        bus_out_bytes=bus_out,
        in_node_bytes=(sum(block.count for block in to_others) - elements) * of_all,
        off_node_bytes=elements * of_all,
        in_node_messages=(len(to_others) - len(off_node)) * exchanges,
        off_node_messages=len(off_node) * exchanges,
        message_bytes=max((block.count for block in off_node), default=0) * of_all / exchanges,
        exchanges=exchanges,
        outputs=_outputs(described),
    )
    return carried_by(case.run.transport, counts, machine)


def _outputs(described: StatedProblem) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot, of fields and what is derived from them, and of a state."""
    problem = described.problem
    geometry, model = problem.geometry, problem.model
    # Of flows in a plane the component across it is written, too.
    curls = len(drawn_curls(described.fields)) * (2 if geometry.shape.count(1) == 1 else 1)
    arrays = len(model.unknowns) + len(model.complexes) + curls
    return {
        "fields": output_size(
            geometry.shape, geometry.physical_boxes, [problem.real_dtype.itemsize] * arrays
        ),
        "checkpoint": output_size(
            geometry.spectral_shape,
            geometry.spectral_boxes,
            [problem.complex_dtype.itemsize] * len(model.unknowns),
        ),
    }
