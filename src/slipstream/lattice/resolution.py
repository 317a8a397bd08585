"""How far the voxels of an image put its permeability off, estimated from the flow through it.

A wall that moves into the solid by a distance d changes the permeability by S d, relatively, where
the *sensitivity* S is the dissipation at the walls over the power that drives the flow (the shape
derivative of Stokes flow): 6 / H in a slit of width H. So the error has two parts: where voxels put
the walls, of first order, and the profile between the walls, of which voxels see a few points, of
second order. Flat faces are where their wall is; an edge of a staircase is off by the same distance
along all of it; corners are off to both sides, which cancels in part.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import SEGMENT, VelocitySet

# By how many voxels walls are off at the edges of staircases, and where there are corners; and the
# factors of S^2 and S^4. Chosen on 150 flows (ducts, slits, pipes, lattices of spheres, random
# media, 3 to 28 voxels wide); `tests/support/resolution_errors.py` tries them on others.
_EDGE, _CORNER = 0.2, 0.08
_SECOND, _FOURTH = 0.02, 0.016
# Sites that are added up at a time.
_AT_ONCE = 1 << 20


def resolution_error(
    flow: PoreFlow, permeability: float, velocity: float, sample_fraction: float, comm: Comm
) -> float:
    """Estimate the relative error of a permeability, at most 1, from its Stokes flow. Collective.

    Permeability and superficial velocity are along the axis of the flow, in voxels and steps.
    """
    sites, xp = flow.sites, flow.device.array_module
    weights = xp.asarray(_wall_weights(flow.subdomain.velocity_set))
    sums = np.zeros(2)
    for low in range(0, sites.count, _AT_ONCE):
        high = min(low + _AT_ONCE, sites.count)
        values = flow.site_values(low // SEGMENT, -(-high // SEGMENT))[:3, : high - low]
        squares = (values.astype(np.float64) ** 2).sum(axis=0)
        walls = weights[:, flow.walls[low:high]]
        sums += flow.device.to_host((walls * squares).sum(axis=1))
    power = np.prod(flow.subdomain.shape) * sample_fraction * velocity**2 / permeability
    sensitivity, moved = sum_over_ranks(comm, sums) / power
    square = sensitivity**2
    return float(min(1.0, moved + (_SECOND + _FOURTH * square) * square))


@functools.cache
def _wall_weights(velocity_set: VelocitySet) -> np.ndarray:
    """Return by what a site's squared velocity adds to S, and to S d, for each set of its walls.

    At a wall half a voxel away the velocity falls by twice its value over a voxel; between two
    walls a voxel apart, as a parabola, by four times. Sets of walls are those of `PoreFlow.walls`.
    """
    numbers = np.arange(1 << velocity_set.links, dtype=np.uint32)
    # A population that comes from a solid neighbour bounces back.
    solid = {
        tuple(-step for step in along): numbers >> np.uint32(bit) & np.uint32(1) != 0
        for bit, along in enumerate(velocity_set.velocities[1:])
    }
    result = np.zeros((2, len(numbers)), np.float32)
    for axis, side in itertools.product(range(3), (-1, 1)):
        face, back = (tuple(s * (one == axis) for one in range(3)) for s in (side, -side))
        ways_on = np.zeros(len(numbers), np.uint8)
        for other in {0, 1, 2} - {axis}:
            goes_on = np.ones(len(numbers), bool)
            for step in (-1, 1):
                beside = tuple(step * (one == other) for one in range(3))
                behind = tuple(a + b for a, b in zip(face, beside, strict=True))
                goes_on &= ~solid[beside] & solid[behind]
            ways_on += goes_on
        share = np.where(solid[face], 4.0, 0.0) * np.where(solid[back], 4.0, 1.0)
        result += share * [np.ones(len(numbers)), np.choose(ways_on, [_CORNER, _EDGE, 0.0])]
    return result
