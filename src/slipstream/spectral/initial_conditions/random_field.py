"""Random modes, drawn from a hash of their wavenumber, so that they are the same on any ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.spectral.kept_modes import Wavenumbers, shells_of


def random_flow(
    waves: Wavenumbers, peak: float, amplitude: float, seed: int, dtype: Any
) -> np.ndarray:
    """Solenoidal random flow with the spectrum ``E(k) ~ k^4 exp(-2 (k/peak)^2)``, peak in shells.

    The amplitude is the root mean square of a component: the energy is 3/2 amplitude^2. In a plane,
    a grid of one point along one axis, there is no flow along that, and the energy is amplitude^2.
    """
    shells = np.arange(waves.shell_count)
    spectrum = shells**4.0 * np.exp(-2.0 * (shells / peak) ** 2)
    counts = _modes_per_shell(waves.all_axes, waves.unit)
    # In a long box some shells have no mode, and so no energy.
    spectrum[counts == 0] = 0
    if not spectrum.sum() > 0:
        raise InputError(
            "grid.points: this grid is too coarse for a random flow with initial.peak_wavenumber "
            f"{peak:g}; use more points"
        )
    spectrum *= _components(waves) / 2 * amplitude**2 / spectrum.sum()
    # Energy of one mode, half of the sum of squares of two transverse components.
    per_mode = spectrum / np.maximum(counts, 1)
    per_mode[0] = 0
    shape = (3, waves.z.size, waves.y.size, waves.x.size)
    flow = np.zeros(shape, dtype)
    across = waves.y[:, None], waves.x[None, :]
    for z, kz in enumerate(waves.z):
        flow[:, z] = _random_plane(waves, kz, *across, (seed, 0), np.sqrt(per_mode))
    return flow


def _components(waves: Wavenumbers) -> int:
    """Return how many components a random flow has: in a plane two."""
    return 3 if waves.normal is None else 2


def random_modes(
    waves: Wavenumbers, shells: tuple[float, float], amplitude: float, seed: int, number: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Solenoidal random modes from a first to a last shell, all of the same strength.

    Returned are their indices along z, y and x in this rank's modes, and their coefficients. The
    amplitude is the root mean square of a component; in a plane there are two.
    """
    reach = (shells[1] + 0.5) * waves.unit
    axes = waves.z, waves.y, waves.x
    places = [np.flatnonzero(np.abs(axis) <= reach) for axis in axes]
    near = [axis[np.abs(axis) <= reach] for axis in waves.all_axes]
    counts = _modes_per_shell(near, waves.unit)
    strengths = np.zeros(counts.size)
    low, high = round(shells[0]), round(shells[1]) + 1
    number_of_modes = counts[low:high].sum()
    if not number_of_modes:
        raise InputError(
            f"forcing.shells: the grid keeps no mode of shells {low} to {high - 1}; accepted: from "
            f"1 to {round(waves.largest / waves.unit)}"
        )
    strengths[low:high] = amplitude * math.sqrt(_components(waves) / 2 / max(1.0, number_of_modes))
    kz, ky, kx = (axis[place] for axis, place in zip(axes, places, strict=True))
    modes = np.zeros((3, kz.size, ky.size, kx.size), complex)
    for z, one in enumerate(kz):
        # Numbers below 3 are those of initial flows.
        draw = seed, 3 * (number + 1)
        modes[:, z] = _random_plane(waves, one, ky[:, None], kx[None, :], draw, strengths)
    return list(np.ix_(*places)), modes


def _random_plane(
    waves: Wavenumbers,
    kz: float,
    ky: np.ndarray,
    kx: np.ndarray,
    draw: tuple[int, int],
    amplitudes: np.ndarray,
) -> np.ndarray:
    # A real field has u(-k) = conj(u(k)): of a pair within kx = 0 one is the other's conjugate.
    flipped = (kx == 0) & ((ky < 0) | ((ky == 0) & (kz < 0)))
    sign = np.where(flipped, -1, 1)
    (seed, first_number), unit = draw, waves.unit
    key = [np.rint(sign * k / unit * 4096).astype(np.int64) for k in (kx, ky, kz)]
    phases = [2 * np.pi * _hash_uniform(seed, first_number + i, *key) for i in range(3)]
    square = kx**2 + ky**2 + kz**2
    length = np.sqrt(np.where(square > 0, square, 1))
    horizontal = np.sqrt(kx**2 + ky**2)
    safe = np.where(horizontal > 0, horizontal, 1)
    upright = horizontal == 0
    # Two unit vectors normal to k, the same for -k: a horizontal one, and one normal to both.
    first_x = np.where(upright, 1, sign * ky / safe)
    first_y = np.where(upright, 0, -sign * kx / safe)
    first = np.stack([first_x, first_y, np.zeros_like(square)])
    wave = np.stack(np.broadcast_arrays(sign * kx, sign * ky, sign * kz + 0 * square)) / length
    second = np.cross(wave, first, axis=0)
    in_plane = waves.normal is not None
    if in_plane:
        first = np.cross(wave, np.eye(3)[waves.normal], axis=0)
    # Both have the same energy on average, and together that of the mode: |c1|^2 + |c2|^2 = 2 E.
    share = 0.0 if in_plane else phases[2]
    c1 = np.sqrt(2) * np.cos(share) * np.exp(1j * phases[0])
    c2 = np.sqrt(2) * np.sin(share) * np.exp(1j * phases[1])
    shells = np.rint(np.sqrt(square) / unit).astype(np.int64)
    plane = amplitudes[np.minimum(shells, amplitudes.size - 1)] * (c1 * first + c2 * second)
    modes: np.ndarray = np.where(flipped, plane.conj(), plane)
    return modes


def _modes_per_shell(axes: list[np.ndarray], unit: float) -> np.ndarray:
    kz, ky, kx = axes
    weight = np.where(kx == 0, 1, 2)
    shells = shells_of(axes, unit)
    counts = np.zeros(shells)
    for value in kz:
        square = value**2 + ky[:, None] ** 2 + kx**2
        shell = np.rint(np.sqrt(square) / unit).astype(np.int64)
        weights = np.broadcast_to(weight, shell.shape)
        counts += np.bincount(shell.ravel(), weights.ravel(), shells)
    return counts


def _hash_uniform(seed: int, number: int, *keys: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1) that depend on nothing but the arguments.

    The mixing function is that of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
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
