"""Expressions of SymPy as functions of arrays, of NumPy or whatever follows its protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from sympy.printing.numpy import NumPyPrinter


def array_function(
    arguments: Sequence[sympy.Symbol],
    expression: Any,
    functions: Mapping[str, Any] | None = None,
    cse: bool = False,
) -> Callable[..., Any]:
    """Return expressions as a function of arrays.

    `functions` take the place of NumPy's of the same names. With `cse`, what several expressions
    have in common is computed once.
    """
    functions = dict(functions or {})
    # As SymPy sets it up where it is given the module's name. To that it would import all names of
    # NumPy, and with them modules that nobody needs and that take a tenth of a second to load.
    printer = NumPyPrinter(
        {
            "fully_qualified_modules": False,
            "inline": True,
            "allow_unknown_functions": True,
            "user_functions": {name: name for name in functions},
        }
    )
    modules = [functions, {**vars(np), "numpy": np}]
    return sympy.lambdify(arguments, expression, modules, printer=printer, cse=cse)
