"""Forces that a Python program gives as functions, and their names in cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.printable_text import shown

PREFIX = "python:"
_GIVEN: dict[str, Callable[..., Any]] = {}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in cases, which is valid in this process only."""
    for name, known in _GIVEN.items():
        if known is function:
            return name
    label = getattr(function, "__qualname__", type(function).__name__)
    # Notebooks often define a function again: cached results belong to the earlier one.
    same = sum(name.partition("#")[0] == f"{PREFIX}{label}" for name in _GIVEN)
    name = f"{PREFIX}{label}" + (f"#{same + 1}" if same else "")
    _GIVEN[name] = function
    return name


def is_name(formula: Any) -> bool:
    """Whether a formula of a case is the name of a function."""
    return isinstance(formula, str) and formula.startswith(PREFIX)


class GivenFunction:
    """A function of x, y, z, and perhaps t, that returns the components of a field."""

    def __init__(self, name: str, key: str, size: int, zero: Sequence[int] = ()) -> None:
        if name not in _GIVEN:
            raise InputError(
                f"{key}: {name!r} was given by a Python program; give the function there again, by"
                " slipstream.Flow(forcing=...)"
            )
        self._function, self._key, self._size, self._zero = _GIVEN[name], key, size, zero
        self.has_time = self._takes(4)
        if not (self.has_time or self._takes(3)):
            raise InputError(f"{key}: the function must take x, y and z, or x, y, z and t")

    def _takes(self, count: int) -> bool:
        try:
            inspect.signature(self._function).bind(*[None] * count)
        except TypeError:
            return False
        except ValueError:  # some built-in functions have no signature
            return count == 3
        return True

    def component(self, number: int) -> Callable[..., Any]:
        """Return the function of a component, as `evaluator` does for a formula."""

        def values(x: Any, y: Any, z: Any, module: Any, time: float = 0.0) -> Any:
            found = self._function(x, y, z, *([time] * self.has_time))
            several = found if self._size > 1 else [found]
            if not hasattr(several, "__len__") or len(several) != self._size:
                raise InputError(
                    f"{self._key}: the function returns {shown(type(found).__name__)}; accepted:"
                    f" {self._size} components"
                )
            one, shape = several[number], np.broadcast_shapes(x.shape, y.shape, z.shape)
            try:
                one = module.broadcast_to(module.asarray(one, dtype=float), shape)
            except (TypeError, ValueError):
                raise InputError(
                    f"{self._key}: the function returns {shown(one)}; accepted: real numbers that"
                    f" broadcast to {shape}"
                ) from None
            if not bool(module.isfinite(one).all()):
                raise InputError(f"{self._key}: the function is not finite at some points")
            if number in self._zero and bool(one.any()):
                raise InputError(
                    f"numerics.plane: '2D2C', but component {number + 1} of {self._key} is not 0;"
                    " accepted: a force in the plane, or '2D3C'"
                )
            return one

        return values
