"""The fate of parameters and constants of equations."""

import pytest
import sympy

from lowered_models import lowered, nu, s, u
from slipstream.equations import (
    Model,
    Scalar,
    code_generation,
    cross,
    curl,
    div,
    dot,
    grad,
    laplacian,
    lower,
    x_hat,
    z_hat,
)
from slipstream.equations.fourier_forms import WAVENUMBERS


def test_parameter_that_is_zero_leaves_no_term():
    plain = lowered("hd", viscosity=0.0)
    assert set(plain.decay) == {0}
    assert not any(plain.linear)
    assert plain.parameters == ()
    assert any(lowered("hd", viscosity=0.0, rotation=1.0).linear)
    still = lowered("boussinesq", viscosity=0.0, diffusivity=0.1, buoyancy_frequency=0.0)
    assert [str(name) for name in still.parameters] == ["diffusivity"]
    assert not any(still.linear)
    free = lowered("mhd", viscosity=0.1, resistivity=0.1)
    assert not any(free.linear)


@pytest.mark.slow
def test_other_numbers_need_no_other_kernels():
    first = lowered("mhd", viscosity=0.1, resistivity=0.1, mean_field=1.0)
    other = lowered("mhd", viscosity=0.25, resistivity=3.0, mean_field=-7.5)
    assert other is first
    fields = [str(name) for name in first.parameters]
    assert fields == ["mean_field", "resistivity", "viscosity"]
    for header in (code_generation.product_header, code_generation.mode_header):
        assert "0.25" not in header(first)
    # A whole number changes the equations, not a factor in them.
    assert lowered("mhd", viscosity=0.1, resistivity=0.1, viscosity_power=2) is not first


def test_power_of_the_laplacian_is_that_of_the_wavenumber():
    for power in (1, 2, 3):
        model = lowered("hd", viscosity=0.5, viscosity_power=power)
        numbers = dict(zip(WAVENUMBERS, (1, 2, -2), strict=True)) | {model.parameters[0]: 0.5}
        assert {float(rate.subs(numbers)) for rate in model.decay} == {0.5 * 9**power}


def test_uniform_velocity_turns_modes_and_diffusion_alone_lets_them_decay():
    model = lower(Model({s: nu * laplacian(s) - 3 * dot(x_hat, grad(s))}))
    kx, ky, kz = WAVENUMBERS
    assert sympy.expand(model.decay[0] - nu * (kx**2 + ky**2 + kz**2)) == 0
    assert sympy.expand(model.linear[0][0] + 3 * sympy.I * kx) == 0


def test_constants_have_no_derivatives():
    assert not div(2 * z_hat).forms[0].terms
    assert not any(form.terms for form in cross(curl(nu * z_hat), u).forms)
    assert [form.terms for form in cross(z_hat, x_hat).forms] == [{}, {1: 1}, {}]


def test_no_parameter_makes_a_combination_divide_by_zero():
    p, q = sympy.symbols("p q", real=True)
    a, b = Scalar("a"), Scalar("b")
    equations = {a: p * a**2 + q * b**2 + a * b, b: a**2 + b**2 + 2 * (a * b)}
    lowered = lower(Model(equations))
    for expression in (*lowered.products, *sum(map(list, lowered.multipliers), [])):
        assert not sympy.fraction(sympy.together(expression))[1].free_symbols
