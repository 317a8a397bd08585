"""Energies, budget and spectra of a flow, from its Fourier coefficients.

Normalisation: coefficients are those of ``u(x) = sum_k u_hat(k) exp(i k . x)``, so the mean of
``|u|^2 / 2`` over the box is the sum of ``|u_hat|^2 / 2`` over all modes. Spectra sum to the
energy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.device import Device
from slipstream.report.choice import PictureChoice
from slipstream.spectral.wavenumbers import Wavenumbers

_MODES_AT_A_TIME = 1 << 22

LABELS = {
    "energy": "kinetic energy, mean of u.u/2 (non-dimensional)",
    "enstrophy": "enstrophy, mean of w.w/2, w = curl u (non-dimensional)",
    "dissipation": "dissipation rate, 2 viscosity enstrophy (non-dimensional)",
    "helicity": "helicity, mean of u.w (non-dimensional)",
    "divergence": "root mean square of div u (non-dimensional)",
    "taylor_reynolds": "Taylor-scale Reynolds number, E sqrt(20 / (3 viscosity dissipation))",
    "kmax_eta": "resolution, largest wavenumber times Kolmogorov length; 1 and more resolves",
    "budget_residual": "(dE/dt + dissipation) / dissipation since the row before",
    "energy_spectrum": "energy spectrum, sums to the kinetic energy (non-dimensional)",
}

PICTURES = PictureChoice(
    curves=("energy", "dissipation"),
    curves_file="energy.png",
    peak="dissipation",
    field="vorticity_magnitude",
    field_file="vorticity.png",
    plane="plane of largest enstrophy",
    # A few intense filaments would otherwise leave everything else black.
    brightest=0.998,
    # Long names suit files; an axis needs few words.
    short_labels={
        "energy": r"kinetic energy $\langle u^2 \rangle / 2$",
        "dissipation": r"dissipation $\varepsilon$",
        "energy_spectrum": "energy per shell $E(k)$",
        "vorticity_magnitude": r"magnitude of vorticity $|\omega|$",
    },
)


class EnergyBudget:
    """Turns sums over modes into diagnostics, and remembers the energy for its budget.

    Parameters
    ----------
    viscosity : float
        Kinematic viscosity.
    largest_wavenumber : float
        The largest that is kept along every axis.
    """

    def __init__(self, viscosity: float, largest_wavenumber: float) -> None:
        self._viscosity, self._largest = viscosity, largest_wavenumber
        self._previous: tuple[float, float, float] | None = None

    def update(self, time: float, sums: np.ndarray) -> dict[str, float]:
        """Return the diagnostics at a time.

        Parameters
        ----------
        time : float
            Time of the state; two calls at the same time give the same residual.
        sums : numpy.ndarray
            Energy, enstrophy, helicity and squared divergence.

        Returns
        -------
        dict of str to float
            The keys of `LABELS`. The residual compares the change of energy since the call before
            with the dissipation in between, by the trapezoidal rule; 0 at first and for a
            fluid without viscosity in which no energy changed.
        """
        energy, enstrophy, helicity, divergence = (float(value) for value in sums)
        viscosity = self._viscosity
        dissipation = 2 * viscosity * enstrophy
        residual = 0.0
        if self._previous is not None and time > self._previous[0]:
            earlier, energy_before, dissipation_before = self._previous
            mean = (dissipation + dissipation_before) / 2
            change = (energy - energy_before) / (time - earlier)
            residual = (change + mean) / mean if mean > 0 else change
        self._previous = (time, energy, dissipation)
        decays = dissipation > 0
        return {
            "energy": energy,
            "enstrophy": enstrophy,
            "dissipation": dissipation,
            "helicity": helicity,
            "divergence": math.sqrt(divergence) if divergence >= 0 else math.nan,
            "taylor_reynolds": energy * math.sqrt(20 / (3 * viscosity * dissipation))
            if decays
            else 0.0,
            "kmax_eta": self._largest * (viscosity**3 / dissipation) ** 0.25 if decays else 0.0,
            "budget_residual": residual,
        }


def energy_spectrum(device: Device, velocity: Any, waves: Wavenumbers) -> np.ndarray:
    """Return this rank's share of the shell-summed energy spectrum.

    Parameters
    ----------
    device : Device
        Where `velocity` is.
    velocity : array, shape (3, kz, ky of this rank, kx)
        Fourier coefficients.
    waves : Wavenumbers
        Their wavenumbers.

    Returns
    -------
    numpy.ndarray
        Entry s is the energy of the modes with ``round(|k| / unit) == s``.
    """
    module = device.array_module
    spectrum = device.zeros((waves.shell_count,), np.float64)
    weight = device.array(0.5 * waves.multiplicity)
    z, y, x = (device.array(axis) for axis in (waves.z, waves.y, waves.x))
    across = y[:, None] ** 2 + x**2
    # Some planes at a time: few enough to need little memory, enough to keep a GPU busy.
    planes = max(1, _MODES_AT_A_TIME // max(1, across.size))
    for low in range(0, velocity.shape[1] if across.size else 0, planes):
        part = velocity[:, low : low + planes]
        square = module.zeros(part.shape[1:], np.float64)
        for component in part:
            square += component.real.astype(np.float64) ** 2
            square += component.imag.astype(np.float64) ** 2
        length = module.sqrt(z[low : low + planes, None, None] ** 2 + across)
        shells = module.rint(length / waves.unit).astype(np.int64)
        energies = (weight * square).ravel()
        spectrum += module.bincount(shells.ravel(), energies, waves.shell_count)
    return device.to_host(spectrum)
