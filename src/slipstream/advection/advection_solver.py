"""Advection in a periodic box, by any of the overlap strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from slipstream.advection.overlap_strategies import Strategy, checked_strategy, place, record_pass
from slipstream.advection.stencil import DeviceRegion, check_courant, record_copies
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import check_agreement, collectively, on_every_rank
from slipstream.engine.decomposition import Box, grid_boxes, process_grid
from slipstream.engine.device import Device, HostDevice, open_device
from slipstream.engine.device.array_kernels import add_boxes, empty_sums, total_of
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.device_memory import check_memory, noted_memory, ranks_per_device
from slipstream.engine.errors import (
    InputError,
    is_finite,
    three_counts,
    three_numbers,
    whole_number,
)
from slipstream.engine.exchange import (
    HaloExchange,
    HaloPlan,
    RankPlace,
    Transport,
    local_rank,
    make_transport,
)
from slipstream.engine.schedule import StepGraph, Timeline, commit

# The most time steps of a pass. Three are not faster on an H200: they take more registers.
_MOST_STEPS = 2
# The bytes of both arrays of a rank that a CPU may keep in cache. The same for all ranks.
_CACHED_BYTES = 64 << 20
# The cost of a point of a face normal to z, y and x: in the last each point has its own cache line.
_FACE_COSTS = (1.0, 1.0, 8.0)


@dataclass(frozen=True)
class AdvectionProblem:
    """An advection problem: numbers of points, Courant numbers and ranks are z, y, x."""

    shape: tuple[int, int, int]
    courant: tuple[float, float, float]
    strategy: Strategy
    dtype: np.dtype
    grid: tuple[int, int, int]
    shell: int
    steps_per_pass: int
    devices: Mapping[str, Device]

    @cached_property
    def boxes(self) -> Sequence[Box]:
        """The boxes of points that ranks advance, by rank."""
        return grid_boxes(self.shape, self.grid)

    def allocate(self, rank: int, make_transport: Callable[[str, Any], Transport | None]) -> Points:
        """Return newly allocated points of `rank`. Collective if `make_transport` is."""
        steps = self.steps_per_pass
        halo = tuple(steps if ranks > 1 else 0 for ranks in self.grid)
        placed = [
            place(self.strategy, self.devices, box, halo, self.dtype, self.shell, steps)
            for box in self.boxes
        ]
        local, outermost = placed[rank], next(iter(placed[rank]))
        device = self.devices[outermost]
        name = self.strategy.transport if len(placed) > 1 else "none"
        transport = make_transport(name, device)

        def empty(name: str) -> Callable[..., Any]:
            """Return the allocator of memory that can be exchanged or copied from this device."""
            if name == "cpu" and len(local) == 2:
                return self.devices["gpu"].pinned
            if transport is not None and name == outermost:
                return transport.empty
            return self.devices[name].empty

        regions = {
            name: DeviceRegion(
                self.devices[name], region, self.dtype, self.courant, empty(name), steps
            )
            for name, region in local.items()
        }
        halos = None
        if transport is not None:
            layouts = [next(iter(one.values())).layout for one in placed]
            plan = HaloPlan.make(self.boxes, self.shape, halo, rank)
            halos = HaloExchange(device, plan, layouts, regions[outermost].arrays, transport)
        return Points(self.strategy, regions, halos, transport)

    def memory(self, rank: RankPlace, with_output: bool = False) -> dict[str, int]:
        """Return the bytes of points and halos on each of a rank's devices, without allocating."""
        kinds, places = {"cpu": "cpu", "gpu": "cuda"}, {"cpu": "host", "gpu": "device"}
        devices = {name: NotingDevice.like(one, kinds[name]) for name, one in self.devices.items()}
        noted = replace(self, devices=devices)
        taken = noted_memory(lambda make_transport: noted.allocate(rank.rank, make_transport), rank)
        needed = {name: taken[places[name]] for name in devices}
        if with_output and "cpu" in needed:
            # If the device is the host, it also has the initial values, and the values to write.
            item = self.dtype.itemsize
            needed["cpu"] += self.boxes[rank.rank].size * (8 if item == 8 else 8 + item)
        return needed


@dataclass(frozen=True)
class Points:
    """The points that one rank advances, on one or two devices, and the exchange of their halos."""

    strategy: Strategy
    regions: Mapping[str, DeviceRegion]
    halos: HaloExchange | None
    transport: Transport | None

    def record(self, target: int, steps: int) -> StepGraph:
        """Record the pass that sets array `target` from the other one."""
        return record_pass(self.strategy, self.regions, self.halos, target, steps)


class Advection:
    """A field advected by a constant velocity through a periodic box. Collective.

    Points, Courant numbers and ranks (`grid`) are given along z, y and x. The hybrid strategies
    leave a `shell` of points around the GPU's block to the CPU: its thickness along z and y, and
    along x where ranks divide it. `due` counts the steps that `advance` has postponed; `steps`
    includes them.
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
        steps_per_pass: int | None = None,
    ) -> None:
        ranks = 1 if comm is None else comm.size
        counts = three_counts(shape)
        if counts is None:
            raise InputError(f"shape is {shape}; accepted: three positive numbers z, y, x")
        numbers, chosen = check_courant(courant), checked_strategy(strategy, ranks)
        real, divided = _checked_dtype(dtype), checked_grid(grid, ranks, counts)
        shell = _checked_shell(shell)
        steps = checked_steps(steps_per_pass, chosen, counts, divided, shell, real)
        problem = AdvectionProblem(counts, numbers, chosen, real, divided, shell, steps, {})
        check_agreement(comm, {**vars(problem), "strategy": strategy})
        opened = open_devices(problem.strategy, devices or {}, threads, comm)
        problem = replace(problem, devices=opened)
        needed = problem.memory(RankPlace.of(comm))
        needs = [(one, ranks_per_device(comm, one) * needed[name]) for name, one in opened.items()]
        check_memory(comm, needs, "shape: this grid", precision=problem.dtype)
        self._allocate(problem, comm)

    @classmethod
    def of(cls, problem: AdvectionProblem, comm: Comm) -> Advection:
        """Return the advection of a checked problem. Collective."""
        self = cls.__new__(cls)
        self._allocate(problem, comm)
        return self

    def _allocate(self, problem: AdvectionProblem, comm: Comm) -> None:
        self.problem, self.comm, self.boxes = problem, comm, problem.boxes
        self.shape, self.devices = problem.shape, problem.devices
        rank = 0 if comm is None else comm.rank
        self.box = self.boxes[rank]
        self._points = problem.allocate(
            rank, lambda name, device: make_transport(name, comm, device)
        )
        # Passes by their number of steps; remaining steps are taken one by one.
        self._passes = {
            steps: [
                commit(self._points.record(target, steps), problem.strategy.policy)
                for target in (0, 1)
            ]
            for steps in {1, problem.steps_per_pass}
        }
        self.committed = self._passes[problem.steps_per_pass]
        self._newest = self.steps = self.due = 0

    def set(self, values: np.ndarray, steps: int = 0) -> None:
        """Set the values of this rank's points, as they are after some steps. Collective."""
        values, steps = on_every_rank(self.comm, lambda: self._checked_values(values, steps))
        self.synchronize()
        regions, halos = self._points.regions, self._points.halos
        for region in regions.values():
            box = region.region.layout.box
            mine = np.ascontiguousarray(values[box.slices(self.box)], self.problem.dtype)
            region.device.run(region.device.copy(region.view(0, box), mine))
            region.device.synchronize()
        if halos is not None:
            if self.comm is not None:
                self.comm.Barrier()  # no rank reads a halo any more, and all have set their values
            graph = StepGraph(next(iter(regions.values())).device)
            halos.record(graph, 0)
            commit(graph, "serial").run()
        if len(regions) == 2:
            graph = StepGraph(self.devices["gpu"])
            record_copies(graph, regions["cpu"], regions["gpu"], 0)
            commit(graph, "serial").run()
        self._newest, self.steps, self.due = 0, steps, 0

    def _checked_values(self, values: Any, steps: Any) -> tuple[np.ndarray, int]:
        if isinstance(values, np.ma.MaskedArray):
            raise InputError("values are a masked array; accepted: a plain one, as its .filled(0)")
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise InputError(f"values are of type {values.dtype}; accepted: real numbers")
        if values.shape != self.box.shape:
            raise InputError(f"values have shape {values.shape}; accepted: {self.box.shape}")
        return values, whole_number("steps", steps, 0)

    def advance(self, steps: int = 1, profile: bool = False, complete: bool = True) -> None:
        """Advance the field by some steps; without `complete` only by whole passes. Collective.

        Work on a GPU may still be running when this returns; see `synchronize`.
        """
        steps = whole_number("steps", steps, 0)
        self.steps += steps
        self.due += steps
        most = self.problem.steps_per_pass
        while self.due >= (1 if complete else most):
            count = most if self.due >= most else 1
            self._newest = 1 - self._newest
            self._passes[count][self._newest].run(profile)
            self.due -= count

    def synchronize(self) -> None:
        """Wait until all steps are done; raise RunError if another rank does not answer."""
        for passes in self._passes.values():
            for one in passes:
                one.synchronize()
        if self._points.transport is not None:
            self._points.transport.check()

    def values(self) -> np.ndarray:
        """Return this rank's points as a new array of shape ``box.shape``."""
        self.advance(0)
        self.synchronize()
        result = np.empty(self.box.shape, self.problem.dtype)
        for region in self._points.regions.values():
            for box in region.region.boxes:
                result[box.slices(self.box)] = region.device.to_host(region.view(self._newest, box))
        return result

    def digest_sum(self) -> np.ndarray:
        """Return this rank's part of the digest of all points (see `array_kernels`)."""
        self.advance(0)
        self.synchronize()
        total = np.zeros(1, np.uint64)
        for region in self._points.regions.values():
            sums = empty_sums(region.device)
            for box in region.region.boxes:
                values = region.view(self._newest, box)[None]
                add_boxes(region.device, values, sums, box.shape[2], box.start, self.shape)
            total += total_of(region.device, sums)
        return total

    def exact(self, width: float, box: Box | None = None) -> np.ndarray:
        """Return the exact solution for a Gaussian of this width (in edges) in a box."""
        shape, courant = self.problem.shape, self.problem.courant
        travelled = [self.steps * one / points for one, points in zip(courant, shape, strict=True)]
        return gaussian(box or self.box, shape, travelled, width)

    def timeline(self, forget: bool = False) -> Timeline:
        """Return the timeline of the profiled steps; `forget` clears the record."""
        every = [one.timeline for passes in self._passes.values() for one in passes]
        return Timeline.merged(every, forget)


def gaussian(
    box: Box, shape: Sequence[int], travelled: Sequence[float], width: float
) -> np.ndarray:
    """Return a periodic Gaussian in a box, which started in the middle of all points.

    Distances travelled and width are in edges of the whole box.
    """
    if not isinstance(box, Box) or len(box.shape) != 3:
        raise InputError(f"box is {box!r}; accepted: a Box of three axes")
    if not (is_finite(width) and width > 0):
        raise InputError(f"width is {width!r}; accepted: a number more than 0")
    counts, distances = three_counts(shape), three_numbers("travelled", travelled)
    if counts is None:
        raise InputError(f"shape is {shape!r}; accepted: three positive numbers z, y, x")
    factors: list[Any] = []
    # Periodic images beyond this distance are below rounding.
    most = 1 + math.ceil(9 * width)
    for start, stop, points, distance in zip(box.start, box.stop, counts, distances, strict=True):
        away = (np.arange(start, stop) / points - 0.5 - distance) % 1.0
        images = range(-most, most + 1)
        factors.append(sum(np.exp(-0.5 * ((away + image) / width) ** 2) for image in images))
    z, y, x = factors
    values: np.ndarray = z[:, None, None] * y[None, :, None] * x[None, None, :]
    return values


def _checked_dtype(dtype: Any) -> np.dtype:
    """Return the dtype of the values; refuse others."""
    try:
        name: str = np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):
        name = repr(dtype)
    if name not in ("float32", "float64"):
        raise InputError(f"dtype {name} is not supported; accepted: float64, float32")
    return np.dtype(name)


def checked_grid(
    grid: Sequence[int] | None, ranks: int, shape: Sequence[int]
) -> tuple[int, int, int]:
    """Return the number of ranks along z, y and x; by default the grid that exchanges least."""
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


def checked_steps(
    steps: int | None,
    strategy: Strategy,
    shape: Sequence[int],
    grid: Sequence[int],
    shell: int,
    dtype: Any,
    key: str = "steps_per_pass",
) -> int:
    """Return the number of time steps of a pass; by default the best for devices and shape."""
    divided = [points for points, ranks in zip(shape, grid, strict=True) if ranks > 1]
    has_shell = len(strategy.devices) == 2 and shell > 0
    most, accepted = _MOST_STEPS, "1 or 2"
    if min(divided, default=most) < most:
        most, accepted = 1, "1, as an axis that ranks divide has a single point"
    elif has_shell and shell < most:
        most, accepted = 1, f"1, as the CPU's shell has {shell} point"
    if steps is None:
        # For points in a CPU's cache a longer pass only adds the work around tiles.
        cached = 2 * math.prod(shape) * np.dtype(dtype).itemsize <= math.prod(grid) * _CACHED_BYTES
        is_gpu = strategy.devices[-1] == "gpu"
        return 1 if has_shell or (cached and not is_gpu) else most
    try:
        if whole_number(key, steps, 1) <= most:
            return steps
    except InputError:
        pass
    raise InputError(f"{key} is {steps!r}; accepted: {accepted}")


def open_devices(
    strategy: Strategy, ready: Mapping[str, Device], threads: int | None, comm: Comm
) -> dict[str, Device]:
    """Return the devices of a strategy; missing ones are opened. Collective."""
    known = isinstance(ready, Mapping) and set(ready) <= {"cpu", "gpu"}
    if not known or not all(isinstance(one, Device) for one in ready.values()):
        raise InputError(f"devices is {ready!r}; accepted: a mapping of 'cpu' and 'gpu' to devices")
    if threads is not None:
        threads = whole_number("threads", threads, 1)
    devices = dict(ready)
    local = local_rank(comm)
    if "cpu" in strategy.devices and "cpu" not in devices:
        # A shell takes less time than several lanes need to start.
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
