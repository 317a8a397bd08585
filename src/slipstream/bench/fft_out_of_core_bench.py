"""What transforms of arrays on the host cost: time, timers, and the bound by the bus.

The bound is the bytes that cross the bus in each direction, over the rate of copies that go both
ways at once, measured in the same run; or one way after the other where that is how it must be.
The synchronous algorithm, of which nothing overlaps, stands beside the pipelined one. Fields are
sums of products of functions of one axis each, so that any mode is known exactly, however large the
array is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from slipstream.bench.measured_transform import TransformRequest
from slipstream.bench.repetitions import extreme, medians
from slipstream.device import Device, Operation, Stream
from slipstream.errors import InputError
from slipstream.fft import DistributedFFT, Streaming
from slipstream.schedule import Timeline
from slipstream.schedule.timeline import legend_of

_BUFFER = 256 << 20
_REPEATED = 8
_PROFILED = 3
_SAMPLES = 1000
_TERMS = 2


@dataclass(frozen=True)
class Variant:
    """One way to stream.

    Attributes
    ----------
    name : str
        For people.
    streaming : Streaming
        The options.
    schedule : str
        The policy; "serial" overlaps nothing.
    """

    name: str
    streaming: Streaming
    schedule: str = "overlap"


def variants_of(streaming: Streaming, sweep: bool, ranks: int) -> list[Variant]:
    """Return what is measured: as asked, synchronous, and with `sweep` options one by one."""
    how = f"{streaming.streams} streams" if streaming.streams else "pipelined"
    result = [Variant(f"{how}, as asked", streaming), Variant("synchronous", streaming, "serial")]
    if not sweep:
        return result
    for copies in ("zero-copy", "packed"):
        result.append(Variant(f"{copies} copies", replace(streaming, copies=copies)))
    for streams in (1, 2, 4, 8, 16):
        result.append(Variant(f"{streams} streams", replace(streaming, streams=streams)))
    exchanges = ("host", "device") if streaming.devices == 1 else ("host",)
    for together in (1, 4) if ranks > 1 else ():
        for exchange in exchanges:
            changed = replace(streaming, tiles_per_exchange=together, exchange=exchange)
            result.append(Variant(f"{together} at a time, from the {exchange}", changed))
    return each_once(result)


def each_once(variants: Sequence[Variant]) -> list[Variant]:
    """Return the first of those variants that do the same."""
    first: dict[tuple, Variant] = {}
    for one in variants:
        first.setdefault((one.streaming, one.schedule), one)
    return list(first.values())


def attempt(
    variant: Variant, make: Callable[[], Any], rows: Sequence[Any], left_out: dict[str, str]
) -> Any:
    """Return what a variant needs; None, and why, if memory does not allow it. Collective.

    The first variant and the synchronous one, with which others are compared, must be possible.

    Parameters
    ----------
    variant : Variant
        What is about to be measured.
    make : callable
        Makes it; raises on all ranks alike.
    rows : sequence
        Of the variants before.
    left_out : dict of str to str
        Is told why.

    Raises
    ------
    InputError
        If others are compared with it.
    """
    try:
        return make()
    except InputError as error:
        if not rows or variant.schedule == "serial":
            raise
        left_out[variant.name] = str(error)
        return None


def compare(rows: Sequence[dict[str, Any]], seconds: str) -> None:
    """Tell in each row how often its seconds are those of the first synchronous row."""
    synchronous = next(row for row in rows if row["schedule"] == "serial")
    for row in rows:
        row["synchronous / this"] = synchronous[seconds] / row[seconds]


def bus_rates(devices: Sequence[Device], home: Device, comm: Any) -> dict[str, float]:
    """Return bytes per second in, out, and each way at once, to each device with all at work."""
    lanes: dict[str, list[tuple[Stream, Operation]]] = {"in": [], "out": []}
    for device in devices:
        for way, lane in lanes.items():
            host, there = home.empty((_BUFFER,), np.uint8), device.empty((_BUFFER,), np.uint8)
            host[...] = 1
            pair = (there, host) if way == "in" else (host, there)
            lane.append((device.stream(), device.copy(*pair)))

    def run(*ways: str) -> Callable[[], None]:
        chosen = [one for way in ways for one in lanes[way]]

        def action() -> None:
            for _ in range(_REPEATED):
                for stream, copy in chosen:
                    stream.submit(copy)
            for stream, _ in chosen:
                stream.synchronize()

        return action

    actions = {"in": run("in"), "out": run("out"), "both": run("in", "out")}
    seconds = medians(devices[0], actions, 5, comm)
    return {name: _REPEATED * _BUFFER / one for name, one in seconds.items()}


def measure_streaming(
    request: TransformRequest,
    streaming: Streaming,
    memory: str | None,
    sweep: bool,
    in_place: bool,
    device: Device,
    comm: Any,
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Measure transforms of arrays on the host. Collective.

    Parameters
    ----------
    request : TransformRequest
        What to transform.
    streaming : Streaming
        How.
    memory : str or None
        What may be allocated on a device.
    sweep : bool
        Whether to vary one option after the other.
    in_place : bool
        Whether points and modes share one memory.
    device : Device
        This rank's device.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Returns
    -------
    dict
        Settings, rates of the bus, a row for each way, and why some were left out.
    dict of str to Timeline
        What ran when in a forward transform, as asked and synchronously.
    """
    make = partial(request.plan, device, comm, residency="host", memory=memory)
    if request.tune != "off":  # what stands beside streams as what was tuned
        streaming = make(streaming=streaming).streamed.streaming
        make = partial(make, tune="off")
    ranks = 1 if comm is None else comm.size
    settings = asdict(request) | {"shape": list(request.shape), "ranks": ranks}
    settings |= {"memory": memory, "in place": in_place}
    del settings["plain"]
    rows, timelines, left_out, arrays = [], {}, {}, None
    for variant in variants_of(streaming, sweep, ranks):
        way = partial(make, streaming=variant.streaming, schedule=variant.schedule)
        plan = attempt(variant, way, rows, left_out)
        if plan is None:
            continue
        if arrays is None:
            arrays = _arrays_of(plan, in_place)
            rates = bus_rates(plan.streamed.devices, plan.home, comm)
            _fill(plan, arrays[0], _factors(plan))
        else:
            plan.remember(*arrays)
        row, timeline = _row(variant, plan, arrays, request, rates, comm)
        rows.append(row)
        if len(timelines) < 2:
            timelines[variant.name] = timeline
            settings.setdefault("plan", plan.describe())
        del plan  # the next one may take as much
    compare(rows, "pair (s)")
    return settings | {
        "bus (GB/s)": {name: rate / 1e9 for name, rate in rates.items()},
        "rows": rows,
        "left out": left_out,
    }, timelines


def _row(
    variant: Variant,
    plan: DistributedFFT,
    arrays: tuple[Any, Any],
    request: TransformRequest,
    rates: Mapping[str, float],
    comm: Any,
) -> tuple[dict[str, Any], Timeline]:
    """Return the figures of one way to stream, and what ran when in a forward transform."""
    factors = _factors(plan)
    plan.forward(*arrays)
    error = _error_of_samples(plan, arrays[1], factors, comm)
    whole = request.truncation is None
    parseval = _error_of_squares(plan, arrays[1], factors, comm) if whole else None
    plan.backward(*arrays[::-1])  # from here on the points are there again after each pair
    actions = {
        "forward": lambda: plan.forward(*arrays),
        "backward": lambda: plan.backward(*arrays[::-1]),
    }
    seconds = medians(plan.device, actions, request.repetitions, comm)
    streamed = plan.streamed
    ways = [extreme(comm, one, max) / variant.streaming.devices for one in streamed.bus_bytes]
    bound = max(ways) / rates["both"]
    if not streamed.goes_both_ways:
        bound = ways[0] / rates["in"] + ways[1] / rates["out"]
    timeline = quietest(lambda: plan.profile(*arrays)["forward"])
    return {
        "name": variant.name,
        "schedule": variant.schedule,
        "streaming": streamed.streaming.of_transform(),
        "tiles": streamed.tiles,
        "seconds": seconds,
        "pair (s)": sum(seconds.values()),
        "bytes over the bus, in and out": ways,
        "bound (s)": bound,
        "of the bound": {name: bound / one for name, one in seconds.items()},
        "device memory (bytes)": streamed.device_bytes,
        "error of sampled modes": error,
        "error of the sum of squares": parseval,
        "timers of forward (s)": timers_of(timeline),
    }, timeline


def quietest(profile: Callable[[], Timeline]) -> Timeline:
    """Return what ran when in the shortest of some profiled runs: one alone may be disturbed."""
    runs = [Timeline.merged([profile()], forget=True) for _ in range(_PROFILED)]
    return min(runs, key=Timeline.duration)


def timers_of(timeline: Timeline) -> dict[str, Any]:
    """Return busy seconds by category, and those in which nothing else ran."""
    totals = timeline.totals()
    ways = {
        label: sum(e.stop - e.start for e in timeline.entries if e.label == label)
        for label in ("copy in", "copy out")
    }
    return {
        "total": timeline.duration(),
        **totals,
        **ways,
        "exposed": {name: timeline.exposed(name) for name in totals},
    }


def _arrays_of(plan: DistributedFFT, in_place: bool) -> tuple[Any, Any]:
    """Return arrays of points and of modes, in one memory or each in its own."""
    return plan.empty_in_place() if in_place else (plan.empty_input(), plan.empty_output())


def _factors(plan: DistributedFFT) -> list[list[np.ndarray]]:
    """Return random functions of each axis: the field is the sum of their products."""
    generator = np.random.default_rng(0)
    dtype = plan.arguments.dtype
    result = []
    for _ in range(_TERMS):
        own = [generator.standard_normal(n) for n in plan.shape]
        result.append([one.astype(np.result_type(dtype, np.float32)) for one in own])
    return result


def _fill(plan: DistributedFFT, points: Any, factors: list[list[np.ndarray]]) -> None:
    z, y, x = plan.input_box.slices()
    batch = points if plan.arguments.fields > 1 else points[None]
    planes = [np.multiply.outer(own[1][y], own[2][x]) for own in factors]

    def fill(place: int) -> None:
        for target in batch:
            np.multiply(planes[0], factors[0][0][z.start + place], out=target[place])
            for plane, own in zip(planes[1:], factors[1:], strict=True):
                target[place] += own[0][z.start + place] * plane

    with ThreadPoolExecutor() as threads:  # large arrays take minutes otherwise
        list(threads.map(fill, range(z.stop - z.start)))


def _error_of_samples(plan: DistributedFFT, modes: Any, factors, comm: Any) -> float:
    """Return the largest error of some modes, relative to the largest of them."""
    generator, box = np.random.default_rng(1), plan.output_box
    worst = largest = 0.0
    along = [[np.fft.fft(one.astype(complex)) for one in own] for own in factors]
    first = modes if plan.arguments.fields == 1 else modes[0]
    for _ in range(_SAMPLES if math.prod(box.shape) else 0):
        place = tuple(int(generator.integers(0, n)) for n in box.shape)
        wave = [int(m.wavenumbers()[place[a] + box.start[a]]) for a, m in enumerate(plan.modes)]
        exact = sum(np.prod([f[k] for f, k in zip(own, wave, strict=True)]) for own in along)
        worst = max(worst, abs(first[place] - exact))
        largest = max(largest, abs(exact))
    return float(extreme(comm, worst, max) / (extreme(comm, largest, max) or 1.0))


def _error_of_squares(plan: DistributedFFT, modes: Any, factors, comm: Any) -> float:
    """Return the relative error of the sum of squares of all modes, by Parseval's theorem."""
    pairs = itertools.product(factors, factors)
    exact = sum(np.prod([np.vdot(f, g) for f, g in zip(*pair, strict=True)]) for pair in pairs)
    first = modes if plan.arguments.fields == 1 else modes[0]
    half, (_, _, x) = plan.arguments.real, plan.modes
    waves = x.wavenumbers()[plan.output_box.start[2] : plan.output_box.stop[2]]
    # Of a real field, modes stand for themselves and their conjugates, unless these are the same.
    weight = np.where(half & (waves > 0) & (2 * waves != x.size), 2.0, 1.0)

    def squares(plane: np.ndarray) -> float:
        return float(((plane.real**2 + plane.imag**2).sum(axis=0) * weight).sum(dtype=np.float64))

    with ThreadPoolExecutor() as threads:
        mine = math.fsum(threads.map(squares, first))
    total = mine if comm is None else sum(comm.allgather(mine))
    return float(abs(total / math.prod(plan.shape) / abs(exact) - 1))


def draw_timelines(path: Any, timelines: Mapping[str, Timeline]) -> None:
    """Draw what ran when in several ways to stream, one above the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.1 * len(timelines) + 0.6), layout="constrained")
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, timeline) in zip(panels, timelines.items(), strict=True):
        timeline.draw(axes, name)
        axes.label_outer()
    figure.legend(
        handles=legend_of(list(timelines.values())),
        loc="outside lower center",
        ncols=6,
        frameon=False,
    )
    figure.savefig(path, dpi=160)
