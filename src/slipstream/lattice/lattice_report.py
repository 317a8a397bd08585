"""The facts of a lattice run: its problem, its results, and its speed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.case import LatticeCase
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.device.array_kernels import quick_bandwidth
from slipstream.engine.error_terms import KeyName
from slipstream.engine.fields import MANY_NARROW, NARROW, Fact
from slipstream.lattice.acceleration import PERIOD, vectors_needed
from slipstream.lattice.convergence import DARCY, drive_of
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.fluid import fluid_of
from slipstream.lattice.lattice_checkpoint import AxisRecord
from slipstream.lattice.percolation import Connectivity
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import AXES, D3Q19, ENCODINGS, PROPAGATIONS, Storage

UNKNOWN = "unknown"
# The estimated error by the size of voxels from which a warning says so: most are smaller than half
# of the estimate.
_UNRESOLVED = 0.5
# Seconds; the speed of shorter runs says little, and measuring the bound would take longer.
_WORTH_MEASURING = 5.0
# Bytes of each of the two arrays of the measured copy: beyond all caches.
_COPY = 1 << 28
_LEAST_COPY = 1 << 26
_PRECISION = KeyName("numerics", "precision")
_TOLERANCE = KeyName("convergence", "tolerance")


@dataclass(frozen=True)
class RankLoad:
    """A rank's number of sites and of ranks to swap populations with; its device's identity."""

    sites: int
    neighbours: int
    device: str


def problem_facts(case: LatticeCase, domain: Domain, pores: Connectivity) -> dict[str, Fact]:
    """Return the facts of the problem and of the pores."""
    fluid, (force, _) = fluid_of(case), drive_of(case, domain)
    return {
        "equation": Fact("Navier-Stokes" if case.flow.inertia else "Stokes"),
        "image": Fact(domain.shape[::-1]),
        "pore": Fact(domain.pore_text(pores.porosity)),
        "porosity": Fact(pores.porosity, open=pores.open_porosity),
        "pores": Fact(pores.pores, "voxels", isolated=pores.pores - pores.kept),
        "fluid": Fact(fluid.relaxation_time, viscosity=fluid.viscosity, force=force),
        "permeability": Fact("superficial velocity"),
        "precision": Fact(case.numerics.precision),
    }


def steady_fact(case: LatticeCase, shape: Sequence[int], sites: int, storage: Storage) -> Fact:
    """Return how the steady flow is reached, and the memory for it where a rank has most sites."""
    vectors = case.convergence.vectors if case.ends_early else 0
    need = vectors_needed(sites, vectors, storage, shape)
    return Fact(vectors, bytes=need, period=PERIOD)


def pore_memory_fact(case: LatticeCase, shape: Sequence[int], sites: int, storage: Storage) -> Fact:
    """Return the bytes a pore of populations, links and vectors, where a rank has most sites."""
    arrays = PROPAGATIONS[storage.propagation].arrays
    populations = D3Q19.directions * arrays * storage.dtype.itemsize
    links = ENCODINGS[storage.encoding].bytes_per_site(D3Q19)
    vectors = steady_fact(case, shape, sites, storage).get("bytes") / max(1, sites)
    total = populations + links + vectors
    return Fact(total, populations=populations, links=links, vectors=vectors)


def narrow_fact(subdomain: Subdomain) -> Fact:
    """Return the share of pores that are too narrow for a profile of velocity."""
    doubtful = bool(narrow_doubt(subdomain))
    return Fact(subdomain.narrow, voxels=NARROW, doubtful=doubtful)


def ranks_fact(loads: Sequence[RankLoad]) -> Fact:
    """Return how many ranks there are, how evenly they share the work, and most on one device."""
    sites = [load.sites for load in loads]
    return Fact(
        len(loads),
        imbalance=max(sites) * len(sites) / sum(sites),
        neighbours=max(load.neighbours for load in loads),
        to_a_device=max(Counter(load.device for load in loads).values()),
    )


def permeability_fact(permeability: float, voxel_size: float) -> Fact:
    """Return a permeability given in squares of voxels, in m² and mD too if their size is known."""
    if voxel_size == 1:
        return Fact(permeability, "voxels²")
    metres = permeability * voxel_size**2
    return Fact(1e3 * metres / DARCY, "mD", square_metres=metres, square_voxels=permeability)


def flow_findings(
    records: Sequence[AxisRecord], tensor: np.ndarray | None, voxel_size: float, is_steady: bool
) -> dict[str, Fact]:
    """Return the permeability and its accuracy.

    With a `tensor`, whose rows and columns are x, y, z, it is the mean of the diagonal.
    """
    last, rows = records[-1], {}
    permeability = float(last.column[last.axis])
    if tensor is not None:
        permeability = float(np.trace(tensor)) / 3
        unit = "voxels²" if voxel_size == 1 else "mD"
        scale = 1.0 if voxel_size == 1 else 1e3 * voxel_size**2 / DARCY
        for name, row in zip("xyz", tensor * scale, strict=True):
            rows[f"tensor, {name}"] = Fact(row.tolist(), unit)
    return {
        "permeability": permeability_fact(permeability, voxel_size),
        **rows,
        "distance from steady": Fact(
            max(record.residual for record in records), is_steady=is_steady
        ),
        "Mach number": Fact(max(record.mach for record in records)),
    }


def speed_findings(
    flow: PoreFlow, comm: Comm, sites: int, steps: int, seconds: float, devices: int
) -> dict[str, Fact]:
    """Return the number of sites updated per second. Collective.

    `seconds` is this rank's time; `sites` and `devices` are those of all ranks.
    """
    ranks = 1 if comm is None else comm.size
    seconds = seconds if comm is None else max(comm.allgather(seconds))
    if not steps or seconds <= 0:
        return {}
    rate = sites * steps / seconds
    rows = {"site updates": Fact(rate, "1/s", devices=devices)}
    room = flow.device.memory_free() // (4 * ranks)
    room = room if comm is None else min(comm.allgather(room))
    if seconds < _WORTH_MEASURING or room < _LEAST_COPY:
        return rows
    # A run that had enough memory must not need much more at its end.
    held = flow.sites.count * flow.subdomain.velocity_set.directions * flow.storage.dtype.itemsize
    held = held if comm is None else max(comm.allgather(held))
    # All ranks measure at the same time: ranks on one device share its bandwidth.
    mine = quick_bandwidth(flow.device, min(room, _COPY, max(_LEAST_COPY, held // 4)))
    bandwidth = float(sum_over_ranks(comm, np.array([mine]))[0])
    moved = sum(flow.storage.bytes_per_update(flow.links.bytes_per_site)) / 2
    rows["memory bandwidth"] = Fact(moved * rate / bandwidth, bytes=moved, copy=bandwidth / devices)
    return rows


def unmatched_text(subdomain: Subdomain) -> str:
    """Return at how many voxels opposite faces do not match, and what helps; "" if all do."""
    unmatched = {
        name: count for name, count in zip(AXES, subdomain.unmatched, strict=True) if count
    }
    if not unmatched:
        return ""
    sizes = dict(zip(AXES, subdomain.shape, strict=True))
    shares = [
        f"{name}: {count:,} of {math.prod(subdomain.shape) // sizes[name]:,}"
        for name, count in sorted(unmatched.items())
    ]
    return (
        f"pore faces solid across the periodic faces ({', '.join(shares)} voxels), where the flow "
        f"is blocked; mirror along {' and '.join(sorted(unmatched))} makes them match, in "
        f"{2 ** len(unmatched)} times the voxels"
    )


def narrow_doubt(subdomain: Subdomain) -> str:
    """Return a warning if many pores are too narrow; "" if few are."""
    if subdomain.narrow <= MANY_NARROW:
        return ""
    return (
        f"{subdomain.narrow:.0%} of the pore voxels are in pores of at most {NARROW} voxels, in"
        " which the flow is not resolved: a slit of 1 voxel conducts 50 % too much, one of 2"
        " voxels 12.5 %; square ducts of 1, 2 and 3 voxels are off by -11, +11 and +7 %; use a"
        " finer image"
    )


def picture_doubt(is_flat: bool, axis: str) -> str:
    """Return a warning about flow across a picture; "" for flow in its plane, or in a volume."""
    if not is_flat or axis != "z":
        return ""
    return (
        "the image is a single slice, and the fluid flows across it, along z, as if every pore were"
        " a straight channel; use axis x or y for flow within the slice"
    )


def no_coarse_start_text(problem: str, axis: str) -> str:
    """Return that a flow along an axis begins at rest, and why."""
    return (
        f"the flow along {axis} begins at rest: through voxels twice as large there is none"
        f" ({problem})"
    )


def resolution_doubt(error: float, axis: str) -> str:
    """Return a warning if voxels may put the permeability far off; "" if they do not."""
    if not error > _UNRESOLVED:
        return ""
    return (
        f"the permeability along {axis} may be off by {error:.0%}, as its pores are few voxels"
        " wide; use a finer image"
    )


def mirrored_tensor_text(mirrored: Sequence[str]) -> str:
    """Return the warning that mirrored axes make a tensor symmetric."""
    return (
        f"mirror along {' and '.join(mirrored)} makes the medium symmetric: components of the"
        " tensor between such an axis and another one are 0 whatever the sample has there, and the"
        " diagonal belongs to the mirrored medium"
    )


def distance_text(residual: float) -> str:
    """Return the estimated distance from the steady flow as text; 1 means that it is unknown."""
    return UNKNOWN if residual == 1 else f"{residual:.2g}"


def half_precision_text(residual: float, tolerance: float) -> list[KeyName | str]:
    """Return the parts of the message that half precision is too short for a tolerance."""
    return [
        _PRECISION,
        f": 'float16' leaves the permeability an estimated {residual:.2g} from steady, above ",
        _TOLERANCE,
        f" = {tolerance:g}; accepted: float32, mixed, float64, or a tolerance of at"
        f" least {1.2 * residual:.2g}",
    ]


def no_room_to_measure_text() -> list[KeyName | str]:
    """Return the parts of the message that no memory is left to measure half precision's error."""
    return [
        _PRECISION,
        ": memory lacks for the vectors that measure the error of 'float16'; accepted: float32,"
        " mixed, float64, or a smaller image",
    ]


def unmeasured_text() -> list[KeyName | str]:
    """Return the parts of the warning that nothing measures the error of half precision."""
    return [
        _PRECISION,
        ": 'float16' keeps three digits of populations, and with ",
        _TOLERANCE,
        " = 0 nothing measures what that changes",
    ]


def round_off_text(residual: float, tolerance: float, precision: str) -> str:
    """Return that a tolerance cannot be reached, and what helps."""
    helps = "a larger tolerance helps"
    if precision != "float64":
        helps = "precision float64, or a larger tolerance, helps"
    return (
        f"round-off leaves the permeability {residual:.2g} from steady, which is the floor of this"
        f" flow in {precision}, above the tolerance {tolerance:g}; {helps}"
    )
