"""Random modes, drawn from a hash of their wavenumber: the same on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.engine.errors import InputError
from slipstream.spectral.kept_modes import Wavenumbers, shells_of


def random_flow(
    waves: Wavenumbers,
    peak: float,
    amplitude: float,
    seed: int,
    dtype: Any,
    signs: Sequence[int] = (),
) -> np.ndarray:
    """Solenoidal random flow with the spectrum ``E(k) ~ k^4 exp(-2 (k/peak)^2)``, peak in shells.

    The amplitude is the root mean square of a component: the energy is 3/2 amplitude^2. In a plane,
    a grid of one point along one axis, there is no flow along that, and the energy is amplitude^2.
    Between walls, here and below, `signs` has 1 for each even component, and -1 for each odd one.
    """
    counts = _modes_per_shell(waves, waves.all_axes, signs)
    shells = np.arange(len(counts))
    spectrum = shells**4.0 * np.exp(-2.0 * (shells / peak) ** 2)
    # In a long box some shells have no modes, and so no energy.
    spectrum[counts == 0] = 0
    if not spectrum.sum() > 0:
        raise InputError(
            "grid.points: this grid is too coarse for a random flow with initial.peak_wavenumber "
            f"{peak:g}; use more points"
        )
    spectrum *= components(waves) / 2 * amplitude**2 / spectrum.sum()
    # The energy of one mode: half of the sum of squares of two transverse components.
    per_mode = spectrum / np.maximum(counts, 1)
    per_mode[0] = 0
    shape = (3, waves.z.size, waves.y.size, waves.x.size)
    flow = np.zeros(shape, dtype)
    across = waves.y[:, None], waves.x[None, :]
    for z, kz in enumerate(waves.z):
        flow[:, z] = _random_plane(waves, kz, *across, (seed, 0), np.sqrt(per_mode), signs)
    return flow


def components(waves: Wavenumbers) -> int:
    """Return the number of components of random vectors: two in a plane."""
    return 3 if waves.normal is None else 2


def random_modes(
    waves: Wavenumbers,
    shells: tuple[float, float],
    amplitude: float,
    seed: int,
    number: int,
    signs: Sequence[int] = (),
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return solenoidal random modes of some shells, of the same strength, and their indices."""
    places, near = waves.near(shells[1]), waves.near(shells[1], of_all_ranks=True)
    low, high = round(shells[0]), round(shells[1])
    shell_count, count = _number_of_modes(waves, near, low, high, signs)
    strengths = np.zeros(shell_count)
    strengths[low : high + 1] = amplitude * math.sqrt(components(waves) / 2 / count)
    kz, ky, kx = _at(waves, places)
    modes = np.zeros((3, kz.size, ky.size, kx.size), complex)
    for z, wavenumber in enumerate(kz):
        # Initial flows use the numbers below 3.
        draw = seed, 3 * (number + 1)
        modes[:, z] = _random_plane(
            waves, wavenumber, ky[:, None], kx[None, :], draw, strengths, signs
        )
    return list(np.ix_(*places)), modes


def _random_plane(
    waves: Wavenumbers,
    kz: float,
    ky: np.ndarray,
    kx: np.ndarray,
    draw: tuple[int, int],
    amplitudes: np.ndarray,
    signs: Sequence[int],
) -> np.ndarray:
    basis = Basis.of(waves, kz, ky, kx)
    seed, first_number = draw
    phases = [2 * np.pi * basis.uniform(seed, first_number + i) for i in range(3)]
    # Both have the same energy on average, and together the energy of the mode:
    # |c1|^2 + |c2|^2 = 2 E.
    share = 0.0 if waves.normal is not None else phases[2]
    c1 = np.sqrt(2) * np.cos(share) * np.exp(1j * phases[0])
    c2 = np.sqrt(2) * np.sin(share) * np.exp(1j * phases[1])
    modes = basis.modes(c1, c2, amplitudes[np.minimum(basis.shells, amplitudes.size - 1)])
    return basis.between_walls(modes, signs) if signs else modes


@dataclass(frozen=True)
class Basis:
    """Two unit vectors normal to each wavevector, and random numbers for each wavevector.

    Both are the same for -k, and the second is k x first / |k|: ``first + i second`` is the wave of
    the largest helicity, and ``first - i second`` the wave of the least.
    """

    first: np.ndarray
    second: np.ndarray
    # Whether the mode is the conjugate of the mode of -k, whose coefficients are drawn.
    flipped: np.ndarray
    shells: np.ndarray
    key: list[np.ndarray]
    # Whether waves are along walls, and along their normal: each is its own mirror image then, or
    # the conjugate of that.
    level: np.ndarray
    upright: np.ndarray

    @classmethod
    def of(cls, waves: Wavenumbers, kz: Any, ky: np.ndarray, kx: np.ndarray) -> Basis:
        """Make the basis of wavevectors whose components broadcast."""
        # A real field has u(-k) = conj(u(k)): of a pair within kx = 0 one is the other's conjugate.
        flipped = (kx == 0) & ((ky < 0) | ((ky == 0) & (kz < 0)))
        if waves.has_walls:  # the other is the mirror image of that
            kz = np.where(flipped, -kz, kz)
        sign, unit = np.where(flipped, -1, 1), waves.unit
        key = [np.rint(sign * k / unit * 4096).astype(np.int64) for k in (kx, ky, kz)]
        square = kx**2 + ky**2 + kz**2
        length = np.sqrt(np.where(square > 0, square, 1))
        horizontal = np.sqrt(kx**2 + ky**2)
        safe = np.where(horizontal > 0, horizontal, 1)
        upright = horizontal == 0
        # A horizontal vector normal to k, and a vector normal to both.
        first_x = np.where(upright, 1, sign * ky / safe)
        first_y = np.where(upright, 0, -sign * kx / safe)
        both = np.broadcast_arrays(first_x, first_y, np.zeros_like(square))
        first = np.stack([both[0], both[1], both[2]])
        wave = np.stack(np.broadcast_arrays(sign * kx, sign * ky, sign * kz + 0 * square)) / length
        second = np.cross(wave, first, axis=0)
        if waves.normal is not None:
            # The first in the plane, the second normal to it.
            first = np.cross(wave, np.eye(3)[waves.normal], axis=0)
        shells = np.rint(np.sqrt(square) / unit).astype(np.int64)
        masks = (np.broadcast_to(one, square.shape) for one in (flipped, kz == 0, upright))
        flips, *own = masks
        return cls(first, second, flips, shells, key, *own)

    def uniform(self, seed: int, number: int) -> np.ndarray:
        """Return a number in [0, 1) for each wavevector, the same for -k."""
        return _hash_uniform(seed, number, *self.key)

    def normal(self, seed: int, number: int) -> np.ndarray:
        """Return a normally distributed complex number, of mean square 1, for each wavevector."""
        size = np.sqrt(-np.log1p(-self.uniform(seed, number)))
        found: np.ndarray = size * np.exp(2j * np.pi * self.uniform(seed, number + 1))
        return found

    def modes(self, c1: Any, c2: Any, amplitudes: np.ndarray) -> np.ndarray:
        """Return vectors (3, ...) with these coefficients, times the amplitude of each mode."""
        plane = amplitudes * (c1 * self.first + c2 * self.second)
        found: np.ndarray = np.where(self.flipped, plane.conj(), plane)
        return found

    def between_walls(
        self, modes: np.ndarray, signs: Sequence[int], exact: bool = True
    ) -> np.ndarray:
        """Return the even part (sign 1) or the odd part (-1) of these modes (field, ...).

        Modes that are their own images become modes of that parity, with the same strength, or, if
        not `exact`, the same mean square.
        """
        sign = np.array(signs).reshape(-1, *[1] * self.flipped.ndim)
        modes = np.where(self.flipped, sign * modes, modes)
        images = sign * np.where(self.upright, modes.conj(), modes)
        # A scalar is even or odd as a whole; of a vector half of the components are each.
        is_whole = self.level if len(modes) == 1 else np.zeros_like(self.level)
        symmetric = np.where(is_whole, 0.5, math.sqrt(0.5)) * (modes + images)
        if exact:
            before, after = ((np.abs(values) ** 2).sum(axis=0) for values in (modes, symmetric))
            symmetric = symmetric * np.sqrt(before / np.where(after > 0, after, 1))
        result: np.ndarray = np.where(self.level | self.upright, symmetric, modes)
        return result


@dataclass(frozen=True)
class ShellModes:
    """Modes of some shells of this rank, in the box of modes that holds them on all ranks."""

    # Indices of the box along z, y and x among this rank's modes, which broadcast.
    places: list[np.ndarray]
    # The shape of the whole box, and the start of this rank's part in it.
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    basis: Basis
    # The strength of modes in the shells, 0 outside: the mean square of a vector, or scalar, is 1.
    strengths: np.ndarray

    @classmethod
    def of(
        cls,
        waves: Wavenumbers,
        shells: tuple[int, int],
        start: Sequence[int],
        signs: Sequence[int] = (),
    ) -> ShellModes:
        """Make the modes of a first to a last shell; `start` is the start of this rank's modes."""
        low, high = shells
        places, near = waves.near(high), waves.near(high, of_all_ranks=True)
        _, number = _number_of_modes(waves, near, low, high, signs)
        kz, ky, kx = _at(waves, places)
        basis = Basis.of(waves, kz[:, None, None], ky[:, None], kx)
        inside = (basis.shells >= low) & (basis.shells <= high)
        return cls(
            list(np.ix_(*places)),
            tuple(one.size for one in near),
            tuple(int((n < first).sum()) for n, first in zip(near, start, strict=True)),
            basis,
            inside / math.sqrt(number),
        )


def _at(waves: Wavenumbers, places: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the wavenumbers along z, y and x at some indices of this rank's modes."""
    axes = waves.z, waves.y, waves.x
    return (axis[place] for axis, place in zip(axes, places, strict=True))


def _number_of_modes(
    waves: Wavenumbers, near: list[np.ndarray], low: int, high: int, signs: Sequence[int]
) -> tuple[int, float]:
    """Return the number of shells that reach `near`, and of modes in some; refuse empty ones."""
    axes = [axis[place] for axis, place in zip(waves.all_axes, near, strict=True)]
    counts = _modes_per_shell(waves, axes, signs)
    number = float(counts[low : high + 1].sum())
    if not number:
        raise InputError(
            f"forcing.shells: the grid keeps no mode of shells {low} to {high}; accepted: from "
            f"1 to {round(waves.largest / waves.unit)}"
        )
    return counts.size, number


def _modes_per_shell(
    waves: Wavenumbers, axes: list[np.ndarray], signs: Sequence[int]
) -> np.ndarray:
    kz, ky, kx = axes
    shells = shells_of(axes, waves.unit)
    counts = np.zeros(shells)
    # What is odd, or a vector's component along walls' normal, has no waves along the walls; other
    # vectors have a component along these.
    lacks_level = bool(signs) and signs[-1] < 0 and (len(signs) == 1 or waves.normal is not None)
    for value in kz:
        weight = np.where(kx == 0, 1, 2) * (2 if waves.has_walls and value else 1)
        square = value**2 + ky[:, None] ** 2 + kx**2
        shell = np.rint(np.sqrt(square) / waves.unit).astype(np.int64)
        weights = np.broadcast_to(weight, shell.shape)
        if value or not lacks_level:
            counts += np.bincount(shell.ravel(), weights.ravel(), shells)
    return counts


def _hash_uniform(seed: int, number: int, *keys: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1) that depend only on the arguments.

    The mixing function is SplitMix64's (Steele, Lea and Flood, OOPSLA 2014).
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        state: Any = np.uint64(seed % 2**64) + golden * np.uint64(number + 1)
        for key in keys:
            state = (state ^ key.astype(np.uint64)) + golden
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    uniform: np.ndarray = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform
