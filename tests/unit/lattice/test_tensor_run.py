"""Results of `permeability`, from cases too: the tensor, and flow in SI units."""

import numpy as np
import pytest

from flows import save
from lattice_flows import advance, make, start
from slipstream.api.porous_flow import PorousFlow
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import Storage, make_sample, permeability
from slipstream.show.solver_texts import result_texts

CASE = """
solver = "lattice"
[image]
sample = "random-pack"
shape = [12, 10, 8]
radius = 3
solid_fraction = 0.3
voxel_size = 2e-6
[flow]
axis = "all"
[time]
end = 4000
[convergence]
interval = 20
vectors = 0
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
[output]
pictures = false
"""


@pytest.fixture(scope="module")
def device():
    return HostDevice(threads=1)


@pytest.fixture(scope="module")
def whole(device):
    """A simulation that has reached its end."""
    return advance(start(device, case=CASE), 4000)


@pytest.mark.filterwarnings("ignore:pore faces solid")
@pytest.mark.parametrize("drive", ["force=1e-5", "pressure_drop=1e-4"])
def test_cases_give_the_tensor_that_python_does(device, whole, drive):
    name, value = drive.split("=")
    simulation = whole
    if name == "pressure_drop":
        simulation = advance(start(device, f"flow.{drive}", case=CASE), 4000)
    sample = make_sample("random-pack", (8, 10, 12), radius=3, solid_fraction=0.3)
    options = {"storage": Storage(), "device": device, "vectors": 0, name: float(value)}
    result = permeability(sample, 2e-6, "all", interval=20, **options)
    assert simulation.finished.startswith("converged")
    assert simulation.step == result.steps
    np.testing.assert_array_equal(simulation.tensor() * 4e-12, result.tensor)
    actual, rows = simulation.diagnostics(), result_texts(simulation, 1.0, 2)
    for row, line in zip("xyz", result.tensor, strict=True):
        for column, expected in zip("xyz", line, strict=True):
            assert actual[f"permeability_{row}{column}"] == pytest.approx(expected, rel=1e-14)
        assert rows[f"tensor, {row}"][1] == "mD"
    assert rows["permeability"][0] == f"{result.k_millidarcy:.5g} mD"
    assert rows["tortuosity"][0] == f"{result.flows['z'].tortuosity:.4g}"
    assert "not converged" not in rows["distance from steady"][1]
    assert actual.keys() <= simulation.labels().keys()


def test_each_axis_has_a_curve_of_its_own(device, whole):
    choice, found = whole.pictures(), whole.diagnostics()
    (panel,) = choice.curves
    assert [choice.legend[name] for name in panel] == ["along x", "along y", "along z"]
    assert all(found[name] > 0 and choice.units[name] == "m²" for name in panel)
    (one,) = start(device, "flow.axis=y", case=CASE).pictures().curves
    assert one == ("permeability_millidarcy",)


@pytest.mark.slow
def test_a_run_goes_on_with_the_axis_that_it_was_at(device, whole, tmp_path):
    expected = whole.tensor()
    began = whole._over[1].began
    for step in (began - 2, began, began + 30):
        first = advance(start(device, case=CASE), step)
        assert first.step == step
        save(first, tmp_path / str(step))
        later = start(device, f"initial.restart={tmp_path / str(step)}", case=CASE)
        assert later.step == step
        np.testing.assert_array_equal(later.tensor(), first.tensor())
        advance(later, 4000)
        assert later.step == whole.step
        np.testing.assert_array_equal(later.tensor(), expected)
    # And it begins again if it is prepared once more.
    later.case = parse_case(CASE)
    later.prepare()
    np.testing.assert_array_equal(advance(later, 4000).tensor(), expected)


def test_a_copy_goes_on_with_the_axis_too(device, whole):
    first, copy = (start(device, case=CASE) for _ in range(2))
    advance(first, whole._over[1].began + 30)
    copy.restore(first.kept())
    np.testing.assert_array_equal(copy.tensor(), first.tensor())
    np.testing.assert_array_equal(advance(copy, 4000).tensor(), whole.tensor())


def test_a_run_along_one_axis_goes_on_along_all_and_the_other_way(device, whole, tmp_path):
    one = advance(start(device, "flow.axis=y", case=CASE), 40)
    save(one, tmp_path / "one")
    later = advance(start(device, f"initial.restart={tmp_path / 'one'}", case=CASE), 4000)
    np.testing.assert_allclose(later.tensor(), whole.tensor(), rtol=0, atol=2e-3)
    save(whole, tmp_path / "all")
    settings = ("flow.axis=x", f"initial.restart={tmp_path / 'all'}", "time.end=8000")
    back = advance(start(device, *settings, case=CASE), 4000)
    expected = whole.tensor()[0, 0]
    assert back.diagnostics()["permeability_lattice"] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    "table",
    [
        [[2, 0, 1, 0, 1, 1]],
        [[1, 0, 1, 0, 1, 1, 1]],
        [[2, -2, 1, 0, 1, 1, 1]],
        [[2, 500_000, 1, 0, 1, 1, 1]],
        [[1.5, 0, 1, 0, 1, 1, 1]],
        [[2, 0, 1, 0, 1, 1, 1]] * 4,
    ],
)
def test_states_of_others_axes_are_refused(device, whole, table, tmp_path, monkeypatch):
    name = "slipstream.lattice.lattice_simulation.axes_table"
    monkeypatch.setattr(name, lambda records: np.array(table, float))
    save(whole, tmp_path)
    with pytest.raises(InputError, match=r"^initial\.restart: .*: axes is no table of axes$"):
        start(device, f"initial.restart={tmp_path}", case=CASE)


def test_axes_share_the_steps_where_none_becomes_steady(device):
    settings = ("convergence.tolerance=0", "time.end=64")
    simulation = advance(start(device, *settings, case=CASE), 64)
    assert [record.began for record in simulation._over] == [0, 20]
    assert (simulation._began, simulation.step, simulation.finished) == (42, 64, "")
    assert (np.diag(simulation.tensor()) > 0).all()
    assert "not converged" in result_texts(simulation, 1.0, 64)["distance from steady"][1]


WATER = {"viscosity": 1e-3, "pressure_gradient": 2e5, "density": 1000.0}
IN_SI_UNITS = [f"flow.{key}={value}" for key, value in WATER.items()]


@pytest.mark.filterwarnings("ignore:pore faces solid")
@pytest.mark.parametrize("inertia", [False, True])
def test_cases_are_in_si_units_as_python_is(device, inertia):
    time = 0.6 if inertia else 1.0
    settings = (*IN_SI_UNITS, "image.voxel_size=1e-5", f"flow.relaxation_time={time}")
    settings = (*settings, "flow.axis=x", f"flow.inertia={str(inertia).lower()}")
    simulation = advance(start(device, *settings, case=CASE), 4000)
    again = parse_case(simulation.case.to_toml())
    assert again == simulation.case
    result = permeability(
        make_sample("random-pack", (8, 10, 12), radius=3, solid_fraction=0.3),
        *(1e-5, "x"),
        inertia=inertia,
        relaxation_time=time,
        interval=20,
        vectors=0,
        storage=Storage(),
        device=device,
        **WATER,
    )
    found = simulation.diagnostics()
    assert found["permeability"] == pytest.approx(result.k, rel=1e-14)
    assert found["darcy_velocity"] == pytest.approx(result.flow.velocity[0], rel=1e-14)
    assert found["reynolds"] == pytest.approx(result.reynolds, rel=1e-14)
    texts = result_texts(simulation, 1.0, 2)
    assert texts["Darcy velocity"][0] == f"{result.flow.velocity[0]:.5g} m/s"
    for field in simulation.fields():
        mine = result.fields[field.name]
        np.testing.assert_array_equal(field.data, mine.data)
        assert field.attributes == mine.attributes


@pytest.mark.filterwarnings("ignore:pore faces solid")
def test_interactive_flows_are_in_si_units_too(device):
    sample = make_sample("random-pack", (8, 10, 12), radius=3, solid_fraction=0.3)
    flow = PorousFlow(
        np.asarray(sample),
        voxel_size=1e-5,
        interval=20,
        device=device,
        comm=None,
        numerics=Storage().choices,
        **WATER,
    )
    flow.run()
    result = permeability(sample, 1e-5, interval=20, storage=Storage(), device=device, **WATER)
    assert flow.diagnostics["darcy_velocity"] == pytest.approx(result.flow.velocity[2], rel=1e-14)
    for name in ("velocity", "pressure"):
        mine, other = flow.fields[name], result.fields[name]
        np.testing.assert_array_equal(mine[...], other.data)
        assert (mine.long_name, mine.unit) == tuple(other.attributes.values())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (IN_SI_UNITS, r"flow\.viscosity: SI units need the edge of a voxel; use image\.voxel_size"),
        (
            [*IN_SI_UNITS[:2], "image.voxel_size=1e-6", "flow.inertia=true"],
            r"flow\.density: flow with inertia depends on it; use kg/m³",
        ),
        (
            [*IN_SI_UNITS, "image.voxel_size=1e-6", "flow.inertia=true", "flow.force=1e-5"],
            r"flow\.force: with inertia the fluid's viscosity, density and pressure_gradient",
        ),
    ],
)
def test_fluids_that_are_not_whole_are_refused(device, settings, told):
    with pytest.raises(InputError, match=told):
        make(device, *settings, case=CASE.replace("voxel_size = 2e-6", ""))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('image.walls=["x"]', r"image\.walls: 'x' closes flow\.axis = 'all'; accepted: none"),
        ("flow.viscosity=1e-3", r"flow\.viscosity: not enough for SI units; use viscosity"),
        ("flow.density=1e3", r"flow\.density: not enough for SI units; use viscosity"),
        ("image.buffer=2", r"image\.buffer: layers are for one axis; accepted with flow\.axis ="),
    ],
)
def test_settings_that_do_not_fit_are_refused_is_refused_for_all(device, setting, told):
    with pytest.raises(InputError, match=told):
        make(device, setting, case=CASE)
