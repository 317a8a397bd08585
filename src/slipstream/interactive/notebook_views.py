"""How notebooks show simulations and fields.

A notebook may ask on one rank only: nothing here communicates, or prepares a simulation.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING

import numpy as np

from slipstream.errors import SlipstreamError
from slipstream.interactive.field_views import FieldView
from slipstream.interactive.live_pictures import magnitude
from slipstream.printable_text import html_table

if TYPE_CHECKING:
    from slipstream.interactive.interactive_simulation import InteractiveSimulation

# Most points of a field that is drawn without being asked.
_MOST_POINTS = 1 << 24
_MOST_DIAGNOSTICS = 12


def simulation_html(simulation: InteractiveSimulation) -> str:
    """Return a simulation as a table: what it solves, where, and how far it has come."""
    name = type(simulation).__name__
    if simulation._solver is None:
        return html_table(f"{name}: closed", ())
    solver, ranks = simulation.solver, simulation.ranks
    rows = {"solves": simulation._summary()}
    if solver.case.title:
        rows["title"] = solver.case.title
    rows["on"] = f"{ranks} rank{'s' * (ranks != 1)}, {solver.device.name}"
    if not simulation._is_prepared:
        return html_table(name, {**rows, "state": "not prepared, nothing is allocated"}.items())
    rows["time"] = f"t = {solver.time:.6g}, step {solver.step}"
    if solver.finished:
        rows["finished"] = solver.finished
    if simulation._diagnosed is not None:
        (step, _), found = simulation._diagnosed
        is_old = simulation._diagnosed[0] != simulation._state_mark()
        for key, value in list(found.items())[:_MOST_DIAGNOSTICS]:
            rows[key] = f"{value:.6g}" + (f" (at step {step})" if is_old else "")
    return html_table(name, rows.items())


def field_html(view: FieldView) -> str:
    """Return a field as a table, with a small picture of its middle plane on a single rank."""
    simulation = view._simulation
    if simulation._solver is None:
        return html_table(f"{view.name}: the simulation has been closed", ())
    rows = {
        "field": view.long_name,
        "points": " x ".join(f"{n} ({axis})" for axis, n in _sizes(view).items()),
        "unit": view.unit,
    }
    if simulation.ranks > 1:
        rows["this rank"] = " x ".join(map(str, view.shape))
    is_small = math.prod(view.global_shape) <= _MOST_POINTS and len(view.dims) < 5
    picture = ""
    if simulation.ranks == 1 and simulation._is_prepared and is_small:
        try:
            picture, rows["picture"] = _picture(view)
            rows["time"] = f"t = {simulation.solver.time:.6g}"
        except SlipstreamError as error:
            rows["values"] = str(error)
    return html_table(view.name, rows.items()) + picture


def _sizes(view: FieldView) -> dict[str, int]:
    return dict(zip(view.dims, view.global_shape, strict=True))


def _picture(view: FieldView) -> tuple[str, str]:
    """Return a picture of the middle plane, and what it shows."""
    from slipstream.report.field_planes import colour_scale
    from slipstream.report.plane_pictures import small_picture

    line = view._layout.coordinates["z"]
    middle = float(line[len(line) // 2])
    plane = view.plane("z", middle)
    values = magnitude(plane, view)
    what = f"{'values' if values is plane else 'magnitude'} at z = {middle:.4g}"
    scale = colour_scale(np.asarray(values, float))
    data = base64.b64encode(small_picture(np.asarray(values, float))).decode()
    return (
        f"<img style='width:192px;image-rendering:auto' alt='{what}'"
        f" src='data:image/png;base64,{data}'>"
    ), f"{what}, coloured from {scale.low:.4g} to {scale.high:.4g}"
