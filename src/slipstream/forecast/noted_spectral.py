"""The step of a spectral case, recorded for one rank of many where no field is allocated."""

from __future__ import annotations

from slipstream.case import SpectralCase
from slipstream.device.noting_device import NotingDevice
from slipstream.errors import InputError
from slipstream.exchange.noting_transport import RankPlace, noting_transport
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.step_counts import (
    NotedSteps,
    OutputSize,
    StepCounts,
    check_fit,
    counts_of,
    noting_device,
    output_size,
    room_of_rank,
)
from slipstream.simulation.step_walk import traffic_of_step
from slipstream.spectral.diagnostic_labels import drawn_curls
from slipstream.spectral.memory_placement import place as place_fields
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem


def spectral_counts(case: SpectralCase, machine: Machine, ranks: int) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    That is a step of the first rank, which has most to do.

    Raises
    ------
    InputError
        If a rank would have nothing to do, or its fields do not fit.
    """
    return counts_of(note_spectral(case, machine, ranks), machine)


def note_spectral(case: SpectralCase, machine: Machine, ranks: int, rank: int = 0) -> NotedSteps:
    """Return a step that follows another, of one rank; raises what `spectral_counts` does."""
    nz = case.grid.points_xyz[2]
    if ranks > nz:
        raise InputError(f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most")
    place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    device = noting_device(machine, ranks)
    described = problem_of_case(case, rank, ranks, device.row_bytes)
    problem = described.problem
    placement = place_fields(problem, case.run, device, None)
    where, home = placement.residency, device if placement.residency == "device" else device.home
    hint = "" if where == "host" else ", or --set run.residency=auto"
    check_fit(ranks, placement.need(), room_of_rank(machine, ranks, where), where, hint)
    transport = noting_transport(case.run.transport, place, home)
    step = SpectralStep(problem, home, transport, placement.passes())
    graph = step.record_step(begins=not step.passes.goes_ahead)
    overlap = case.run.schedule == "overlap"
    outputs = _outputs(described)
    return NotedSteps("spectral", [graph], place, placement.need(), overlap, outputs)


def bytes_of_step(case: SpectralCase, problem: SpectralProblem, processor: str) -> float:
    """Return what a rank's step of fields on its device, "cpu" or "gpu", moves in its memory."""
    found = traffic_of_step(
        lambda device, transport: SpectralStep(problem, device, transport).record_step(),
        NotingDevice("cpu" if processor == "cpu" else "cuda"),
        problem.geometry.rank,
        problem.geometry.ranks,
        case.run.transport,
    )
    return found.device_bytes + found.host_bytes


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
