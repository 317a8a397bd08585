"""Whether the products of a model conserve its energy, found out with a random field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import (
    COORDINATES,
    TIME,
    WAVENUMBERS,
    FilteredSource,
    Value,
    filters_in,
    values_in,
    with_numbers,
)

if TYPE_CHECKING:
    from slipstream.equations.lowering import Lowered

# Points along each axis: enough for products of six fields of the smallest wavenumbers.
_POINTS = 8
_TIME = 0.3
# The part of all energy that products exchange, at most, which is rounding.
_ROUNDING = 1e-9


def conserves_energy(model: Lowered) -> bool:
    """Return whether products leave the energy of all active fields as it is."""
    with np.errstate(all="ignore"):
        gained, exchanged = _RandomFields(model).power_of_products()
    return abs(gained) <= _ROUNDING * exchanged


class _RandomFields:
    """Random parameters, and fields of the smallest wavenumbers along each axis."""

    def __init__(self, model: Lowered) -> None:
        random = np.random.default_rng(1)
        numbers = random.uniform(0.5, 1.0, len(model.parameters)).tolist()
        self._model, self._numbers = model, dict(zip(model.parameters, numbers, strict=True))
        waves = np.fft.fftfreq(_POINTS, 1 / _POINTS)
        lines = [np.zeros(1) if axis in model.flat.axes else waves for axis in range(3)]
        self._waves = np.meshgrid(*lines, indexing="ij")
        line = 2 * np.pi * np.arange(_POINTS) / _POINTS
        self._places = np.meshgrid(*(line[: len(one)] for one in lines), indexing="ij")
        is_kept = np.max(np.abs(self._waves), axis=0) <= 1
        shape = len(model.unknowns), *is_kept.shape
        modes = is_kept * np.fft.fftn(random.standard_normal(shape), axes=(1, 2, 3))
        modes[model.dropped] = 0
        square = np.sum(np.square(self._waves), axis=0)
        for first in model.vectors:
            vector = modes[first : first + 3]
            along = np.sum(self._waves * vector, axis=0) / np.where(square > 0, square, 1)
            vector -= self._waves * along
        self._modes = dict(zip(model.unknowns, modes, strict=True))

    def power_of_products(self) -> tuple[float, float]:
        """Return the rate at which the energy grows, and the sum of what modes gain or lose."""
        gained = exchanged = 0.0
        active = self._model.unknowns[: self._model.active]
        for unknown, form in zip(active, self._model.rates, strict=False):
            rate: Any = 0
            for points, factor in form.terms.items():
                is_linear = isinstance(points, Value) and not isinstance(points, FilteredSource)
                if values_in(sympy.sympify(points)) and not is_linear:
                    rate = rate + self._multiplier(factor) * np.fft.fftn(self._at_points(points))
            power = np.real(self._modes[unknown].conj() * rate)
            gained, exchanged = gained + power.sum(), exchanged + np.abs(power).sum()
        return float(gained), float(exchanged)

    def _at_points(self, points: sympy.Expr) -> Any:
        """Return an expression at the points; in this box coordinates have the period 2 pi."""
        values = values_in(points)
        function = array_function((*values, *COORDINATES, TIME), points.subs(self._numbers))
        fields = (np.fft.ifftn(self._spectrum(one)).real for one in values)
        return function(*fields, *self._places, _TIME) + 0 * self._places[0]

    def _spectrum(self, value: Value) -> Any:
        source = value.undifferentiated
        modes = self._modes.get(source)
        if modes is None:
            modes = np.fft.fftn(self._at_points(source))
        return self._multiplier(value.multiplier) * modes

    def _multiplier(self, factor: sympy.Expr) -> Any:
        factor = with_numbers(sympy.sympify(factor), self._numbers)
        filters = filters_in(factor)
        function = array_function((*filters, *WAVENUMBERS), factor)
        return function(*map(self._filter, filters), *self._waves)

    def _filter(self, one: Any) -> Any:
        at_waves = array_function(WAVENUMBERS, one.function)(*self._waves) + 0 * self._waves[0]
        at_zero = float(one.at_zero)
        return np.where(np.any(self._waves, axis=0), np.nan_to_num(at_waves), at_zero)
