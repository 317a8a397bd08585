"""What a time step of fields on the host costs: time, timers, and the bound by the bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from slipstream.array_types import Comm
from slipstream.bench.comparison import headline
from slipstream.bench.dns_bench import case_of_step
from slipstream.bench.harness import Column, Outcome, medians, number_of, seconds_of
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
from slipstream.bench.requests import DNSRequest
from slipstream.byte_sizes import bytes_text
from slipstream.collective import on_every_rank
from slipstream.device import Device
from slipstream.fft import Streaming
from slipstream.report.number_text import quantity
from slipstream.schedule import Timeline, commit
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.out_of_core_step import StreamedPasses
from slipstream.spectral.spectral_simulation import SpectralSimulation


def run_out_of_core(request: DNSRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""

    def make(variant: Variant) -> SpectralSimulation:
        case = case_of_step(request, variant.streaming, variant.schedule)
        return SpectralSimulation(case, comm, device)

    variants = step_variants(request.streaming, request.sweep, request.schedule)
    result = measure_streamed_step(make, variants, request.repetitions)
    title = f"time step of fields on the host, through {device.name}"
    first = result["rows"][0]
    headlines = {"step": headline(first["seconds per step"], first["bound (s)"])}
    return Outcome(
        "dns of fields on the host",
        title,
        device,
        result,
        print_streamed_step,
        headlines=headlines,
    )


def step_variants(streaming: Streaming, sweep: bool, schedule: str = "overlap") -> list[Variant]:
    """Return what is measured: as asked, synchronous, and with `sweep` options one by one."""

    def others(first: Variant, how: str) -> list[Variant]:
        return [
            first.changed(how),
            *streams_of_ghost(first),
            first.changed("zero-copy", copies="zero-copy"),
            first.changed("update on the host", update="host"),
            first.changed("columns stay", resident=True),
            first.changed("no columns stay", resident=False),
        ]

    return variants_of(streaming, schedule, others if sweep else None)


def measure_streamed_step(
    make: Callable[[Variant], SpectralSimulation],
    variants: Sequence[Variant],
    repetitions: int,
) -> dict[str, Any]:
    """Return settings, rates of the bus, and a row for each way to stream. Collective.

    `make` gives the simulation of a variant, not allocated yet; one of them is synchronous.
    """
    settings: dict[str, Any] = {}

    def allocated(variant: Variant) -> SpectralSimulation:
        simulation = make(variant)
        on_every_rank(simulation.comm, simulation.allocate)
        return simulation

    def where(simulation: SpectralSimulation) -> tuple[Sequence[Device], Device, Comm]:
        settings.update(_settings(simulation))
        placement = simulation.placement
        return placement.devices, placement.home, simulation.comm

    row = partial(_row, repetitions=repetitions)
    return measure_variants(variants, allocated, where, row, "seconds per step") | settings


def _settings(simulation: SpectralSimulation) -> dict[str, Any]:
    problem, case = simulation.problem, simulation.case
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
    rates: Mapping[str, float],
    repetitions: int,
) -> dict[str, Any]:
    simulation.initialise()
    flow, placement, problem = simulation.flow, simulation.placement, simulation.problem
    passes = cast(StreamedPasses, flow.passes)
    comm = simulation.comm
    flow.set_step_size(1e-6)
    placement.run(commit(flow.record_step(), variant.schedule))
    step = commit(flow.record_step(begins=False), variant.schedule)
    actions = {"step": lambda: placement.run(step)}
    seconds = medians(placement.device, actions, repetitions, comm)["step"]

    def profile() -> Timeline:
        placement.run(step, profile=True)
        return step.timeline

    sizes = crossings(problem, variant.streaming.update, passes.resident.ky)
    ways, bound = bus_bound(variant, sizes, rates, comm)
    return {
        "name": variant.name,
        "schedule": variant.schedule,
        "streaming": variant.streaming.of_step(),
        "tiles": passes.tiles,
        "ky whose columns stay": passes.resident.ky,
        "ky": problem.geometry.columns_shape[1],
        "seconds per step": seconds,
        "seconds per substage": seconds / problem.method.substages,
        "bytes over the bus, in and out": ways,
        "bound (s)": bound,
        "of the bound": bound / seconds,
        "device memory (bytes)": passes.device_bytes,
        "timers (s)": timers_of(quietest(profile)),
    }


def print_streamed_step(title: str, result: Mapping[str, Any]) -> None:
    """Print the times of each way to stream, and the bound by the bus."""
    columns: dict[str, Column] = {
        "step": seconds_of("seconds per step"),
        "of bus\nbound": number_of("of the bound", ".2f"),
    }
    first = result["rows"][0]
    stay = first.get("ky whose columns stay", "?")  # as in records of earlier versions
    exposed = ", ".join(
        f"{name} {quantity(seconds, 's')}"
        for name, seconds in first["timers (s)"]["exposed"].items()
        if seconds > 0
    )
    notes = (
        f"{result['model']}, {' x '.join(map(str, result['points']))} points, "
        f"{result['precision']}, {result['integrator']}, ranks {result['ranks']}; "
        f"{bytes_text(first['device memory (bytes)'])} of a device",
        f"columns of {stay} of {first.get('ky', '?')} ky stay there",
        *bus_notes(result, " in a step: bound"),
        f"alone, with nothing beside: {exposed or 'nothing'}",
    )
    parts = ("copy in", "fft", "compute", "copy out", "pack", "communication")
    print_variants(title, result, columns, "timers (s)", parts, notes)
