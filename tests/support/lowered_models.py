"""Fields for tests of equations, and what equations of them are lowered to."""

import sympy

from slipstream.equations import Scalar, Vector, models

u, b = Vector("velocity", solenoidal=True), Vector("magnetic", solenoidal=True)
v, s, q = Vector("moving"), Scalar("scalar"), Scalar("other")
nu = sympy.Symbol("nu", real=True)


def lowered(name, scalars=(), **given):
    """Return a model that comes along; parameters that are not given have their defaults."""
    known = models.parameters_of(models.find(name))
    values = {key: given.get(key, known[key][1]) for key in known}
    return models.lowered(name, values, scalars=scalars)


def parts(model):
    """Return how many fields go to physical space, and how many products come back."""
    return len(model.inputs), len(model.products)
