"""Averages over time and their errors, against processes whose correlation is known."""

import numpy as np
import pytest

from slipstream.engine.errors import InputError
from slipstream.show.series_statistics import (
    FEWEST_CORRELATION_TIMES,
    cell_averages,
    rounded,
    sample_weights,
    time_average,
)


def process(times, correlation_time, seeds, random):
    """Return Ornstein-Uhlenbeck processes of mean 0 and variance 1 at some times: AR(1)."""
    values = np.empty((len(times), seeds))
    values[0] = random.standard_normal(seeds)
    for n, kept in enumerate(np.exp(-np.diff(times) / correlation_time)):
        noise = random.standard_normal(seeds)
        values[n + 1] = kept * values[n] + np.sqrt(1 - kept**2) * noise
    return values


def variance_of_mean(times, correlation_time):
    weights = sample_weights(times) / sample_weights(times).sum()
    return weights @ np.exp(-np.abs(times[:, None] - times) / correlation_time) @ weights


def coverage(times, correlation_time, seeds=2000, offset=7.0):
    """Return how often the true mean is within one and two errors, and the average itself."""
    random = np.random.default_rng(len(times))
    record = offset + process(times, correlation_time, seeds, random)
    found = time_average(times, record, since=times[0])
    away = np.abs(found.mean - offset) / found.error
    return (away < 1).mean(), (away < 2).mean(), found


# A normal distribution has 0.683 and 0.954 there; 2000 seeds know this to 0.01 and 0.005.
@pytest.mark.thorough
@pytest.mark.parametrize("spacing", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("length", [120, 400])
def test_errors_are_as_large_as_they_are_said_to_be(spacing, length):
    times = np.arange(0, length, spacing)
    once, twice, actual = coverage(times, 1.0)
    assert 0.63 < once < 0.72
    assert 0.90 < twice < 0.97
    known = variance_of_mean(times, 1.0)
    assert np.sqrt(np.mean(actual.error**2)) == pytest.approx(np.sqrt(known), rel=0.15)
    # As sums over lags have it.
    kept = np.exp(-spacing)
    expected = spacing * (0.5 + kept / (1 - kept))
    assert np.median(actual.correlation_time) == pytest.approx(expected, rel=0.2)
    assert np.median(actual.fluctuation) == pytest.approx(1, rel=0.1)


def twice_as_smooth(times, correlation_time, seeds, random):
    """Return processes that have a derivative, as the energy of a flow: one made of the other."""
    kept = np.exp(-2 * (times[1] - times[0]) / correlation_time)
    early = np.arange(-20 * correlation_time, times[-1], times[1] - times[0])
    values = process(early, correlation_time / 2, seeds, random)
    for n in range(1, len(values)):
        values[n] += kept * values[n - 1]
    return values[-len(times) :]


@pytest.mark.parametrize("made", [process, twice_as_smooth])
@pytest.mark.parametrize("length", [2, 5, 12, 20, 50])
def test_short_records_have_wide_errors_or_a_warning(made, length):
    """The statement of docs/howto/averages.md on the number of records within two errors."""
    random = np.random.default_rng(7)
    times = np.linspace(0, length, 20 * max(length, 10))
    found = time_average(times, made(times, 1.0, 1000, random), since=0)
    is_within = np.abs(found.mean) < 2 * found.error
    is_warned = found.correlation_times < FEWEST_CORRELATION_TIMES
    assert (is_within | is_warned).mean() > 0.90
    if length >= 12:
        assert is_within.mean() > 0.89


@pytest.mark.slow
def test_errors_of_samples_at_unequal_distances():
    random = np.random.default_rng(5)
    for shape in (1, 4):  # of gaps from very small to many times their mean
        times = np.cumsum(random.gamma(shape, 0.3 / shape, 700))
        once, twice, actual = coverage(times, 1.0)
        assert 0.63 < once < 0.73
        assert 0.91 < twice < 0.97
        known = variance_of_mean(times, 1.0)
        assert np.sqrt(np.mean(actual.error**2)) == pytest.approx(np.sqrt(known), rel=0.1)


def test_samples_count_by_their_time():
    """Adaptive steps are short where a flow is fast: rows alike would count it too often."""
    speed = 2 + np.sin(np.linspace(0, 40 * np.pi, 100001)[:-1])
    place, rows = 0, []
    while place < len(speed):
        rows.append(place)
        place += int(300 / speed[place] ** 3) + 1
    times, values = np.array(rows) * 1e-3, speed[rows]
    assert abs(values.mean() - 2) > 0.4
    assert time_average(times, values, since=0).mean == pytest.approx(2, abs=0.01)
    weights = sample_weights(times)
    cells = cell_averages(times, values[:, None], 77)
    assert cells.mean() == pytest.approx(weights @ values / weights.sum(), rel=1e-12)


def test_equal_spacing_is_the_mean_of_the_rows():
    random = np.random.default_rng(1)
    values = 1e9 + random.standard_normal((300, 3, 2))
    actual = time_average(np.arange(300) * 0.1, values, since=0)
    np.testing.assert_allclose(actual.mean, values.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(actual.fluctuation, values.std(axis=0), rtol=1e-6)
    assert actual.error.shape == actual.correlation_times.shape == (3, 2)
    # Each element is as it would be alone.
    alone = time_average(np.arange(300) * 0.1, values[:, 2, 1], since=0)
    assert alone.mean == pytest.approx(actual.mean[2, 1], rel=1e-15)
    assert alone.error == pytest.approx(actual.error[2, 1], rel=1e-12)


@pytest.mark.slow
def test_many_rows_have_the_same_error():
    """Where lags are of cells, since there are too many rows."""
    times = np.arange(0, 2000, 0.05)
    once, twice, found = coverage(times, 1.0, 100)
    assert np.median(found.error) == pytest.approx(np.sqrt(2 / 2000), rel=0.1)
    assert np.median(found.correlation_time) == pytest.approx(1, rel=0.15)


def test_a_short_record_is_warned_of_with_its_length():
    random = np.random.default_rng(2)
    times = np.arange(0, 4, 0.1)
    records = process(times, 1.0, 200, random).T
    actual = [time_average(times, one, since=0) for one in records]
    warned = [one for one in actual if one.warnings]
    assert len(warned) > 100
    number = f"{warned[0].correlation_times:.2g} correlation times"
    assert number in warned[0].warnings[0]
    assert all(
        one.correlation_times >= FEWEST_CORRELATION_TIMES for one in actual if not one.warnings
    )
    long = process(np.arange(0, 200, 0.2), 1.0, 50, random).T
    assert not any(time_average(np.arange(0, 200, 0.2), one, since=0).warnings for one in long)
    # A trend has no correlation time that is short.
    assert time_average(times, np.exp(-times), since=0).warnings
    assert "3 samples only" in time_average([0, 1, 2], [1, 2, 3.0]).warnings[0]
    assert "5 samples only" in time_average(range(5), [1, 2, 1, 3.0, 1], since=0).warnings[0]


def test_the_spin_up_is_left_out_and_named():
    random = np.random.default_rng(3)
    times = np.arange(0, 200, 0.2)
    starts = []
    for record in process(times, 1.0, 40, random).T:
        actual = time_average(times, 5 + record + 30 * np.exp(-times / 4))
        assert actual.is_spin_up_found
        assert abs(actual.mean - 5) < 5 * actual.error
        starts.append(actual.since)
    assert 10 < np.median(starts) < 50
    # A number that is given is taken.
    actual = time_average(times, times * 0 + 1.0, since=50, until=100)
    assert (actual.since, actual.until, actual.is_spin_up_found) == (50, 100, False)
    # Without a spin-up little is lost.
    actual = [time_average(times, one) for one in process(times, 1.0, 40, random).T]
    assert np.median([one.since for one in actual]) < 20
    # What does not become steady is said.
    assert any("not steady" in one for one in time_average(times, times).warnings)


def test_what_does_not_fluctuate_has_no_error():
    found = time_average(np.arange(50), np.full(50, 0.1))
    assert (found.mean, found.error, found.fluctuation) == (0.1, 0, 0)
    assert found.correlation_times == np.inf
    assert not found.warnings


def test_holes_do_not_count():
    values = np.ones(100)
    values[0] = values[40] = np.nan
    found = time_average(np.arange(100), values)
    assert found.mean == 1
    assert found.samples == 98
    assert found.warnings == ("1 sample is no number, and left out",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"times": [0, 1], "values": [1, 2], "since": 3},
            "no samples since 3; there are: t = 0 to 1",
        ),
        ({"times": [], "values": []}, "no samples"),
        ({"times": [0, 0], "values": [1, 2]}, "times do not increase"),
        ({"times": [0, 1], "values": ["a", "b"]}, "accepted: real numbers"),
        ({"times": [0, 1], "values": [1, 2, 3]}, "as many as"),
        ({"times": [0, 1], "values": [1, 2], "until": np.nan}, "until is nan"),
    ],
)
def test_what_cannot_be_averaged_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        time_average(**arguments)


def test_numbers_have_the_digits_of_their_error():
    assert rounded(0.123456, 0.00123) == "0.1235 ± 0.0012"
    assert rounded(1234.5678, 12.3) == "1235 ± 12"
    assert rounded(1.23456e-9, 2.34e-11) == "(1.235 ± 0.023)e-09"
    assert rounded(2.0, 0.0) == "2 ± 0"
    assert str(time_average([0, 1, 2], [1, 2, 3.0])).startswith("2 ± nan, t = 0 to 2")
