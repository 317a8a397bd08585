"""A tracer that a constant velocity carries through a periodic box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, cast

import numpy as np

from slipstream.api.interactive_simulation import (
    NO_END,
    InteractiveSimulation,
    asks_for_output,
    made_together,
)
from slipstream.api.settings import common_tables, tables_of
from slipstream.case import AdvectionCase, validate_case
from slipstream.case.keyword_options import TYPE_OF_FOLDERS, KeywordOptions, class_with_options
from slipstream.case.table import argument_keys
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError

if TYPE_CHECKING:
    from slipstream.advection.advection_simulation import AdvectionSimulation

# The arguments that are keys of cases.
_KEYS = argument_keys(AdvectionCase, ("grid", "flow", "initial", "numerics"))


class AdvectionOptions(TypedDict, total=False):
    """The arguments of `Advection` that are keys of cases."""

    points: Required[int | Sequence[int]]
    courant: float | Sequence[float]
    restart: str | Path | None
    width: float
    precision: str


@class_with_options(lambda: KeywordOptions(AdvectionCase, _KEYS, TYPE_OF_FOLDERS))
class Advection(InteractiveSimulation):
    """A tracer carried through a periodic box, by the 27-point Lax-Wendroff scheme.

    Its unit of time is one crossing of the box along the fastest axis.

    >>> tracer = Advection(points=64, courant=(1.0, 0.5, 0.25))
    >>> tracer.run(steps=64)

    Parameters
    ----------
    **options
        Keys of the tables ``[grid]``, ``[flow]``, ``[initial]`` and ``[numerics]`` of a case.
    device, comm, title, run, output
        See `slipstream.Flow`.

    Raises
    ------
    InputError
        If anything is not accepted; on all ranks, if on one.
    """

    @made_together
    def __init__(
        self,
        *,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        title: str = "",
        run: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        **options: Unpack[AdvectionOptions],
    ) -> None:
        tables: dict[str, Any] = tables_of(AdvectionCase, _KEYS, options) | {
            "solver": "advection",
            "time": {"end": NO_END},
            **common_tables(title, run, output),
        }
        super().__init__(validate_case(tables, source=type(self).__name__), comm, device)
        self._asks_for_output = asks_for_output(output)

    @property
    def courant(self) -> tuple[float, float, float]:
        """Courant numbers along x, y and z, as they were given."""
        return cast(AdvectionCase, self.case).flow.courant_xyz

    @courant.setter
    def courant(self, value: Any) -> None:
        raise InputError(
            "courant cannot be changed: time counts crossings of the box at this velocity;"
            " accepted: a new Advection"
        )

    @property
    def _advection(self) -> AdvectionSimulation:
        return cast("AdvectionSimulation", self.solver)

    def _field_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"tracer": ()}

    def _describe_field(self, name: str) -> tuple[str, str]:
        return "advected tracer", "1"

    def _read(self, name: str) -> Array:
        values = self._advection.solver.values()
        return values if self.array_module is np else self.array_module.asarray(values)

    def _write(self, name: str, values: Array) -> None:
        solver = self._advection.solver
        solver.set(self.device.to_host(values), solver.steps)
        self._advection.note_change()

    def _summary(self) -> str:
        points = "x".join(map(str, cast(AdvectionCase, self.case).grid.points_xyz))
        return f"advection on {points} points"
