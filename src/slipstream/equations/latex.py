"""Quantities and models as LaTeX, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from slipstream.equations.fourier_forms import AXES, SQUARE, WAVENUMBERS, Known, Value
from slipstream.equations.vector_calculus import Quantity, Unknown

# The letters of the literature for common names.
_USUAL = {
    "velocity": "u",
    "magnetic": "b",
    "vorticity": r"\omega",
    "buoyancy": "b",
    "temperature": "T",
    "pressure": "p",
    "viscosity": r"\nu",
    "resistivity": r"\eta",
    "diffusivity": r"\kappa",
    "buoyancy_frequency": "N",
    "rotation": r"\Omega",
    "shear": "S",
    "mean_field": "B_0",
    "sound_speed": "c",
    "healing_length": r"\xi",
}
# Precedence: a sum, a product of vectors, a product, a letter.
_SUM = 0
_VECTORS = 1
_PRODUCT = 2
_LETTER = 3
_BETWEEN = {"dot": r" \cdot ", "cross": r" \times ", "outer": r" \otimes "}
_BEFORE = {"grad": r"\nabla ", "div": r"\nabla \cdot ", "curl": r"\nabla \times "}
_LARGEST_DENOMINATOR = 12
# A sign, the text after it, and the precedence of that text.
Term = tuple[int, str, int]


class Notation:
    """The letters of quantities, all different."""

    def __init__(self, *quantities: Quantity) -> None:
        names = {name for one in quantities for name in _names_in(one)}
        letters = {name: _letter(*name) for name in names}
        shared = list(letters.values())
        self._letters = {
            name: letter if shared.count(letter) == 1 else _word(*name)
            for name, letter in letters.items()
        }

    def of(self, quantity: Quantity) -> str:
        """Return a quantity as LaTeX."""
        return self._joined(self._terms(quantity))

    def carried(self, shear: sympy.Expr, name: str) -> str:
        """Return the term of advection by a mean shear flow along x."""
        sign, written, level = self._number(shear)
        rate = _bracketed(written) if level == _SUM else written
        return rf" {'-' if sign < 0 else '+'} {rate} y \partial_x {name}"

    def name(self, field: Unknown) -> str:
        """Return the letter that stands for `field`."""
        return self._letters[field.name, field.rank]

    def _joined(self, terms: list[Term]) -> str:
        text = ""
        for sign, body, _ in terms:
            text += (" - " if text else "-") if sign < 0 else (" + " if text else "")
            text += body
        return text or "0"

    def _terms(self, quantity: Quantity) -> list[Term]:
        """Return the nonzero terms of a sum."""
        if not any(form.terms for form in quantity.forms):
            return []
        if isinstance(quantity, Unknown):
            return [(1, self.name(quantity), _LETTER)]
        if not quantity.parts:
            words = "".join(
                rf"\{letter}" if letter in "#$%&_{}" else letter for letter in quantity.text
            )
            return [(1, rf"\text{{{words}}}", _LETTER)]
        operator, *operands = quantity.parts
        if operator == "sum":
            return [term for operand in operands for term in self._terms(operand)]
        if operator in ("negative", "scale"):
            return self._scaled(quantity)
        if operator == "number":
            return [self._number(operands[0])]
        if operator == "letter":
            return [(1, operands[0], _LETTER)]
        if operator == "quotient":
            above, below = (self.of(operand) for operand in operands)
            return [(1, rf"\frac{{{above}}}{{{below}}}", _LETTER)]
        if operator in ("product", "dot", "cross", "outer"):
            return [self._multiplied(operator, *operands)]
        return [(1, *self._applied(operator, operands))]

    def _scaled(self, quantity: Quantity) -> list[Term]:
        factor: Any = sympy.Integer(1)
        while quantity.parts[:1] in (("negative",), ("scale",)):
            factor *= -1 if quantity.parts[0] == "negative" else quantity.parts[1]
            quantity = quantity.parts[-1]
        sign, number, level = self._number(factor)
        terms = self._terms(quantity)
        if number == "1":
            return [(sign * term_sign, body, level) for term_sign, body, level in terms]
        if level == _SUM:
            number = _bracketed(number)
        if len(terms) != 1:
            return [(sign, f"{number} {_bracketed(self._joined(terms))}", _PRODUCT)]
        term_sign, body, level = terms[0]
        return [
            (sign * term_sign, body if body == "1" else f"{number} {body}", min(level, _PRODUCT))
        ]

    def _number(self, number: Any) -> Term:
        number = sympy.sympify(number)
        sign = -1 if number.could_extract_minus_sign() else 1
        number = sign * number
        decimals = {
            fraction: sympy.Float(fraction)
            for fraction in number.atoms(sympy.Rational)
            if fraction.q > _LARGEST_DENOMINATOR
        }
        symbol_names = {
            symbol: self._letters.get((str(symbol), 0), sympy.latex(symbol))
            for symbol in number.free_symbols
        }
        written = sympy.latex(number.xreplace(decimals), symbol_names=symbol_names)
        level = _SUM if number.is_Add else _PRODUCT if number.is_Mul else _LETTER
        return sign, written, level

    def _multiplied(self, operator: str, first: Quantity, second: Quantity) -> Term:
        # (u . grad) v, the usual notation.
        if operator == "dot" and second.parts[:1] == ("grad",):
            sign, left = self._operand(first, _LETTER)
            right_sign, right = self._operand(second.parts[1], _LETTER)
            along = _bracketed(rf"{left} \cdot \nabla")
            return sign * right_sign, f"{along} {right}", _PRODUCT
        level = _PRODUCT if operator == "product" else _LETTER
        sign, left = self._operand(first, level)
        right_sign, right = self._operand(second, level)
        between = _BETWEEN.get(operator, " ")
        level = _VECTORS if operator in _BETWEEN else _PRODUCT
        return sign * right_sign, left + between + right, level

    def _operand(self, quantity: Quantity, least: int) -> tuple[int, str]:
        """Return the sign of an operand, and the rest, in brackets if its precedence is low."""
        terms = self._terms(quantity)
        if len(terms) != 1:
            return 1, _bracketed(self._joined(terms))
        sign, body, level = terms[0]
        return sign, body if level >= least else _bracketed(body)

    def _inside(self, quantity: Quantity) -> str:
        """Return an operand, in brackets unless it is a single letter."""
        sign, body = self._operand(quantity, _LETTER)
        return body if sign > 0 else _bracketed(f"-{body}")

    def _applied(self, operator: str, operands: list[Any]) -> tuple[str, int]:
        inner = operands[-1] if operator in ("function", "named", "spectral") else operands[0]
        if operator in _BEFORE:
            return _BEFORE[operator] + self._inside(inner), _PRODUCT
        if operator == "laplacian":
            return rf"{self._power_of_laplacian(operands[1])} {self._inside(inner)}", _PRODUCT
        if operator == "inverse_curl":
            return rf"(\nabla \times)^{{-1}} {self._inside(inner)}", _PRODUCT
        if operator in ("named", "spectral"):
            name = operands[0]
            letter = rf"\mathcal{{{name}}}" if operator == "named" else self._factor(name)
            return rf"{letter} {self._inside(operands[1])}", _PRODUCT
        if operator == "power":
            return f"{self._inside(inner)}^{{{operands[1]}}}", _PRODUCT
        if operator == "component":
            axes = "".join(AXES[argument] for argument in operands[1:])
            axes = axes if len(axes) == 1 else f"{{{axes}}}"
            return f"{{{self._inside(inner)}}}_{axes}", _LETTER
        if operator == "transpose":
            return rf"{{{self._inside(inner)}}}^{{\mathsf T}}", _LETTER
        whole = self.of(inner)
        if operator == "abs2":
            return rf"\left|{whole}\right|^{{2}}", _LETTER
        if operator == "conj":
            return rf"\overline{{{whole}}}", _LETTER
        if operator in ("real", "imag"):
            return rf"\operatorname{{{operator[:2].title()}}} {_bracketed(whole)}", _PRODUCT
        argument = sympy.Symbol("argument", real=True)
        written = sympy.latex(operands[0](argument), symbol_names={argument: whole})
        return written, _PRODUCT

    def _power_of_laplacian(self, power: sympy.Expr) -> str:
        if power.is_Integer:
            return rf"\nabla^{{{2 * power}}}"
        return rf"\left[-(-\nabla^2)^{{{sympy.latex(power)}}}\right]"

    def _factor(self, factor: sympy.Expr) -> str:
        """Return a function of the wavenumbers as an operator."""
        written = factor.xreplace({SQUARE: sympy.Symbol("k", nonnegative=True) ** 2})
        return rf"\left[{sympy.latex(written)}\right]"


def model_latex(model: Any) -> str:
    """Return the equations of a model as aligned lines of LaTeX."""
    notation = Notation(*model.equations, *model.equations.values())
    lines, conditions = [], []
    solenoidal = [field for field in model.equations if field.solenoidal]
    shear = sympy.sympify(model.shear)
    projected = [one for one in solenoidal if _has_gradient(one, model.equations[one], shear)]
    for field, right in model.equations.items():
        name, terms = notation.name(field), notation.of(right)
        if field in projected:
            # The gradient that keeps the divergence zero; for the only such field it is called
            # pressure.
            index = "" if len(projected) == 1 else f"_{{{name}}}"
            terms = rf"{'' if terms == '0' else terms} - \nabla p{index}".strip()
        carried = notation.carried(shear, name) if shear != 0 else ""
        lines.append(rf"\partial_t {name}{carried} &= {terms}")
        if field.solenoidal:
            conditions.append(rf"\nabla \cdot {name} &= 0")
    return r"\begin{aligned}" + r" \\ ".join(lines + conditions) + r"\end{aligned}"


def _has_gradient(field: Unknown, right: Quantity, shear: sympy.Expr) -> bool:
    """Return whether a right-hand side is known to have a gradient part."""
    # Advection of a vector by a mean shear changes its divergence, unless other terms cancel that.
    divergence: dict[Any, Any] = {field.values[1]: -shear * WAVENUMBERS[0]}
    for component, form in enumerate(right.forms):
        for points, factor in form.terms.items():
            terms = {points: factor * WAVENUMBERS[component]}
            is_last = isinstance(points, Value) and points.solenoidal and points.component == 2
            if is_last and points == points.undifferentiated:
                # kz u_z = -kx u_x - ky u_y
                terms = {
                    Value(points.field, axis, True): -factor
                    * WAVENUMBERS[component]
                    * WAVENUMBERS[axis]
                    / WAVENUMBERS[2]
                    for axis in (0, 1)
                }
            for key, term in terms.items():
                divergence[key] = divergence.get(key, 0) + term
    return any(sympy.simplify(one) != 0 for one in divergence.values())


def _names_in(quantity: Quantity) -> Iterator[tuple[str, int]]:
    if isinstance(quantity, Unknown):
        yield quantity.name, quantity.rank
    for part in quantity.parts:
        if isinstance(part, Quantity):
            yield from _names_in(part)
        elif isinstance(part, sympy.Basic):
            for symbol in part.free_symbols:
                if not isinstance(symbol, Known) and symbol not in WAVENUMBERS:
                    yield str(symbol), 0


def _letter(name: str, rank: int) -> str:
    stem, _, number = name.rpartition("_")
    if name in _USUAL:
        letter = _USUAL[name]
    elif name == "scalar" or (stem == "scalar" and number.isdigit()):
        letter = "s" if name == "scalar" else f"s_{{{number}}}"
    else:
        letter = sympy.latex(sympy.Symbol(name))
        is_short = letter.startswith("\\") or len(name.split("_")[0]) < 2
        if not is_short:
            return _word(name, rank)
    return (
        letter
        if rank == 0
        else rf"\boldsymbol{{{letter}}}"
        if "\\" in letter
        else rf"\mathbf{{{letter}}}"
    )


def _word(name: str, rank: int) -> str:
    text = name.replace("_", r"\_")
    return rf"\mathbf{{{text}}}" if rank else rf"\mathrm{{{text}}}"


def _bracketed(text: str) -> str:
    return rf"\left({text}\right)"
