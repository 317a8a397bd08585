"""The results of a lattice run, and its speed compared with the bound set by memory bandwidth."""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import sum_over_ranks
from slipstream.device import quick_bandwidth
from slipstream.lattice.convergence import UNKNOWN, distance_text
from slipstream.lattice.darcy import DARCY, Means
from slipstream.lattice.pore_flow import PoreFlow

# Seconds; the speed of shorter runs says little, and measuring the bound would take longer.
_WORTH_MEASURING = 5.0
# Bytes of each of the two arrays of the measured copy: beyond all caches.
_COPY, _LEAST_COPY = 1 << 28, 1 << 26


def flow_results(
    means: Means, voxel_size: float, residual: float, is_steady: bool
) -> dict[str, tuple[str, str]]:
    """Return the permeability and how accurate it is."""
    text = distance_text(residual)
    remarks = ["relative, estimated"] if text != UNKNOWN else []
    remarks += [] if is_steady else ["not converged"]
    return {
        "permeability": permeability_text(means.permeability, voxel_size),
        "distance from steady": (text, "; ".join(remarks)),
        "Mach number": (f"{means.mach:.2g}", "largest"),
    }


def permeability_text(permeability: float, voxel_size: float) -> tuple[str, str]:
    """Return a permeability, given in squares of voxels, in the usual unit, and a remark."""
    text = f"{permeability:.5g} voxels²"
    if voxel_size == 1:
        return text, "image.voxel_size is 1"
    metres = permeability * voxel_size**2
    return f"{1e3 * metres / DARCY:.5g} mD", f"{metres:.5g} m², {text}"


def speed_results(
    flow: PoreFlow, comm: Comm, sites: int, steps: int, seconds: float, devices: int
) -> dict[str, tuple[str, str]]:
    """Return how many sites were updated per second. Collective.

    `seconds` is this rank's time; `sites` and `devices` are those of all ranks.
    """
    ranks = 1 if comm is None else comm.size
    seconds = seconds if comm is None else max(comm.allgather(seconds))
    if not steps or seconds <= 0:
        return {}
    rate = sites * steps / seconds
    each = f"{rate / devices / 1e6:.4g} million/s on each of {devices} devices"
    rows = {
        "site updates": (f"{rate / 1e6:.4g} million/s", each if devices > 1 else "on one device")
    }
    room = flow.device.memory_free() // (4 * ranks)
    room = room if comm is None else min(comm.allgather(room))
    if seconds < _WORTH_MEASURING or room < _LEAST_COPY:
        return rows
    # All ranks measure at the same time, as those that share a device share its bandwidth.
    mine = quick_bandwidth(flow.device, min(room, _COPY))
    bandwidth = float(sum_over_ranks(comm, np.array([mine]))[0])
    moved = sum(flow.storage.bytes_per_update(flow.links.bytes_per_site)) / 2
    rows["memory bandwidth"] = (
        f"{100 * moved * rate / bandwidth:.0f} % of a copy",
        f"{moved:.0f} bytes an update; a copy moves {bandwidth / devices / 1e9:.4g} GB/s",
    )
    return rows
