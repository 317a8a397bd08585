"""The steps of a case of the lattice, recorded for one rank of many without any population.

An image is read and divided as for a run, and the links of a rank are followed to its neighbours.
An image that is too large for that is divided into equal boxes, which are taken to be alike: of a
file one of them is looked at, of a sample a smaller one of its kind.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from slipstream.byte_sizes import bytes_of
from slipstream.case import LatticeCase
from slipstream.case.lattice_case import Image
from slipstream.decomposition import Box, grid_boxes, process_grid, slabs
from slipstream.device.noting_device import NotingDevice
from slipstream.error_terms import CASES, in_terms_of
from slipstream.errors import InputError
from slipstream.exchange import RankPlace
from slipstream.exchange.noting_transport import noting_transport, usual_transport
from slipstream.lattice.acceleration import PERIOD, foreseen_vectors, vectors_needed
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.domain_decomposition import crossing_links, divided_pores, percolating_pores
from slipstream.lattice.flow_domain import Domain, open_domain
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.lattice_checkpoint import padded_sizes
from slipstream.lattice.lattice_memory import Share, memory_with_output
from slipstream.lattice.neighbour_tables import AlignedUnits, Links
from slipstream.lattice.population_layout import ENCODINGS, PROPAGATIONS, Storage
from slipstream.lattice.pore_sites import stored_sites, unit_of
from slipstream.lattice.pore_step import PoreStep, SwappedSites
from slipstream.lattice.storage_tuning import storage_wishes, worth_a_try
from slipstream.lattice.velocity_set import AXES, VelocitySet, axes_of
from slipstream.simulation.machine_description import Machine
from slipstream.simulation.step_price import (
    NotedSteps,
    OutputSize,
    StepCounts,
    check_fit,
    counts_of,
    noting_device,
    output_size,
)

# Voxels of an image that is read as a whole, and of a part whose pores are counted.
_WHOLE, _COUNTED = 1 << 27, 1 << 27
# Samples that are alike everywhere, so that a smaller one tells all of a larger one: its edge, in
# voxels or at least in radii.
_ALIKE = ("random-pack", "sandstone")
_EDGE, _EDGE_IN_RADII = 256, 16
# Ranks whose links are counted, besides the rank with most sites.
_SOME = 8

Read = Callable[[Box], np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Division:
    """The boxes of all ranks, and the reader of voxels.

    `ranks` are the ranks that are looked at; the first has most sites. `sites` are the sites of all
    ranks.
    """

    boxes: Sequence[Box]
    read: Read
    ranks: Sequence[int]
    sites: Sequence[int]
    remark: str = ""


def lattice_counter(case: LatticeCase, machine: Machine) -> Callable[[int], StepCounts]:
    """Return what counts a step of a case on so many ranks of a machine: the image is read once.

    Where the case leaves the storage open, it is the first candidate for such devices that fits.

    Raises
    ------
    InputError
        If the image cannot be read, or nothing can flow through it. What is returned raises it if
        a rank has no site, or its populations do not fit.
    """
    axes = axes_of(case.flow.axis)
    periodic = [name not in case.image.walls for name in AXES]
    with in_terms_of(CASES):
        domain = open_domain(case.image, AXES[axes[0]], None)
        divide = _divider(case, domain, periodic, axes)

    def count(ranks: int) -> StepCounts:
        division = divide(ranks)
        links = [
            crossing_links(division.read, division.boxes, domain.shape, periodic, rank)
            for rank in (division.ranks if ranks > 1 else ())
        ]
        found = max(links, key=lambda one: sum(one.values()), default={})
        owner = division.ranks[links.index(found)] if links else 0
        busiest = division.ranks[0]
        sites, voxels = division.sites[busiest], division.boxes[busiest].size
        if not sites:
            raise InputError(f"{ranks} ranks: one would have no pore; take fewer nodes")
        device = noting_device(machine, ranks)
        place = RankPlace(owner, ranks, min(ranks, machine.devices_per_node))
        transport = case.run.transport
        if transport == "auto":
            transport = usual_transport(place, device)
        share = Share(sites, voxels, found, transport)
        room = device.memory_free()
        candidates = worth_a_try(storage_wishes(case.numerics), device.processor)
        needs = {one: memory_with_output(share, one, device.processor) for one in candidates}
        storage = next((one for one in candidates if needs[one] <= room), candidates[0])
        check_fit(ranks, needs[storage], room, "device")
        noted = note_lattice(share, place, storage, device, case.run.schedule)
        outputs = _outputs(domain.shape, division.sites, storage)
        vectors, remark = _vectors(case, sites, domain.shape, storage, room, needs[storage])
        noted = dataclasses.replace(
            noted,
            fields_bytes=needs[storage] + vectors,
            outputs=outputs,
            remark=" ".join(filter(None, (division.remark, remark))),
        )
        return counts_of(noted, machine)

    return count


def _vectors(
    case: LatticeCase, sites: int, shape: Sequence[int], storage: Storage, room: int, taken: int
) -> tuple[int, str]:
    """Return the bytes of the vectors for which a rank has room, and a line about them."""
    wanted = case.convergence.vectors if case.ends_early else 0
    if not wanted:
        return 0, ""
    memory, free = case.run.memory, room - taken
    limit = None if memory is None else bytes_of(memory, "run.memory") - taken
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
    place: RankPlace,
    storage: Storage,
    device: NotingDevice,
    policy: str,
) -> NotedSteps:
    """Return the pair of steps of a rank."""
    exchange = noting_transport(share.transport if share.crossing else "none", place, device)
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
        place.rank,
        exchange,
        policy,
    )
    graphs = [step.record(number, Fluid()) for number in (0, 1)]
    return NotedSteps("lattice", graphs, place, 0.0, policy == "overlap")


@dataclasses.dataclass(frozen=True)
class _NumberedSites:
    """The sites of noted steps, without links."""

    device: NotingDevice
    stored: int
    velocity_set: VelocitySet = D3Q19


def _outputs(shape: Sequence[int], sites: Sequence[int], storage: Storage) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot of all fields, and of a state, of so many sites of ranks."""
    item = storage.real.itemsize
    ends = [0, *itertools.accumulate(padded_sizes(sites))]
    parts = [Box((low,), (high,)) for low, high in itertools.pairwise(ends)]
    # Beside the populations the voxel of each site, and a table of eight numbers for each rank.
    voxels_and_populations = [8, *[storage.values.itemsize] * D3Q19.directions]
    state = output_size((ends[-1],), parts, voxels_and_populations)
    return {
        "fields": output_size(shape, slabs(shape, 0, len(sites)), [*[item] * 5, 1]),
        "checkpoint": OutputSize(state.bytes + 64 * len(sites), state.files + 1),
    }


def _divider(
    case: LatticeCase, domain: Domain, periodic: Sequence[bool], axes: Sequence[int]
) -> Callable[[int], _Division]:
    """Return what divides a domain among so many ranks."""
    if math.prod(domain.shape) <= _WHOLE:
        pores = percolating_pores(domain, periodic, axes, case.image.isolated)
        return lambda ranks: _divided(pores, case.run.partition, ranks)
    tile = _tile(case.image, axes)
    if tile is None:
        return lambda ranks: _equal_boxes(domain, domain.read, None, ranks)
    return lambda ranks: _equal_boxes(domain, _repeated(tile), tile.mean(), ranks)


def _divided(pores: np.ndarray, partition: str, ranks: int) -> _Division:
    """Divide pores that are here."""
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
    told = "like a smaller sample of their kind"
    if porosity is None:
        counted = _inner(boxes[middle])
        porosity = np.count_nonzero(read(counted)) / counted.size
        told = "like the one in the middle, isolated pores included"
    remark = (
        "The image is too large to be read: it is divided into equal boxes, and all are taken to be"
        f" {told}. Their imbalance is not known."
    )
    sites = [round(porosity * box.size) for box in boxes]
    return _Division(boxes, read, [middle], sites, remark)


def _inner(box: Box) -> Box:
    """Return the planes about the middle of a box that are not too many to be counted."""
    plane = box.size // box.shape[0]
    planes = min(box.shape[0], max(1, _COUNTED // plane))
    low = box.start[0] + (box.shape[0] - planes) // 2
    return Box((low, *box.start[1:]), (low + planes, *box.stop[1:]))


def _tile(image: Image, axes: Sequence[int]) -> np.ndarray | None:
    """Return the pores of a smaller, periodic sample; None for rocks that have none alike."""
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
    """Return what reads boxes of a tile and its periodic images."""

    def read(box: Box) -> np.ndarray:
        indices = (
            np.arange(low, high) % n
            for low, high, n in zip(box.start, box.stop, tile.shape, strict=True)
        )
        return tile[np.ix_(*indices)]

    return read
