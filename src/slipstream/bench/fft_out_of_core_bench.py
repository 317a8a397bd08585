"""What transforms of arrays on the host cost: time, timers, and the bound by the bus.

Where copies cannot go both ways at once the bound is that of one way after the other. Fields are
sums of products of functions of one axis each, so that any mode is known exactly, however large the
array is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.bench.comparison import headline
from slipstream.bench.fft_bench import make_plan
from slipstream.bench.harness import Column, Outcome, medians, over_ranks, plot_timelines
from slipstream.bench.out_of_core import (
    Variant,
    bus_bound,
    bus_notes,
    measure_variants,
    print_variants,
    quietest,
    streams_of_ghost,
    timers_of,
    variants_of,
)
from slipstream.bench.requests import TransformRequest
from slipstream.device import Device
from slipstream.fft import DistributedFFT, Streaming
from slipstream.fft.out_of_core_fft import StreamedPlan
from slipstream.report.number_text import quantity
from slipstream.schedule import Timeline

# A function of each axis, for each term of a sum of products.
Factors: TypeAlias = list[list[np.ndarray]]

_SAMPLES = 1000
_TERMS = 2


def run_out_of_core(request: TransformRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    result, timelines = measure_streaming(request, device, comm)
    title = f"transform of arrays on the host, through {device.name}"
    first = result["rows"][0]
    draw = partial(plot_timelines, timelines=timelines, same_axis=True)
    return Outcome(
        "fft of arrays on the host",
        title,
        device,
        result,
        print_streaming,
        [(request.timelines, draw)],
        {way: headline(one, first["bound (s)"]) for way, one in first["seconds"].items()},
    )


def transform_variants(streaming: Streaming, sweep: bool, ranks: int) -> list[Variant]:
    """Return what is measured: as asked, synchronous, and with `sweep` options one by one."""

    def others(asked: Variant, how: str) -> Iterator[Variant]:
        for copies in ("zero-copy", "packed"):
            yield asked.changed(f"{copies} copies", copies=copies)
        yield from streams_of_ghost(asked)
        exchanges = ("host", "device") if streaming.devices == 1 else ("host",)
        for together in (1, 4) if ranks > 1 else ():
            for exchange in exchanges:
                name = f"{together} at a time, from the {exchange}"
                yield asked.changed(name, tiles_per_exchange=together, exchange=exchange)

    return variants_of(streaming, "overlap", others if sweep else None)


def measure_streaming(
    request: TransformRequest, device: Device, comm: Comm
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Return figures of each way to stream, and timelines of a forward transform. Collective.

    Timelines are those of the way that was asked for, and of the synchronous one.
    """
    streaming, memory = request.streaming, request.memory
    make = partial(make_plan, request, device, comm, residency="host", memory=memory)
    if request.tune != "off":  # what stands beside streams as what was tuned
        streaming = _streamed(make(streaming=streaming)).streaming
        make = partial(make, tune="off")
    ranks = 1 if comm is None else comm.size
    settings = request.settings() | {"ranks": ranks, "memory": memory, "in place": request.in_place}
    timelines: dict[str, Timeline] = {}
    arrays: list[Any] = []

    def where(plan: DistributedFFT) -> tuple[Sequence[Device], Device, Comm]:
        settings["plan"] = plan.describe()
        if request.in_place:
            arrays.extend(plan.empty_in_place())
        else:
            arrays.extend((plan.empty_input(), plan.empty_output()))
        return _streamed(plan).devices, plan.home, comm

    def measure(
        variant: Variant, plan: DistributedFFT, rates: Mapping[str, float]
    ) -> dict[str, Any]:
        plan.remember(*arrays)
        if not timelines:
            _fill(plan, arrays[0], _factors(plan))
        row, timeline = _row(variant, plan, (arrays[0], arrays[1]), request, rates, comm)
        if len(timelines) < 2:
            timelines[variant.name] = timeline
        return row

    result = measure_variants(
        transform_variants(streaming, request.sweep, ranks),
        lambda variant: make(streaming=variant.streaming, schedule=variant.schedule),
        where,
        measure,
        "pair (s)",
    )
    return settings | result, timelines


def _streamed(plan: DistributedFFT) -> StreamedPlan:
    return cast(StreamedPlan, plan.streamed)


def _row(
    variant: Variant,
    plan: DistributedFFT,
    arrays: tuple[Any, Any],
    request: TransformRequest,
    rates: Mapping[str, float],
    comm: Comm,
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
    streamed = _streamed(plan)
    ways, bound = bus_bound(variant, streamed.bus_bytes, rates, comm)
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


def _factors(plan: DistributedFFT) -> Factors:
    """Return random functions of each axis: the field is the sum of their products."""
    generator = np.random.default_rng(0)
    dtype = plan.arguments.dtype
    result: Factors = []
    for _ in range(_TERMS):
        own = [generator.standard_normal(n) for n in plan.shape]
        result.append([one.astype(np.result_type(dtype, np.float32)) for one in own])
    return result


def _fill(plan: DistributedFFT, points: Array, factors: Factors) -> None:
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


def _error_of_samples(plan: DistributedFFT, modes: Array, factors: Factors, comm: Comm) -> float:
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
    return float(over_ranks(comm, worst, max) / (over_ranks(comm, largest, max) or 1.0))


def _error_of_squares(plan: DistributedFFT, modes: Array, factors: Factors, comm: Comm) -> float:
    """Return the relative error of the sum of squares of all modes, by Parseval's theorem."""
    pairs = itertools.product(factors, factors)
    exact: Any = sum(np.prod([np.vdot(f, g) for f, g in zip(*pair, strict=True)]) for pair in pairs)
    first = modes if plan.arguments.fields == 1 else modes[0]
    half, (_, _, x) = plan.arguments.real, plan.modes
    waves = x.wavenumbers()[plan.output_box.start[2] : plan.output_box.stop[2]]
    # Of a real field, modes stand for themselves and their conjugates, unless these are the same.
    weight = np.where(half & (waves > 0) & (2 * waves != x.size), 2.0, 1.0)

    def squares(plane: np.ndarray) -> float:
        return float(((plane.real**2 + plane.imag**2).sum(axis=0) * weight).sum(dtype=np.float64))

    with ThreadPoolExecutor() as threads:
        mine = math.fsum(threads.map(squares, first))
    total = over_ranks(comm, mine, sum)
    return float(abs(total / math.prod(plan.shape) / abs(exact) - 1))


def print_streaming(title: str, result: Mapping[str, Any]) -> None:
    """Print the times of each way to stream, and the bound by the bus."""

    def seconds(key: str) -> Column:
        return lambda row: quantity(row["seconds"][key], "s")

    columns: dict[str, Column] = {
        "forward": seconds("forward"),
        "back": seconds("backward"),
        "of bus\nbound": lambda row: f"{row['of the bound']['forward']:.2f}",
    }
    first = result["rows"][0]
    squares = first.get("error of the sum of squares")
    notes = (
        result["plan"],
        *bus_notes(result, ": bound of a forward transform"),
        f"largest error of {first['error of sampled modes']:.1e} in 1000 sampled modes"
        + ("" if squares is None else f", {squares:.1e} of the sum of squares"),
    )
    parts = ("copy in", "fft", "copy out", "pack", "communication")
    print_variants(title, result, columns, "timers of forward (s)", parts, notes)
