"""Estimates for a case, from the same case on few points: time steps, and the smallest eddies.

Large eddies, which a coarse grid resolves too, set the velocities, and so the time steps and the
energy that small eddies dissipate. A *pilot* is the case on so few points that it takes seconds.
"""

from __future__ import annotations

import math
import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from slipstream.case import SpectralCase, parse_case
from slipstream.engine.collective import largest
from slipstream.engine.errors import RunError, SlipstreamError
from slipstream.engine.fields import UNRESOLVED, Fact, PilotFindings
from slipstream.engine.text import below
from slipstream.spectral.energy_budget import kolmogorov_length

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation

# The most points along an axis, by the number of axes with more than one.
_MOST_POINTS = {0: 1, 1: 512, 2: 96, 3: 32}
# The energy that isotropic turbulence dissipates, in units of u^3 / L (Sreenivasan 1998).
_DISSIPATION = 0.5
_LOOKS = 40


@dataclass
class Pilot:
    """The results of a pilot: its points, the times and sizes of its steps, and energies."""

    points: tuple[int, ...]
    start: float = 0.0
    time: float = 0.0
    step_sizes: list[float] = field(default_factory=list)
    # The same without the last one, which the end of the run cuts short.
    advances: list[float] = field(default_factory=list)
    dissipations: list[float] = field(default_factory=list)
    injections: list[float] = field(default_factory=list)
    # u^3 / L of isotropic turbulence, the largest seen.
    cascade: float = 0.0
    kmax: float = 0.0

    @property
    def text(self) -> str:
        """A description for users."""
        return f"a pilot run of {' x '.join(map(str, self.points))} points"


def pilot_findings(
    simulation: SpectralSimulation, first_step: float, target: float, seconds: float
) -> PilotFindings:
    """Estimate a run from its case and a pilot of at most `seconds`. Collective.

    `target` is the desired kmax_eta.
    """
    pilot = run_pilot(simulation, seconds)
    findings = PilotFindings()
    if pilot is not None and simulation.case.time.step is None:
        findings.steps = expected_steps(simulation, pilot, first_step)
        findings.source = f"by {pilot.text}"
    add_resolution(findings, simulation, pilot, target)
    return findings


def run_pilot(simulation: SpectralSimulation, seconds: float) -> Pilot | None:
    """Run the case on few points for at most `seconds`; None if impossible. Collective."""
    case = simulation.case
    sizes = case.grid.points_xyz
    most = _MOST_POINTS[sum(n > 1 for n in sizes)]
    points = tuple(min(n, most) for n in sizes)
    settings = [
        f"grid.points={list(points)}",
        "output.fields=[]",
        "output.scalars=[]",
        "output.averages=[]",
        "output.movies=[]",
        "particles=[]",
    ]
    if case.time.max_step is not None:
        # So that the bounds of the case's steps apply here too.
        bound = case.time.max_step * max(n / few for n, few in zip(sizes, points, strict=True))
        settings.append(f"time.max_step={bound!r}")
    try:
        small = parse_case(case.to_toml(), settings)
        if not isinstance(small, SpectralCase):
            return None
        made = type(simulation)(small, simulation.comm, simulation.device)
        made.prepare()
        return _advanced(made, Pilot(points), seconds)
    except SlipstreamError:
        # A flow that few points cannot resolve, or that blows up on them, is no estimate.
        return None


def _advanced(small: SpectralSimulation, pilot: Pilot, seconds: float) -> Pilot:
    end, most = small.case.time.end, small.case.time.max_steps or math.inf
    pilot.start = pilot.time = small.time
    pilot.kmax = small.flow.wavenumbers.largest
    began, due, between = clock.monotonic(), small.time, (end - small.time) / _LOOKS
    while end - small.time > 1e-9 * end and len(pilot.step_sizes) < most:
        if small.time >= due:
            due += between
            _look(small, pilot)
        is_late = largest(small.comm, int(clock.monotonic() - began > seconds))
        if is_late:
            break
        step = small.step_size()
        if not 0 < step < math.inf:
            raise RunError("the pilot run has no finite time step")
        pilot.step_sizes.append(step)
        pilot.advances.append(min(step, end - small.time))
        small.advance(pilot.advances[-1])
        pilot.time = small.time
    _look(small, pilot)
    return pilot


def _look(small: SpectralSimulation, pilot: Pilot) -> None:
    """Note the dissipation, the injection, and the dissipation of a cascade."""
    diagnostics, viscosity = small.diagnostics(), small.problem.viscosity
    if not viscosity or "enstrophy" not in diagnostics:
        return
    pilot.dissipations.append(2 * viscosity * diagnostics["enstrophy"])
    pilot.injections.append(diagnostics.get("injection", 0.0))
    if diagnostics["integral_scale"] > 0:
        cascade = diagnostics["rms_velocity"] ** 3 / diagnostics["integral_scale"]
        pilot.cascade = max(pilot.cascade, cascade)


def expected_steps(simulation: SpectralSimulation, pilot: Pilot, first: float) -> float | None:
    """Return the number of steps of the case, from the velocities of its pilot."""
    if not pilot.step_sizes or pilot.time <= pilot.start or not 0 < first < math.inf:
        return None
    case = simulation.case
    bound = case.time.max_step or math.inf
    ratio = first / pilot.step_sizes[0]
    if first >= bound * (1 - 1e-9):
        sizes = zip(pilot.points, case.grid.points_xyz, strict=True)
        ratio = min(few / n for few, n in sizes)
    sizes_here = np.minimum(ratio * np.array(pilot.step_sizes), bound)
    steps = float((np.array(pilot.advances) / sizes_here).sum())
    return steps * (case.time.end - pilot.start) / (pilot.time - pilot.start)


def add_resolution(
    findings: PilotFindings, simulation: SpectralSimulation, pilot: Pilot | None, target: float
) -> None:
    """Add the expected kmax_eta; warn if it is below `target`."""
    viscosity = simulation.problem.viscosity
    # In a plane the smallest scales dissipate enstrophy, whose rate cannot be estimated.
    if not viscosity or 1 in _sizes(simulation):
        return
    dissipation, source = expected_dissipation(simulation, pilot)
    if not dissipation > 0:
        return
    kmax_eta = simulation.flow.wavenumbers.largest * kolmogorov_length(viscosity, dissipation)
    findings.facts["kmax_eta"] = Fact(kmax_eta, dissipation=dissipation, source=source)
    if kmax_eta < target:
        # With n points along an axis the largest kept wavenumber is less than n / 3, or n / 2.
        sizes = [_even(n * target / kmax_eta + 2) if n > 1 else 1 for n in _sizes(simulation)]
        text = str(sizes[0]) if len(set(sizes)) == 1 else str(sizes)
        findings.warnings.append(
            f"kmax_eta will fall to about {below(kmax_eta, target)}, below {target:g}:"
            f" {UNRESOLVED}; grid.points = {text} would, or a larger equation.viscosity"
        )


def expected_dissipation(simulation: SpectralSimulation, pilot: Pilot | None) -> tuple[float, str]:
    """Return the largest expected dissipation of the flow, and its source. Collective."""
    forcing, viscosity = simulation.case.forcing, simulation.problem.viscosity
    if simulation.given_injection is not None:
        return simulation.given_injection, "what forcing.injection puts in"
    now = simulation.diagnostics().get("enstrophy", 0.0) * 2 * (viscosity or 0.0)
    if pilot is None or not pilot.dissipations:
        return now, "as in the initial state"
    if forcing and pilot.time > pilot.start:
        late = pilot.injections[len(pilot.injections) // 2 :]
        return max(now, float(np.mean(late))), f"the power of the forcing in {pilot.text}"
    most = max(now, *pilot.dissipations)
    is_resolved = pilot.kmax * kolmogorov_length(viscosity or 0.0, most) >= 1
    if not is_resolved and min(_sizes(simulation)) > 1 and _DISSIPATION * pilot.cascade > most:
        return _DISSIPATION * pilot.cascade, f"u^3/L of the energy in {pilot.text}"
    return most, f"the largest in {pilot.text}"


def _sizes(simulation: SpectralSimulation) -> tuple[int, int, int]:
    return simulation.case.grid.points_xyz


def _even(points: float) -> int:
    """Return a number of points with fast transforms: a multiple of 16, or of 2."""
    step = 16 if points > 64 else 2
    return step * math.ceil(points / step - 1e-9)
