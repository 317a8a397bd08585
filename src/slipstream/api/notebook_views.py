"""Views of simulations and fields in notebooks, and pictures that follow a simulation as it runs.

A notebook may ask on one rank only: what it shows by itself neither communicates nor prepares a
simulation.
"""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.api.field_views import FieldView
from slipstream.api.output_methods import file_in_run, is_bare
from slipstream.engine.collective import on_first_rank, together
from slipstream.engine.errors import InputError, SlipstreamError, path_of
from slipstream.engine.fields import AXES
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import counted, html_table
from slipstream.files.durable_files import errors_name, replace_file
from slipstream.show.console import NotebookDisplay, in_notebook
from slipstream.show.field_planes import FieldPlane, colour_scale

if TYPE_CHECKING:
    from slipstream.api.interactive_simulation import InteractiveSimulation

# The field that is 0 where there is nothing to show, in simulations that have one.
_MASK = "pore"
# Most points of a field that is drawn without being asked.
_MOST_POINTS = 1 << 24
_MOST_DIAGNOSTICS = 12


def simulation_html(simulation: InteractiveSimulation) -> str:
    """Return a simulation as a table: its equations, its device and its progress."""
    name = type(simulation).__name__
    if simulation._solver is None:
        return html_table(f"{name}: closed", ())
    solver, ranks = simulation.solver, simulation.ranks
    rows = {"solves": simulation._summary()}
    if solver.case.title:
        rows["title"] = solver.case.title
    rows["on"] = f"{counted(ranks, 'rank')}, {solver.device.name}"
    if not simulation._is_prepared:
        return html_table(name, {**rows, "state": "not prepared, nothing is allocated"}.items())
    rows["time"] = f"t = {solver.time:.6g}, step {solver.step}"
    if solver.finished:
        rows["finished"] = solver.finished
    if simulation._diagnosed is not None:
        (step, _), diagnostics = simulation._diagnosed
        is_old = simulation._diagnosed[0] != simulation._state_mark()
        for key, value in list(diagnostics.items())[:_MOST_DIAGNOSTICS]:
            rows[key] = f"{value:.6g}" + (f" (at step {step})" if is_old else "")
    return html_table(name, rows.items())


def field_html(view: FieldView) -> str:
    """Return a field as a table, with a small picture of its middle plane on a single rank."""
    simulation = view._simulation
    if simulation._solver is None:
        return html_table(f"{view.name}: the simulation has been closed", ())
    sizes = zip(view.dims, view.global_shape, strict=True)
    rows = {
        "field": view.long_name,
        "points": " x ".join(f"{n} ({axis})" for axis, n in sizes),
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


def _picture(view: FieldView) -> tuple[str, str]:
    """Return a picture of the middle plane, and its caption."""
    from slipstream.show.figure_style import small_picture

    line = view._layout.coordinates["z"]
    middle = float(line[len(line) // 2])
    plane = view.plane("z", middle)
    drawn = magnitude(plane, view)
    what = f"{'values' if drawn is plane else 'magnitude'} at z = {middle:.4g}"
    values = np.asarray(drawn, float)
    scale, data = colour_scale(values), base64.b64encode(small_picture(values)).decode()
    return (
        f"<img style='width:192px;image-rendering:auto' alt='{what}'"
        f" src='data:image/png;base64,{data}'>"
    ), f"{what}, coloured from {scale.low:.4g} to {scale.high:.4g}"


@signals_held
def show(
    simulation: InteractiveSimulation,
    field: str | FieldView,
    when: tuple[Any, Any, Any],
    plane: tuple[str, float | None],
    file: str | Path | None,
) -> Any:
    """Show a plane now and whenever it is due; see `InteractiveSimulation.show`. Collective."""
    is_once, (interval, steps, times) = all(one is None for one in when), when
    with together(simulation.comm):
        path = None if file is None else path_of("file", file)
        picture = LivePicture(simulation, field, plane, path)
        if is_once or not picture.waits:
            picture.draw(simulation)
    if is_once:
        return None
    return simulation.every(interval, picture.draw, steps=steps, times=times)


class LivePicture:
    """A plane of a field, shown in a notebook, a file, or both."""

    def __init__(
        self,
        simulation: InteractiveSimulation,
        field: str | FieldView,
        plane: tuple[str, float | None],
        file: Path | None,
    ) -> None:
        # Its name, if it has one there: a view would keep the simulation alive.
        self._field, self._file = field, file
        view = self._view(simulation)
        if len(view.dims) > 4:
            raise InputError(f"show: {view.name} is a tensor; accepted: scalars and vectors")
        try:
            self._axis, position = plane
            self._position = None if position is None else float(position)
        except (TypeError, ValueError):
            self._axis, self._position = "", None
        if self._axis not in AXES:
            raise InputError(f"plane is {plane!r}; accepted: an axis and a place, as ('z', 0.0)")
        self._display: NotebookDisplay | None = None
        self._drawn: tuple[tuple[int, int], int] | None = None
        # Whether it is drawn when its folder is known: at the start of the run, if it has one.
        self.waits = on_first_rank(simulation.comm, self._prepare)

    def _view(self, simulation: InteractiveSimulation) -> FieldView:
        if isinstance(self._field, FieldView):
            if self._field._simulation is not simulation:
                raise InputError(f"show: {self._field.name} is a field of another simulation")
            return self._field
        return simulation.fields[self._field]

    def _prepare(self) -> bool:
        """Return whether it is only a file, in the folder of the run; refuse others. Rank 0."""
        if in_notebook():
            self._display = NotebookDisplay()
        elif self._file is None:
            raise InputError("show: this is no notebook; give file=PATH, such as 'flow.png'")
        if self._file is not None:
            from slipstream.show.figure_style import FORMATS, format_of

            if format_of(self._file) is None:
                accepted = ", ".join(f".{one}" for one in FORMATS)
                raise InputError(f"file is {str(self._file)!r}; accepted: names in {accepted}")
            if not self._file.absolute().parent.is_dir():
                raise InputError(f"file is {str(self._file)!r}; there is no such folder")
        return self._display is None and self._file is not None and is_bare(self._file)

    def draw(self, simulation: InteractiveSimulation) -> None:
        """Show the plane as it is now, unless it is shown already. Collective."""
        mark = simulation._state_mark(), simulation._runs
        if mark == self._drawn:
            return
        plane = self._plane(simulation)
        file = None if self._file is None else file_in_run(simulation, self._file)
        on_first_rank(simulation.comm, lambda: self._put(plane, file))
        self._drawn = mark

    def _plane(self, simulation: InteractiveSimulation) -> FieldPlane:
        view = self._view(simulation)
        layout = simulation.solver.layout()
        line = layout.coordinates[self._axis]
        position = float(line[len(line) // 2]) if self._position is None else self._position
        values = magnitude(view.plane(self._axis, position), view)
        if _MASK in simulation._field_shapes() and view.name != _MASK:
            solid = simulation.fields[_MASK].plane(self._axis, position) == 0
            values = np.ma.masked_where(solid, values)
        row, column = (axis for axis in AXES if axis != self._axis)
        is_vector = len(view.dims) > 3
        return FieldPlane(
            name=view.name,
            values=values,
            row_name=row,
            column_name=column,
            rows=layout.coordinates[row],
            columns=layout.coordinates[column],
            normal_name=self._axis,
            position=float(line[np.argmin(np.abs(line - position))]),
            label=f"magnitude of {view.name}" if is_vector else view.long_name,
            time=simulation.time,
            unit=layout.unit,
        )

    def _put(self, plane: FieldPlane, file: Path | None) -> None:
        from slipstream.show.figure_style import draw_field, format_of

        drawn = {}
        if file is not None:
            format = str(format_of(file))
            drawn[format] = draw_field(plane, format)
            with errors_name(file):
                replace_file(file, drawn[format])
        if self._display is not None:
            self._display.png(drawn.get("png") or draw_field(plane))


def magnitude(plane: np.ndarray, view: FieldView) -> np.ndarray:
    """Return the plane that is drawn: the magnitude, for vectors and complex fields."""
    if len(view.dims) > 3:
        length: np.ndarray = np.sqrt((np.abs(plane) ** 2).sum(axis=0))
        return length
    return np.abs(plane) if np.iscomplexobj(plane) else plane
