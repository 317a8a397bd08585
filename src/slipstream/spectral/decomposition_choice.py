"""How ranks of several nodes divide space where a case leaves it open.

Slabs take one exchange each way, pencils two, of fewer ranks and so with larger blocks. Forecasts
of steps for the shipped machines gave the limits: see "Slabs or pencils by a rule" in decisions.md.
Fields have the same bits either way, so a run that resumes chooses again.
"""

from __future__ import annotations

import numpy as np

from slipstream.case import SpectralCase
from slipstream.exchange import RankPlace
from slipstream.fft.slab_layout import most_over_y, pencil_grid
from slipstream.spectral.kept_modes import kept_modes

# Blocks of slabs, of one field, that a network takes well, by kind of device.
_LARGE = {"gpu": 1 << 20, "cpu": 1 << 15}
# The fewest ranks, and ranks of a node, with which pencils are faster.
_RANKS = {"gpu": 32, "cpu": 64}
_RANKS_OF_NODE = {"gpu": 4, "cpu": 32}


def with_decomposition(case: SpectralCase, place: RankPlace, processor: str) -> SpectralCase:
    """Return a case that states pencils if they are likely to be faster than slabs.

    On GPUs the ranks of a node share planes, so that one of the exchanges stays within the node. On
    CPUs memory is hardly faster than a network, so the pencils are the most even ones.
    """
    (nx, ny, nz), ranks, of_node = case.grid.points_xyz, place.ranks, place.ranks_of_node
    if case.run.decomposition != "auto" or place.is_one_node or ranks > nz:
        return case
    if ranks < _RANKS[processor] or of_node < _RANKS_OF_NODE[processor]:
        return case
    modes = kept_modes(case.grid.points_xyz, case.numerics.dealiasing, case.grid.walls)
    rows = -(-nz // ranks) * -(-modes[1].count // ranks)
    item = 2 * np.dtype(case.numerics.precision).itemsize
    if rows * modes[2].count * item >= _LARGE[processor]:
        return case
    shape = nz, ny, nx
    along, over = ranks // of_node, of_node
    fits = ranks % of_node == 0 and over <= most_over_y(shape, modes)
    if processor == "cpu" or not fits or along > modes[1].count:
        along, over = pencil_grid(shape, modes, ranks) or (ranks, 1)
    if over == 1:
        return case
    stated = {"decomposition": "pencil", "grid": (over, along)}
    return case.model_copy(update={"run": case.run.model_copy(update=stated)})
