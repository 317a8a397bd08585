"""Steps of a case, recorded for one rank of many where nothing is allocated or computed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from slipstream.advection.advection_simulation import advection_problem
from slipstream.advection.overlap_strategies import checked_strategy, strategies_of, usual_strategy
from slipstream.case import AdvectionCase, LatticeCase, SpectralCase
from slipstream.case.lattice_case import Image
from slipstream.case.machine_description import Machine
from slipstream.engine.decomposition import Box, grid_boxes, process_grid, slabs
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.error_terms import CASES, in_terms_of
from slipstream.engine.errors import InputError, bytes_of
from slipstream.engine.exchange import RankPlace
from slipstream.engine.exchange.noting_transport import noting_transport, usual_transport
from slipstream.engine.fft.fft_plan import noted_transform
from slipstream.engine.step_walk import noting_grid, traffic_of_step
from slipstream.lattice.acceleration import PERIOD, foreseen_vectors, vectors_needed
from slipstream.lattice.domain_decomposition import crossing_links, divided_pores, percolating_pores
from slipstream.lattice.flow_domain import Domain, open_domain
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.lattice_checkpoint import padded_sizes
from slipstream.lattice.pore_step import (
    AlignedUnits,
    Links,
    PoreStep,
    SwappedSites,
    stored_sites,
    unit_of,
)
from slipstream.lattice.storage_tuning import Share, memory_with_output, storage_wishes, worth_a_try
from slipstream.lattice.velocity_set import (
    AXES,
    D3Q19,
    ENCODINGS,
    PROPAGATIONS,
    Storage,
    VelocitySet,
    axes_of,
)
from slipstream.runs.step_price import (
    NotedSteps,
    OutputSize,
    StepCounts,
    check_fit,
    counts_of,
    noting_device,
    output_size,
    room_of_rank,
)
from slipstream.spectral.flow_diagnostics import drawn_curls
from slipstream.spectral.memory_placement import place as place_fields
from slipstream.spectral.memory_placement import row_bytes
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case, with_decomposition
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem

# The memory of each kind of device, in messages.
_WHERE = {"gpu": "device", "cpu": "host"}
# Voxels of an image that is read as a whole, at most.
_WHOLE = 1 << 27
# Voxels of a part whose pores are counted.
_COUNTED = 1 << 27
# Samples that are alike everywhere, so that a smaller one represents a larger one.
_ALIKE = ("random-pack", "sandstone")
# The edge of the smaller sample: voxels, or at least radii.
_EDGE = 256
_EDGE_IN_RADII = 16
# Ranks whose links are counted, besides the rank with most sites.
_SOME = 8
Read = Callable[[Box], np.ndarray]


def spectral_counts(case: SpectralCase, machine: Machine, ranks: int) -> StepCounts:
    """Return the counts of a step of a case on ranks of a machine, on as few nodes as they fill.

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
    rank_place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    case = with_decomposition(case, rank_place, machine.device.kind)
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
    placement = place_fields(problem, case.run, device, None, rank_place)
    home = device if placement.residency == "device" else device.home
    where = "device" if home is device else "host"
    hint = "" if where == "host" else ", or --set run.residency=auto"
    check_fit(ranks, placement.need(), room_of_rank(machine, ranks, where), where, hint)
    transport = noting_grid(case.run.transport, rank_place, home, problem.wire, grid)
    step = SpectralStep(problem, home, transport, placement.passes())
    division = "slabs" if grid is None else f"pencils {grid[1]} x {grid[0]}"
    return NotedSteps(
        "spectral",
        [step.record_step(begins=not step.passes.goes_ahead)],
        rank_place,
        placement.need(),
        case.run.schedule == "overlap",
        _outputs(described),
        division if ranks > 1 else "",
    )


def transform_counts(shape: tuple[int, int, int], machine: Machine, ranks: int) -> StepCounts:
    """Return the counts of a transform of slabs of real points on ranks of a machine."""
    rank_place = RankPlace(0, ranks, min(ranks, machine.devices_per_node))
    device = noting_device(machine, ranks)
    transport = noting_transport("auto", rank_place, device)
    graph = noted_transform(device, rank_place, shape, "auto", transport, layout="slab")
    return counts_of(NotedSteps("transform", [graph], rank_place, 0.0, is_overlapped=True), machine)


def bytes_of_step(case: SpectralCase, problem: SpectralProblem, processor: str) -> float:
    """Return the bytes that a rank's step of fields on a "cpu" or "gpu" moves in its memory."""
    traffic = traffic_of_step(
        lambda device, transport: SpectralStep(problem, device, transport).record_step(),
        NotingDevice("cpu" if processor == "cpu" else "cuda"),
        problem.geometry.rank,
        problem.geometry.ranks,
        case.run.transport,
        grid=problem.geometry.grid,
    )
    return traffic.memory_bytes + traffic.host_bytes


def _outputs(described: StatedProblem) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot, of fields and derived quantities, and of a state."""
    problem = described.problem
    geometry, model = problem.geometry, problem.model
    # For flows in a plane the component across it is written, too.
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


def advection_counts(case: AdvectionCase, machine: Machine, ranks: int) -> StepCounts:
    """Return the counts of a step of a case on ranks of a machine, on as few nodes as they fill.

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
            " have no point; use fewer nodes"
        )
    rank_place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    needed = problem.memory(rank_place, with_output=True)
    for kind, need in needed.items():
        check_fit(ranks, need, room_of_rank(machine, ranks, _WHERE[kind]), _WHERE[kind])
    points = problem.allocate(rank, lambda name, of: noting_transport(name, rank_place, of))
    steps = problem.steps_per_pass
    graphs = [points.record(target, steps) for target in (0, 1)]
    overlap = strategy.policy == "overlap"
    size = output_size(problem.shape, problem.boxes, [problem.dtype.itemsize])
    outputs = {"fields": size, "checkpoint": size}
    return NotedSteps(
        "advection",
        graphs,
        rank_place,
        sum(needed.values()),
        overlap,
        outputs,
        steps_of_graph=steps,
    )


@dataclasses.dataclass(frozen=True)
class _Division:
    """The boxes of all ranks, and the reader of voxels.

    `ranks` are the ranks that are counted; the first has most sites. `sites` are the sites of all
    ranks.
    """

    boxes: Sequence[Box]
    read: Read
    ranks: Sequence[int]
    sites: Sequence[int]
    remark: str = ""


def lattice_counter(case: LatticeCase, machine: Machine) -> Callable[[int], StepCounts]:
    """Return the counter of a step of a case, by the number of ranks; it reads the image once.

    Where the case leaves the storage open, it is the first candidate for such devices that fits.

    Raises
    ------
    InputError
        If the image cannot be read, or nothing can flow through it. The counter raises it if a
        rank has no site, or its populations do not fit.
    """
    axes = axes_of(case.flow.axis)
    periodic = [name not in case.image.walls for name in AXES]
    with in_terms_of(CASES):
        domain = open_domain(case.image, AXES[axes[0]], None)
        divide = _make_divider(case, domain, periodic, axes)

    def count(ranks: int) -> StepCounts:
        division = divide(ranks)
        links = [
            crossing_links(division.read, division.boxes, domain.shape, periodic, rank)
            for rank in (division.ranks if ranks > 1 else ())
        ]
        crossing = max(links, key=lambda link: sum(link.values()), default={})
        owner = division.ranks[links.index(crossing)] if links else 0
        busiest = division.ranks[0]
        sites, voxels = division.sites[busiest], division.boxes[busiest].size
        if not sites:
            raise InputError(f"{ranks} ranks: one would have no pore; use fewer nodes")
        device = noting_device(machine, ranks)
        rank_place = RankPlace(owner, ranks, min(ranks, machine.devices_per_node))
        transport = case.run.transport
        if transport == "auto":
            transport = usual_transport(rank_place, device)
        share = Share(sites, voxels, crossing, transport)
        room = device.memory_free()
        candidates = worth_a_try(storage_wishes(case.numerics), device.processor)
        needs = {
            candidate: memory_with_output(share, candidate, device.processor)
            for candidate in candidates
        }
        storage = next(
            (candidate for candidate in candidates if needs[candidate] <= room), candidates[0]
        )
        check_fit(ranks, needs[storage], room, "device")
        noted = note_lattice(share, rank_place, storage, device, case.run.schedule)
        outputs = _lattice_outputs(domain.shape, division.sites, storage)
        vectors, remark = _vector_memory(case, sites, domain.shape, storage, room, needs[storage])
        noted = dataclasses.replace(
            noted,
            fields_bytes=needs[storage] + vectors,
            outputs=outputs,
            remark=" ".join(filter(None, (division.remark, remark))),
        )
        return counts_of(noted, machine)

    return count


def _vector_memory(
    case: LatticeCase, sites: int, shape: Sequence[int], storage: Storage, room: int, used: int
) -> tuple[int, str]:
    """Return the bytes of the vectors for which a rank has room, and a line about them."""
    wanted = case.convergence.vectors if case.ends_early else 0
    if not wanted:
        return 0, ""
    memory, free = case.run.memory, room - used
    limit = None if memory is None else bytes_of(memory, "run.memory") - used
    count = foreseen_vectors(wanted, sites, storage, shape, free, limit)
    if not count:
        told = f"Memory is too short for any of the {wanted} vectors of the extrapolation:"
        return 0, f"{told} time steps alone reach the steady flow."
    need = vectors_needed(sites, count, storage, shape)
    of = "" if count == wanted else f" of {wanted}, as memory allows,"
    return need, (
        f"Memory includes {need / 2**30:.3g} GiB for {count}{of} vectors of the extrapolation"
        f" on each rank, which takes time every {PERIOD} steps: that is not included."
    )


def note_lattice(
    share: Share,
    rank_place: RankPlace,
    storage: Storage,
    device: NotingDevice,
    policy: str,
) -> NotedSteps:
    """Return the pair of steps that a rank takes."""
    exchange = noting_transport(share.transport if share.crossing else "none", rank_place, device)
    sites = _NumberedSites(device, stored_sites(share.sites, storage.group, unit_of(device)))
    units = AlignedUnits(sites, storage, ())
    arrays = [
        device.empty((D3Q19.directions, sites.stored), storage.dtype)
        for _ in range(PROPAGATIONS[storage.propagation].arrays)
    ]
    swapped = sum(share.crossing.values())
    step = PoreStep(
        Links(units, units, ENCODINGS[storage.encoding].bytes_per_site(D3Q19)),
        [arrays[0], arrays[-1]],
        storage,
        device,
        # The numbers of these sites are unknown, and make no difference to what all of them move.
        SwappedSites(
            np.arange(min(swapped, share.sites)),
            device.empty((swapped,), np.int64),
            dict(share.crossing),
        ),
        rank_place.rank,
        exchange,
        policy,
    )
    graphs = [step.record(number, Fluid()) for number in (0, 1)]
    return NotedSteps("lattice", graphs, rank_place, 0.0, policy == "overlap")


@dataclasses.dataclass(frozen=True)
class _NumberedSites:
    """The sites of noted steps, without links."""

    device: NotingDevice
    stored: int
    velocity_set: VelocitySet = D3Q19


def _lattice_outputs(
    shape: Sequence[int], sites: Sequence[int], storage: Storage
) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot of all fields, and of a state, by the ranks' sites."""
    item = storage.real.itemsize
    ends = [0, *itertools.accumulate(padded_sizes(sites))]
    parts = [Box((low,), (high,)) for low, high in itertools.pairwise(ends)]
    # Apart from the populations: the voxel of each site, and eight numbers per rank in a table.
    voxels_and_populations = [8, *[storage.values.itemsize] * D3Q19.directions]
    state = output_size((ends[-1],), parts, voxels_and_populations)
    return {
        "fields": output_size(shape, slabs(shape, 0, len(sites)), [*[item] * 5, 1]),
        "checkpoint": OutputSize(state.bytes + 64 * len(sites), state.files + 1),
    }


def _make_divider(
    case: LatticeCase, domain: Domain, periodic: Sequence[bool], axes: Sequence[int]
) -> Callable[[int], _Division]:
    """Return the function that divides a domain among a number of ranks."""
    if math.prod(domain.shape) <= _WHOLE:
        pores = percolating_pores(domain, periodic, axes, case.image.isolated)
        return lambda ranks: _divide_pores(pores, case.run.partition, ranks)
    tile = _tile(case.image, axes)
    if tile is None:
        return lambda ranks: _equal_boxes(domain, domain.read, None, ranks)
    return lambda ranks: _equal_boxes(domain, _repeated(tile), tile.mean(), ranks)


def _divide_pores(pores: np.ndarray, partition: str, ranks: int) -> _Division:
    """Divide pores that are in memory."""
    boxes = divided_pores(pores, partition, ranks)
    sites = [int(np.count_nonzero(pores[box.slices()])) for box in boxes]
    some = dict.fromkeys([int(np.argmax(sites)), *range(0, ranks, -(-ranks // _SOME))])
    return _Division(boxes, lambda box: pores[box.slices()], list(some), sites)


def _equal_boxes(domain: Domain, read: Read, porosity: float | None, ranks: int) -> _Division:
    """Divide a domain that is too large to be read: all parts are like one in the middle."""
    grid = process_grid(ranks, domain.shape)
    boxes = grid_boxes(domain.shape, grid)
    strides = (grid[1] * grid[2], grid[2], 1)
    middle = sum(count // 2 * stride for count, stride in zip(grid, strides, strict=True))
    likeness = "like a smaller sample of their kind"
    if porosity is None:
        counted = _inner_planes(boxes[middle])
        porosity = np.count_nonzero(read(counted)) / counted.size
        likeness = "like the box in the middle, isolated pores included"
    remark = (
        "The image is too large to be read: it is divided into equal boxes, and all are taken to be"
        f" {likeness}. Their imbalance is not known."
    )
    sites = [round(porosity * box.size) for box in boxes]
    return _Division(boxes, read, [middle], sites, remark)


def _inner_planes(box: Box) -> Box:
    """Return the planes about the middle of a box, few enough to be counted."""
    plane = box.size // box.shape[0]
    planes = min(box.shape[0], max(1, _COUNTED // plane))
    low = box.start[0] + (box.shape[0] - planes) // 2
    return Box((low, *box.start[1:]), (low + planes, *box.stop[1:]))


def _tile(image: Image, axes: Sequence[int]) -> np.ndarray | None:
    """Return the pores of a smaller, periodic sample that is alike; None if there is none."""
    if image.sample not in _ALIKE or image.shape is None:
        return None
    edge = max(_EDGE, math.ceil(_EDGE_IN_RADII * (image.radius or 0)))
    shape = tuple(min(n, edge) for n in image.shape)
    if math.prod(shape) > _WHOLE:
        return None
    whole = {"shape": shape, "crop": None, "mirror": (), "buffer": 0, "walls": ()}
    domain = open_domain(image.model_copy(update=whole), AXES[axes[0]], None)
    return percolating_pores(domain, [True] * 3, axes, image.isolated)


def _repeated(tile: np.ndarray) -> Read:
    """Return a function that reads boxes of a tile and its periodic images."""

    def read(box: Box) -> np.ndarray:
        indices = (
            np.arange(low, high) % n
            for low, high, n in zip(box.start, box.stop, tile.shape, strict=True)
        )
        return tile[np.ix_(*indices)]

    return read
