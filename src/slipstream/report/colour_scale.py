"""Which value has which colour: the same rule for pictures, movies and notebooks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# From dark to bright, and to both sides of zero. Both are perceptually uniform.
INTENSITY, DIVERGING = "inferno", "RdBu_r"
# The smaller of the two signs counts from this part of the larger one on: not what rounding, or an
# overshoot, makes of a positive field.
_BOTH_SIGNS = 0.05


@dataclass(frozen=True)
class ColourScale:
    """The values of the first and the last colour, a map, and whether values lie beyond them."""

    low: float
    high: float
    map_name: str
    # As Matplotlib calls it: which ends of a colour bar are arrows.
    extend: str = "neither"

    @classmethod
    def between(cls, low: float, high: float, map_name: str = "") -> ColourScale:
        """Return a scale between two values: of both signs if zero is well between them."""
        return cls(low, high, map_name or (DIVERGING if low < 0 < high else INTENSITY))


def colour_scale(values: np.ndarray, brightest: float = 1.0, map_name: str = "") -> ColourScale:
    """Return the scale of values, which may be masked or not-a-number in parts.

    Values of both signs get a map that is centred at zero; others begin at zero unless they are far
    from it. That quantile of them which is `brightest` gets the last colour.
    """
    seen = np.ma.compressed(np.ma.masked_invalid(values))
    ends = np.quantile(seen, [1 - brightest, brightest]) if seen.size else (0.0, 1.0)
    low, high = map(float, ends)
    if low < 0 < high and min(-low, high) > _BOTH_SIGNS * max(-low, high):
        largest = float(np.quantile(np.abs(seen), brightest))
        return ColourScale(
            -largest, largest, map_name or DIVERGING, "both" if brightest < 1 else "neither"
        )
    if 0 <= low < 0.5 * high:
        low = 0.0
    if not high > low:
        high = float(seen.max())
    if not high > low:
        high = low + (abs(low) or 1.0)
    return ColourScale(low, high, map_name or INTENSITY, "max" if brightest < 1 else "neither")
