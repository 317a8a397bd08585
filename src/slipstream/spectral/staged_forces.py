"""Forces that depend on the flow at each substage: of constant power, and of constant energy.

Both need sums over modes of the stage, over all ranks. So a step is run substage by substage
(`SpectralStep.record_parts`), with the sums in between.

Constant power: f = a u in some shells, with a such that <u . f> is the given power at every
substage (Machiels, Phys. Rev. Lett. 79, 3411, 1997). With a power P_i for each component the force
is the solenoidal part of (a_1 u_1, a_2 u_2, a_3 u_3), where a is the solution of M a = P, and M_ij
= <u_i (e_j u_j without its gradient)_i>.

Constant energy: the force L u in a shell, with L such that the energy of the shell stays r^2 / 2.
With v = u exp(-int L dt) the equation v' = (|v| / r) N(r v / |v|) does not contain L, and has the
same linear terms. A step of a Runge-Kutta method for v, whose stages are multiplied by r / |v|, and
their rates by |v| / r, has the order of the method, and at its end u = r v / |v| has the energy to
round-off. The work of the force follows from the logarithm of |v| / r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.case.spectral_case import Forcing as ForcingTable
from slipstream.collective import sum_over_ranks
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, HeldShells

# The number of modes handled together, if a force acts on all of them.
_MODES_AT_ONCE = 1 << 18


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
            axis[place] for axis, place in zip((waves.z, waves.y, waves.x), places, strict=True)
        )
        number = shell_numbers(flow, kz[:, None, None], ky[:, None], kx)
        square = kz[:, None, None] ** 2 + ky[:, None] ** 2 + kx**2
        inside = (number >= low) & (number <= high) if shells else square > 0
        self.shells = high - low + 1
        self._places = tuple(device.array(place) for place in np.ix_(*places))
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
    """Return the shells of modes, computed as in the kernel of a substage."""
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
        place: slice,
        comm: Comm,
        is_solenoidal: bool,
    ) -> None:
        self._flow, self._comm, self._target = flow, comm, flow.forcing[place]
        self._key, self._powers = key, settings.injection
        self._is_solenoidal = is_solenoidal
        forced = flow.problem.forced[place]
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
        own = np.zeros((powers.size, powers.size))
        for part in self._band.parts:
            modes = part.of(fields)
            lost = part.along * modes if self._is_solenoidal else 0 * modes
            for i, j in np.ndindex(own.shape):
                product = lost[i].real * lost[j].real + lost[i].imag * lost[j].imag
                own[i, j] -= float((part.weight * product).sum())
                if i == j:
                    own[i, i] += float(part.squares(modes[i : i + 1]).sum())
        work: np.ndarray = sum_over_ranks(self._comm, own)
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
