"""Equations in vector notation, and what a pseudospectral method makes of them.

`language` is what models are written in, `models` has those that come along; `lowering` finds the
fewest transforms, and `code` writes the kernels' functions. Nothing here knows of devices or grids.
"""

from slipstream.equations.language import (
    Model,
    Quantity,
    Scalar,
    Vector,
    abs2,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    laplacian,
    outer,
    x_hat,
    y_hat,
    z_hat,
)
from slipstream.equations.lowering import Lowered, lower

__all__ = [
    "Lowered",
    "Model",
    "Quantity",
    "Scalar",
    "Vector",
    "abs2",
    "cross",
    "curl",
    "div",
    "dot",
    "function",
    "grad",
    "laplacian",
    "lower",
    "outer",
    "x_hat",
    "y_hat",
    "z_hat",
]
