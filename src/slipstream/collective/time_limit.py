"""How long a rank waits for others: not for ever."""

from __future__ import annotations

import math
import os
from typing import Any

from slipstream.errors import InputError, RunError

# What MPI may still read from, or write to, after ranks have waited in vain: kept for ever.
abandoned: list[Any] = []


# What has been waited for long is looked for less often: the wait is at most this fraction longer.
_FRACTION, _LONGEST_PAUSE = 1 / 200, 0.02


def longer_pause(waited: float) -> float:
    """Return for how many seconds to sleep after so many in vain, and leave the core to others."""
    return min(waited * _FRACTION, _LONGEST_PAUSE)


def timeout() -> float:
    """Return for how many seconds a rank waits for others: ``$SLIPSTREAM_TIMEOUT``, or 600."""
    text = os.environ.get("SLIPSTREAM_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:  # false for not-a-number, too
        raise InputError(f"SLIPSTREAM_TIMEOUT is {text!r}; accepted: a positive number of seconds")
    return seconds


class WaitedTooLong(RunError):
    """A rank has not answered within the time limit."""

    def __init__(self, who: str, seconds: float) -> None:
        super().__init__(
            f"{who} has waited for {seconds:g} s: a rank has died or takes another path; "
            "set SLIPSTREAM_TIMEOUT to wait longer"
        )
