"""Links, in an encoding, and the step that goes by them.

Sites are advanced in units: segments of 16, or strips, which are what vectors of a CPU can treat at
once. A step may advance any of them first, since a population has one reader and writer in a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.device import BlockLaunch, Device, Operation, RowLaunch
from slipstream.lattice.d3q19 import DIRECTIONS
from slipstream.lattice.population_layout import BASE_BLOCK, SEGMENT, Storage
from slipstream.lattice.pore_sites import Sites

_LINKS = DIRECTIONS - 1
_UPSTREAM_ROWS = 8
# Segments that a block of a GPU's threads advances; its registers suffice for one such block.
_SEGMENTS_PER_BLOCK = 32
# Sites among which strips are made.
_STRIP_BLOCK = 4096
# As the kernels number them.
TWO_LATTICE, AA_EVEN, AA_ODD = range(3)


class Links:
    """The links of all sites, for one of the kinds of steps or both.

    Parameters
    ----------
    sites : Sites
        The sites.
    storage : Storage
        How populations and links are stored.
    wide : array of uint32
        The sites' `wide_links`.

    Attributes
    ----------
    bytes_per_site : float
        Memory that the links of a site take.
    exceptions : int
        Number of sites whose compact links did not fit.
    """

    def __init__(self, sites: Sites, storage: Storage, wide: Any) -> None:
        self._device, self._sites, self._storage = sites.device, sites, storage
        self.exceptions = 0
        none = self._device.zeros((1,), np.uint32)
        self._segments = _Segments(sites, storage, (none,) * 5)
        if storage.encoding == "strips":
            self._strips = _Strips(sites, storage, wide)
            self.bytes_per_site = self._strips.strips.nbytes / max(1, sites.stored)
        elif storage.encoding == "wide":
            self._segments.arrays = (wide, *(none,) * 4)
            self.bytes_per_site = 4.0 * _LINKS
        else:
            self._segments.arrays = (none, *self._packed(wide))
            self.bytes_per_site = 4 + 2 * _UPSTREAM_ROWS + 4 * _UPSTREAM_ROWS / BASE_BLOCK

    def units(self, propagation: int) -> _Segments | _Strips:
        """Return the units in which a kind of step advances the sites."""
        strips = self._storage.encoding == "strips" and propagation != AA_EVEN
        return self._strips if strips else self._segments

    def _packed(self, wide: Any) -> tuple[Any, ...]:
        """Return the arrays of compact links: flags, offsets, bases and exceptions."""
        device, count = self._device, self._sites.stored
        flags = device.empty((count,), np.uint32)
        offsets = device.empty((_UPSTREAM_ROWS, count), np.uint16)
        blocks = -(-count // BASE_BLOCK)
        bases = device.empty((blocks, _UPSTREAM_ROWS), np.int32)
        wrong = device.zeros((count,), np.uint8)

        def run(name: str, launch: Any, *arguments: Any) -> None:
            kernel = device.kernel("lattice_setup.hpp", name, **Storage().constants)
            device.run(kernel.bind(launch, *arguments))

        run(
            "pack_links",
            RowLaunch(blocks, BASE_BLOCK, reduces=True),
            wide,
            count,
            flags,
            offsets,
            bases,
        )
        run(
            "check_links",
            BlockLaunch(count // SEGMENT, SEGMENT, 0),
            wide,
            count,
            flags,
            offsets,
            bases,
            wrong,
        )
        found = device.array_module.flatnonzero(wrong)
        self.exceptions = len(found)
        exceptions = device.empty((max(1, len(found)), _LINKS), np.uint32)
        run(
            "list_exceptions",
            RowLaunch(len(found), _LINKS),
            wide,
            count,
            found,
            len(found),
            flags,
            exceptions,
        )
        return flags, offsets, bases, exceptions


class _Units:
    """What can be advanced by itself: `count` of them."""

    count: int

    def __init__(self, sites: Sites, storage: Storage) -> None:
        self._device: Device = sites.device
        self._stored, self._storage = sites.stored, storage

    def constants(self, propagation: int, inertia: bool) -> dict[str, object]:
        return {
            **self._storage.constants,
            "PROPAGATION": propagation,
            "INERTIA": inertia,
            "SEGMENTS": _SEGMENTS_PER_BLOCK,
        }


class _Segments(_Units):
    """Aligned segments of neighbouring sites."""

    def __init__(self, sites: Sites, storage: Storage, arrays: tuple[Any, ...]) -> None:
        super().__init__(sites, storage)
        self.arrays, self.count = arrays, sites.stored // SEGMENT

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        """Return the units that have some of these sites, sorted."""
        return np.unique(sites // SEGMENT)

    def advance(
        self,
        propagation: int,
        inertia: bool,
        source: Any,
        target: Any,
        units: Any,
        first: int,
        count: int,
        numbers: tuple[float, ...],
    ) -> Operation:
        """Return the operation that advances some units.

        Parameters
        ----------
        propagation : int
            Kind of step.
        inertia : bool
            Whether the equilibrium has terms of second order.
        source, target : arrays
            Populations before and after.
        units : array of uint32, or None
            Which units there are to choose from; all of them.
        first, count : int
            Which of those to advance.
        numbers : tuple of float
            Rates of relaxation, even and odd, and the force along x, y and z.
        """
        constants = self.constants(propagation, inertia)
        threads = _SEGMENTS_PER_BLOCK * SEGMENT
        if self._device.kind == "cuda":
            constants["THREADS"] = threads
            constants["BLOCKS_PER_SM"] = 1
        kernel = self._device.kernel("lattice_step.hpp", "advance", **constants)
        launch = BlockLaunch(-(-count // _SEGMENTS_PER_BLOCK), threads, 0)
        listed = np.int64(0) if units is None else units
        return kernel.bind(
            launch, source, target, *self.arrays, listed, first, count, self._stored, *numbers
        )


class _Strips(_Units):
    """Strips: as many neighbouring sites as a vector can treat at once."""

    def __init__(self, sites: Sites, storage: Storage, wide: Any) -> None:
        super().__init__(sites, storage)
        blocks = -(-self._stored // _STRIP_BLOCK)
        counts, nothing = np.zeros(blocks, np.int64), np.int64(0)

        def run(name: str, launch: RowLaunch, *arguments: Any) -> None:
            constants = self.constants(AA_ODD, inertia=False)
            kernel = self._device.kernel("lattice_strips.hpp", name, **constants)
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

    def constants(self, propagation: int, inertia: bool) -> dict[str, object]:
        sizes = {
            "STORED_BYTES": self._storage.dtype.itemsize,
            "REAL_BYTES": self._storage.real.itemsize,
        }
        return {**super().constants(propagation, inertia), **sizes}

    def of_sites(self, sites: np.ndarray) -> np.ndarray:
        """Return the units that have some of these sites, sorted."""
        return np.unique(np.searchsorted(self.strips[:, 0], sites, side="right") - 1)

    def advance(
        self,
        propagation: int,
        inertia: bool,
        source: Any,
        target: Any,
        units: Any,
        first: int,
        count: int,
        numbers: tuple[float, ...],
    ) -> Operation:
        """Return the operation that advances some units; see `_Segments.advance`."""
        constants = self.constants(propagation, inertia)
        kernel = self._device.kernel("lattice_strips.hpp", "advance_strips", **constants)
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
