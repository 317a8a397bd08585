"""Random forces: modes of some shells, drawn from hashes of the wavenumber.

They depend on the seed, and on the time or the number of the step, but not on the number of ranks.
A force of kind "random" is a function of the time: it is interpolated linearly between patterns
that are drawn every correlation time. An Ornstein-Uhlenbeck process has its own state, which is
part of the state of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.case.spectral_case import Forcing as ForcingTable
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.checkpoint import FORCE, Checkpoint
from slipstream.spectral.initial_conditions.random_field import (
    ShellModes,
    components,
    random_modes,
)
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_operators import keep_sphere

# Forces of several tables with the same seed are independent.
_SEEDS_OF_A_TABLE = 1 << 32


class RandomForce:
    """Random modes in some of a step's forces, drawn again every correlation time."""

    def __init__(
        self, settings: ForcingTable, table: int, key: str, flow: SpectralStep, place: slice
    ) -> None:
        self._settings, self._flow, self._target = settings, flow, flow.forcing[place]
        self._seed = settings.seed + _SEEDS_OF_A_TABLE * table
        model, forced = flow.problem.model, flow.problem.forced[place]
        # For a scalar in a plane, the vector whose force is drawn.
        vectors = model.plane_vectors.items()
        self._vector = next((name for name, (first, _) in vectors if first == forced[0]), None)
        self._is_vector = len(forced) == 3 or self._vector is not None
        waves, problem = flow.wavenumbers, flow.problem
        # Between walls, those of what is drawn.
        self._signs = tuple(problem.signs[one] for one in forced if problem.signs)
        if self._vector is not None:
            self._signs = problem.signs_of_plane(forced[0])
        if settings.helicity and problem.mirror is not None:
            raise InputError(
                f"{key}.helicity: {settings.helicity:g}, but mirror images across grid.walls have"
                " opposite ones; accepted: 0"
            )
        if settings.helicity and (not self._is_vector or waves.normal is not None):
            raise InputError(
                f"{key}.helicity: {settings.helicity:g}, but scalars and plane flows have no"
                " helicity; accepted: 0, or a vector in three dimensions"
            )
        self._modes: ShellModes | None = None
        self._begin()

    def _begin(self) -> None:
        # The drawn modes, as indices that broadcast, and the coefficients of each interval.
        self._places, first = self._draw(0)
        self._drawn = {0: first}
        self._is_set = False

    @property
    def _shells(self) -> ShellModes:
        if self._modes is None:
            start = self._flow.problem.geometry.spectral_box.start
            shells = self._settings.forced_shells
            self._modes = ShellModes.of(self._flow.wavenumbers, shells, start, self._signs)
        return self._modes

    def set(self, time: float) -> None:
        """Set the force at a time, interpolated linearly between two patterns."""
        duration = self._settings.correlation_time
        if self._is_set and not duration:
            return
        number = math.floor(time / duration) if duration else 0
        part = time / duration - number if duration else 0.0
        needed = {number, number + 1} if duration else {number}
        self._drawn = {n: self._drawn[n] if n in self._drawn else self._draw(n)[1] for n in needed}
        values = self._drawn[number]
        if part:
            values = (1 - part) * values + part * self._drawn[number + 1]
        self._put(values)
        self._is_set = True

    def _put(self, values: Array) -> None:
        self._flow.modes_of(self._target)[(slice(None), *self._places)] = values
        keep_sphere(self._flow, self._target)

    def _draw(self, number: int) -> tuple[tuple[Array, ...], Array]:
        """Return the indices and the coefficients of a pattern."""
        settings, waves = self._settings, self._flow.wavenumbers
        if self._is_vector and not settings.helicity:
            shells, amplitude = settings.forced_shells, settings.amplitude
            drawn = random_modes(waves, shells, amplitude, self._seed, number, self._signs)
            return self._on_device(*drawn)
        basis = self._shells.basis
        # Initial flows use the numbers below 3.
        phases = [basis.uniform(self._seed, 3 * (number + 1) + i) for i in range(2)]
        return self._made([np.exp(2j * np.pi * one) for one in phases], exact=True)

    def _made(
        self, waves: list[np.ndarray], exact: bool = False
    ) -> tuple[tuple[Array, ...], Array]:
        """Return the indices and the coefficients of a force, from waves of mean square 1.

        For vectors `waves` are those of positive and negative helicity, each with half of the
        energy unless `helicity` is set; for scalars only the first is used. For `exact` see
        `Basis.between_walls`.
        """
        shells, settings, flow = self._shells, self._settings, self._flow
        basis, amplitude = shells.basis, settings.amplitude * shells.strengths
        if not self._is_vector:
            modes = amplitude * waves[0]
            modes = np.where(basis.flipped, modes.conj(), modes)[None]
        elif flow.wavenumbers.normal is not None:
            amplitude = amplitude * math.sqrt(components(flow.wavenumbers))
            modes = basis.modes(waves[0], 0.0, amplitude)
        else:
            amplitude = amplitude * math.sqrt(components(flow.wavenumbers))
            plus, minus = (
                math.sqrt((1 + sign * settings.helicity) / 2) * wave
                for sign, wave in zip((1, -1), waves, strict=True)
            )
            half = math.sqrt(0.5)
            modes = basis.modes(half * (plus + minus), 1j * half * (plus - minus), amplitude)
        if self._signs:
            modes = basis.between_walls(modes, self._signs, exact)
        return self._on_device(shells.places, modes)

    def _on_device(
        self, places: list[np.ndarray], modes: np.ndarray
    ) -> tuple[tuple[Array, ...], Array]:
        flow, device = self._flow, self._flow.device
        if self._vector is not None:
            waves = flow.wavenumbers
            axes = waves.z[places[0]], waves.y[places[1]], waves.x[places[2]]
            modes = flow.problem.scalar_of_vector(self._vector, np.array(modes), axes)[None]
        values = device.array(modes.astype(flow.problem.complex_dtype))
        return tuple(device.array(place) for place in places), values


class OrnsteinUhlenbeckForce(RandomForce):
    """Random modes each of whose coefficients is an Ornstein-Uhlenbeck process.

    Its update by a step is exact: with r = exp(-step / correlation time), a coefficient becomes r
    times itself, plus sqrt(1 - r^2) times a normally distributed number (Eswaran and
    Pope, Comput. Fluids 16, 257, 1988). The force is constant during a step.
    """

    def __init__(
        self, settings: ForcingTable, table: int, key: str, flow: SpectralStep, place: slice
    ) -> None:
        self.name, self.key = f"{FORCE}{table + 1}", key
        super().__init__(settings, table, key, flow, place)

    def _begin(self) -> None:
        # Coefficients of mean square 1, now and in the last step.
        self.now: Any = None
        self.before: np.ndarray | None = None
        self._places: tuple[Array, ...] = ()

    def begin(self, step: int) -> None:
        """Begin again before the step of this number, in the stationary distribution."""
        self.now, self.before = self._normal(step), None

    def _normal(self, number: int) -> np.ndarray:
        basis = self._shells.basis
        # Initial flows use the numbers below 3.
        return np.array([basis.normal(self._seed, 4 * (number + 1) + 2 * i) for i in range(2)])

    def set(self, time: float) -> None:
        """Set the force to the present state."""
        self._show(self.now)

    def show_before(self) -> None:
        """Set the force to that of the last step."""
        self._show(self.now if self.before is None else self.before)

    def _show(self, coefficients: np.ndarray | None) -> None:
        assert coefficients is not None
        self._places, values = self._made(list(coefficients))
        self._put(values)

    def advance(self, step: int, step_size: float) -> None:
        """Advance the process by the step of this number."""
        assert self.now is not None
        part = step_size / self._settings.correlation_time
        fresh = math.sqrt(-math.expm1(-2 * part)) * self._normal(step + 1)
        self.now, self.before = math.exp(-part) * self.now + fresh, self.now

    # -- the state of a run --------------------------------------------------------------------

    def field(self) -> Field:
        """Return the state, for a checkpoint."""
        shells = self._shells
        return Field(
            name=self.name,
            dims=("wave", "kz", "ky", "kx"),
            shape=(2, *shells.shape),
            offset=(0, *shells.offset),
            data=self.now,
            attributes={"long_name": "state of an Ornstein-Uhlenbeck force"},
        )

    def read(self, checkpoint: Checkpoint) -> bool:
        """Read the state from a checkpoint; return whether it has one of these modes."""
        shells = self._shells
        if checkpoint.shapes.get(self.name) != (2, *shells.shape):
            return False
        shape = 2, *np.broadcast_shapes(*(one.shape for one in shells.places))
        self.now, self.before = checkpoint.read(self.name, (0, *shells.offset), shape), None
        return True

    def kept(self) -> Mapping[str, Any]:
        """Return the state, for `restore`."""
        return {"now": self.now, "before": self.before}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned, perhaps from another force with as many modes."""
        if np.shape(kept["now"]) == np.shape(self.now):
            self.now, self.before = kept["now"], kept["before"]
