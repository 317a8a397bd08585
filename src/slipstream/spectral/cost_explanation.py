"""What a case's equations cost: transforms, kernels and memory, as a table for people."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from slipstream.case import SpectralCase
from slipstream.equations import Lowered, models
from slipstream.equations.equation_report import explained
from slipstream.spectral.spectral_simulation import SpectralSimulation


def explanation_of_model(name: str) -> Group:
    """Return what is known of a model without a case: its parameters are open."""
    given, lines = {}, []
    for key, (kind, default) in models.parameters_of(models.find(name)).items():
        kind = getattr(kind, "__origin__", kind)
        whole = kind is int
        given[key] = (1 if whole else 1.0) if default is ... else default
        called = "whole number" if whole else "number"
        lines.append(f"{key} ({called}{'' if default is ... else f', {default}'})")
    parameters = Text(
        f"parameters: {', '.join(lines) or 'none'}; of those that are 0 by default "
        "the terms are left out here"
    )
    return Group(_table(name, models.lowered(name, given)), parameters)


def explanation_of_case(case: SpectralCase) -> Group:
    """Return what a case's equations are made into, and what that costs on this machine."""
    simulation = SpectralSimulation(case)
    problem, device = simulation.problem, simulation.device
    model, substages = problem.model, problem.method.substages
    points = float(np.prod(problem.geometry.shape))
    memory = problem.memory(device)
    passes = "one pass over planes (transforms in y and x, products), one over columns (z, rates, "
    lines = [
        f"{problem.method.name}: {substages} substages of {model.transforms} real transforms",
        f"a substage: {passes}substage)",
        f"memory on one rank ({device.name}): {memory / points:.1f} bytes a point, "
        f"{memory / 2**30:.3g} GiB",
    ]
    return Group(_table(case.equation.model, model), *map(Text, lines))


def _table(name: str, model: Lowered) -> Table:
    title = f"{name}: {model.transforms} real transforms a substage"
    table = Table(title=title, box=box.HORIZONTALS, show_header=False, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part, lines in groupby(explained(model), key=lambda line: line[0]):
        for number, (_, what, text) in enumerate(lines):
            table.add_row("" if number else part, Text(what), Text(text))
        table.add_section()
    return table
