"""The tables of the ``advection`` family: a Gaussian carried through a periodic box.

Numbers per axis are given in the order x, y, z; arrays in memory are [z, y, x]. The edges of the
box are the unit of length, and the unit of time is one crossing of the box along the axis that the
Gaussian crosses fastest.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from slipstream.case.common_tables import Case, Grid, Initial, Output, Run, Time
from slipstream.case.table import (
    EndTime,
    Key,
    Precision,
    Table,
    Unchecked,
    check_positive,
    is_number,
    one_of,
    three,
)
from slipstream.engine.accepted import STRATEGIES


class Flow(Table):
    """``[flow]``: the constant velocity that carries the Gaussian."""

    courant: Unchecked[float | tuple[float, float, float]] = Key(
        1.0,
        "Courant number, from -1 to 1, of all axes or [x, y, z]: edges of the box per step, times"
        " the points along the axis. The scheme is exact where all are 1, -1 or 0",
    )

    @field_validator("courant")
    @classmethod
    def _stable_and_moving(cls, courant: Any) -> Any:
        numbers = three(courant)
        if len(numbers) != 3 or not all(is_number(n) and abs(n) <= 1 for n in numbers):
            raise ValueError(
                "accepted: one number from -1 to 1 (beyond, the scheme is unstable), or three for"
                f" x, y and z, not {list(courant) if isinstance(courant, tuple) else courant!r}"
            )
        if not any(numbers):
            raise ValueError("nothing moves: accepted are numbers of which one at least is not 0")
        return courant

    @property
    def courant_xyz(self) -> tuple[float, float, float]:
        """Courant numbers along x, y and z."""
        cx, cy, cz = (float(number) for number in three(self.courant))
        return cx, cy, cz


class GaussianInitial(Initial):
    """``[initial]``: the Gaussian at the start, in the middle of the box."""

    width: Annotated[float, Field(gt=0, le=1)] = Key(
        0.1, "standard deviation of the Gaussian, in edges of the box"
    )


class AdvectionTime(Time):
    """``[time]``: how far to go."""

    end: EndTime = Key(
        ...,
        "in crossings of the box along the fastest axis; the run ends with the first step that gets"
        " there",
        example=1,
    )


class Numerics(Table):
    """``[numerics]``: how numbers are stored."""

    precision: Precision = Key("float64", "precision of the field")


class AdvectionRun(Run):
    """``[run]``: where a step runs and what overlaps; results do not depend on it."""

    strategy: Annotated[str, one_of(STRATEGIES, auto=True)] = Key(
        "auto", 'where a step runs and what overlaps; "auto" suits device and ranks'
    )
    grid: Unchecked[tuple[int, int, int] | None] = Key(
        None, "number of ranks along x, y and z (default: what exchanges least)", example=[1, 2, 2]
    )
    shell: Annotated[int, Field(ge=0)] = Key(
        1,
        'of "hybrid" and "hybrid-overlap": points between the GPU\'s block and the border of its'
        " rank, which the CPU advances; 0 leaves all to the GPU",
    )
    steps_per_pass: Annotated[int, Field(ge=1, le=2)] | None = Key(
        None,
        "time steps that a pass over memory takes (default: what suits device and points)",
        example=2,
    )

    @field_validator("grid")
    @classmethod
    def _three_whole_and_positive(cls, grid: Any) -> Any:
        return check_positive(grid, "xyz")


class AdvectionOutput(Output):
    """``[output]``: contents and intervals of the output."""

    pictures: bool = Key(True, "draw the field, and its error against time, at the end")


_PLANE = {"axis": "z", "position": 0.5}


class AdvectionCase(Case):
    """A case of the ``advection`` family: a Gaussian carried through a periodic box."""

    # Each row compares all points with the exact solution, which costs as much as some steps.
    occasions: ClassVar[dict[str, int]] = {"diagnostics_interval": 50}
    shortens_steps: ClassVar[bool] = False
    examples: ClassVar[dict[str, Any]] = {
        "output.diagnostics_interval": 0.02,
        "output.fields_interval": 0.1,
        "output.checkpoint_interval": 0.5,
        "output.fields": [{"of": "tracer", "interval": 0.125, "plane": _PLANE}],
        "output.scalars": [{"of": "tracer", "reduce": "rms"}],
        "output.averages": [{"of": "tracer", "interval": 0.125}],
        "output.movies": [{"of": "tracer", "interval": 0.125, "plane": _PLANE}],
    }

    solver: Literal["advection"] = Key(..., "solver family")
    grid: Grid
    flow: Flow = Field(default_factory=Flow)
    initial: GaussianInitial = Field(default_factory=GaussianInitial)
    time: AdvectionTime
    numerics: Numerics = Field(default_factory=Numerics)
    run: AdvectionRun = Field(default_factory=AdvectionRun)
    output: AdvectionOutput

    @property
    def points(self) -> int:
        """Number of grid points that one time step updates."""
        return math.prod(self.grid.points_xyz)

    @property
    def fastest(self) -> tuple[float, int]:
        """Absolute Courant number, and points, along the axis that is crossed fastest."""
        pairs = zip(self.flow.courant_xyz, self.grid.points_xyz, strict=True)
        return max(((abs(c), n) for c, n in pairs), key=lambda pair: pair[0] / pair[1])

    @property
    def fixed_step(self) -> float:
        """The time step: the part of the box that is crossed along the fastest axis."""
        courant, points = self.fastest
        return courant / points

    @property
    def stepping(self) -> str:
        """The choice of the time step, for people."""
        return f"{super().stepping}; 1 is one crossing of the box"
