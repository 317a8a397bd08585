"""An advection run of `slipstream run`: from a case to a solver, its diagnostics and its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from slipstream.advection.advection_solver import (
    Advection,
    AdvectionProblem,
    checked_grid,
    checked_steps,
    gaussian,
    open_devices,
)
from slipstream.advection.overlap_strategies import (
    automatic_strategy,
    check_device,
    checked_strategy,
)
from slipstream.case import AdvectionCase
from slipstream.engine.accepted import DEVICES
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import collectively, greatest, on_every_rank, sum_over_ranks
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device
from slipstream.engine.device_memory import ranks_per_device
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import RankPlace, open_matching_device
from slipstream.engine.fields import (
    ArrayValues,
    Fact,
    Field,
    Layout,
    PictureChoice,
    PlaneChoice,
    PointValues,
    grid_field,
)
from slipstream.engine.schedule import CATEGORIES, Timeline
from slipstream.engine.text import shown
from slipstream.files.checkpoint import Checkpoint
from slipstream.files.run_folder import open_earlier_run
from slipstream.runs.simulation_base import Simulation

LABELS = {
    "mass": "mean of the tracer, which is conserved",
    "energy": "mean of the square of the tracer over two",
    "error_max": "largest error, of a peak of 1",
    "error_rms": "root mean square of the error, of a peak of 1",
}
PICTURES = PictureChoice(
    curves=(("error_max",), ("error_rms",)),
    curves_file="error.png",
    planes=(PlaneChoice("tracer", "tracer.png", "plane through the peak"),),
    short_labels={"error_max": "largest error", "error_rms": "error, root mean square"},
)


# The number of points that are compared with the exact solution together, in cache.
_POINTS_AT_A_TIME = 1 << 17


class AdvectionSimulation(Simulation):
    """A Gaussian advected through a periodic box, in steps of one size."""

    shortens_steps = False
    lasting = "mass", "energy"

    case: AdvectionCase
    solver: Advection

    @collectively
    def __init__(
        self,
        case: AdvectionCase,
        comm: Comm = None,
        device: str | Device | Mapping[str, Device] = "auto",
    ) -> None:
        self.schedule, self.devices = _strategy_and_devices(case, comm, device)
        super().__init__(case, comm, list(self.devices.values())[-1])
        self.problem = advection_problem(case, self.schedule, self.ranks, self.devices)
        self.transport = self.problem.strategy.transport if self.ranks > 1 else "none"
        self._shape, self._box = self.problem.shape, self.problem.boxes[self.rank]
        width, fewest = case.initial.width, min(self._shape)
        if width * fewest < 1:
            raise InputError(
                f"initial.width: {width:g} is less than the spacing of points, 1/{fewest} of an "
                f"edge (grid.points); accepted: {1 / fewest:g} and more"
            )
        self._sharing = {
            name: ranks_per_device(comm, device) for name, device in self.devices.items()
        }
        self._needed = self.problem.memory(RankPlace.of(comm), with_output=True)

    # -- before the run ----------------------------------------------------------------------

    def facts(self) -> dict[str, Fact]:
        """Return facts about the problem, the strategy and the division of the box. Collective."""
        case, sharing = self.case, self._sharing
        return {
            "equation": Fact("advection"),
            "grid": Fact(case.grid.points_xyz),
            "Courant numbers": Fact(case.flow.courant_xyz),
            "precision": Fact(case.numerics.precision),
            "strategy": Fact(self.schedule),
            "steps per pass": Fact(self.problem.steps_per_pass),
            **super().facts(),
            "ranks": Fact(self.ranks, grid=tuple(reversed(self.problem.grid)), sharing=sharing),
        }

    def memory(self) -> list[tuple[Device, int]]:
        """Return the bytes that the ranks of each device need on it, including output."""
        return [
            (self.devices[name], self._sharing[name] * need) for name, need in self._needed.items()
        ]

    def _allocate(self) -> None:
        """Allocate the field and record the steps. Collective."""
        self._check_memory()
        self.solver = Advection.of(self.problem, self.comm)

    def _initialise(self) -> None:
        """Set the Gaussian, or read the checkpoint of a restart."""
        settings = self.case.initial
        folder = self.restart
        if folder is None:
            values = gaussian(self._box, self._shape, (0.0, 0.0, 0.0), settings.width)
        else:
            checkpoint, earlier = open_earlier_run(self.resumed or folder, self.case, self.comm)
            self.restored = checkpoint
            self._warnings += checkpoint.warnings
            values = on_every_rank(self.comm, lambda: self._read(checkpoint, earlier, folder))
        self._set(values, self.step)

    def _set(self, values: np.ndarray, step: int) -> None:
        """Set this rank's points, as of step `step`."""
        self._set_time(step)
        self.solver.set(values, step)

    def _read(self, checkpoint: Checkpoint, earlier: AdvectionCase, folder: str) -> np.ndarray:
        """Read this rank's points of an earlier run's last state, and its step."""
        case = self.case
        for key, here, theirs in (
            ("grid.points", case.grid.points_xyz, earlier.grid.points_xyz),
            ("flow.courant", case.flow.courant_xyz, earlier.flow.courant_xyz),
            ("initial.width", case.initial.width, earlier.initial.width),
        ):
            if here != theirs:
                had, has = (list(one) if isinstance(one, tuple) else one for one in (theirs, here))
                raise InputError(
                    f"initial.restart: {folder} has {key} = {had}, this case {has}; both must be"
                    " the same"
                )
        if checkpoint.check_array("tracer", "f", 3) != self._shape:
            raise InputError(
                f"initial.restart: {checkpoint.path}: tracer has other points than its case"
            )
        self.step = checkpoint.step
        return checkpoint.read("tracer", self._box.start, self._box.shape)

    def kept(self) -> dict[str, Any]:
        """Return the tracer."""
        return {**super().kept(), "tracer": np.array(self.solver.values())}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned, perhaps in another simulation of the same case."""
        super().restore(kept)
        self._set(kept["tracer"], self.step)

    # -- stepping ----------------------------------------------------------------------------

    def _set_time(self, step: int) -> None:
        """Set the step, and the time in crossings of the box along the fastest axis."""
        courant, points = self.case.fastest
        self.step, self.time = step, step * courant / points

    def step_size(self) -> float:
        """Return the time step, once the last one is complete."""
        self.solver.synchronize()
        return self.case.fixed_step

    def complete_steps(self) -> None:
        """Take the postponed steps, which do not fill a pass."""
        self.solver.advance(0)

    def synchronize(self) -> None:
        """Wait until all steps are done."""
        self.complete_steps()
        self.solver.synchronize()

    def _advance(self, step_size: float, profile: bool) -> Timeline | None:
        """Take one time step, of its fixed size."""
        self._timed_steps = self.solver.due + 1
        self.solver.advance(profile=profile, complete=profile)
        self._set_time(self.solver.steps)
        return self.solver.timeline(forget=True) if profile else None

    def _busy_seconds(self, timeline: Timeline) -> dict[str, float]:
        """Return the seconds of work per step in each category, summed over devices."""
        result = {}
        for category in CATEGORIES:
            alone = Timeline()
            alone.entries = [entry for entry in timeline.entries if entry.category == category]
            if alone.entries:
                result[category] = alone.exposed(category) / self._timed_steps
        return result

    # -- results -----------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return means over the box, and errors; see `LABELS`."""
        values, sums, largest = self.solver.values(), np.zeros(3), 0.0
        width = self.case.initial.width
        start, stop = self._box.start, self._box.stop
        depth = max(1, _POINTS_AT_A_TIME // max(1, math.prod(self._box.shape[1:])))
        for low in range(start[0], stop[0] if self._box.size else start[0], depth):
            box = Box((low, *start[1:]), (min(low + depth, stop[0]), *stop[1:]))
            layer = values[box.slices(self._box)].astype(np.float64, copy=False)
            error = layer - self.solver.exact(width, box)
            sums += layer.sum(), np.vdot(layer, layer) / 2, np.vdot(error, error)
            # Unlike Python's, NumPy's maximum propagates NaN.
            largest = np.maximum(largest, np.abs(error).max())
        largest = greatest(self.comm, float(largest))
        mass, energy, squares = sum_over_ranks(self.comm, sums) / self.case.points
        return {
            "mass": float(mass),
            "energy": float(energy),
            "error_max": float(largest),
            "error_rms": math.sqrt(squares),
        }

    def labels(self) -> dict[str, str]:
        """Return the long names of the diagnostics."""
        return LABELS

    def pictures(self) -> PictureChoice:
        """Return the choice of pictures at the end."""
        return PICTURES

    def fields(self) -> Iterator[Field]:
        """Yield the tracer at the grid points, which is the whole state."""
        yield grid_field(
            "tracer",
            "advected tracer",
            self.solver.values(),
            self._box.start,
            [np.arange(n) / n for n in self._shape],
        )

    def _digest_sum(self) -> np.ndarray:
        return self.solver.digest_sum()

    def layout(self) -> Layout:
        """Return where the points are."""
        lines = {axis: np.arange(n) / n for axis, n in zip("zyx", self._shape, strict=True)}
        nz, ny, nx = self._shape
        return Layout((nz, ny, nx), tuple(self.problem.boxes), lines)

    def point_values(self, of: Any, where: str) -> PointValues:
        """Return the evaluator of the tracer."""
        if not isinstance(of, str) or of != "tracer":
            raise InputError(f"{where}: there is no {shown(of)}; accepted: tracer")
        dtype, layout = self.case.numerics.precision, self.layout()
        return ArrayValues(
            lambda _: self.solver.values(), ("",), dtype, "advected tracer", "1", layout, self.comm
        )


def advection_problem(
    case: AdvectionCase, strategy: str, ranks: int, devices: Mapping[str, Device]
) -> AdvectionProblem:
    """Return the problem of a case on `ranks` ranks, with a strategy."""
    nz, ny, nx = reversed(case.grid.points_xyz)
    cz, cy, cx = reversed(case.flow.courant_xyz)
    grid = case.run.grid
    if grid is not None and math.prod(grid) != ranks:
        raise InputError(
            f"run.grid: {list(grid)} is for {math.prod(grid)} ranks; accepted: three numbers "
            f"whose product is the number of ranks, {ranks}"
        )
    shape, shell, dtype = (nz, ny, nx), case.run.shell, np.dtype(case.numerics.precision)
    chosen = checked_strategy(strategy, ranks, "run.strategy")
    divided = checked_grid(grid and grid[::-1], ranks, shape)
    key = "run.steps_per_pass"
    steps = checked_steps(case.run.steps_per_pass, chosen, shape, divided, shell, dtype, key)
    return AdvectionProblem(shape, (cz, cy, cx), chosen, dtype, divided, shell, steps, devices)


def _strategy_and_devices(
    case: AdvectionCase, comm: Comm, device: str | Device | Mapping[str, Device]
) -> tuple[str, dict[str, Device]]:
    """Return the name of the strategy, and its devices; missing ones are opened. Collective."""
    name, ranks = case.run.strategy, 1 if comm is None else comm.size
    strategy = None if name == "auto" else checked_strategy(name, ranks, "run.strategy")
    if isinstance(device, str):
        kind = case.run.device if device == "auto" else device
        if strategy is not None:
            on_every_rank(comm, lambda: check_device(name, kind))
        # Devices of a named strategy are opened below.
        device = open_matching_device(kind, comm) if strategy is None else {}
    devices_given = {device.processor: device} if isinstance(device, Device) else device
    are_devices = isinstance(devices_given, Mapping) and all(
        isinstance(one, Device) for one in devices_given.values()
    )
    if not are_devices or (strategy is None and not devices_given):
        raise InputError(
            f"device {shown(devices_given)}; accepted: {', '.join(['auto', *DEVICES])}, an open"
            " device, or open devices by the names 'cpu' and 'gpu'"
        )
    if strategy is None:
        return automatic_strategy(comm, next(iter(devices_given.values()))), dict(devices_given)
    return name, open_devices(strategy, devices_given, None, comm)
