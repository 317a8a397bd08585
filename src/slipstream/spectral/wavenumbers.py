"""Wavenumbers of the modes that a rank holds."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from slipstream.fft import SlabGeometry


class Wavenumbers:
    """Physical wavenumbers 2 pi m / L: `x`, `y` and `z` of one rank's modes."""

    def __init__(self, geometry: SlabGeometry, lengths: tuple[float, float, float]) -> None:
        box = geometry.spectral_box
        parts = box.slices()
        self.integers = [m.wavenumbers() for m in geometry.modes]
        axes = [2 * math.pi / L * m for m, L in zip(self.integers, lengths, strict=True)]
        self.all_axes = axes
        self.z, self.y, self.x = (axis[part] for axis, part in zip(axes, parts, strict=True))
        # An axis of one point has no wavenumber, however short it is.
        extended = [L for L, m in zip(lengths, geometry.modes, strict=True) if m.size > 1]
        # Width of the shells of spectra: the smallest wavenumber of the box but 0.
        self.unit = 2 * math.pi / max(extended or lengths)
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
        square = sum(float(np.max(axis**2, initial=0.0)) for axis in self.all_axes)
        return int(np.rint(math.sqrt(square) / self.unit)) + 1
