"""What a time step of fields on the host costs: time, timers, and the bound by the bus."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from slipstream.array_types import Comm
from slipstream.bench.dns_bench import case_of_step
from slipstream.bench.harness import Column, Outcome, extreme, medians
from slipstream.bench.out_of_core import (
    Variant,
    attempt,
    bus_notes,
    bus_rates,
    compare,
    each_once,
    print_variants,
    quietest,
    timers_of,
)
from slipstream.bench.requests import DNSRequest
from slipstream.byte_sizes import bytes_text
from slipstream.case import SpectralCase
from slipstream.collective import on_every_rank
from slipstream.device import Device
from slipstream.fft import Streaming
from slipstream.report.number_text import quantity
from slipstream.schedule import Timeline, commit
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.spectral_simulation import SpectralSimulation


def run_out_of_core(request: DNSRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""

    def make(variant: Variant) -> SpectralSimulation:
        case = case_of_step(request, variant.streaming, variant.schedule)
        return SpectralSimulation(case, comm, device)

    variants = step_variants(request.streaming, request.sweep, request.schedule)
    result = measure_streamed_step(make, variants, request.repetitions)
    title = f"time step of fields on the host, through {device.name}"
    return Outcome("dns of fields on the host", title, device, result, print_streamed_step)


def step_variants(streaming: Streaming, sweep: bool, schedule: str = "overlap") -> list[Variant]:
    """Return what is measured: as asked, synchronous, and with `sweep` options one by one."""
    how = f"{streaming.streams} streams" if streaming.streams else "pipelined"
    asked = "synchronous" if schedule == "serial" else how
    first = Variant(f"{asked}, as asked", streaming, schedule)
    result = [first, Variant("synchronous", streaming, "serial")]
    if sweep:
        result.append(first.changed(how))
        for streams in (1, 2, 4, 8, 16):
            result.append(first.changed(f"{streams} streams", streams=streams))
        result.append(first.changed("zero-copy", copies="zero-copy"))
        result.append(first.changed("update on the host", update="host"))
        result.append(first.changed("columns stay", resident=True))
        result.append(first.changed("no columns stay", resident=False))
    return each_once(result)


def measure_streamed_step(
    make: Callable[[Variant], SpectralSimulation],
    variants: Sequence[Variant],
    repetitions: int,
) -> dict[str, Any]:
    """Return settings, rates of the bus, and a row for each way to stream. Collective.

    `make` gives the simulation of a variant, not allocated yet; one of them is synchronous.
    """
    rows: list[dict[str, Any]] = []
    rates: dict[str, float] = {}
    settings: dict[str, Any] = {}
    left_out: dict[str, str] = {}
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


def print_streamed_step(title: str, result: Mapping[str, Any]) -> None:
    """Print the times of each way to stream, and the bound by the bus."""
    # Records of earlier versions say "pencils".
    columns: dict[str, Column] = {
        "tiles": lambda row: row.get("tiles") or row["pencils"],
        "step": lambda row: quantity(row["seconds per step"], "s"),
        "of bus\nbound": lambda row: f"{row['of the bound']:.2f}",
    }
    first = result["rows"][0]
    exposed = ", ".join(
        f"{name} {quantity(seconds, 's')}"
        for name, seconds in first["timers (s)"]["exposed"].items()
        if seconds > 0
    )
    notes = (
        f"{result['model']}, {' x '.join(map(str, result['points']))} points, "
        f"{result['precision']}, {result['integrator']}, ranks {result['ranks']}; "
        f"{bytes_text(first['device memory (bytes)'])} of a device",
        f"columns of {first['ky whose columns stay']} of {first['ky']} ky stay there",
        *bus_notes(result, " in a step: bound"),
        f"alone, with nothing beside: {exposed or 'nothing'}",
    )
    parts = ("copy in", "fft", "compute", "copy out", "pack", "communication")
    print_variants(title, result, columns, "timers (s)", parts, notes)
