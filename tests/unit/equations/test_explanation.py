"""Explanations of models tell people of all that is computed."""

import pytest

from lowered_models import lowered, nu, s
from slipstream.equations import Model, dot, grad, laplacian, lower, y_hat
from slipstream.spectral.explanation import explained


@pytest.mark.parametrize("name", ["hd", "boussinesq", "mhd"])
def test_explanation_tells_of_all_that_is_computed(name):
    required = {"viscosity": 0.1, "diffusivity": 0.1, "resistivity": 0.1, "buoyancy_frequency": 1.0}
    model = lowered(name, **required)
    lines = list(explained(model))

    def named(part):
        return [what for kind, what, _ in lines if kind == part]

    assert named("to physical space") == [str(one) for one in model.symbols]
    assert named("products, back") == [f"T{n}" for n in range(len(model.products))]
    rates = " ".join(text for kind, _, text in lines if kind == "rates")
    for number in range(len(model.products)):
        assert f"T{number}" in rates
    for component in model.components:
        assert f"d {component} / dt" in named("rates")
    decays = {what: text for kind, what, text in lines if kind == "decay"}
    assert decays["velocity"] == "exp(-(k^2*viscosity) t)"
    assert named("projection") == [one for one in ("velocity", "magnetic") if one in decays]


def test_explanation_of_a_linear_model_has_no_products():
    model = lower(Model({s: nu * laplacian(s) + dot(y_hat, grad(s)) + 1}))
    text = {part: text for part, _, text in explained(model)}
    assert text["decay"] == "exp(-(k^2*nu) t)"
    assert "ky" in text["rates"]
