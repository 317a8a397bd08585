"""Steps of spectral cases and of advection, recorded for one rank where nothing is allocated."""

from __future__ import annotations

from slipstream.advection.advection_simulation import advection_problem
from slipstream.advection.overlap_strategies import (
    checked_strategy,
    strategies_of,
    usual_strategy,
)
from slipstream.case import AdvectionCase, SpectralCase
from slipstream.device.noting_device import NotingDevice
from slipstream.errors import InputError
from slipstream.exchange import RankPlace
from slipstream.exchange.noting_transport import noting_transport
from slipstream.fft.noted_transform import noted_transform
from slipstream.simulation.machine_description import Machine
from slipstream.simulation.step_price import (
    NotedSteps,
    OutputSize,
    StepCounts,
    check_fit,
    counts_of,
    noting_device,
    output_size,
    room_of_rank,
)
from slipstream.simulation.step_walk import noting_grid, traffic_of_step
from slipstream.spectral.decomposition_choice import with_decomposition
from slipstream.spectral.diagnostic_labels import drawn_curls
from slipstream.spectral.memory_placement import place as place_fields
from slipstream.spectral.memory_placement import row_bytes
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem


def spectral_counts(case: SpectralCase, machine: Machine, ranks: int) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    That is a step of the first rank, which has most to do. Ranks divide space as they would in a
    run on that machine.

    Raises
    ------
    InputError
        If a rank would have nothing to do, or its fields do not fit.
    """
    return counts_of(note_spectral(case, machine, ranks), machine)


def note_spectral(case: SpectralCase, machine: Machine, ranks: int, rank: int = 0) -> NotedSteps:
    """Return a step that follows another, of one rank; raises what `spectral_counts` does."""
    if case.particles:
        raise InputError(
            "particles: forecasts leave them out; accepted: a case without (--set particles=[]), to"
            " whose step they add a transform of three fields and their interpolation"
        )
    if case.bodies:
        raise InputError(
            "bodies: forecasts leave them out; accepted: a case without (--set bodies=[] and no"
            " mean-flow), to whose step they add two transforms of the fields that they set"
        )
    place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    case = with_decomposition(case, place, machine.device.kind)
    device = noting_device(machine, ranks)
    described = problem_of_case(case, rank, ranks, row_bytes(case.run, device))
    problem = described.problem
    if problem.model.follows:
        raise InputError(
            f"equation.model: parameters of {case.equation.model} follow the state, which forecasts"
            " leave out; accepted: a model without, such as smagorinsky"
        )
    (nx, ny, nz), grid = case.grid.points_xyz, problem.geometry.grid
    if grid is None and ranks > nz:
        raise InputError(
            f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most; pencils for products"
            f" of at most {min(ny // 2, nx // 3)} and {min(nz, 2 * ny // 3)}"
        )
    placement = place_fields(problem, case.run, device, None, place)
    home = device if placement.residency == "device" else device.home
    where = "device" if home is device else "host"
    hint = "" if where == "host" else ", or --set run.residency=auto"
    check_fit(ranks, placement.need(), room_of_rank(machine, ranks, where), where, hint)
    transport = noting_grid(case.run.transport, place, home, problem.wire, grid)
    step = SpectralStep(problem, home, transport, placement.passes())
    division = "slabs" if grid is None else f"pencils {grid[1]} x {grid[0]}"
    return NotedSteps(
        "spectral",
        [step.record_step(begins=not step.passes.goes_ahead)],
        place,
        placement.need(),
        case.run.schedule == "overlap",
        _outputs(described),
        division if ranks > 1 else "",
    )


def transform_counts(shape: tuple[int, int, int], machine: Machine, ranks: int) -> StepCounts:
    """Return what a transform of slabs of real points moves on so many ranks of a machine."""
    place = RankPlace(0, ranks, min(ranks, machine.devices_per_node))
    device = noting_device(machine, ranks)
    transport = noting_transport("auto", place, device)
    graph = noted_transform(device, place, shape, "auto", transport, layout="slab")
    return counts_of(NotedSteps("transform", [graph], place, 0.0, is_overlapped=True), machine)


def bytes_of_step(case: SpectralCase, problem: SpectralProblem, processor: str) -> float:
    """Return what a rank's step of fields on its device, "cpu" or "gpu", moves in its memory."""
    found = traffic_of_step(
        lambda device, transport: SpectralStep(problem, device, transport).record_step(),
        NotingDevice("cpu" if processor == "cpu" else "cuda"),
        problem.geometry.rank,
        problem.geometry.ranks,
        case.run.transport,
        grid=problem.geometry.grid,
    )
    return found.memory_bytes + found.host_bytes


def _outputs(described: StatedProblem) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot, of fields and derived quantities, and of a state."""
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


# Where the memory of each kind of device is.
_WHERE = {"gpu": "device", "cpu": "host"}


def advection_counts(case: AdvectionCase, machine: Machine, ranks: int) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    That is a step of the first rank, whose box is the largest. Points of strategies that leave some
    to the CPU are advanced at the rate of the host's memory.

    Raises
    ------
    InputError
        If the strategy is for one rank or for other devices, a rank would have no point, or its
        field does not fit.
    """
    return counts_of(note_advection(case, machine, ranks), machine)


def note_advection(case: AdvectionCase, machine: Machine, ranks: int, rank: int = 0) -> NotedSteps:
    """Return the two passes of one rank that take turns; raises what `advection_counts` does."""
    has_gpus = machine.device.kind == "gpu"
    name = case.run.strategy
    if name == "auto":
        name = usual_strategy(ranks, has_gpus and case.run.device != "cpu")
    strategy = checked_strategy(name, ranks, "run.strategy")
    if "gpu" in strategy.devices and not has_gpus:
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, but devices of {machine.title} are CPUs"
            f" (device.kind); accepted there: auto, {strategies_of(gpu=False)}"
        )
    device = noting_device(machine, ranks)
    devices = {kind: device.home if kind == "cpu" else device for kind in strategy.devices}
    problem = advection_problem(case, name, ranks, devices)
    if not problem.boxes[-1].size:
        raise InputError(
            f"{ranks} ranks: as {' x '.join(map(str, reversed(problem.grid)))} (x, y, z) some would"
            " have no point; take fewer nodes"
        )
    place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    needed = problem.memory(place, with_output=True)
    for kind, need in needed.items():
        check_fit(ranks, need, room_of_rank(machine, ranks, _WHERE[kind]), _WHERE[kind])
    points = problem.allocate(rank, lambda name, of: noting_transport(name, place, of))
    steps = problem.steps_per_pass
    graphs = [points.record(target, steps) for target in (0, 1)]
    overlap = strategy.policy == "overlap"
    size = output_size(problem.shape, problem.boxes, [problem.dtype.itemsize])
    outputs = {"fields": size, "checkpoint": size}
    return NotedSteps(
        "advection",
        graphs,
        place,
        sum(needed.values()),
        overlap,
        outputs,
        steps_of_graph=steps,
    )
