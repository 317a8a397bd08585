"""Magnetic and stratified flow in time: the orders of integrators."""

import functools
import math

import numpy as np
import pytest

from flows import BOUSSINESQ, MHD, advance, modes_of, start

INTEGRATORS = {"rk2": 2, "rk3": 3, "rk4": 4}


@pytest.mark.parametrize("integrator", ["rk3", "rk4"])
def test_energy_of_ideal_stratified_flow_drifts_at_the_order_of_the_integrator(device, integrator):
    def drift(steps):
        simulation = start(
            device,
            *BOUSSINESQ,
            "equation.viscosity=0",
            "equation.diffusivity=0",
            "grid.points=12",
            "initial.seed=1",
            f"time.integrator={integrator}",
        )
        before = simulation.diagnostics()
        after = advance(simulation, steps, 0.8 / steps).diagnostics()
        # Kinetic energy turns into potential energy, which there was none of.
        assert after["buoyancy_energy"] > 0.05 * before["energy"]
        return abs(after["energy"] / before["energy"] - 1)

    coarse, fine = drift(32), drift(64)
    # It may fall faster than the order, never more slowly.
    assert math.log2(coarse / fine) >= INTEGRATORS[integrator] - 0.2
    assert fine < 1e-3


def modes_after(device, model, steps, integrator, integrating_factor):
    simulation = start(
        device,
        *model,
        "grid.points=10",
        "equation.viscosity=0.02",
        f"time.integrator={integrator}",
        f"numerics.integrating_factor={integrating_factor}",
    )
    return modes_of(advance(simulation, steps, 0.4 / steps))


@functools.cache
def almost_exact(device, model):
    """Modes of a model with an error far below those of the steps that are tested."""
    return modes_after(device, model, 192, "rk4", "true")


# test_invariants.py has every integrator, of flow alone.
@pytest.mark.parametrize(
    ("model", "integrator", "integrating_factor"),
    [
        (MHD, "rk4", "true"),
        (MHD, "rk2", "false"),
        (BOUSSINESQ, "rk3", "true"),
        (BOUSSINESQ, "rk4", "false"),
    ],
    ids=["mhd-rk4", "mhd-rk2-decay", "boussinesq-rk3", "boussinesq-rk4-decay"],
)
def test_integrators_converge_at_their_order(device, model, integrator, integrating_factor):
    exact = almost_exact(device, model)
    coarse, fine = (
        np.linalg.norm(modes_after(device, model, steps, integrator, integrating_factor) - exact)
        for steps in (24, 48)
    )
    # The next order in the step size changes the observed order by some hundredths.
    assert math.log2(coarse / fine) == pytest.approx(INTEGRATORS[integrator], abs=0.2)
    assert fine > 1e-11  # far above rounding
