"""Figures of papers, beside the forecast for the same algorithm on the same machine.

They are of Summit and of Titan. The algorithm is that of the papers, not ours: on Summit all modes
travel, and fields are on the host; on Titan messages pass through the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from slipstream.forecast.lattice_counts import bytes_of_update
from slipstream.forecast.machine_description import Machine, Network, load_machine
from slipstream.forecast.step_counts import StepCounts
from slipstream.forecast.step_time import step_time
from slipstream.lattice.population_layout import Storage

BATCHED = "Ravikumar et al. (2021), batched asynchronous FFTs: seconds of a time step"
SYNCHRONOUS = "Ravikumar et al. (2021), synchronous: seconds of three pairs of transforms"
HEFFTE = "Shaiek et al. (2019), GPUDirect FFTs: GFLOP/s of a complex transform of 1024^3 points"
LATTICE = "Robertsén et al. (2017), lattice Boltzmann in a sandstone: million updates/s and GPU"
STRONG = "the same, strong scaling: percent of the rate that GPUs had with 17 million sites each"
SENT = "the same: MB that a node sends in a step"
# What papers show in pictures only, or without what would tell their machines.
NOT_COMPARED = (
    "White and Dongarra (2011): the text of their talk gives no time of the nine strategies; of"
    " what it finds, more than twofold gain by full overlap and most from a thin shell, nothing can"
    " be foretold without the rates of JaguarPF, Hopper, Lens and Yona",
    "Rosenberg et al. (2020), GHOST: tables give shares of the time on CPUs and counts of"
    " operations, the text speed-ups over cores that are not described; times are in pictures",
    "Robertsén et al. (2017): scaling beyond what is above, and layouts, are in pictures",
)

# Nodes, points along an axis, seconds by variant.
_TIME_STEPS = (
    (16, 3072, (8.09, 6.70, 7.50)),
    (128, 6144, (12.17, 8.66, 8.07)),
    (1024, 12288, (13.63, 12.62, 10.14)),
    (3072, 18432, (25.44, 22.30, 14.24)),
)
# Ranks a node, and whether whole slabs travel, which nothing overlaps, or pencil after pencil.
_VARIANTS = ((6, False), (2, False), (2, True))
_TRANSFORM_PAIRS = ((2, 1536, 2.39), (16, 3072, 3.30), (128, 6144, 5.26), (1024, 12288, 4.30))
# Second order, of two substages with three transforms one way and five the other.
_TRANSFORMS_OF_STEP = 16
# In so many pencils a slab goes through a GPU; it needs more at the largest size.
_PENCILS, _PENCILS_AT_MOST = 3, {18432: 4}
_SINGLE = 4


# Of Titan: the sandstone's porosity, directions that cross a face of a part, and neighbours.
_POROSITY, _CROSSING, _NEIGHBOURS = 0.13, 5, 18
# Nodes, image, voxels, how populations move, whether that overlaps, and the rate.
_LATTICE_RATES = (
    (1024, "4096^3", (4096, 4096, 4096), "two-lattice", True, 286.4),
    (1024, "4096^3", (4096, 4096, 4096), "two-lattice", False, 255.0),
    (16384, "half of 16384^3", (16384, 16384, 8192), "aa", True, 393.4),
)
# Voxels along an axis, nodes, and percent of the rate with as many voxels as a GPU has room for.
_LATTICE_STRONG = ((1024, 1024, 44.0), (2048, 4096, 32.0), (4096, 8192, 49.0))
_ROOM = 512**3


@dataclass(frozen=True)
class Comparison:
    """A published figure, and the forecast of it.

    Attributes
    ----------
    table : str
        Where it is published, and what it is.
    what : str
        Which entry.
    published, forecast : float
        The figures.
    """

    table: str
    what: str
    published: float
    forecast: float

    @property
    def error(self) -> float:
        """By which fraction the forecast is more than what is published."""
        return self.forecast / self.published - 1


def published_runs() -> list[Comparison]:
    """Return all comparisons."""
    summit = load_machine("summit")
    titan = load_machine("titan")
    return [
        *_time_steps(summit),
        *_transform_pairs(summit),
        _complex_transform(summit),
        *_lattice_steps(titan),
    ]


def _time_steps(summit: Machine) -> Iterator[Comparison]:
    for nodes, points, seconds in _TIME_STEPS:
        for (ranks, by_slab), published in zip(_VARIANTS, seconds, strict=True):
            pencils = 1 if by_slab else _PENCILS_AT_MOST.get(points, _PENCILS)
            counts = _transforms(points, nodes, ranks, _TRANSFORMS_OF_STEP, pencils)
            way = "slab" if by_slab else "pencil"
            what = f"{points}^3, {nodes} nodes, {ranks} ranks each, by {way}"
            yield Comparison(BATCHED, what, published, step_time(counts, summit).total)


def _transform_pairs(summit: Machine) -> Iterator[Comparison]:
    for nodes, points, published in _TRANSFORM_PAIRS:
        counts = _transforms(points, nodes, summit.devices_per_node, 6, 1)
        forecast = step_time(counts, summit).total
        yield Comparison(SYNCHRONOUS, f"{points}^3, {nodes} nodes", published, forecast)


def _transforms(points: int, nodes: int, ranks: int, transforms: int, pencils: int) -> StepCounts:
    """Count what a node's rank moves in transforms of slabs that are on the host."""
    devices, all_ranks = 6 // ranks, nodes * ranks
    field = _SINGLE * points**3 / all_ranks
    block = field / all_ranks
    return StepCounts(
        family="spectral",
        ranks=all_ranks,
        ranks_of_node=ranks,
        devices_of_rank=devices,
        # Three passes that read and write, and packing.
        memory_bytes=transforms * 4 * 2 * field,
        # To the GPU and back on both sides of the exchange.
        bus_in_bytes=transforms * 2 * field,
        bus_out_bytes=transforms * 2 * field,
        in_node_bytes=transforms * block * (ranks - 1),
        off_node_bytes=transforms * block * (all_ranks - ranks),
        message_bytes=block / pencils,
        exchanges=transforms * pencils,
        fields_bytes=0,
        is_overlapped=pencils > 1,
    )


def _complex_transform(summit: Machine) -> Comparison:
    """Four exchanges between bricks and pencils in double precision, on eight nodes."""
    nodes, exchanges, points = 8, 4, 1024
    sent = 16 * points**3 / nodes
    # Each GPU meets those of its row or its column of a grid of 6 x 8.
    seconds = (
        exchanges * sent / cast(Network, summit.network).rate(sent / summit.devices_per_node / 7)
    )
    return Comparison(HEFFTE, "8 nodes", 400.0, 1e-9 * 5 * points**3 * 30 / seconds)


def _lattice_steps(titan: Machine) -> Iterator[Comparison]:
    for nodes, image, shape, propagation, overlaps, published in _LATTICE_RATES:
        counts = _cube_of_pores(math.prod(shape) / nodes, nodes, propagation, overlaps)
        rate = 1e-6 * _POROSITY * math.prod(shape) / nodes / step_time(counts, titan).total
        how = f"{propagation}{'' if overlaps else ', serial'}"
        yield Comparison(LATTICE, f"{image}, {nodes} nodes, {how}", published, rate)
    for edge, nodes, published in _LATTICE_STRONG:
        few, many = (
            step_time(_cube_of_pores(voxels, count, "aa", True), titan).total / voxels
            for voxels, count in ((_ROOM, edge**3 // _ROOM), (edge**3 / nodes, nodes))
        )
        yield Comparison(STRONG, f"{edge}^3, {nodes} nodes", published, 100 * few / many)
    sent = _cube_of_pores(16384 * 16384 * 8192 / 16384, 16384, "aa", True).off_node_bytes
    yield Comparison(SENT, "half of 16384^3, 16384 nodes", 8.2, 1e-6 * sent)


def _cube_of_pores(voxels: float, nodes: int, propagation: str, overlaps: bool) -> StepCounts:
    """Count what a node moves for a cube of a sandstone, from the GPU by way of the host."""
    storage = Storage(propagation=propagation, layout="vector-bundle", encoding="wide")
    item, face = storage.dtype.itemsize, voxels ** (2 / 3) * _POROSITY * _CROSSING
    sent = 6 * face * item
    return StepCounts(
        family="lattice",
        ranks=nodes,
        ranks_of_node=1,
        devices_of_rank=1,
        memory_bytes=_POROSITY * voxels * bytes_of_update(storage) + 4 * sent,
        fields_bytes=0,
        is_overlapped=overlaps,
        bus_in_bytes=sent,
        bus_out_bytes=sent,
        off_node_bytes=sent,
        off_node_messages=_NEIGHBOURS,
        message_bytes=face * item,
        is_from_host=True,
        # One neighbour's after the other.
        exchanges=_NEIGHBOURS,
    )
