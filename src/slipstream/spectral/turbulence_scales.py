"""The scales of a turbulent flow, from sums over its Fourier coefficients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# The names of the scales of large eddies, and of small ones in three dimensions and in a plane.
LARGE = ("rms_velocity", "integral_scale", "turnover_time")
_VISCOUS = ("taylor_scale", "taylor_reynolds")
SMALL = {
    False: (*_VISCOUS, "kolmogorov_scale", "kolmogorov_time", "kmax_eta"),
    True: (*_VISCOUS, "kraichnan_scale", "kraichnan_time", "kmax_eta"),
}
# The value of scales that are undefined, such as those of a fluid at rest.
_NONE = 0.0


class VectorSums(NamedTuple):
    """Sums over the modes of a vector: means over the box, in the order of ``vector_sums``."""

    energy: float
    enstrophy: float
    # Of the vector with its curl, and of its vector potential with the vector.
    helicity: float
    potential_helicity: float
    square_divergence: float
    # Half the mean square of the gradient of the curl.
    palinstrophy: float
    # The energy without the mean, and the sum of each mode's energy over its wavenumber.
    fluctuations: float
    over_wavenumber: float


def kolmogorov_length(viscosity: float, dissipation: float) -> float:
    """Return the size of the smallest eddies, (viscosity^3 / dissipation)^(1/4)."""
    with np.errstate(over="ignore"):  # infinity, where Python's floats would raise
        return float((np.float64(viscosity) ** 3 / dissipation) ** 0.25)


def kraichnan_length(viscosity: float, dissipation: float) -> float:
    """Return the size of the smallest eddies in two dimensions, from the enstrophy dissipation."""
    with np.errstate(over="ignore"):
        return float((np.float64(viscosity) ** 3 / dissipation) ** (1 / 6))


def large_scales(sums: VectorSums, is_plane: bool) -> dict[str, float]:
    """Return the scales of the energy-containing eddies.

    With E the energy without the mean flow, E(k) its spectrum, and d dimensions:

    - ``rms_velocity``: u' = sqrt(2 E / d), the root mean square of a component;
    - ``integral_scale``: L, the integral of the longitudinal correlation of isotropic turbulence.
      In three dimensions pi / (2 u'^2) sum E(k) / k (Pope, Turbulent Flows (2000), sect. 6.5).
      In two, 2 / u'^2 sum E(k) / k: there the correlation of a mode is 2 J1(k r) / (k r), whose
      integral is 2 / k;
    - ``turnover_time``: T = L / u'.

    Each mode counts with its exact wavenumber, not that of its shell. Undefined scales are 0.
    """
    square = _square_velocity(sums, is_plane)
    if not square > 0:
        return dict.fromkeys(LARGE, _NONE)
    factor = 2.0 if is_plane else math.pi / 2
    velocity, length = math.sqrt(square), factor * sums.over_wavenumber / square
    return dict(zip(LARGE, (velocity, length, length / velocity), strict=True))


def small_scales(
    sums: VectorSums, viscosity: float, largest_wavenumber: float, is_plane: bool
) -> dict[str, float]:
    """Return the scales of the eddies that viscosity dissipates.

    With the dissipation eps = 2 viscosity enstrophy, in three dimensions (Pope, Turbulent Flows
    (2000), sect. 6.1 and 6.3):

    - ``taylor_scale``: lambda = u' sqrt(15 viscosity / eps), the transverse Taylor scale, which is
      u' over the root mean square of a component's derivative along its own axis;
    - ``taylor_reynolds``: R_lambda = u' lambda / viscosity;
    - ``kolmogorov_scale``: eta = (viscosity^3 / eps)^(1/4), and ``kolmogorov_time``:
      sqrt(viscosity / eps);
    - ``kmax_eta``: the largest wavenumber times eta.

    In two dimensions the same derivative is an eighth of the mean square vorticity, so lambda = u'
    sqrt(8 viscosity / eps). Enstrophy cascades to the smallest eddies, and is dissipated at the
    rate chi = 2 viscosity palinstrophy: ``kraichnan_scale`` is (viscosity^3 / chi)^(1/6), and
    ``kraichnan_time`` chi^(-1/3) (Kraichnan, Phys. Fluids 10, 1417 (1967); Batchelor, Phys. Fluids
    12, II-233 (1969)). Undefined scales are 0.
    """
    names = SMALL[is_plane]
    dissipation = 2 * viscosity * sums.enstrophy
    lost = 2 * viscosity * sums.palinstrophy if is_plane else dissipation
    if not (dissipation > 0 and lost > 0):
        return dict.fromkeys(names, _NONE)
    square = _square_velocity(sums, is_plane)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slowness = np.sqrt(np.float64(8 if is_plane else 15) / viscosity / dissipation)
        length = (kraichnan_length if is_plane else kolmogorov_length)(viscosity, lost)
        time = lost ** (-1 / 3) if is_plane else np.sqrt(np.float64(viscosity) / lost)
        values = (
            math.sqrt(square) * viscosity * slowness,
            square * slowness,
            length,
            time,
            largest_wavenumber * length,
        )
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _square_velocity(sums: VectorSums, is_plane: bool) -> float:
    """Return the mean square of one of two or three components."""
    return 2 * sums.fluctuations / (2 if is_plane else 3)
