"""Time steps of turbulence, compared with their transforms alone, plain transforms and a bound.

With fields on the device, the bound is the bytes that the recorded step moves in its memory, at
the rate of large copies; `streaming` defines the bounds for fields on the host and on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, cast

from bench.harness import (
    Column,
    Outcome,
    Transport,
    Way,
    choice,
    headline,
    measure_ways,
    option,
    print_figures,
    timers_of,
)
from bench.reference_ffts import plain_transforms
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
from slipstream.api.forecast.measured_rates import copy_bandwidth
from slipstream.api.forecast.noted_steps import bytes_of_step
from slipstream.api.forecast.published_runs import GHOST_TRANSFORMS
from slipstream.case import SpectralCase, validate_case
from slipstream.engine import accepted
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.device import Device
from slipstream.engine.errors import bytes_text
from slipstream.engine.exchange import chosen_transport
from slipstream.engine.fft.streamed_slabs import StreamedPasses
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.schedule import Timeline, commit
from slipstream.equations import models
from slipstream.fft import Streaming
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.spectral_simulation import SpectralSimulation


@dataclass(frozen=True, kw_only=True)
class DNSRequest(StreamedRequest):
    """Time a step of turbulence: its parts, its transforms alone, and plain transforms.

    Bound: the bytes that the step moves in a GPU's memory, at the rate of a large copy; from the
    host, the bytes over the bus, at the rate of copies both ways; from disk, the drive or the rest,
    whichever takes longer.
    """

    n: Annotated[int, option("Points along each axis.", "--n", metavar="N", min=1)] = 128
    precision: Annotated[str, choice(accepted.PRECISIONS)] = "float64"
    integrator: Annotated[str, choice(accepted.INTEGRATORS)] = "rk2"
    model: Annotated[str, choice([*accepted.MODELS, "FILE.py:FUNCTION"])] = "hd"
    schedule: Annotated[str, choice(sorted(accepted.SCHEDULES))] = "overlap"
    transport: Transport = "auto"
    plain: Annotated[bool, option("Time plain 3-D plans too (fields on devices only).")] = True

    def check(self) -> None:
        self.check_residency({})
        case_of_step(self, None if self.residency == "device" else self.streaming)


def run(request: DNSRequest, device: Device, comm: Comm) -> Outcome:
    """Measure the time per step. Collective."""
    if request.residency != "device":
        variants = step_variants(request.streaming, request.sweep, request.schedule)
        make = partial(_simulation, request, device, comm)
        result = measure_streamed_step(make, variants, request.repetitions)
        title = f"time step of fields {request.where}, through {device.name}"
        first, name, show = result["rows"][0], f"dns of fields {request.where}", print_streamed_step
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
    """Return the case of the benchmark; with `streaming`, its fields are on the host or on disk."""
    needed = models.parameters_of(models.find(request.model)).items()
    run: dict[str, Any] = {"device": request.device, "transport": request.transport}
    run["schedule"] = schedule or request.schedule
    if streaming is not None:
        options = {key: one for key, one in streaming.of_step().items() if one is not None}
        run |= {"residency": request.residency, "streaming": options}
        limits = {"scratch": request.scratch, "memory": request.memory}
        run |= {key: one for key, one in limits.items() if one is not None}
    settings = {
        "solver": "spectral",
        "grid": {"points": request.n},
        # Any value for each parameter without a default.
        "equation": {"model": request.model, **{key: 1e-3 for key, (_, d) in needed if d is ...}},
        # The flow does not affect the time per step.
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
    """Return the step with all fields on the device, its transforms alone, and plain transforms."""
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
        figures = _settings(simulation) | {
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
            figures |= {"bound by memory traffic (s)": bound, "fraction of the bound": bound / took}
        if plain:
            inputs, products = len(problem.model.inputs), len(problem.model.products)
            number = inputs + products
            transform = inputs * seconds["plain backward"] + products * seconds["plain forward"]
            transform /= number
            figures |= {
                "seconds of a plain real transform": transform,
                "step / as many plain transforms": took / (number * substages * transform),
                "substage / plain transform": took / substages / transform,
            }
            if theirs := GHOST_TRANSFORMS.get(case.equation.model):
                ratio = took / (theirs * substages * transform)
                figures["step / plain transforms of GHOST's number"] = ratio
        return figures

    return Way(device, comm, actions, profile, row)


# -- fields on the host ---------------------------------------------------------------------


def step_variants(streaming: Streaming, sweep: bool, schedule: str = "overlap") -> list[Variant]:
    """Return the variants: as requested, synchronous, and with `sweep` options one by one."""
    changes: dict[str, dict[str, Any]] = {
        "zero-copy": {"copies": "zero-copy"},
        "update on the host": {"update": "host"},
        "columns stay": {"resident": True},
        "no columns stay": {"resident": False},
    }
    return variants_of(streaming, schedule, changes if sweep else None)


def _simulation(
    request: DNSRequest, device: Device, comm: Comm, variant: Variant
) -> SpectralSimulation:
    case = case_of_step(request, variant.streaming, variant.schedule)
    return SpectralSimulation(case, comm, device)


def measure_streamed_step(
    make: Callable[[Variant], SpectralSimulation], variants: list[Variant], repetitions: int
) -> dict[str, Any]:
    """Return settings, rates of the bus, and a row for each way to stream. Collective.

    `make` returns the simulation of a variant before it is allocated; one variant is synchronous.
    """
    settings: dict[str, Any] = {}

    def way(variant: Variant, rates: dict[str, float]) -> Way:
        simulation = make(variant)
        on_every_rank(simulation.comm, simulation._allocate)
        placement, flow, comm = simulation.placement, simulation.flow, simulation.comm
        home = placement.home
        measure_rates(rates, placement.devices, home, comm, _crossings(variant, simulation))
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
    moved, took = _crossings(variant, simulation), seconds["step"]
    row = streamed_row(variant, moved, rates, simulation.comm, seconds)
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
    """Print the times of each way to stream, and the bound."""
    columns: dict[str, Column] = {
        "step": "seconds per step|s",
        "of the\nbound": "of the bound|.2f",
        "device\nmemory": lambda row: bytes_text(row["device memory (bytes)"]),
        "ky that\nstay": lambda row: f"{row['ky whose columns stay']} of {row['ky']}",
    }
    print_ways(title, result, columns, "timers (s)")
