"""What a distributed transform costs: its parts, its bounds, and what others take for the same.

A transform and its rivals are timed in turn, so that all see the same noise. Two bounds of the same
run stand beside them: a large copy, and an exchange of as many bytes without any transform.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from slipstream.bench.baselines import (
    Problem,
    Yardstick,
    mpi4py_fft_yardstick,
    plain_yardstick,
)
from slipstream.bench.exchange_bench import ExchangeTimer
from slipstream.bench.exchange_patterns import ELEMENT
from slipstream.bench.idle_ranks import OnFirstRank
from slipstream.bench.measured_transform import FixedTransforms, TransformRequest, operations
from slipstream.bench.repetitions import copy_bandwidth, extreme, medians
from slipstream.device import Device
from slipstream.exchange import make_transport
from slipstream.fft import DistributedFFT
from slipstream.schedule import Timeline

DIRECTIONS = ("forward", "backward")
OURS, UNPRUNED = "slipstream", "slipstream, unpruned"

_PROFILED = 3


def measure_fft(request: TransformRequest, device: Device, comm: Any) -> dict[str, Any]:
    """Measure a distributed transform. Collective.

    Parameters
    ----------
    request : TransformRequest
        What to measure.
    device : Device
        This rank's device.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Returns
    -------
    dict
        Settings, seconds, rates, bounds; a comparison of forward and backward seconds by name; and
        notes on what could not be compared.

    Raises
    ------
    InputError
        If an argument of the plan is not accepted.
    """
    ours = FixedTransforms(request.plan(device, comm))
    rivals = [Yardstick(OURS, ours.forward, ours.backward)]
    if request.truncation is not None:
        whole = FixedTransforms(request.plan(device, comm, truncation=None))
        rivals.append(Yardstick(UNPRUNED, whole.forward, whole.backward))
    found = _yardsticks(request, device, comm)
    rivals += [one for one in found if not isinstance(one, str)]
    plain = next((one.name for one in rivals if isinstance(one.forward, OnFirstRank)), None)
    bandwidth = copy_bandwidth(device)()
    seconds = _timed(rivals, device, comm, request.repetitions)
    result = _settings(request, ours.plan, comm)
    result |= _rates(request, seconds[OURS])
    result |= _profile(ours, comm)
    result["host (s per call)"] = _host_seconds(ours, comm, request.repetitions)
    result["copy bandwidth (GB/s)"] = extreme(comm, bandwidth, min) / 1e9
    result |= _wire_figures(request, ours.plan, comm, seconds[OURS])
    result["relative error, there and back"] = ours.error(comm)
    if request.wire is not None:
        result["relative error of one exchange"] = ours.plan.wire_error()
    result["comparison"] = _compared(seconds, plain)
    result["notes"] = [one for one in found if isinstance(one, str)]
    return result


def _yardsticks(request: TransformRequest, device: Device, comm: Any) -> list[Yardstick | str]:
    if not request.plain:
        return []
    problem = Problem(request.shape, np.dtype(request.dtype), request.fields)
    found = [plain_yardstick(problem, device, comm)]
    if device.kind == "cpu":
        found.append(mpi4py_fft_yardstick(problem, device, comm))
    return found


def _timed(
    rivals: Sequence[Yardstick], device: Device, comm: Any, repetitions: int
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


def _settings(request: TransformRequest, plan: DistributedFFT, comm: Any) -> dict[str, Any]:
    settings = asdict(request)
    del settings["plain"]
    return settings | {
        "shape": list(request.shape),
        "transport": plan.transport,
        "ranks": comm.size if comm is not None else 1,
        "plan": plan.describe(),
        "exchanges one way": plan.exchanges,
    }


def _rates(request: TransformRequest, seconds: Mapping[str, float]) -> dict[str, Any]:
    count = operations(request.shape, request.dtype, request.fields)
    return {
        "seconds": dict(seconds),
        "GFLOP/s": {way: count / one / 1e9 for way, one in seconds.items()},
    }


def _profile(ours: FixedTransforms, comm: Any) -> dict[str, Any]:
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
            name: _mean(comm, statistics.fmean(one.get(name, 0.0) for one in totals))
            for name in sorted(set.union(*everyone))
        }
        mine = statistics.fmean(timeline.exposed() for timeline in timelines)
        exposed[way] = _mean(comm, mine)
    return result | {"exposed communication (s)": exposed}


def _host_seconds(ours: FixedTransforms, comm: Any, repetitions: int) -> dict[str, float]:
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
        result[way] = extreme(comm, statistics.median(samples), max)
    return result


def _wire_figures(
    request: TransformRequest, plan: DistributedFFT, comm: Any, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the bound by the wire: what leaves a rank, at the rate of an exchange alone."""
    most = int(extreme(comm, plan.wire_bytes, max))
    if comm is None or comm.size == 1 or not most:
        return {}
    size = ELEMENT.itemsize
    message = max(size, most // plan.exchanges // (comm.size - 1) // size * size)
    # A narrow wire is said behind the transport's name; the bytes of the bound are narrow already.
    transport = make_transport(plan.transport.partition(",")[0], comm, plan.device)
    timer = ExchangeTimer(plan.device, comm, {transport.name: transport}, message)
    alone = timer.seconds("all-to-all", message, request.repetitions)[transport.name]
    rate = (comm.size - 1) * message / alone
    return {
        "bytes off the rank, largest": most,
        "all-to-all alone (GB/s per rank)": rate / 1e9,
        "wire bound (s)": most / rate,
        "wire bound / time": {way: most / rate / one for way, one in seconds.items()},
    }


def _mean(comm: Any, value: float) -> float:
    return value if comm is None else statistics.fmean(comm.allgather(value))
