"""The output of `slipstream explain`: the compiled form of equations, and its cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import sympy
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from slipstream.case import SpectralCase
from slipstream.engine.text import printable
from slipstream.equations import Lowered, models
from slipstream.equations.fourier_forms import WAVENUMBERS, filters_in
from slipstream.spectral.followed_parameters import bytes_of_averages
from slipstream.spectral.spectral_simulation import SpectralSimulation


def explanation_of_model(name: str) -> Group:
    """Return the table of a model without a case, and its parameters."""
    numbers, lines = {}, []
    for key, (kind, default) in models.parameters_of(models.find(name)).items():
        is_whole = getattr(kind, "__origin__", kind) is int
        numbers[key] = (1 if is_whole else 1.0) if default is ... else default
        called = "whole number" if is_whole else "number"
        lines.append(f"{key} ({called}{'' if default is ... else f', {default}'})")
    parameters = Text(
        f"parameters: {', '.join(lines) or 'none'}; the terms of "
        "parameters that are 0 by default are not shown"
    )
    return Group(_table(name, models.lowered(name, numbers)), parameters)


def explanation_of_case(case: SpectralCase) -> Group:
    """Return the table of a case's equations, with transforms and memory on this machine."""
    simulation = SpectralSimulation(case)
    problem, device = simulation.problem, simulation.device
    model, substages = problem.model, problem.method.substages
    points = float(np.prod(problem.geometry.shape))
    memory = simulation.placement.fields_bytes
    memory += bytes_of_averages(problem, simulation.placement)
    lines = [
        f"{problem.method.name}: {substages} substages of {model.transforms} real transforms",
        "per substage: one pass over planes (transforms in y and x, products), one over columns "
        "(z, rates, substage)",
        f"memory on one rank ({device.name}): {memory / points:.1f} bytes per point, "
        f"{memory / 2**30:.3g} GiB",
    ]
    return Group(_table(case.equation.model, model), *map(Text, lines))


def _table(name: str, model: Lowered) -> Table:
    # Names come from a file, perhaps one by somebody else.
    count, least = model.transforms, model.least_transforms
    bound = f", at least {least} in any notation" if least < count else ", the fewest possible"
    title = Text(printable(f"{name}: {count} real transforms per substage{bound}"), "italic")
    table = Table(title=title, box=box.HORIZONTALS, show_header=False, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part, lines in groupby(explained(model), key=lambda line: line[0]):
        for number, (_, what, text) in enumerate(lines):
            table.add_row("" if number else part, Text(printable(what)), Text(printable(text)))
        table.add_section()
    return table


def explained(model: Lowered) -> Iterator[tuple[str, str, str]]:
    """Yield the lines of a table: the part of the model, a name, and an expression."""
    for symbol, expression in zip(model.symbols, model.inputs, strict=True):
        yield "to physical space", str(symbol), _text(expression)
    for number, product in enumerate(model.products):
        yield "products, back", f"T{number}", _text(product)
    for own, component in enumerate(model.unknowns):
        yield "rates", f"d {component} / dt", _rate(model, own)
    for component, source in zip(model.components, model.sources, strict=True):
        if source != 0:
            yield "sources", str(component), _text(source)
    for component, function in zip(
        model.components[len(model.unknowns) :], model.coefficients, strict=True
    ):
        yield "known fields", str(component), _text(function)
    for field, values in groupby(model.components, key=lambda value: value.field):
        first = model.components.index(next(values))
        rate = model.decay[first]
        if rate != 0:
            yield "decay", field, f"exp(-({_text(_of_square(rate))}) t)"
    factors = [*model.decay, *model.input_filters, *model.rate_factors]
    for one in sorted({one for factor in factors for one in filters_in(factor)}, key=str):
        yield "functions of k", _text(one), f"{_text(one.at_zero)} at k = 0"
    if model.shear != 0:
        yield (
            "mean flow",
            f"{_text(model.shear)}*y along x",
            f"ky changes by -{_text(model.shear)}*kx t",
        )
    averages = model.averages
    for name, function in model.follows.items():
        yield "at each step", name, _text(function)
    if averages is not None:
        yield (
            "averages",
            ", ".join(averages.pairs),
            f"{averages.transforms} real transforms per step",
        )
    for first in model.vectors:
        yield "projection", model.components[first].field, "without its gradient part"


def _text(expression: sympy.Expr) -> str:
    return str(expression).replace("**", "^")


def _rate(model: Lowered, component: int) -> str:
    products = sum(
        factor * sympy.Symbol(f"T{number}")
        for number, factor in enumerate(model.multipliers[component])
    )
    linear = sum(
        _of_square(factor) * model.components[other]
        for other, factor in model.linear[component].items()
    )
    constant = model.constant[component] * sympy.Symbol("[k = 0]")
    return _text(sympy.collect(products, sympy.I) + linear + constant)


def _of_square(rate: sympy.Expr) -> sympy.Expr:
    """Return a polynomial of k^2, written in k^2."""
    kx, ky, kz = WAVENUMBERS
    square = sympy.Symbol("k^2")
    along = rate.subs({ky: 0, kz: 0})
    power = sympy.degree(along, kx) if along.has(kx) else 0
    simple = along.subs(kx, sympy.sqrt(square)) if power % 2 == 0 else rate
    back = simple.subs(square, kx**2 + ky**2 + kz**2)
    return simple if sympy.expand(back - rate) == 0 else rate
