"""What a time step of turbulence costs, beside its own transforms and the vendor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from slipstream.array_types import Comm
from slipstream.bench.comparison import headline
from slipstream.bench.harness import Outcome, copy_bandwidth, medians, print_figures
from slipstream.bench.reference_ffts import plain_transforms
from slipstream.bench.requests import DNSRequest
from slipstream.case import SpectralCase, validate_case
from slipstream.device import Device
from slipstream.equations import models
from slipstream.exchange import chosen_transport
from slipstream.fft import Streaming
from slipstream.forecast.noted_spectral import bytes_of_step
from slipstream.schedule import Timeline, commit
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.spectral_simulation import SpectralSimulation

# Steps whose nodes are timed one by one.
_PROFILED = 3
# Real transforms of a stage of GHOST's solvers (Rosenberg et al. 2020, and its source).
_GHOST = {"hd": 9, "boussinesq": 16, "mhd": 27, "gpe": 8}


def equation_of(model: str) -> dict[str, Any]:
    """Return an equation table with some value for each parameter that needs one."""
    needed = [k for k, (_, d) in models.parameters_of(models.find(model)).items() if d is ...]
    return {"model": model, **dict.fromkeys(needed, 1e-3)}


def run(request: DNSRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    if request.residency == "host":
        from slipstream.bench.dns_out_of_core_bench import run_out_of_core

        return run_out_of_core(request, device, comm)
    case = case_of_step(request)
    simulation = SpectralSimulation(case, comm, device)
    result = measure_step(case, simulation, request.repetitions, request.plain)
    title = f"time step of turbulence on {device.name}"
    bound = result.get("bound by memory traffic (s)")
    headlines = {"step": headline(result["seconds per step"], bound)}
    return Outcome("dns", title, device, result, print_figures, headlines=headlines)


def case_of_step(
    request: DNSRequest, streaming: Streaming | None = None, schedule: str | None = None
) -> SpectralCase:
    """Return the case of a benchmark; of fields on the host, if told how they stream."""
    run: dict[str, Any] = {"device": request.device, "transport": request.transport}
    run["schedule"] = schedule or request.schedule
    if streaming is not None:
        given = {key: one for key, one in streaming.of_step().items() if one is not None}
        run |= {"residency": "host", "streaming": given}
        run |= {} if request.memory is None else {"memory": request.memory}
    settings = {
        "solver": "spectral",
        "grid": {"points": request.n},
        "equation": equation_of(request.model),
        # What moves does not matter to the time that a step takes.
        "initial": {"flow": "formula"},
        "time": {"end": 1.0, "step": 1e-6, "integrator": request.integrator},
        "numerics": {"precision": request.precision},
        "run": run,
    }
    return cast(SpectralCase, validate_case(settings))


def measure_step(
    case: SpectralCase,
    simulation: SpectralSimulation,
    repetitions: int,
    plain: bool,
    bandwidth: float | None = None,
) -> dict[str, Any]:
    """Return figures of the step of a simulation that is not allocated yet. Collective.

    The bandwidth of copies is measured if it is not known.
    """
    before = simulation.device.memory_free()
    simulation.allocate()
    allocated = before - simulation.device.memory_free()
    simulation.initialise()
    flow, device, comm = simulation.flow, simulation.device, simulation.comm
    problem = simulation.problem
    memory, points = problem.memory(device), problem.geometry.physical_box.size
    flow.set_step_size(1e-6)
    step = commit(flow.record_step(), case.run.schedule)
    alone = commit(flow.record_step(compute=False), case.run.schedule)
    bandwidth = bandwidth or copy_bandwidth(device)()
    actions: dict[str, Callable[[], object]] = {"step": step.run, "transforms": alone.run}
    if plain:
        forward, backward = plain_transforms(device, problem.geometry.shape, problem.real_dtype)
        actions |= {"plain forward": forward, "plain backward": backward}
    seconds = medians(device, actions, repetitions, comm)
    for _ in range(_PROFILED):
        step.run(profile=True)
    settings = {
        "model": case.equation.model,
        "transforms of a substage": problem.model.transforms,
        "points": list(case.grid.points_xyz),
        "precision": case.numerics.precision,
        "integrator": problem.method.name,
        "ranks": problem.geometry.ranks,
        "schedule": case.run.schedule,
        "transport": chosen_transport(case.run.transport, comm, device),
        "memory of fields (GiB)": memory / 2**30,
        "memory of fields (bytes per point)": memory / points,
        "allocated / foretold": allocated / memory,
    }
    return settings | _figures(case, problem, device, seconds, step.timeline, bandwidth)


def _figures(
    case: SpectralCase,
    problem: SpectralProblem,
    device: Device,
    seconds: dict[str, float],
    timeline: Timeline,
    bandwidth: float,
) -> dict[str, Any]:
    """Return the figures of a record from what was measured."""
    model, substages, step = case.equation.model, problem.method.substages, seconds["step"]
    figures = {
        "seconds per step": step,
        "seconds per substage": step / substages,
        "seconds of the step's transforms alone": seconds["transforms"],
        "step / its transforms alone": step / seconds["transforms"],
        "copy bandwidth (GB/s)": bandwidth / 1e9,
        "timers (s per step)": {k: v / _PROFILED for k, v in timeline.totals().items()},
        "exposed communication (s per step)": timeline.exposed() / _PROFILED,
    }
    if device.kind != "cpu":
        bound = bytes_of_step(case, problem, device.processor) / bandwidth
        figures["bound by memory traffic (s)"] = bound
        figures["fraction of the bound"] = bound / step
    if "plain forward" in seconds:
        inputs, products = len(problem.model.inputs), len(problem.model.products)
        transforms = inputs + products
        one = inputs * seconds["plain backward"] + products * seconds["plain forward"]
        one /= transforms
        figures["seconds of a plain real transform"] = one
        figures["step / as many plain transforms"] = step / (transforms * substages * one)
        figures["substage / plain transform"] = step / substages / one
        if model in _GHOST:
            theirs = _GHOST[model] * substages * one
            figures["step / plain transforms of GHOST's number"] = step / theirs
    return figures
