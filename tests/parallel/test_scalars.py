"""Passive scalars of tables: exact solutions, budgets, and results on any number of ranks."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import advance, start
from slipstream import Flow
from slipstream.engine.errors import InputError

SCALARS = [
    {"name": "temperature", "diffusivity": 0.02, "mean_gradient": [0.3, 0, 1]},
    {"name": "dye", "diffusivity": 0.04, "initial": "cos(x) + 0.2"},
]
RANDOM = {"flow": "random", "seed": 1, "amplitude": 0.5, "peak_wavenumber": 2}
FORCES = [
    {"kind": "formula", "field": "dye", "formula": "sin(y)"},
    {"kind": "linear", "field": "temperature", "rate": 0.1},
    {"kind": "abc", "amplitude": 0.1},
]


def stratified(comm, device, **options):
    return Flow(
        "boussinesq",
        points=12,
        viscosity=0.05,
        diffusivity=0.03,
        buoyancy_frequency=1.5,
        step=0.01,
        comm=comm,
        device=device,
        **{"initial": RANDOM, "scalars": SCALARS, "forcing": FORCES, **options},
    )


@pytest.mark.slow
def test_budgets_are_met_to_the_order_of_time(comm, device):
    """Rows a step apart obey the trapezoidal rule, with an error of second order."""
    sim = stratified(comm, device)
    sim.step(20)
    rows = [sim.diagnostics]
    sim.step(4)
    rows.append(sim.diagnostics)
    sim.step(1)
    rows.append(sim.diagnostics)
    _, far, near = rows
    for name in ("budget", "buoyancy", "temperature", "dye"):
        assert abs(near[f"{name}_residual"]) < 0.2 * abs(far[f"{name}_residual"]) < 0.02
    # The production is a sum over points, and half the variance no part of the energy.
    velocity, heat = (sim.fields[one].gather() for one in ("velocity", "temperature"))
    along = 0.3 * velocity[0] + velocity[2]
    assert near["temperature_production"] == pytest.approx(-(along * heat).mean(), rel=1e-10)
    assert near["temperature_energy"] == pytest.approx((heat**2).mean() / 2, rel=1e-12)
    parts = near["velocity_energy"] + near["buoyancy_energy"]
    assert near["energy"] == pytest.approx(parts, rel=1e-14)
    assert sim.spectra["dye_spectrum"][1].sum() == pytest.approx(near["dye_energy"], rel=1e-12)
    assert sim.spectra["energy_spectrum"][1].sum() == pytest.approx(near["energy"], rel=1e-12)
    w, b = velocity[2], sim.fields["buoyancy"].gather()
    assert near["buoyancy_flux"] == pytest.approx(1.5 * (w * b).mean(), rel=1e-10)


MEMORY = {
    "host": ("run.residency=host", "run.streaming={ tiles = 3 }"),
    "host, many tiles": ("run.residency=host", "run.streaming={ tiles = 5 }"),
    "disk": ("run.residency=disk",),
    "serial": ("run.schedule=serial",),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_sums_over_points_have_the_same_bits_in_any_memory(comm, device, ranks, precision):
    """Those of a scalar's production too, on any number of ranks."""
    settings = (
        "grid.points=[20, 18, 22]",
        f"numerics.precision={precision}",
        "scalars=[{ name = 'temperature', mean_gradient = [0.3, 0.0, 1.0] }]",
    )

    def production(comm, *memory):
        simulation = advance(start(device, *settings, *memory, comm=comm), 2)
        return simulation.diagnostics()["temperature_production"]

    expected = on_first_rank(comm, lambda: production(None))
    assert expected != 0
    # A GPU's sum of a plane may depend on where the plane begins in memory.
    rounding = 0 if device.kind == "cpu" else 1e-14
    same = pytest.approx(expected, rel=rounding, abs=0)
    assert production(comm) == same
    for name, memory in MEMORY.items():
        if name != "disk" or ranks == 1:
            assert production(comm, *memory) == same, name


def test_scalars_do_not_act_on_the_flow(comm, device):
    first, other = (stratified(comm, device, **options) for options in ({}, NONE))
    for sim in (first, other):
        sim.step(3)
    for name in ("velocity", "buoyancy"):
        fields = (sim.fields[name].gather() for sim in (first, other))
        np.testing.assert_allclose(*fields, rtol=0, atol=1e-14)


NONE = {"scalars": (), "forcing": FORCES[2:]}


@pytest.mark.slow
def test_a_uniform_wind_across_a_gradient_is_exact(comm, device):
    sim = Flow(
        "mhd",
        points=8,
        viscosity=0,
        resistivity=0,
        step=0.1,
        comm=comm,
        device=device,
        initial={"velocity": ["0.5", "0", "0.25"]},
        scalars=[{"name": "heat", "mean_gradient": [2, 0, -1]}],
    )
    sim.step(5)
    # The mean of the fluctuation falls as the wind brings other parts of the mean profile.
    np.testing.assert_allclose(sim.fields["heat"].gather(), -0.5 * (0.5 * 2 - 0.25), rtol=1e-13)


@pytest.mark.slow
def test_scalars_go_through_a_restart_and_may_be_added(comm, device, shared_folder):
    folder = shared_folder / "run"
    sim = stratified(comm, device, forcing=FORCES[:2], output={"pictures": False})
    sim.run(until=0.03, output=folder)
    kept = sim.fields["dye"].gather()
    again = stratified(
        comm,
        device,
        initial={"restart": str(folder)},
        scalars=[*SCALARS, {"name": "salt", "initial": "sin(z)"}],
    )
    np.testing.assert_array_equal(again.fields["dye"].gather(), kept)
    assert again.fields["salt"].max() == pytest.approx(1, rel=1e-12)
    again.step()
    assert again.time > 0.03


@pytest.mark.parametrize(
    ("scalars", "text"),
    [
        ([{"name": "a"}, {"name": "a"}], "two scalars have the name 'a'"),
        ([{"name": "buoyancy"}], "has a field 'buoyancy'"),
        ([{"name": "a b"}], "letters, digits and '_'"),
        ([{"name": "energy"}], "scalars.name: 'energy' is taken"),
        ([{"name": "dye"}, {"name": "time"}], "scalars[2].name: 'time' is taken"),
        ([{"name": "curl"}], "scalars.name: 'curl' is taken"),
        ([{"name": "vorticity"}], "scalars.name: 'vorticity' is taken"),
        ([{"name": "viscosity"}], "scalars.name: 'viscosity' is taken"),
        ([{"name": "budget"}], "scalars.name: 'budget' is taken"),
        ([{"initial": "x"}], "scalars.initial"),
        ([{"diffusivity": -1}], "scalars"),
        (True, "scalars: True is not accepted"),
    ],
)
def test_what_is_no_scalar_is_refused(comm, device, scalars, text):
    with pytest.raises(InputError) as refused:
        stratified(comm, device, scalars=scalars, forcing=None)
    assert text in str(refused.value)
