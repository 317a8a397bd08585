"""Initial flows. Each gives the same numbers on any number of ranks.

Flows with a formula are evaluated at the grid points of each chunk, on the device. The random flow
is drawn mode by mode from a hash of the wavenumber, so that no mode depends on who draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.spectral.diagnostics import FieldParts
from slipstream.spectral.formulas import formula
from slipstream.spectral.wavenumbers import Wavenumbers


def _taylor_green(settings: Any, waves: list[float]) -> list[str]:
    """Taylor-Green vortex (Taylor and Green, Proc. R. Soc. A 158, 499 (1937)).

    Its energy is ``amplitude^2 (1 + aspect^2) / 16``, where all axes have more than one point; the
    aspect is the length of the box along y over that along x, without which there would be sources.
    """
    kx, ky, kz = (settings.wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    u, v = settings.amplitude, -settings.amplitude * kx / ky
    return [f"{u!r}*sin({x})*cos({y})*cos({z})", f"{v!r}*cos({x})*sin({y})*cos({z})", "0"]


def _abc(settings: Any, waves: list[float]) -> list[str]:
    """Arnold-Beltrami-Childress flow, ``curl u = m u``; energy amplitude^2 (A^2+B^2+C^2)/2."""
    kx, ky, kz = (settings.wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    a, b, c = (settings.amplitude * value for value in settings.coefficients)
    return [
        f"{a!r}*sin({z}) + {c!r}*cos({y})",
        f"{b!r}*sin({x}) + {a!r}*cos({z})",
        f"{c!r}*sin({y}) + {b!r}*cos({x})",
    ]


def _orszag_tang(settings: Any, waves: list[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang, J. Fluid Mech. 90, 129 (1979), in two dimensions."""
    (kx, ky, _), a = waves, settings.amplitude
    velocity = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({kx!r}*x)", "0"]
    magnetic = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({2 * kx!r}*x)", "0"]
    return velocity, magnetic


def initial_formulas(
    settings: Any, fields: list[FieldParts], lengths: tuple[float, float, float]
) -> dict[str, Callable[..., Any]]:
    """Return the formulas of an initial flow that has some, by component.

    Parameters
    ----------
    settings : slipstream.case.spectral.Initial
        The case's table.
    fields : list of FieldParts
        The fields of the model.
    lengths : tuple of float
        Box lengths (Lz, Ly, Lx).

    Returns
    -------
    dict of str to callable
        See `formula`; components that it lacks are zero.

    Raises
    ------
    InputError
        If the model has no such field, or a formula is none.
    """
    waves = _waves(lengths)
    if settings.flow == "formula":
        return _parsed(dict(settings.fields), fields, "initial.fields")
    if settings.flow == "orszag-tang":
        velocity, magnetic = _orszag_tang(settings, waves)
        return _parsed({"velocity": velocity, "magnetic": magnetic}, fields, "initial.flow")
    texts = {"velocity": _PATTERNS[settings.flow](settings, waves)}
    return _parsed(texts, fields, "initial.flow")


def forcing_formulas(
    settings: Any, fields: list[FieldParts], lengths: tuple[float, float, float]
) -> dict[str, Callable[..., Any]]:
    """Return the formulas of a forcing that does not change, as `initial_formulas`.

    Parameters
    ----------
    settings : slipstream.case.spectral.Forcing
        The case's table.
    fields, lengths
        As for `initial_formulas`.
    """
    own = settings.formula
    if settings.kind != "formula":
        own = _PATTERNS[settings.kind](settings, _waves(lengths))
    return _parsed({settings.field: own}, fields, f"forcing.{settings.kind}")


def _waves(lengths: tuple[float, float, float]) -> list[float]:
    return [2 * math.pi / length for length in reversed(lengths)]


_PATTERNS = {"taylor-green": _taylor_green, "abc": _abc}


def _parsed(
    texts: dict[str, Any], fields: list[FieldParts], key: str
) -> dict[str, Callable[..., Any]]:
    known, result = {field.name: field for field in fields}, {}
    for name, own in texts.items():
        if name not in known:
            raise InputError(f"{key}: the model has no field {name!r}; it has: {', '.join(known)}")
        parts = [own] if isinstance(own, str | int | float) else list(own)
        if len(parts) != known[name].size:
            raise InputError(
                f"{key}: {len(parts)} formulas for {name!r}; expected {known[name].size}"
            )
        suffixes = [f"_{axis}" for axis in "xyz"] if known[name].is_vector else [""]
        for suffix, part in zip(suffixes, parts, strict=True):
            result[name + suffix] = formula(str(part), f"{key}.{name}")
    return result


def random_flow(
    waves: Wavenumbers, peak: float, amplitude: float, seed: int, dtype: Any
) -> np.ndarray:
    """Solenoidal random flow with the spectrum ``E(k) ~ k^4 exp(-2 (k/peak)^2)``.

    Parameters
    ----------
    waves : Wavenumbers
        This rank's modes.
    peak : float
        Wavenumber of the spectrum's maximum, in shells.
    amplitude : float
        Root mean square of one velocity component: the energy is 3/2 amplitude^2.
    seed : int
        Another seed gives another flow.
    dtype : dtype
        complex64 or complex128.

    Returns
    -------
    numpy.ndarray, shape (3, kz, ky of this rank, kx)
        Fourier coefficients of the velocity.

    Raises
    ------
    InputError
        If the grid keeps no mode that moves.
    """
    shells = np.arange(waves.shell_count)
    spectrum = shells**4.0 * np.exp(-2.0 * (shells / peak) ** 2)
    counts = _modes_per_shell(waves.all_axes, waves.unit)
    # In a long box there are shells without a mode, which cannot take their share.
    spectrum[counts == 0] = 0
    if not spectrum.sum() > 0:
        raise InputError(
            "grid.points: this grid is too coarse for a random flow with initial.peak_wavenumber "
            f"{peak:g}; use more points"
        )
    spectrum *= 1.5 * amplitude**2 / spectrum.sum()
    # Energy of one mode, half of the sum of squares of two transverse components.
    per_mode = spectrum / np.maximum(counts, 1)
    per_mode[0] = 0
    shape = (3, waves.z.size, waves.y.size, waves.x.size)
    flow = np.zeros(shape, dtype)
    across = waves.y[:, None], waves.x[None, :]
    for z, kz in enumerate(waves.z):
        flow[:, z] = _random_plane(kz, *across, waves.unit, (seed, 0), np.sqrt(per_mode))
    return flow


def random_modes(
    waves: Wavenumbers, shells: tuple[float, float], amplitude: float, seed: int, number: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Solenoidal random modes of some shells, all of the same strength.

    Parameters
    ----------
    waves : Wavenumbers
        This rank's modes.
    shells : (float, float)
        The first and the last shell.
    amplitude : float
        Root mean square of a component.
    seed, number : int
        Another one of them gives other modes.

    Returns
    -------
    list of numpy.ndarray
        Which z, y and x of this rank's modes they are, as indices that broadcast.
    numpy.ndarray, shape (3, z, y, x)
        Fourier coefficients.
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
    strengths[low:high] = amplitude * math.sqrt(1.5 / max(1.0, number_of_modes))
    kz, ky, kx = (axis[place] for axis, place in zip(axes, places, strict=True))
    modes = np.zeros((3, kz.size, ky.size, kx.size), complex)
    for z, one in enumerate(kz):
        # The first numbers are those of initial flows.
        draw = seed, 3 * (number + 1)
        modes[:, z] = _random_plane(one, ky[:, None], kx[None, :], waves.unit, draw, strengths)
    return list(np.ix_(*places)), modes


def _random_plane(
    kz: float, ky: np.ndarray, kx: np.ndarray, unit: float, draw: tuple[int, int],
    amplitudes: np.ndarray,
) -> np.ndarray:  # fmt: skip
    # A real field has u(-k) = conj(u(k)): of the pairs within kx = 0 one is drawn, one conjugated.
    flipped = (kx == 0) & ((ky < 0) | ((ky == 0) & (kz < 0)))
    sign = np.where(flipped, -1, 1)
    seed, first_number = draw
    key = [np.rint(sign * k / unit * 4096).astype(np.int64) for k in (kx, ky, kz)]
    phases = [2 * np.pi * _hash_uniform(seed, first_number + i, *key) for i in range(3)]
    square = kx**2 + ky**2 + kz**2
    length = np.sqrt(np.where(square > 0, square, 1))
    horizontal = np.sqrt(kx**2 + ky**2)
    safe = np.where(horizontal > 0, horizontal, 1)
    upright = horizontal == 0
    # Two unit vectors across k (and across -k alike): one horizontal, one completing the frame.
    first_x = np.where(upright, 1, sign * ky / safe)
    first_y = np.where(upright, 0, -sign * kx / safe)
    first = np.stack([first_x, first_y, np.zeros_like(square)])
    wave = np.stack(np.broadcast_arrays(sign * kx, sign * ky, sign * kz + 0 * square)) / length
    second = np.cross(wave, first, axis=0)
    # Equal shares on average, and exactly the shell's energy in every mode: |c1|^2 + |c2|^2 = 2 E.
    c1 = np.sqrt(2) * np.cos(phases[2]) * np.exp(1j * phases[0])
    c2 = np.sqrt(2) * np.sin(phases[2]) * np.exp(1j * phases[1])
    shells = np.rint(np.sqrt(square) / unit).astype(np.int64)
    plane = amplitudes[np.minimum(shells, amplitudes.size - 1)] * (c1 * first + c2 * second)
    return np.where(flipped, plane.conj(), plane)


def _modes_per_shell(axes: list[np.ndarray], unit: float) -> np.ndarray:
    kz, ky, kx = axes
    weight = np.where(kx == 0, 1, 2)
    square = sum(float(np.max(axis**2, initial=0.0)) for axis in axes)
    shells = int(np.rint(math.sqrt(square) / unit)) + 1
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
        state = np.uint64(seed % 2**64) + golden * np.uint64(number + 1)
        for key in keys:
            state = (state ^ key.astype(np.uint64)) + golden
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
