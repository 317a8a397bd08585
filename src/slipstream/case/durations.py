"""Durations by the clock, as cases give them: ``"23h30m"``, or seconds as a number."""

from __future__ import annotations

import math
import re
from typing import Any

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _SECONDS))
ACCEPTED = "seconds as a number, or text such as '20s', '90m', '23h30m' and '1d2h'"
_LONGEST = 100


def seconds_of(duration: Any) -> float:
    """Return the seconds of a duration; a ValueError tells what is accepted."""
    seconds = math.nan
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    elif isinstance(duration, str) and 0 < len(duration) <= _LONGEST:
        found = _DURATION.fullmatch(duration)
        if found:
            parts = found.groupdict()
            seconds = sum(float(parts[unit] or 0) * size for unit, size in _SECONDS.items())
    if not 0 < seconds < math.inf:
        raise ValueError(f"accepted: {ACCEPTED}")
    return seconds
