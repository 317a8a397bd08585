"""Estimates for a case, from the same case on few points: time steps, and the smallest eddies.

Large eddies, which a coarse grid has too, set velocities, and so the time steps and the energy that
the small ones dissipate. A *pilot* is the case on so few points that it is over within seconds.
"""

from __future__ import annotations

import math
import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from slipstream.case import SpectralCase, parse_case
from slipstream.collective import largest
from slipstream.errors import RunError, SlipstreamError
from slipstream.printable_text import below
from slipstream.simulation.solver_values import Fact, PilotFindings
from slipstream.spectral.turbulence_scales import kolmogorov_length

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation

# Most points along an axis, by how many axes have more than one.
_MOST_POINTS = {0: 1, 1: 512, 2: 96, 3: 32}
# The energy that isotropic turbulence dissipates, in units of u^3 / L (Sreenivasan 1998).
_DISSIPATION = 0.5
_LOOKS = 40


@dataclass
class Pilot:
    """What a pilot has found: its points, the times of its steps and their sizes, and energies."""

    points: tuple[int, ...]
    start: float = 0.0
    time: float = 0.0
    step_sizes: list[float] = field(default_factory=list)
    # The same, but that the last one ends with the run.
    advances: list[float] = field(default_factory=list)
    dissipations: list[float] = field(default_factory=list)
    injections: list[float] = field(default_factory=list)
    # u^3 / L of isotropic turbulence, the largest seen.
    cascade: float = 0.0
    kmax: float = 0.0

    @property
    def text(self) -> str:
        """What it was, for people."""
        return f"a pilot run of {' x '.join(map(str, self.points))} points"


def pilot_findings(
    simulation: SpectralSimulation, first_step: float, target: float, seconds: float
) -> PilotFindings:
    """Estimate a run from its case and a pilot of so many seconds at most. Collective.

    `target` is the kmax_eta that is wanted.
    """
    pilot = run_pilot(simulation, seconds)
    found = PilotFindings()
    if pilot is not None and simulation.case.time.step is None:
        found.steps = expected_steps(simulation, pilot, first_step)
        found.source = f"by {pilot.text}"
    add_resolution(found, simulation, pilot, target)
    return found


def run_pilot(simulation: SpectralSimulation, seconds: float) -> Pilot | None:
    """Run the case on few points for some seconds at most; None if it cannot be. Collective."""
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
        # So that what bounds the steps of the case is seen here too.
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
        # What few points cannot hold, or what blows up on them, tells nothing.
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
    """Take down what is dissipated and injected, and what a cascade would dissipate."""
    found, viscosity = small.diagnostics(), small.problem.viscosity
    if not viscosity or "enstrophy" not in found:
        return
    pilot.dissipations.append(2 * viscosity * found["enstrophy"])
    pilot.injections.append(found.get("injection", 0.0))
    if found["integral_scale"] > 0:
        cascade = found["rms_velocity"] ** 3 / found["integral_scale"]
        pilot.cascade = max(pilot.cascade, cascade)


def expected_steps(simulation: SpectralSimulation, pilot: Pilot, first: float) -> float | None:
    """Return how many steps the case takes from its first on, with the velocities of its pilot."""
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
    found: PilotFindings, simulation: SpectralSimulation, pilot: Pilot | None, target: float
) -> None:
    """Add the kmax_eta that is to be expected; warn of one below what is wanted."""
    viscosity = simulation.problem.viscosity
    # In a plane, enstrophy is dissipated at the smallest scales: nothing foresees how much.
    if not viscosity or 1 in _sizes(simulation):
        return
    dissipation, source = expected_dissipation(simulation, pilot)
    if not dissipation > 0:
        return
    kmax_eta = simulation.flow.wavenumbers.largest * kolmogorov_length(viscosity, dissipation)
    found.facts["kmax_eta"] = Fact(kmax_eta, dissipation=dissipation, source=source)
    if kmax_eta < target:
        # Of n points along an axis the largest wavenumber kept is less than n / 3, or n / 2.
        sizes = [_even(n * target / kmax_eta + 2) if n > 1 else 1 for n in _sizes(simulation)]
        text = str(sizes[0]) if len(set(sizes)) == 1 else str(sizes)
        found.warnings.append(
            f"kmax_eta will fall to about {below(kmax_eta, target)}, below {target:g}: the smallest"
            f" eddies are not resolved; grid.points = {text} would, or a larger equation.viscosity"
        )


def expected_dissipation(simulation: SpectralSimulation, pilot: Pilot | None) -> tuple[float, str]:
    """Return the largest dissipation of the flow to be expected, and what tells it. Collective."""
    forcing, viscosity = simulation.case.forcing, simulation.problem.viscosity
    if simulation.given_injection is not None:
        return simulation.given_injection, "what forcing.injection puts in"
    now = simulation.diagnostics().get("enstrophy", 0.0) * 2 * (viscosity or 0.0)
    if pilot is None or not pilot.dissipations:
        return now, "that of the initial state"
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
    """Return a number of points that transforms are fast with: a multiple of 16, or of 2."""
    step = 16 if points > 64 else 2
    return step * math.ceil(points / step - 1e-9)
