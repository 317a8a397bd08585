"""Fields written for pictures of a flow: curls, with their signs where the flow is plane."""

import numpy as np
import pytest

from slipstream.case import make_case
from slipstream.runs import make_simulation


@pytest.mark.slow
@pytest.mark.parametrize("points", [[16, 16, 1], 8])
def test_curls_of_velocity_and_magnetic_field(points):
    """Orszag and Tang's vortex has known ones: u = (-sin y, sin x), b = (-sin y, sin 2x)."""
    tables = {
        "grid": {"points": points},
        "equation": {"model": "mhd", "viscosity": 0.01, "resistivity": 0.01},
        "initial": {
            "flow": "formula",
            "fields": {
                "velocity": ["-sin(y)", "sin(x)", "0"],
                "magnetic": ["-sin(y)", "sin(2*x)", "0"],
            },
        },
        "time": {"end": 1.0, "step": 0.01},
    }
    simulation = make_simulation(make_case("spectral", **tables))
    simulation.prepare()
    fields = {field.name: field for field in simulation.fields()}
    x, y = (fields["velocity_x"].coordinates[axis] for axis in "xy")
    expected = {
        "vorticity": np.cos(x) + np.cos(y)[:, None],
        "current_density": 2 * np.cos(2 * x) + np.cos(y)[:, None],
    }
    for name, values in expected.items():
        magnitude = fields[f"{name}_magnitude"].data
        np.testing.assert_allclose(magnitude, np.abs(values) + 0 * magnitude, atol=1e-12)
        if points == 8:
            assert f"{name}_z" not in fields
        else:
            np.testing.assert_allclose(fields[f"{name}_z"].data[0], values, atol=1e-12)
    choice = simulation.pictures()
    assert {plane.field for plane in choice.planes} <= set(fields)
    assert [plane.file for plane in choice.planes] == ["vorticity.png", "current.png"]
    assert set(choice.curves[0]) == {"energy", "velocity_energy", "magnetic_energy"}
    assert set(choice.curves[0]) <= set(simulation.diagnostics())
    assert set(choice.spectra) == set(simulation.spectra())
