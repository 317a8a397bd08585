"""An advection run: a case's settings, the solver, and how far it is from the exact solution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.advection.advection_arguments import checked_grid, open_devices
from slipstream.advection.advection_error import LABELS, PICTURES, compare
from slipstream.advection.advection_memory import memory_needed
from slipstream.advection.advection_solver import Advection
from slipstream.advection.lax_wendroff import gaussian
from slipstream.advection.strategy_choice import automatic_strategy, check_device, strategy_of_case
from slipstream.case import AdvectionCase
from slipstream.collective import on_every_rank
from slipstream.decomposition import grid_boxes
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import open_matching_device
from slipstream.family import (
    PlainSimulation,
    StepTimer,
    check_memory,
    grid_field,
    memory_text,
    open_earlier_run,
    ranks_per_device,
)
from slipstream.field import Field
from slipstream.report.picture_choice import PictureChoice
from slipstream.schedule import CATEGORIES, Timeline


class AdvectionSimulation(PlainSimulation):
    """A Gaussian carried through a periodic box; see `slipstream.simulation.Simulation`.

    Its steps cannot be shortened: the scheme's numbers are those of the whole step.

    Parameters
    ----------
    case : AdvectionCase
        The settings.
    comm : mpi4py.MPI.Comm or None
        The ranks that share the box.
    strategy : str
        Where a step runs, and what overlaps what.
    devices : dict of str to Device
        The "cpu" and the "gpu" of the strategy, as far as it needs them.

    Raises
    ------
    InputError
        If the case does not suit the ranks, or the grid cannot hold the Gaussian.
    """

    def __init__(
        self,
        case: AdvectionCase,
        comm: Any,
        strategy: str,
        devices: dict[str, Device],
    ) -> None:
        self.case, self.comm = case, comm
        self.strategy, self.devices = strategy, devices
        self.step, self._timer = 0, StepTimer(eager=case.run.timeline)
        self._rank, self._ranks = (comm.rank, comm.size) if comm else (0, 1)
        self._placing = strategy_of_case(strategy, self._ranks)
        self._shape = tuple(reversed(case.grid.points_xyz))
        self._grid = self._process_grid()
        self._box = grid_boxes(self._shape, self._grid)[self._rank]
        self._check_width()
        self._sharing = {name: ranks_per_device(comm, device) for name, device in devices.items()}

    @property
    def time(self) -> float:
        """Time reached, in crossings of the box along the fastest axis."""
        courant, points = self.case.fastest
        return self.step * courant / points

    # -- before the run ----------------------------------------------------------------------

    def _process_grid(self) -> tuple[int, int, int]:
        grid = self.case.run.grid
        if grid is not None and math.prod(grid) != self._ranks:
            raise InputError(
                f"run.grid: {list(grid)} is for {math.prod(grid)} ranks; accepted: three numbers "
                f"whose product is the number of ranks, {self._ranks}"
            )
        return checked_grid(grid and tuple(reversed(grid)), self._ranks, self._shape)

    def _check_width(self) -> None:
        """Refuse a Gaussian that falls between the points."""
        width, fewest = self.case.initial.width, min(self._shape)
        if width * fewest < 1:
            raise InputError(
                f"initial.width: {width:g} is less than the distance of points, 1/{fewest} of an "
                f"edge (grid.points); accepted: {1 / fewest:g} and more"
            )

    def describe(self) -> dict[str, str]:
        """Return what will be run, for people."""
        case, needs = self.case, self._needs()
        numbers = ", ".join(f"{number:g}" for number in case.flow.courant_xyz)
        return {
            "equation": "advection by a constant velocity, 27-point Lax-Wendroff scheme",
            "grid": f"{' x '.join(map(str, case.grid.points_xyz))} points in a unit cube (x, y, z)",
            "Courant numbers": f"{numbers} (x, y, z)",
            "precision": case.numerics.precision,
            "strategy": self.strategy,
            "device": " and ".join(device.name for device in self.devices.values()),
            "memory per device": " and ".join(memory_text(*need) for need in needs),
            "ranks": self._ranks_text(),
            "transport": self._placing.transport if self._ranks > 1 else "none (one rank)",
        }

    def _ranks_text(self) -> str:
        if self._ranks == 1:
            return "1"
        grid = " x ".join(map(str, reversed(self._grid)))
        names = {"cpu": "CPU", "gpu": "GPU"}
        sharing = "".join(f", {count} to a {names[n]}" for n, count in self._sharing.items())
        return f"{self._ranks}, as {grid} (x, y, z){sharing}"

    def _needs(self) -> list[tuple[Device, int]]:
        """Return the bytes that the ranks of each device need on it, output included."""
        case = self.case
        dtype = np.dtype(case.numerics.precision)
        needed = memory_needed(
            self._placing, self.devices, self._box, self._grid, dtype, case.run.shell
        )
        if "cpu" in needed:
            # Where the device is the host, so are the initial values, and those that are written.
            initial = 8 if dtype.itemsize == 8 else 8 + dtype.itemsize
            needed["cpu"] += self._box.size * initial
        return [(self.devices[name], self._sharing[name] * need) for name, need in needed.items()]

    def allocate(self) -> None:
        """Allocate the field and record the steps. Collective.

        Raises
        ------
        InputError
            On all ranks, if a device's free memory does not suffice for the ranks that share it.
        """
        check_memory(self.comm, self._needs())
        case = self.case
        self.solver = Advection(
            self._shape,
            courant=tuple(reversed(case.flow.courant_xyz)),
            strategy=self.strategy,
            dtype=case.numerics.precision,
            comm=self.comm,
            grid=self._grid,
            shell=case.run.shell,
            devices=self.devices,
        )

    def initialise(self) -> None:
        """Set the Gaussian, or the checkpoint to go on from."""
        settings = self.case.initial
        if settings.restart is None:
            values = gaussian(self._box, self._shape, (0.0, 0.0, 0.0), settings.width)
        else:
            values = on_every_rank(self.comm, lambda: self._read(settings.restart))
        self.solver.set(values, self.step)

    def _read(self, folder: str) -> np.ndarray:
        """Read this rank's points of an earlier run's last state, and take over its step."""
        checkpoint, earlier = open_earlier_run(folder, self.case)
        case = self.case
        for key, mine, theirs in (
            ("grid.points", case.grid.points_xyz, earlier.grid.points_xyz),
            ("flow.courant", case.flow.courant_xyz, earlier.flow.courant_xyz),
            ("initial.width", case.initial.width, earlier.initial.width),
        ):
            if mine != theirs:
                raise InputError(
                    f"initial.restart: {folder} has {key} = {_toml(theirs)}, this case "
                    f"{_toml(mine)}; both must be the same"
                )
        self.step = checkpoint.step
        return checkpoint.read("tracer", self._box.start, self._box.shape)

    # -- stepping ----------------------------------------------------------------------------

    def step_size(self) -> float:
        """Return the time step, when the one before is complete."""
        self.solver.synchronize()
        return self.case.fixed_step

    def advance(self, step_size: float) -> None:
        """Do one whole time step, whatever its wanted size."""
        profile = self._timer.wants_next()
        self.solver.advance(profile=profile)
        if profile:
            timeline = self.solver.timeline(forget=True)
            self._timer.add(timeline, _busy_seconds(timeline))
        self.step = self.solver.steps

    def timers(self) -> dict[str, float]:
        """Return seconds by category so far, extrapolated from the steps that were timed."""
        return self._timer.seconds()

    def write_timeline(self, folder: Path) -> list[Path]:
        """Write the timeline of the last step that was timed, as picture and Chrome trace."""
        return self._timer.write(folder, self.strategy, self._rank)

    # -- results -----------------------------------------------------------------------------

    def diagnostics(self) -> dict[str, float]:
        """Return means over the box, and errors; see `LABELS` for what they are."""
        return compare(self.solver, self.case.initial.width)

    def labels(self) -> dict[str, str]:
        """Return the long names of the diagnostics."""
        return LABELS

    def pictures(self) -> PictureChoice:
        """Return what is drawn at the end."""
        return PICTURES

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return nothing: spectra say little of a single Gaussian."""
        return {}

    def fields(self) -> Iterator[Field]:
        """Yield the tracer at the grid points."""
        yield grid_field(
            "tracer", "advected tracer", self.solver.values(), self._box, self._shape, (1, 1, 1)
        )

    def checkpoint(self) -> Iterator[Field]:
        """Yield the tracer, which is all that a step needs."""
        yield from self.fields()


def _busy_seconds(timeline: Timeline) -> dict[str, float]:
    """Return for each category for how long any of its work ran, on whichever device."""
    result = {}
    for category in CATEGORIES:
        alone = Timeline()
        alone.entries = [entry for entry in timeline.entries if entry.category == category]
        if alone.entries:
            result[category] = alone.exposed(category)
    return result


def _toml(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)


def make_simulation(case: AdvectionCase, comm: Any, device: str) -> AdvectionSimulation:
    """Make the simulation of a case. Collective.

    Parameters
    ----------
    case : AdvectionCase
        The settings.
    comm : mpi4py.MPI.Comm or None
        The ranks to run on.
    device : {"auto", "cpu", "cuda"}
        Which kind of device each rank opens if the strategy is "auto"; other strategies have
        devices of their own, which must not contradict it.

    Raises
    ------
    InputError
        If there is no such device, or the strategy does not suit devices and ranks.
    """
    name = case.run.strategy
    if name == "auto":
        opened = open_matching_device(device, comm)
        name = automatic_strategy(comm, opened)
        return AdvectionSimulation(
            case, comm, name, {"gpu" if opened.kind == "cuda" else "cpu": opened}
        )
    strategy = strategy_of_case(name, 1 if comm is None else comm.size)
    on_every_rank(comm, lambda: check_device(name, device))
    devices = open_devices(strategy, {}, None, comm)
    return AdvectionSimulation(case, comm, name, devices)
