"""What a time step of turbulence costs, beside its own transforms and the vendor's."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.bench.measure import copy_bandwidth, medians
from slipstream.bench.plain import plain_transforms
from slipstream.case import SpectralCase
from slipstream.exchange import chosen_transport
from slipstream.schedule import commit
from slipstream.spectral.navier_stokes import PRODUCTS, VELOCITIES, FlowProblem
from slipstream.spectral.simulation import SpectralSimulation


def measure_step(
    case: SpectralCase, simulation: SpectralSimulation, repetitions: int, plain: bool
) -> dict[str, Any]:
    """Measure the time step of a simulation that has not been allocated yet. Collective.

    Parameters
    ----------
    case : SpectralCase
        Its settings.
    simulation : SpectralSimulation
        Made for the case.
    repetitions : int
        Timed runs of each part.
    plain : bool
        Whether to time the vendor's three-dimensional plan too.

    Returns
    -------
    dict
        Settings, seconds, ratios and the fraction of the bound.
    """
    simulation.allocate()
    simulation.initialise()
    flow, device, comm = simulation.flow, simulation.device, simulation.communicator
    problem = simulation.problem
    flow.set_step_size(1e-6)
    step = commit(flow.record_step(), case.run.schedule)
    alone = commit(flow.record_step(compute=False), case.run.schedule)
    bandwidth = copy_bandwidth(device)()
    actions = {"step": step.run, "transforms": alone.run}
    if plain:
        forward, backward = plain_transforms(device, problem.geometry.shape, problem.real_dtype)
        actions |= {"plain forward": forward, "plain backward": backward}
    seconds = medians(device, actions, repetitions, comm)
    for _ in range(3):
        step.run(profile=True)
    substages = problem.method.substages
    result = {
        "points": list(case.grid.points_xyz),
        "precision": case.numerics.precision,
        "integrator": problem.method.name,
        "ranks": problem.geometry.ranks,
        "schedule": case.run.schedule,
        "transport": chosen_transport(case.run.transport, comm, device),
        "seconds per step": seconds["step"],
        "seconds per substage": seconds["step"] / substages,
        "seconds of the step's transforms alone": seconds["transforms"],
        "step / its transforms alone": seconds["step"] / seconds["transforms"],
        "copy bandwidth (GB/s)": bandwidth / 1e9,
        "memory of fields (GiB)": problem.memory(device) / 2**30,
        "timers (s per step)": {k: v / 3 for k, v in step.timeline.totals().items()},
        "exposed communication (s per step)": step.timeline.exposed() / 3,
    }
    if device.kind == "cuda":
        bound = substage_bytes(problem) * substages / bandwidth
        result["bound by memory traffic (s)"] = bound
        result["fraction of the bound"] = bound / seconds["step"]
    if plain:
        one = (3 * seconds["plain backward"] + 5 * seconds["plain forward"]) / 8
        result["seconds of a plain real transform"] = one
        result["step / as many plain transforms"] = seconds["step"] / (8 * substages * one)
        result["substage / plain transform"] = seconds["step"] / substages / one
    return result


def substage_bytes(problem: FlowProblem) -> float:
    """Return the bytes that the five kernels of a substage must move, on this rank.

    Backward z and y of 3 fields, x with the product (3 in, 5 out), forward y and z of 5, and the
    update (5 products and the start in, a stage out).
    """
    nz, ny, _ = problem.geometry.shape
    kz, ky_all, kx = (float(m.count) for m in problem.geometry.modes)
    _, ky, _ = problem.geometry.columns_shape
    planes = problem.geometry.planes
    spectral, columns = kz * ky * kx, nz * ky * kx
    packed, rows = planes * ky_all * kx, planes * ny * kx
    elements = (
        VELOCITIES * (spectral + columns + packed + rows)
        + (VELOCITIES + PRODUCTS) * rows
        + PRODUCTS * (rows + packed + columns + spectral)
        + (PRODUCTS + 2 * VELOCITIES) * spectral
    )
    return elements * np.dtype(problem.complex_dtype).itemsize
