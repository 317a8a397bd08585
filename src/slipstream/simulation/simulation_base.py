"""What a solver family has to offer so that its cases can be run.

The driver knows nothing of equations, devices or decompositions; it asks a simulation for
these few things. Methods marked *collective* are called by all ranks at the same point.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slipstream.field import Field
from slipstream.report.picture_choice import PictureChoice

# Kinds of statistics, each with an interval of its own, and a file of that name. A family that does
# not have them has no key for the interval either.
STATISTICS = ("transfer", "anisotropic", "structure", "pdf")


class Simulation(Protocol):
    """A simulation between two time steps.

    Attributes
    ----------
    step : int
        Number of time steps done, those before a restart included.
    time : float
        Time reached (non-dimensional).
    comm : mpi4py.MPI.Comm or None
        The ranks that share the work; None for a serial run.
    finished : str
        Why the run is over although its end time has not come, for people, such as that a steady
        state has been reached; empty as long as it is not. The same on all ranks.
    """

    step: int
    time: float
    comm: Any
    finished: str

    def describe(self) -> dict[str, str]:
        """Return what will be run, for people, before anything is allocated. Collective.

        Such as grid, memory per device, ranks, transport, precision and names of the devices.
        """

    def allocate(self) -> None:
        """Allocate everything that the run needs, without communicating: any rank may fail alone.

        Raises
        ------
        InputError
            If memory does not suffice, which is found out before allocating.
        """

    def describe_step(self) -> str:
        """Return what is known of the step once all is allocated, for people, or nothing."""

    def initialise(self) -> None:
        """Set the initial state, or that of the run to go on from. Collective.

        Raises
        ------
        InputError
            If there is no state to go on from, or it does not suit the case.
        """

    def step_size(self) -> float:
        """Return the size of the next time step (non-dimensional). Collective.

        Fixed, or from the Courant number; not shortened to hit the end of the run. Not-a-number
        if the state has blown up. Returns when the step before is complete, since the time that
        both take counts as that of the step.
        """

    def advance(self, step_size: float) -> None:
        """Do one time step (non-dimensional), or a few that cannot be parted. Collective.

        Of the given size, which is shorter than what `step_size` returned where the run would end
        within it. A simulation whose steps cannot be shortened does a whole one, and then the
        run ends with the first step that reaches its end. `step` tells how many have been done.
        """

    def diagnostics(self) -> dict[str, float]:
        """Return named values such as energy and dissipation, the same on all ranks. Collective."""

    def labels(self) -> dict[str, str]:
        """Return the long name, with unit, of each diagnostic and spectrum."""

    def pictures(self) -> PictureChoice:
        """Return which diagnostics and which field are drawn at the end."""

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return pairs of wavenumbers and values by name, the same on all ranks. Collective.

        Empty for a family that has none.
        """

    def statistics(self, kind: str) -> Iterator[Field]:
        """Yield small arrays, of which every rank has the whole. Collective.

        Parameters
        ----------
        kind : str
            One of `STATISTICS`; only those are asked for of which the case has an interval.
        """

    def fields(self) -> Iterator[Field]:
        """Yield the fields for people to look at, in the same order on all ranks. Collective."""

    def checkpoint(self) -> Iterator[Field]:
        """Yield the state to go on from, in the same order on all ranks. Collective."""

    def progress(self, step_size: float) -> str:
        """Return how far the run is, for people: what they would want to see again and again.

        Does not communicate.

        Parameters
        ----------
        step_size : float
            The time step that follows (non-dimensional).
        """

    def warnings(self) -> list[str]:
        """Return what people should be warned of, that they have not been told yet."""

    def results(self, seconds: float, steps: int) -> dict[str, tuple[str, str]]:
        """Return what the run has found out, and how fast it was, for people. Collective.

        Parameters
        ----------
        seconds : float
            How long this run's time steps took on this rank.
        steps : int
            How many there were.

        Returns
        -------
        dict of str to (str, str)
            By name, a value and a remark, which may be empty.
        """

    def write_at_end(self, folder: Path) -> list[Path]:
        """Write what only this family has into the output folder. Collective.

        Returns what has been written, on the first rank.
        """

    def write_timeline(self, folder: Path) -> list[Path]:
        """Write ``timeline.png`` and ``timeline.json`` of one of this rank's steps.

        Returns the paths, pictures only; none if no step was timed.
        """

    def timers(self) -> dict[str, float]:
        """Return the seconds that this rank has spent so far, by category of work."""
