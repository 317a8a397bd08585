"""What a lattice Boltzmann step moves, counted from the division of the image itself.

An image is read and divided as for a run, and the links of a rank are followed to its neighbours;
no population is allocated. An image that is too large for that is divided at a lower resolution, if
it is a sample that can be made so, and otherwise into equal boxes; then one part is read as it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slipstream.case import LatticeCase
from slipstream.case.lattice_case import Image
from slipstream.decomposition import Box, grid_boxes, process_grid, slabs
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
from slipstream.io.image_errors import CASES, in_terms_of
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.domain_decomposition import crossing_links, divided_pores, percolating_pores
from slipstream.lattice.flow_domain import Domain, open_domain
from slipstream.lattice.lattice_checkpoint import padded_sizes
from slipstream.lattice.lattice_memory import memory_with_output
from slipstream.lattice.population_layout import ENCODINGS, Storage
from slipstream.lattice.storage_tuning import storage_wishes, worth_a_try
from slipstream.lattice.velocity_set import AXES, axes_of

# Voxels of an image that is read as a whole, and of one that stands for it; of one part.
_WHOLE, _COARSE, _PART = 1 << 29, 1 << 27, 1 << 30
# Samples of which the same can be made of fewer voxels.
_SCALABLE = ("random-pack", "sandstone", "spheres")
# Ranks whose links are counted, besides the one with most sites.
_SOME = 8
# Reads and writes of what is exchanged: where it lies, packed, and the same where it arrives.
_PACKING = 4

Read = Callable[[Box], np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Division:
    """The boxes of all ranks, and what reads voxels.

    `ranks` are those that are looked at, of which the first stands for the busiest; `sites` are the
    pores of all, as far as they are known, at a resolution of which each stands for `scale`.
    """

    boxes: Sequence[Box]
    read: Read
    ranks: Sequence[int]
    sites: np.ndarray
    remark: str = ""
    scale: int = 1


def lattice_counter(case: LatticeCase, machine: Machine) -> Callable[[int], StepCounts]:
    """Return what counts a step of a case on so many ranks of a machine: the image is read once.

    Storage is what is tried first on such devices, and fits, where the case leaves it open.

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
        box = division.boxes[division.ranks[0]]
        sites = int(np.count_nonzero(division.read(box)))
        if not sites:
            raise InputError(f"{ranks} ranks: one would have no pore; take fewer nodes")
        of_all = [int(one) * division.scale for one in division.sites] or [sites] * ranks
        counts, storage = _counts(
            case, machine, ranks, sites, box.size, found, owner, division.remark
        )
        return dataclasses.replace(counts, outputs=_outputs(domain.shape, of_all, storage))

    return count


def _counts(
    case: LatticeCase,
    machine: Machine,
    ranks: int,
    sites: int,
    voxels: int,
    links: dict[int, int],
    owner: int,
    remark: str,
) -> tuple[StepCounts, Storage]:
    """Return the counts of a rank with so many sites and links to others, and how it stores."""
    room = room_of_rank(machine, ranks, "device")
    kind = machine.device.kind
    candidates = worth_a_try(storage_wishes(case.numerics), kind)
    needs = {one: memory_with_output(sites, voxels, one, kind) for one in candidates}
    storage = next((one for one in candidates if needs[one] <= room), candidates[0])
    check_fit(ranks, needs[storage], room, "device")
    ranks_of_node = min(ranks, machine.devices_per_node)
    item, node = storage.dtype.itemsize, owner // ranks_of_node
    in_node = [count for peer, count in links.items() if peer // ranks_of_node == node]
    off_node = [count for peer, count in links.items() if peer // ranks_of_node != node]
    counts = StepCounts(
        family="lattice",
        ranks=ranks,
        ranks_of_node=ranks_of_node,
        devices_of_rank=1,
        memory_bytes=sites * bytes_of_update(storage) + _PACKING * sum(links.values()) * item,
        fields_bytes=needs[storage],
        is_overlapped=case.run.schedule == "overlap",
        in_node_bytes=sum(in_node) * item,
        off_node_bytes=sum(off_node) * item,
        in_node_messages=len(in_node),
        off_node_messages=len(off_node),
        message_bytes=max(off_node, default=0) * item,
        exchanges=1 if links else 0,
        remark=remark,
    )
    # Halos of few neighbours are not aggregated.
    transport = case.run.transport.replace("hierarchical", "p2p")
    return carried_by(transport, counts, machine), storage


def _outputs(shape: Sequence[int], sites: Sequence[int], storage: Storage) -> dict[str, OutputSize]:
    """Return the sizes of a snapshot of all fields, and of a state, of so many sites of ranks."""
    item = storage.real.itemsize
    ends = [0, *itertools.accumulate(padded_sizes(sites))]
    parts = [Box((low,), (high,)) for low, high in itertools.pairwise(ends)]
    # Beside the populations the voxel of each site, and a table of eight numbers for each rank.
    voxels_and_populations = [8, *[storage.dtype.itemsize] * D3Q19.directions]
    state = output_size((ends[-1],), parts, voxels_and_populations)
    return {
        "fields": output_size(shape, slabs(shape, 0, len(sites)), [*[item] * 5, 1]),
        "checkpoint": OutputSize(state.bytes + 64 * len(sites), state.files + 1),
    }


def bytes_of_update(storage: Storage) -> float:
    """Return the bytes that a site moves in a step, on average over a pair of steps."""
    links = ENCODINGS[storage.encoding].bytes_per_site(D3Q19)
    return sum(storage.bytes_per_update(links)) / 2


def _divider(
    case: LatticeCase, domain: Domain, periodic: Sequence[bool], axes: Sequence[int]
) -> Callable[[int], _Division]:
    """Return what divides a domain among so many ranks."""
    voxels = math.prod(domain.shape)
    if voxels <= _WHOLE:
        pores = percolating_pores(domain, periodic, axes, case.image.isolated)
        return lambda ranks: _divided(pores, case.run.partition, ranks, 1)
    factor = _coarser(case.image, voxels)
    if not factor:
        return lambda ranks: _equal_boxes(domain, ranks)
    coarse = open_domain(_scaled(case.image, factor), AXES[axes[0]], None)
    pores = percolating_pores(coarse, periodic, axes, case.image.isolated)

    def divided(ranks: int) -> _Division:
        found = _divided(pores, case.run.partition, ranks, factor)
        remark = (
            f"The sample is too large to be read: it is divided as one of 1/{factor} of its"
            " resolution is, and all parts are taken to be like a usual one, read as it is: finer"
            " cuts leave little imbalance."
        )
        usual = [int(np.argmin(np.abs(found.sites - np.mean(found.sites))))]
        read = _reader(domain, ranks)
        return dataclasses.replace(found, read=read, ranks=usual, remark=remark)

    return divided


def _divided(pores: np.ndarray, partition: str, ranks: int, factor: int) -> _Division:
    """Divide pores, each voxel of which stands for a cube of so many voxels' edge."""
    coarse = divided_pores(pores, partition, ranks)
    sites = np.array([np.count_nonzero(pores[box.slices()]) for box in coarse])
    busiest = int(np.argmax(sites))
    some = dict.fromkeys([busiest, *range(0, ranks, -(-ranks // _SOME))])
    boxes = [
        Box(*(tuple(factor * n for n in end) for end in (box.start, box.stop))) for box in coarse
    ]
    return _Division(boxes, lambda box: pores[box.slices()], list(some), sites, scale=factor**3)


def _equal_boxes(domain: Domain, ranks: int) -> _Division:
    """Divide a domain that is not known: all parts are taken to be like one in the middle."""
    grid = process_grid(ranks, domain.shape)
    boxes = grid_boxes(domain.shape, grid)
    strides = (grid[1] * grid[2], grid[2], 1)
    middle = sum(count // 2 * stride for count, stride in zip(grid, strides, strict=True))
    remark = (
        "The image is too large to be read: it is divided into equal boxes, and all are taken to be"
        " like the one in the middle, isolated pores included. Their imbalance is not known."
    )
    return _Division(boxes, _reader(domain, ranks), [middle], np.zeros(0), remark)


def _reader(domain: Domain, ranks: int) -> Read:
    """Return what reads parts of a domain that are not too large."""

    def read(box: Box) -> np.ndarray:
        if box.size > _PART:
            raise InputError(
                f"{ranks} ranks: a part of {box.size:.2g} voxels is too large to be read; take"
                " more nodes"
            )
        return domain.read(box)

    return read


def _coarser(image: Image, voxels: int) -> int:
    """Return by how many times fewer voxels the same sample can be made; 0 if it cannot."""
    if image.sample not in _SCALABLE:
        return 0
    least = math.ceil((voxels / _COARSE) ** (1 / 3))
    most = int(image.radius or math.inf) if image.sample != "spheres" else min(image.shape)
    lengths = [*image.shape, image.buffer, *itertools.chain(*(image.crop or ()))]
    for factor in range(least, min(most, 4 * least) + 1):
        if not any(length % factor for length in lengths):
            return factor
    return 0


def _scaled(image: Image, factor: int) -> Image:
    """Return the same sample of fewer voxels."""
    changed: dict[str, Any] = {
        "shape": tuple(n // factor for n in image.shape),
        "buffer": image.buffer // factor,
        "crop": image.crop and tuple(tuple(n // factor for n in pair) for pair in image.crop),
        "radius": image.radius and image.radius / factor,
    }
    return image.model_copy(update=changed)
