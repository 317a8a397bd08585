"""Which wavenumbers of an axis exist in a spectral array.

Modes are numbered as in `numpy.fft`: 0, 1, ..., then the negative ones. A truncation keeps the
lowest of either sign; the modes in between are not stored, transformed or sent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.argument_checks import is_finite
from slipstream.errors import InputError

# The most points per mode: more is considered a mistake.
_MOST_PADDING = 16


@dataclass(frozen=True)
class Modes:
    """The kept modes of one axis: ``0 .. low-1`` and ``size-high .. size-1``.

    Attributes
    ----------
    size : int
        Number of points along the axis in physical space.
    low, high : int
        Number of modes kept at either end of the range; ``high`` is 0 for the half-complex axis
        of a real transform, and between walls.
    walls : bool
        Whether the axis ends at walls: its modes are sines or cosines, whose period is twice the
        length.
    """

    size: int
    low: int
    high: int
    walls: bool = False

    @property
    def count(self) -> int:
        """Number of modes kept."""
        return self.low + self.high

    @property
    def period(self) -> int:
        """Number of points in a period."""
        return 2 * self.size if self.walls else self.size

    @property
    def gap(self) -> int:
        """Number of modes of a complex transform that are not kept."""
        return self.size - self.count

    @property
    def has_nyquist(self) -> bool:
        """Whether the Nyquist mode of an even number of points is kept."""
        return self.size % 2 == 0 and max(self.low - 1, self.high) == self.size // 2

    def wavenumbers(self) -> np.ndarray:
        """Return the integer wavenumbers in the order of storage."""
        return np.concatenate([np.arange(self.low), np.arange(-self.high, 0)])

    def positions(self) -> np.ndarray:
        """Return, for each of the `size` modes, its index among those kept, or -1."""
        positions = np.full(self.size, -1, dtype=np.int64)
        positions[: self.low] = np.arange(self.low)
        positions[self.size - self.high :] = np.arange(self.low, self.count)
        return positions


def truncated(size: int, largest: int, half: bool = False) -> Modes:
    """Keep the wavenumbers ``|k| <= largest``; the Nyquist mode is never kept.

    A Nyquist mode has no partner of the opposite sign, and so no derivative.
    """
    largest = min(largest, (size - 1) // 2)
    return Modes(size, largest + 1, 0 if half else largest)


def padded_sizes(
    sizes: Sequence[int], axes: Sequence[int], padding: float | str | Sequence[float] | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Return the number of points and the padding factor of every axis.

    Raises
    ------
    InputError
        If the padding is invalid, see `DistributedFFT`.
    """
    if padding is None:
        return tuple(sizes), None
    given: Any = 1.5 if isinstance(padding, str) and padding == "3/2" else padding
    several = isinstance(given, Sequence) and not isinstance(given, str)
    factors: list[Any] = list(given) if several else [given] * len(axes)
    if (
        not axes
        or len(factors) != len(axes)
        or not all(is_finite(one) and 1 <= one <= _MOST_PADDING for one in factors)
    ):
        raise InputError(
            f"padding {padding!r}; accepted: None, '3/2', or a number from 1 to {_MOST_PADDING}, "
            f"or one for each of the {len(axes)} Fourier axes"
        )
    result = list(sizes)
    for axis, factor in zip(axes, factors, strict=True):
        result[axis] = math.ceil(sizes[axis] * factor)
    return tuple(result), tuple(map(float, factors))


def truncate(
    shape: Sequence[int], truncation: str | Sequence[int] | None, real: bool
) -> tuple[Modes, ...]:
    """Return the modes of every axis of a transform.

    Parameters
    ----------
    shape : sequence of int
        Physical shape; the last axis is half-complex if `real`.
    truncation : None, "2/3", "nyquist" or sequence of int
        Keep all modes; the modes free of aliasing in a quadratic product (3 k < n: Orszag, J.
        Atmos. Sci. 28, 1074 (1971)); all but the Nyquist modes; or modes up to a given wavenumber
        along each axis.
    real : bool
        Whether the physical field is real.

    Raises
    ------
    InputError
        If the truncation is unknown, or larger than the wavenumbers that there are.
    """
    halves = [real and axis == len(shape) - 1 for axis in range(len(shape))]
    if truncation is None:
        return tuple(
            Modes(n, n // 2 + 1, 0) if half else Modes(n, n - n // 2, n // 2)
            for n, half in zip(shape, halves, strict=True)
        )
    try:
        if isinstance(truncation, str):
            largest = {"2/3": [(n - 1) // 3 for n in shape], "nyquist": list(shape)}[truncation]
        else:
            largest = [operator.index(k) for k in truncation]
    except (KeyError, TypeError):
        largest = []
    if len(largest) != len(shape) or min(largest) < 0:
        raise InputError(
            f"truncation {truncation!r} is unknown; accepted: None, '2/3', 'nyquist' or the "
            f"largest wavenumber of each of the {len(shape)} axes"
        )
    most = [(n - 1) // 2 for n in shape]
    if not isinstance(truncation, str) and any(k > n for k, n in zip(largest, most, strict=True)):
        raise InputError(
            f"truncation {truncation!r}: there are no such wavenumbers; accepted: at most"
            f" {tuple(most)}, without Nyquist modes"
        )
    return tuple(truncated(n, k, h) for n, k, h in zip(shape, largest, halves, strict=True))
