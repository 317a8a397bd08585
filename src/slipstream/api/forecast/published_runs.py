"""Figures of papers, and forecasts for the same algorithm on the same machine.

They are of Summit, SummitDev and Titan. Flow through a sandstone on Titan takes the steps of this
program, which are recorded as for any forecast. Another algorithm ran on the others. Its bytes and
messages are written down here: all modes travel, and fields on the host pass through a GPU pencil
by pencil.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from slipstream.api.forecast.noted_steps import note_lattice
from slipstream.case.machine_description import Machine, Network, load_machine
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.exchange import RankPlace
from slipstream.lattice.storage_tuning import Share
from slipstream.lattice.velocity_set import Storage
from slipstream.runs.step_price import StepCounts, StepTime, counts_of, step_time

BATCHED = "Ravikumar et al. (2021), batched asynchronous FFTs: seconds of a time step"
ASYNCHRONOUS = "the same, by CUDA, asynchronous: seconds of three pairs of transforms"
SYNCHRONOUS = "Ravikumar et al. (2021), synchronous: seconds of three pairs of transforms"
HEFFTE = "Shaiek et al. (2019), GPUDirect FFTs: GFLOP/s of a complex transform of 1024^3 points"
# Before a figure was compared, machines/*.toml were fitted to it, or it was seen when their numbers
# were chosen, or neither.
Known = Literal["fitted", "seen", "held out"]
LATTICE = "Robertsén et al. (2017), lattice Boltzmann in a sandstone: million updates/s and GPU"
STRONG = "the same, strong scaling: percent of the rate that GPUs had with 17 million sites each"
SENT = "the same: MB that a node sends in a step"
GHOST = "Rosenberg et al. (2020), GHOST on SummitDev: seconds of parts of a time step"
GHOST_STRONG = "the same, strong scaling: percent of parallel efficiency"
# Figures of papers that are only in pictures, or whose machines are not described.
NOT_COMPARED = (
    "White and Dongarra (2011): the text of their talk gives no time of the nine strategies; of"
    " what it finds, more than twofold gain by full overlap and most from a thin shell, nothing can"
    " be forecast without the rates of JaguarPF, Hopper, Lens and Yona",
    "Rosenberg et al. (2020), GHOST: tables give shares of the time on CPUs, and the text speed-ups"
    " over cores that are not described; times of whole steps are in pictures",
    "Robertsén et al. (2017): further scaling, and layouts, are in pictures",
)

# Nodes, points along an axis, seconds by variant.
_TIME_STEPS = (
    (16, 3072, (8.09, 6.70, 7.50)),
    (128, 6144, (12.17, 8.66, 8.07)),
    (1024, 12288, (13.63, 12.62, 10.14)),
    (3072, 18432, (25.44, 22.30, 14.24)),
)
# Ranks per node, and whether whole slabs travel, which nothing overlaps, or pencil after pencil.
_VARIANTS = ((6, False), (2, False), (2, True))
_TRANSFORM_PAIRS = ((2, 1536, 2.39), (16, 3072, 3.30), (128, 6144, 5.26), (1024, 12288, 4.30))
# The same with six pencils per slab: each travels while the next is transformed. The slide
# does not give the ranks of a node: six are taken, as in the table before.
_ASYNCHRONOUS_PAIRS = ((4, 3072, 10.14), (32, 6144, 13.53))
_ASYNCHRONOUS_PENCILS = 6
# Second order, of two substages with three transforms one way and five the other.
_TRANSFORMS_OF_STEP = 16
# Pencils in which a slab goes through a GPU.
_PENCILS = 3
# Points along an axis at which a slab needs more pencils, and their number.
_PENCILS_AT_MOST = {18432: 4}
_SINGLE = 4
# Real transforms of each of the two substages of GHOST's step. The paper's text has, of one node,
# the seconds of FFTs and transposes on four GPUs (512^3, Boussinesq), and of copies and of messages
# with two (256^3, hydrodynamic).
GHOST_TRANSFORMS = {"hd": 9, "boussinesq": 16, "mhd": 27, "gpe": 8}
_GHOST_PARTS = (
    ("512^3, 4 GPUs: FFTs and transposes", 512**3, 4, "boussinesq", "memory", 0.11),
    ("256^3, 2 GPUs: copies to GPUs and back", 256**3, 2, "hd", "bus", 0.1),
    ("256^3, 2 GPUs: messages", 256**3, 2, "hd", "in_node", 0.2),
)
# Points, fewest and most nodes of four GPUs, and the efficiency on the most.
_GHOST_STRONG = (
    ("1024^2 x 256, 1 to 8 nodes", 1024 * 1024 * 256, 1, 8, 100.0),
    ("2048^2 x 512, 2 to 16 nodes", 2048 * 2048 * 512, 2, 16, 84.0),
)
# SummitDev relative to Summit, by specifications: memory of a P100 and a V100 (732 and 900 GB/s),
# NVLink to the host (40 and 50 GB/s), the host's memory (230 and 340 GB/s), rails of InfiniBand (1
# and 2). SummitDev's nodes are IBM's S822LC (Redpaper REDP-5405): two NVLinks of 20 GB/s between a
# GPU and its CPU.
_OF_SUMMIT = {"memory": 732 / 900, "bus": 40 / 50, "host": 230 / 340, "network": 1 / 2}

# Titan: porosity of the sandstone.
_POROSITY = 0.13
# Titan: directions that cross a face of a part.
_CROSSING = 5
# Titan: neighbours of a part.
_NEIGHBOURS = 18
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
        The publication, and its table.
    what : str
        The entry of the table.
    published, forecast : float
        The figures.
    known : {"fitted", "seen", "held out"}
        Whether constants of the machine were fitted to the published figures, or chosen by
        someone who had seen them.
    """

    table: str
    what: str
    published: float
    forecast: float
    known: Known

    @property
    def error(self) -> float:
        """The fraction by which the forecast exceeds the published figure."""
        return self.forecast / self.published - 1


def published_runs() -> list[Comparison]:
    """Return all comparisons."""
    summit = load_machine("summit")
    titan = load_machine("titan")
    return [
        *_time_steps(summit),
        *_transform_pairs(summit),
        *_asynchronous_pairs(summit),
        *_ghost(_summitdev(summit)),
        _complex_transform(summit),
        *_lattice_steps(titan),
    ]


def _time_steps(summit: Machine) -> Iterator[Comparison]:
    for nodes, points, seconds in _TIME_STEPS:
        for (ranks, by_slab), published in zip(_VARIANTS, seconds, strict=True):
            pencils = 1 if by_slab else _PENCILS_AT_MOST.get(points, _PENCILS)
            counts = _transforms(points**3, nodes, ranks, _TRANSFORMS_OF_STEP, pencils)
            way = "slab" if by_slab else "pencil"
            what = f"{points}^3, {nodes} nodes, {ranks} ranks each, by {way}"
            yield Comparison(BATCHED, what, published, step_time(counts, summit).total, "fitted")


def _transform_pairs(summit: Machine) -> Iterator[Comparison]:
    for nodes, points, published in _TRANSFORM_PAIRS:
        counts = _transforms(points**3, nodes, summit.devices_per_node, 6, 1)
        forecast = step_time(counts, summit).total
        what = f"{points}^3, {nodes} nodes"
        yield Comparison(SYNCHRONOUS, what, published, forecast, "held out")


def _asynchronous_pairs(summit: Machine) -> Iterator[Comparison]:
    for nodes, points, published in _ASYNCHRONOUS_PAIRS:
        ranks = summit.devices_per_node
        counts = _transforms(points**3, nodes, ranks, 6, _ASYNCHRONOUS_PENCILS)
        what = f"{points}^3, {nodes} nodes, by pencil"
        forecast = step_time(counts, summit).total
        yield Comparison(ASYNCHRONOUS, what, published, forecast, "held out")


def _summitdev(summit: Machine) -> Machine:
    """Return SummitDev: Summit with four GPUs per node, and rates scaled by specifications."""
    device, bus, network = summit.device, summit.bus, cast(Network, summit.network)
    ratios = _OF_SUMMIT
    rates = {"copy_gb_per_s": device.copy_gb_per_s * ratios["memory"]}
    of_bus = {
        "device_gb_per_s": bus.device_gb_per_s * ratios["bus"],
        "node_gb_per_s": bus.node_gb_per_s * ratios["host"],
    }
    sent = tuple(rate * ratios["network"] for rate in network.node_gb_per_s)
    return summit.model_copy(
        update={
            "title": "SummitDev",
            "devices_per_node": 4,
            "device": device.model_copy(update=rates),
            "bus": bus.model_copy(update=of_bus),
            "network": network.model_copy(update={"node_gb_per_s": sent}),
        }
    )


def _ghost(summitdev: Machine) -> Iterator[Comparison]:
    """Compare transforms of slabs on the host, which streams take to one GPU per rank."""

    def step(points: int, nodes: int, ranks: int, model: str) -> StepTime:
        number = 2 * GHOST_TRANSFORMS[model]
        counts = _transforms(points, nodes, ranks, number, 1, devices=1, is_from_host=True)
        return step_time(counts, summitdev)

    for what, points, ranks, model, part, published in _GHOST_PARTS:
        forecast = getattr(step(points, 1, ranks, model), part)
        yield Comparison(GHOST, what, published, forecast, "seen")
    for what, points, few, many, published in _GHOST_STRONG:
        one, other = (step(points, nodes, 4, "boussinesq").total * nodes for nodes in (few, many))
        yield Comparison(GHOST_STRONG, what, published, 100 * one / other, "seen")


def _transforms(
    points: int,
    nodes: int,
    ranks: int,
    transforms: int,
    pencils: int,
    devices: int | None = None,
    is_from_host: bool = False,
) -> StepCounts:
    """Count the data that a rank moves in transforms of slabs on the host.

    Each rank has `devices` GPUs, by default its share of the six per node.
    """
    devices, all_ranks = devices or 6 // ranks, nodes * ranks
    field = _SINGLE * points / all_ranks
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
        is_from_host=is_from_host,
    )


def _complex_transform(summit: Machine) -> Comparison:
    """Four exchanges between bricks and pencils in double precision, on eight nodes."""
    nodes, exchanges, points = 8, 4, 1024
    sent = 16 * points**3 / nodes
    # Each GPU meets those of its row or its column of a grid of 6 x 8.
    seconds = (
        exchanges * sent / cast(Network, summit.network).rate(sent / summit.devices_per_node / 7)
    )
    # The rate of a node in large messages is the one that this run reached.
    return Comparison(HEFFTE, "8 nodes", 400.0, 1e-9 * 5 * points**3 * 30 / seconds, "seen")


def _lattice_steps(titan: Machine) -> Iterator[Comparison]:
    for nodes, image, shape, propagation, overlaps, published in _LATTICE_RATES:
        counts = _cube_of_pores(titan, math.prod(shape) / nodes, nodes, propagation, overlaps)
        rate = 1e-6 * _POROSITY * math.prod(shape) / nodes / step_time(counts, titan).total
        how = f"{propagation}{'' if overlaps else ', serial'}"
        yield Comparison(LATTICE, f"{image}, {nodes} nodes, {how}", published, rate, "held out")
    for edge, nodes, published in _LATTICE_STRONG:
        few, many = (
            step_time(_cube_of_pores(titan, voxels, count, "aa", True), titan).total / voxels
            for voxels, count in ((_ROOM, edge**3 // _ROOM), (edge**3 / nodes, nodes))
        )
        what = f"{edge}^3, {nodes} nodes"
        yield Comparison(STRONG, what, published, 100 * few / many, "seen")
    sent = _cube_of_pores(titan, 16384 * 16384 * 8192 / 16384, 16384, "aa", True).off_node_bytes
    yield Comparison(SENT, "half of 16384^3, 16384 nodes", 8.2, 1e-6 * sent, "held out")


def _cube_of_pores(
    titan: Machine, voxels: float, nodes: int, propagation: str, overlaps: bool
) -> StepCounts:
    """Return the counts of our step for a cube of a sandstone, from the GPU by way of the host."""
    storage = Storage(propagation=propagation, layout="vector-bundle", encoding="wide")
    edge = voxels ** (1 / 3)
    # Five directions cross a face; of these four reach an edge's neighbour from the face's ends.
    face, corner = _POROSITY * (_CROSSING * edge**2 - 4 * edge), _POROSITY * edge
    links = {1 + n: round(face if n < 6 else corner) for n in range(_NEIGHBOURS)}
    rank_place, sites = RankPlace(0, nodes, 1), round(_POROSITY * voxels)
    share = Share(sites, round(voxels), links, "mpi-p2p")
    device, schedule = NotingDevice("cuda"), "overlap" if overlaps else "serial"
    return counts_of(note_lattice(share, rank_place, storage, device, schedule), titan)
