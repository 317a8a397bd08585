"""Inlets: where populations cross the faces of the domain, which a pressure drop acts upon.

A population that crosses the first face of an axis finds the pressure higher by the drop than where
it comes from, at the other end of the periodic axis; one that crosses the last face finds it lower.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slipstream.lattice.d3q19 import DIRECTIONS, SOUND_SPEED_SQUARED, VELOCITIES, WEIGHTS
from slipstream.lattice.domain_decomposition import Portion


def inlets(portion: Portion, axes: Iterable[int] = range(3)) -> tuple[np.ndarray, np.ndarray]:
    """Return which populations of a portion come in through faces, and what a pressure drop adds.

    Parameters
    ----------
    portion : Portion
        A rank's portion of the image.
    axes : iterable of int
        Axes along which the pressure falls. Tables of faces may take more than a small flow does.

    Returns
    -------
    numpy.ndarray
        Shape (count, 4): plane, row and column within the box, and direction.
    numpy.ndarray
        Shape (count, 3): change of the population for a pressure drop of one along z, y and x.
    """
    ends, changes = [np.empty((0, 4), np.int64)], [np.empty((0, 3))]
    for axis in axes:
        for direction in range(1, DIRECTIONS):
            step = VELOCITIES[direction][axis]
            plane = 0 if step > 0 else portion.shape[axis] - 1
            if not step or not portion.box.start[axis] <= plane < portion.box.stop[axis]:
                continue
            sites = _pores_of_plane(portion, axis, plane - portion.box.start[axis])
            sites = sites[_is_open(portion, sites, direction)]
            ends.append(np.column_stack([sites, np.full(len(sites), direction)]))
            change = np.zeros((len(sites), 3))
            change[:, axis] = step * WEIGHTS[direction] / SOUND_SPEED_SQUARED
            changes.append(change)
    # Diagonal ones may come in through two faces.
    found, sizes = np.concatenate(ends), (*portion.box.shape, DIRECTIONS)
    names, place = np.unique(np.ravel_multi_index(tuple(found.T), sizes), return_inverse=True)
    total = np.zeros((len(names), 3))
    np.add.at(total, place, np.concatenate(changes))
    return np.column_stack(np.unravel_index(names, sizes)), total


def _pores_of_plane(portion: Portion, axis: int, plane: int) -> np.ndarray:
    where = [slice(1, -1)] * 3
    where[axis] = slice(plane + 1, plane + 2)
    found = np.stack(np.nonzero(portion.own[tuple(where)]), axis=1)
    found[:, axis] += plane
    return found


def _is_open(portion: Portion, sites: np.ndarray, direction: int) -> np.ndarray:
    """Return whether populations come to sites along a direction, from here or another rank."""
    from_here = portion.own[tuple((sites - VELOCITIES[direction] + 1).T)] != 0
    crossing = [ends[ends[:, 3] == direction, :3] for ends in portion.neighbours.values()]
    theirs = np.concatenate([np.empty((0, 3), np.int64), *crossing])
    if not len(theirs) or not len(sites):
        return from_here
    names, known = (
        np.ravel_multi_index(tuple(one.T), portion.box.shape) for one in (sites, theirs)
    )
    return from_here | np.isin(names, known)
