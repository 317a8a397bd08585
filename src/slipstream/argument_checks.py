"""Checks of arguments that users give."""

from __future__ import annotations

import operator
from typing import Any

from slipstream.array_types import Comm
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


def check_communicator(comm: Comm) -> None:
    """Raise `InputError` unless this is None, or a communicator of mpi4py within one group."""
    if comm is None:
        return
    # What has been freed, and MPI.COMM_NULL, are false.
    if not hasattr(comm, "Is_inter") or not comm or comm.Is_inter():
        raise InputError(f"comm is {comm!r}; accepted: None or an intracommunicator of mpi4py")
