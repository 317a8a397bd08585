"""Checks of arguments that users give."""

from __future__ import annotations

import operator
from typing import Any

from slipstream.errors import InputError


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return a whole number in a range, or raise `InputError`."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or high is not None and number > high:
        accepted = f"{low} to {high}" if high is not None else f"whole numbers of at least {low}"
        raise InputError(f"{name} is {value!r}; accepted: {accepted}")
    return number
