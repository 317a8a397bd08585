"""Checkpoints of a flow through pores, for a restart on any number of ranks.

Only pores are stored: each with its place in the image and its populations between two pairs of
steps, when all of them have arrived at their sites. So a state does not depend on how ranks and
devices store it. A table says which sites of the files belong to which box of the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.files.checkpoint import Checkpoint
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import row_order

# Sites whose populations are moved together.
_SITES_AT_ONCE = 1 << 20
# The most sites in a chunk of the files.
_MOST_IN_CHUNK = 1 << 20
# The fewest sites in a chunk, where a rank has several.
_LEAST_IN_CHUNK = 1 << 16
# Chunks per rank, between these bounds.
_CHUNKS = 16
# Names of arrays.
_BOXES = "part"
_VOXEL = "voxel"
AXES_TABLE = "axes"


@dataclass(frozen=True)
class AxisRecord:
    """The record of the flow along one of several axes that a run drives it along."""

    axis: int
    began: int  # step of the run at which it began
    residual: float
    mach: float
    column: np.ndarray  # of the permeability tensor, along z, y and x


def state(flow: PoreFlow, comm: Comm) -> Iterator[Field]:
    """Yield what a flow needs to restart. Collective."""
    count, subdomain = flow.sites.count, flow.subdomain
    counts = [count] if comm is None else comm.allgather(count)
    sizes = padded_sizes(counts)
    starts = [0, *itertools.accumulate(sizes)]
    rank, total = subdomain.rank, starts[-1]

    def site_field(name: str, values: np.ndarray, long_name: str) -> Field:
        offset = (starts[rank],)
        return Field(name, ("site",), (total,), offset, values, {}, {"long_name": long_name})

    table = [
        (start, number, *box.start, *box.stop)
        for start, number, box in zip(starts[:-1], counts, subdomain.boxes, strict=True)
    ]
    yield rank_0_field(_BOXES, np.array(table, np.int64), rank, "first site, sites, box (z, y, x)")
    voxels = np.full(sizes[rank], -1, np.int64)
    voxels[:count] = site_voxels(subdomain, flow.storage.order)
    yield site_field(_VOXEL, voxels, "index of the voxel, counted along x, y and z; -1: no site")
    del voxels
    directions = subdomain.velocity_set.directions
    for direction in range(directions):
        values = np.zeros(sizes[rank], flow.storage.values)
        for low in range(0, count, _SITES_AT_ONCE):
            numbers = np.arange(low, min(low + _SITES_AT_ONCE, count))
            values[numbers] = flow.populations(numbers, direction)
        yield site_field(
            _population(direction, directions), values, f"population of direction {direction}"
        )


def rank_0_field(name: str, values: np.ndarray, rank: int, long_name: str) -> Field:
    """Return the field of a small array that all ranks have and rank 0 writes."""
    data = values if rank == 0 else values[:0]
    dims = (name, "entry")[: values.ndim]
    return Field(name, dims, values.shape, (0,) * values.ndim, data, {}, {"long_name": long_name})


def padded_sizes(counts: Sequence[int]) -> list[int]:
    """Return the number of elements that each rank has in the files, so that no chunk is tiny.

    All are multiples of one chunk, which has as many sites as the largest rank if these are few.
    """
    most = max(counts)
    chunk = 1 << max(0, (most // _CHUNKS).bit_length() - 1)
    chunk = max(1, min(most, max(_LEAST_IN_CHUNK, min(chunk, _MOST_IN_CHUNK))))
    return [-(-count // chunk) * chunk for count in counts]


def site_voxels(subdomain: Subdomain, order: str) -> np.ndarray:
    """Return the voxels of a subdomain's sites, as flat indices of the whole domain."""
    (planes, rows, columns), start = subdomain.box.shape, subdomain.box.start
    in_order = row_order(planes, rows, order)
    voxels = [np.empty(0, np.int64)]
    step = max(1, _SITES_AT_ONCE // max(1, columns))
    for low in range(0, len(in_order), step):
        z, y = np.divmod(in_order[low : low + step], rows)
        row, x = np.nonzero(subdomain.own[z + 1, y + 1, 1:-1])
        place = z[row] + start[0], y[row] + start[1], x + start[2]
        voxels.append(np.ravel_multi_index(place, subdomain.shape))
    return np.concatenate(voxels)


def check_same_image(checkpoint: Checkpoint, folder: str, subdomain: Subdomain, pores: int) -> None:
    """Refuse a state of an image with another shape or another number of pores."""
    table = _read_table(checkpoint)
    shape, stored = tuple(map(int, table[:, 5:].max(axis=0))), int(table[:, 1].sum())
    if shape != subdomain.shape:
        theirs, here = (list(reversed(one)) for one in (shape, subdomain.shape))
        raise InputError(
            f"initial.restart: {folder} is of an image of {theirs} voxels (x, y, z), this case's "
            f"(image) has {here}; both must be the same"
        )
    if stored != pores:
        raise InputError(
            f"initial.restart: {folder} is of an image with {stored} pore voxels, this case's "
            f"(image) has {pores}; both must be the same"
        )


def read_state(checkpoint: Checkpoint, folder: str, flow: PoreFlow) -> None:
    """Set this rank's populations to those of a state; does not communicate."""
    voxels = site_voxels(flow.subdomain, flow.storage.order)
    directions = flow.subdomain.velocity_set.directions
    _check_populations(checkpoint, directions)
    by_voxel = np.argsort(voxels)
    voxels, is_set = voxels[by_voxel], np.zeros(len(voxels), bool)
    for start, count, *corners in _read_table(checkpoint).tolist():
        if not Box(tuple(corners[:3]), tuple(corners[3:])).intersect(flow.subdomain.box).size:
            continue
        for low in range(start, start + count, _SITES_AT_ONCE):
            size = min(_SITES_AT_ONCE, start + count - low)
            stored = checkpoint.read(_VOXEL, (low,), (size,))
            place = np.searchsorted(voxels, stored).clip(max=len(voxels) - 1)
            here = np.flatnonzero(voxels[place] == stored)
            numbers = by_voxel[place[here]]
            is_set[numbers] = True
            for direction in range(directions if len(here) else 0):
                values = checkpoint.read(_population(direction, directions), (low,), (size,))
                flow.set_populations(numbers, direction, values[here])
    if not is_set.all():
        raise InputError(
            f"initial.restart: {folder} lacks {np.count_nonzero(~is_set)} pore voxels of this "
            "case's image; both must be the same"
        )


def _read_table(checkpoint: Checkpoint) -> np.ndarray:
    """Return which sites of the files belong to which box: first site, sites, corners."""
    checkpoint.check_array(_BOXES, "i", 2)
    (total,), table = checkpoint.check_array(_VOXEL, "i", 1), checkpoint.read(_BOXES)
    if table.shape[1] != 8 or not len(table) or (table < 0).any() or (table > 1 << 62).any():
        raise InputError(f"initial.restart: {checkpoint.path}: {_BOXES} is no table of boxes")
    if (table[:, :2].sum(axis=1) > total).any():
        raise InputError(f"initial.restart: {checkpoint.path}: {_BOXES} has more sites than arrays")
    return table


def _check_populations(checkpoint: Checkpoint, directions: int) -> None:
    sites = checkpoint.check_array(_VOXEL, "i", 1)
    for direction in range(directions):
        name = _population(direction, directions)
        if checkpoint.check_array(name, "f", 1) != sites:
            raise InputError(
                f"initial.restart: {checkpoint.path}: {name} has other sites than {_VOXEL}"
            )


def _population(direction: int, directions: int) -> str:
    return f"population_{direction:0{len(str(directions - 1))}d}"


def read_numbers(checkpoint: Checkpoint, name: str) -> list[float]:
    """Return the values of a small array; none if there is no such array."""
    return checkpoint.read(name).tolist() if name in checkpoint.shapes else []


def axes_table(records: Sequence[AxisRecord]) -> np.ndarray:
    """Return records as a table of numbers, which `read_axes` reads."""
    rows = [(one.axis, one.began, one.residual, one.mach, *one.column) for one in records]
    return np.array(rows, np.float64)


def read_axes(checkpoint: Checkpoint, axes: Sequence[int]) -> list[AxisRecord]:
    """Return the flows along the axes that a run has reached, the last one under way."""
    if len(axes) == 1:
        return [AxisRecord(axes[0], 0, 1.0, 0.0, np.zeros(3))]
    checkpoint.check_array(AXES_TABLE, "f", 2)
    table = checkpoint.read(AXES_TABLE)
    known = [float(axis) for axis in axes[: len(table)]]
    if table.shape[1] != 7 or not len(table) or table[:, 0].tolist() != known:
        raise InputError(f"initial.restart: {checkpoint.path}: {AXES_TABLE} is no table of axes")
    if not (np.isfinite(table).all() and (table[:, 1] >= 0).all()) or (
        table[:, 1].max() > checkpoint.step
    ):
        raise InputError(f"initial.restart: {checkpoint.path}: {AXES_TABLE} is no table of axes")
    return [
        AxisRecord(int(axis), int(began), residual, mach, np.array(column))
        for axis, began, residual, mach, *column in table.tolist()
    ]
