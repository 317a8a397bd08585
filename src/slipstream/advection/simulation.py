"""An advection run: a case's settings, the solver, and how far it is from the exact solution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.advection.memory import memory_needed
from slipstream.advection.scheme import gaussian
from slipstream.advection.solver import Advection, checked_grid, checked_strategy, open_devices
from slipstream.advection.strategies import STRATEGIES, Strategy
from slipstream.case import AdvectionCase
from slipstream.decomposition import Box, grid_boxes
from slipstream.device import Device, cuda_device_count, open_device
from slipstream.errors import InputError
from slipstream.exchange import check_devices, local_rank
from slipstream.family import (
    StepTimer,
    check_memory,
    grid_field,
    memory_text,
    open_earlier_run,
    ranks_per_device,
    sum_over_ranks,
)
from slipstream.field import Field
from slipstream.launch import on_every_rank
from slipstream.report.choice import PictureChoice
from slipstream.schedule import CATEGORIES, Timeline

LABELS = {
    "mass": "mean of the tracer, which is conserved",
    "energy": "mean of the square of the tracer over two",
    "error_max": "largest error, of a peak of 1",
    "error_rms": "root mean square of the error, of a peak of 1",
}
PICTURES = PictureChoice(
    curves=("error_max", "error_rms"),
    curves_file="error.png",
    field="tracer",
    field_file="tracer.png",
    plane="plane through the peak",
    short_labels={"error_max": "largest error", "error_rms": "error, root mean square"},
)
# Planes are compared with the exact solution so many points at a time, while they are in cache.
_POINTS_AT_A_TIME = 1 << 17


class AdvectionSimulation:
    """A Gaussian carried through a periodic box; see `slipstream.run.Simulation`.

    Its steps cannot be shortened: the scheme's numbers are those of the whole step.

    Parameters
    ----------
    case : AdvectionCase
        The settings.
    communicator : mpi4py.MPI.Comm or None
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
        communicator: Any,
        strategy: str,
        devices: dict[str, Device],
    ) -> None:
        self.case, self.communicator = case, communicator
        self.strategy, self.devices = strategy, devices
        self.step, self._timer = 0, StepTimer(eager=case.run.timeline)
        self._rank, self._ranks = (communicator.rank, communicator.size) if communicator else (0, 1)
        self._placing = _strategy(strategy, self._ranks)
        self._shape = tuple(reversed(case.grid.points_xyz))
        self._grid = self._process_grid()
        self._box = grid_boxes(self._shape, self._grid)[self._rank]
        self._check_width()
        self._sharing = {
            name: ranks_per_device(communicator, device) for name, device in devices.items()
        }

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
        check_memory(self.communicator, self._needs())
        case = self.case
        self.solver = Advection(
            self._shape,
            courant=tuple(reversed(case.flow.courant_xyz)),
            strategy=self.strategy,
            dtype=case.numerics.precision,
            communicator=self.communicator,
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
            values = on_every_rank(self.communicator, lambda: self._read(settings.restart))
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
        values, sums, largest = self.solver.values(), np.zeros(3), 0.0
        for box in _layers(self._box):
            part = values[box.slices(self._box)].astype(np.float64, copy=False)
            error = part - self.solver.exact(self.case.initial.width, box)
            sums += part.sum(), np.vdot(part, part) / 2, np.vdot(error, error)
            # Unlike Python's, NumPy's maximum does not lose what is not a number.
            largest = np.maximum(largest, np.abs(error).max())
        mass, energy, squares = sum_over_ranks(self.communicator, sums) / self.case.points
        return {
            "mass": float(mass),
            "energy": float(energy),
            "error_max": self._maximum(float(largest)),
            "error_rms": math.sqrt(squares),
        }

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

    def _maximum(self, value: float) -> float:
        if self.communicator is None:
            return value
        return float(np.max(self.communicator.allgather(value)))


def _layers(box: Box) -> Iterator[Box]:
    """Yield a box a few planes at a time."""
    depth = max(1, _POINTS_AT_A_TIME // max(1, math.prod(box.shape[1:])))
    for low in range(box.start[0], box.stop[0] if box.size else box.start[0], depth):
        high = min(low + depth, box.stop[0])
        yield Box((low, *box.start[1:]), (high, *box.stop[1:]))


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


def _strategy(name: str, ranks: int) -> Strategy:
    try:
        return checked_strategy(name, ranks)
    except InputError as error:
        raise InputError(f"run.{error}") from error


def make_simulation(case: AdvectionCase, communicator: Any, device: str) -> AdvectionSimulation:
    """Make the simulation of a case. Collective.

    Parameters
    ----------
    case : AdvectionCase
        The settings.
    communicator : mpi4py.MPI.Comm or None
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
        opened = open_device(device, local_rank(communicator))
        check_devices(communicator, opened)
        name = automatic_strategy(communicator, opened)
        return AdvectionSimulation(
            case, communicator, name, {"gpu" if opened.kind == "cuda" else "cpu": opened}
        )
    strategy = _strategy(name, 1 if communicator is None else communicator.size)
    on_every_rank(communicator, lambda: _check_device(name, device))
    devices = open_devices(strategy, {}, None, communicator)
    return AdvectionSimulation(case, communicator, name, devices)


def _check_device(name: str, device: str) -> None:
    """Refuse a strategy that contradicts the device asked for, or lacks the GPU that it needs."""
    needs_gpu = "gpu" in STRATEGIES[name].devices
    if device != "auto" and needs_gpu != (device == "cuda"):
        raise InputError(
            f"run.strategy: {name!r} needs {'a' if needs_gpu else 'no'} GPU, but run.device is "
            f"{device!r}; accepted with it: auto, {_strategies(gpu=not needs_gpu)}"
        )
    if needs_gpu and not cuda_device_count():
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, and CuPy finds none (its extra is "
            f"slipstream[cuda13]); accepted here: auto, {_strategies(gpu=False)}"
        )


def _strategies(gpu: bool) -> str:
    return ", ".join(name for name, one in STRATEGIES.items() if ("gpu" in one.devices) == gpu)


def automatic_strategy(communicator: Any, device: Device) -> str:
    """Return the strategy that suits the device and the number of ranks. Collective.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm or None
        The ranks; all have the same kind of device.
    device : Device
        This rank's.
    """
    ranks = 1 if communicator is None else communicator.size
    if device.kind == "cpu":
        return "single" if ranks == 1 else "mpi-nonblocking"
    if ranks == 1:
        return "gpu"
    # GPUs that store into each other's memory have one rank each.
    shared = len(set(communicator.allgather(device.identity))) < ranks
    return "gpu-mpi-streams" if shared else "gpu-peer"
