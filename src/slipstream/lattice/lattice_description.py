"""The description of a lattice run, printed before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.case import LatticeCase
from slipstream.lattice.flow_domain import Domain, image_text
from slipstream.lattice.percolation import Connectivity
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.lattice.relaxation_rates import fluid_of


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
    drive = f"force {case.flow.force:g}" if drop is None else f"pressure drop {drop:g}"
    return {
        "equation": f"{equation} flow, lattice Boltzmann, D3Q19, two relaxation times",
        "image": image_text(case.image, domain),
        "porosity": f"{found.porosity:.4f}; open along {axis}: {found.open_porosity:.4f}",
        "pores": f"{found.pores:,} voxels, {isolated:,} of them isolated and {fate}",
        "fluid": f"relaxation time {fluid.relaxation_time:g}, viscosity {fluid.viscosity:.4g}, "
        f"{drive} along {axis} (lattice units)",
        "permeability": "viscosity times superficial velocity (mean over all voxels) over the "
        "force per volume that drives it",
        "precision": case.numerics.precision,
    }


def storage_text(storage: Storage, tried: int) -> tuple[str, str]:
    """Return how populations are stored, and how that was chosen."""
    names = ", ".join(getattr(storage, name) for name in TUNED)
    return names, f"fastest of {tried}, measured" if tried else "as asked for"


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
