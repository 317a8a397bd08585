"""What a time step of fields on the host costs: time, timers, and the bound by the bus.

As for transforms (`streaming`), the bound is the bytes that cross the bus in each direction over
the rate of copies that go both ways at once, measured in the same run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from slipstream.bench.fft_out_of_core_bench import (
    Variant,
    attempt,
    bus_rates,
    compare,
    each_once,
    quietest,
    timers_of,
)
from slipstream.bench.repetitions import extreme, medians
from slipstream.case import SpectralCase
from slipstream.collective import on_every_rank
from slipstream.fft import Streaming
from slipstream.schedule import Timeline, commit
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.spectral_simulation import SpectralSimulation


def step_variants(streaming: Streaming, sweep: bool, schedule: str = "overlap") -> list[Variant]:
    """Return what is measured: as asked, synchronous, and with `sweep` options one by one."""
    how = f"{streaming.streams} streams" if streaming.streams else "pipelined"
    asked = "synchronous" if schedule == "serial" else how
    result = [Variant(f"{asked}, as asked", streaming, schedule)]
    result.append(Variant("synchronous", streaming, "serial"))
    if sweep:
        result.append(Variant(how, streaming))
        for streams in (1, 2, 4, 8, 16):
            result.append(Variant(f"{streams} streams", replace(streaming, streams=streams)))
        result.append(Variant("zero-copy", replace(streaming, copies="zero-copy")))
        result.append(Variant("update on the host", replace(streaming, update="host")))
        result.append(Variant("columns stay", replace(streaming, resident=True)))
        result.append(Variant("no columns stay", replace(streaming, resident=False)))
    return each_once(result)


def measure_streamed_step(
    make: Callable[[Variant], SpectralSimulation],
    variants: Sequence[Variant],
    repetitions: int,
) -> dict[str, Any]:
    """Measure the time step of simulations whose fields are on the host. Collective.

    Parameters
    ----------
    make : callable
        Makes the simulation of a variant, not allocated yet.
    variants : sequence of Variant
        One of them synchronous.
    repetitions : int
        Timed steps.

    Returns
    -------
    dict
        Settings, rates of the bus, a row for each way, and why some were left out.
    """
    rows, rates, settings, left_out = [], {}, {}, {}
    for variant in variants:
        simulation = make(variant)
        if attempt(variant, partial(_allocated, simulation), rows, left_out) is None:
            continue
        simulation.initialise()
        placement = simulation.placement
        if not rates:
            rates = bus_rates(placement.devices, placement.home, simulation.comm)
            settings = _settings(simulation.case, simulation)
        rows.append(_row(variant, simulation, repetitions, rates))
        del simulation, placement
        gc.collect()
    compare(rows, "seconds per step")
    return settings | {
        "bus (GB/s)": {name: rate / 1e9 for name, rate in rates.items()},
        "rows": rows,
        "left out": left_out,
    }


def _allocated(simulation: SpectralSimulation) -> SpectralSimulation:
    """Return a simulation when all ranks have the memory for it. Collective."""
    on_every_rank(simulation.comm, simulation.allocate)
    return simulation


def _settings(case: SpectralCase, simulation: SpectralSimulation) -> dict[str, Any]:
    problem = simulation.problem
    return {
        "model": case.equation.model,
        "points": list(case.grid.points_xyz),
        "precision": case.numerics.precision,
        "integrator": problem.method.name,
        "ranks": problem.geometry.ranks,
        "memory": case.run.memory,
        "memory of fields on the host (GiB)": problem.memory(simulation.device) / 2**30,
    }


def _row(
    variant: Variant,
    simulation: SpectralSimulation,
    repetitions: int,
    rates: Mapping[str, float],
) -> dict[str, Any]:
    flow, placement, problem = simulation.flow, simulation.placement, simulation.problem
    comm = simulation.comm
    flow.set_step_size(1e-6)
    placement.run(commit(flow.record_step(), variant.schedule))
    step = commit(flow.record_step(begins=False), variant.schedule)
    actions = {"step": lambda: placement.run(step)}
    seconds = medians(placement.device, actions, repetitions, comm)["step"]

    def profile() -> Timeline:
        placement.run(step, profile=True)
        return step.timeline

    ways = [
        extreme(comm, one, max) / variant.streaming.devices
        for one in crossings(problem, variant.streaming.update, flow.passes.resident.ky)
    ]
    bound = max(ways) / rates["both"]
    return {
        "name": variant.name,
        "schedule": variant.schedule,
        "streaming": variant.streaming.of_step(),
        "tiles": flow.passes.tiles,
        "ky whose columns stay": flow.passes.resident.ky,
        "ky": problem.geometry.columns_shape[1],
        "seconds per step": seconds,
        "seconds per substage": seconds / problem.method.substages,
        "bytes over the bus, in and out": ways,
        "bound (s)": bound,
        "of the bound": bound / seconds,
        "device memory (bytes)": flow.passes.device_bytes,
        "timers (s)": timers_of(quietest(profile)),
    }
