"""The cost of a distributed transform: its parts, its bounds, and other libraries for comparison.

A transform and its rivals are timed alternately, so that all see the same noise. An exchange of the
same bytes without any transform is measured in the same run; `streaming` has the bound of arrays on
the host and on disk. Fields are sums of products of functions of one axis each, so that any mode is
known exactly, however large the array is.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from bench.harness import (
    Column,
    OnFirstRank,
    Outcome,
    Picture,
    Shape,
    Transport,
    Way,
    choice,
    headline,
    option,
    over_ranks,
    print_figures,
    quietest,
    show_table,
    timers_of,
)
from bench.reference_ffts import Yardstick, mpi4py_fft_yardstick, plain_yardstick
from bench.streaming import (
    WITHOUT_DRIVE,
    StreamedRequest,
    Variant,
    measure_rates,
    measure_streams,
    print_ways,
    streamed_row,
    variants_of,
    without_drive,
)
from slipstream.api.forecast.measured_rates import ELEMENT, ExchangeTimer, copy_bandwidth
from slipstream.engine import accepted
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.device import Device, HostDevice
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import Transport as ExchangeTransport
from slipstream.engine.exchange import make_transport
from slipstream.engine.fft.streamed_transform import StreamedPlan
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.schedule import StepGraph, Timeline, commit
from slipstream.engine.text import quantity
from slipstream.engine.tuner import medians
from slipstream.fft import DistributedFFT, Streaming

DIRECTIONS = ("forward", "backward")
# Names of our rows in a comparison.
OURS = "slipstream"
UNPRUNED = "slipstream, unpruned"
# Ratios of a comparison, and the columns that show them.
_PAIRS = {"pair / plain pair": "of plain", "pair / unpruned pair": "of unpruned"}
# The first calls with new arrays prepare for them.
_WARM_UP = 2
# For each term of a sum of products, a function of each axis.
Factors: TypeAlias = list[list[np.ndarray]]
# Terms of the sum.
_TERMS = 2
# Modes that are compared with their exact values.
_SAMPLES = 1000
_TRUNCATIONS = ("none", "2/3", "nyquist")


def parse_truncation(text: str) -> str | tuple[int, ...] | None:
    """Return a truncation from ``none``, a name, or the largest wavenumber of each axis."""
    if text in _TRUNCATIONS:
        return None if text == "none" else text
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"--truncation {text!r} is unknown; accepted: {', '.join(_TRUNCATIONS)}, or the largest"
            " wavenumber along each axis with commas between, in the order of the arrays (z,y,x)"
        )
    return tuple(map(int, parts))


@dataclass(frozen=True, kw_only=True)
class TransformRequest(StreamedRequest):
    """Time a distributed transform: its parts, its bounds, and other libraries for comparison.

    Bound: the bytes that leave the rank, at the rate of an exchange alone; from the host, the bytes
    over the bus.
    """

    shape: Shape = (128, 128, 128)
    dtype: Annotated[str, choice(accepted.FFT_DTYPES)] = "float64"
    layout: Annotated[str, choice(accepted.FFT_LAYOUTS)] = "slab"
    truncation: Annotated[
        str | tuple[int, ...] | None,
        option(
            f"{', '.join(_TRUNCATIONS)}, or largest wavenumbers z,y,x.",
            parse=parse_truncation,
            metavar="MODES",
        ),
    ] = None
    transport: Transport = "auto"
    tune: Annotated[str, choice(accepted.TUNES)] = "off"
    wire: Annotated[str | None, choice(accepted.WIRES)] = None
    plain: Annotated[bool, option("Time plain library plans, and mpi4py-fft, too.")] = True
    in_place: Annotated[bool, option("In one array on the host.", "--in-place")] = False
    timelines: Picture = None

    def check(self) -> None:
        more = {"--in-place": self.in_place, "--timelines": self.timelines is not None}
        self.check_residency(more)
        if self.dtype not in accepted.FFT_DTYPES:  # a plan takes others of NumPy, too
            raise InputError(
                f"--dtype is {self.dtype!r}; accepted: {', '.join(accepted.FFT_DTYPES)}"
            )

    def settings(self) -> dict[str, Any]:
        """Return the options of the transform for a record."""
        names = "dtype layout truncation transport tune wire repetitions"
        return {"shape": list(self.shape)} | {name: getattr(self, name) for name in names.split()}


def run(request: TransformRequest, device: Device, comm: Comm) -> Outcome:
    """Measure both directions. Collective."""
    if request.residency != "device":
        result, timelines = measure_streaming(request, device, comm)
        first = result["rows"][0]
        return Outcome(
            f"fft of arrays {request.where}",
            f"transform of arrays {request.where}, through {device.name}",
            device,
            result,
            print_streaming,
            {way: headline(one, first["bound (s)"]) for way, one in first["seconds"].items()},
            timelines=timelines,
        )
    result = measure_fft(request, device, comm)
    fractions = result.get("wire bound / time", {})
    headlines = {
        way: headline(one, fractions[way] * one if way in fractions else None)
        for way, one in result["seconds"].items()
    }
    return Outcome("fft", f"transform on {device.name}", device, result, print_fft, headlines)


def make_plan(
    request: TransformRequest, device: Device, comm: Comm, **changes: Any
) -> DistributedFFT:
    """Make the requested plan with changed arguments. Collective."""
    names = ("layout", "truncation", "transport", "tune", "wire")
    arguments = {name: getattr(request, name) for name in names} | changes
    return DistributedFFT(request.shape, request.dtype, comm=comm, device=device, **arguments)


def operations(shape: Sequence[int], dtype: Any) -> float:
    """Return the customary number of operations of a transform: 5 M log2 M, half if real."""
    points = math.prod(shape)
    half = 0.5 if np.dtype(dtype).kind == "f" else 1.0
    return 5.0 * points * math.log2(points) * half


class FixedTransforms:
    """A plan that transforms the same arrays in every call. Collective, like its methods."""

    def __init__(self, plan: DistributedFFT) -> None:
        self.plan = plan
        self.points, self.back = plan.empty_input(), plan.empty_input()
        self.modes = plan.empty_output()
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
        for computed, exact in zip(modes, self.modes, strict=True):
            for index, array in enumerate((computed - exact, exact)):
                squares[index] += float(module.sum(module.abs(array) ** 2, dtype="float64"))
        squares = over_ranks(comm, squares, sum)
        return float(math.sqrt(squares[0] / squares[1])) if squares[1] else 0.0


def measure_fft(request: TransformRequest, device: Device, comm: Comm) -> dict[str, Any]:
    """Return seconds, rates and bounds, and a comparison with others. Collective."""
    ours = FixedTransforms(make_plan(request, device, comm))
    rivals = [Yardstick(OURS, ours.forward, ours.backward)]
    if request.truncation is not None:
        whole = FixedTransforms(make_plan(request, device, comm, truncation=None))
        rivals.append(Yardstick(UNPRUNED, whole.forward, whole.backward))
    references: list[Yardstick | str] = []
    if request.plain:
        shape, dtype = request.shape, np.dtype(request.dtype)
        references.append(plain_yardstick(shape, dtype, device, comm))
        if isinstance(device, HostDevice):
            references.append(mpi4py_fft_yardstick(shape, dtype, device, comm))
    rivals += [reference for reference in references if not isinstance(reference, str)]
    bandwidth = copy_bandwidth(device)()
    actions = {(rival.name, way): getattr(rival, way) for rival in rivals for way in DIRECTIONS}
    seconds = medians(device, actions, request.repetitions, comm)
    seconds |= {
        key: rival.seconds() for key, rival in actions.items() if isinstance(rival, OnFirstRank)
    }
    our_seconds = {way: seconds[OURS, way] for way in DIRECTIONS}
    count = operations(request.shape, request.dtype)
    plain = next((rival.name for rival in rivals if isinstance(rival.forward, OnFirstRank)), None)
    result = request.settings() | {
        "transport": ours.plan.transport,
        "ranks": comm.size if comm is not None else 1,
        "plan": ours.plan.describe(),
        "exchanges one way": ours.plan.exchanges,
        "seconds": our_seconds,
        "GFLOP/s": {way: count / pair_seconds / 1e9 for way, pair_seconds in our_seconds.items()},
        **_profile(ours, comm),
        "host (s per call)": _host_seconds(ours, comm, request.repetitions),
        "copy bandwidth (GB/s)": over_ranks(comm, bandwidth, min) / 1e9,
        **_wire_figures(request, ours.plan, comm, our_seconds),
        "relative error, there and back": ours.error(comm),
    }
    if request.wire is not None:
        result["relative error of one exchange"] = ours.plan.wire_error()
    result["comparison"] = _compared([rival.name for rival in rivals], seconds, plain)
    result["notes"] = [reference for reference in references if isinstance(reference, str)]
    return result


def _compared(
    names: Sequence[str], seconds: Mapping[tuple[str, str], float], plain: str | None
) -> dict[str, dict[str, float]]:
    """Return seconds, and pairs as multiples of the plain pair and of ours without truncation."""
    result = {name: {way: seconds[name, way] for way in DIRECTIONS} for name in names}
    pairs = {name: sum(one.values()) for name, one in result.items()}
    for key, other in (("pair / plain pair", plain), ("pair / unpruned pair", UNPRUNED)):
        for name, one in result.items():
            if other in pairs:
                one[key] = pairs[name] / pairs[other]
    return result


def _profile(ours: FixedTransforms, comm: Comm) -> dict[str, Any]:
    """Return the seconds of each category, and of exchanges not hidden: means over ranks."""

    def profile(way: str) -> Timeline:
        return ours.plan.profile(ours.points, ours.modes)[way]

    profile(DIRECTIONS[0])
    result: dict[str, Any] = {}
    exposed: dict[str, float] = {}
    for way in DIRECTIONS:
        timeline = quietest(partial(profile, way))
        totals = timeline.totals()
        names = over_ranks(comm, set(totals), lambda every: set.union(*every))
        result[f"timers of {way} (s)"] = {
            name: over_ranks(comm, totals.get(name, 0.0), statistics.fmean)
            for name in sorted(names)
        }
        exposed[way] = over_ranks(comm, timeline.exposed(), statistics.fmean)
    return result | {"exposed communication (s)": exposed}


def _host_seconds(ours: FixedTransforms, comm: Comm, repetitions: int) -> dict[str, float]:
    """Return how long the calls keep the host, with a device that is idle before."""
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
    """Return the bound by the wire: the bytes off the rank, at the rate of an exchange alone."""
    most = int(over_ranks(comm, plan.wire_bytes, max))
    if comm is None or comm.size == 1 or not most:
        return {}
    size = ELEMENT.itemsize
    message = max(size, most // plan.exchanges // (comm.size - 1) // size * size)
    # The name of a narrow wire follows the transport's; the bytes of the bound are narrow already.
    name = plan.transport.partition(",")[0]
    transport = cast(ExchangeTransport, make_transport(name, comm, plan.device))
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
    columns: dict[str, Column] = {"": "name"}
    columns |= {key: f"{key}|s" for key in ("forward", "backward", "pair")}
    columns |= {_PAIRS[key]: f"{key}|.3g" for key in _PAIRS if any(key in row for row in rows)}
    show_table("forward and backward, and pairs of both", columns, rows, result["notes"])


# -- arrays on the host ---------------------------------------------------------------------


def transform_variants(streaming: Streaming, sweep: bool, ranks: int) -> list[Variant]:
    """Return the variants: as requested, synchronous, and with `sweep` options one by one."""
    changes: dict[str, dict[str, Any]] = {
        f"{copies} copies": {"copies": copies} for copies in ("zero-copy", "packed")
    }
    exchanges = ("host", "device") if streaming.devices == 1 else ("host",)
    for together, exchange in itertools.product((1, 4) if ranks > 1 else (), exchanges):
        name = f"{together} at a time, from the {exchange}"
        changes[name] = {"tiles_per_exchange": together, "exchange": exchange}
    return variants_of(streaming, "overlap", changes if sweep else None)


def measure_streaming(
    request: TransformRequest, device: Device, comm: Comm
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Return figures of each way to stream, and timelines of a forward transform. Collective.

    Timelines are those of the way that was asked for, and of the synchronous one.
    """
    streaming, memory = request.streaming, request.memory
    storage = {"residency": request.residency, "scratch": request.scratch}
    make = partial(make_plan, request, device, comm, **storage, memory=memory)
    if request.tune != "off":  # the other variants stream like the tuned one
        streaming = cast(StreamedPlan, make(streaming=streaming).streamed).streaming
        make = partial(make, tune="off")
    ranks = 1 if comm is None else comm.size
    settings = request.settings() | {"ranks": ranks, "memory": memory, "in place": request.in_place}
    arrays: list[Any] = []

    def way(variant: Variant, rates: dict[str, float]) -> Way:
        plan = make(streaming=variant.streaming, schedule=variant.schedule)
        streamed = cast(StreamedPlan, plan.streamed)
        if not arrays:
            settings["plan"] = plan.describe()
            if request.in_place:
                arrays.extend(plan.empty_in_place())
            else:
                arrays.extend((plan.empty_input(), plan.empty_output()))
            moved = streamed.slabs.bus_bytes
            measure_rates(rates, streamed.devices, plan.home, comm, moved)
            _fill(plan, arrays[0])
        plan.remember(*arrays)
        points, modes = arrays
        plan.forward(points, modes)
        error = _error_of_samples(plan, modes, comm)
        plan.backward(modes, points)  # from here on the points are there again after each pair
        actions: dict[str, Callable[[], object]] = {
            "forward": lambda: plan.forward(points, modes),
            "backward": lambda: plan.backward(modes, points),
        }
        if isinstance(plan.home, FileHome):
            graph = StepGraph(plan.device)
            streamed.record_forward(graph, *(one.reshape(-1, *one.shape[-3:]) for one in arrays))
            alone = commit(without_drive(graph), variant.schedule)
            actions[WITHOUT_DRIVE] = alone.run
        row = partial(_streamed_row, variant, plan, rates, comm, error)
        return Way(plan.device, comm, actions, lambda: plan.profile(points, modes)["forward"], row)

    variants = transform_variants(streaming, request.sweep, ranks)
    result, measured = measure_streams(variants, way, request.repetitions, "pair (s)")
    return settings | result, dict(itertools.islice(measured.timelines.items(), 2))


def _streamed_row(
    variant: Variant,
    plan: DistributedFFT,
    rates: Mapping[str, float],
    comm: Comm,
    error: float,
    seconds: Mapping[str, float],
    timeline: Timeline,
) -> dict[str, Any]:
    streamed = cast(StreamedPlan, plan.streamed)
    moved, both = streamed.slabs.bus_bytes, streamed.goes_both_ways
    row = streamed_row(variant, moved, rates, comm, seconds, both)
    bound, ways = row["bound (s)"], {name: seconds[name] for name in DIRECTIONS}
    return row | {
        "streaming": streamed.streaming.of_transform(),
        "tiles": streamed.tiles,
        "seconds": ways,
        "pair (s)": sum(ways.values()),
        "of the bound": {name: bound / one for name, one in ways.items()},
        "device memory (bytes)": streamed.device_bytes,
        "error of sampled modes": error,
        "timers of forward (s)": timers_of(timeline),
    }


def _factors(plan: DistributedFFT) -> Factors:
    """Return random functions of each axis; the field is the sum of their products."""
    generator = np.random.default_rng(0)
    dtype = np.result_type(plan.arguments.dtype, np.float32)
    return [[generator.standard_normal(n).astype(dtype) for n in plan.shape] for _ in range(_TERMS)]


def _fill(plan: DistributedFFT, points: Array) -> None:
    """Set a field that depends on the position only, not on the ranks."""
    z, y, x = plan.input_box.slices()
    terms = [
        (factors[0], np.multiply.outer(factors[1][y], factors[2][x])) for factors in _factors(plan)
    ]
    on_host = isinstance(points, np.ndarray)

    def fill(plane_index: int) -> None:
        values = sum(along[z.start + plane_index] * plane for along, plane in terms)
        if on_host:
            points[plane_index] = values
        else:
            plan.device.run(plan.device.copy(points[plane_index], values))

    if on_host:  # large arrays take minutes otherwise
        with ThreadPoolExecutor() as threads:
            list(threads.map(fill, range(len(points))))
    else:
        for plane_index in range(len(points)):
            fill(plane_index)


def _error_of_samples(plan: DistributedFFT, modes: Array, comm: Comm) -> float:
    """Return the largest error of random modes, relative to the largest of them."""
    generator, box = np.random.default_rng(1), plan.output_box
    worst = largest = 0.0
    along = [[np.fft.fft(one.astype(complex)) for one in factors] for factors in _factors(plan)]
    for _ in range(_SAMPLES if math.prod(box.shape) else 0):
        sample = tuple(int(generator.integers(0, n)) for n in box.shape)
        wave = [int(m.wavenumbers()[sample[a] + box.start[a]]) for a, m in enumerate(plan.modes)]
        exact = sum(
            np.prod([f[k] for f, k in zip(factors, wave, strict=True)]) for factors in along
        )
        worst = max(worst, abs(modes[sample] - exact))
        largest = max(largest, abs(exact))
    return float(over_ranks(comm, worst, max) / (over_ranks(comm, largest, max) or 1.0))


def print_streaming(title: str, result: Mapping[str, Any]) -> None:
    """Print the times of each way to stream, and the bound."""
    columns: dict[str, Column] = {
        "forward": lambda row: quantity(row["seconds"]["forward"], "s"),
        "back": lambda row: quantity(row["seconds"]["backward"], "s"),
        "of the\nbound": lambda row: f"{row['of the bound']['forward']:.2f}",
        "error": "error of sampled modes|.0e",
    }
    print_ways(title, result, columns, "timers of forward (s)")
