"""The forecast of a case on more and more nodes of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.case import AdvectionCase, Case, LatticeCase, SpectralCase
from slipstream.errors import InputError
from slipstream.forecast.noted_lattice import lattice_counter
from slipstream.forecast.noted_steps import advection_counts, spectral_counts
from slipstream.running.output_writer import counts_until
from slipstream.simulation.machine_description import Machine
from slipstream.simulation.step_price import OutputSize, StepCounts, StepTime, step_time


@dataclass(frozen=True)
class OutputForecast:
    """The forecast of one kind of output.

    Attributes
    ----------
    bytes, files : int
        Of one of them.
    seconds : float or None
        What one takes to write, where the rates of the storage are known.
    times, kept : int or None
        How many are written in the whole case, and stay, where the number of its steps is known.
    """

    bytes: int
    files: int
    seconds: float | None
    times: int | None
    kept: int | None


@dataclass(frozen=True)
class Forecast:
    """The forecast of a case on some nodes.

    Attributes
    ----------
    nodes, ranks : int
        How many take part; a rank for each device.
    counts, time : StepCounts, StepTime or None
        What a step moves and takes; None if the case cannot run there.
    obstacle : str
        Why not.
    efficiency : float or None
        Of the devices, beside the first number of nodes on which the case can run.
    hours, node_hours : float or None
        To the end of the case, where the number of its steps is known, by the clock, and of all
        nodes; with `output_seconds`.
    outputs : mapping of str to OutputForecast
        Snapshots of all fields ("fields") and states ("checkpoint").
    output_seconds : float or None
        What those of the whole case take, where the rates of the storage are known as well.
    """

    nodes: int
    ranks: int
    counts: StepCounts | None
    time: StepTime | None
    obstacle: str = ""
    efficiency: float | None = None
    hours: float | None = None
    node_hours: float | None = None
    outputs: Mapping[str, OutputForecast] = field(default_factory=dict)
    output_seconds: float | None = None

    @property
    def files(self) -> int | None:
        """How many files stay of these outputs; None where their number is not known."""
        if not self.outputs or any(one.kept is None for one in self.outputs.values()):
            return None
        return sum(one.files * (one.kept or 0) for one in self.outputs.values())


def forecast(
    case: Case, machine: Machine, nodes: Sequence[int], steps: int | None = None
) -> list[Forecast]:
    """Return the forecast of a case for each number of nodes.

    Parameters
    ----------
    case : Case
        Of any family.
    machine : Machine
        Where it is to run, a rank for each of its devices.
    nodes : sequence of int
        Numbers of nodes.
    steps : int, optional
        Number of steps of the whole run; by default that of a case with a fixed step.

    Raises
    ------
    InputError
        If the case is of a family without a forecast, or for another kind of device.
    """
    kind, asked = machine.device.kind, case.run.device
    # Of advection the strategy says where points are.
    if asked != "auto" and (asked == "cpu") != (kind == "cpu") and case.solver != "advection":
        raise InputError(
            f"run.device is {asked!r}, but devices of {machine.title} are {kind.upper()}s"
            " (device.kind); leave it out, or take the description of another machine"
        )
    count_step = step_counter(case, machine)
    steps = steps or _steps(case)
    found: list[Forecast] = []
    reference: float | None = None
    for count in nodes:
        ranks = count * machine.devices_per_node
        try:
            counts = count_step(ranks)
            time = step_time(counts, machine)
        except InputError as error:
            found.append(Forecast(count, ranks, None, None, str(error)))
            continue
        cost = time.total * count
        reference = reference or cost
        stepping = None if steps is None else steps * time.total
        outputs = _outputs(case, machine, count, counts, stepping)
        writing = _writing(outputs)
        hours = None if stepping is None else (stepping + (writing or 0.0)) / 3600
        found.append(
            Forecast(
                count,
                ranks,
                counts,
                time,
                efficiency=reference / cost,
                hours=hours,
                node_hours=None if hours is None else hours * count,
                outputs=outputs,
                output_seconds=writing,
            )
        )
    return found


def _outputs(
    case: Case, machine: Machine, nodes: int, counts: StepCounts, stepping: float | None
) -> dict[str, OutputForecast]:
    """Return what snapshots and states there are in so many seconds of steps, and how large."""
    times: Mapping[str, int] = {}
    if stepping is not None:
        times = counts_until(case, case.time.end)
    found = {}
    for kind, size in counts.outputs.items():
        seconds = _seconds(machine, nodes, counts.ranks, size)
        number = times.get(kind)
        if kind == "checkpoint" and number and stepping is not None:
            # By the clock, too.
            number = max(number, 1 + int(stepping / (60 * case.output.checkpoint_minutes)))
        if number == 0:
            continue
        kept = number
        if kind == "checkpoint" and number:
            kept = min(number, case.output.keep_checkpoints)
        found[kind] = OutputForecast(size.bytes, size.files, seconds, number, kept)
    return found


def _seconds(machine: Machine, nodes: int, ranks: int, size: OutputSize) -> float | None:
    """Return how long all ranks take to write one output; None if that is not known."""
    rate = machine.write_rate(nodes)
    if rate is None or machine.storage is None:
        return None
    return size.bytes / rate + 1e-3 * machine.storage.file_ms * math.ceil(size.files / ranks)


def _writing(outputs: Mapping[str, OutputForecast]) -> float | None:
    """Return how long all outputs of a run take; None if that is not known."""
    total = 0.0
    for one in outputs.values():
        if one.seconds is None or one.times is None:
            return None
        total += one.seconds * one.times
    return total


def step_counter(case: Case, machine: Machine) -> Callable[[int], StepCounts]:
    """Return what counts a step of a case on so many ranks."""
    if isinstance(case, SpectralCase):
        return lambda ranks: spectral_counts(case, machine, ranks)
    if isinstance(case, AdvectionCase):
        return lambda ranks: advection_counts(case, machine, ranks)
    if isinstance(case, LatticeCase):
        return lattice_counter(case, machine)
    raise InputError(
        f"solver: {case.solver!r} cannot be forecast; accepted: advection, lattice, spectral"
    )


def _steps(case: Case) -> int | None:
    """Return the number of steps of a case, at most, if their size is fixed."""
    step: float | None = None
    if isinstance(case, AdvectionCase):
        step = case.fixed_step
    elif isinstance(case, SpectralCase):
        step = case.time.step
    elif isinstance(case, LatticeCase):
        step = 1
    return None if step is None else math.ceil(case.time.end / step)
