"""What a spectral step moves, counted from plans as ranks make them; no field is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from slipstream.byte_sizes import bytes_of
from slipstream.case import SpectralCase
from slipstream.device import Device
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
from slipstream.outofcore.memory_budget import USABLE
from slipstream.outofcore.streaming_options import Streaming
from slipstream.spectral.diagnostic_labels import drawn_curls
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.out_of_core_step import StepTiles
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.transform_passes import PLANE_CHUNKS

# Rows of modes are aligned to so many bytes.
_ROW_BYTES = {"cpu": 1, "gpu": 128}


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
    described = problem_of_case(case, 0, ranks, _ROW_BYTES[machine.device.kind])
    problem = described.problem
    geometry = problem.geometry
    if ranks > nz:
        raise InputError(f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most")
    ranks_of_node = min(ranks, machine.devices_per_node // devices_of_rank)
    device_memory = room_of_rank(machine, ranks, "device", devices_of_rank)
    residency = case.run.residency
    limit = _limit(case, device_memory)
    fields = problem.memory_with_output(_described(machine.device.kind))
    is_on_host = residency == "host" or (residency == "auto" and fields > limit)
    if is_on_host:
        fields = problem.memory_with_output(_described("cpu"))
    where = "host" if is_on_host else "device"
    room = room_of_rank(machine, ranks, where, devices_of_rank)
    hint = "" if is_on_host else ", or --set run.residency=auto"
    check_fit(ranks, fields, room, where, hint)
    bus_in, bus_out = _crossings(case, machine, problem, limit) if is_on_host else (0, 0)
    substages, item = problem.method.substages, problem.complex_dtype.itemsize
    exchanged = len(problem.model.inputs) + len(problem.model.products)
    to_others = [block for block in geometry.plan.sends if block.peer]
    off_node = [block for block in to_others if block.peer >= ranks_of_node]
    # Fields of one kind travel together, and an overlapped exchange goes in chunks.
    is_overlapped = case.run.schedule == "overlap"
    exchanges = 2 * (PLANE_CHUNKS if is_overlapped else 1) * substages
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


@dataclass(frozen=True)
class _DescribedDevice:
    """All that plans of memory ask of a device."""

    kind: str
    processor: str
    lanes: int = 1


def _described(kind: str) -> Device:
    """Return what stands for a device, which need not be here, of a machine's kind."""
    return cast(Device, _DescribedDevice("cpu" if kind == "cpu" else "cuda", kind))


def _limit(case: SpectralCase, device_memory: float) -> int:
    """Return the bytes that a rank may take on its device, as a run finds them."""
    if case.run.memory is None:
        return int(USABLE * device_memory)
    return bytes_of(case.run.memory, "run.memory")


def _crossings(
    case: SpectralCase, machine: Machine, problem: SpectralProblem, limit: int
) -> tuple[int, int]:
    """Return what crosses the bus, in and out, where so many bytes of a device may be taken."""
    streaming = Streaming(**(case.run.streaming.model_dump() if case.run.streaming else {}))
    device = _described(machine.device.kind)
    _, resident = StepTiles(problem, [device], device, streaming).planned(limit)
    return crossings(problem, streaming.update, resident)


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
