"""The tables of the ``advection`` family: a Gaussian carried through a periodic box.

Numbers per axis are given in the order x, y, z; arrays in memory are [z, y, x]. The edges of the
box are the unit of length, and the unit of time is one crossing of the box along the axis that the
Gaussian crosses fastest.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from slipstream.accepted import STRATEGIES
from slipstream.case.common_tables import (
    Case,
    Grid,
    Run,
)
from slipstream.case.table import (
    Precision,
    Table,
    as_tuple,
    one_of,
    three,
)


def _number(value: Any) -> bool:
    """Return whether a value is a number, which booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Flow(Table):
    """``[flow]``: the constant velocity that carries the Gaussian.

    Attributes
    ----------
    courant : float or tuple of 3 float
        Courant numbers along x, y and z, each from -1 to 1: edges of the box per step times the
        points along the axis. One number for all three.
    """

    courant: Annotated[Any, BeforeValidator(as_tuple)] = 1.0

    @field_validator("courant")
    @classmethod
    def _stable_and_moving(cls, courant: Any) -> Any:
        numbers = three(courant)
        if len(numbers) != 3 or not all(_number(n) and abs(n) <= 1 for n in numbers):
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


class Initial(Table):
    """``[initial]``: the state at the start.

    Attributes
    ----------
    width : float
        Standard deviation of the Gaussian, in edges of the box; it begins in the middle.
    restart : str or None
        Output folder of an earlier run whose last state to go on from.
    """

    width: Annotated[float, Field(gt=0, le=1)] = 0.1
    restart: Annotated[str, Field(min_length=1)] | None = None


class Numerics(Table):
    """``[numerics]``: how numbers are stored.

    Attributes
    ----------
    precision : str
        Floating-point type of the field, a name of `slipstream.accepted.PRECISIONS`.
    """

    precision: Precision = "float64"


class AdvectionRun(Run):
    """``[run]`` of the advection family; results do not depend on it, to the last bit.

    Attributes
    ----------
    strategy : str
        Where a step runs and what overlaps: a name of `slipstream.accepted.STRATEGIES`, or "auto",
        which suits the devices and ranks at hand.
    grid : tuple of 3 int or None
        Number of ranks along x, y and z; by default those that exchange the least.
    shell : int
        For the hybrid strategies: thickness of the CPU's shell around the GPU's block; 0 leaves all
        points to the GPU.
    """

    strategy: Annotated[str, one_of(STRATEGIES, auto=True)] = "auto"
    grid: Annotated[Any, BeforeValidator(as_tuple)] = None
    shell: Annotated[int, Field(ge=0)] = 1

    @field_validator("grid")
    @classmethod
    def _three_whole_and_positive(cls, grid: Any) -> Any:
        whole = isinstance(grid, tuple) and all(_number(n) and isinstance(n, int) for n in grid)
        if grid is not None and not (whole and len(grid) == 3 and min(grid) >= 1):
            raise ValueError(
                "accepted: three whole numbers for x, y and z, each at least 1, not"
                f" {list(grid) if isinstance(grid, tuple) else grid!r}"
            )
        return grid


class AdvectionCase(Case):
    """A case of the ``advection`` family.

    Attributes
    ----------
    grid : Grid
        The points; the box is periodic and its edges have length 1.
    flow : Flow
        The constant velocity.
    initial : Initial
        The state at the start.
    numerics : Numerics
        How numbers are stored.
    run : AdvectionRun
        Where and in which order the work is done.
    """

    # Each row compares all points with the exact solution, which costs as much as some steps.
    occasions: ClassVar[dict[str, int]] = {"diagnostics_interval": 50}

    solver: Literal["advection"]
    grid: Grid
    flow: Flow = Flow()
    initial: Initial = Initial()
    numerics: Numerics = Numerics()
    run: AdvectionRun = AdvectionRun()

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
        """How the time step is chosen, for people."""
        return f"{super().stepping}; 1 is one crossing of the box"
