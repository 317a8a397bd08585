"""Reference cases, and their findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipstream.array_types import Comm
from slipstream.device import Device


@dataclass(frozen=True)
class Finding:
    """A figure and its expected value; the same on all ranks.

    The error is relative, and absolute where zero is expected.
    """

    what: str
    source: str
    expected: float
    got: float
    tolerance: float

    @property
    def error(self) -> float:
        """The error of the figure."""
        return abs(self.got - self.expected) / (abs(self.expected) or 1.0)

    @property
    def is_within(self) -> bool:
        """Whether the error is within the tolerance; not if it is not a number."""
        return math.isfinite(self.error) and self.error <= self.tolerance


Run = Callable[[Device, Comm], Iterator[Finding]]


@dataclass(frozen=True)
class ReferenceCase:
    """The title of a case, and the collective function that runs it and yields its findings."""

    title: str
    run: Run
