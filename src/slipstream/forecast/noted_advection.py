"""The steps of a case of advection, recorded for one rank of many where nothing is allocated."""

from __future__ import annotations

from typing import cast

from slipstream.advection.advection_simulation import problem_of_case
from slipstream.advection.overlap_strategies import (
    checked_strategy,
    strategies_of,
    usual_strategy,
)
from slipstream.case import AdvectionCase
from slipstream.device.noting_device import NotingDevice
from slipstream.errors import InputError
from slipstream.exchange.noting_transport import RankPlace, noting_transport
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.step_counts import (
    NotedSteps,
    StepCounts,
    check_fit,
    counts_of,
    noting_device,
    output_size,
    room_of_rank,
)

# Where the memory of each kind of device is.
_WHERE = {"gpu": "device", "cpu": "host"}


def advection_counts(case: AdvectionCase, machine: Machine, ranks: int) -> StepCounts:
    """Return what a step of a case moves on so many ranks of a machine, as few nodes as they fill.

    That is a step of the first rank, whose box is the largest. Points of strategies that leave some
    to the CPU are advanced at the rate of the host's memory.

    Raises
    ------
    InputError
        If the strategy is for one rank or for other devices, a rank would have no point, or its
        field does not fit.
    """
    return counts_of(note_advection(case, machine, ranks), machine)


def note_advection(case: AdvectionCase, machine: Machine, ranks: int, rank: int = 0) -> NotedSteps:
    """Return the two steps of one rank that take turns; raises what `advection_counts` does."""
    has_gpus = machine.device.kind == "gpu"
    name = case.run.strategy
    if name == "auto":
        name = usual_strategy(ranks, has_gpus and case.run.device != "cpu")
    strategy = checked_strategy(name, ranks, "run.strategy")
    if "gpu" in strategy.devices and not has_gpus:
        raise InputError(
            f"run.strategy: {name!r} needs a GPU, but devices of {machine.title} are CPUs"
            f" (device.kind); accepted there: auto, {strategies_of(gpu=False)}"
        )
    device = noting_device(machine, ranks)
    devices = {kind: device.home if kind == "cpu" else device for kind in strategy.devices}
    problem = problem_of_case(case, name, ranks, devices)
    if not problem.boxes[-1].size:
        raise InputError(
            f"{ranks} ranks: as {' x '.join(map(str, reversed(problem.grid)))} (x, y, z) some would"
            " have no point; take fewer nodes"
        )
    needed = problem.memory(rank, with_output=True)
    for kind, need in needed.items():
        check_fit(ranks, need, room_of_rank(machine, ranks, _WHERE[kind]), _WHERE[kind])
    place = RankPlace(rank, ranks, min(ranks, machine.devices_per_node))
    steps = problem.record_steps(
        rank, lambda of, name: noting_transport(name, place, cast(NotingDevice, of))
    )
    overlap = strategy.policy == "overlap"
    size = output_size(problem.shape, problem.boxes, [problem.dtype.itemsize])
    outputs = {"fields": size, "checkpoint": size}
    return NotedSteps("advection", steps.graphs, place, sum(needed.values()), overlap, outputs)
