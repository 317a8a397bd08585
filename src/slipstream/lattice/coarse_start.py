"""A coarse start: a flow begins from the steady one through an image of larger voxels.

Another simulation computes the coarse flow, and may begin from a still coarser one. With voxels f
times as large densities differ f times less under the same force.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from slipstream.case import LatticeCase
from slipstream.case.lattice_case import ARRAY, Image
from slipstream.engine.array_types import Array
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.errors import SlipstreamError
from slipstream.lattice.convergence import drive_of
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.pressure_blocks import places_of_sites
from slipstream.lattice.velocity_set import AXES

if TYPE_CHECKING:
    from slipstream.lattice.lattice_simulation import LatticeSimulation

# How much larger voxels become in each coarsening.
_FACTOR = 2
# How much larger they become at most.
_MOST = 4
# Voxels along an edge that must remain.
_LEAST_EDGE = 6
# The least tolerance of coarse flows, whose voxels cause larger errors.
_TOLERANCE = 1e-2


def begin_coarsely(simulation: LatticeSimulation, axis: int) -> str:
    """Begin the flow along an axis from that through larger voxels. Collective.

    If there is no such flow, this one begins at rest, and the text that is returned says why.
    """
    shape = simulation.subdomain.shape
    if simulation.coarsening * _FACTOR > _MOST:
        return ""
    if min(shape) < _FACTOR * _LEAST_EDGE:
        return f"an axis has fewer than {_FACTOR * _LEAST_EDGE} voxels"
    pores = coarse_pores(simulation, _FACTOR)
    coarse = type(simulation)(
        _coarse_case(simulation, axis),
        simulation.comm,
        simulation.device,
        image=pores,
        terms=simulation.terms,
        keeps_fields=False,
        coarsening=simulation.coarsening * _FACTOR,
    )
    try:
        coarse.prepare()
        if coarse.steadiness.is_blocked:
            return "no path leads through its pores"
        while not coarse.finished:
            coarse.end_axis(coarse.take_pair())
    except SlipstreamError as failure:
        # Mostly throats that larger voxels close. What else users could do is no help here.
        return str(failure).partition(";")[0]
    densities = np.zeros(coarse.subdomain.shape, np.float32)
    *_, density = coarse.flow.fields()
    densities[coarse.subdomain.box.slices()] = density - 1
    densities = sum_over_ranks(simulation.comm, densities)
    simulation.steadiness.begin_from(_interpolated(simulation.flow, densities, pores))
    return ""


def _coarse_case(simulation: LatticeSimulation, axis: int) -> LatticeCase:
    case = simulation.case
    force, drop = drive_of(case, simulation.domain)
    in_voxels = dict.fromkeys(("viscosity", "pressure_gradient", "density"))
    drive = {"force": force, "pressure_drop": None if drop is None else drop / _FACTOR}
    image = Image(path=ARRAY, pore=1, walls=case.image.walls, isolated=case.image.isolated)
    tolerance = max(case.convergence.tolerance, _TOLERANCE)
    stored = simulation.storage.choices
    if simulation.storage.has_unit:
        # Half precision may be too short for the tolerance of so small a flow.
        stored = {**stored, "precision": "float32"}
    changes = {
        "image": image,
        "flow": case.flow.model_copy(update={"axis": AXES[axis], **in_voxels, **drive}),
        "convergence": case.convergence.model_copy(update={"tolerance": tolerance}),
        "numerics": case.numerics.model_copy(update=stored),
    }
    return case.model_copy(update=changes)


def _interpolated(flow: PoreFlow, densities: np.ndarray, pores: np.ndarray) -> Array:
    """Return density and momentum of sites, from the densities of larger voxels, by linear means.

    Momentum is zero: near walls it follows density within a few steps, and between some walls
    hardly anything damps an error of it.
    """
    device, places = flow.device, places_of_sites(flow)
    xp, shape = device.array_module, pores.shape
    density, pore = (device.array(along.reshape(-1), np.float32) for along in (densities, pores))
    result = device.zeros((4, flow.sites.stored), np.float32)
    total = device.zeros((flow.sites.stored,), np.float32)
    before = [(xp.asarray(along, np.float32) + np.float32(0.5)) / _FACTOR - 0.5 for along in places]
    low = [xp.floor(along) for along in before]
    for corner in itertools.product((0, 1), repeat=3):
        voxel, weight = xp.zeros(total.shape, np.int64), xp.ones(total.shape, np.float32)
        for up, below, along, size in zip(corner, low, before, shape, strict=True):
            voxel = voxel * size + (xp.asarray(below, np.int64) + up) % size
            weight = weight * (along - below if up else 1 - (along - below))
        # Solid has no density.
        here = weight * pore[voxel]
        total += here
        result[0] += here * density[voxel]
    # In the unit of stored numbers.
    result[0] *= np.float32(_FACTOR / flow.unit) / xp.maximum(total, np.float32(1e-6))
    result[:, flow.sites.count :] = 0
    return result


def coarse_pores(simulation: LatticeSimulation, factor: int) -> np.ndarray:
    """Return the whole image with voxels `factor` times as large, on all ranks. Collective.

    A coarse voxel is pore where at least half of it is.
    """
    subdomain = simulation.subdomain
    sizes = [max(1, n // factor) for n in subdomain.shape]
    edges = [min(factor, n) for n in subdomain.shape]
    counts = subdomain.own[1:-1, 1:-1, 1:-1]
    first = []
    for axis, (start, size, edge) in enumerate(zip(subdomain.box.start, sizes, edges, strict=True)):
        stop = min(start + counts.shape[axis], size * edge)
        places = np.arange(start, max(start, stop)) // edge
        counts = np.take(counts, range(len(places)), axis=axis)
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        first.append(places[begins])
        counts = np.add.reduceat(counts, begins, axis=axis) if len(begins) else counts
    whole = np.zeros(sizes, np.uint16)
    whole[np.ix_(*first)] = counts
    total = sum_over_ranks(simulation.comm, whole)
    return (2 * total >= math.prod(edges)).astype(np.uint8)
