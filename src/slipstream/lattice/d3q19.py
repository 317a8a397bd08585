"""The D3Q19 lattice: velocities in the order that the kernels have them, and their weights."""

from __future__ import annotations

import numpy as np

# Of arrays, in their order.
AXES = ("z", "y", "x")

# Along z, y and x, in voxels per step. Direction 0 rests; 2k - 1 and 2k are opposite.
VELOCITIES = np.array(
    [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, -1),
        (0, 1, 0),
        (0, -1, 0),
        (1, 0, 0),
        (-1, 0, 0),
        (0, 1, 1),
        (0, -1, -1),
        (0, -1, 1),
        (0, 1, -1),
        (1, 0, 1),
        (-1, 0, -1),
        (-1, 0, 1),
        (1, 0, -1),
        (1, 1, 0),
        (-1, -1, 0),
        (-1, 1, 0),
        (1, -1, 0),
    ]
)
DIRECTIONS = len(VELOCITIES)
WEIGHTS = np.array([1 / 3] + 6 * [1 / 18] + 12 * [1 / 36])
# Square of the speed of sound, in voxels per step.
SOUND_SPEED_SQUARED = 1 / 3


def opposite(direction: int) -> int:
    """Return the number of the opposite direction."""
    return ((direction - 1) ^ 1) + 1 if direction else 0
