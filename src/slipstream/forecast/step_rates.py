"""What steps of each family reach on this machine, in cache and beyond, and what starts cost.

Of each family two steps are timed, one whose arrays are in cache and one whose arrays are much
larger; and two that take little but their start. Each has so many bytes, operations and starts as
its recorded step says. The rates explain the seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.case import Case, make_case
from slipstream.collective import largest
from slipstream.device import Device
from slipstream.device.copy_bandwidth import large_copy
from slipstream.fft import DistributedFFT
from slipstream.forecast.case_forecast import step_counter
from slipstream.forecast.noted_steps import transform_counts
from slipstream.schedule.committed_steps import OverlappedStep
from slipstream.simulation import make_simulation
from slipstream.simulation.machine_description import Family, Machine, Processor
from slipstream.simulation.step_price import StepCounts
from slipstream.tuner import medians

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
# MiB that copies access, by which caches are found.
CACHE_MIB = {
    "cpu": (2, 4, 8, 12, 16, 24, 32, 64, 128, 256),
    "gpu": (8, 16, 24, 32, 48, 64, 96, 128, 256, 512),
}
_TINY_COPY = 1 << 16
# The keys of what each family reaches of a copy, and in cache.
_KEYS: dict[Family, tuple[str, str]] = {
    "spectral": ("share_of_bound", "spectral_cached_gb_per_s"),
    "transform": ("transform_share", "transform_cached_gb_per_s"),
    "lattice": ("lattice_share", "lattice_cached_gb_per_s"),
    "advection": ("advection_share", "advection_cached_gb_per_s"),
}
# Runs before any is timed, at most, since a step that takes little times its first ones itself;
# seconds for which each is repeated, and how often they take turns.
_UNTIMED, _SECONDS, _TURNS = 12, 0.01, 3
# Rates and starts are found in turn. Starts leave at least such a share of a step to its passes,
# and steps that differ by less in what they miss say nothing of caches.
_ROUNDS, _LEAST, _DIFFER = 8, 0.05, 0.2


def cache_rates(device: Device, comm: Comm, arrays: tuple[Array, Array]) -> dict[str, list[float]]:
    """Return what copies between large arrays reach by what they access, without what starts them.

    Collective.
    """
    sizes = CACHE_MIB[device.processor]
    copies = {size: large_copy(device, size << 19, arrays=arrays) for size in sizes}
    actions = {size: copy for size, (copy, _) in copies.items()} | {
        0: large_copy(device, _TINY_COPY, arrays=arrays)[0]
    }
    seconds = _seconds(device, actions, comm)
    rates = [
        1e-9 * moved / max(seconds[size] - seconds[0], _LEAST * seconds[size])
        for size, (_, moved) in copies.items()
    ]
    # A rate that grows with the size is noise.
    slower = np.minimum.accumulate(rates).tolist()
    return {"cache_mib": [float(size) for size in copies], "cache_gb_per_s": slower}


def step_rates(device: Device, comm: Comm, machine: Machine) -> dict[str, float]:
    """Return the keys of a processor that say how fast steps are. Collective.

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
            simulation = _prepared(*key, device, None)
            issued = OverlappedStep(simulation.flow.record_step())
            actions["issued"], steps["issued"] = issued.run, 1
    found = _seconds(device, actions, comm)
    seconds = {key: one / steps[key] for key, one in found.items()}
    return _explained(machine.device, pairs, counts, seconds)


def _explained(
    processor: Processor,
    pairs: Mapping[Family, tuple[int, int]],
    counts: Mapping[Any, StepCounts],
    seconds: Mapping[Any, float],
) -> dict[str, float]:
    """Return the rates and starts by which steps take so many seconds."""
    rates = dict.fromkeys(("step_us", "transform_us", "launch_us", "issue_us"), 0.0)

    def starts_of(one: StepCounts) -> float:
        of_family = rates["transform_us" if one.family == "transform" else "step_us"]
        return 1e-6 * (rates["launch_us"] * one.launches + of_family * one.starts)

    for _ in range(_ROUNDS):
        for family, pair in pairs.items():
            each = [counts[family, points] for points in pair]
            # Seconds of passes = work / cached + missed bytes x slope.
            passes = [
                max(whole - starts_of(one), _LEAST * whole)
                for one, whole in zip(
                    each, (seconds[family, points] for points in pair), strict=True
                )
            ]
            work = [one.memory_bytes / one.starts for one in each]
            missed = [one.memory_bytes * processor.missed(one.working_set) for one in each]
            cached, slope = passes[0] / work[0], 0.0
            if missed[1] / work[1] - missed[0] / work[0] > _DIFFER:
                found = np.linalg.solve(np.column_stack([work, missed]), passes)
                slope = float(found[1])
                if slope > 0:
                    cached = max(_LEAST * cached, (passes[0] - slope * missed[0]) / work[0])
                else:
                    # The large step takes less for a byte, since threads are woken for more of
                    # them: no rate is that of both, so errors of both are alike.
                    slope, cached = 0.0, math.sqrt(cached * passes[1] / work[1])
            share, rate = _KEYS[family]
            rates[share] = min(1.0, 1 / (cached + slope) / (1e9 * processor.copy_gb_per_s))
            rates[rate] = 1e-9 / cached
        known = processor.model_copy(update=rates)

        def start(key: Any, of: tuple[Family, int], known: Processor = known) -> float:
            count = counts[of]
            moved, size = count.memory_bytes, count.working_set
            passes = known.pass_seconds(of[0], moved, size, moved / count.starts)
            return 1e6 * max(0.0, seconds[key] - passes)

        one, launches = counts[_ONE], counts[_MANY].launches
        rates["step_us"] = max(0.0, start(_ONE, _ONE) / one.starts - rates["launch_us"])
        for key, name in ((_MANY, "launch_us"), ("issued", "issue_us")):
            rates[name] = max(0.0, start(key, _MANY) - rates["step_us"]) / launches
        call = counts[_CALL]
        begun = start(_CALL, _CALL) - rates["launch_us"] * call.launches
        rates["transform_us"] = max(0.0, begun) / call.starts
    return rates


def _seconds(
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
    """Return what a step of so many points along each axis moves, or a transform."""
    if family == "transform":
        return transform_counts((points,) * 3, machine, ranks)
    return step_counter(_case(family, points), machine)(ranks)


def stepping(
    family: Family, points: int, device: Device, comm: Comm
) -> tuple[Callable[[], Any], int]:
    """Return a function that does some steps or transforms, and their number. Collective."""
    if family == "transform":
        plan = DistributedFFT((points,) * 3, comm=comm, device=device)
        values, modes = plan.empty_input(), plan.empty_output()
        device.run(device.fill(values, 0))

        def pair() -> None:
            plan.forward(values, modes)
            plan.backward(modes, values)

        return pair, 2
    simulation = _prepared(family, points, device, comm)
    if family == "lattice":
        return partial(simulation.flow.advance, 2), 2
    if family == "spectral":
        return partial(simulation.advance, 1e-6), 1
    return partial(simulation.solver.advance, 2), 2  # a pass may take both


def _prepared(family: Family, points: int, device: Device, comm: Comm) -> Any:
    simulation = make_simulation(_case(family, points), comm, device)
    simulation.prepare()
    return simulation


def _case(family: Family, points: int) -> Case:
    """Return a case of so many points along each axis; what moves in it does not matter.

    A larger image is more of the same rock: sites of small pores take longer.
    """
    if family == "lattice":
        image = {
            "sample": "sandstone",
            "shape": [points] * 3,
            "porosity": 0.3,
            "radius": 6,
        }
        return make_case("lattice", image=image, time={"end": 10**6})
    if family == "advection":
        return make_case("advection", grid={"points": points}, time={"end": 1e3})
    return make_case(
        "spectral",
        grid={"points": points},
        equation={"viscosity": 1e-3},
        initial={"flow": "formula"},
        time={"end": 1.0, "step": 1e-6},
    )
