"""The Lax-Wendroff scheme: its weights, and when it is stable.

The scheme is a tensor product of the one-dimensional one of Lax and Wendroff (1960): second order
in one stage, stable while no Courant number exceeds one, and exact where all are one.

Reference: J. B. White III and J. J. Dongarra, "Overlapping computation and communication for
advection on hybrid parallel computers", IPDPS 2011.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipstream.argument_checks import is_finite
from slipstream.errors import InputError

# Floating-point operations per point as the paper counts them: 27 products and 26 sums.
FLOPS = 53


def lax_wendroff_weights(courant: float) -> tuple[float, float, float]:
    """Return the weights of the points at -1, 0 and +1 along an axis of this Courant number."""
    return courant * (1 + courant) / 2, 1 - courant**2, -courant * (1 - courant) / 2


def check_courant(courant: Sequence[float]) -> tuple[float, float, float]:
    """Return the Courant numbers z, y, x; beyond 1 the scheme would be unstable."""
    given = tuple(courant) if isinstance(courant, Iterable) else ()
    if len(given) != 3 or not all(is_finite(number) and abs(number) <= 1 for number in given):
        raise InputError(f"courant is {courant}; accepted: three numbers from -1 to 1 (stability)")
    z, y, x = map(float, given)
    return z, y, x
