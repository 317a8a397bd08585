"""The cost of a time step of turbulence, its transforms alone, the vendor's, and its bound.

The bound of fields on a device is the bytes that the recorded step moves in its memory, at the rate
of large copies; that of fields on the host is the bytes that cross the bus, at the rate of copies
in both directions. That of fields on disk is the longer of two times: the bytes read and written,
at the rate at which the drive takes the same shares of both, and the step without access to files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from bench.harness import (
    Column,
    Outcome,
    Way,
    headline,
    measure_ways,
    print_figures,
    timers_of,
)
from bench.reference_ffts import plain_transforms
from bench.requests import DNSRequest
from bench.streaming_ways import (
    WITHOUT_DRIVE,
    Variant,
    bounds_of_drive,
    bus_notes,
    drive_notes,
    measure_streams,
    print_ways,
    streamed_row,
    streams_of_ghost,
    variants_of,
    without_drive,
)
from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.case import SpectralCase, validate_case
from slipstream.collective import on_every_rank
from slipstream.device import Device
from slipstream.equations import models
from slipstream.exchange import chosen_transport
from slipstream.fft import Streaming
from slipstream.fft.streamed_slabs import StreamedPasses
from slipstream.forecast.measured_rates import bus_rates, copy_bandwidth, drive_rates
from slipstream.forecast.noted_steps import bytes_of_step
from slipstream.forecast.published_runs import GHOST_TRANSFORMS
from slipstream.outofcore.file_arrays import FileHome
from slipstream.report.number_text import quantity
from slipstream.schedule import Timeline, commit
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.spectral_simulation import SpectralSimulation


def run(request: DNSRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    if request.residency != "device":
        variants = step_variants(request.streaming, request.sweep, request.schedule)
        make = partial(_simulation, request, device, comm)
        result = measure_streamed_step(make, variants, request.repetitions)
        where = "on disk" if request.residency == "disk" else "on the host"
        title = f"time step of fields {where}, through {device.name}"
        first, name, show = result["rows"][0], f"dns of fields {where}", print_streamed_step
        bound = first["bound (s)"]
    else:
        simulation = SpectralSimulation(case_of_step(request), comm, device)
        make_way = partial(_way, simulation, request.plain)
        (result,) = measure_ways({"step": make_way}, ["step"], request.repetitions).rows
        title = f"time step of turbulence on {device.name}"
        first, name, show = result, "dns", print_figures
        bound = result.get("bound by memory traffic (s)")
    headlines = {"step": headline(first["seconds per step"], bound)}
    return Outcome(name, title, device, result, show, headlines)


def case_of_step(
    request: DNSRequest, streaming: Streaming | None = None, schedule: str | None = None
) -> SpectralCase:
    """Return the case of a benchmark; its fields are on the host if `streaming` says how."""
    needed = models.parameters_of(models.find(request.model)).items()
    run: dict[str, Any] = {"device": request.device, "transport": request.transport}
    run["schedule"] = schedule or request.schedule
    if streaming is not None:
        given = {key: one for key, one in streaming.of_step().items() if one is not None}
        run |= {"residency": request.residency, "streaming": given}
        run |= {} if request.scratch is None else {"scratch": request.scratch}
        run |= {} if request.memory is None else {"memory": request.memory}
    settings = {
        "solver": "spectral",
        "grid": {"points": request.n},
        # Some value for each parameter that needs one.
        "equation": {"model": request.model, **{key: 1e-3 for key, (_, d) in needed if d is ...}},
        # What moves does not matter to the time that a step takes.
        "initial": {"flow": "formula"},
        "time": {"end": 1.0, "step": 1e-6, "integrator": request.integrator},
        "numerics": {"precision": request.precision},
        "run": run,
    }
    return cast(SpectralCase, validate_case(settings))


def _settings(simulation: SpectralSimulation) -> dict[str, Any]:
    problem, case = simulation.problem, simulation.case
    return {
        "model": case.equation.model,
        "points": list(case.grid.points_xyz),
        "precision": case.numerics.precision,
        "integrator": problem.method.name,
        "ranks": problem.geometry.ranks,
    }


def _way(simulation: SpectralSimulation, plain: bool) -> Way:
    """Return a step of fields on a device, its transforms alone, and plain ones."""
    device, comm, case = simulation.device, simulation.comm, simulation.case
    before = device.memory_free()
    simulation._allocate()
    allocated = before - device.memory_free()
    simulation._initialise()
    flow, problem = simulation.flow, simulation.problem
    memory, points = simulation.placement.fields_bytes, problem.geometry.physical_box.size
    flow.set_step_size(1e-6)
    step = commit(flow.record_step(), case.run.schedule)
    alone = commit(flow.record_step(compute=False), case.run.schedule)
    bandwidth = copy_bandwidth(device)()
    actions: dict[str, Callable[[], object]] = {"step": step.run, "transforms": alone.run}
    if plain:
        forward, backward = plain_transforms(device, problem.geometry.shape, problem.real_dtype)
        actions |= {"plain forward": forward, "plain backward": backward}

    def profile() -> Timeline:
        step.run(profile=True)
        return step.timeline

    def row(seconds: Mapping[str, float], timeline: Timeline) -> dict[str, Any]:
        substages, took = problem.method.substages, seconds["step"]
        found = _settings(simulation) | {
            "transforms of a substage": problem.model.transforms,
            "schedule": case.run.schedule,
            "transport": chosen_transport(case.run.transport, comm, device),
            "memory of fields (GiB)": memory / 2**30,
            "memory of fields (bytes per point)": memory / points,
            "allocated / predicted": allocated / memory,
            "seconds per step": took,
            "seconds per substage": took / substages,
            "seconds of the step's transforms alone": seconds["transforms"],
            "step / its transforms alone": took / seconds["transforms"],
            "copy bandwidth (GB/s)": bandwidth / 1e9,
            "timers (s per step)": timeline.totals(),
            "exposed communication (s per step)": timeline.exposed(),
        }
        if device.kind != "cpu":
            bound = bytes_of_step(case, problem, device.processor) / bandwidth
            found |= {"bound by memory traffic (s)": bound, "fraction of the bound": bound / took}
        if plain:
            inputs, products = len(problem.model.inputs), len(problem.model.products)
            number = inputs + products
            one = inputs * seconds["plain backward"] + products * seconds["plain forward"]
            one /= number
            found["seconds of a plain real transform"] = one
            found["step / as many plain transforms"] = took / (number * substages * one)
            found["substage / plain transform"] = took / substages / one
            if theirs := GHOST_TRANSFORMS.get(case.equation.model):
                ratio = took / (theirs * substages * one)
                found["step / plain transforms of GHOST's number"] = ratio
        return found

    return Way(device, comm, actions, profile, row)


# -- fields on the host ---------------------------------------------------------------------


def step_variants(streaming: Streaming, sweep: bool, schedule: str = "overlap") -> list[Variant]:
    """Return the variants: as requested, synchronous, and with `sweep` options one by one."""

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


def _simulation(
    request: DNSRequest, device: Device, comm: Comm, variant: Variant
) -> SpectralSimulation:
    case = case_of_step(request, variant.streaming, variant.schedule)
    return SpectralSimulation(case, comm, device)


def measure_streamed_step(
    make: Callable[[Variant], SpectralSimulation], variants: list[Variant], repetitions: int
) -> dict[str, Any]:
    """Return settings, rates of the bus, and a row for each way to stream. Collective.

    `make` gives the simulation of a variant, not allocated yet; one of them is synchronous.
    """
    settings: dict[str, Any] = {}

    def way(variant: Variant, rates: dict[str, float]) -> Way:
        simulation = make(variant)
        on_every_rank(simulation.comm, simulation._allocate)
        placement, flow, comm = simulation.placement, simulation.flow, simulation.comm
        home = placement.home
        if not rates and isinstance(home, FileHome):
            rates.update(drive_rates(home, comm, _crossings(variant, simulation)))
        rates.update(rates or bus_rates(placement.devices, home, comm))
        settings.update(_settings(simulation) | {"memory": simulation.case.run.memory})
        settings["memory of fields on the host (GiB)"] = placement.fields_bytes / 2**30
        simulation._initialise()
        flow.set_step_size(1e-6)
        placement.run(commit(flow.record_step(), variant.schedule))
        step = commit(flow.record_step(begins=False), variant.schedule)
        actions = {"step": lambda: placement.run(step)}
        if isinstance(home, FileHome):
            alone = commit(without_drive(flow.record_step(begins=False)), variant.schedule)
            actions[WITHOUT_DRIVE] = lambda: placement.run(alone)

        def profile() -> Timeline:
            placement.run(step, profile=True)
            return step.timeline

        row = partial(_streamed_row, variant, simulation, rates)
        return Way(placement.device, comm, actions, profile, row)

    return measure_streams(variants, way, repetitions, "seconds per step")[0] | settings


def _crossings(variant: Variant, simulation: SpectralSimulation) -> tuple[float, float]:
    """Return the bytes that a step moves in and out, over the bus or from and to drives."""
    passes = cast(StreamedPasses, simulation.flow.passes)
    update = variant.streaming.update
    return crossings(simulation.problem, update, passes.resident.ky, passes.tiles)


def _streamed_row(
    variant: Variant,
    simulation: SpectralSimulation,
    rates: Mapping[str, float],
    seconds: Mapping[str, float],
    timeline: Timeline,
) -> dict[str, Any]:
    passes, problem = cast(StreamedPasses, simulation.flow.passes), simulation.problem
    sizes = _crossings(variant, simulation)
    row, took = streamed_row(variant, sizes, rates, simulation.comm), seconds["step"]
    row |= bounds_of_drive(row, seconds)
    return row | {
        "streaming": variant.streaming.of_step(),
        "tiles": passes.tiles,
        "ky whose columns stay": passes.resident.ky,
        "ky": problem.geometry.columns_shape[1],
        "seconds per step": took,
        "seconds per substage": took / problem.method.substages,
        "of the bound": row["bound (s)"] / took,
        "device memory (bytes)": passes.device_bytes,
        "timers (s)": timers_of(timeline),
    }


def print_streamed_step(title: str, result: Mapping[str, Any]) -> None:
    """Print the times of each way to stream, and the bound by the bus."""
    columns: dict[str, Column] = {
        "step": "seconds per step|s",
        "of the\nbound": "of the bound|.2f",
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
        # Records of earlier versions lack these.
        f"columns of {first.get('ky whose columns stay', '?')} of {first.get('ky', '?')} ky stay"
        " there",
        *bus_notes(result, " in a step: bound"),
        *drive_notes(first),
        f"not overlapped by anything: {exposed or 'nothing'}",
    )
    parts = ("copy in", "fft", "compute", "copy out", "pack", "communication", "io")
    print_ways(title, result, columns, "timers (s)", parts, notes)
