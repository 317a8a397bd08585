"""Estimates for flow through an image, before it is computed, from flow through a coarser one.

With voxels f times as large and a viscosity f times smaller, momentum crosses pores, and pressure
the sample, in f times fewer steps; velocities are f times smaller. Such a *pilot* costs f^4 times
less, so it is over within seconds. Where flows are extrapolated, numbers of steps differ less.
"""

from __future__ import annotations

import math
import time as clock
import warnings
from typing import TYPE_CHECKING

from slipstream.engine.collective import largest
from slipstream.engine.errors import SlipstreamError
from slipstream.engine.fields import MACH_WARNING, Fact, PilotFindings
from slipstream.lattice.coarse_start import coarse_pores
from slipstream.lattice.convergence import drive_of
from slipstream.lattice.fluid import fluid_of
from slipstream.lattice.lattice_report import narrow_doubt, narrow_fact
from slipstream.lattice.permeability import DEFAULTS, FlowProgress, permeability
from slipstream.lattice.permeability_result import NO_PATH, Permeability

if TYPE_CHECKING:
    from slipstream.lattice.lattice_simulation import LatticeSimulation

# Voxels of a pilot at most.
_MOST_VOXELS = 1 << 19
# How much larger they are: pores must not be lost.
_FACTORS = (2, 4)


def pilot_findings(
    simulation: LatticeSimulation, first_step: float, target: float, seconds: float
) -> PilotFindings:
    """Estimate a run from its image and a pilot that takes at most some seconds. Collective."""
    findings = PilotFindings()
    findings.facts["narrow pores"] = narrow_fact(simulation.subdomain)
    doubt = narrow_doubt(simulation.subdomain)
    findings.warnings += [doubt] if doubt else []
    pilot = _finest_pilot(simulation, seconds)
    if pilot is None:
        return findings
    factor, result = pilot
    case = simulation.case
    axes = {"all": 3}.get(case.flow.axis, 1)
    steps = result.steps if result.converged else None
    if steps is not None and case.ends_early:
        # Extrapolated flows take hardly more steps in a finer image.
        growth = math.sqrt(factor) if case.convergence.vectors else factor
        expected = axes * growth * steps
        findings.steps = min(math.ceil(expected / 2) * 2, case.time.end)
        findings.source = f"steady in a pilot run of voxels {factor} times as large"
        if expected > case.time.end:
            findings.warnings.append(
                f"the flow will be steady after about {expected:.0f} steps, after time.end ="
                f" {case.time.end:g}"
            )
    mach = factor * result.mach
    findings.facts["Mach number"] = Fact(mach)
    if mach > MACH_WARNING and case.flow.inertia:
        findings.warnings.append(
            f"the Mach number will reach about {mach:.2g}: beyond {MACH_WARNING} compressibility"
            " makes the result inaccurate; a smaller flow.force or flow.pressure_drop helps"
        )
    return findings


def _finest_pilot(simulation: LatticeSimulation, seconds: float) -> tuple[int, Permeability] | None:
    """Return the finest pilot that has become steady in time, or else the coarsest. Collective."""
    shape, began = simulation.subdomain.shape, clock.monotonic()
    finest: tuple[int, Permeability] | None = None
    for factor in sorted(_FACTORS, reverse=True):
        if math.prod(max(1, n // factor) for n in shape) > _MOST_VOXELS:
            continue
        left = seconds - largest(simulation.comm, clock.monotonic() - began)
        result = run_pilot(simulation, factor, max(left, 0.0))
        if result is not None and (finest is None or result.converged):
            finest = factor, result
    return finest


def run_pilot(simulation: LatticeSimulation, factor: int, seconds: float) -> Permeability | None:
    """Return the flow through a coarser image, as far as it came, if there is any. Collective."""
    case = simulation.case
    fluid, axis = fluid_of(case), "z" if case.flow.axis == "all" else case.flow.axis
    force, drop = drive_of(case, simulation.domain)
    began = clock.monotonic()

    def is_late(progress: FlowProgress) -> bool:
        return clock.monotonic() - began > seconds

    coarse = coarse_pores(simulation, factor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = permeability(
                coarse,
                axis=axis,
                pore=1,
                walls="".join(case.image.walls),
                relaxation_time=0.5 + (fluid.relaxation_time - 0.5) / factor,
                magic=fluid.magic,
                inertia=case.flow.inertia,
                # The gradient of a pressure is a force; over f times fewer voxels it falls less.
                force=force,
                pressure_drop=None if drop is None else drop / factor,
                tolerance=case.convergence.tolerance or DEFAULTS["tolerance"],
                max_steps=max(2, int(case.time.end / factor) // 2 * 2),
                interval=max(2, case.convergence.interval // factor // 2 * 2),
                vectors=case.convergence.vectors,
                callback=is_late,
                storage=simulation.storage,
                keep_fields=False,
                device=simulation.device,
                comm=simulation.comm,
            )
        except SlipstreamError:  # as of a flow that is too fast for a coarse image
            return None
    # Larger voxels may close throats.
    return None if result.flow.ended == NO_PATH else result
