"""The symmetry of the modes of real fields: u(-k) is the conjugate of u(k)."""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Comm
from slipstream.spectral.time_step import SpectralStep


def make_real(flow: SpectralStep, comm: Comm) -> None:
    """Make modes of kx = 0 that belong together conjugates of each other. Collective.

    Of the plane kx = 0 both halves are stored, and only what they have in common reaches physical
    space. Rounding makes them differ, and a linear part that makes modes grow lets the difference
    grow with no product to answer it.
    """
    state = flow.modes_of(flow.state)
    flow.device.synchronize()
    mine = flow.device.to_host(state[..., :1])[..., 0]
    parts = [mine] if comm is None else comm.allgather(mine)
    plane = np.concatenate(parts, axis=2)
    opposite = [(-np.arange(n)) % n for n in plane.shape[1:]]
    plane = (plane + plane[:, opposite[0][:, None], opposite[1]].conj()) / 2
    start = flow.problem.geometry.spectral_box.start[1]
    if mine.size:
        state[..., 0] = flow.device.array(plane[:, :, start : start + mine.shape[2]])
