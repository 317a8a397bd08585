"""Forcing: what drives a field, mode by mode, and how strongly at a time.

A forcing is a fixed pattern, or a random one that changes: every correlation time a new one is
drawn, and in between the force goes from one to the next along a straight line. Patterns are drawn
from hashes of the wavenumber, so they depend on the seed and the time alone: not on the number of
ranks, nor on whether a run was interrupted. With a rate of injection the strength is chosen in
every step so that the work that is done is what was asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.family import sum_over_ranks
from slipstream.spectral.diagnostics import FieldParts
from slipstream.spectral.initial import random_modes
from slipstream.spectral.step import SpectralStep


class Forcing:
    """The forcing of a run. Collective.

    Parameters
    ----------
    settings : slipstream.case.spectral.Forcing
        The case's table.
    flow : SpectralStep
        What is forced; its `forcing` is set.
    communicator : mpi4py.MPI.Comm or None
        The ranks.
    pattern : array or None
        Fourier coefficients of a fixed pattern, of the shape of `flow.forcing`.
    """

    def __init__(
        self, settings: Any, flow: SpectralStep, communicator: Any, pattern: Any = None
    ) -> None:
        self._settings, self._flow, self._communicator = settings, flow, communicator
        first, count = flow.problem.forced
        self._forced = flow.modes_of(flow.state[first : first + count])
        self._force = flow.modes_of(flow.forcing)
        self._patterns: dict[int, Any] = {}
        self._is_random = pattern is None
        if self._is_random:
            places, _ = self._pattern(0)
        else:
            self._force[...] = pattern
            places = self._places_of(pattern)
        self._places = (slice(None), *places)
        weight = flow.device.array(flow.wavenumbers.multiplicity)
        self._weight = weight[places[2]]
        self.power = 0.0

    def _places_of(self, pattern: Any) -> tuple[Any, ...]:
        """Return where a pattern has modes, as indices that broadcast."""
        strength = np.abs(self._flow.device.to_host(pattern)).max(axis=0)
        least = 1e-13 * strength.max(initial=0.0)
        others = [tuple({0, 1, 2} - {axis}) for axis in range(3)]
        places = [np.flatnonzero(strength.max(axis=o, initial=0.0) > least) for o in others]
        return tuple(self._flow.device.array(place) for place in np.ix_(*places))

    def prepare(self, time: float, step: float) -> float:
        """Set the force at a time; return what it is multiplied by. Collective.

        A force a f that acts for a time h on a velocity u does work a h <f.u> + a^2 h^2 <f.f> / 2.
        Of the two strengths for which that is what was asked for, the smaller is taken: a force
        that has hardly any power for the moment does not become huge.

        Parameters
        ----------
        time : float
            The time.
        step : float
            The time step for which it acts; 0 to learn of its power only.
        """
        if self._is_random:
            self._draw(time)
        self.power, square = self._products()
        wanted = self._settings.injection
        if wanted is None:
            return 1.0
        root = math.sqrt(self.power * self.power + 2 * wanted * step * square)
        together = self.power + math.copysign(root, self.power)
        if not together:  # the flow does not move along the force, and no time is given
            return 1.0
        self.power = wanted
        return 2 * wanted / together

    def _draw(self, time: float) -> None:
        duration = self._settings.correlation_time
        number = math.floor(time / duration) if duration else 0
        part = time / duration - number if duration else 0.0
        needed = {number, number + 1} if duration else {number}
        self._patterns = {n: p for n, p in self._patterns.items() if n in needed}
        for one in needed - self._patterns.keys():
            _, self._patterns[one] = self._pattern(one)
        values = self._patterns[number]
        if part:
            values = (1 - part) * values + part * self._patterns[number + 1]
        self._force[self._places] = values

    def _pattern(self, number: int) -> tuple[tuple[Any, ...], Any]:
        """Return where a random pattern has modes, as indices that broadcast, and these."""
        settings, device = self._settings, self._flow.device
        places, modes = random_modes(
            self._flow.wavenumbers, settings.shells, settings.amplitude, settings.seed, number
        )
        values = device.array(modes.astype(self._flow.problem.complex_dtype))
        return tuple(device.array(place) for place in places), values

    def _products(self) -> tuple[float, float]:
        """Return the means over the box of force times field, and of the force's square."""
        self._flow.device.synchronize()
        force, field = self._force[self._places], self._forced[self._places]
        pairs = (force, field), (force, force)
        mine = [float((self._weight * (a.real * b.real + a.imag * b.imag)).sum()) for a, b in pairs]
        power, square = sum_over_ranks(self._communicator, np.array(mine))
        return float(power), float(square)


def check_forced_field(settings: Any, fields: list[FieldParts]) -> tuple[int, int]:
    """Return first component and number of components of the field that is forced.

    Raises
    ------
    InputError
        If there is no such field, or it cannot be forced so.
    """
    name = settings.field
    for field in fields:
        if field.name == name:
            if settings.kind != "formula" and not field.is_vector:
                raise InputError(
                    f"forcing.kind: {settings.kind!r} is for vectors, {name!r} is a scalar; "
                    "accepted for it: formula"
                )
            return field.first, field.size
    accepted = ", ".join(field.name for field in fields)
    raise InputError(f"forcing.field: the model has no field {name!r}; it has: {accepted}")
