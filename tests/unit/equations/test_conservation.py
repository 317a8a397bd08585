"""Which products conserve the energy of a model, so that a residual of its budget is an error."""

import pytest
import sympy

from lowered_models import lowered, nu, s, u, v
from slipstream.equations import Model, Scalar, div, dot, grad, laplacian, models, outer
from slipstream.equations.fewest_transforms import FlatAxes
from slipstream.equations.lowering import lower

width = sympy.Symbol("width", real=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hd", True),
        ("boussinesq", True),
        # The model names what its products dissipate.
        pytest.param("smagorinsky", True, marks=pytest.mark.slow),
        pytest.param("isothermal", False, marks=pytest.mark.slow),
        # Its energy has gradients.
        pytest.param("lans-alpha", False, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
def test_shipped_models(name, expected):
    known = models.parameters_of(models.find(name))
    needed = {key: 0.1 for key, one in known.items() if one[1] is ...}
    assert lowered(name, **needed).balances_energy is expected


@pytest.mark.parametrize(
    ("equations", "flat", "expected"),
    [
        ({u: -div(outer(u, u)) + nu * laplacian(u)}, (), True),
        ({u: -dot(u, grad(u))}, (), True),
        ({u: -dot(u, grad(u))}, (2,), True),
        ({u: -dot(u, u) * u}, (), False),
        ({v: -dot(v, grad(v)) + nu * laplacian(v)}, (), False),  # it has a divergence
        ({s: (s - s**3) / width**2 + laplacian(s)}, (), False),  # Allen-Cahn
        ({s: (s - s**3) / width**2 + laplacian(s)}, (2,), False),
        ({s: laplacian(s) - s}, (), True),  # without products nothing is exchanged
        ({u: -dot(u, grad(u)), s: -dot(u, grad(s))}, (), True),
        ({u: -dot(u, grad(u)), s: -dot(u, grad(s)) + s**2}, (), False),
    ],
)
def test_own_equations(equations, flat, expected):
    assert lower(Model(equations), FlatAxes(flat)).balances_energy is expected


def test_passive_fields_do_not_count():
    other = Scalar("other")
    model = Model({u: -dot(u, grad(u)), other: other**2}, passive=[other])
    assert lower(model).balances_energy
