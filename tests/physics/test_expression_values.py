"""Values of expressions on a state: against NumPy's calculus, and in flows that are known."""

import numpy as np
import pytest
import sympy

from flows import BOUSSINESQ, MHD, advance, modes_of, points_of, relative_error, start
from numpy_calculus import Calculus
from own_models import own_models
from slipstream.engine.errors import InputError
from slipstream.equations import Scalar, Vector, abs2, curl, dot, function, grad
from slipstream.spectral.evaluation import Evaluation, cospectrum, evaluate, reduce, spectrum

BOX = ("grid.points=[12, 10, 16]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
LENGTHS = (2 * np.pi, 7.0, 5.0)
ROTATING = ("equation.rotation=0.5",)
TOLERANCE = {"float64": 1e-12, "float32": 2e-5}


@pytest.fixture(scope="module")
def magnetic():
    return advance(start("cpu", *BOX, *MHD, *ROTATING, "equation.mean_field=0.7"), 2)


@pytest.fixture(scope="module")
def known(magnetic):
    """NumPy's calculus in this box, and the fields at the points."""
    calculus = Calculus((16, 10, 12), LENGTHS)
    found = {field.name: field.data for field in magnetic.fields()}
    vectors = [np.stack([found[f"{name}_{a}"] for a in "xyz"]) for name in ("velocity", "magnetic")]
    return calculus, *vectors


def kept(calculus, field):
    """Return the modes of a field that dealiasing keeps."""
    modes = calculus.modes(field)
    for axis, integers in zip((-3, -2, -1), calculus.integers, strict=True):
        inside = 3 * np.abs(integers) < len(integers)
        modes *= inside.reshape(-1, *[1] * (-axis - 1))
    return calculus.points(modes)


def inverse_laplacian(calculus, field):
    inverse = np.divide(-1, calculus.square, where=calculus.square > 0, out=calculus.square * 0)
    return calculus.points(inverse * calculus.modes(field))


EXPRESSIONS = {
    "velocity": lambda c, u, b: u,
    "velocity_y": lambda c, u, b: u[1],
    "2 * velocity - magnetic / 3 + x_hat": lambda c, u, b: 2 * u - b / 3 + c.x_hat,
    "curl(velocity)": lambda c, u, b: c.curl(u),
    "vorticity_magnitude": lambda c, u, b: np.sqrt(c.abs2(c.curl(u))),
    "enstrophy": lambda c, u, b: c.abs2(c.curl(u)) / 2,
    "current_density": lambda c, u, b: c.curl(b),
    "kinetic_energy - magnetic_energy": lambda c, u, b: (c.abs2(u) - c.abs2(b)) / 2,
    "dot(velocity, curl(velocity))": lambda c, u, b: c.dot(u, c.curl(u)),
    "cross_helicity": lambda c, u, b: c.dot(u, b),
    "cross(velocity, magnetic)": lambda c, u, b: c.cross(u, b),
    "outer(velocity, magnetic)": lambda c, u, b: c.outer(u, b),
    "dot(velocity, grad(magnetic))": lambda c, u, b: c.dot(u, c.grad(b)),
    "grad(velocity)": lambda c, u, b: c.grad(u),
    "strain": lambda c, u, b: (c.grad(u) + c.grad(u).swapaxes(0, 1)) / 2,
    "q_criterion": lambda c, u, b: -np.einsum("ij...,ji...", c.grad(u), c.grad(u)) / 2,
    "r_invariant": lambda c, u, b: -np.linalg.det(np.moveaxis(c.grad(u), (0, 1), (-2, -1))),
    "r_strain": lambda c, u, b: (
        -np.linalg.det(np.moveaxis((c.grad(u) + c.grad(u).swapaxes(0, 1)) / 2, (0, 1), (-2, -1)))
    ),
    "enstrophy_production": lambda c, u, b: np.einsum(
        "i...,ij...,j...", c.curl(u), c.grad(u), c.curl(u)
    ),
    "vorticity[2] - velocity[1]": lambda c, u, b: c.curl(u)[2] - u[1],
    "dot(velocity, grad(velocity).T) + grad(velocity)[0, 2] * x_hat": lambda c, u, b: (
        np.einsum("i...,ji...->j...", u, c.grad(u)) + c.grad(u)[0, 2] * c.x_hat
    ),
    "abs2(grad(velocity))": lambda c, u, b: (c.grad(u) ** 2).sum(axis=(0, 1)),
    "laplacian(velocity, 2)": lambda c, u, b: c.laplacian(u, 2),
    "viscosity * laplacian(velocity_x)": lambda c, u, b: 0.01 * c.laplacian(u[0]),
    "div(velocity_x * magnetic)": lambda c, u, b: kept(c, c.div(kept(c, u[0] * b))),
    "laplacian(abs2(velocity)) + velocity_x": lambda c, u, b: (
        c.laplacian(kept(c, c.abs2(u))) + u[0]
    ),
    "div(outer(velocity, velocity))": lambda c, u, b: c.div(kept(c, c.outer(u, u))),
    "vector_potential": lambda c, u, b: -inverse_laplacian(c, c.curl(b)),
    "magnetic_helicity": lambda c, u, b: c.dot(-inverse_laplacian(c, c.curl(b)), b),
    "sqrt(1 + velocity_x**2) / exp(velocity_y)": lambda c, u, b: (
        np.sqrt(1 + u[0] ** 2) / np.exp(u[1])
    ),
    "abs(velocity) ** 1.5": lambda c, u, b: c.abs2(u) ** 0.75,
    "cos(x) * t * velocity_z + sin(2*pi*z/5)": lambda c, u, b: (
        np.cos(2 * np.pi * np.arange(12) / 12) * 3.0 * u[2]
        + np.sin(2 * np.pi * np.arange(16) / 16)[:, None, None]
    ),
    "2 + rotation": lambda c, u, b: np.full(u[0].shape, 2.5),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_values_are_those_of_numpys_calculus(magnetic, known, text):
    calculus, u, b = known
    expected = EXPRESSIONS[text](calculus, u, b)
    found = evaluate(magnetic.flow, text, time=3.0)
    assert found.shape == np.shape(expected)
    assert relative_error(found, expected) < TOLERANCE["float64"]


def test_means_of_invariants_are_those_of_betchov(magnetic):
    """In a box Q and R have no mean, and vortices are stretched as strain makes strain (1956)."""
    names = ("q_criterion", "r_invariant", "enstrophy_production", "r_strain")
    q, r, stretching, strain = (Evaluation(magnetic.flow, name).reduce("mean") for name in names)
    assert abs(stretching) > 1e-3
    assert max(abs(q), abs(r), abs(stretching - 4 * strain)) <= 1e-12 * abs(stretching)


@pytest.mark.thorough
def test_pressure_balances_the_gradient_of_all_that_moves_the_fluid(magnetic, known):
    calculus, u, b = known
    rate = -calculus.div(kept(calculus, calculus.outer(u, u)))
    rate += kept(calculus, calculus.cross(calculus.curl(b), b + 0.7 * calculus.z_hat))
    rate -= 2 * 0.5 * calculus.cross(calculus.z_hat, u)
    expected = inverse_laplacian(calculus, calculus.div(rate))
    assert relative_error(evaluate(magnetic.flow, "pressure"), expected) < 1e-12
    # Products with it take it as any field.
    gradient = evaluate(magnetic.flow, "pressure * grad(pressure)")
    assert relative_error(gradient, expected * calculus.grad(expected)) < 1e-12


def test_pressure_carries_buoyancy():
    flow = start(
        "cpu",
        *BOUSSINESQ,
        "grid.points=8",
        "initial.flow=formula",
        'initial.fields={ buoyancy = "sin(z)" }',
    ).flow
    z = 2 * np.pi * np.arange(8)[:, None, None] / 8
    # 0 = -dp/dz - N b, with N = 4
    found = evaluate(flow, "pressure")
    np.testing.assert_allclose(found, np.broadcast_to(4 * np.cos(z), found.shape), atol=1e-13)


def test_pressure_of_the_taylor_green_vortex():
    x = 2 * np.pi * np.arange(16) / 16
    z, y, x = x[:, None, None], x[:, None], x
    fields = '["sin(x)*cos(y)*cos(z)", "-cos(x)*sin(y)*cos(z)", "0"]'
    flow = start("cpu", "initial.flow=formula", f"initial.fields={{ velocity = {fields} }}").flow
    expected = (np.cos(2 * x) + np.cos(2 * y)) * (np.cos(2 * z) + 2) / 16
    np.testing.assert_allclose(evaluate(flow, "pressure"), expected, atol=1e-14)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_abc_flow_is_its_own_vorticity(precision):
    flow = start("cpu", "initial.flow=abc", f"numerics.precision={precision}").flow
    tolerance = TOLERANCE[precision]
    velocity, vorticity = evaluate(flow, "velocity"), evaluate(flow, "vorticity")
    assert velocity.dtype == vorticity.dtype == precision
    assert relative_error(vorticity, velocity) < tolerance
    energy = reduce(flow, "kinetic_energy", "mean")
    assert reduce(flow, "helicity", "mean") == pytest.approx(2 * energy, rel=tolerance)
    assert reduce(flow, "cross(velocity, vorticity)", "max") == pytest.approx(
        [0] * 3, abs=tolerance
    )


@pytest.mark.parametrize("text", ["helicity", "velocity", "strain", "1 + 0 * velocity_x"])
def test_reductions_are_those_of_the_values(magnetic, text):
    values = evaluate(magnetic.flow, text)
    axes, evaluation = (-3, -2, -1), Evaluation(magnetic.flow, text)
    for how, expected in (
        ("mean", values.mean(axes)),
        ("max", values.max(axes)),
        ("min", values.min(axes)),
        ("rms", np.sqrt((values**2).mean(axes))),
    ):
        found = evaluation.reduce(how)
        assert np.shape(found) == evaluation.shape
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(InputError, match="'median' of .*; accepted: mean, max, min, rms"):
        evaluation.reduce("median")


def test_spectra_sum_to_means_and_are_those_of_the_run(magnetic):
    flow, whole = magnetic.flow, magnetic.spectra()
    for name in ("velocity", "magnetic"):
        np.testing.assert_allclose(spectrum(flow, name), whole[f"{name}_spectrum"][1], rtol=1e-13)
    cross = cospectrum(flow, "velocity", "magnetic")
    assert cross.sum() == pytest.approx(reduce(flow, "cross_helicity", "mean"), rel=1e-12)
    helical = cospectrum(flow, "velocity", "vorticity").sum()
    assert helical == pytest.approx(reduce(flow, "helicity", "mean"), rel=1e-11)
    with pytest.raises(InputError, match="velocity is a vector, helicity is a scalar"):
        cospectrum(flow, "velocity", "helicity")


def test_modes_are_those_of_the_state_and_of_dealiased_products(magnetic, known):
    calculus, u, _ = known
    flow = magnetic.flow
    modes = Evaluation(flow, "velocity").modes()
    np.testing.assert_array_equal(modes, flow.modes_of(flow.read_state()[:3]))
    actual = Evaluation(flow, "abs2(velocity) + 3").modes()[0]
    expected = calculus.modes(kept(calculus, calculus.abs2(u) + 3))
    geometry = flow.problem.geometry
    integers = np.ix_(*[np.rint(m.wavenumbers()).astype(int) for m in geometry.modes])
    assert relative_error(actual, expected[integers]) < 1e-12


def test_products_lose_what_lies_outside_of_the_sphere():
    flow = start("cpu", *BOX, "numerics.dealiasing=2/3 sphere").flow
    modes, waves = Evaluation(flow, "kinetic_energy").modes()[0], flow.wavenumbers
    z, y, x = (
        axis**2 * over
        for axis, over in zip(
            (waves.z, waves.y, waves.x), flow.problem.over_radii[::-1], strict=True
        )
    )
    outside = z[:, None, None] + y[:, None] + x >= 1
    assert np.abs(modes[~outside]).min() > 0
    assert outside.any()
    assert not modes[outside].any()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["pressure", "vorticity_magnitude", "strain"])
def test_evaluating_changes_nothing(text):
    settings = (*BOX, "time.integrator=rk4")
    untouched = advance(start("cpu", *settings), 4)
    looked_at = start("cpu", *settings)
    for _ in range(4):
        before = modes_of(looked_at)
        evaluation = Evaluation(looked_at.flow, text)
        evaluation.at_points(), evaluation.reduce("rms"), evaluation.spectrum(), evaluation.modes()
        np.testing.assert_array_equal(modes_of(looked_at), before)
        advance(looked_at, 1)
    np.testing.assert_array_equal(modes_of(looked_at), modes_of(untouched))


@pytest.mark.slow
def test_complex_fields_have_densities_phases_and_currents():
    simulation = start(
        "cpu", "equation={ model = 'gpe' }", "grid.points=[12, 16, 1]", "initial.flow=wave",
        "initial.wavevector=[1, 1, 0]", "initial.amplitude=0.2", "numerics.dealiasing=1/2",
    )  # fmt: skip
    flow = simulation.flow
    real, imaginary = evaluate(flow, "psi_real"), evaluate(flow, "psi_imaginary")
    psi = real + 1j * imaginary
    actual = evaluate(flow, "psi")
    assert actual.dtype == np.complex128
    np.testing.assert_array_equal(actual, psi)
    np.testing.assert_allclose(evaluate(flow, "psi_density"), abs(psi) ** 2, rtol=1e-13)
    np.testing.assert_allclose(evaluate(flow, "psi_phase"), np.angle(psi), atol=1e-13)
    calculus = Calculus((1, 16, 12))
    slopes = calculus.grad(real) + 1j * calculus.grad(imaginary)
    actual = evaluate(flow, "imag(conj(psi) * grad(psi))")
    assert relative_error(actual, (psi.conj() * slopes).imag) < 1e-12
    actual = evaluate(flow, "grad(psi) / psi")
    assert relative_error(actual, slopes / psi) < 1e-12
    assert reduce(flow, "psi", "mean") == pytest.approx(psi.mean(), abs=1e-14)
    assert reduce(flow, "psi", "rms") ** 2 == pytest.approx((abs(psi) ** 2).mean())
    assert spectrum(flow, "psi").sum() == pytest.approx((abs(psi) ** 2).mean() / 2)
    with pytest.raises(InputError, match="'max' of a complex scalar; accepted: mean, rms"):
        reduce(flow, "psi", "max")


def test_fields_of_ones_own_model_and_quantities_of_ones_own(tmp_path):
    text = """
from slipstream.equations import Model, Scalar, laplacian
def heat(conductivity):
    s = Scalar("heat")
    return Model({s: conductivity * laplacian(s)})
"""
    settings = own_models(text, tmp_path)("heat", "conductivity = 0.5")
    flow = start("cpu", *settings, "initial.flow=formula", "grid.points=[16, 8, 8]",
                 'initial.fields={ heat = "2 + sin(x) * cos(y)" }').flow  # fmt: skip
    heat = evaluate(flow, "heat")
    s, other = Scalar("heat"), Vector("wind")
    # One field at a time goes to the points: the others wait there.
    actual = evaluate(flow, "conductivity * abs2(grad(heat)) + heat ** 3")
    x, y = 2 * np.pi * np.arange(16) / 16, 2 * np.pi * np.arange(8)[:, None] / 8
    slopes = (np.cos(x) * np.cos(y)) ** 2 + (np.sin(x) * np.sin(y)) ** 2
    np.testing.assert_allclose(actual, 0.5 * slopes + heat**3, atol=1e-13)
    actual = evaluate(flow, sympy.Symbol("conductivity") * abs2(grad(s)) + s**3)
    np.testing.assert_allclose(actual, 0.5 * slopes + heat**3, atol=1e-13)
    with pytest.raises(InputError, match="has the unknown name 'wind'; accepted: heat"):
        evaluate(flow, curl(other))
    with pytest.raises(InputError, match="parameter 'capacity'; accepted: conductivity"):
        evaluate(flow, sympy.Symbol("capacity") * s)


def test_vector_of_ones_own_need_not_be_said_to_have_no_divergence(magnetic):
    u = Vector("velocity")
    expected = evaluate(magnetic.flow, "helicity")
    np.testing.assert_allclose(evaluate(magnetic.flow, dot(u, curl(u))), expected, atol=1e-12)
    sharp = function(sympy.exp, dot(u, u))
    np.testing.assert_allclose(
        evaluate(magnetic.flow, sharp), np.exp(2 * evaluate(magnetic.flow, "kinetic_energy"))
    )


def test_chunks_are_planes_of_all_components(magnetic, monkeypatch):
    monkeypatch.setattr("slipstream.spectral.evaluation._AT_A_TIME", 250)
    expected = evaluate(magnetic.flow, "strain").reshape(9, 16, 10, 12)
    actual = np.full_like(expected, np.nan)
    sizes = []

    def consumer(values, plane):
        sizes.append(values.shape[1])
        actual[:, plane : plane + values.shape[1]] = values

    Evaluation(magnetic.flow, "strain").each_chunk(consumer)
    assert max(sizes) <= 2
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("helicity", 2),  # the values, and a sum of products
        ("grad(velocity)", 9),
        ("vorticity_magnitude", 1),
        # Six velocities and slopes do not go to the points together, and no sum can be split.
        ("exp(-abs(helicity))", 1 + 3),
    ],
)
def test_few_fields_wait_at_the_points(monkeypatch, text, fields):
    flow = start("cpu", *BOX).flow
    assert len(flow.working) == 3
    sizes, empty = [], flow.device.empty

    def counted(shape, dtype):
        sizes.append(np.prod(shape))
        return empty(shape, dtype)

    monkeypatch.setattr(flow.device, "empty", counted)
    evaluate(flow, text)
    whole = np.prod(flow.problem.geometry.physical_box.shape)
    assert sum(size for size in sizes if size >= whole) == fields * whole


def test_points_of_the_run_are_those_of_expressions(magnetic):
    np.testing.assert_array_equal(points_of(magnetic), evaluate(magnetic.flow, "velocity"))
