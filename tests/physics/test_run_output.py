"""Lines that a run prints and writes, when, and its warnings about resolution."""

import io

import numpy as np
import pytest
import zarr
from rich.console import Console

from field_values import formulas
from flows import BOUSSINESQ, diagnostics, make_case
from own_models import own_models
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case
from slipstream.show.stored_run import StoredRun

WATCHED = ("output.fields_interval=0.3", "output.pdf_interval=0.2")


def adaptive(*settings):
    return make_case("grid.points=12", "time.cfl=0.71", "time.end=0.73", *settings)


def run(case, folder, device):
    text = io.StringIO()
    run_case(make_simulation(case, None, device), folder, Console(file=text, width=200))
    return text.getvalue()


def times_of(folder, name):
    return zarr.open_group(folder / name)["time"][:]


@pytest.mark.slow
def test_adaptive_steps_hit_the_times_of_fields_and_statistics(device, tmp_path):
    run(adaptive(*WATCHED), tmp_path / "watched", device)
    expected = {"fields.zarr": [0, 0.3, 0.6, 0.73], "pdf.zarr": [0, 0.2, 0.4, 0.6, 0.73]}
    for name, times in expected.items():
        np.testing.assert_allclose(times_of(tmp_path / "watched", name), times, rtol=2.3e-16)
    # Steps are those of a run that asks for neither, but for the shortened ones.
    run(adaptive(), tmp_path / "plain", device)
    watched, plain = (diagnostics(tmp_path / name) for name in ("watched", "plain"))
    assert plain["step"][-1] < watched["step"][-1] <= plain["step"][-1] + 4
    np.testing.assert_array_equal(times_of(tmp_path / "plain", "fields.zarr"), [0.73])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), WATCHED])
def test_step_sizes_in_the_series_are_those_that_follow(device, tmp_path, settings):
    """Also of the step that is shortened to hit the end, or output."""
    run(adaptive("output.diagnostics_interval=1e-6", *settings), tmp_path, device)
    rows = diagnostics(tmp_path)
    np.testing.assert_allclose(np.diff(rows["time"]), rows["step_size"][:-1], rtol=1e-12)


@pytest.mark.slow
def test_fixed_steps_write_at_the_first_step_that_reaches_a_time(device, tmp_path):
    case = make_case(
        "grid.points=8", "time.step=0.08", "time.end=0.4", "output.fields_interval=0.1"
    )
    run(case, tmp_path, device)
    expected = [0, 0.16, 0.24, 0.32, 0.4]
    np.testing.assert_allclose(times_of(tmp_path, "fields.zarr"), expected, rtol=1e-12)


@pytest.mark.slow
def test_rows_are_in_the_csv_at_once_and_in_zarr_at_the_end(device, tmp_path):
    simulation = make_simulation(adaptive(), None, device)
    seen = []
    advance = simulation.advance

    def watch(step_size):
        rows = diagnostics(tmp_path)["time"]
        assert rows[-1] == simulation.time
        seen.append((tmp_path / "diagnostics.zarr").exists())
        advance(step_size)

    simulation.advance = watch
    run_case(simulation, tmp_path, Console(quiet=True))
    assert seen and not any(seen)
    group, rows = zarr.open_group(tmp_path / "diagnostics.zarr"), diagnostics(tmp_path)
    np.testing.assert_array_equal(group["energy"][:], rows["energy"])


CUBIC = """
from slipstream.equations import Model, Scalar, laplacian, function
import sympy
def allen_cahn():
    c = Scalar("phase")
    return Model({c: c - c**3 + laplacian(c)})
def fifth():
    c = Scalar("phase")
    return Model({c: c - c**5 + laplacian(c)})
def sine_gordon():
    c = Scalar("phase")
    return Model({c: function(sympy.sin, c) + laplacian(c)})
def fisher():
    c = Scalar("phase")
    return Model({c: c - c**2 + laplacian(c)})
"""


@pytest.mark.parametrize(
    ("model", "dealiasing", "said"),
    [
        ("allen_cahn", "2/3", "products of 3; without aliases: '1/2'"),
        ("allen_cahn", "1/2", ""),
        ("allen_cahn", "none", ""),
        ("fifth", "1/2", "products of 5; no way"),
        ("sine_gordon", "2/3", "functions other than products; no way"),
        ("fisher", "2/3", ""),
    ],
)
def test_products_that_alias_are_warned_of(device, tmp_path, model, dealiasing, said):
    own = own_models(CUBIC, tmp_path)
    case = make_case(
        *own(model), f'numerics.dealiasing="{dealiasing}"', *formulas(phase="0.1*cos(x)")
    )
    simulation = make_simulation(case, None, device)
    simulation.prepare()
    warnings = simulation.warnings()
    assert len(warnings) == bool(said)
    assert not said or (warnings[0].startswith("numerics.dealiasing: ") and said in warnings[0])


def test_shipped_models_alias_only_where_they_say_so(device):
    for settings in ((), BOUSSINESQ, ("equation={ model = 'gpe' }", *formulas(psi_real="1"))):
        simulation = make_simulation(make_case(*settings), None, device)
        simulation.prepare()
        assert len(simulation.warnings()) == ("gpe" in str(settings))


@pytest.mark.slow
def test_what_is_not_resolved_is_said_at_the_start_on_the_way_and_at_the_end(device, tmp_path):
    text = run(adaptive("equation.viscosity=0.0005"), tmp_path / "coarse", device)
    lines = [line for line in text.splitlines() if "kmax_eta" in line]
    least = diagnostics(tmp_path / "coarse")["kmax_eta"].min()
    assert lines[0].startswith("warning: kmax_eta is 0.") and "at t = 0:" in lines[0]
    assert any("%" in line and line.rstrip().split(", ")[-2].endswith("< 1") for line in lines)
    assert f"{least:.2g}" in lines[-1] and "least kmax_eta" in lines[-1]
    assert "kmax_eta" not in run(adaptive("equation.viscosity=1"), tmp_path / "fine", device)


@pytest.mark.slow
def test_a_field_that_dies_is_named_once_and_not_drawn(device, tmp_path):
    """The magnetic field decays by a factor of 1e-22, the flow by 0.1."""
    case = make_case(
        "equation={ model = 'mhd', viscosity = 0.01, resistivity = 5.0 }",
        "initial={ flow = 'taylor-green', magnetic = 'insulating' }",
        "grid.points=8",
        "time.end=3.5",
        "time.step=0.1",
        "output.pictures=true",
    )
    text = run(case, tmp_path / "run", device)
    assert text.count("decayed") == 1
    assert "warning: magnetic has decayed to round-off: at t = " in text
    rows, names = diagnostics(tmp_path / "run"), {path.stem for path in tmp_path.glob("run/*.png")}
    assert rows["magnetic_energy"][-1] < 1e-14 * rows["magnetic_energy"][0]
    assert names == {"energy", "spectrum", "summary", "vorticity"}
    drawn = StoredRun(tmp_path / "run").pictures()
    assert {picture.name for picture in drawn} == names


def test_a_field_that_is_set_has_not_died(device):
    simulation = make_simulation(make_case("grid.points=8"), None, device)
    simulation.prepare()
    simulation.diagnostics()
    modes = 1e-9 * simulation.read_modes(slice(0, 3))
    simulation.set_modes(slice(0, 3), modes, "velocity")
    simulation.diagnostics()
    assert "decayed" not in " ".join(simulation.warnings())


def test_an_injection_that_a_grid_cannot_dissipate_is_foretold(device):
    def warnings(injection):
        forcing = f"forcing={{ kind = 'random', injection = {injection} }}"
        simulation = make_simulation(make_case(forcing, "initial.amplitude=0"), None, device)
        simulation.prepare()
        return simulation.warnings()

    # kmax eta = 5 (nu^3 / injection)^(1/4) with a viscosity of 0.01.
    (text,) = warnings(0.1)
    assert f"about {5 * (1e-6 / 0.1) ** 0.25:.2g}" in text
    assert warnings(1e-4) == []
