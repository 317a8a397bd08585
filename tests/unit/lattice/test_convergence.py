"""When a quantity is taken for steady: near its limit, and not where it only moves slowly."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.lattice.convergence import Convergence


def geometric(limit, distance, factor):
    """Return an endless sequence whose relative distance to its limit shrinks by a factor."""
    return (limit * (1 + distance * factor**n) for n in itertools.count())


def followed(values, tolerance=1e-3):
    """Return for each value the estimate of the distance, and whether it counts as converged."""
    convergence = Convergence(tolerance)
    return [(convergence.add(value), convergence.converged) for value in values]


LIMITS = st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9)


@given(LIMITS, st.sampled_from([-0.5, 0.5, 3.0]), st.floats(0.5, 0.98))
def test_distance_of_geometric_sequences_is_doubled_of_the_last_two(limit, distance, factor):
    values = np.array(list(itertools.islice(geometric(limit, distance, factor), 20)))
    away = np.abs(values - limit) / np.abs(values)
    estimates = [estimate for estimate, _ in followed(values.tolist())]
    expected = 2 * np.maximum(away[3:], away[2:-1])
    np.testing.assert_allclose(estimates[3:], expected, rtol=1e-6, atol=1e-12)


@given(LIMITS, st.floats(0.01, 0.5), st.booleans())
def test_distance_of_fast_or_alternating_sequences_is_not_underestimated(limit, factor, alternates):
    sequence = geometric(limit, 0.5, -factor if alternates else factor)
    values = list(itertools.islice(sequence, 12))
    for value, (estimate, _) in list(zip(values, followed(values), strict=True))[2:]:
        assert estimate >= abs(value - limit) / abs(value) * (1 - 1e-6) - 1e-12


@given(LIMITS, st.floats(0.1, 0.98), st.sampled_from([1e-2, 1e-4, 1e-8]))
def test_converged_is_what_is_within_the_tolerance_and_soon_after_it_is(limit, factor, tolerance):
    convergence = Convergence(tolerance)
    values = geometric(limit, 0.5, factor)
    number = 0
    while not convergence.converged:
        value, number = next(values), number + 1
        convergence.add(value)
    assert abs(value - limit) <= tolerance * abs(value) * (1 + 1e-6)
    # Fast ones are judged by their last change, up to one more factor; then twice, and by three.
    needed = math.log(tolerance / 2 / 0.5) / math.log(factor)
    late = max(0.0, math.log(1 / factor - 1) / -math.log(factor)) if factor < 0.5 else 0
    assert number <= max(4, needed + late + 4)


def test_nothing_is_said_of_fewer_than_three_values():
    assert followed([1.0, 1.0 + 1e-6]) == [(math.inf, False)] * 2


@pytest.mark.parametrize("factor", [0.999, 0.99999])
def test_slow_creep_is_not_taken_for_convergence(factor):
    """Each change is far below the tolerance, but there are many of them to come."""
    values = list(itertools.islice(geometric(1.0, -0.5, factor), 500))
    assert abs(values[-1] / values[-2] - 1) < 1e-3 < 0.2 < 1 - values[-1]
    assert not any(converged for _, converged in followed(values))


@pytest.mark.parametrize("growth", [1.0, 1.001, 2.0])
def test_what_moves_on_at_the_same_pace_or_faster_has_no_limit(growth):
    values = 1 + 2.0**-20 * np.cumsum(growth ** np.arange(20))
    assert followed(values)[2:] == [(math.inf, False)] * 18


@given(st.integers(2, 40), st.floats(0, 2 * math.pi))
def test_swinging_is_not_taken_for_convergence(period, phase):
    """The turning points, where little moves, are passed too."""
    place = 2 * math.pi * np.arange(200) / period + phase
    swing = np.sin(place) if period > 2 else (-1.0) ** np.arange(200)
    values = 1 + 0.1 * swing
    assert not any(converged for _, converged in followed(values))


def test_a_swing_that_dies_converges_when_it_has():
    place = np.arange(200)
    values = 1 + 0.1 * np.exp(-place / 15) * np.cos(place / 2)
    first = [converged for _, converged in followed(values)].index(True)
    assert np.abs(values[first:] - 1).max() <= 1e-3
    assert first < 120


def swing_from_rest(period, decay):
    """Return a quantity that rises from 0, overshoots, and swings to its limit 1."""
    place = np.arange(1, 20 * decay + 9 * period)
    return 1 - np.exp(-place / decay) * np.cos(2 * math.pi * place / period)


@given(st.integers(3, 60), st.floats(0.5, 3))
def test_a_slow_swing_converges_when_it_has_died_and_not_where_it_turns(period, periods):
    """At its first turning point it is far from its limit, and hardly moves."""
    decay, tolerance = period * periods, 1e-3
    values = swing_from_rest(period, decay)
    convergence = Convergence(tolerance)
    for value in values:
        convergence.add(value)
        if convergence.converged:
            break
    number = len(convergence.values) - 1
    assert convergence.converged
    assert np.abs(values[number:] - 1).max() <= tolerance
    assert number <= 3 * decay * math.log(1 / tolerance) + period


@pytest.mark.parametrize("period", [20, 40, 90])
@pytest.mark.parametrize("phase", [0, 1, 2, 3])
def test_a_small_slow_swing_about_what_has_settled_is_seen(period, phase):
    place = np.arange(1, 12 * period)
    swing = 0.1 * np.exp(-place / period) * np.cos(2 * math.pi * place / period + phase)
    values = 1 - np.exp(-place / 4) + swing
    first = [converged for _, converged in followed(values)].index(True)
    assert np.abs(values[first:] - 1).max() <= 1e-3


def test_swinging_within_the_tolerance_is_near_enough():
    values = 1 + 2e-4 * np.array([0, 1, 0.5, -0.9, 0.8, -1, 0.9, -0.7, 1, -1])
    assert followed(values)[-1][1]


def test_what_stands_still_has_converged_unless_at_nothing():
    assert followed([2.0] * 4) == [(math.inf, False)] * 2 + [(0.0, False), (0.0, True)]
    assert followed([1.0, 1.1, 1.1, 1.1])[-1] == (0.0, True)
    assert not any(converged for _, converged in followed([0.0] * 10))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_never_converges(value):
    assert not any(converged for _, converged in followed([1.0, 1.1, *[value] * 9]))
    assert not any(converged for _, converged in followed([value] * 9))


def test_once_within_the_tolerance_is_not_enough():
    # Like 1 + 1/2 + 1/4 ..., and then on at the old pace.
    steps = [1.0, 0.1, 1e-5, 1.0, 0.1, 1e-5, 1.0]
    values = 10 + np.cumsum(steps)
    assert not any(converged for _, converged in followed(values))
    # Of the last three values alone the estimate would be small.
    assert 2 * abs(values[5] - values[4]) < 1e-3 * values[5]
