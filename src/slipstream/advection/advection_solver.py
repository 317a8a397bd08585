"""Advection in a periodic box, by any of the overlap strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from slipstream.advection.device_regions import DeviceRegion, Region, record_copies
from slipstream.advection.exact_solution import gaussian
from slipstream.advection.overlap_strategies import (
    Strategy,
    checked_strategy,
    place,
    record_step,
)
from slipstream.advection.stencil import check_courant
from slipstream.argument_checks import three_counts, whole_number
from slipstream.array_types import Comm
from slipstream.collective import check_agreement, collectively, on_every_rank
from slipstream.decomposition import Box, grid_boxes, process_grid
from slipstream.device import Device, HostDevice, open_device
from slipstream.errors import InputError
from slipstream.exchange import HaloExchange, HaloPlan, Transport, local_rank, make_transport
from slipstream.schedule import StepGraph, Timeline, commit
from slipstream.simulation.device_memory import check_memory, ranks_per_device

# Cost of a point of a face normal to z, y and x: each point of the last has its own cache line.
_FACE_COSTS = (1.0, 1.0, 8.0)


@dataclass(frozen=True)
class AdvectionProblem:
    """What is advected, and where: numbers of points, Courant numbers and ranks are z, y, x."""

    shape: tuple[int, int, int]
    courant: tuple[float, float, float]
    strategy: Strategy
    dtype: np.dtype
    grid: tuple[int, int, int]
    shell: int
    devices: Mapping[str, Device]

    @cached_property
    def boxes(self) -> list[Box]:
        """The points of each rank."""
        return grid_boxes(self.shape, self.grid)

    @property
    def divided(self) -> tuple[int, ...]:
        """1 for axes that ranks divide, else 0."""
        return tuple(int(ranks > 1) for ranks in self.grid)

    def place(self, rank: int) -> dict[str, Region]:
        """Return which device of a rank advances what; the first has what other ranks read."""
        box, dtype = self.boxes[rank], self.dtype
        return place(self.strategy, self.devices, box, self.divided, dtype, self.shell)

    def memory(self, rank: int, with_output: bool = False) -> dict[str, int]:
        """Return the bytes that a rank needs on each of its devices."""
        needed, box, item = dict.fromkeys(self.devices, 0), self.boxes[rank], self.dtype.itemsize
        regions = self.place(rank)
        for name, region in regions.items():
            needed[name] += region.bytes(self.dtype)
        # Two halos, packed both ways on the device that has the points which other ranks read.
        halo = box.grown(self.divided).size - box.size if box.size else 0
        needed[next(iter(regions))] += 4 * halo * item
        if with_output and "cpu" in needed:
            # Where the device is the host, so are the initial values, and those that are written.
            needed["cpu"] += box.size * (8 if item == 8 else 8 + item)
        return needed

    def record_steps(
        self, rank: int, make_transport: Callable[[Device, str], Transport | None]
    ) -> RecordedSteps:
        """Allocate the points of a rank, and record its steps. Collective if `make_transport` is.

        That makes a transport of a name for the device whose points other ranks read.
        """
        placed, ranks = self.place(rank), len(self.boxes)
        outermost = next(iter(placed))
        device = self.devices[outermost]
        transport = make_transport(device, self.strategy.transport if ranks > 1 else "none")

        def empty(name: str) -> Callable[..., Any]:
            """Return what allocates memory that whatever moves this device's data can access."""
            if name == "cpu" and len(placed) == 2:
                return self.devices["gpu"].pinned
            if transport is not None and name == outermost:
                return transport.empty
            return self.devices[name].empty

        regions = {
            name: DeviceRegion(self.devices[name], region, self.dtype, self.courant, empty(name))
            for name, region in placed.items()
        }
        halos = None
        if transport is not None:
            layouts = [next(iter(self.place(one).values())).layout for one in range(ranks)]
            plan = HaloPlan.make(self.boxes, self.shape, self.divided, rank)
            halos = HaloExchange(device, plan, layouts, regions[outermost].arrays, transport)
        graphs = [record_step(self.strategy, regions, halos, target) for target in (0, 1)]
        return RecordedSteps(regions, halos, transport, graphs)


@dataclass(frozen=True)
class RecordedSteps:
    """The two steps of a rank that take turns, and what they work on."""

    regions: Mapping[str, DeviceRegion]
    halos: HaloExchange | None
    transport: Transport | None
    graphs: list[StepGraph]


class Advection:
    """A field that a constant velocity carries through a periodic box. Collective.

    Parameters
    ----------
    shape : sequence of int
        Number of points along z, y and x.
    courant : sequence of float
        Courant numbers along z, y and x, each from -1 to 1.
    strategy : str
        One of `STRATEGIES`; all give the same bits.
    dtype : dtype
        float64 or float32.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    grid : sequence of int, optional
        Number of ranks along z, y and x; by default what exchanges least.
    shell : int
        For the hybrid strategies: thickness of the CPU's shell around the GPU's block, along z and
        y, and along x where ranks divide it. 0 leaves all points to the GPU.
    threads : int, optional
        How many threads of the CPU compute; by default all that this process may use.
    devices : dict of str to Device, optional
        The "cpu" and the "gpu" to use; opened if not given.

    Attributes
    ----------
    box : Box
        This rank's points, by global index z, y, x.
    boxes : list of Box
        Those of all ranks.
    devices : dict of str to Device
        The devices in use.
    steps : int
        Number of steps done.

    Raises
    ------
    InputError
        If an argument is not accepted, or the strategy needs what is not here.
    """

    @collectively
    def __init__(
        self,
        shape: Sequence[int],
        courant: Sequence[float] = (1.0, 1.0, 1.0),
        strategy: str = "single",
        dtype: Any = "float64",
        comm: Comm = None,
        grid: Sequence[int] | None = None,
        shell: int = 1,
        threads: int | None = None,
        devices: Mapping[str, Device] | None = None,
    ) -> None:
        rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        counts = three_counts(shape)
        if counts is None:
            raise InputError(f"shape is {shape}; accepted: three positive numbers z, y, x")
        self.shape, self.courant = counts, check_courant(courant)
        self.dtype, self.comm = _checked_dtype(dtype), comm
        self.strategy, self.shell = checked_strategy(strategy, ranks), _checked_shell(shell)
        self.grid = checked_grid(grid, ranks, self.shape)
        asked: dict[str, Any] = {"shape": self.shape, "courant": self.courant}
        asked |= {"dtype": self.dtype, "grid": self.grid, "shell": self.shell}
        check_agreement(comm, {**asked, "strategy": strategy})
        self.devices = open_devices(self.strategy, devices or {}, threads, comm)
        problem = AdvectionProblem(**asked, strategy=self.strategy, devices=self.devices)
        self.boxes = problem.boxes
        self.box = self.boxes[rank]
        needed = problem.memory(rank)
        needs = [
            (device, ranks_per_device(comm, device) * needed[name])
            for name, device in self.devices.items()
        ]
        check_memory(comm, needs, "shape: this grid")
        recorded = problem.record_steps(
            rank, lambda device, name: make_transport(name, comm, device)
        )
        self._regions, self._halos = recorded.regions, recorded.halos
        self._transport = recorded.transport
        self._steps = [commit(graph, self.strategy.policy) for graph in recorded.graphs]
        self._newest, self.steps = 0, 0

    def set(self, values: np.ndarray, steps: int = 0) -> None:
        """Set the values of this rank's points. Collective.

        Parameters
        ----------
        values : numpy.ndarray
            Of shape ``box.shape``.
        steps : int
            Number of steps that they have behind them.

        Raises
        ------
        InputError
            If the shape is another one, or they are no real numbers; on all ranks.
        """
        values, steps = on_every_rank(self.comm, lambda: self._checked_values(values, steps))
        self.synchronize()
        for one in self._regions.values():
            box = one.region.layout.box
            mine = np.ascontiguousarray(values[box.slices(self.box)], self.dtype)
            one.device.run(one.device.copy(one.view(0, box), mine))
            one.device.synchronize()
        if self._halos is not None:
            if self.comm is not None:
                self.comm.Barrier()  # no rank still reads a halo, and all have set their values
            graph = StepGraph(next(iter(self._regions.values())).device)
            self._halos.record(graph, 0)
            commit(graph, "serial").run()
        if len(self._regions) == 2:
            graph = StepGraph(self.devices["gpu"])
            record_copies(graph, self._regions["cpu"], self._regions["gpu"], 0)
            commit(graph, "serial").run()
        self._newest, self.steps = 0, steps

    def _checked_values(self, values: Any, steps: Any) -> tuple[np.ndarray, int]:
        if isinstance(values, np.ma.MaskedArray):
            raise InputError("values are a masked array; accepted: a plain one, as its .filled(0)")
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise InputError(f"values are of type {values.dtype}; accepted: real numbers")
        if values.shape != self.box.shape:
            raise InputError(f"values have shape {values.shape}; accepted: {self.box.shape}")
        return values, whole_number("steps", steps, 0)

    def advance(self, steps: int = 1, profile: bool = False) -> None:
        """Advance the field by some steps. Collective.

        Work on a GPU may still be under way when this returns; see `synchronize`.

        Parameters
        ----------
        steps : int
            How many.
        profile : bool
            Whether to record when everything ran, for `timeline`.

        Raises
        ------
        RunError
            If something fails, or another rank does not answer.
        """
        steps = whole_number("steps", steps, 0)
        for _ in range(steps):
            self._newest = 1 - self._newest
            self._steps[self._newest].run(profile)
        self.steps += steps

    def synchronize(self) -> None:
        """Wait until all steps are done; a RunError if another rank has not answered."""
        for step in self._steps:
            step.synchronize()
        if self._transport is not None:
            self._transport.check()

    def values(self) -> np.ndarray:
        """Return this rank's points as a new array of shape ``box.shape``."""
        self.synchronize()
        result = np.empty(self.box.shape, self.dtype)
        for one in self._regions.values():
            for box in one.region.boxes:
                result[box.slices(self.box)] = one.device.to_host(one.view(self._newest, box))
        return result

    def exact(self, width: float, box: Box | None = None) -> np.ndarray:
        """Return where a Gaussian of this width is by now.

        Parameters
        ----------
        width : float
            Standard deviation in edges of the whole box; at the first step it was in its middle.
        box : Box, optional
            The points wanted, by global index; this rank's if not given.
        """
        travelled = [
            self.steps * courant / points
            for courant, points in zip(self.courant, self.shape, strict=True)
        ]
        return gaussian(box or self.box, self.shape, travelled, width)

    def timeline(self, forget: bool = False) -> Timeline:
        """Return what ran when in the profiled steps; `forget` clears the record."""
        return Timeline.merged([step.timeline for step in self._steps], forget)


def _checked_dtype(dtype: Any) -> np.dtype:
    """Return the type of the values."""
    try:
        name = np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):
        name = repr(dtype)
    if name not in ("float32", "float64"):
        raise InputError(f"dtype {name} is not supported; accepted: float64, float32")
    return np.dtype(name)


def checked_grid(
    grid: Sequence[int] | None, ranks: int, shape: Sequence[int]
) -> tuple[int, int, int]:
    """Return the number of ranks along z, y and x; if not given, what exchanges least."""
    if grid is None:
        z, y, x = process_grid(ranks, shape, _FACE_COSTS)
        return z, y, x
    numbers = three_counts(grid)
    if numbers is None or math.prod(numbers) != ranks:
        raise InputError(
            f"grid is {grid}; accepted: three positive numbers whose product is the number "
            f"of ranks, {ranks}"
        )
    return numbers


def open_devices(
    strategy: Strategy, given: Mapping[str, Device], threads: int | None, comm: Comm
) -> dict[str, Device]:
    """Return the devices of a strategy; those that are not given are opened. Collective."""
    known = isinstance(given, Mapping) and set(given) <= {"cpu", "gpu"}
    if not known or not all(isinstance(one, Device) for one in given.values()):
        raise InputError(f"devices is {given!r}; accepted: a mapping of 'cpu' and 'gpu' to devices")
    if threads is not None:
        threads = whole_number("threads", threads, 1)
    devices = dict(given)
    local = local_rank(comm)
    if "cpu" in strategy.devices and "cpu" not in devices:
        # A shell is done before several lanes would have begun.
        lanes = 1 if "gpu" in strategy.devices else None
        devices["cpu"] = HostDevice(threads=threads, lanes=lanes, spare_core=strategy.spare_core)
    if "gpu" in strategy.devices and "gpu" not in devices:
        devices["gpu"] = open_device("cuda", local)
    return {name: devices[name] for name in strategy.devices}


def _checked_shell(shell: Any) -> int:
    """Return the thickness of the CPU's shell."""
    try:
        return whole_number("shell", shell, 0)
    except InputError:
        raise InputError(f"shell is {shell}; accepted: a thickness of 0 points or more") from None
