"""What a lattice run tells people: what will be run, what came of it, and how fast it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.case import LatticeCase
from slipstream.case.lattice_case import Image
from slipstream.collective import sum_over_ranks
from slipstream.device import quick_bandwidth
from slipstream.lattice.acceleration import PERIOD, vectors_needed
from slipstream.lattice.darcy import DARCY, Means, drive_of
from slipstream.lattice.domain_decomposition import NARROW, Subdomain
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.fluid import fluid_of
from slipstream.lattice.lattice_checkpoint import AxisRecord
from slipstream.lattice.percolation import Connectivity
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import AXES
from slipstream.report.number_text import quantity

UNKNOWN = "unknown"
# The share of pores of at most `NARROW` voxels from which a warning says so.
_MANY_NARROW = 0.2
# Seconds; the speed of shorter runs says little, and measuring the bound would take longer.
_WORTH_MEASURING = 5.0
# Bytes of each of the two arrays of the measured copy: beyond all caches.
_COPY, _LEAST_COPY = 1 << 28, 1 << 26


@dataclass(frozen=True)
class RankLoad:
    """A rank's number of sites and of ranks to swap populations with; its device's identity."""

    sites: int
    neighbours: int
    device: str


def problem_text(case: LatticeCase, domain: Domain, found: Connectivity) -> dict[str, str]:
    """Return what is solved, and in which pores."""
    axis, fluid = case.flow.axis, fluid_of(case)
    isolated = found.pores - found.kept
    fate = "removed" if case.image.isolated == "remove" else "kept"
    equation = "Navier-Stokes" if case.flow.inertia else "Stokes"
    drop = case.flow.pressure_drop
    force, _ = drive_of(case, domain)
    drive = f"pressure drop {drop:g}" if force is None else f"force {force:.4g}"
    return {
        "equation": f"{equation} flow, lattice Boltzmann, D3Q19, two relaxation times",
        "image": image_text(case.image, domain),
        "pore": domain.pore_text(found.porosity),
        "porosity": f"{found.porosity:.4f}; open along {axis}: {found.open_porosity:.4f}",
        "pores": f"{found.pores:,} voxels, {isolated:,} of them isolated and {fate}",
        "fluid": f"relaxation time {fluid.relaxation_time:g}, viscosity {fluid.viscosity:.4g}, "
        f"{drive} along {axis} (lattice units)",
        "permeability": "viscosity times superficial velocity (mean over all voxels) over the "
        "force per volume that drives it",
        "precision": case.numerics.precision,
    }


def steady_text(case: LatticeCase, sites: int, storage: Storage) -> str:
    """Return how the steady flow is reached, and the memory for it where a rank has most sites."""
    vectors = case.convergence.vectors if case.ends_early else 0
    if not vectors:
        return "by time steps alone"
    need = vectors_needed(sites, vectors, storage) / 2**30
    return (
        f"extrapolated every {PERIOD} steps from the last {vectors} changes (Anderson), in"
        f" {need:.3g} GiB more, or from fewer in half of what is free; a restart begins with new"
        " ones"
    )


def storage_text(storage: Storage, tried: int) -> tuple[str, str]:
    """Return how populations are stored, and how that was chosen."""
    names = ", ".join(getattr(storage, name) for name in TUNED)
    return names, f"fastest of {tried}, measured" if tried else "not measured"


def ranks_text(loads: Sequence[RankLoad], rank: int, partition: str) -> str:
    """Return how many ranks there are, and how evenly they share the work."""
    if len(loads) == 1:
        return "1"
    sites = [load.sites for load in loads]
    imbalance = max(sites) * len(sites) / sum(sites)
    neighbours = max(load.neighbours for load in loads)
    sharing = sum(load.device == loads[rank].device for load in loads)
    return (
        f"{len(loads)}, {partition}: most pores {imbalance:.3f} of the mean, at most {neighbours} "
        f"neighbour{'s' * (neighbours != 1)}, {sharing} to a device"
    )


def flow_results(
    records: Sequence[AxisRecord], tensor: np.ndarray | None, voxel_size: float, is_steady: bool
) -> dict[str, tuple[str, str]]:
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
            rows[f"tensor, {name}"] = (" ".join(f"{one:.4g}" for one in row), unit)
    residual = max(record.residual for record in records)
    text = distance_text(residual)
    remarks = ["relative, estimated"] if text != UNKNOWN else []
    remarks += [] if is_steady else ["not converged"]
    return {
        "permeability": permeability_text(permeability, voxel_size),
        **rows,
        "distance from steady": (text, "; ".join(remarks)),
        "Mach number": (f"{max(record.mach for record in records):.2g}", "largest"),
    }


def flow_texts(means: Means, axis: int, tortuosity: float) -> dict[str, tuple[str, str]]:
    """Return the tortuosity of the flow along an axis, and the drag on the walls."""
    force, drive = (one[axis] for one in (means.sums.wall_force, means.sums.driving_force))
    along = f"along {AXES[axis]}"
    return {
        "tortuosity": (f"{tortuosity:.4g}", f"mean speed over mean velocity {along}"),
        "drag on walls": (f"{force:.5g}", f"{along}, {force / drive:.2%} of what drives the flow"),
    }


def si_texts(found: dict[str, float], axis: str) -> dict[str, tuple[str, str]]:
    """Return the results in SI units."""
    texts = {}
    if "darcy_velocity" in found:
        text = f"{found['darcy_velocity']:.5g} m/s"
        texts["Darcy velocity"] = (text, f"superficial, along {axis}")
    if "reynolds" in found:
        remark = "Darcy velocity times √permeability over viscosity"
        texts["Reynolds number"] = (f"{found['reynolds']:.3g}", remark)
    return texts


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
    # A run that had enough memory must not need much more at its end.
    held = flow.sites.count * flow.subdomain.velocity_set.directions * flow.storage.real.itemsize
    held = held if comm is None else max(comm.allgather(held))
    # All ranks measure at the same time, as those that share a device share its bandwidth.
    mine = quick_bandwidth(flow.device, min(room, _COPY, max(_LEAST_COPY, held // 4)))
    bandwidth = float(sum_over_ranks(comm, np.array([mine]))[0])
    moved = sum(flow.storage.bytes_per_update(flow.links.bytes_per_site)) / 2
    rows["memory bandwidth"] = (
        f"{100 * moved * rate / bandwidth:.0f} % of a copy",
        f"{moved:.0f} bytes an update; a copy moves {bandwidth / devices / 1e9:.4g} GB/s",
    )
    return rows


def unmatched_text(subdomain: Subdomain) -> str:
    """Return at how many voxels opposite faces do not match, and what helps; "" if all do."""
    found = {name: count for name, count in zip(AXES, subdomain.unmatched, strict=True) if count}
    if not found:
        return ""
    sizes = dict(zip(AXES, subdomain.shape, strict=True))
    shares = [
        f"{name}: {count:,} of {math.prod(subdomain.shape) // sizes[name]:,}"
        for name, count in sorted(found.items())
    ]
    return (
        f"pore faces solid across the periodic faces ({', '.join(shares)} voxels), where the flow "
        f"is blocked; mirror along {' and '.join(sorted(found))} makes them match, in "
        f"{2 ** len(found)} times the voxels"
    )


def narrow_text(subdomain: Subdomain) -> str:
    """Return which share of the pores is too narrow for a profile of velocity."""
    return f"{subdomain.narrow:.1%} of the pore voxels are in pores of at most {NARROW} voxels"


def narrow_remark(subdomain: Subdomain) -> str:
    """Return what the share of narrow pores counts, and whether it is a reason for doubt."""
    text = f"of the pore voxels are in pores of at most {NARROW} voxels"
    return f"{text}, not resolved" if narrow_doubt(subdomain) else text


def narrow_doubt(subdomain: Subdomain) -> str:
    """Return a warning if many pores are too narrow; "" if few are."""
    if subdomain.narrow <= _MANY_NARROW:
        return ""
    return (
        f"{subdomain.narrow:.0%} of the pore voxels are in pores of at most {NARROW} voxels, in"
        " which the flow is not resolved: the permeability may be wrong by as much; use a finer"
        " image"
    )


def mirrored_tensor_text(mirrored: Sequence[str]) -> str:
    """Return what mirroring does to a permeability tensor."""
    return (
        f"mirror along {' and '.join(mirrored)} makes the medium symmetric: components of the"
        " tensor between such an axis and another one are 0 whatever the sample has there, and the"
        " diagonal is that of the mirrored medium"
    )


def image_text(image: Image, domain: Domain) -> str:
    """Return a description of the image."""
    name = image.path if image.sample is None else f"{image.sample} (synthetic)"
    edge = "" if image.voxel_size == 1 else f" of {quantity(image.voxel_size, 'm')}"
    text = f"{name}: {' x '.join(map(str, reversed(domain.shape)))} voxels (x, y, z){edge}"
    if image.mirror:
        text += f", mirrored along {' and '.join(image.mirror)}"
    if image.buffer:
        text += f", {image.buffer} layers of pore at both ends"
    if image.walls:
        text += f", walls along {' and '.join(image.walls)}"
    return text


def distance_text(residual: float) -> str:
    """Return the estimated distance from the steady flow as text; 1 means that it is unknown."""
    return UNKNOWN if residual == 1 else f"{residual:.2g}"


def round_off_text(residual: float, tolerance: float, precision: str) -> str:
    """Return that a tolerance cannot be reached, and what helps."""
    helps = "a larger tolerance helps"
    if precision != "float64":
        helps = "precision float64, or a larger tolerance, helps"
    return (
        f"round-off leaves the permeability {residual:.2g} from steady, which is the floor of this"
        f" flow in {precision}, above the tolerance {tolerance:g}; {helps}"
    )
