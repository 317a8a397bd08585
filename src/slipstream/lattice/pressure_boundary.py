"""Periodic boundaries with a pressure drop: the populations that cross faces, and their change.

A population that enters through the first face of an axis comes from the other end of the periodic
axis, where the pressure is lower by the drop; one that enters through the last face, from a higher.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slipstream.lattice.domain_decomposition import Subdomain


def inlets(subdomain: Subdomain, axes: Iterable[int] = range(3)) -> tuple[np.ndarray, np.ndarray]:
    """Return the populations that enter a subdomain through faces, and what a pressure drop adds.

    `axes` restricts the faces, as tables of all of them may take more memory than a small flow.
    Populations are rows of plane, row and column within the box, and direction; the changes, for a
    pressure drop of one along z, y and x, have shape (count, 3).
    """
    lattice = subdomain.velocity_set
    ends, changes = [np.empty((0, 4), np.int64)], [np.empty((0, 3))]
    for axis in axes:
        for direction in range(1, lattice.directions):
            step = lattice.velocities[direction][axis]
            plane = 0 if step > 0 else subdomain.shape[axis] - 1
            if not step or not subdomain.box.start[axis] <= plane < subdomain.box.stop[axis]:
                continue
            sites = _pores_of_plane(subdomain, axis, plane - subdomain.box.start[axis])
            sites = sites[_is_open(subdomain, sites, direction)]
            ends.append(np.column_stack([sites, np.full(len(sites), direction)]))
            change = np.zeros((len(sites), 3))
            # Populations at rest are proportional to the density, and so to the pressure.
            change[:, axis] = step * lattice.weights[direction] / lattice.sound_speed_squared
            changes.append(change)
    # Diagonal populations may enter through two faces.
    found, sizes = np.concatenate(ends), (*subdomain.box.shape, lattice.directions)
    names, place = np.unique(np.ravel_multi_index(tuple(found.T), sizes), return_inverse=True)
    total = np.zeros((len(names), 3))
    np.add.at(total, place, np.concatenate(changes))
    return np.column_stack(np.unravel_index(names, sizes)), total


def face_pores(subdomain: Subdomain) -> np.ndarray:
    """Return how many of a subdomain's pores lie at the two faces of the domain along each axis."""
    inner, box, counts = subdomain.own[1:-1, 1:-1, 1:-1], subdomain.box, np.zeros(3)
    for axis in range(3 if box.size else 0):
        for plane in (0, subdomain.shape[axis] - 1):
            if box.start[axis] <= plane < box.stop[axis]:
                counts[axis] += np.count_nonzero(inner.take(plane - box.start[axis], axis))
    return counts


def _pores_of_plane(subdomain: Subdomain, axis: int, plane: int) -> np.ndarray:
    where = [slice(1, -1)] * 3
    where[axis] = slice(plane + 1, plane + 2)
    found = np.stack(np.nonzero(subdomain.own[tuple(where)]), axis=1)
    found[:, axis] += plane
    return found


def _is_open(subdomain: Subdomain, sites: np.ndarray, direction: int) -> np.ndarray:
    """Return whether populations arrive at sites along a direction, from this or another rank."""
    velocity = subdomain.velocity_set.velocities[direction]
    from_here: np.ndarray = subdomain.own[tuple((sites - velocity + 1).T)] != 0
    crossing = [ends[ends[:, 3] == direction, :3] for ends in subdomain.neighbours.values()]
    theirs = np.concatenate([np.empty((0, 3), np.int64), *crossing])
    if not len(theirs) or not len(sites):
        return from_here
    names, known = (
        np.ravel_multi_index(tuple(one.T), subdomain.box.shape) for one in (sites, theirs)
    )
    arrives: np.ndarray = from_here | np.isin(names, known)
    return arrives
