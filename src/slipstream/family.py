"""What the simulations of all solver families share, whatever they solve."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import Case, parse_case
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.checkpoint import Checkpoint, open_checkpoint
from slipstream.schedule import Timeline

# One step in this many is timed node by node; all others run without any probe.
_PROFILE_INTERVAL = 8


class PlainSimulation:
    """Defaults for what a simulation may say; see `slipstream.simulation.Simulation`.

    Attributes
    ----------
    step : int
        Number of time steps done.
    time : float
        Time reached (non-dimensional).
    finished : str
        Why the run is over before its end time: it is not.
    """

    step, time = 0, 0.0
    finished = ""

    def describe_step(self) -> str:
        """Return nothing: what was said beforehand tells all."""
        return ""

    def progress(self, step_size: float) -> str:
        """Return step, time, and the time step that follows."""
        return f"step {self.step}, t = {self.time:.4g}, time step {step_size:.3g}"

    def warnings(self) -> list[str]:
        """Return nothing: there is nothing to warn of."""
        return []

    def results(self, seconds: float, steps: int) -> dict[str, tuple[str, str]]:
        """Return nothing: the diagnostics tell all."""
        return {}

    def write_at_end(self, folder: Path) -> list[Path]:
        """Write nothing besides what all families write."""
        return []


class StepTimer:
    """Times one step in a few, and extrapolates.

    Parameters
    ----------
    eager : bool
        Whether to time the first step too, which is not typical: for runs of a single one.
    """

    def __init__(self, eager: bool = False) -> None:
        self._eager = eager
        self._totals: dict[str, float] = {}
        self._timeline = Timeline()
        self._timed = self._steps = 0

    def wants_next(self) -> bool:
        """Count a step that is about to begin; return whether it shall be timed."""
        self._steps += 1
        return (self._eager and not self._timed) or self._steps % _PROFILE_INTERVAL == 2

    def add(self, timeline: Timeline, seconds: Mapping[str, float]) -> None:
        """Take what was found out about a step.

        Parameters
        ----------
        timeline : Timeline
            What ran when in it.
        seconds : mapping of str to float
            How long it was busy with each category of work.
        """
        self._timed += 1
        self._timeline = timeline
        for category, one in seconds.items():
            self._totals[category] = self._totals.get(category, 0.0) + one

    def seconds(self) -> dict[str, float]:
        """Return the seconds of all steps so far by category, extrapolated from those timed."""
        factor = self._steps / self._timed if self._timed else 0.0
        return {category: factor * seconds for category, seconds in self._totals.items()}

    def write(self, folder: Path, title: str, rank: int, what: str = "one time step") -> list[Path]:
        """Write the last step that was timed, as picture and Chrome trace; return the picture.

        In the picture it is called `what`.
        """
        if not self._timeline.entries:
            return []
        picture = folder / "timeline.png"
        self._timeline.write_picture(picture, f"{what}, rank {rank}, {title}")
        self._timeline.write_chrome_trace(folder / "timeline.json", rank)
        return [picture]


def busy_seconds(timeline: Timeline, lanes: int) -> dict[str, float]:
    """Return seconds by category; where several lanes work side by side, of one of them."""
    return {
        category: seconds / (1 if category == "communication" else lanes)
        for category, seconds in timeline.totals().items()
    }


def ranks_per_device(comm: Any, device: Device) -> int:
    """Return how many ranks share this rank's device. Collective."""
    if comm is None:
        return 1
    return comm.allgather(device.identity).count(device.identity)


def check_memory(
    comm: Any,
    needs: Sequence[tuple[Device, int]],
    what: str = "grid.points: this grid",
    less: str = "fewer points",
) -> None:
    """Make sure that what a simulation needs can be allocated. Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        The ranks.
    needs : sequence of (Device, int)
        This rank's devices, and the bytes that all ranks which share one need on it.
    what : str
        What needs it, for people: the key of the case first.
    less : str
        What would need less.

    Raises
    ------
    InputError
        On all ranks, if the free memory of any device does not suffice; it tells how many devices
        of that kind, each with as much free memory, would do.
    """
    mine = [(one.identity, one.kind, one.name, need, one.memory_free()) for one, need in needs]
    everyone = [mine] if comm is None else comm.allgather(mine)
    facts = list(itertools.chain(*everyone))
    for _, kind, name, need, free in facts:
        if need <= free:
            continue
        alike = {identity: one for identity, other, _, one, _ in facts if other == kind}
        enough = math.ceil(sum(alike.values()) / max(1, free))
        raise InputError(
            f"{what} needs {need / 2**30:.3g} GiB on {name}, of which {free / 2**30:.3g} GiB are "
            f"free; use {less}, more ranks on more devices (about {enough} like this one in all), "
            'or numerics.precision = "float32"'
        )


def memory_text(device: Device, need: int) -> str:
    """Return what is needed of a device's memory, for people."""
    return f"{need / 2**30:.3g} GiB, of {device.memory_free() / 2**30:.4g} GiB free"


def sum_over_ranks(comm: Any, values: np.ndarray) -> np.ndarray:
    """Return the sum of all ranks' arrays, the same on all of them. Collective."""
    if comm is None:
        return values
    total = np.empty_like(values)
    comm.Allreduce(values, total)
    return total


def grid_field(
    name: str,
    long_name: str,
    values: np.ndarray,
    box: Box,
    shape: Sequence[int],
    lengths: Sequence[float],
) -> Field:
    """Return a field at the points of a periodic grid.

    Parameters
    ----------
    name, long_name : str
        For files, and for people.
    values : numpy.ndarray
        This rank's points, in the order z, y, x.
    box : Box
        Which points they are, by global index.
    shape : sequence of int
        Number of points along each axis.
    lengths : sequence of float
        Length of the whole box along each axis (non-dimensional).
    """
    coordinates = {
        axis: length * np.arange(points) / points
        for axis, points, length in zip("zyx", shape, lengths, strict=True)
    }
    attributes = {"long_name": long_name, "units": "1"}
    return Field(name, ("z", "y", "x"), tuple(shape), box.start, values, coordinates, attributes)


def open_earlier_run(folder: str, case: Case) -> tuple[Checkpoint, Case]:
    """Return the last state of the run to go on from, and its case.

    Parameters
    ----------
    folder : str
        Output folder of the earlier run.
    case : Case
        The new case.

    Raises
    ------
    InputError
        If there is no complete checkpoint, or it is of another solver family.
    """
    checkpoint = open_checkpoint(folder)
    earlier = parse_case(checkpoint.case, source=str(checkpoint.path))
    if earlier.solver != case.solver:
        raise InputError(
            f"initial.restart: {folder} is of solver {earlier.solver!r}, this case of "
            f"{case.solver!r}; both must be the same"
        )
    return checkpoint, earlier
