"""What a distributed transform costs: its parts, its bounds, and what others take for the same.

A transform and its rivals are timed in turn, so that all see the same noise. Two bounds of the same
run stand beside them: a large copy, and an exchange of as many bytes without any transform.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.bench.comparison import headline
from slipstream.bench.exchange_bench import ELEMENT, ExchangeTimer
from slipstream.bench.harness import (
    Column,
    OnFirstRank,
    Outcome,
    copy_bandwidth,
    medians,
    number_of,
    over_ranks,
    print_figures,
    seconds_of,
    show_table,
    text_of,
)
from slipstream.bench.reference_ffts import (
    Problem,
    Yardstick,
    mpi4py_fft_yardstick,
    plain_yardstick,
)
from slipstream.bench.requests import TransformRequest
from slipstream.device import Device, HostDevice
from slipstream.exchange import Transport, make_transport
from slipstream.fft import DistributedFFT
from slipstream.schedule import Timeline

DIRECTIONS = ("forward", "backward")
OURS, UNPRUNED = "slipstream", "slipstream, unpruned"
# Ratios of a comparison, and the columns that show them.
_PAIRS = {"pair / plain pair": "of plain", "pair / unpruned pair": "of unpruned"}
# The first calls with some arrays prepare for them.
_WARM_UP = 2
_PROFILED = 3


def run(request: TransformRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    if request.residency == "host":
        from slipstream.bench.fft_out_of_core_bench import run_out_of_core

        return run_out_of_core(request, device, comm)
    result = measure_fft(request, device, comm)
    fractions = result.get("wire bound / time", {})
    headlines = {
        way: headline(one, fractions[way] * one if way in fractions else None)
        for way, one in result["seconds"].items()
    }
    title = f"transform on {device.name}"
    return Outcome("fft", title, device, result, print_fft, headlines=headlines)


def make_plan(
    request: TransformRequest, device: Device, comm: Comm, **changes: Any
) -> DistributedFFT:
    """Make the plan that is asked for, with some arguments changed. Collective."""
    names = ("layout", "order", "truncation", "transport", "tune", "wire", "fields")
    arguments = {name: getattr(request, name) for name in names} | changes
    return DistributedFFT(request.shape, request.dtype, comm=comm, device=device, **arguments)


def operations(shape: Sequence[int], dtype: Any, fields: int = 1) -> float:
    """Return the customary number of operations of a transform: 5 M log2 M, half if real."""
    points = math.prod(shape)
    half = 0.5 if np.dtype(dtype).kind == "f" else 1.0
    return 5.0 * points * math.log2(points) * half * fields


class FixedTransforms:
    """A plan with arrays that come again in every call. Collective, like its methods."""

    def __init__(self, plan: DistributedFFT) -> None:
        self.plan = plan
        self.points, self.modes, self.back = (
            plan.empty_input(),
            plan.empty_output(),
            plan.empty_input(),
        )
        _fill(plan, self.points)
        for _ in range(_WARM_UP):
            self.forward()
            self.backward()

    def forward(self) -> None:
        """Transform points to modes."""
        self.plan.forward(self.points, out=self.modes)

    def backward(self) -> None:
        """Transform modes to other points."""
        self.plan.backward(self.modes, out=self.back)

    def error(self, comm: Comm) -> float:
        """Return the relative error, root mean square, of a transform there and back again."""
        modes = self.plan.forward(self.back)
        module = self.plan.device.array_module
        squares = np.zeros(2)
        for mine, exact in zip(modes, self.modes, strict=True):
            for place, array in enumerate((mine - exact, exact)):
                squares[place] += float(module.sum(module.abs(array) ** 2, dtype="float64"))
        if comm is not None:
            squares = sum(comm.allgather(squares))
        return float(math.sqrt(squares[0] / squares[1])) if squares[1] else 0.0


def _fill(plan: DistributedFFT, points: Array) -> None:
    """Fill an input with random numbers that depend on the position only, not on the ranks."""
    part, dtype, device = plan.input_box, plan.arguments.dtype, plan.device
    _, ny, nx = plan.shape
    batch = points.reshape(plan.arguments.fields, *part.shape)
    for field in range(plan.arguments.fields):
        for plane in range(part.shape[0]):
            generator = np.random.default_rng((field, part.start[0] + plane))
            values = generator.random((ny, nx)) - 0.5
            if dtype.kind == "c":
                values = values + 1j * (generator.random((ny, nx)) - 0.5)
            mine = np.ascontiguousarray(values[part.slices()[1:]].astype(dtype))
            device.run(device.copy(batch[field, plane], mine))


def measure_fft(request: TransformRequest, device: Device, comm: Comm) -> dict[str, Any]:
    """Return seconds, rates and bounds, and a comparison with others. Collective."""
    ours = FixedTransforms(make_plan(request, device, comm))
    rivals = [Yardstick(OURS, ours.forward, ours.backward)]
    if request.truncation is not None:
        whole = FixedTransforms(make_plan(request, device, comm, truncation=None))
        rivals.append(Yardstick(UNPRUNED, whole.forward, whole.backward))
    found = _yardsticks(request, device, comm)
    rivals += [one for one in found if not isinstance(one, str)]
    plain = next((one.name for one in rivals if isinstance(one.forward, OnFirstRank)), None)
    bandwidth = copy_bandwidth(device)()
    seconds = _timed(rivals, device, comm, request.repetitions)
    result = request.settings() | {
        "transport": ours.plan.transport,
        "ranks": comm.size if comm is not None else 1,
        "plan": ours.plan.describe(),
        "exchanges one way": ours.plan.exchanges,
    }
    count = operations(request.shape, request.dtype, request.fields)
    result["seconds"] = dict(seconds[OURS])
    result["GFLOP/s"] = {way: count / one / 1e9 for way, one in seconds[OURS].items()}
    result |= _profile(ours, comm)
    result["host (s per call)"] = _host_seconds(ours, comm, request.repetitions)
    result["copy bandwidth (GB/s)"] = over_ranks(comm, bandwidth, min) / 1e9
    result |= _wire_figures(request, ours.plan, comm, seconds[OURS])
    result["relative error, there and back"] = ours.error(comm)
    if request.wire is not None:
        result["relative error of one exchange"] = ours.plan.wire_error()
    result["comparison"] = _compared(seconds, plain)
    result["notes"] = [one for one in found if isinstance(one, str)]
    return result


def _yardsticks(request: TransformRequest, device: Device, comm: Comm) -> list[Yardstick | str]:
    if not request.plain:
        return []
    problem = Problem(request.shape, np.dtype(request.dtype), request.fields)
    found = [plain_yardstick(problem, device, comm)]
    if isinstance(device, HostDevice):
        found.append(mpi4py_fft_yardstick(problem, device, comm))
    return found


def _timed(
    rivals: Sequence[Yardstick], device: Device, comm: Comm, repetitions: int
) -> dict[str, dict[str, float]]:
    """Return median seconds by name and direction."""
    actions: dict[tuple[str, str], Callable[[], None]] = {
        (one.name, way): getattr(one, way) for one in rivals for way in DIRECTIONS
    }
    seconds = medians(device, actions, repetitions, comm)
    for key, action in actions.items():
        if isinstance(action, OnFirstRank):
            seconds[key] = action.seconds()
    return {one.name: {way: seconds[one.name, way] for way in DIRECTIONS} for one in rivals}


def _compared(
    seconds: Mapping[str, Mapping[str, float]], plain: str | None
) -> dict[str, dict[str, float]]:
    """Add the pairs, as multiples of the plain pair and of ours without truncation."""
    pairs = {name: sum(one.values()) for name, one in seconds.items()}
    result = {name: dict(one) for name, one in seconds.items()}
    for name, one in result.items():
        if plain is not None:
            one["pair / plain pair"] = pairs[name] / pairs[plain]
        if UNPRUNED in pairs:
            one["pair / unpruned pair"] = pairs[name] / pairs[UNPRUNED]
    return result


def _profile(ours: FixedTransforms, comm: Comm) -> dict[str, Any]:
    """Return the seconds of each category, and of exchanges not hidden: means over ranks."""
    ours.plan.profile(ours.points, ours.modes)
    runs = [ours.plan.profile(ours.points, ours.modes) for _ in range(_PROFILED)]
    result: dict[str, Any] = {}
    exposed: dict[str, float] = {}
    for way in DIRECTIONS:
        timelines: list[Timeline] = [run[way] for run in runs]
        totals = [timeline.totals() for timeline in timelines]
        names = {name for one in totals for name in one}
        everyone = [names] if comm is None else comm.allgather(names)
        result[f"timers of {way} (s)"] = {
            name: over_ranks(
                comm, statistics.fmean(one.get(name, 0.0) for one in totals), statistics.fmean
            )
            for name in sorted(set.union(*everyone))
        }
        mine = statistics.fmean(timeline.exposed() for timeline in timelines)
        exposed[way] = over_ranks(comm, mine, statistics.fmean)
    return result | {"exposed communication (s)": exposed}


def _host_seconds(ours: FixedTransforms, comm: Comm, repetitions: int) -> dict[str, float]:
    """Return how long the calls alone take, with the device idle before and not waited for."""
    device, result = ours.plan.device, {}
    for way in DIRECTIONS:
        call, samples = getattr(ours, way), []
        for _ in range(repetitions):
            device.synchronize()
            if comm is not None:
                comm.Barrier()
            start = time.perf_counter()
            call()
            samples.append(time.perf_counter() - start)
        device.synchronize()
        result[way] = over_ranks(comm, statistics.median(samples), max)
    return result


def _wire_figures(
    request: TransformRequest, plan: DistributedFFT, comm: Comm, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the bound by the wire: what leaves a rank, at the rate of an exchange alone."""
    most = int(over_ranks(comm, plan.wire_bytes, max))
    if comm is None or comm.size == 1 or not most:
        return {}
    size = ELEMENT.itemsize
    message = max(size, most // plan.exchanges // (comm.size - 1) // size * size)
    # A narrow wire is said behind the transport's name; the bytes of the bound are narrow already.
    name = plan.transport.partition(",")[0]
    transport = cast(Transport, make_transport(name, comm, plan.device))
    timer = ExchangeTimer(plan.device, comm, {name: transport}, message)
    alone = timer.seconds("all-to-all", message, request.repetitions)[name]
    rate = (comm.size - 1) * message / alone
    return {
        "bytes off the rank, largest": most,
        "all-to-all alone (GB/s per rank)": rate / 1e9,
        "wire bound (s)": most / rate,
        "wire bound / time": {way: most / rate / one for way, one in seconds.items()},
    }


def print_fft(title: str, result: Mapping[str, Any]) -> None:
    """Print the figures of a transform, and the comparison with others."""
    apart = ("comparison", "notes")
    print_figures(title, {name: value for name, value in result.items() if name not in apart})
    rows = [
        {"name": name, "pair": one["forward"] + one["backward"], **one}
        for name, one in result["comparison"].items()
    ]

    columns: dict[str, Column] = {"": text_of("name")}
    columns |= {key: seconds_of(key) for key in ("forward", "backward", "pair")}
    columns |= {_PAIRS[key]: number_of(key) for key in _PAIRS if any(key in row for row in rows)}
    show_table("forward and backward, and pairs of both", columns, rows, result["notes"])
