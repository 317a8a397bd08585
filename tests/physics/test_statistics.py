"""Transfer, anisotropic spectra, structure functions and densities against NumPy's."""

import math

import numpy as np
import pytest
import xarray
from rich.console import Console

import slipstream as ss
from flows import advance, make_case, modes_of, start
from numpy_calculus import AXES, Calculus
from slipstream.case import parse_case
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.errors import InputError
from slipstream.runs.run_case import run_case
from slipstream.show.statistics_pictures import statistics_pictures
from slipstream.spectral.spectral_simulation import SpectralSimulation

KINDS = tuple(STATISTICS)
BOX = ("grid.points=[12, 10, 15]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
LENGTHS = (2 * math.pi, 7.0, 5.0)
MHD = ("equation.model=mhd", "equation.resistivity=0.01", "equation.mean_field=0.7")
SCALAR = ("scalars=[{diffusivity=0.01}]",)
ADVECTION = """
solver = "advection"
[grid]
points = 8
[flow]
courant = 0.5
[time]
end = 1.0
"""
SOURCE = """
from slipstream.equations import Model, Scalar, laplacian

def source(viscosity):
    a = Scalar("a")
    return Model({a: 2 - a**2 + viscosity * laplacian(a)})
"""


def formulas(**fields):
    return [
        "initial.flow=formula",
        "initial.fields={" + ", ".join(f"{name} = {own!r}" for name, own in fields.items()) + "}",
    ]


def statistics(simulation, kind):
    return {field.name: field for field in simulation.statistics(kind)}


def data(simulation, kind):
    return {name: field.data for name, field in statistics(simulation, kind).items()}


def points(simulation):
    """Return every component at the points, by name."""
    names = [str(value) for value in simulation.problem.model.components]
    fields = {field.name: np.array(field.data) for field in simulation.fields()}
    return {name: fields[name] for name in names}


def vector(simulation, name):
    own = points(simulation)
    return np.stack([own[f"{name}_{axis}"] for axis in "xyz"])


def finer(field, factor=2):
    """Return a field without Nyquist modes on a finer grid, where no product aliases."""
    shape = field.shape[-3:]
    modes = np.fft.fftn(field, axes=AXES, norm="forward")
    target = [factor * n if n > 1 else 1 for n in shape]
    result = np.zeros((*field.shape[:-3], *target), complex)
    places = [np.rint(np.fft.fftfreq(n) * n).astype(int) for n in shape]
    result[(..., *np.ix_(*places))] = modes
    return np.fft.ifftn(result, axes=AXES, norm="forward").real


def shells_of(calculus, lengths, values):
    unit = 2 * math.pi / max(lengths)
    return np.bincount(np.rint(np.sqrt(calculus.square) / unit).astype(int).ravel(), values.ravel())


def assert_same(actual, expected, tolerance=1e-13):
    count = len(actual)
    # Beyond the modes that are kept there is nothing.
    assert np.abs(expected[count:]).max(initial=0.0) <= tolerance * np.abs(expected).max()
    assert np.abs(actual - expected[:count]).max() <= tolerance * np.abs(expected).max()


# -- transfer --------------------------------------------------------------------------------


@pytest.mark.parametrize("dealiasing", ["2/3", "2/3 sphere", "phase-shift"])
def test_transfer_of_a_flow_is_numpys(device, dealiasing):
    simulation = start(device, *BOX, f"numerics.dealiasing={dealiasing}", "equation.rotation=0.5")
    u = finer(vector(simulation, "velocity"))
    calculus = Calculus(u.shape[1:], LENGTHS)
    rate = calculus.without_gradient(calculus.modes(-calculus.div(calculus.outer(u, u))))
    density = (calculus.modes(u).conj() * rate).sum(axis=0).real
    actual = data(simulation, "transfer")
    assert_same(actual["energy_transfer"], shells_of(calculus, LENGTHS, density))
    assert set(actual) == {"energy_transfer", "energy_flux"}
    scale = np.abs(actual["energy_transfer"]).max()
    assert scale > 1e-3
    assert abs(actual["energy_transfer"].sum()) <= 1e-14 * scale
    np.testing.assert_allclose(actual["energy_flux"], -np.cumsum(actual["energy_transfer"]), atol=0)


def test_transfers_of_a_magnetic_flow_are_numpys(device):
    simulation = start(device, *BOX, *MHD)
    u, b = (finer(vector(simulation, name)) for name in ("velocity", "magnetic"))
    calculus = Calculus(u.shape[1:], LENGTHS)
    stress = calculus.outer(b, b) - calculus.outer(u, u)
    rates = {
        "velocity": calculus.without_gradient(calculus.modes(calculus.div(stress))),
        "magnetic": calculus.modes(calculus.curl(calculus.cross(u, b))),
    }
    actual = data(simulation, "transfer")
    for name, field in (("velocity", u), ("magnetic", b)):
        density = (calculus.modes(field).conj() * rates[name]).sum(axis=0).real
        assert_same(actual[f"{name}_transfer"], shells_of(calculus, LENGTHS, density))
    total = actual["velocity_transfer"] + actual["magnetic_transfer"]
    np.testing.assert_allclose(actual["energy_transfer"], total, rtol=0, atol=1e-15)
    # One field gains what the other loses.
    assert abs(actual["velocity_transfer"].sum()) > 1e-3
    assert abs(total.sum()) <= 1e-14 * np.abs(total).max()


def test_nothing_flows_through_any_wavenumber_of_an_abc_flow(device):
    simulation = start(device, "initial.flow=abc", "initial.wavenumber=2")
    found = data(simulation, "transfer")
    # Rotation and strain of amplitude 1 at wavenumber 2 in equilibrium.
    assert np.abs(found["energy_flux"]).max() <= 1e-15


def test_transfer_has_products_but_not_what_is_added_everywhere(device, tmp_path):
    (tmp_path / "own.py").write_text(SOURCE)
    simulation = start(
        device,
        f"equation={{ model = '{tmp_path}/own.py:source', viscosity = 0.1 }}",
        *formulas(a="0.5 + cos(2*x)*sin(y) + 0.3*cos(z + x)"),
    )
    a = finer(points(simulation)["a"])
    calculus = Calculus(a.shape)
    density = -(calculus.modes(a).conj() * calculus.modes(a**2)).real
    found = data(simulation, "transfer")["energy_transfer"]
    assert found[0] < -0.1
    assert_same(found, shells_of(calculus, (2 * math.pi,) * 3, density))


# -- anisotropic spectra ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [(), MHD, ("grid.points=[12, 10, 1]",)], ids=["hd", "mhd", "2"]
)
def test_anisotropic_spectra_sum_to_the_energies(device, settings):
    simulation = start(device, *BOX, *settings)
    diagnostics, actual = simulation.diagnostics(), data(simulation, "anisotropic")
    energies = {"energy": diagnostics["energy"]}
    if "velocity_energy" in diagnostics:
        energies |= {name: diagnostics[f"{name}_energy"] for name in ("velocity", "magnetic")}
    for name, energy in energies.items():
        both = actual.pop(f"{name}_spectrum")
        assert both.sum() == pytest.approx(energy, rel=1e-14)
        across, along = (
            actual.pop(f"{name}_spectrum_{way}") for way in ("perpendicular", "parallel")
        )
        np.testing.assert_allclose(across, both.sum(axis=1), rtol=1e-14)
        np.testing.assert_allclose(along, both.sum(axis=0), rtol=1e-14)
    assert not actual


def test_single_wave_is_at_its_place_across_and_along_z(device):
    # Wavevector (3, 4) across z and -2 along it, in units of 2 pi / L, equal in both across.
    simulation = start(
        device,
        "grid.points=[16, 32, 16]",
        'grid.length=["2 pi", "2 pi", "4 pi"]',
        *formulas(velocity=["4*cos(3*x + 4*y - z)", "-3*cos(3*x + 4*y - z)", "0"]),
    )
    field = statistics(simulation, "anisotropic")["energy_spectrum"]
    index = np.unravel_index(np.argmax(field.data), field.shape)
    across, along = (field.coordinates[name] for name in field.dims)
    assert field.dims == ("wavenumber_perpendicular", "wavenumber_parallel")
    assert across[index[0]] == pytest.approx(5)
    assert along[index[1]] == pytest.approx(1)
    assert field.data[index] == pytest.approx(25 / 4, rel=1e-14)
    assert field.data.sum() == pytest.approx(25 / 4, rel=1e-14)


# -- correlations ----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SCALAR, ("grid.points=[12, 10, 1]",)], ids=["3", "2"])
def test_correlations_are_means_over_points_moved_along(device, settings):
    simulation = start(device, *BOX, *settings)
    simulation.flow.modes_of(simulation.flow.state)[0, 0, 0, 0] += 3.0
    simulation.flow.state[3:] += simulation.flow.state[:1]
    values = points(simulation)
    actual = statistics(simulation, "correlation")
    for axis, name in enumerate("xyz"):
        size = values["velocity_x"].shape[2 - axis]
        if size == 1:
            continue

        def moved(one, axis=axis, size=size):
            one = one - one.mean()
            return np.array(
                [(one * np.roll(one, -r, 2 - axis)).mean() for r in range(size // 2 + 1)]
            )

        own = {one: moved(values[f"velocity_{one}"]) for one in "xyz"}
        expected = {
            "velocity_longitudinal": own[name],
            "velocity_transverse": sum(own[one] for one in "xyz" if one != name) / 2,
        }
        if "scalar" in values:
            expected["scalar_correlation"] = moved(values["scalar"])
        for stem, one in expected.items():
            field = actual.pop(f"{stem}_{name}")
            assert len(field.coordinates[f"separation_{name}"]) == size // 2 + 1
            np.testing.assert_allclose(field.data, one, rtol=0, atol=1e-13)
    assert not actual


def test_second_order_differences_follow_from_correlations(device):
    simulation = start(device, *BOX)
    both = [data(simulation, kind) for kind in ("correlation", "structure")]
    correlation, structure = (one["velocity_longitudinal_x"] for one in both)
    steps = [1, 2, 4]
    np.testing.assert_allclose(
        structure[1, :3], 2 * (correlation[0] - correlation[steps]), rtol=1e-12
    )


# -- structure functions ---------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_structure_functions_are_those_of_points_moved_along(device, precision):
    simulation = start(device, *BOX, *SCALAR, f"numerics.precision={precision}")
    advance(simulation, 1)
    simulation.flow.state[3] += simulation.flow.state[0]
    u = vector(simulation, "velocity").astype(float)
    a = points(simulation)["scalar"].astype(float)
    actual = statistics(simulation, "structure")
    tolerance = 1e-12 if precision == "float64" else 1e-5
    for axis, name in enumerate("xyz"):
        size, length = u.shape[3 - axis], LENGTHS[axis]
        steps = [r for r in (1, 2, 4, 8) if r <= size / 2]
        moved = [np.roll(u, -r, axis=3 - axis) - u for r in steps]
        orders = range(1, 7)
        powers = np.array([[(np.abs(d) ** p).mean(axis=(1, 2, 3)) for d in moved] for p in orders])
        other_axes = [other for other in range(3) if other != axis]
        changes = [np.roll(a, -r, axis=2 - axis) - a for r in steps]
        expected = {
            "velocity_longitudinal": powers[..., axis],
            "velocity_transverse": powers[..., other_axes].mean(axis=-1),
            "velocity_longitudinal_third": np.array([(d[axis] ** 3).mean() for d in moved]),
            "scalar_structure": np.array(
                [[(np.abs(d) ** p).mean() for d in changes] for p in orders]
            ),
        }
        for stem, values in expected.items():
            field = actual.pop(f"{stem}_{name}")
            np.testing.assert_allclose(
                field.coordinates[f"separation_{name}"], np.array(steps) * length / size
            )
            # Third powers of differences cancel, but for a hundredth.
            np.testing.assert_allclose(field.data, values, rtol=tolerance, atol=tolerance)
    assert not actual


def test_structure_function_of_a_sine_is_a_cosine(device):
    simulation = start(device, "grid.points=[8, 64, 1]", *formulas(velocity=["sin(y)", "0", "0"]))
    actual = statistics(simulation, "structure")
    assert {name.rsplit("_", 1)[1] for name in actual} == {"x", "y"}
    field = actual["velocity_transverse_y"]
    assert field.dims == ("order", "separation_y")
    separation = field.coordinates["separation_y"]
    assert separation[-1] == pytest.approx(math.pi)
    # <(sin(y + r) - sin(y))^2> = 1 - cos r, of one of two components.
    np.testing.assert_allclose(field.data[1], (1 - np.cos(separation)) / 2, rtol=1e-13)
    assert np.abs(actual["velocity_longitudinal_x"].data).max() <= 1e-15


# -- probability densities -------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_densities_and_moments_are_numpys(device, precision):
    simulation = start(device, *BOX, *MHD, f"numerics.precision={precision}")
    actual = data(simulation, "pdf")
    values, calculus = points(simulation), Calculus((15, 10, 12), LENGTHS)
    for name in ("velocity", "magnetic"):
        field = np.stack([values[f"{name}_{axis}"] for axis in "xyz"]).astype(float)
        gradient, curl = calculus.grad(field), calculus.curl(field)
        for place, axis in enumerate("xyz"):
            values[f"{name}_curl_{axis}"] = curl[place]
            values[f"{name}_derivative_{axis}"] = gradient[place, place]
    assert {key.removesuffix("_pdf") for key in actual if key.endswith("_pdf")} == set(values)
    tolerance = 1e-12 if precision == "float64" else 1e-4
    for name, array in values.items():
        array = array.astype(float)
        centred = (array - array.mean()) / array.std()
        counts = np.histogram(centred, 200, (-10, 10))[0]
        # A value may be on an edge but for rounding.
        differences = np.abs(actual[f"{name}_pdf"] * array.size / 10 - counts)
        assert differences.sum() <= (0.1 if precision == "float64" else 2.1)
        assert actual[f"{name}_pdf"].sum() / 10 == pytest.approx(1, rel=1e-14)
        assert actual[f"{name}_mean"] == pytest.approx(array.mean(), abs=tolerance)
        assert actual[f"{name}_rms"] == pytest.approx(array.std(), rel=tolerance)
        assert actual[f"{name}_skewness"] == pytest.approx((centred**3).mean(), abs=tolerance)
        assert actual[f"{name}_flatness"] == pytest.approx((centred**4).mean(), rel=tolerance)


def test_density_of_a_sine_is_the_arcsine_law(device):
    simulation = start(
        device, "grid.points=[4, 1024, 4]", *formulas(velocity=["3 + sin(y)", "0", "0"])
    )
    fields = statistics(simulation, "pdf")
    density = fields["velocity_x_pdf"]
    upper = density.coordinates["value"] + 0.05
    expected = 0.5 + np.arcsin(np.clip(upper / math.sqrt(2), -1, 1)) / math.pi
    # The points are a few thousandths of the circle apart.
    assert np.abs(np.cumsum(density.data) / 10 - expected).max() <= 5e-3
    moments = [
        float(fields[f"velocity_x_{name}"].data) for name in ("mean", "rms", "skewness", "flatness")
    ]
    np.testing.assert_allclose(moments, [3, math.sqrt(0.5), 0, 1.5], atol=1e-13)
    # What is constant is in one bin, and has no shape.
    constant = fields["velocity_y_pdf"].data
    assert constant.max() == pytest.approx(10)
    assert constant.sum() == pytest.approx(10)
    assert np.isnan(fields["velocity_y_flatness"].data)


def test_what_lies_far_out_is_counted_in_the_outermost_bin(device):
    # A sharp peak of one point in a thousand.
    peak = "exp(6*(cos(x) + cos(y) + cos(z) - 3))"
    zero = ["0", "0", "0"]
    simulation = start(device, *SCALAR, "grid.points=32", *formulas(velocity=zero, scalar=peak))
    own = points(simulation)["scalar"]
    far = ((own - own.mean()) / own.std() >= 9.9).sum()
    assert far > 10
    density = data(simulation, "pdf")["scalar_pdf"]
    assert density[-1] == pytest.approx(10 * far / own.size, rel=1e-12)
    assert density.sum() == pytest.approx(10, rel=1e-14)


def test_python_has_statistics_of_the_present_state(device):
    flow = ss.Turbulence(points=8, viscosity=0.1, initial="abc", device=device)
    for kind in KINDS:
        first = flow.statistics(kind)
        flow.step(1)
        flow.fields["velocity"] *= 2.0
        second = flow.statistics(kind)
        assert first.keys() == second.keys()
        assert first.keys() == {one.name for one in flow.solver.statistics(kind)}
    name = "velocity_longitudinal_x"
    before = flow.statistics("structure")[name].data
    flow.fields["velocity"] *= 2.0
    factors = 2.0 ** np.arange(1, 7)[:, None]
    after = flow.statistics("structure")[name].data
    np.testing.assert_allclose(after, factors * before, rtol=1e-12, atol=1e-14)
    with pytest.raises(InputError, match="accepted: transfer"):
        flow.statistics("spectra")


# -- runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_kind_is_written_at_its_own_interval_and_at_the_end(device, tmp_path):
    case = make_case(
        "grid.points=8",
        "time.end=0.05",
        "output.transfer_interval=0.02",
        "output.pdf_interval=1",
        "output.structure_interval=0.03",
        "output.checkpoint=false",
    )
    run_case(SpectralSimulation(case, None, device), tmp_path, Console(quiet=True))
    times = {"transfer": [0, 0.02, 0.04, 0.05], "pdf": [0, 0.05], "structure": [0, 0.03, 0.05]}
    for kind, expected in times.items():
        stored = xarray.open_zarr(tmp_path / f"{kind}.zarr")
        np.testing.assert_allclose(stored["time"], expected, atol=1e-12)
        assert all("long_name" in array.attrs for array in stored.values())
        assert all(np.isfinite(array).all() for array in stored.values())
    assert not (tmp_path / "anisotropic.zarr").exists()
    assert stored["velocity_longitudinal_x"].dims == ("time", "order", "separation_x")
    densities = xarray.open_zarr(tmp_path / "pdf.zarr")
    assert densities["velocity_x_flatness"].dims == ("time",)
    np.testing.assert_allclose(densities["velocity_x_pdf"].integrate("value"), 1, rtol=1e-12)


@pytest.mark.slow
def test_pictures_of_what_was_asked_for_are_drawn(device, tmp_path):
    case = make_case(
        "grid.points=[12, 12, 1]",
        *MHD,
        "time.end=0.01",
        "output.pictures=true",
        "output.checkpoint=false",
        "output.transfer_interval=1",
        "output.anisotropic_interval=1",
    )
    run_case(SpectralSimulation(case, None, device), tmp_path, Console(quiet=True))
    drawn = {path.stem for path in tmp_path.glob("*.png")} & set(KINDS)
    assert drawn == {"transfer", "anisotropic"}


@pytest.mark.slow
def test_a_fluid_at_rest_has_pictures_too(device, tmp_path):
    simulation = start(device, "grid.points=6", *formulas(velocity=["0", "0", "0"]))
    known = {kind: (0.0, statistics(simulation, kind)) for kind in KINDS}
    for picture in statistics_pictures(title="At rest", statistics=known):
        assert picture.write(tmp_path).stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("dealiasing", ["2/3", "phase-shift"])
def test_looking_at_a_state_does_not_change_it(device, dealiasing):
    settings = ("grid.points=10", f"numerics.dealiasing={dealiasing}", *MHD)
    seen, unseen = start(device, *settings), start(device, *settings)
    for _ in range(2):
        for kind in KINDS:
            assert statistics(seen, kind)
        assert seen.step_size() == unseen.step_size()
        advance(seen, 1)
        advance(unseen, 1)
    assert modes_of(seen).tobytes() == modes_of(unseen).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_positive_and_of_this_family_alone(kind):
    with pytest.raises(InputError, match=f"output.{kind}_interval"):
        make_case(f"output.{kind}_interval=0")
    advection = (
        'solver = "advection"\n[grid]\npoints = 8\n[flow]\ncourant = 0.5\n[time]\nend = 1.0\n'
    )
    with pytest.raises(InputError, match=f"{kind}_interval"):
        parse_case(advection, [f"output.{kind}_interval=1"])


@pytest.mark.parametrize("size", [[16, 24, 12], [24, 16, 1]])
def test_scales_are_those_of_their_definitions_in_an_uneven_box(device, size):
    lengths, nu = [2 * math.pi, 4 * math.pi, 3.0], 0.01
    setup = f"grid.points={size}", f"grid.length={lengths}", f"equation.viscosity={nu}"
    simulation = start(device, *setup, "initial.flow=random", "initial.peak_wavenumber=3")
    actual, values = simulation.diagnostics(), points(simulation)
    fields = np.array([values[f"velocity_{one}"] for one in "xyz"[: 3 - size.count(1)]])
    squares = (abs(np.fft.fftn(fields, axes=(1, 2, 3)) / fields[0].size) ** 2).sum(axis=0)
    sides = list(zip(size, lengths, strict=True))
    axes = [np.fft.fftfreq(n, L / n / (2 * math.pi)) for n, L in sides][::-1]
    k = np.sqrt(sum(axis**2 for axis in np.meshgrid(*axes, indexing="ij", sparse=True)))
    squares[0, 0, 0], k[0, 0, 0] = 0, 1
    factor = math.pi / 2 if len(fields) == 3 else 2
    scale = factor * (squares / 2 / k).sum() / (squares.sum() / len(fields))
    assert actual["integral_scale"] == pytest.approx(scale, rel=1e-10)
    # Fewer than n / 3 waves are kept along each axis.
    cutoffs = [(-(-n // 3) - 1) * 2 * math.pi / L for n, L in sides if n > 1]
    smallest = actual["kolmogorov_scale" if len(fields) == 3 else "kraichnan_scale"]
    assert min(cutoffs) < max(cutoffs)
    assert actual["kmax_eta"] == pytest.approx(min(cutoffs) * smallest, rel=1e-12)


@pytest.mark.parametrize("size", [[40, 40, 40], [96, 96, 1]])
def test_scales_are_those_of_their_definitions_in_isotropic_flow(device, size):
    peak, nu = 8.0, 0.01
    simulation = start(
        device,
        f"grid.points={size}",
        "initial.flow=random",
        f"initial.peak_wavenumber={peak}",
        f"equation.viscosity={nu}",
        "numerics.dealiasing=none",
    )
    # The mean flow is no eddy.
    simulation.flow.modes_of(simulation.flow.state)[0, 0, 0, 0] += 3.0
    actual, values = simulation.diagnostics(), points(simulation)
    parts = "xyz"[: 3 - size.count(1)]
    square = np.mean([values[f"velocity_{one}"].var() for one in parts])
    assert actual["rms_velocity"] == pytest.approx(math.sqrt(square), rel=1e-10)
    # Integrals of the spectrum k^4 exp(-2 (k / peak)^2).
    length = math.sqrt(2 * math.pi) if len(parts) == 3 else 8 / 3 * math.sqrt(2 / math.pi)
    length /= peak
    assert actual["integral_scale"] == pytest.approx(length, rel=0.03)
    slopes = []
    for axis, name in enumerate(parts):
        k = np.fft.fftfreq(size[axis], 1 / size[axis]).reshape(np.roll([1, 1, -1], -axis))
        modes = np.fft.fftn(values[f"velocity_{name}"]) / values[f"velocity_{name}"].size
        slopes.append((k**2 * np.abs(modes) ** 2).sum())
    scale = math.sqrt(square / np.mean(slopes))
    assert actual["taylor_scale"] == pytest.approx(scale, rel=0.03)
    assert actual["taylor_reynolds"] == pytest.approx(math.sqrt(square) * scale / nu, rel=0.03)
