"""The D3Q19 lattice: rest, six velocities along axes, and twelve along face diagonals."""

from __future__ import annotations

from slipstream.lattice.velocity_set import VelocitySet

# Along z, y and x, in voxels per step.
_VELOCITIES = [
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

D3Q19 = VelocitySet(
    "D3Q19", _VELOCITIES, weights=(1 / 3, 1 / 18, 1 / 36), sound_speed_squared=1 / 3
)
