"""Neighbour tables: links in an encoding, and the kernels of steps, with and without links.

Sites are advanced in units: segments of 16, or strips of as many sites as fit a vector of a CPU. A
step may advance units in any order, since a population has one reader and one writer in a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import BlockLaunch, Operation, RowLaunch
from slipstream.lattice.population_layout import BASE_BLOCK, ENCODINGS, SEGMENT, Storage
from slipstream.lattice.pore_sites import Sites
from slipstream.lattice.propagation import AA_ODD, Step

# Segments that a block of a GPU's threads advances; the registers suffice for one such block.
_SEGMENTS_PER_BLOCK = 32
# Sites among which strips are made.
_STRIP_BLOCK = 4096


class Units:
    """Groups of sites that can be advanced separately: `count` of them."""

    count: int

    def __init__(self, sites: Sites, storage: Storage) -> None:
        self._device, self._stored = sites.device, sites.stored
        self._storage, self._velocity_set = storage, sites.velocity_set

    def constants(self, step: Step, inertia: bool) -> dict[str, object]:
        """Return the compile-time constants of a kernel that advances units."""
        return {
            **self._storage.constants,
            **self._velocity_set.constants,
            "ENCODING": ENCODINGS[self._storage.encoding].kernel_name,
            "PROPAGATION": step.kernel_name,
            "INERTIA": inertia,
            "SEGMENTS": _SEGMENTS_PER_BLOCK,
        }

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        """Return the units that contain any of these sites, sorted."""
        raise NotImplementedError

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

        `numbers` are those of `Fluid.numbers`.
        """
        raise NotImplementedError


class Segments(Units):
    """Aligned segments of neighbouring sites, with wide or compact links."""

    def __init__(self, sites: Sites, storage: Storage, tables: tuple[Array, ...]) -> None:
        super().__init__(sites, storage)
        self._tables, self.count = tables, sites.stored // SEGMENT

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        return np.unique(sites // SEGMENT)

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
        constants = self.constants(step, inertia)
        threads = _SEGMENTS_PER_BLOCK * SEGMENT
        if self._device.kind == "cuda":
            constants["THREADS"] = threads
            constants["BLOCKS_PER_SM"] = 1
        kernel = self._device.kernel("collide_and_stream.hpp", "advance", **constants)
        launch = BlockLaunch(-(-count // _SEGMENTS_PER_BLOCK), threads, 0)
        listed = np.int64(0) if units is None else units
        return kernel.bind(
            launch, source, target, *self._tables, listed, first, count, self._stored, *numbers
        )


class Strips(Units):
    """Strips: neighbouring sites, as many as fit a vector."""

    def __init__(self, sites: Sites, storage: Storage, wide: Array) -> None:
        super().__init__(sites, storage)
        blocks = -(-self._stored // _STRIP_BLOCK)
        counts, nothing = np.zeros(blocks, np.int64), np.int64(0)

        def run(name: str, launch: RowLaunch, *arguments: Any) -> None:
            constants = self.constants(AA_ODD, inertia=False)
            kernel = self._device.kernel("collide_and_stream_strips.hpp", name, **constants)
            self._device.run(kernel.bind(launch, *arguments))

        def make(begin: Any, strips: Any) -> None:
            run(
                "make_strips",
                RowLaunch(blocks, 1),
                wide,
                self._stored,
                _STRIP_BLOCK,
                blocks,
                begin,
                counts,
                strips,
            )

        make(nothing, nothing)
        self.count = int(counts.sum())
        words = np.zeros(1, np.int64)
        run("strip_words", RowLaunch(1, 1), words)
        self.strips = self._device.empty((self.count, int(words[0])), np.uint32)
        make(np.cumsum(counts) - counts, self.strips)

    def constants(self, step: Step, inertia: bool) -> dict[str, object]:
        sizes = {
            "STORED_BYTES": self._storage.dtype.itemsize,
            "REAL_BYTES": self._storage.real.itemsize,
        }
        return {**super().constants(step, inertia), **sizes}

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        return np.unique(np.searchsorted(self.strips[:, 0], sites, side="right") - 1)

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
        constants = self.constants(step, inertia)
        kernel = self._device.kernel("collide_and_stream_strips.hpp", "advance_strips", **constants)
        listed = np.int64(0) if units is None else units
        return kernel.bind(
            RowLaunch(count, 1),
            source,
            target,
            self.strips,
            listed,
            first,
            count,
            self._stored,
            *numbers,
        )


class Links:
    """The links of all sites in an encoding, and the units in which steps advance the sites."""

    linked: Units  # of steps that need links
    unlinked: Units  # of those that do not
    bytes_per_site: float
    exceptions: int = 0  # sites whose links do not fit the encoding and are stored separately

    def units(self, step: Step) -> Units:
        """Return the units in which a step advances the sites."""
        return self.linked if step.needs_links else self.unlinked


class WideLinks(Links):
    """A 32-bit word for each link."""

    def __init__(self, sites: Sites, storage: Storage, wide: Array) -> None:
        none = sites.device.zeros((1,), np.uint32)
        self.linked = self.unlinked = Segments(sites, storage, (wide, none, none, none, none))
        self.bytes_per_site = 4.0 * sites.velocity_set.links


class CompactLinks(Links):
    """Flags, and for each row upstream an offset from a base that a block of sites shares."""

    def __init__(self, sites: Sites, storage: Storage, wide: Array) -> None:
        device, count, velocity_set = sites.device, sites.stored, sites.velocity_set
        rows, blocks = velocity_set.upstream_rows, -(-count // BASE_BLOCK)
        flags = device.empty((count,), np.uint32)
        offsets = device.empty((rows, count), np.uint16)
        bases = device.empty((blocks, rows), np.int32)
        wrong = device.zeros((count,), np.uint8)

        def run(name: str, launch: Any, *arguments: Any) -> None:
            constants = {**Storage().constants, **velocity_set.constants}
            kernel = device.kernel("compact_links.hpp", name, ENCODING="COMPACT", **constants)
            device.run(kernel.bind(launch, *arguments))

        packed = RowLaunch(blocks, BASE_BLOCK, reduces=True)
        run("pack_links", packed, wide, count, flags, offsets, bases)
        checked = BlockLaunch(count // SEGMENT, SEGMENT, 0)
        run("check_links", checked, wide, count, flags, offsets, bases, wrong)
        found = device.array_module.flatnonzero(wrong)
        self.exceptions = len(found)
        exceptions = device.empty((max(1, len(found)), velocity_set.links), np.uint32)
        listed = RowLaunch(len(found), velocity_set.links)
        run("list_exceptions", listed, wide, count, found, len(found), flags, exceptions)
        tables = (device.zeros((1,), np.uint32), flags, offsets, bases, exceptions)
        self.linked = self.unlinked = Segments(sites, storage, tables)
        self.bytes_per_site = 4 + 2 * rows + 4 * rows / BASE_BLOCK


class StripLinks(Links):
    """Links of vectors of sites; steps without links advance segments."""

    def __init__(self, sites: Sites, storage: Storage, wide: Array) -> None:
        none = sites.device.zeros((1,), np.uint32)
        strips = Strips(sites, storage, wide)
        self.linked, self.unlinked = strips, Segments(sites, storage, (none,) * 5)
        self.bytes_per_site = strips.strips.nbytes / max(1, sites.stored)


LINKS: dict[str, type[WideLinks] | type[CompactLinks] | type[StripLinks]] = {
    "wide": WideLinks,
    "compact": CompactLinks,
    "strips": StripLinks,
}


def make_links(sites: Sites, storage: Storage, wide: Array) -> Links:
    """Return the links of sites in the encoding of a storage, made from their wide links."""
    return LINKS[storage.encoding](sites, storage, wide)
