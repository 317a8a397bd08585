"""Statistics of records in time: averages with their errors, and those of particles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slipstream.engine.errors import InputError, finite_number

# Correlation times up to which lags are summed.
_WINDOW = 4.0
# A record of fewer correlation times is warned of: its error is too small at times.
FEWEST_CORRELATION_TIMES = 20
# Two errors of autoregressive records of any length, widened by these two, then hold the true mean
# as often as is said in docs/howto/averages.md, or a warning is given;
# tests/unit/runs/test_time_averages.py.
_WIDENING = 10.0
_LARGEST_WIDENING = 3.5
# Most cells of equal duration over which a record is averaged: lags are multiples of a cell.
_MOST_CELLS = 8192
_MOST_SPIN_UP_CELLS = 400
# Values, one for each cell of time, whose lags are in memory.
_MOST_VALUES = 1 << 21
_FEWEST_SAMPLES = 4
# Samples: from fewer, even uncorrelated ones, the scatter is known badly.
_MANY_SAMPLES = 20
# Numbers of a running average, apart from its arrays, in this order.
_NUMBERS = ("duration", "batch_duration", "completed", "batches", "samples", "last", "has_before")
_ARRAYS = ("mean", "square", "batch", "between", "before")
# An error from fewer batches is not to be trusted.
_FEWEST_BATCHES = 8
# An error from batches of fewer correlation times is not to be trusted.
_SHORTEST_BATCH = 6.0


@dataclass(frozen=True)
class TimeAverage:
    """The average of a record over time.

    Attributes
    ----------
    mean : float or numpy.ndarray
        The average, weighted by time; of each element of an array.
    error : float or numpy.ndarray
        The standard error of the mean, widened for a short record; not-a-number of fewer than 4
        samples.
    fluctuation : float or numpy.ndarray
        Root mean square of the distance from the mean.
    correlation_time : float or numpy.ndarray
        Integral correlation time; not-a-number where nothing fluctuates.
    since : float
        Time of the first sample that counts.
    until : float
        Time of the last sample that counts.
    duration : float
        Time for which the samples stand.
    samples : int
        Number of samples.
    is_spin_up_found : bool
        Whether `since` was found from the record, not given.
    warnings : tuple of str
        Reasons for doubt.
    name, label : str
        The name of the averaged quantity, if it is known, and a text for people.
    coordinates : mapping of str to numpy.ndarray
        Coordinates of the axes of an array, by their names, where they have names.
    """

    mean: Any
    error: Any
    fluctuation: Any
    correlation_time: Any
    since: float
    until: float
    duration: float
    samples: int
    is_spin_up_found: bool
    warnings: tuple[str, ...] = ()
    name: str = ""
    label: str = ""
    coordinates: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def correlation_times(self) -> Any:
        """Number of correlation times in the record; infinity where nothing fluctuates."""
        return _correlation_times(self.correlation_time, self.duration)

    def __str__(self) -> str:
        span = f"t = {self.since:.6g} to {self.until:.6g}"
        if np.ndim(self.mean):
            return f"{np.shape(self.mean)} averages over {span}"
        text = f"{rounded(self.mean, self.error)}, {span}"
        if math.isfinite(self.correlation_times):
            text += f", {self.correlation_times:.3g} correlation times"
        return text


def _correlation_times(correlation_time: Any, duration: float) -> Any:
    times = np.where(np.isfinite(correlation_time), duration / correlation_time, np.inf)
    return times if times.ndim else float(times)


def rounded(mean: float, error: float) -> str:
    """Return a mean and its error with as many digits as the error deserves."""
    if not (math.isfinite(error) and error > 0 and math.isfinite(mean)):
        return f"{mean:.6g} ± {error:.2g}"
    first = math.floor(math.log10(error))
    largest = max(abs(mean), error)
    if -4 <= math.floor(math.log10(largest)) < 6:
        digits = max(0, 1 - first)
        return f"{mean:.{digits}f} ± {error:.{digits}f}"
    digits = max(0, math.floor(math.log10(largest)) - first + 1)
    scale = 10.0 ** math.floor(math.log10(largest))
    power = f"e{math.floor(math.log10(largest)):+03d}"
    return f"({mean / scale:.{digits}f} ± {error / scale:.{digits}f}){power}"


def sample_weights(times: np.ndarray) -> np.ndarray:
    """Return the time for which each sample stands: half of that to either neighbour.

    At either end, as much time lies outside as inside. One sample stands for no time.
    """
    if len(times) < 2:
        return np.zeros(len(times))
    gaps: np.ndarray = np.diff(times)
    ends = np.concatenate([gaps[:1], gaps, gaps[-1:]])
    weights: np.ndarray = (ends[:-1] + ends[1:]) / 2
    return weights


def time_average(
    times: Any,
    values: Any,
    *,
    since: float | None = None,
    until: float | None = None,
    what: str = "average",
) -> TimeAverage:
    """Return the average of a record over time, with its standard error.

    Parameters
    ----------
    times : array_like
        Increasing times of the samples.
    values : array_like
        A number, or an array, for each time: shape (times, ...).
    since : float, optional
        Only samples from this time on count (default: the end of the spin-up, which is found from
        the record).
    until : float, optional
        Only samples up to this time count (default: all).
    what : str
        Its name in messages.

    Raises
    ------
    InputError
        If no samples are left.
    """
    try:
        times, values = np.asarray(times, float), np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{what}: times or values are no arrays of real numbers") from None
    since = None if since is None else finite_number("since", since)
    until = None if until is None else finite_number("until", until)
    if times.ndim != 1:
        raise InputError(f"{what}: times have shape {times.shape}; accepted: one axis")
    if values.dtype.kind not in "fiub" or values.shape[:1] != times.shape:
        raise InputError(
            f"{what}: {values.dtype} of shape {values.shape}; accepted: real numbers, as many as"
            f" times, {len(times)}"
        )
    flat = values.reshape(len(times), math.prod(values.shape[1:]))
    return average_of(
        times,
        flat.shape[1],
        lambda rows, columns: flat[rows, columns],
        values.shape[1:],
        since=since,
        until=until,
        what=what,
    )


def average_of(
    times: np.ndarray,
    width: int,
    read: Callable[[np.ndarray, slice], np.ndarray],
    shape: tuple[int, ...],
    *,
    since: float | None = None,
    until: float | None = None,
    what: str = "average",
    row: int = 1,
) -> TimeAverage:
    """Return the time average of values that are read a part at a time.

    ``read(rows, columns)`` returns an array of some samples, each of `width` numbers; columns are
    asked for in multiples of `row`.
    """
    for name, bound in (("since", since), ("until", until)):
        if bound is not None and not math.isfinite(bound):
            raise InputError(f"{what}: {name} is {bound}; accepted: a time")
    if len(times) and not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise InputError(f"{what}: its times do not increase")
    low, high = -math.inf if since is None else since, math.inf if until is None else until
    margin = 1e-9 * float(np.abs(times).max(initial=0.0))
    rows = np.flatnonzero((times >= low - margin) & (times <= high + margin))
    warnings: list[str] = []
    if width == 1:
        known = np.isfinite(read(rows, slice(0, 1))[:, 0]) if len(rows) else np.zeros(0, bool)
        inner = np.flatnonzero(known)
        holes = int((~known[inner[0] :]).sum()) if len(inner) else 0
        if holes:
            are = "sample is" if holes == 1 else "samples are"
            warnings.append(f"{holes} {are} no number, and left out")
        rows = rows[known]
    if not len(rows):
        there = f"t = {times[0]:.6g} to {times[-1]:.6g}" if len(times) else "none"
        asked = f"{'' if since is None else f' since {since:g}'}"
        asked += f"{'' if until is None else f' until {until:g}'}"
        raise InputError(f"{what}: no samples{asked}; there are: {there}")
    if since is None:
        first = _end_of_spin_up(
            times[rows], width, lambda chosen_rows, part: read(rows[chosen_rows], part), row
        )
        if first >= len(rows) // 2 > _FEWEST_SAMPLES:
            warnings.append(
                "the first half counts as spin-up, which may be too little: the record is not"
                " steady"
            )
        rows = rows[first:]
    columns = max(1, _MOST_VALUES // max(1, len(rows)) // row) * row
    parts = [
        _statistics(times[rows], np.asarray(read(rows, slice(low, low + columns)), float))
        for low in range(0, width, columns)
    ]
    together = [np.concatenate(part) for part in zip(*parts, strict=True)]
    mean, error, fluctuation, correlation = (_reshape_values(part, shape) for part in together)
    duration = float(sample_weights(times[rows]).sum())
    warnings += _doubts(len(rows), together[3], duration)
    return TimeAverage(
        mean,
        error,
        fluctuation,
        correlation,
        float(times[rows[0]]),
        float(times[rows[-1]]),
        duration,
        len(rows),
        since is None,
        tuple(warnings),
    )


def _reshape_values(values: np.ndarray, shape: tuple[int, ...]) -> Any:
    return values.reshape(shape) if shape else float(values[0])


def _doubts(samples: int, correlation_time: np.ndarray, duration: float) -> list[str]:
    if samples < _FEWEST_SAMPLES:
        return [f"{samples} sample{'s' * (samples != 1)} only: there is no error"]
    times = np.atleast_1d(_correlation_times(correlation_time, duration))
    doubts = []
    if samples < _MANY_SAMPLES and np.isfinite(times).any():
        doubts.append(f"{samples} samples only: the error may be too small")
    few = times < FEWEST_CORRELATION_TIMES
    if not few.any():
        return doubts
    if len(times) == 1:
        return [
            *doubts,
            f"the record has {times[0]:.2g} correlation times, fewer than"
            f" {FEWEST_CORRELATION_TIMES}: the error may be too small",
        ]
    return [
        *doubts,
        f"the record has fewer than {FEWEST_CORRELATION_TIMES} correlation times of"
        f" {int(few.sum())} of the {len(times)} values, {times.min():.2g} at worst: their errors"
        " may be too small",
    ]


def cell_averages(times: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
    """Return averages over cells of equal duration, of samples that stand for the time around.

    Their mean is the average over time.
    """
    weights = sample_weights(times)
    edges = np.concatenate([[0.0], np.cumsum(weights)])
    integral = np.concatenate(
        [np.zeros((1, values.shape[1])), np.cumsum(weights[:, None] * values, 0)]
    )
    places = np.linspace(0, edges[-1], cells + 1)
    index = np.clip(np.searchsorted(edges, places, "right") - 1, 0, len(weights) - 1)
    at = integral[index] + (places - edges[index])[:, None] * values[index]
    means: np.ndarray = np.diff(at, axis=0) / (edges[-1] / cells)
    return means


def _statistics(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return mean, error, fluctuation and correlation time of each column."""
    width = values.shape[1]
    unknown = np.full(width, np.nan)
    if len(times) < 2:
        return values[0], unknown, np.zeros(width), unknown
    weights = sample_weights(times)
    duration = float(weights.sum())
    # Distances from any value of the record have fewer digits to lose than the values.
    origin = values[0]
    values = values - origin
    mean = weights @ values / duration
    values -= mean
    square = weights @ values**2 / duration
    fluctuation = np.sqrt(square)
    if len(times) < _FEWEST_SAMPLES:
        return origin + mean, unknown, fluctuation, unknown
    is_even = np.ptp(weights) <= 1e-6 * weights.mean() and len(times) <= _MOST_CELLS
    cells = values if is_even else cell_averages(times, values, min(len(times), _MOST_CELLS))
    # A constant with rounding errors does not fluctuate.
    is_steady = fluctuation <= 1e-14 * np.abs(origin + mean)
    variance = np.where(is_steady, 0.0, _variance_of_mean(cells))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The record's own mean takes as much from the square as the mean varies.
        correlation = duration / 2 * variance / (square + variance)
    widening = np.minimum(1 + _WIDENING * correlation / duration, _LARGEST_WIDENING)
    return (
        origin + mean,
        np.sqrt(np.where(is_steady, 0.0, variance * widening)),
        fluctuation,
        np.where(is_steady, np.nan, correlation),
    )


def _variance_of_mean(cells: np.ndarray) -> np.ndarray:
    """Return the variance of the mean of each column of equally spaced values."""
    count = len(cells)
    cells = cells - cells.mean(axis=0)
    squares = np.abs(np.fft.rfft(cells, 2 * count, axis=0)) ** 2
    lags = np.fft.irfft(squares, axis=0)[:count]
    lags /= (count - np.arange(count))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = 0.5 + np.cumsum(lags[1:] / lags[0], axis=0)
    is_enough = np.arange(1, count)[:, None] >= _WINDOW * times
    is_enough[-1] = True
    window = is_enough.argmax(axis=0)
    summed = np.maximum(times[window, np.arange(cells.shape[1])], 0.5 / count)
    lost = np.minimum((2 * window + 3) / count, 0.75)
    return np.where(lags[0] > 0, 2 * summed * lags[0] / (count * (1 - lost)), 0.0)


def _end_of_spin_up(
    times: np.ndarray, width: int, read: Callable[[np.ndarray, slice], np.ndarray], row: int
) -> int:
    """Return the number of the first sample after the spin-up, which takes half at most."""
    count = len(times)
    if count < 2 * _FEWEST_SAMPLES:
        return 0
    cells = min(count, _MOST_SPIN_UP_CELLS)
    columns = max(1, _MOST_VALUES // count // row) * row
    total = np.zeros(cells)
    for low in range(0, width, columns):
        values = np.asarray(read(np.arange(count), slice(low, low + columns)), float)
        values = cell_averages(times, values - values.mean(axis=0), cells)
        left = np.arange(cells, 0, -1)[:, None]
        sums, squares = (np.cumsum(one[::-1], axis=0)[::-1] for one in (values, values**2))
        errors = (squares / left - (sums / left) ** 2) / left
        scale = errors[0]
        total += (errors / np.where(scale > 0, scale, 1.0)).sum(axis=1)
    best = int(np.argmin(total[: cells // 2 + 1]))
    return min(int(round(best * count / cells)), count // 2)


class RunningAverage:
    """Averages of arrays that come one after the other and are not kept.

    By the trapezoidal rule: the time between two samples counts for both in equal parts, and a
    first one that is later than the start for the time since then. Errors come from the scatter of
    averages over batches of some duration each, which are to be longer than the flow remembers.
    Sums are of distances from the mean so far, in double precision (Welford, Technometrics 4, 419
    (1962)).

    Parameters
    ----------
    shape : tuple of int
        Of each sample.
    batch : float
        Duration of a batch.
    start : float
        When the average begins.
    is_equal : bool
        Whether each sample counts for the time since the one before instead, such as those of a
        phase.
    """

    def __init__(
        self, shape: tuple[int, ...], batch: float, start: float, is_equal: bool = False
    ) -> None:
        self.batch_length, self.start, self._is_equal = batch, start, is_equal
        names = [name for name in _ARRAYS if not (is_equal and name == "before")]
        self.arrays = {name: np.zeros(shape) for name in names}
        self.samples = self.batches = self.has_before = 0
        # Times for which all samples, and those of the unfinished and of the complete batches
        # stand, and the time of the last sample.
        self.duration = self.batch_duration = self.completed = 0.0
        self.last = start

    @property
    def numbers(self) -> np.ndarray:
        """The numbers that, with `arrays`, make the average."""
        return np.array([float(getattr(self, name)) for name in _NUMBERS])

    @numbers.setter
    def numbers(self, values: np.ndarray) -> None:
        for name, value in zip(_NUMBERS, values, strict=True):
            setattr(self, name, type(getattr(self, name))(value))

    def add(self, values: np.ndarray, time: float) -> None:
        """Add a sample; one that is not later than the last, or the start, counts for no time."""
        weight = time - self.last
        if weight > 0:
            self.last = float(time)
            self.samples += 1
            if self.has_before:
                self._add(self.arrays["before"], weight / 2)
                self._add(values, weight / 2)
            else:
                self._add(values, weight)
            if self.batch_duration >= self.batch_length * (1 - 1e-9):
                self._complete_batch()
        elif self.samples or weight < 0:
            return
        if not self._is_equal:
            self.arrays["before"][...] = values
            self.has_before = 1

    @property
    def needs_first(self) -> bool:
        """Whether a sample at the start is wanted."""
        return not (self.samples or self.has_before or self._is_equal)

    def _add(self, values: np.ndarray, weight: float) -> None:
        arrays = self.arrays
        self.duration += weight
        self.batch_duration += weight
        away = values - arrays["mean"]
        arrays["mean"] += away * (weight / self.duration)
        arrays["square"] += weight * away * (values - arrays["mean"])
        arrays["batch"] += (values - arrays["batch"]) * (weight / self.batch_duration)

    def _complete_batch(self) -> None:
        before, arrays = self.completed, self.arrays
        self.completed += self.batch_duration
        self.batches += 1
        if before > 0:
            factor = self.batch_duration * self.completed / before
            arrays["between"] += factor * (arrays["batch"] - arrays["mean"]) ** 2
        arrays["batch"][...] = 0
        self.batch_duration = 0.0

    @property
    def mean(self) -> np.ndarray:
        """The average; not-a-number without samples."""
        return self.arrays["mean"] if self.samples else np.full_like(self.arrays["mean"], np.nan)

    @property
    def variance(self) -> np.ndarray:
        """Mean square distance from the mean."""
        if not self.samples:
            return np.full_like(self.arrays["square"], np.nan)
        return self.arrays["square"] / self.duration

    @property
    def variance_of_mean(self) -> np.ndarray:
        """The square of the standard error of the mean; not-a-number without two batches."""
        if self.batches < 2:
            return np.full_like(self.arrays["between"], np.nan)
        return self.arrays["between"] / (self.duration * (self.batches - 1))

    def doubts(self, variance: float, variance_of_mean: float) -> list[str]:
        """Return reasons to doubt the errors, given both as means over all values.

        These may be those of all ranks.
        """
        if self.batches < _FEWEST_BATCHES:
            return [f"{self.batches} batches of {self.batch_length:g} only: errors are rough"]
        if not variance > 0:
            return []
        correlation = self.duration / 2 * variance_of_mean / variance
        if self.batch_length >= _SHORTEST_BATCH * correlation:
            return []
        return [
            f"batches of {self.batch_length:g} are {self.batch_length / correlation:.2g}"
            f" correlation times long, fewer than {_SHORTEST_BATCH:g}: errors are too small; make"
            " batch longer"
        ]


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
