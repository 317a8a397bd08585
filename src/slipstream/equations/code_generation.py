"""Code for expressions: C++ of a lowered model, which the kernels call, and functions of arrays.

Two headers are written: one with the product at a point (see `fused_product.hpp`), one with the
rates of a mode (see `runge_kutta_substage.hpp`). Both take the model's parameters at run time, so a
new viscosity needs no compilation.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from sympy.printing.c import C99CodePrinter
from sympy.printing.numpy import NumPyPrinter

from slipstream.equations.fourier_forms import (
    WAVENUMBERS,
    Filter,
    Value,
    filters_in,
    parameters_in,
    values_in,
)
from slipstream.equations.lowering import Lowered

# A product takes one over the spacing along x, y and z before the parameters of the model.
FIRST_PARAMETER = 3
# Factors of the components of a speed, by its size: spreading at the rate D k^2 counts as the speed
# D k, at the largest k that is usually kept.
_SQUARES = " + ".join(f"parameters[{axis}] * parameters[{axis}]" for axis in range(3))
_SCALES = {
    3: [f"parameters[{axis}]" for axis in range(3)],
    1: [f"{2 * math.pi / 3!r} * ({_SQUARES})"],
}


class _Printer(C99CodePrinter):
    """Prints numbers as `Real`, and whole powers as products."""

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:
        # Suffixes distinguish these names from names of the kernels, and parameters from fields.
        if symbol in WAVENUMBERS:
            return symbol.name
        if isinstance(symbol, Filter):
            return f"filter_{_checksum(symbol, symbol.function, symbol.at_zero)}"
        if not isinstance(symbol, Value):
            return f"{symbol.name}_number"
        if symbol.filtered == 1:
            return f"{symbol.name}_value"
        name, filters = str(symbol.undifferentiated), filters_in(symbol.filtered)
        own = [(one.function, one.at_zero) for one in filters]
        return f"{name}_{_checksum(symbol, own)}_value"

    def _print_Integer(self, number: sympy.Integer) -> str:
        return f"Real({int(number)})"

    _print_Zero = _print_One = _print_NegativeOne = _print_Integer

    def _print_Rational(self, number: sympy.Rational) -> str:
        return f"Real({number.p}.0 / {number.q})"

    _print_Half = _print_Rational

    def _print_NumberSymbol(self, number: sympy.NumberSymbol) -> str:
        return f"Real({float(number)!r})"

    def _print_Float(self, number: sympy.Float) -> str:
        return f"Real({float(number)!r})"

    def _print_Pow(self, power: sympy.Pow) -> str:
        base, exponent = power.as_base_exp()
        if exponent == sympy.Rational(-1, 2):
            return f"(Real(1) / {self._print(sympy.sqrt(base))})"
        if exponent.is_Integer and 0 < abs(int(exponent)) <= 16:
            text = " * ".join([self.parenthesize(base, 100)] * abs(int(exponent)))
            return f"({text})" if exponent > 0 else f"(Real(1) / ({text}))"
        return f"Real({super()._print_Pow(power)})"

    def _print_Mul(self, product: sympy.Mul) -> str:
        if product.args and product.args[0] == -1:
            return f"-{self.parenthesize(sympy.Mul(*product.args[1:]), 100)}"
        return super()._print_Mul(product)

    def _print_Function(self, call: sympy.Function) -> str:
        return f"Real({super()._print_Function(call)})"


def _checksum(*parts: Any) -> str:
    """Return a checksum that makes names unique that are not valid in C++."""
    return f"{zlib.crc32(repr(parts).encode()):08x}"


_print = _Printer({"math_macros": {}}).doprint


@functools.cache
def product_header(model: Lowered) -> str:
    """Return the header that defines ``pointwise``."""
    lines = [f"  const Real {_print(s)} = in[{i}];" for i, s in enumerate(model.symbols)]
    count, parts = len(model.products), [part for speed in model.speeds for part in speed]
    several = [*model.products, *parts]
    lines += _parameters(model, FIRST_PARAMETER, {s for one in several for s in one.free_symbols})
    shared, several = sympy.cse(several, sympy.numbered_symbols("shared"))
    lines += [f"  const Real {_print(name)} = {_print(value)};" for name, value in shared]
    lines += [f"  out[{i}] = {_print(product)};" for i, product in enumerate(several[:count])]
    scales = [scale for speed in model.speeds for scale in _SCALES[len(speed)]]
    speeds = [
        f"fabs(double({_print(part)})) * {scale}"
        for part, scale in zip(several[count:], scales, strict=True)
    ]
    return "\n".join(
        [
            "#pragma once",
            '#include "portability.hpp"',
            "INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS],",
            "                        const double* RESTRICT parameters) {",
            *lines,
            f"  return {' + '.join(speeds) or '0'};",
            "}",
        ]
    )


@functools.cache
def mode_header(model: Lowered) -> str:
    """Return the header of functions of a mode: ``rates``, ``decay_rates`` and others."""
    size = len(model.components)
    rates = [
        _sum_of_modes({f"products[{p}]": factor for p, factor in enumerate(row)})
        for row in model.multipliers
    ]
    linear = [
        _sum_of_modes({f"state[{other}]": factor for other, factor in row.items()})
        for row in model.linear
    ]
    steady = [
        f"  if (kx == 0 && ky == 0 && kz == 0) rate[{i}].re += {_print(value)};"
        for i, value in enumerate(model.constant)
        if value != 0
    ]
    body = [
        f"  rate[{i}] = {' + '.join([*r, *li]) or 'Complex{0, 0}'};"
        for i, (r, li) in enumerate(zip(rates, linear, strict=True))
    ]
    project = [f"  remove_gradient(rate + {first}, kx, ky, kz);" for first in model.vectors]
    is_sheared = model.shear != 0
    if is_sheared:
        waves = "shear_of(parameters), kx, ky, kz"
        project += [
            f"  turn_with_shear(rate + {first}, state[{first + 1}], {waves});"
            for first in model.vectors
        ]
    inputs = [_sum_of_modes(_of_state(model, one)) for one in model.inputs]
    wave = "Real kx, Real ky, Real kz, const double* RESTRICT parameters"
    everything = model.parameters
    decays = list(dict.fromkeys(model.decay))
    decay_of = ", ".join(str(decays.index(rate)) for rate in model.decay)
    return "\n".join(
        [
            "#pragma once",
            '#include "projection.hpp"',
            '#include "wave_filters.hpp"',
            f"constexpr int STATE = {size}, PRODUCTS = {max(1, len(model.products))};",
            f"constexpr int INPUTS = {len(model.inputs)};",
            f"constexpr int DECAYS = {len(decays)}, DECAY_OF[] = {{{decay_of}}};",
            f"constexpr bool SEPARABLE = {str(all(map(is_separable, decays))).lower()};",
            f"constexpr bool RATES_READ_STATE = {str(any(model.linear) or is_sheared).lower()};",
            f"constexpr bool SHEARED = {str(is_sheared).lower()};",
            "INLINE Real shear_of(const double* RESTRICT parameters) {",
            *_parameters(model, 0, model.shear.free_symbols),
            f"  return {_print(model.shear)};",
            "}",
            "INLINE void project_vectors(Complex* state, Real kx, Real ky, Real kz) {",
            *[f"  remove_gradient(state + {first}, kx, ky, kz);" for first in model.vectors],
            "}",
            f"INLINE void rates(const Complex* products, const Complex* state, {wave},",
            "                  Complex* rate) {",
            *_parameters(model, 0, everything),
            *_filters(model.rate_factors),
            *body,
            *project,
            *steady,
            "}",
            f"INLINE void decay_rates({wave}, Real* rate) {{",
            *_parameters(model, 0, everything),
            *_filters(model.decay),
            *[f"  rate[{i}] = {_print(rate)};" for i, rate in enumerate(model.decay)],
            "}",
            f"INLINE void damping_and_driving({wave}, Real* damping, Real* driving) {{",
            *_parameters(model, 0, everything),
            *_filters([part for parts in model.damping for part in parts]),
            *[line for i, parts in enumerate(model.damping) for line in _by_sign(i, parts)],
            "}",
            f"INLINE void inputs_of(const Complex* state, {wave}, Complex* input) {{",
            *_parameters(model, 0, everything),
            *_filters(model.input_filters),
            *[f"  input[{i}] = {' + '.join(terms)};" for i, terms in enumerate(inputs)],
            "}",
        ]
    )


@functools.cache
def linear_header(model: Lowered, coupled: tuple[tuple[int, int], ...]) -> str:
    """Return the lines of the matrix of a mode's linear terms, for `mode_header`."""
    size = len(model.components)
    rows, columns = (", ".join(str(pair[i]) for pair in coupled) for i in (0, 1))
    lines = []
    for row, (others, decay) in enumerate(zip(model.linear, model.decay, strict=True)):
        entries = dict(others)
        entries[row] = entries.get(row, sympy.S.Zero) - decay
        for column, factor in entries.items():
            real, imaginary = sympy.expand(factor).as_real_imag()
            parts = f"{_print(real)}, {_print(imaginary)}"
            lines.append(f"  matrix[{row * size + column}] = {{{parts}}};")
    project = [
        f"  remove_gradient_of_columns(matrix + {first * size}, kx, ky, kz);"
        for first in model.vectors
        if (first, first + 1) in coupled
    ]
    return "\n".join(
        [
            f"constexpr int COUPLED = {len(coupled)}, ROW_OF[] = {{{rows}}};",
            f"constexpr int COLUMN_OF[] = {{{columns}}};",
            "INLINE void remove_gradient_of_columns(Complex* rows, Real kx, Real ky, Real kz) {",
            "  for (int j = 0; j < STATE; ++j) {",
            "    Complex vector[3] = {rows[j], rows[STATE + j], rows[2 * STATE + j]};",
            "    remove_gradient(vector, kx, ky, kz);",
            "    for (int i = 0; i < 3; ++i) rows[i * STATE + j] = vector[i];",
            "  }",
            "}",
            "INLINE void linear_matrix(Real kx, Real ky, Real kz,",
            "                          const double* RESTRICT parameters, Complex* matrix) {",
            *_parameters(model, 0, model.parameters),
            *_filters([*model.decay, *model.rate_factors]),
            "  for (int i = 0; i < STATE * STATE; ++i) matrix[i] = {0, 0};",
            *lines,
            *project,
            "}",
        ]
    )


def _by_sign(component: int, parts: list[sympy.Expr]) -> list[str]:
    """Return the lines that add the parts of a rate to the damping or driving of a component."""
    lines = [f"  damping[{component}] = driving[{component}] = 0;"]
    for number, part in enumerate(parts):
        name = f"part_{component}_{number}"
        lines += [
            f"  const Real {name} = {_print(part)};",
            f"  damping[{component}] += {name} > 0 ? {name} : Real(0);",
            f"  driving[{component}] -= {name} < 0 ? {name} : Real(0);",
        ]
    return lines


def _parameters(model: Lowered, first: int, used: Iterable[sympy.Symbol]) -> list[str]:
    used = set(used)
    return [
        f"  const Real {_print(name)} = Real(parameters[{first + i}]);"
        for i, name in enumerate(model.parameters)
        if name in used
    ]


def _filters(factors: Iterable[sympy.Expr]) -> list[str]:
    """Return the lines that compute the filters of some multipliers."""
    used = {filter_ for factor in factors for filter_ in filters_in(factor)}
    return [
        f"  const Real {_print(filter_)} = filtered(kx, ky, kz, {_print(filter_.function)},"
        f" {_print(filter_.at_zero)});"
        for filter_ in sorted(used, key=_print)
    ]


def _of_state(model: Lowered, expression: sympy.Expr) -> dict[str, sympy.Expr]:
    """Return the factor of each component in a sum of values."""
    result: dict[str, sympy.Expr] = {}
    for value in values_in(expression):
        name = f"state[{model.components.index(value.undifferentiated)}]"
        factor = expression.coeff(value) * value.multiplier
        result[name] = result.get(name, 0) + factor
    return result


def _sum_of_modes(factors: dict[str, sympy.Expr]) -> list[str]:
    """Return the terms of a sum of modes with complex factors."""
    real: list[str] = []
    imaginary: list[str] = []
    for name, factor in factors.items():
        parts = sympy.expand(factor).as_real_imag()
        for part, terms in zip(parts, (real, imaginary), strict=True):
            if part == 1:
                terms.append(name)
            elif part != 0:
                terms.append(f"({_print(sympy.factor_terms(part))}) * {name}")
    return real + ([f"times_i({' + '.join(imaginary)})"] if imaginary else [])


def is_separable(rate: sympy.Expr) -> bool:
    """Whether a rate is a sum of polynomials of one wavenumber each."""
    if filters_in(rate):
        return False
    terms = sympy.Poly(rate, *WAVENUMBERS).monoms()
    return all(sum(order > 0 for order in orders) <= 1 for orders in terms)


@functools.lru_cache(256)
def wave_function(expression: sympy.Basic) -> Callable[..., Any]:
    """Return a multiplier, or a matrix, as a function of kx, ky, kz, then its parameters."""
    filters = filters_in(expression)
    numbers = parameters_in([expression])
    if not filters:
        return array_function((*WAVENUMBERS, *numbers), expression)
    whole = array_function((*WAVENUMBERS, *filters, *numbers), expression)
    filter_functions = [
        array_function((*WAVENUMBERS, *numbers), part)
        for filter_ in filters
        for part in (filter_.function, filter_.at_zero)
    ]

    def function(kx: Any, ky: Any, kz: Any, *values: float) -> Any:
        # Python's numbers would raise an error when divided by zero.
        kx, ky, kz = (k if hasattr(k, "shape") else np.float64(k) for k in (kx, ky, kz))
        at_zero = (kx == 0) & (ky == 0) & (kz == 0)
        filtered = []
        with np.errstate(all="ignore"):
            for inside, mean in zip(filter_functions[::2], filter_functions[1::2], strict=True):
                value = inside(kx, ky, kz, *values)
                value = np.where(np.isfinite(value), value, 0.0)
                filtered.append(np.where(at_zero, mean(kx, ky, kz, *values), value))
        return whole(kx, ky, kz, *filtered, *values)

    return function


def array_function(
    arguments: Sequence[sympy.Symbol],
    expression: Any,
    functions: Mapping[str, Any] | None = None,
    cse: bool = False,
) -> Callable[..., Any]:
    """Return expressions as a function of arrays, of NumPy or libraries with its protocols."""
    several = isinstance(expression, (list, tuple))
    function_items = tuple((functions or {}).items())
    return _compiled(
        tuple(arguments), tuple(expression) if several else expression, function_items, cse
    )


@functools.lru_cache(1024)
def _compiled(
    arguments: tuple[sympy.Symbol, ...],
    expression: Any,
    function_items: tuple[tuple[str, Any], ...],
    cse: bool,
) -> Callable[..., Any]:
    """Return the function of `array_function`, the same for the same expressions."""
    functions = dict(function_items)
    shown = list(expression) if isinstance(expression, tuple) else expression
    # SymPy's namespace for the name of the module. Given that name, SymPy would import all of
    # NumPy's names, including modules that nobody needs and that take a tenth of a second to load.
    printer = NumPyPrinter(
        {
            "fully_qualified_modules": False,
            "inline": True,
            "allow_unknown_functions": True,
            "user_functions": {name: name for name in functions},
        }
    )
    modules = [functions, {**vars(np), "numpy": np}]
    function: Callable[..., Any] = sympy.lambdify(
        arguments, shown, modules, printer=printer, cse=cse
    )
    return function
