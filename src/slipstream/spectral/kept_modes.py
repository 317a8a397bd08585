"""Dealiasing, and the wavenumbers of the modes that a rank keeps.

A product of two fields has wavenumbers up to twice those of its factors, and wavenumbers beyond the
grid alias to lower ones. With 2/3 of the modes along each axis (Orszag, J. Atmos. Sci. 28, 1074
(1971)), or in a sphere, which has the same resolution in all directions, all modes that aliases
reach are discarded. Three factors need half of the modes. Phase shifts (Rogallo, NASA TM 81315
(1981); Canuto et al., Spectral Methods in Fluid Dynamics, 3.2) keep a sphere of radius sqrt(2)/3 of
the points: substages are computed on grids that are shifted by a part s of a spacing, where single
aliases are multiplied by z = exp(2 pi i s), and the sum of weight * z over the substages is 0.
Multiple aliases lie outside of the sphere.

A stage contains the aliases of the rates before it, which change the next rates. With the aliases A
of one grid and the tableau a_ij, the energy, which products conserve, changes at the rate of
-step * <A, A> sum_ij weight_i a_ij Re(z_i conj(z_j)). With the two substages of "heun", and with
"rk4" on grids that are shifted by 0 and 1/2 in turn, this is step / 2 * <A, A>. The shifts of "rk4"
here make it 0. Errors that are linear in A change their sign if all grids are shifted by half a
spacing more, as in every other step, which takes the grids in reverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.engine.errors import InputError
from slipstream.engine.fft import Modes, PlaneGeometry
from slipstream.engine.fft.transform_parts import truncate
from slipstream.spectral.runge_kutta_tableaux import RungeKutta


@dataclass(frozen=True)
class Dealiasing:
    """A way to dealias."""

    # The bound of an axis's wavenumbers as a fraction of its points; the bound itself is not kept.
    fraction: float
    # The number of fields that can be multiplied without aliases.
    factors: int = 2
    # Whether only a sphere (of the wavenumbers as fractions of points) is kept.
    is_spherical: bool = False
    # Whether substages are computed on shifted grids.
    is_shifted: bool = False

    def truncation(self, shape: tuple[int, ...]) -> list[int]:
        """Return the largest wavenumber that is kept of each axis."""
        # An exact multiple is not kept: of 12 points a third is 4, which aliases with itself.
        return [math.ceil(n * self.fraction - 1e-9) - 1 if n > 1 else 0 for n in shape]

    def over_radii(
        self, shape: tuple[int, ...], lengths: tuple[float, float, float]
    ) -> list[float]:
        """Return one over the square of the sphere's largest wavenumber along x, y and z."""
        # Reduced by the rounding of float32: a mode exactly on the sphere is never kept.
        part = 2 * math.pi * self.fraction * (1 - 1e-6)
        sizes = zip(reversed(shape), reversed(lengths), strict=True)
        return [(length / (part * n)) ** 2 for n, length in sizes]

    def check(self, name: str, method: RungeKutta) -> None:
        """Refuse phase shifts with integrators whose substages do not balance."""
        if self.is_shifted and method.name not in _SHIFTS:
            raise InputError(
                f"numerics.dealiasing: the substages of {method.name!r} do not cancel aliases on "
                f"the grids of {name!r}; accepted with it: time.integrator {', '.join(_SHIFTS)}"
            )

    def shifts(self, method: RungeKutta) -> tuple[float, ...]:
        """Return the shift of each substage's grid, in spacings."""
        return _SHIFTS[method.name] if self.is_shifted else (0.0,) * method.substages


# The shifts of the grids of substages, in spacings, by integrator.
_SHIFTS = {"heun": (0.0, 1 / 2), "rk4": (0.0, 1 / 6, 2 / 3, 1 / 2)}
DEALIASING = {
    "2/3": Dealiasing(1 / 3),
    "2/3 sphere": Dealiasing(1 / 3, is_spherical=True),
    "phase-shift": Dealiasing(math.sqrt(2) / 3, is_spherical=True, is_shifted=True),
    "1/2": Dealiasing(1 / 4, factors=3),
    "none": Dealiasing(1 / 2, factors=1),
}


def kept_modes(
    points_xyz: tuple[int, int, int], dealiasing: str, walls: str | None = None
) -> tuple[Modes, Modes, Modes]:
    """Return the modes along z, y and x of a grid that this dealiasing keeps."""
    shape = tuple(reversed(points_xyz))
    z, y, x = truncate(shape, DEALIASING[dealiasing].truncation(shape), real=True)
    if walls == "z":
        (largest,) = DEALIASING[dealiasing].truncation((2 * z.size,))
        z = Modes(z.size, min(largest, z.size - 1) + 1, 0, walls=True)
    return z, y, x


def alias_warnings(name: str, degree: float) -> list[str]:
    """Return the warning that products of `degree` fields alias, unless the user chose that."""
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

    Between walls at a distance L they are pi m / L.

    In a frame tilted by shear, subtract `tilt` times kx from the wavenumbers along y.
    """

    def __init__(
        self,
        geometry: PlaneGeometry,
        lengths: tuple[float, float, float],
        is_sheared: bool = False,
    ) -> None:
        # The tilt is at most half of the tilt at which the frame fits the box again.
        self.most_tilt = lengths[2] / lengths[1] / 2 if is_sheared else 0.0
        self.tilt = 0.0
        box = geometry.spectral_box
        parts = box.slices()
        self.integers = [m.wavenumbers() for m in geometry.modes]
        units = [2 * math.pi / L for L in periods(lengths, geometry.modes)]
        axes = [unit * m for m, unit in zip(self.integers, units, strict=True)]
        self.all_axes, self.has_walls = axes, geometry.modes[0].walls
        self.z, self.y, self.x = (axis[part] for axis, part in zip(axes, parts, strict=True))
        flat = [axis for axis, m in enumerate(reversed(geometry.modes)) if m.size == 1]
        # The axis normal to a plane flow (0 is x): the only axis of one point; None for other
        # flows.
        self.normal = flat[0] if len(flat) == 1 else None
        # The width of the shells of spectra.
        self.unit = smallest_wavenumber(lengths, geometry.modes)
        # The largest wavenumber that is kept along every axis with more than one mode.
        reach = [float(axis.max()) for axis in axes]
        # the largest magnitude along a tilted row of modes
        reach[1] /= math.hypot(1, self.most_tilt)
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
        """The number of modes of a complex transform for each kx: 1 for kx = 0, else 2."""
        return np.where(self.x == 0, 1.0, 2.0)

    @cached_property
    def multiplicity_z(self) -> np.ndarray:
        """The same for each kz: 2 between walls, where -kz is not stored."""
        return np.where(self.z == 0, 1.0, 2.0 if self.has_walls else 1.0)

    def near(self, last: float, of_all_ranks: bool = False) -> list[np.ndarray]:
        """Return indices along z, y and x that include all modes of shells up to `last`."""
        axes = self.all_axes if of_all_ranks else (self.z, self.y, self.x)
        reach = (last + 0.5) * self.unit
        return [np.flatnonzero(np.abs(axis) <= reach) for axis in axes]

    @cached_property
    def shell_count(self) -> int:
        """Number of shells over all ranks."""
        return shells_of(self.furthest, self.unit)

    @property
    def furthest(self) -> list[np.ndarray]:
        """The wavenumbers along z, y and x of all ranks; along y the range of tilted frames."""
        z, y, x = self.all_axes
        return [z, np.abs(y) + self.most_tilt * np.max(x, initial=0.0), x]


def unit_wavenumbers(lengths: Sequence[float]) -> list[float]:
    """Return 2 pi over the lengths (Lz, Ly, Lx) of a box, along x, y and z."""
    return [2 * math.pi / length for length in reversed(lengths)]


def smallest_wavenumber(lengths: Sequence[float], modes: Sequence[Modes]) -> float:
    """Return the smallest positive wavenumber along some axes; axes of one point have none."""
    sizes = zip(periods(lengths, modes), modes, strict=True)
    extended = [length for length, m in sizes if m.size > 1]
    return 2 * math.pi / max(extended or lengths)


def periods(lengths: Sequence[float], modes: Sequence[Modes]) -> tuple[float, ...]:
    """Return the periods of fields: between walls twice the length of the box."""
    return tuple(L * m.period / m.size for L, m in zip(lengths, modes, strict=True))


def shells_of(axes: Sequence[np.ndarray], unit: float) -> int:
    """Return the number of shells of width `unit` that wavevectors of these components fill."""
    square = sum(float(np.max(axis**2, initial=0.0)) for axis in axes)
    return int(np.rint(math.sqrt(square) / unit)) + 1
