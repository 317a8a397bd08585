"""Equations in vector notation, and their form for a pseudospectral method.

A `Model` is written with the operators of `vector_calculus`; the models that Slipstream ships are
in `models`. `lowering` turns it into fields to transform, products and multipliers, with as few
transforms as possible, and `code_generation` writes the functions that the kernels call. This
package is independent of devices and grids.
"""

from slipstream.equations.lowering import Lowered, lower
from slipstream.equations.model_definition import Model
from slipstream.equations.vector_calculus import (
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
    hilbert,
    imag,
    inverse_curl,
    inverse_laplacian,
    laplacian,
    outer,
    parameter,
    real,
    riesz,
    spectral,
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
    "hilbert",
    "imag",
    "inverse_curl",
    "inverse_laplacian",
    "laplacian",
    "lower",
    "outer",
    "parameter",
    "real",
    "riesz",
    "spectral",
    "t",
    "x",
    "x_hat",
    "y",
    "y_hat",
    "z",
    "z_hat",
]
