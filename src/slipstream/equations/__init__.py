"""Equations in vector notation, and what a pseudospectral method makes of them.

A `Model` is written in `vector_notation`; `models` has those that come along. `lowering` finds the
fewest transforms, and `cpp_generation` writes the kernels' functions. Nothing here knows of devices
or grids.
"""

from slipstream.equations.lowering import Lowered, lower
from slipstream.equations.model_definition import Model
from slipstream.equations.vector_notation import (
    Quantity,
    Scalar,
    Vector,
    abs2,
    conj,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    imag,
    laplacian,
    outer,
    real,
    t,
    x,
    x_hat,
    y,
    y_hat,
    z,
    z_hat,
)

__all__ = [
    "Lowered",
    "Model",
    "Quantity",
    "Scalar",
    "Vector",
    "abs2",
    "conj",
    "cross",
    "curl",
    "div",
    "dot",
    "function",
    "grad",
    "imag",
    "laplacian",
    "lower",
    "outer",
    "real",
    "t",
    "x",
    "x_hat",
    "y",
    "y_hat",
    "z",
    "z_hat",
]
