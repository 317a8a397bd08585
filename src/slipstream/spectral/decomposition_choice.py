"""How ranks divide space where a case leaves that open: by what its recorded step would take.

Slabs take one exchange each way. Pencils take two, of fewer ranks and so with larger blocks: among
many nodes that is faster if ranks with the same planes share a node. The rule, slabs if each rank
has a plane and else the most even pencils, stands unless others take a fifth less: forecasts are
not better than that. Bits do not depend on it, so a run that continues chooses again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream.array_types import Comm
from slipstream.case import SpectralCase
from slipstream.case.spectral_case import SpectralRun
from slipstream.collective import on_every_rank
from slipstream.device import Device
from slipstream.device.device_choice import home_of
from slipstream.errors import InputError
from slipstream.exchange import RankPlace
from slipstream.fft.slab_layout import most_over_y, pencil_grid
from slipstream.simulation.machine_description import Machine, load_machine
from slipstream.simulation.step_price import (
    NotedSteps,
    check_fit,
    counts_of,
    noting_device,
    room_of_rank,
    step_time,
)
from slipstream.simulation.step_walk import noting_grid
from slipstream.spectral.kept_modes import kept_modes
from slipstream.spectral.memory_placement import place as place_fields
from slipstream.spectral.memory_placement import row_bytes
from slipstream.spectral.problem_of_case import StatedProblem, problem_of_case
from slipstream.spectral.runge_kutta_step import SpectralStep

# Which machine stands for this one, by kind of device.
_USUAL = {"gpu": "h200-nvl8-ib", "cpu": "epyc-hdr"}
# Blocks of slabs, of one field, that are large enough for a network: others need not be recorded.
_LARGE = 2**20
# What others take of the rule's seconds, at most, to be chosen.
_LESS = 0.8


@dataclass(frozen=True)
class Division:
    """How ranks divide space.

    Attributes
    ----------
    run : SpectralRun
        The case's table, with the decomposition and the grid stated.
    seconds : mapping of str to float
        What a step takes by forecast, this way first and then others; empty if the rule decided.
    machine : str
        By whose rates.
    """

    run: SpectralRun
    seconds: Mapping[str, float] = field(default_factory=dict)
    machine: str = ""

    def of(self, case: SpectralCase) -> SpectralCase:
        """Return a case whose ranks divide space in this way."""
        stated = {"decomposition": self.run.decomposition, "grid": self.run.grid}
        return case.model_copy(update={"run": case.run.model_copy(update=stated)})

    @property
    def text(self) -> str:
        """The decomposition in words."""
        return division_text(self.run)


def division_text(run: SpectralRun) -> str:
    """Return how ranks divide space, in words: pencils by how many there are along y and z."""
    if run.decomposition == "pencil" and run.grid is not None:
        return f"pencils {run.grid[0]} x {run.grid[1]}"
    return "pencils" if run.decomposition == "pencil" else "slabs"


def open_divisions(case: SpectralCase, place: RankPlace) -> list[SpectralRun]:
    """Return the tables that a case leaves open for so many ranks, that of the rule first."""
    run, ranks, of_node = case.run, place.ranks, place.ranks_of_node
    if ranks == 1 or run.decomposition == "slab" or run.grid is not None:
        return [run]
    nx, ny, nz = case.grid.points_xyz
    modes = kept_modes(case.grid.points_xyz, case.numerics.dealiasing, case.grid.walls)
    shape, most = (nz, ny, nx), min(nz, modes[1].count)
    found: list[SpectralRun] = []
    if run.decomposition == "auto" and ranks <= nz:
        found.append(run.model_copy(update={"decomposition": "slab"}))
        rows = -(-nz // ranks) * -(-modes[1].count // ranks)
        if rows * modes[2].count * 2 * np.dtype(case.numerics.precision).itemsize >= _LARGE:
            return found
    even = pencil_grid(shape, modes, ranks)
    grids = [] if even is None else [even]
    if ranks % of_node == 0:
        grids.append((ranks // of_node, of_node))
    for along, over in dict.fromkeys(grids):
        if over > 1 and along <= most and over <= most_over_y(shape, modes):
            found.append(run.model_copy(update={"decomposition": "pencil", "grid": (over, along)}))
    return found or [run]


def note_step(
    case: SpectralCase, machine: Machine, place: RankPlace
) -> tuple[NotedSteps, StatedProblem]:
    """Return a step that follows another, of one rank, and its problem; without particles, bodies.

    Raises
    ------
    InputError
        If a rank would have nothing to do, or its fields do not fit.
    """
    ranks = place.ranks
    device = noting_device(machine, ranks)
    described = problem_of_case(case, place.rank, ranks, row_bytes(case.run, device))
    problem = described.problem
    if problem.model.follows:
        raise InputError(
            f"equation.model: parameters of {case.equation.model} follow the state, which forecasts"
            " leave out; accepted: a model without, such as smagorinsky"
        )
    (nx, ny, nz), grid = case.grid.points_xyz, problem.geometry.grid
    if grid is None and ranks > nz:
        raise InputError(
            f"{ranks} ranks: {nz} planes along z are for {nz} ranks at most; pencils for products"
            f" of at most {min(ny // 2, nx // 3)} and {min(nz, 2 * ny // 3)}"
        )
    placement = place_fields(problem, case.run, device, None, place)
    home = device if placement.residency == "device" else device.home
    where = "device" if home is device else "host"
    hint = "" if where == "host" else ", or --set run.residency=auto"
    check_fit(ranks, placement.need(), room_of_rank(machine, ranks, where), where, hint)
    transport = noting_grid(case.run.transport, place, home, problem.wire, grid)
    step = SpectralStep(problem, home, transport, placement.passes())
    graph = step.record_step(begins=not step.passes.goes_ahead)
    overlap = case.run.schedule == "overlap"
    return NotedSteps("spectral", [graph], place, placement.need(), overlap), described


def best_of(runs: Sequence[SpectralRun], seconds: Sequence[float], machine: str) -> Division:
    """Return the table that takes the least, or that of the rule, which is the first."""
    fastest = min(range(len(runs)), key=lambda number: seconds[number])
    chosen = fastest if seconds[fastest] < _LESS * seconds[0] else 0
    order = [chosen, *(number for number in range(len(runs)) if number != chosen)]
    known = {division_text(runs[n]): seconds[n] for n in order if math.isfinite(seconds[n])}
    return Division(runs[chosen], known, machine)


def step_on(
    case: SpectralCase, machine: Machine, place: RankPlace
) -> tuple[Division, NotedSteps, StatedProblem]:
    """Return how ranks of a machine divide space, and a step; the rule decides on one node."""
    runs = open_divisions(case, place)
    if place.is_one_node or len(runs) == 1:
        return Division(runs[0]), *note_step(_with(case, runs[0]), machine, place)
    priced = [_priced(case, one, machine, place) for one in runs]
    division = best_of(runs, [seconds for seconds, _ in priced], machine.title)
    noted = priced[runs.index(division.run)][1]
    return division, *(noted or note_step(_with(case, division.run), machine, place))


def chosen_division(case: SpectralCase, comm: Comm, device: Device) -> Division:
    """Return how the ranks of a simulation divide space. Collective.

    On several nodes each of the first ranks records and prices one way: that takes a second for
    8192 ranks.
    """
    if comm is None:
        return Division(case.run)
    # Nodes may have different numbers of ranks: all take those of the first.
    place = RankPlace(0, comm.size, comm.bcast(RankPlace.of(comm).ranks_of_node, root=0))
    runs = open_divisions(case, place)
    if place.is_one_node or len(runs) == 1:
        return Division(runs[0])

    def own() -> tuple[str, dict[int, float]]:
        numbers = range(comm.rank, len(runs), comm.size)
        if not numbers:
            return "", {}
        machine = _this_machine(case, device, place)
        # Particles and bodies add the same to all.
        bare = case.model_copy(update={"particles": (), "bodies": ()})
        return machine.title, {n: _priced(bare, runs[n], machine, place)[0] for n in numbers}

    found = comm.allgather(on_every_rank(comm, own))
    seconds = {number: one for _, of_rank in found for number, one in of_rank.items()}
    return best_of(runs, [seconds[number] for number in range(len(runs))], found[0][0])


def _priced(
    case: SpectralCase, run: SpectralRun, machine: Machine, place: RankPlace
) -> tuple[float, tuple[NotedSteps, StatedProblem] | None]:
    """Return the seconds of a step with a table, and the step; infinite if the case cannot run."""
    try:
        noted = note_step(_with(case, run), machine, place)
        return step_time(counts_of(noted[0], machine), machine).total, noted
    except InputError:
        return math.inf, None


def _with(case: SpectralCase, run: SpectralRun) -> SpectralCase:
    return case.model_copy(update={"run": run})


def _this_machine(case: SpectralCase, device: Device, place: RankPlace) -> Machine:
    """Return the description by which a run chooses, with the memory of this machine."""
    named, kind = case.run.machine, device.processor
    machine = load_machine(named or _USUAL[kind])
    if machine.device.kind != kind:
        raise InputError(
            f"run.machine: devices of {machine.title} are {machine.device.kind.upper()}s, those of"
            f" this run {kind.upper()}s; accepted: the description of such a machine"
        )
    if machine.network is None:
        raise InputError(
            f"run.machine: {machine.title} is described as one node; accepted: a description with"
            " a table [network]"
        )
    host, sharing = home_of(device).memory_total(), place.ranks_of_node if kind == "cpu" else 1
    memory = {"memory_gib": device.memory_total() / sharing / 2**30}
    return machine.model_copy(
        update={
            "devices_per_node": place.ranks_of_node,
            "device": machine.device.model_copy(update=memory),
            "node": machine.node.model_copy(update={"memory_gib": host / 2**30}),
        }
    )
