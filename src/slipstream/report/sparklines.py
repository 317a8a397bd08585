"""Curves as a line of text."""

from __future__ import annotations

import numpy as np

_BARS = "▁▂▃▄▅▆▇█"
# Positive values that span more than this are drawn by their logarithms.
_SPAN = 1e3


def sparkline(times: np.ndarray, values: np.ndarray, width: int) -> str:
    """Return values against time as a line of so many characters at most.

    Each is the mean of a part of the time; parts without a finite value are left blank.
    """
    finite = np.isfinite(values) & np.isfinite(times)
    times, values = times[finite], values[finite]
    if not values.size or width < 1:
        return ""
    if values.min() > 0 and values.max() > _SPAN * values.min():
        values = np.log(values)
    width = min(width, values.size)
    span = times[-1] - times[0]
    parts = (times - times[0]) / span * width if span > 0 else np.zeros(times.size)
    places = np.clip(parts.astype(int), 0, width - 1)
    counts = np.bincount(places, minlength=width)
    sums = np.bincount(places, values, width)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    low, high = np.nanmin(means), np.nanmax(means)
    # What differs by rounding alone is level.
    scale = high - low if high - low > 1e-12 * max(abs(low), abs(high)) else 0.0
    text = ""
    for mean, count in zip(means, counts, strict=True):
        height = (mean - low) / scale if scale else 0.5
        text += _BARS[min(int(height * len(_BARS)), len(_BARS) - 1)] if count else " "
    return text
