"""Particles from Python: those of a simulation, and the paths that a run has written."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.api.settings import NamedStores, NamedViews
from slipstream.case.output_tables import plain_name
from slipstream.engine.errors import InputError, KnownAttributes
from slipstream.engine.text import shown
from slipstream.files.stored_arrays import StoredArrays
from slipstream.show import series_statistics as particle_statistics

if TYPE_CHECKING:
    from slipstream.api.spectral_flow import Flow


class Particles(NamedViews["ParticleView"]):
    """The sets of particles of a flow, by name."""

    _kind, _absent = "particles", "are no"

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def _names(self) -> list[str]:
        return [one.name for one in getattr(self._flow.case, "particles", ())]

    def _view(self, name: str) -> ParticleView:
        return ParticleView(self._flow, name)


class ParticleView(KnownAttributes):
    """The particles of one set, as they are when something is asked for.

    Arrays are of all particles by identity, on the host, the same on all ranks.
    """

    def __init__(self, flow: Flow, name: str) -> None:
        self._flow, self._name = flow, name

    @property
    def positions(self) -> np.ndarray:
        """Positions, shape (particles, 3): x, y and z, not taken back into the box. Collective.

        Setting them lets the particles begin there, with the velocity of the fluid; all ranks must
        set the same.
        """
        return self._flow._read_particles(self._name, "position")

    @positions.setter
    def positions(self, places: Any) -> None:
        self._flow._place_particles(self._name, places)

    @property
    def velocities(self) -> np.ndarray:
        """Velocities of the particles, shape (particles, 3). Collective."""
        return self._flow._read_particles(self._name, "velocity")

    def evaluate(self, expression: str) -> np.ndarray:
        """Return a field or an expression at the particles. Collective.

        >>> gradients = sim.particles["tracers"].evaluate("grad(velocity)")

        Parameters
        ----------
        expression : str
            As for `Flow.evaluate`: a real scalar, vector or tensor.

        Returns
        -------
        numpy.ndarray
            Shape (particles,), followed by (3,) for a vector and (3, 3) for a tensor. "velocity"
            is the velocity of the fluid.

        Raises
        ------
        InputError
            If the expression is not accepted, or complex.
        """
        if not isinstance(expression, str) or not expression.strip():
            raise InputError(f"evaluate: {shown(expression)} is not accepted; accepted: text")
        return self._flow._read_particles(self._name, f"({expression})")

    def __repr__(self) -> str:
        return f"<particles {self._name!r}>"


class StoredParticles(NamedStores["Paths"]):
    """The paths that a run has written, by the names of the sets."""

    _prefix, _kind, _absent = "particles_", "paths of particles", "are no particles"

    def _open(self, path: Path) -> Paths:
        return Paths(StoredArrays(path))


class Paths(KnownAttributes):
    """The paths of one set of particles, as they were when this was made.

    Arrays have the shape (times, particles, ...), particles by identity.
    """

    def __init__(self, stored: StoredArrays) -> None:
        self._stored = stored

    @cached_property
    def times(self) -> np.ndarray:
        """The times of the samples."""
        return np.asarray(self._stored.times)

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions, not taken back into the periodic box: shape (times, particles, 3)."""
        return self["position"]

    @cached_property
    def velocities(self) -> np.ndarray:
        """Velocities of the particles: shape (times, particles, 3)."""
        return self["velocity"]

    def __getitem__(self, name: str) -> np.ndarray:
        """Return recorded values: ``paths["grad(velocity)"]``."""
        names = [one for one in self._stored.shapes if one != "time"]
        array = name if name in names else plain_name(name)
        if array not in names:
            raise InputError(
                f"there is no {shown(name)} along the paths; there are: {', '.join(names)}"
            )
        return np.asarray(self._stored.read(array))[: len(self.times)]

    def accelerations(self) -> np.ndarray:
        """Return accelerations; see `slipstream.show.series_statistics.acceleration`."""
        return particle_statistics.acceleration(self.times, self.velocities)

    def pair_dispersion(self) -> np.ndarray:
        """Return mean square distances of pairs; see `particle_statistics.pair_dispersion`."""
        return particle_statistics.pair_dispersion(self.positions)

    def structure_function(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lags and values; see `particle_statistics.structure_function`."""
        return particle_statistics.structure_function(self.times, self.velocities)

    def autocorrelation(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lags and values; see `particle_statistics.autocorrelation`."""
        return particle_statistics.autocorrelation(self.times, self.velocities)

    def __repr__(self) -> str:
        number = self._stored.shapes["position"][1]
        return f"<paths of {number} particles at {len(self.times)} times>"
