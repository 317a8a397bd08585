"""The state of a checkpoint, read on any number of ranks and at any resolution of the same box."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from slipstream.case import SpectralCase
from slipstream.engine.decomposition import Box, split
from slipstream.engine.errors import InputError
from slipstream.engine.fft import PlaneGeometry
from slipstream.files.checkpoint import AVERAGE, BUDGET, FORCE, MOVIE, PARTICLES, TILT, Checkpoint
from slipstream.spectral.kept_modes import kept_modes
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem

# The bytes of planes in memory besides the result: with fewer, planes are read more often.
_MOST_BYTES = 1 << 30
# The number of planes of modes that are read together to sum dropped variance.
_PLANES_AT_A_TIME = 16
# The bytes of a state that are read together.
_PIECE = 256 << 20


def is_other_resolution(shape: Sequence[int], grid: Sequence[int]) -> bool:
    """Return whether a shape has the proportions of a grid, but for axes of one point."""
    if tuple(shape) == tuple(grid) or len(shape) != len(grid) or min(shape) < 1:
        return False
    pairs = [(n, m) for n, m in zip(shape, grid, strict=True) if (n, m) != (1, 1)]
    first, other = pairs[0]
    return all(n * other == m * first for n, m in pairs)


def text_of(name: str, shape: Sequence[int], grid: Sequence[int]) -> str:
    """Return the message about a field with the points of another grid."""
    theirs, mine = (" x ".join(map(str, reversed(one))) for one in (shape, grid))
    text = f"{name} has {theirs} points, and is interpolated to the {mine} of the grid by its modes"
    return text if max(shape) < max(grid) else f"{text}; those beyond the grid's are dropped"


def resampled(
    read: Callable[[int, int], np.ndarray],
    shape: Sequence[int],
    grid: Sequence[int],
    box: Box,
) -> np.ndarray:
    """Return float64 values resampled at a box of a grid; does not communicate.

    ``read(first, last)`` returns all values of planes first to last - 1, of `shape` [z, y, x].
    """
    result = np.zeros(box.shape)
    planes, rows, columns = box.slices()
    height = box.shape[1]
    at_once = max(1, min(height, _MOST_BYTES // (8 * shape[0] * grid[2])))
    depth = max(1, _MOST_BYTES // (32 * math.prod(shape[1:])))
    for first in range(rows.start, rows.start + height if box.size else rows.start, at_once):
        some = slice(first, min(first + at_once, rows.stop))
        lines = np.empty((shape[0], some.stop - some.start, grid[2]))
        for low in range(0, shape[0], depth):
            high = min(low + depth, shape[0])
            part = np.asarray(read(low, high), np.float64)
            part = _along(_along(part, 2, grid[2]), 1, grid[1])
            lines[low:high] = part[:, some]
        place = slice(some.start - rows.start, some.stop - rows.start)
        result[:, place] = _along(lines, 0, grid[0])[planes, :, columns]
    return result


def _along(values: np.ndarray, axis: int, points: int) -> np.ndarray:
    """Return values at another number of points along an axis."""
    stored = values.shape[axis]
    if stored == points:
        return values
    most = (min(stored, points) - 1) // 2
    modes = np.fft.rfft(values, axis=axis).take(range(most + 1), axis=axis)
    found: np.ndarray = np.fft.irfft(modes, points, axis=axis) * (points / stored)
    return found


def read_state(
    checkpoint: Checkpoint,
    earlier: SpectralCase,
    folder: str,
    case: SpectralCase,
    problem: SpectralProblem,
    put: Callable[[int, tuple[slice, ...], np.ndarray], None],
) -> float | None:
    """Read this rank's modes of the state of an earlier run; does not communicate.

    `put` gets the modes of a component piece by piece, with their place in this rank's box; modes
    that the checkpoint lacks are not put. If the grid cannot hold all modes, this rank's share of
    the stored variance is returned.
    """
    if not np.allclose(earlier.grid.lengths_xyz, case.grid.lengths_xyz, rtol=1e-12):
        raise InputError(
            f"initial.restart: {folder} is of a box of {earlier.grid.lengths_xyz}, this case of "
            f"{case.grid.lengths_xyz} (grid.length); both must be the same"
        )
    box, geometry = problem.geometry.spectral_box, problem.geometry
    walls = case.grid.walls
    if earlier.grid.walls != walls:
        raise InputError(
            f"initial.restart: {folder} has grid.walls = {earlier.grid.walls!r}, this case"
            f" {walls!r}; both must be the same"
        )
    kept = kept_modes(earlier.grid.points_xyz, earlier.numerics.dealiasing, walls)
    stored = tuple(m.count for m in kept)
    variance: float | None = None
    for component, name in enumerate(problem.model.unknowns):
        array = f"{name}_hat"
        if array not in checkpoint.arrays:
            continue  # of a field that has been added
        if checkpoint.check_array(array, "c", 3) != stored:
            raise InputError(
                f"initial.restart: {checkpoint.path}: {array} has other modes than its case"
            )
        if any(np.greater(stored, geometry.spectral_shape)):
            variance = (variance or 0.0) + _variance(checkpoint, array, geometry)
        for mine, theirs in _common_modes(geometry.spectral_shape, stored, walls is not None):
            shift = np.subtract(theirs.start, mine.start)
            for part in _pieces(mine.intersect(box), problem.complex_dtype.itemsize):
                offset = tuple(int(n) for n in np.add(part.start, shift))
                put(component, part.slices(box), checkpoint.read(array, offset, part.shape))
    return variance


def _pieces(box: Box, itemsize: int) -> Iterator[Box]:
    """Yield the parts of a box that are read together."""
    if not box.size:
        return
    step = max(1, _PIECE // (itemsize * math.prod(box.shape[1:])))
    for low in range(box.start[0], box.stop[0], step):
        yield box.with_range(0, low, min(low + step, box.stop[0]))


def _common_modes(
    shape: tuple[int, ...], stored: tuple[int, ...], has_walls: bool
) -> list[tuple[Box, Box]]:
    """Return pairs of boxes, in the new and in the stored array, that hold the same modes.

    Along z and y the modes 0..m are at the start and -m..-1 at the end; along x, and between walls,
    only 0..m exist.
    """
    z, y, x = (
        [((0, min(new, old)), 0)]
        if axis == 2 or (axis == 0 and has_walls)
        else [
            ((0, (min(new, old) + 1) // 2), 0),
            ((new - (min(new, old) - 1) // 2, new), old - new),
        ]
        for axis, (new, old) in enumerate(zip(shape, stored, strict=True))
    )
    pairs = []
    for ranges in ((a, b, c) for a in z for b in y for c in x):
        start, stop = (tuple(r[0][end] for r in ranges) for end in (0, 1))
        shifts = [r[1] for r in ranges]
        theirs = [tuple(int(n) for n in np.add(corner, shifts)) for corner in (start, stop)]
        pairs.append((Box(start, stop), Box(*theirs)))
    return pairs


def lacking_fields(
    checkpoint: Checkpoint, fields: Sequence[FieldParts], problem: SpectralProblem
) -> list[FieldParts]:
    """Return the fields of a model that a state lacks; refuse one that has none, or a part."""
    names = [f"{name}_hat" for name in problem.model.unknowns]
    lacking = []
    for field in fields:
        own = names[field.first : field.first + field.size]
        missing = [name for name in own if name not in checkpoint.arrays]
        if missing and len(missing) < len(own):
            checkpoint.check_array(missing[0], "c", 3)
        if missing:
            lacking.append(field)
    if len(lacking) == len(fields):
        checkpoint.check_array(names[0], "c", 3)
    return lacking


def read_tilt(checkpoint: Checkpoint, problem: SpectralProblem, begins: bool) -> float:
    """Return the tilt of a state's frame; refuse it without shear, or if a flow begins in it."""
    if TILT not in checkpoint.arrays:
        return 0.0
    checkpoint.check_array(TILT, "f", 1)
    tilt = float(checkpoint.read(TILT)[0])
    if tilt and not problem.is_sheared:
        raise InputError(
            f"equation.shear: 0, but {checkpoint.path} is of a sheared flow; accepted: another rate"
        )
    if tilt and begins:
        raise InputError(
            f"initial.flow: {checkpoint.path} is of a sheared flow, in whose frame no flow begins;"
            " accepted for fields that it lacks: 0, or scalars.initial"
        )
    return tilt


def superfluous(checkpoint: Checkpoint, problem: SpectralProblem) -> list[str]:
    """Return the names of the fields of a state that the model lacks."""
    arrays = {f"{name}_hat" for name in problem.model.unknowns}
    apart = AVERAGE, MOVIE, FORCE, PARTICLES, TILT, BUDGET
    names = (name for name in checkpoint.arrays if not name.startswith(apart))
    return [name.removesuffix("_hat") for name in names if name not in arrays]


def _variance(checkpoint: Checkpoint, array: str, geometry: PlaneGeometry) -> float:
    """Return this rank's share of the variance of a stored array."""
    shape, total = checkpoint.shapes[array], 0.0
    low, high = split(shape[0], geometry.ranks)[geometry.rank]
    for first in range(low, high, _PLANES_AT_A_TIME):
        planes = min(_PLANES_AT_A_TIME, high - first)
        modes = checkpoint.read(array, (first, 0, 0), (planes, *shape[1:]))
        if first == 0:
            modes[0, 0, 0] = 0  # the mean
        by_mode = np.square(np.abs(modes), dtype=float).sum(axis=1)
        if geometry.modes[0].walls:  # modes of kz > 0 stand for those of -kz too
            by_mode[int(first == 0) :] *= 2
        squares = by_mode.sum(axis=0)
        total += 2 * float(squares.sum()) - float(squares[0])
    return total
