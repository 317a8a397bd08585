"""Sites: the numbered pores of a box, and their links.

Only pores are stored. They are numbered along x within rows, and the order of rows is a choice. A
link says which site is upstream of a site in a direction, or that the population bounces back: from
solid, or from another rank's site, whose population then overwrites it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import Box
from slipstream.device import Device, RowLaunch
from slipstream.errors import InputError
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.population_layout import SEGMENT, Storage, row_order
from slipstream.lattice.velocity_set import VelocitySet

# A site's populations of all directions would compete for the same cache lines if they lay a
# multiple of 4096 bytes apart, so the number of sites, in whole units, is about _OVER modulo _TURN.
_OVER, _TURN = 48, 512
# Sites that are advanced together, by kind of device.
SITES_OF_UNIT = {"cpu": SEGMENT, "gpu": 64}
# Links have 31 bits for the number of a site, and its rank in a row has 16.
_MOST_SITES, _MOST_COLUMNS = 2**31, 2**16
_BOUNCES = 1 << 31


class Sites:
    """The numbered pores of one rank's box.

    `voxels` are the box with a shell of one voxel, uint8 with 1 in pores. The shell is solid except
    where it is the periodic image of the box's other end: `own` has the box of each original and of
    its image, relative to the box.
    """

    def __init__(
        self,
        device: Device,
        voxels: np.ndarray,
        own: Sequence[tuple[Box, Box]],
        order: str,
        velocity_set: VelocitySet = D3Q19,
        group: int = 1,
    ) -> None:
        self.device, self.velocity_set = device, velocity_set
        self.box_shape = tuple(size - 2 for size in voxels.shape)
        check_size(self.box_shape[2], 0)
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
        self._number(device.to_host(counts).reshape(voxels.shape[:2]), own, order)
        self.stored = stored_sites(self.count, group, unit_of(device))
        check_size(self.box_shape[2], self.count)

    def _number(self, counts: np.ndarray, own: Sequence[tuple[Box, Box]], order: str) -> None:
        planes, rows, _ = self.box_shape
        numbers = np.arange(counts.size).reshape(counts.shape)[1:-1, 1:-1]
        in_order = numbers.reshape(-1)[row_order(planes, rows, order)]
        before = np.cumsum(counts.reshape(-1)[in_order])
        first = np.zeros(counts.shape, np.int64)
        first.reshape(-1)[in_order[1:]] = before[:-1]
        self.count = int(before[-1]) if before.size else 0
        for pair in own:
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
        constants = {**Storage().constants, **self.velocity_set.constants}
        kernel = self.device.kernel("neighbour_tables.hpp", name, **constants)
        self.device.run(kernel.bind(launch, *arguments))


def unit_of(device: Device) -> int:
    """Return how many neighbouring sites a device advances together."""
    return SITES_OF_UNIT["gpu" if device.tiled_transforms() else "cpu"]


def stored_sites(count: int, group: int = 1, unit: int = SEGMENT) -> int:
    """Return for how many sites, in whole groups and units, memory is allocated, for so many."""
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
