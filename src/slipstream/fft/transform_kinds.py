"""Kinds of transform along an axis: Fourier, or a cosine or sine transform of types I to IV.

Cosine and sine transforms are those of `scipy.fft`, without a factor. Each is a Fourier transform
of the points, extended evenly or oddly at either end to a full period.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.accepted import FFT_KINDS
from slipstream.argument_checks import name_among
from slipstream.errors import InputError

_INVERSE_TYPE = {"1": "1", "2": "3", "3": "2", "4": "4"}


def inverse_kind(kind: str) -> str:
    """Return the kind that inverts another one, up to a factor."""
    return kind if kind == "fft" else kind[:3] + _INVERSE_TYPE[kind[3]]


def half_waves(kind: str, n: int) -> np.ndarray:
    """Return the number of half waves of each mode of a cosine or sine transform."""
    first = {"dct1": 0, "dct2": 0, "dst1": 1, "dst2": 1}.get(kind)
    return np.arange(n) + 0.5 if first is None else np.arange(first, first + n)


def places(kind: str, n: int) -> np.ndarray:
    """Return the places of the points of an axis, as fractions of its length."""
    index = np.arange(n)
    if kind == "dct1":
        return index / (n - 1)
    if kind == "dst1":
        return (index + 1) / (n + 1)
    return {"fft": index, "dct3": index, "dst3": index + 1}.get(kind, index + 0.5) / n


def checked_kinds(kinds: str | Sequence[str], axes: Sequence[int]) -> tuple[str, ...]:
    """Return the kind of each axis of a transform, or raise `InputError`."""
    if isinstance(kinds, str):
        kinds = (kinds,) * len(axes)
    if not isinstance(kinds, Sequence) or len(kinds) != len(axes):
        raise InputError(
            f"kinds {kinds!r}; accepted: one name, or one for each of the {len(axes)} axes, of "
            f"{', '.join(FFT_KINDS)}"
        )
    return tuple(name_among("kinds", kind, FFT_KINDS) for kind in kinds)
