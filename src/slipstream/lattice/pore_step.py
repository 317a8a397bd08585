"""The step of the pore voxels of a rank: tables of their neighbours, and its kernels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, split
from slipstream.engine.device import BlockLaunch, Device, Operation, RowLaunch, host_values
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import SparseExchange, Transport, swap_plan
from slipstream.engine.schedule import StepGraph
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.velocity_set import (
    AA_ODD,
    BASE_BLOCK,
    D3Q19,
    ENCODINGS,
    PLAIN_CONSTANTS,
    PROPAGATIONS,
    SEGMENT,
    Step,
    Storage,
    VelocitySet,
    row_order,
)

# A site's populations of all directions would compete for the same cache lines if they lay a
# multiple of 4096 bytes apart, so the number of sites, in whole units, is about _OVER modulo _TURN.
_OVER = 48
_TURN = 512
# Sites that are advanced together, by kind of device.
SITES_OF_UNIT = {"cpu": SEGMENT, "gpu": 64}
# Links have 31 bits for the number of their site.
_MOST_SITES = 2**31
# Links have 16 bits for the rank of their site in a row.
_MOST_COLUMNS = 2**16
# The bit of a link to a wall.
_BOUNCES = 1 << 31
# By bytes of a real: sites of a GPU's thread, threads of a block, for how many such blocks of a
# multiprocessor the registers have to suffice, and of how many sites further on links are fetched:
# about as many sites as are advanced at a time.
_BLOCKS = {8: (2, 128, 2, 1 << 16), 4: (2, 128, 3, 1 << 17)}
# Units of sites of a CPU's task.
_UNITS_ON_CPUS = 32
# Populations that 32 bits can number, with some to spare.
_MOST_PLACES = (1 << 32) - (1 << 12)
# Sites among which strips are made.
_STRIP_BLOCK = 4096
# Units that a rank with one core advances before it checks for messages.
_CHUNK = 1 << 15


class Sites:
    """The numbered pores of one rank's box.

    `voxels` are the box with a shell of one voxel, uint8 with 1 in pores. The shell is solid except
    where it is the periodic image of the box's other end: `images` has the box of each original and
    of its image, relative to the box.
    """

    def __init__(
        self,
        device: Device,
        voxels: np.ndarray,
        images: Sequence[tuple[Box, Box]],
        order: str,
        velocity_set: VelocitySet = D3Q19,
        group: int = 1,
    ) -> None:
        self.device, self.velocity_set = device, velocity_set
        self.box_shape = tuple(size - 2 for size in voxels.shape)
        # On the device, as are `first` and `rows`: the number of each row's first site, and the
        # rows that are in the box, in raster order.
        self.voxels = device.array(voxels)
        self._ranks: Any = device.zeros(voxels.shape, np.uint16)
        rows = math.prod(voxels.shape[:2])
        counts = device.zeros((rows,), np.int64)
        self._run(
            "rank_sites",
            RowLaunch(rows, self.box_shape[2], reduces=True),
            self.voxels,
            self._ranks,
            counts,
            rows,
            self.box_shape[2],
        )
        self._counts: Any = counts
        self._number(device.to_host(counts).reshape(voxels.shape[:2]), images, order)
        check_size(self.box_shape[2], self.count)
        self.stored = stored_sites(self.count, group, unit_of(device))

    def _number(self, counts: np.ndarray, images: Sequence[tuple[Box, Box]], order: str) -> None:
        planes, rows, _ = self.box_shape
        numbers = np.arange(counts.size).reshape(counts.shape)[1:-1, 1:-1]
        in_order = numbers.reshape(-1)[row_order(planes, rows, order)]
        before = np.cumsum(counts.reshape(-1)[in_order])
        first = np.zeros(counts.shape, np.int64)
        first.reshape(-1)[in_order[1:]] = before[:-1]
        self.count = int(before[-1]) if before.size else 0
        for pair in images:
            source, target = (box.shifted((1, 1, 1)).slices()[:2] for box in pair)
            first[target] = first[source]
        self.first = self.device.array(first.reshape(-1))
        self.rows = self.device.array(numbers.reshape(-1))

    def numbers(self, voxels: Iterable[np.ndarray]) -> np.ndarray:
        """Return the numbers of the sites at voxels, three arrays of indices within the box."""
        z, y, x = (np.asarray(index, np.int64) + 1 for index in voxels)
        if not z.size:
            return z
        row = self.device.array(z * (self.box_shape[1] + 2) + y)
        place = row * (self.box_shape[2] + 2) + self.device.array(x)
        numbers = self.first[row] + self._ranks.reshape(-1)[place]
        return self.device.to_host(numbers)

    def release(self) -> None:
        """Free the tables that only `numbers` and `wide_links` need."""
        self._ranks = self._counts = None

    def wide_links(self) -> Array:
        """Return the links of all sites, [direction - 1][site]."""
        links = self.device.empty((self.velocity_set.links, self.stored), np.uint32)
        # The padding beyond the last site is enclosed by walls.
        padding = np.full((len(links), self.stored - self.count), _BOUNCES, np.uint32)
        self.device.run(self.device.copy(links[:, self.count :], padding))
        self._run(
            "link_sites",
            RowLaunch(len(self.rows), self.box_shape[2]),
            self.voxels,
            self._ranks,
            self.first,
            self._counts,
            self.rows,
            len(self.rows),
            self.box_shape[2],
            self.box_shape[1] + 2,
            self.stored,
            links,
        )
        return links

    def _run(self, name: str, launch: RowLaunch, *arguments: Any) -> None:
        constants = {**PLAIN_CONSTANTS, **self.velocity_set.constants}
        kernel = self.device.kernel("neighbour_tables.hpp", name, **constants)
        self.device.run(kernel.bind(launch, *arguments))


def unit_of(device: Device) -> int:
    """Return the number of neighbouring sites that a device advances together."""
    return SITES_OF_UNIT["gpu" if device.tiled_transforms() else "cpu"]


def stored_sites(count: int, group: int = 1, unit: int = SEGMENT) -> int:
    """Return the number of sites, in whole groups and units, for which memory is allocated."""
    if group > SEGMENT:
        unit = max(unit, group)
        return unit * -(-count // unit)
    units = -(-count // unit)
    return unit * (units + (-(-_OVER // unit) - units) % (_TURN // unit))


def check_size(columns: int, sites: int) -> None:
    """Refuse a box with more columns, or sites, than links can number."""
    if columns >= _MOST_COLUMNS:
        raise InputError(
            f"a rank's box is {columns} voxels wide; accepted: up to {_MOST_COLUMNS - 1}; "
            "use more ranks"
        )
    if sites > _MOST_SITES - SEGMENT:
        raise InputError(
            f"a rank's box has {sites} pore voxels; accepted: fewer than 2^31; use more ranks"
        )


class StoredSites(Protocol):
    """The sites of a step: their number, storage and links."""

    @property
    def device(self) -> Device: ...

    @property
    def stored(self) -> int: ...

    @property
    def velocity_set(self) -> VelocitySet: ...


class Units(ABC):
    """Groups of sites that can be advanced separately: `count` of them."""

    count: int
    # On average.
    sites_per_unit: float
    _header: str
    _name: str
    # What the kernel needs besides populations: links.
    _tables: tuple[Array, ...]

    def __init__(self, sites: StoredSites, storage: Storage) -> None:
        self._device, self._stored = sites.device, sites.stored
        self._real = storage.real.type
        self._constants = {
            **storage.constants,
            **sites.velocity_set.constants,
            "ENCODING": ENCODINGS[storage.encoding].kernel_name,
            "UNITS": _UNITS_ON_CPUS,
        }

    @abstractmethod
    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        """Return the units that contain any of these sites, sorted."""

    @abstractmethod
    def _launch(self, count: int) -> BlockLaunch | RowLaunch:
        """Return how the kernel is launched for a number of units."""

    def advance(
        self,
        step: Step,
        inertia: bool,
        source: Array,
        target: Array,
        units: Array | None,
        first: int,
        count: int,
        numbers: tuple[float, ...],
    ) -> Operation:
        """Return the operation that advances `count` units, from `first` on, of a list or of all.

        `numbers` are what `Fluid.numbers` returns.
        """
        constants = {**self._constants, "PROPAGATION": step.kernel_name, "INERTIA": inertia}
        kernel = self._device.kernel(self._header, self._name, **constants)
        listed = np.int64(0) if units is None else units
        links = (*self._tables, listed, first, count, self._stored)
        real = map(self._real, numbers)
        return kernel.bind(self._launch(count), source, target, *links, *real)


class AlignedUnits(Units):
    """Aligned groups of neighbouring sites, with wide or compact links."""

    _header, _name = "collide_and_stream.hpp", "advance"

    def __init__(self, sites: StoredSites, storage: Storage, tables: tuple[Array, ...]) -> None:
        super().__init__(sites, storage)
        self._size = unit_of(sites.device)
        self._tables, self.count = tables, sites.stored // self._size
        self.sites_per_unit = self._size
        self._units, self._threads = _UNITS_ON_CPUS, 0
        if sites.device.tiled_transforms():
            at_once, self._threads, blocks, ahead = _BLOCKS[storage.real.itemsize]
            self._units = at_once * self._threads // self._size
            populations = sites.stored * sites.velocity_set.directions
            self._constants |= {
                "PLACE": "unsigned" if populations < _MOST_PLACES else "Index",
                "UNIT": self._size,
                "UNITS": self._units,
                "AT_ONCE": at_once,
                "THREADS": self._threads,
                "BLOCKS_PER_SM": blocks,
                "AHEAD": ahead,
            }

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        return np.unique(sites // self._size)

    def _launch(self, count: int) -> BlockLaunch:
        return BlockLaunch(-(-count // self._units), self._threads, 0)


class Strips(Units):
    """Strips: neighbouring sites, as many as fit a vector."""

    _header, _name = "collide_and_stream_strips.hpp", "advance_strips"

    def __init__(self, sites: Sites, storage: Storage, wide: Array) -> None:
        super().__init__(sites, storage)
        self._constants["REAL_BYTES"] = storage.real.itemsize
        blocks = -(-self._stored // _STRIP_BLOCK)
        counts, words = np.zeros(blocks, np.int64), np.zeros(1, np.int64)

        sizes, none = (self._stored, _STRIP_BLOCK, blocks), np.int64(0)
        self._run("make_strips", blocks, wide, *sizes, none, counts, none)
        self.count = int(counts.sum())
        self.sites_per_unit = self._stored / max(1, self.count)
        self._run("strip_words", 1, words)
        self._strips = self._device.empty((self.count, int(words[0])), np.uint32)
        self._tables = (self._strips,)
        begin = np.cumsum(counts) - counts
        self._run("make_strips", blocks, wide, *sizes, begin, counts, self._strips)
        self.bytes_per_site = self._strips.nbytes / max(1, self._stored)

    def _run(self, name: str, rows: int, *arguments: Any) -> None:
        constants = {**self._constants, "PROPAGATION": AA_ODD.kernel_name, "INERTIA": False}
        kernel = self._device.kernel(self._header, name, **constants)
        self._device.run(kernel.bind(RowLaunch(rows, 1), *arguments))

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        return np.unique(np.searchsorted(host_values(self._strips[:, 0]), sites, side="right") - 1)

    def _launch(self, count: int) -> RowLaunch:
        return RowLaunch(count, 1)


@dataclass(frozen=True)
class Links:
    """The links of all sites in an encoding, and the units in which steps advance the sites."""

    linked: Units  # of steps that need links
    unlinked: Units  # of steps that do not
    bytes_per_site: float
    exceptions: int = 0  # sites whose links do not fit the encoding and are stored separately


def _wide_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return a 32-bit word for each link."""
    none = sites.device.zeros((1,), np.uint32)
    units = AlignedUnits(sites, storage, (wide, none, none, none, none))
    return Links(units, units, bytes_per_site=4.0 * sites.velocity_set.links)


def _compact_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return flags, and for each row upstream an offset from one of two bases of 256 sites."""
    device, count, velocity_set = sites.device, sites.stored, sites.velocity_set
    rows, blocks = velocity_set.upstream_rows, -(-count // BASE_BLOCK)
    flags = device.empty((count,), np.uint32)
    offsets = device.empty((rows, count), np.uint16)
    bases = device.empty((blocks, rows, 2), np.int32)
    wrong = device.zeros((count,), np.uint8)

    def run(name: str, launch: Any, *arguments: Any) -> None:
        constants = {**PLAIN_CONSTANTS, **velocity_set.constants}
        kernel = device.kernel("compact_links.hpp", name, ENCODING="COMPACT", **constants)
        device.run(kernel.bind(launch, *arguments))

    packed = RowLaunch(blocks, BASE_BLOCK, reduces=True)
    run("pack_links", packed, wide, count, flags, offsets, bases)
    checked = BlockLaunch(count // SEGMENT, SEGMENT, 0)
    run("check_links", checked, wide, count, flags, offsets, bases, wrong)
    # By the host: few sites are exceptions, and the kernels of a library would have to be compiled.
    wrong_sites = device.array(np.flatnonzero(device.to_host(wrong)))
    exceptions = device.empty((max(1, len(wrong_sites)), velocity_set.links), np.uint32)
    listed = RowLaunch(len(wrong_sites), velocity_set.links)
    run("list_exceptions", listed, wide, count, wrong_sites, len(wrong_sites), flags, exceptions)
    tables = (device.zeros((1,), np.uint32), flags, offsets, bases, exceptions)
    units = AlignedUnits(sites, storage, tables)
    return Links(units, units, 4 + 2 * rows + 8 * rows / BASE_BLOCK, len(wrong_sites))


def _strip_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return links of vectors of sites; steps without links advance aligned units."""
    none = sites.device.zeros((1,), np.uint32)
    strips = Strips(sites, storage, wide)
    return Links(strips, AlignedUnits(sites, storage, (none,) * 5), strips.bytes_per_site)


# By encoding: what makes the links of sites from their wide links.
MAKERS_OF_LINKS = {"wide": _wide_links, "compact": _compact_links, "strips": _strip_links}


@dataclass(frozen=True)
class SwappedSites:
    """A rank's exchange with others: `edges` are the sites whose populations they need, by number.

    `places` are the addresses of populations, for all neighbours one after the other, and `counts`
    how many each neighbour gets.
    """

    edges: np.ndarray
    places: Array
    counts: Mapping[int, int]


class PoreStep:
    """The steps of a pair, ready to be recorded. Making it is collective.

    `arrays` are the arrays that the first step of a pair reads and writes; they may be the same.
    Without a transport nothing is `swapped`. `tokens` represent edge sites and inner sites as
    dependencies of the step graph.
    """

    def __init__(
        self,
        links: Links,
        arrays: Sequence[Array],
        storage: Storage,
        device: Device,
        swapped: SwappedSites | None,
        rank: int,
        transport: Transport | None,
        policy: str,
    ) -> None:
        self._arrays = arrays
        self._device, self._policy = device, policy
        self._kinds = PROPAGATIONS[storage.propagation].steps
        self._units = [links.linked if one.needs_links else links.unlinked for one in self._kinds]
        # The bytes that each step moves per site, populations and links, and those it writes.
        self._moved = storage.bytes_per_update(links.bytes_per_site)
        self._written = [size / 2 for size in storage.bytes_per_update(0.0)]
        self._swap = None
        if transport is not None and swapped is not None:
            self._edges = swapped.edges
            plan = swap_plan(swapped.counts, rank)
            targets = [arrays[1], arrays[0]]
            self._swap = SparseExchange(device, plan, swapped.places, targets, transport)
        self.tokens = [device.zeros((device.lanes,), np.float64) for _ in range(2)]

    def record(self, number: int, fluid: Fluid, unit: float = 1.0) -> StepGraph:
        """Record the first or the second step of a pair, of populations in a unit."""
        drive = fluid.inertia, fluid.numbers(unit)
        graph = StepGraph(self._device)
        if self._swap is None or self._policy == "serial":
            self._advance(graph, number, drive, None, "all sites", self.tokens)
            if self._swap is not None:
                self._swap.record(graph, number, self.tokens[0], "populations")
        else:
            units = self._units[number]
            edge = units.of_sites(self._edges)
            is_inner = np.ones(units.count, bool)
            is_inner[edge] = False
            inner = np.flatnonzero(is_inner)
            self._advance(graph, number, drive, edge, "edge sites", self.tokens[:1])
            self._swap.record(graph, number, self.tokens[0], "populations")
            self._advance(graph, number, drive, inner, "inner sites", self.tokens[1:])
        return graph

    def _advance(
        self,
        graph: StepGraph,
        number: int,
        drive: tuple[bool, tuple[float, ...]],
        chosen: np.ndarray | None,
        label: str,
        tokens: Sequence[Array],
    ) -> None:
        kind, (inertia, numbers) = self._kinds[number], drive
        units, written = self._units[number], self._written[number]
        read = self._moved[number] - written
        count = units.count if chosen is None else len(chosen)
        listed = None if chosen is None else self._device.array(chosen, np.uint32)
        source, target = self._arrays[number], self._arrays[1 - number]
        for lane in range(self._device.lanes):
            low, high = split(count, self._device.lanes)[lane]
            step = _CHUNK if self._device.inline else max(1, high - low)
            for first in range(low, high, step):
                some = min(step, high - first)
                sites = some * units.sites_per_unit
                graph.add(
                    units.advance(kind, inertia, source, target, listed, first, some, numbers),
                    writes=[token[lane : lane + 1] for token in tokens],
                    label=label,
                    category="compute",
                    device=self._device,
                    lane=graph.lane_of_batch(lane)[1],
                    moves=(sites * read, sites * written),
                )
