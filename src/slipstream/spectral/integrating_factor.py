"""The integrating factor, with which linear decay is integrated exactly.

A Runge-Kutta method acts on exp(r t) u, where r is the rate at which a mode decays. Between its
substages this takes integer powers of exp(-r step / divisions). If r is a sum of functions of one
wavenumber each, a kernel multiplies factors along x, y and z; otherwise one factor per mode is
stored. Stored are factors less one, which keep their digits where they are small.
"""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, Kernel, RowLaunch
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.wavenumbers import Wavenumbers


class IntegratingFactor:
    """The factors exp(-rate duration) - 1 of a rank's modes."""

    def __init__(self, problem: SpectralProblem, waves: Wavenumbers, device: Device) -> None:
        self._problem, self._device = problem, device
        self._rates = rates_along_axes(problem, waves) if problem.is_separable else None
        stored = 0 if problem.is_separable else len(problem.decays)
        # One factor per mode, where they are not products of factors along the axes.
        self.of_modes = device.zeros(
            (stored, *problem.geometry.spectral_box.shape), problem.real_dtype
        )

    def restate(self, problem: SpectralProblem, waves: Wavenumbers) -> None:
        """Take the parameters of another problem of the same model."""
        self._problem = problem
        self._rates = rates_along_axes(problem, waves) if problem.is_separable else None

    def along_axes(self, duration: float) -> np.ndarray | None:
        """Return the factors along x, y and z; None where there is one per mode."""
        if self._rates is None:
            return None
        return np.expm1(-duration * self._rates).astype(self._problem.real_dtype)

    def fill(self, kernel: Kernel, wavenumbers: Array, parameters: Array, duration: float) -> None:
        """Set the factors of modes, with the kernel ``fill_integrating_factor``."""
        nz, ny, nx = self._problem.geometry.spectral_box.shape
        if nz * ny:
            launch = RowLaunch(nz * ny, nx)
            self._device.run(
                kernel.bind(launch, self.of_modes, wavenumbers, parameters, nz, ny, nx, duration)
            )


def rates_along_axes(problem: SpectralProblem, waves: Wavenumbers) -> np.ndarray:
    """Return separable rates of decay along x, y and z, one after the other for each decay."""
    parts = []
    for rate in problem.decay_functions:
        constant = float(rate(0.0, 0.0, 0.0))
        for axis, own in enumerate((waves.x, waves.y, waves.z)):
            wavevector = [np.zeros_like(own)] * 3
            wavevector[axis] = own
            # A constant rate counts along x.
            parts.append(rate(*wavevector) + np.zeros_like(own) - (constant if axis else 0.0))
    return np.concatenate(parts)
