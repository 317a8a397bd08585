"""Reference cases of the advection family: exact shifts, and second order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slipstream.array_types import Comm
from slipstream.case import make_case
from slipstream.device import Device
from slipstream.simulation import make_simulation
from slipstream.validation.reference_case import Finding, ReferenceCase


def errors_after(
    device: Device, comm: Comm, points: int, courant: Sequence[float], steps: int
) -> dict[str, float]:
    """Return the errors of a Gaussian after some steps of advection. Collective."""
    case = make_case(
        "advection",
        grid={"points": points},
        flow={"courant": list(courant)},
        initial={"width": 0.12},
        time={"end": 1e9},
    )
    simulation = make_simulation(case, comm, device)
    simulation.prepare()
    for _ in range(steps):
        simulation.advance(simulation.step_size())
    return simulation.diagnostics()


def exact_shift(device: Device, comm: Comm) -> Iterator[Finding]:
    """Advect a Gaussian by one spacing along every axis in a step, which is exact."""
    found = errors_after(device, comm, 32, (1.0, -1.0, 1.0), 20)
    source = "exact: a shift of the grid (Courant, Friedrichs and Lewy 1928)"
    what = "largest error after 20 steps of Courant number 1"
    yield Finding(what, source, 0.0, found["error_max"], 1e-13)


def second_order(device: Device, comm: Comm) -> Iterator[Finding]:
    """Halve the spacing and the step: a quarter of the error remains."""
    coarse, fine = (
        errors_after(device, comm, points, (0.8, -0.6, 0.4), points // 4)["error_rms"]
        for points in (40, 80)
    )
    source = "Lax and Wendroff (1960), Comm. Pure Appl. Math. 13, 217"
    yield Finding("order of convergence", source, 2.0, math.log2(coarse / fine), 0.05)


CASES = (
    ReferenceCase("exact shift", exact_shift),
    ReferenceCase("Gaussian advected obliquely", second_order),
)
