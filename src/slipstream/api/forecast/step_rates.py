"""The rates of this machine: of steps of each family, in cache and beyond."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from slipstream.api.forecast.measured_rates import (
    ExchangeTimer,
    bus_rates,
    copy_bandwidth,
    storage_rates,
    usable_transports,
)
from slipstream.api.forecast.noted_steps import transform_counts
from slipstream.api.forecast.project_command import step_counter
from slipstream.case import Case, make_case
from slipstream.case.machine_description import RATE_KEYS, Family, Machine, Processor
from slipstream.case.table import Table
from slipstream.case.toml_text import to_toml
from slipstream.engine import processes as mpi_launch
from slipstream.engine.array_types import Array, Comm, Communicator
from slipstream.engine.collective import largest, on_first_rank, own, together
from slipstream.engine.device import Device, open_device
from slipstream.engine.device.array_kernels import copied_arrays, large_copy
from slipstream.engine.device.device_choice import home_of
from slipstream.engine.errors import check_folder_of
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.exchange.transport_registry import node_numbers
from slipstream.engine.fft import DistributedFFT
from slipstream.engine.schedule.committed_steps import OverlappedStep
from slipstream.engine.text import counted
from slipstream.engine.tuner import medians
from slipstream.files.durable_files import errors_name
from slipstream.runs import make_simulation
from slipstream.runs.step_price import StepCounts

# Points along an axis, of the step in cache and of the large one.
POINTS: dict[str, dict[Family, tuple[int, int]]] = {
    "cpu": {
        "spectral": (48, 96),
        "transform": (48, 96),
        "lattice": (40, 96),
        "advection": (80, 160),
    },
    "gpu": {
        "spectral": (80, 512),
        "transform": (96, 512),
        "lattice": (80, 320),
        "advection": (120, 420),
    },
}
# Steps of many operations and of one, and a transform, which take little but their start.
_MANY: tuple[Family, int] = ("spectral", 8)
_ONE: tuple[Family, int] = ("advection", 12)
_CALL: tuple[Family, int] = ("transform", 8)
# MiB that copies access, to find the caches.
CACHE_MIB = {
    "cpu": (2, 4, 8, 12, 16, 24, 32, 64, 128, 256),
    "gpu": (8, 16, 24, 32, 48, 64, 96, 128, 256, 512),
}
_TINY_COPY = 1 << 16
# Runs before the first that is timed, at most: a short step times its first ones itself.
_UNTIMED = 12
# Seconds for which each step is repeated.
_SECONDS = 0.01
# Rounds in which the steps take turns.
_TURNS = 3
# Rounds that find rates and starts in turn.
_ROUNDS = 8
# The share of a step that starts leave to its passes, at least.
_LEAST = 0.05
# Steps whose shares of missed bytes differ by less say nothing of caches.
_DIFFER = 0.2
# Repetitions of a timed exchange.
_REPETITIONS = 5
# Rounds of a measurement, whose median is the rate.
_REPEATS = 3
# The factor by which rounds may differ.
_STEADY = 1.5
# Bytes of each of two arrays that copies take.
_COPIED = {"cpu": 1 << 27, "gpu": 1 << 30}
# Bytes of a message within a node.
_LARGE = {"cpu": 1 << 22, "gpu": 1 << 26}
# Bytes of messages to other nodes.
_MESSAGES = [10**4, 10**5, 10**6, 16 * 10**6]
# Bytes of a message that takes no time but its latency.
_SMALL = 1 << 12
# Transports that take messages from the host.
_FROM_HOST = ("mpi-p2p", "mpi")


def cache_rates(device: Device, comm: Comm, arrays: tuple[Array, Array]) -> dict[str, list[float]]:
    """Return the rates of copies between large arrays by their size, without their starts.

    Collective.
    """
    sizes = CACHE_MIB[device.processor]
    copies = {size: large_copy(device, size << 19, arrays=arrays) for size in sizes}
    actions = {size: copy for size, (copy, _) in copies.items()} | {
        0: large_copy(device, _TINY_COPY, arrays=arrays)[0]
    }
    seconds = _time_actions(device, actions, comm)
    rates = [
        1e-9 * moved / max(seconds[size] - seconds[0], _LEAST * seconds[size])
        for size, (_, moved) in copies.items()
    ]
    # A rate that grows with the size is noise.
    slower = np.minimum.accumulate(rates).tolist()
    return {"cache_mib": [float(size) for size in copies], "cache_gb_per_s": slower}


def step_rates(device: Device, comm: Comm, machine: Machine) -> dict[str, float]:
    """Return the keys of a processor for the speed of steps. Collective.

    Copies and caches are known. All ranks step at the same time, each alone.
    """
    pairs, alone = POINTS[device.processor], machine.model_copy(update={"devices_per_node": 1})
    sizes = [(family, points) for family, pair in pairs.items() for points in pair]
    actions: dict[Any, Callable[[], Any]] = {}
    counts: dict[Any, StepCounts] = {}
    steps: dict[Any, int] = {}
    for key in [*sizes, _MANY, _ONE, _CALL]:
        actions[key], steps[key] = stepping(*key, device, None)
        counts[key] = counts_of_family(*key, alone, 1)
        if key == _MANY:
            simulation = _prepare_step(*key, device, None)
            issued = OverlappedStep(simulation.flow.record_step())
            actions["issued"], steps["issued"] = issued.run, 1
    found = _time_actions(device, actions, comm)
    seconds = {key: one / steps[key] for key, one in found.items()}
    return _explained(machine.device, pairs, counts, seconds)


def _explained(
    processor: Processor,
    pairs: Mapping[Family, tuple[int, int]],
    counts: Mapping[Any, StepCounts],
    seconds: Mapping[Any, float],
) -> dict[str, float]:
    """Return the rates and starts that explain the seconds of steps."""
    rates = dict.fromkeys(("step_us", "transform_us", "launch_us", "issue_us"), 0.0)

    def starts_of(counted_step: StepCounts) -> float:
        start = rates[RATE_KEYS[counted_step.family][2]]
        return 1e-6 * (rates["launch_us"] * counted_step.launches + start * counted_step.starts)

    for _ in range(_ROUNDS):
        for family, pair in pairs.items():
            each = [counts[family, points] for points in pair]
            # Seconds of passes = work / cached + missed bytes x slope.
            passes = [
                max(whole - starts_of(counted_step), _LEAST * whole)
                for counted_step, whole in zip(
                    each, (seconds[family, points] for points in pair), strict=True
                )
            ]
            work = [counted_step.memory_bytes / counted_step.starts for counted_step in each]
            missed = [
                counted_step.memory_bytes * processor.missed(counted_step.working_set)
                for counted_step in each
            ]
            cached, slope = passes[0] / work[0], 0.0
            if missed[1] / work[1] - missed[0] / work[0] > _DIFFER:
                solution = np.linalg.solve(np.column_stack([work, missed]), passes)
                slope = float(solution[1])
                if slope > 0:
                    cached = max(_LEAST * cached, (passes[0] - slope * missed[0]) / work[0])
                else:
                    # The large step takes less per byte, since threads are woken for more of
                    # them: no rate fits both, so errors of both are alike.
                    slope, cached = 0.0, math.sqrt(cached * passes[1] / work[1])
            share, rate, _ = RATE_KEYS[family]
            rates[share] = min(1.0, 1 / (cached + slope) / (1e9 * processor.copy_gb_per_s))
            rates[rate] = 1e-9 / cached
        known = processor.model_copy(update=rates)

        def start(key: Any, of: tuple[Family, int], known: Processor = known) -> float:
            count = counts[of]
            moved, size = count.memory_bytes, count.working_set
            passes = known.pass_seconds(of[0], moved, size, moved / count.starts)
            return 1e6 * max(0.0, seconds[key] - passes)

        single, launches = counts[_ONE], counts[_MANY].launches
        rates["step_us"] = max(0.0, start(_ONE, _ONE) / single.starts - rates["launch_us"])
        for key, name in ((_MANY, "launch_us"), ("issued", "issue_us")):
            rates[name] = max(0.0, start(key, _MANY) - rates["step_us"]) / launches
        call = counts[_CALL]
        begun = start(_CALL, _CALL) - rates["launch_us"] * call.launches
        rates["transform_us"] = max(0.0, begun) / call.starts
    return rates


def _time_actions(
    device: Device, actions: Mapping[Any, Callable[[], Any]], comm: Comm
) -> dict[Any, float]:
    """Return the median seconds of actions that take turns, so that all see the same noise.

    Each is repeated for a while. Collective.
    """
    repeated, times = {}, {}
    for name, action in actions.items():
        once = largest(comm, medians(device, {name: action}, 1)[name])
        if once < _SECONDS:
            _repeat(action, _UNTIMED)
            once = largest(comm, medians(device, {name: action}, 1)[name])
        times[name] = max(1, round(_SECONDS / once))
        repeated[name] = partial(_repeat, action, times[name])
    found = medians(device, repeated, _TURNS, comm)
    return {name: one / times[name] for name, one in found.items()}


def _repeat(action: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        action()


def counts_of_family(family: Family, points: int, machine: Machine, ranks: int) -> StepCounts:
    """Return the counts of a step, or a transform, from its points along each axis."""
    if family not in _TIMED:
        return transform_counts((points,) * 3, machine, ranks)
    return step_counter(_TIMED[family].case(points), machine)(ranks)


def stepping(
    family: Family, points: int, device: Device, comm: Comm
) -> tuple[Callable[[], Any], int]:
    """Return a function that does some steps or transforms, and their number. Collective."""
    if family in _TIMED:
        steps = _TIMED[family].steps
        return partial(steps, _prepare_step(family, points, device, comm)), _TIMED[family].count
    plan = DistributedFFT((points,) * 3, comm=comm, device=device)
    values, modes = plan.empty_input(), plan.empty_output()
    device.run(device.fill(values, 0))

    def pair() -> None:
        plan.forward(values, modes)
        plan.backward(modes, values)

    return pair, 2


def _prepare_step(family: Family, points: int, device: Device, comm: Comm) -> Any:
    simulation = make_simulation(_TIMED[family].case(points), comm, device)
    simulation.prepare()
    return simulation


@dataclass(frozen=True)
class _Timed:
    """Steps of a solver family that are timed: a case by its points, and a function of steps."""

    case: Callable[[int], Case]
    steps: Callable[[Any], None]
    count: int


# What moves in these cases does not matter.
_TIMED: dict[str, _Timed] = {
    "spectral": _Timed(
        lambda points: make_case(
            "spectral",
            grid={"points": points},
            equation={"viscosity": 1e-3},
            initial={"flow": "formula"},
            time={"end": 1.0, "step": 1e-6},
        ),
        lambda simulation: simulation.advance(1e-6),
        1,
    ),
    "lattice": _Timed(
        # A larger image is more of the same rock: sites of small pores take longer.
        lambda points: make_case(
            "lattice",
            image={
                "sample": "sandstone",
                "shape": [points] * 3,
                "porosity": 0.3,
                "radius": 6,
            },
            time={"end": 10**6},
        ),
        lambda simulation: simulation.flow.advance(2),
        2,
    ),
    "advection": _Timed(
        lambda points: make_case("advection", grid={"points": points}, time={"end": 1e3}),
        lambda simulation: simulation.solver.advance(2),  # a pass may take both
        2,
    ),
}


def calibrate_here(path: Path, device: str, folder: Path, console: Console) -> None:
    """Measure on all ranks of this program; print and write the rates. Collective.

    Storage is measured in `folder`, where runs would be.
    """
    comm = own(mpi_launch.world_comm(), "calibration")
    on_first_rank(comm, lambda: check_folder_of("--calibrate", path))
    with together(comm, holds=False):
        machine = calibrate(open_matching_device(device, comm), comm, path, folder)
    if comm is None or comm.rank == 0:
        if machine.storage is not None and machine.storage.node_read_gb_per_s is None:
            console.print(
                f"reading is not timed: files in {folder} stay in the host's memory, or cannot be"
                " told to leave it",
                highlight=False,
                markup=False,
            )
        for text in machine.sources[1:]:
            console.print(f"warning: {text}", highlight=False, markup=False)
        measured = machine.model_dump(exclude_unset=True)
        console.print(to_toml(measured), highlight=False, markup=False, soft_wrap=True)
        console.print(
            f"not measured, so taken as usual: {', '.join(_assumed_keys(machine))}",
            highlight=False,
            markup=False,
        )
        console.print(f"written to {path}; use it with: slipstream project CASE --machine {path}")


def calibrate(device: Device, comm: Comm, path: Path, folder: Path | None = None) -> Machine:
    """Measure, write the description of this machine, and return it. Collective.

    Rates between nodes are measured if ranks are on several nodes, rates of storage in a folder.
    """
    ranks = 1 if comm is None else comm.size
    of_node = _ranks_of_node(comm)
    steady = _Steady()
    copy, of_caches = _copy_rates(device, comm, steady)
    description: dict[str, Any] = {
        "title": socket.gethostname(),
        "sources": [
            f"slipstream info --calibrate, {counted(ranks, 'rank')}, {of_node} per node,"
            f" {datetime.now(UTC):%Y-%m-%d}"
        ],
        "devices_per_node": of_node,
        "device": {
            "name": device.name,
            "kind": device.processor,
            "memory_gib": _round_rate(
                device.memory_total() / _ranks_of_device(device, of_node) / 2**30
            ),
            "copy_gb_per_s": _round_rate(copy / 1e9),
            **{name: _round_rate(value) for name, value in of_caches.items()},
        },
        "bus": _bus(device, comm, copy, of_node),
        "node": {
            "memory_gib": _round_rate(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
            ),
            **_in_node(device, comm, copy, steady),
        },
    }
    of_steps = step_rates(device, comm, Machine.model_validate(description))
    description["device"] |= {name: _round_rate(value) for name, value in of_steps.items()}
    if comm is not None and of_node < ranks:
        description["network"] = _network(device, comm, of_node)
    if folder is not None:
        rates = storage_rates(folder, comm, of_node)
        description["storage"] = {name: _round_rate(value) for name, value in rates.items()}
    description["sources"] += steady.doubts
    machine = Machine.model_validate(description)

    def write() -> None:
        with errors_name(path):
            path.write_text(to_toml(machine.model_dump(exclude_unset=True)), encoding="utf-8")

    on_first_rank(comm, write)
    return machine


def _copy_rates(
    device: Device, comm: Comm, steady: _Steady
) -> tuple[float, Mapping[str, Sequence[float]]]:
    """Return the bytes per second of a large copy, and the rates of copies in caches."""
    size = _COPIED[device.processor]
    arrays = copied_arrays(device, size)
    bandwidth = copy_bandwidth(device, size, 2, arrays)
    copy = steady("device.copy_gb_per_s", lambda: _least(comm, bandwidth()) / 1e9) * 1e9
    return copy, cache_rates(device, comm, arrays)


class _Steady:
    """Medians of some rounds of each measurement, and doubts where the rounds differ much."""

    def __init__(self) -> None:
        self.doubts: list[str] = []

    def __call__(self, name: str, measure: Callable[[], float]) -> float:
        """Return the median of a measurement, the same on all ranks, under a key's name."""
        measured = sorted(measure() for _ in range(_REPEATS))
        if measured[-1] > _STEADY * measured[0]:
            self.doubts.append(
                f"{name} varied from {measured[0]:.3g} to {measured[-1]:.3g} in {_REPEATS} rounds;"
                " the median is taken: measure again where nothing else runs"
            )
        return measured[_REPEATS // 2]


def _assumed_keys(machine: Machine) -> list[str]:
    """Return the keys that the description omits, with the values that forecasts use."""
    tables = {name: table for name, table in machine if isinstance(table, Table)}
    return [
        f"{name}.{key} = {value:g}"
        for name, table in tables.items()
        for key, value in table
        if key not in table.model_fields_set and isinstance(value, float)
    ]


def _ranks_of_node(comm: Comm) -> int:
    return 1 if comm is None else max(Counter(node_numbers(comm)).values())


def _ranks_of_device(device: Device, of_node: int) -> int:
    """Return the number of ranks that share a device's memory: all on a node, if it is the host."""
    return of_node if device.kind == "cpu" else 1


def _least(comm: Comm, value: float) -> float:
    return value if comm is None else min(comm.allgather(value))


def _round_rate(value: Any) -> Any:
    return (
        float(f"{value:.3g}") if isinstance(value, float) else [_round_rate(one) for one in value]
    )


def _bus(device: Device, comm: Comm, copy: float, of_node: int) -> dict[str, float]:
    """Return the rates between host and device; on a CPU, the rates of copies."""
    each_way = copy / 2
    if device.kind != "cpu":
        each_way = _least(comm, bus_rates([device], home_of(device), comm)["both"])
    return {
        "device_gb_per_s": _round_rate(each_way / 1e9),
        "node_gb_per_s": _round_rate(2 * each_way * of_node / 1e9),
    }


def _in_node(device: Device, comm: Comm, copy: float, steady: _Steady) -> dict[str, float]:
    """Return the rate from each rank to the others of its node; for one rank, of copies."""
    if comm is None or _ranks_of_node(comm) == 1:
        return {"gb_per_s": _round_rate(copy / 2 / 1e9)}
    node = comm.Split(node_numbers(comm)[comm.rank], comm.rank)

    def rates(timer: ExchangeTimer, size: int) -> float:
        seconds = min(timer.seconds("all-to-all", size, _REPETITIONS).values())
        return _least(comm, (node.size - 1) * size / seconds) / 1e9

    try:
        large = _LARGE[device.processor]
        timer = _timer(device, node, (), large)
        host = _timer(open_device("cpu"), node, _FROM_HOST, large)
        rates_of_node = {
            "gb_per_s": steady("node.gb_per_s", lambda: rates(timer, large)),
            "host_gb_per_s": steady("node.host_gb_per_s", lambda: rates(host, large)),
            "latency_us": (node.size - 1) * _SMALL / rates(timer, _SMALL) / 1e3,
        }
        return {name: _round_rate(rate) for name, rate in rates_of_node.items()}
    finally:
        node.Free()


def _timer(device: Device, comm: Communicator, names: Sequence[str], largest: int) -> ExchangeTimer:
    """Return a timer of some transports, or of all that send each message by itself."""
    transports, _ = usable_transports(names, device, comm)
    direct = {name: one for name, one in transports.items() if not one.aggregates}
    return ExchangeTimer(device, comm, direct, largest)


def _network(device: Device, comm: Communicator, of_node: int) -> dict[str, Any]:
    """Return the rate of a node that sends while all exchange with all, and the latency."""
    beyond = (comm.size - of_node) / (comm.size - 1)
    timer, node_rates = _timer(device, comm, (), max(_MESSAGES)), []
    for size in _MESSAGES:
        seconds = min(timer.seconds("all-to-all", size, _REPETITIONS).values())
        node_rates.append(_round_rate((comm.size - 1) * size / seconds * beyond * of_node / 1e9))
    # A rate that falls for larger messages is noise.
    return {
        "latency_us": _round_rate(1e6 * _latency(comm)),
        "message_bytes": [float(size) for size in _MESSAGES],
        "node_gb_per_s": np.maximum.accumulate(node_rates).tolist(),
    }


def _latency(comm: Communicator, repetitions: int = 200) -> float:
    """Return the seconds of a meeting of all ranks."""
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(repetitions):
        comm.Barrier()
    return (time.perf_counter() - began) / repetitions
