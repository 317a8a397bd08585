"""Forces that change with the flow or at random: constant power, constant energy, random modes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.case.spectral_case import Forcing as ForcingTable
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.files.checkpoint import FORCE, Checkpoint
from slipstream.spectral.random_field import ShellModes, components, random_modes
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, HeldShells
from slipstream.spectral.spectrum import keep_sphere

# Forces of several tables with the same seed are independent.
_SEEDS_OF_A_TABLE = 1 << 32
# The number of modes handled together, if a force acts on all of them.
_MODES_AT_ONCE = 1 << 18


class RandomForce:
    """Random modes in some of a step's forces, drawn again every correlation time."""

    def __init__(
        self, settings: ForcingTable, table: int, key: str, flow: SpectralStep, part: slice
    ) -> None:
        self._settings, self._flow, self._target = settings, flow, flow.forcing[part]
        self._seed = settings.seed + _SEEDS_OF_A_TABLE * table
        model, forced = flow.problem.model, flow.problem.forced[part]
        # For a scalar in a plane, the vector whose force is drawn.
        vectors = model.plane_vectors.items()
        self._vector = next((name for name, (first, _) in vectors if first == forced[0]), None)
        self._is_vector = len(forced) == 3 or self._vector is not None
        waves, problem = flow.wavenumbers, flow.problem
        # The signs of the drawn fields between walls.
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

        `waves` are those of positive and negative helicity; for scalars only the first is used. For
        `exact` see `Basis.between_walls`.
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
    Pope, Comput. Fluids 16, 257, 1988). The force is constant within steps.
    """

    def __init__(
        self, settings: ForcingTable, table: int, key: str, flow: SpectralStep, components: slice
    ) -> None:
        self.name, self.key = f"{FORCE}{table + 1}", key
        super().__init__(settings, table, key, flow, components)

    def _begin(self) -> None:
        # Coefficients of mean square 1.
        self.now: Any = None
        self._places: tuple[Array, ...] = ()

    def begin(self, step: int) -> None:
        """Begin again before the step of this number, in the stationary distribution."""
        self.now = self._normal(step)

    def _normal(self, number: int) -> np.ndarray:
        basis = self._shells.basis
        # Initial flows use the numbers below 3.
        return np.array([basis.normal(self._seed, 4 * (number + 1) + 2 * i) for i in range(2)])

    def set(self, time: float) -> None:
        """Set the force to the present state."""
        assert self.now is not None
        self._places, values = self._made(list(self.now))
        self._put(values)

    def advance(self, step: int, step_size: float) -> None:
        """Advance the process by the step of this number."""
        assert self.now is not None
        part = step_size / self._settings.correlation_time
        fresh = math.sqrt(-math.expm1(-2 * part)) * self._normal(step + 1)
        self.now = math.exp(-part) * self.now + fresh

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
        self.now = checkpoint.read(self.name, (0, *shells.offset), shape)
        return True

    def kept(self) -> Mapping[str, Any]:
        """Return the state, for `restore`."""
        return {"now": self.now}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned, perhaps from another force with as many modes."""
        if np.shape(kept["now"]) == np.shape(self.now):
            self.now = kept["now"]


class Band:
    """The modes of this rank in some shells, or all modes but the mean, in a few parts."""

    def __init__(self, flow: SpectralStep, shells: tuple[int, int] | None) -> None:
        near = flow.wavenumbers.near(math.inf if shells is None else shells[1])
        depth = max(1, _MODES_AT_ONCE // max(1, near[1].size * near[2].size))
        self.parts: list[Part] = []
        for low in range(0, near[0].size, depth):
            places = [near[0][low : low + depth], *near[1:]]
            if all(one.size for one in places):
                self.parts.append(Part(flow, places, shells))

    def squares(self, fields: Array) -> np.ndarray:
        """Return this rank's sum of squares of some fields over each shell of the band."""
        total = np.zeros(max((part.shells for part in self.parts), default=0))
        for part in self.parts:
            total += part.squares(part.of(fields))
        return total

    def scale(self, fields: Array, factors: np.ndarray) -> None:
        """Multiply each shell of some fields by a factor."""
        for part in self.parts:
            each = part.module.asarray(factors)[part.shell]
            part.put(fields, part.module.where(part.inside, each, 1.0) * part.of(fields))


class Part:
    """Some modes: indices that broadcast, and their shells, counted from the first of a band.

    A few shells have so few modes that they are copied to the host: it takes less time than the
    launch of a GPU's kernel. There the order of sums differs.
    """

    def __init__(
        self, flow: SpectralStep, places: Sequence[np.ndarray], shells: tuple[int, int] | None
    ) -> None:
        self._flow, device, waves = flow, flow.device, flow.wavenumbers
        self._is_on_host = shells is not None
        self.module: Any = np if self._is_on_host else device.array_module
        low, high = shells or (0, 0)
        kz, ky, kx = (
            axis[indices] for axis, indices in zip((waves.z, waves.y, waves.x), places, strict=True)
        )
        number = shell_numbers(flow, kz[:, None, None], ky[:, None], kx)
        square = kz[:, None, None] ** 2 + ky[:, None] ** 2 + kx**2
        inside = (number >= low) & (number <= high) if shells else square > 0
        self.shells = high - low + 1
        self._places = tuple(device.array(index) for index in np.ix_(*places))
        self.shell = self._array(np.where(inside, number - low if shells else 0, 0))
        self.inside = self._array(inside)
        weight = waves.multiplicity_z[places[0], None, None] * waves.multiplicity[places[2]]
        self.weight = self._array(inside * weight)
        directions = np.broadcast_arrays(kx, ky[:, None], kz[:, None, None])
        length = np.sqrt(np.where(square > 0, square, 1.0))
        # The unit vectors along the wavevectors.
        self.along = self._array(np.stack(directions) / length)

    def _array(self, values: np.ndarray) -> Any:
        return values if self._is_on_host else self._flow.device.array(values)

    def of(self, fields: Array) -> Any:
        """Return these modes of some fields, in double precision."""
        modes: Any = self._flow.modes_of(fields)[(slice(None), *self._places)]
        return (self._flow.device.to_host(modes) if self._is_on_host else modes).astype(complex)

    def put(self, fields: Array, modes: Any) -> None:
        """Set these modes of some fields."""
        modes = modes.astype(fields.dtype)
        given = self._flow.device.array(modes) if self._is_on_host else modes
        self._flow.modes_of(fields)[(slice(None), *self._places)] = given

    def squares(self, modes: Any) -> np.ndarray:
        """Return the sum of squares over each shell."""
        square = self.weight * (modes.real**2 + modes.imag**2).sum(axis=0)
        if not self._is_on_host:
            return np.array([float(square.sum())])
        return np.bincount(self.shell.ravel(), square.ravel(), self.shells)


def shell_numbers(flow: SpectralStep, kz: Any, ky: Any, kx: Any) -> np.ndarray:
    """Return the shells of modes, computed as in the kernel of substages."""
    real = flow.problem.real_dtype
    x, y, z = (np.asarray(k).astype(real).astype(float) for k in (kx, ky, kz))
    found: np.ndarray = (np.sqrt(x * x + y * y + z * z) / flow.wavenumbers.unit + 0.5).astype(int)
    return found


class ConstantPowerForce:
    """A force proportional to its field, with the same power at every substage."""

    def __init__(
        self,
        settings: ForcingTable,
        key: str,
        flow: SpectralStep,
        part: slice,
        comm: Comm,
        is_solenoidal: bool,
    ) -> None:
        self._flow, self._comm, self._target = flow, comm, flow.forcing[part]
        self._key, self._powers = key, settings.injection
        self._is_solenoidal = is_solenoidal
        forced = flow.problem.forced[part]
        self._part = slice(forced[0], forced[0] + len(forced))
        self._band = Band(flow, settings.shells)
        self.power = 0.0
        self.warnings: list[str] = []

    def set(self, state: Array) -> None:
        """Set the force from a state of all fields. Collective."""
        self._flow.device.synchronize()
        fields = state[self._part]
        if isinstance(self._powers, tuple):
            self._set_each(fields, np.array(self._powers))
            return
        assert self._powers is not None
        squares = sum_over_ranks(self._comm, np.array([self._band.squares(fields).sum()]))
        factor = self._powers / squares[0] if squares[0] > 0 else 0.0
        self._take(self._powers, bool(squares[0] > 0))
        for part in self._band.parts:
            part.put(self._target, part.inside * factor * part.of(fields))

    def _set_each(self, fields: Array, powers: np.ndarray) -> None:
        local_work = np.zeros((powers.size, powers.size))
        for part in self._band.parts:
            modes = part.of(fields)
            lost = part.along * modes if self._is_solenoidal else 0 * modes
            for i, j in np.ndindex(local_work.shape):
                product = lost[i].real * lost[j].real + lost[i].imag * lost[j].imag
                local_work[i, j] -= float((part.weight * product).sum())
                if i == j:
                    local_work[i, i] += float(part.squares(modes[i : i + 1]).sum())
        work: np.ndarray = sum_over_ranks(self._comm, local_work)
        scale = float(np.abs(work).max())
        factors: np.ndarray = np.zeros(powers.size)
        if scale > 0:
            factors = np.linalg.lstsq(work / scale, powers / scale, rcond=1e-10)[0]
        got = work @ factors
        self._take(
            float(got.sum()), bool(np.allclose(got, powers, rtol=0, atol=1e-6 * powers.max()))
        )
        for part in self._band.parts:
            each = part.module.asarray(factors)[:, None, None, None]
            force = part.inside * each * part.of(fields)
            if self._is_solenoidal:
                force = force - part.along * (part.along * force).sum(axis=0)
            part.put(self._target, force)

    def _take(self, power: float, is_met: bool) -> None:
        self.power = power if is_met or isinstance(self._powers, tuple) else 0.0
        if not (is_met or self.warnings):
            self.warnings.append(
                f"{self._key}.injection: the flow has too little energy in these shells, or in one"
                " component, to take up the power; a linear force amplifies existing flow: give an"
                " initial flow, or another force"
            )


class ConstantEnergyForce:
    """A force that keeps the energy of some shells, by scaling stages and rates of modes."""

    def __init__(
        self, settings: ForcingTable, key: str, held: HeldShells, flow: SpectralStep, comm: Comm
    ) -> None:
        self._flow, self._comm, self._held, self._key = flow, comm, held, key
        self._part = slice(held.first, held.first + held.size)
        self._band = Band(flow, (held.low, held.high))
        self._energies = settings.energy
        self._radii = np.zeros(0)
        # The mean power in the last step.
        self.power = math.nan
        self.warnings: list[str] = []

    def begin(self) -> np.ndarray:
        """Begin a step: measure the energies to keep; return rate factors of 1. Collective."""
        squares = self._squares(self._flow.read_state())
        if self._energies is not None:
            wanted = 2 * np.array(self._energies)
            self._check(squares)
            factors = np.where(squares > 0, np.sqrt(wanted / np.where(squares > 0, squares, 1)), 1)
            # Differences from rounding are kept as they are.
            if np.any(np.abs(factors - 1) > 1e-6):
                self._band.scale(self._flow.state[self._part], factors)
                squares = np.where(squares > 0, wanted, 0)
            else:
                squares = np.where(squares > 0, wanted, squares)
        else:
            self._check(squares)
        self._radii = np.sqrt(squares)
        return np.ones_like(squares)

    def _check(self, squares: np.ndarray) -> None:
        empty = [self._held.low + int(n) for n in np.flatnonzero(squares == 0)]
        if empty and not self.warnings:
            self.warnings.append(
                f"{self._key}: shells {', '.join(map(str, empty))} have no energy to keep:"
                " give an initial flow there"
            )

    def rescale(self, stage: Array) -> np.ndarray:
        """Scale a stage to the energy; return the factors of the rates that follow. Collective."""
        before = np.sqrt(self._squares(stage))
        can = (before > 0) & (self._radii > 0)
        factors = np.where(can, self._radii / np.where(can, before, 1), 1.0)
        self._band.scale(stage[self._part], factors)
        return 1 / factors

    def end(self, step_size: float) -> None:
        """End a step: scale the state, and note the work. Collective."""
        gains = self.rescale(self._flow.state)
        work = -(self._radii**2) * np.log(gains)
        self.power = float(work.sum()) / step_size

    def _squares(self, state: Array) -> np.ndarray:
        self._flow.device.synchronize()
        own = self._band.squares(state[self._part])
        size = self._held.high - self._held.low + 1
        return sum_over_ranks(self._comm, np.pad(own, (0, size - own.size)))


def held_shells(
    tables: Sequence[ForcingTable], fields: Sequence[FieldParts]
) -> tuple[HeldShells, ...]:
    """Return the shells whose energy tables of forcing keep; `fields` are those of the tables."""
    return tuple(
        HeldShells(field.first, field.size, *table.forced_shells)
        for table, field in zip(tables, fields, strict=True)
        if table.kind == "constant-energy"
    )
