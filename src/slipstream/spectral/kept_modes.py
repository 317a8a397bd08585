"""Which modes are kept: dealiasing, and the wavenumbers of those that a rank holds.

A product of two fields has wavenumbers up to twice those of its factors, and those beyond the grid
alias to others. With 2/3 of the modes along each axis (Orszag, J. Atmos. Sci. 28, 1074 (1971)), or
in a sphere, which has the same resolution in all directions, all modes that aliases reach are
discarded. Three factors need half of the modes. Phase shifts (Rogallo, NASA TM 81315 (1981); Canuto
et al., Spectral Methods in Fluid Dynamics, 3.2) keep a sphere of radius sqrt(2)/3 of the points:
every other substage is computed on a grid that is shifted by half a spacing, where single aliases
have the opposite sign and cancel, if both kinds of substages have the same weight in a step.
Multiple aliases lie outside of the sphere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.errors import InputError
from slipstream.fft import Modes, PlaneGeometry
from slipstream.fft.truncation import truncate
from slipstream.spectral.runge_kutta_tableaux import RungeKutta


@dataclass(frozen=True)
class Dealiasing:
    """A way to dealias."""

    # The bound of an axis's wavenumbers as a fraction of its points, which itself is not kept.
    fraction: float
    # How many fields may be multiplied without aliases.
    factors: int = 2
    # Whether only a sphere (of the wavenumbers as fractions of points) is kept.
    is_spherical: bool = False
    # Whether every other substage is computed on a shifted grid.
    is_shifted: bool = False

    def truncation(self, shape: tuple[int, ...]) -> list[int]:
        """Return the largest wavenumber that is kept of each axis."""
        # An exact multiple is not kept: of 12 points a third is 4, which aliases with itself.
        return [math.ceil(n * self.fraction - 1e-9) - 1 if n > 1 else 0 for n in shape]

    def over_radii(
        self, shape: tuple[int, ...], lengths: tuple[float, float, float]
    ) -> list[float]:
        """Return one over the square of the sphere's largest wavenumber along x, y and z."""
        # Less by what float32 rounds: a mode exactly on the sphere is never kept.
        part = 2 * math.pi * self.fraction * (1 - 1e-6)
        sizes = zip(reversed(shape), reversed(lengths), strict=True)
        return [(length / (part * n)) ** 2 for n, length in sizes]

    def check(self, name: str, method: RungeKutta) -> None:
        """Refuse shifts with integrators whose substages do not balance."""
        even, odd = sum(method.weights[::2]), sum(method.weights[1::2])
        if self.is_shifted and not math.isclose(even, odd):
            raise InputError(
                f"numerics.dealiasing: {name!r} needs substages of the same weight on both grids, "
                f"which {method.name!r} has not; accepted with it: time.integrator heun, rk4"
            )


DEALIASING = {
    "2/3": Dealiasing(1 / 3),
    "2/3 sphere": Dealiasing(1 / 3, is_spherical=True),
    "phase-shift": Dealiasing(math.sqrt(2) / 3, is_spherical=True, is_shifted=True),
    "1/2": Dealiasing(1 / 4, factors=3),
    "none": Dealiasing(1 / 2, factors=1),
}


def kept_modes(points_xyz: tuple[int, int, int], dealiasing: str) -> tuple[Modes, ...]:
    """Return the modes along z, y and x that a grid has, and this dealiasing keeps."""
    shape = tuple(reversed(points_xyz))
    return truncate(shape, DEALIASING[dealiasing].truncation(shape), real=True)


def alias_warnings(name: str, degree: float) -> list[str]:
    """Return the warning that products of so many fields alias, if they do and nobody asked."""
    if name == "none" or DEALIASING[name].factors >= degree:
        return []
    enough = ", ".join(repr(one) for one, way in DEALIASING.items() if way.factors >= degree)
    what = f"products of {degree}" if math.isfinite(degree) else "functions other than products"
    return [
        f"numerics.dealiasing: {name!r} keeps out aliases of products of "
        f"{DEALIASING[name].factors} fields, and this model has {what}; "
        + (f"without aliases: {enough}" if enough else "no way of dealiasing keeps theirs out")
    ]


class Wavenumbers:
    """Physical wavenumbers 2 pi m / L: `x`, `y` and `z` of one rank's modes.

    In a frame that a shear has tilted, `tilt` times kx is to be taken away from those along y.
    """

    def __init__(
        self,
        geometry: PlaneGeometry,
        lengths: tuple[float, float, float],
        is_sheared: bool = False,
    ) -> None:
        # A frame is tilted at most by half of what makes it fit the box again.
        self.most_tilt = lengths[2] / lengths[1] / 2 if is_sheared else 0.0
        self.tilt = 0.0
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
        reach = [float(axis.max()) for axis in axes]
        reach[1] /= math.hypot(1, self.most_tilt)  # the distance of a tilted row of modes
        bounded = zip(reach, axes, strict=True)
        self.largest = min((one for one, axis in bounded if axis.size > 1), default=0.0)

    def table(self) -> np.ndarray:
        """Return x, y and z wavenumbers and the tilt in one array, as the kernels take them."""
        return np.concatenate([self.x, self.y, self.z, [self.tilt]])

    @property
    def along_y(self) -> np.ndarray:
        """The wavenumbers along y, [ky, kx]; [ky, 1] in an upright frame."""
        upright: np.ndarray = self.y[:, None]
        return upright - self.tilt * self.x if self.tilt else upright

    @cached_property
    def multiplicity(self) -> np.ndarray:
        """How many modes of a complex transform each kx stands for: 1 for kx = 0, else 2."""
        return np.where(self.x == 0, 1.0, 2.0)

    def near(self, last: float, of_all_ranks: bool = False) -> list[np.ndarray]:
        """Return indices of modes along z, y and x, which reach as far as shells up to one do."""
        axes = self.all_axes if of_all_ranks else (self.z, self.y, self.x)
        reach = (last + 0.5) * self.unit
        return [np.flatnonzero(np.abs(axis) <= reach) for axis in axes]

    @cached_property
    def shell_count(self) -> int:
        """Number of shells over all ranks."""
        return shells_of(self.furthest, self.unit)

    @property
    def furthest(self) -> list[np.ndarray]:
        """The wavenumbers along z, y and x of all ranks, along y as far as tilted frames reach."""
        z, y, x = self.all_axes
        return [z, np.abs(y) + self.most_tilt * np.max(x, initial=0.0), x]


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
