"""Statistics of paths of particles: arrays [time, particle, component] of one run.

Times need not be equidistant for what only compares positions; accelerations, structure functions
and correlations need equal intervals.
"""

from __future__ import annotations

import numpy as np

from slipstream.errors import InputError


def _interval(times: np.ndarray, least: int) -> float:
    """Return the interval of equidistant times; there must be at least `least`."""
    steps = np.diff(np.asarray(times, float))
    if len(steps) + 1 < least:
        raise InputError(f"times: there are {len(steps) + 1}; accepted: {least} or more samples")
    if not np.allclose(steps, steps[0], rtol=1e-3):
        raise InputError("times: they have different intervals; accepted: equidistant samples")
    return float(steps.mean())


def acceleration(times: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Return the acceleration along paths, by central differences of the velocity.

    Parameters
    ----------
    times : numpy.ndarray of shape (n,)
        Equidistant times (non-dimensional), an interval of few percent of the Kolmogorov time.
    velocities : numpy.ndarray of shape (n, particles, 3)
        Velocities of the particles.

    Returns
    -------
    numpy.ndarray of shape (n - 2, particles, 3)
        Accelerations at all times but the first and the last.

    Raises
    ------
    InputError
        If times are not equidistant, or less than three.
    """
    interval = _interval(times, 3)
    found: np.ndarray = (velocities[2:] - velocities[:-2]) / (2 * interval)
    return found


def acceleration_moments(accelerations: np.ndarray) -> tuple[float, float]:
    """Return variance and flatness of one component of the acceleration.

    Over all times, particles and components, as in Voth et al., J. Fluid Mech. 469, 121 (2002).

    Parameters
    ----------
    accelerations : numpy.ndarray of shape (..., 3)
        From `acceleration`, or recorded.

    Returns
    -------
    variance, flatness : float
        ``<a^2>`` and ``<a^4> / <a^2>^2``, about the mean of each component.
    """
    parts = np.asarray(accelerations, float).reshape(-1, np.shape(accelerations)[-1])
    deviations = parts - parts.mean(axis=0)
    variance = float(np.mean(deviations**2))
    return variance, float(np.mean(deviations**4)) / variance**2 if variance else np.nan


def pair_dispersion(positions: np.ndarray) -> np.ndarray:
    """Return the mean square distance of pairs, of particles 0 and 1, 2 and 3 ..., at each time.

    Parameters
    ----------
    positions : numpy.ndarray of shape (n, particles, 3)
        Positions that are not taken back into the periodic box; an even number of particles.

    Returns
    -------
    numpy.ndarray of shape (n,)
    """
    if positions.shape[1] % 2:
        raise InputError(f"positions: of {positions.shape[1]} particles; accepted: an even number")
    distances = positions[:, 1::2] - positions[:, ::2]
    found: np.ndarray = (distances**2).sum(axis=2).mean(axis=1)
    return found


def structure_function(times: np.ndarray, velocities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Lagrangian structure function of second order, the mean over components.

    Parameters
    ----------
    times : numpy.ndarray of shape (n,)
        Equidistant times.
    velocities : numpy.ndarray of shape (n, particles, 3)
        Velocities of the particles.

    Returns
    -------
    lags, values : numpy.ndarray of shape (n,)
        Time lags from 0, and ``<(v(t + lag) - v(t))^2>`` of one component.
    """
    lags = _interval(times, 2) * np.arange(len(times))
    values = [
        np.mean((velocities[lag:] - velocities[: len(velocities) - lag]) ** 2)
        for lag in range(len(times))
    ]
    return lags, np.array(values)


def autocorrelation(times: np.ndarray, velocities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Lagrangian autocorrelation of the velocity, the mean over components.

    Parameters
    ----------
    times : numpy.ndarray of shape (n,)
        Equidistant times.
    velocities : numpy.ndarray of shape (n, particles, 3)
        Velocities of the particles.

    Returns
    -------
    lags, values : numpy.ndarray of shape (n,)
        Time lags from 0, and ``<v(t) v(t + lag)> / <v^2>`` of fluctuations about the mean.
    """
    lags = _interval(times, 2) * np.arange(len(times))
    parts = velocities - velocities.mean(axis=(0, 1))
    products = [np.mean(parts[lag:] * parts[: len(parts) - lag]) for lag in range(len(times))]
    return lags, np.array(products) / np.mean(parts**2)
