"""Wavenumbers of the modes that a rank holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from slipstream.fft import Modes, SlabGeometry


class Wavenumbers:
    """Physical wavenumbers 2 pi m / L: `x`, `y` and `z` of one rank's modes."""

    def __init__(self, geometry: SlabGeometry, lengths: tuple[float, float, float]) -> None:
        box = geometry.spectral_box
        parts = box.slices()
        self.integers = [m.wavenumbers() for m in geometry.modes]
        axes = [2 * math.pi / L * m for m, L in zip(self.integers, lengths, strict=True)]
        self.all_axes = axes
        self.z, self.y, self.x = (axis[part] for axis, part in zip(axes, parts, strict=True))
        flat = [axis for axis, m in enumerate(reversed(geometry.modes)) if m.size == 1]
        # The axis normal to a plane flow (0 is x): the only one of a single point, if there is one.
        self.normal = flat[0] if len(flat) == 1 else None
        # Width of the shells of spectra.
        self.unit = smallest_wavenumber(lengths, geometry.modes)
        # The largest wavenumber that is kept along every axis of more than one mode.
        self.largest = min((float(axis.max()) for axis in axes if axis.size > 1), default=0.0)

    def table(self) -> np.ndarray:
        """Return x, y and z wavenumbers in one array, as the kernels take them."""
        return np.concatenate([self.x, self.y, self.z])

    @cached_property
    def multiplicity(self) -> np.ndarray:
        """How many modes of a complex transform each kx stands for: 1 for kx = 0, else 2."""
        return np.where(self.x == 0, 1.0, 2.0)

    @cached_property
    def shell_count(self) -> int:
        """Number of shells over all ranks."""
        return shells_of(self.all_axes, self.unit)


def unit_wavenumbers(lengths: Sequence[float]) -> list[float]:
    """Return 2 pi over the lengths (Lz, Ly, Lx) of a box, along x, y and z."""
    return [2 * math.pi / length for length in reversed(lengths)]


def smallest_wavenumber(lengths: Sequence[float], modes: Sequence[Modes]) -> float:
    """Return the smallest wavenumber but 0 along some axes; one of a single point has none."""
    extended = [length for length, m in zip(lengths, modes, strict=True) if m.size > 1]
    return 2 * math.pi / max(extended or lengths)


def shells_of(axes: Sequence[np.ndarray], unit: float) -> int:
    """Return the number of shells of a width that all wavevectors of these components fill."""
    square = sum(float(np.max(axis**2, initial=0.0)) for axis in axes)
    return int(np.rint(math.sqrt(square) / unit)) + 1
