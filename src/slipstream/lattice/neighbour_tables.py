"""Neighbour tables: links in an encoding, and the kernels of steps, with and without links.

Sites are advanced in units: aligned groups of 16, or of 64 on GPUs, or strips of as many sites as
fit a vector of a CPU. A step may advance units in any order, since a population has one reader and
one writer in a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from slipstream.array_types import Array
from slipstream.device import BlockLaunch, Device, Operation, RowLaunch, host_values
from slipstream.lattice.population_layout import (
    AA_ODD,
    BASE_BLOCK,
    ENCODINGS,
    SEGMENT,
    Step,
    Storage,
)
from slipstream.lattice.pore_sites import Sites, unit_of
from slipstream.lattice.velocity_set import VelocitySet

# By bytes of a real: sites of a GPU's thread, threads of a block, for how many such blocks of a
# multiprocessor the registers have to suffice, and of how many sites further on links are fetched:
# about as many sites as are advanced at a time.
_BLOCKS = {8: (2, 128, 2, 1 << 16), 4: (2, 128, 3, 1 << 17)}
_UNITS_ON_CPUS = 32
# Populations that 32 bits can number, with some to spare.
_MOST_PLACES = (1 << 32) - (1 << 12)
# Sites among which strips are made.
_STRIP_BLOCK = 4096


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
        """Return how the kernel is launched for so many units."""

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

        def make(begin: Any, strips: Any) -> None:
            sizes = (self._stored, _STRIP_BLOCK, blocks)
            self._run("make_strips", blocks, wide, *sizes, begin, counts, strips)

        make(np.int64(0), np.int64(0))
        self.count = int(counts.sum())
        self.sites_per_unit = self._stored / max(1, self.count)
        self._run("strip_words", 1, words)
        self._strips = self._device.empty((self.count, int(words[0])), np.uint32)
        self._tables = (self._strips,)
        make(np.cumsum(counts) - counts, self._strips)
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

    def units(self, step: Step) -> Units:
        """Return the units in which a step advances the sites."""
        return self.linked if step.needs_links else self.unlinked


def make_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return the links of sites in the encoding of a storage, made from their wide links."""
    return _MAKERS[storage.encoding](sites, storage, wide)


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
        constants = {**Storage().constants, **velocity_set.constants}
        kernel = device.kernel("compact_links.hpp", name, ENCODING="COMPACT", **constants)
        device.run(kernel.bind(launch, *arguments))

    packed = RowLaunch(blocks, BASE_BLOCK, reduces=True)
    run("pack_links", packed, wide, count, flags, offsets, bases)
    checked = BlockLaunch(count // SEGMENT, SEGMENT, 0)
    run("check_links", checked, wide, count, flags, offsets, bases, wrong)
    # By the host: few sites are exceptions, and the kernels of a library would have to be compiled.
    found = device.array(np.flatnonzero(device.to_host(wrong)))
    exceptions = device.empty((max(1, len(found)), velocity_set.links), np.uint32)
    listed = RowLaunch(len(found), velocity_set.links)
    run("list_exceptions", listed, wide, count, found, len(found), flags, exceptions)
    tables = (device.zeros((1,), np.uint32), flags, offsets, bases, exceptions)
    units = AlignedUnits(sites, storage, tables)
    return Links(units, units, 4 + 2 * rows + 8 * rows / BASE_BLOCK, len(found))


def _strip_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return links of vectors of sites; steps without links advance aligned units."""
    none = sites.device.zeros((1,), np.uint32)
    strips = Strips(sites, storage, wide)
    return Links(strips, AlignedUnits(sites, storage, (none,) * 5), strips.bytes_per_site)


_MAKERS = {"wide": _wide_links, "compact": _compact_links, "strips": _strip_links}
