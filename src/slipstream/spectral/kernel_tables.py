"""Small tables that the kernels of a step read in addition to fields, on one device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slipstream import kernels
from slipstream.device import Device, Operation
from slipstream.equations import Lowered, code_generation
from slipstream.fft import PointProduct
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.spectral_problem import SpectralProblem


class KernelTables:
    """The tables that the kernels of a step read, on one of its devices."""

    def __init__(
        self, problem: SpectralProblem, device: Device, waves: Wavenumbers, patterns: int
    ) -> None:
        geometry = problem.geometry
        self.device = device
        rows = max(1, geometry.planes * geometry.plane_points[0])
        # Results of a step: rates of crossing grid cells, by row of points, as ordered bits; and
        # not-a-number for each ky with a mode that is not finite at its end.
        self.found = device.zeros((rows + geometry.columns_shape[1],), np.int64)
        self.marks = self.found[rows:]
        self.product = product_of_model(
            problem.model,
            device.array(_product_numbers(problem), np.float64),
            self.found[:rows],
        )
        # Only the first substage measures the velocity, for the time step.
        self.unmeasured = replace(self.product, maxima=device.zeros((rows,), np.int64))
        self.parameters = device.array(_mode_numbers(problem), np.float64)
        # Factors that shift the grid by half a spacing.
        half = [length / n / 2 for n, length in zip(geometry.shape, problem.lengths, strict=True)]
        shifts = [waves.x * half[2], waves.y * half[1], waves.z * half[0]]
        self.phases = device.array(np.exp(1j * np.concatenate(shifts)), problem.complex_dtype)
        self.wavenumbers = device.array(waves.table(), problem.real_dtype)
        # The time step, the factors of the patterns of force, and those of shells that keep their
        # energy.
        factors = problem.method.substages * patterns
        held = sum(one.count for one in problem.held)
        self.step = device.zeros((1 + factors + held,), problem.real_dtype)
        self.held = self.step[1 + factors :]
        # The integrating factor along x, y and z, if it is separable.
        size = problem.decay_size if problem.is_separable else 0
        self.decay = device.zeros((size,), problem.real_dtype)

    def tilt(self, tilt: float) -> None:
        """Take the tilt of the frame."""
        self.device.synchronize()
        self.device.run(self.device.fill(self.wavenumbers[-1:], tilt))

    def restate(self, problem: SpectralProblem) -> None:
        """Take the parameters of another problem of the same model, for kernels to read."""
        device = self.device
        device.synchronize()
        device.run(device.copy(self.product.parameters, np.array(_product_numbers(problem))))
        device.run(device.copy(self.parameters, np.array(_mode_numbers(problem))))
        device.synchronize()

    def forget(self) -> Operation:
        """Return the operation that clears the results of the last step."""
        found = self.found
        return lambda stream: found.fill(0)


def _product_numbers(problem: SpectralProblem) -> list[float]:
    """Return the numbers that product kernels read: points per length, and the parameters."""
    # Along an axis of one point fields are uniform: no velocity along it matters.
    sizes = zip(problem.geometry.shape, problem.lengths, strict=True)
    per_spacing = [n / L if n > 1 else 0.0 for n, L in sizes]
    if problem.is_sheared:  # in a tilted frame motion along y crosses x too; take the largest tilt
        per_spacing[1] += problem.geometry.shape[2] / problem.lengths[1] / 2
    return [*per_spacing[::-1], *problem.numbers]


def _mode_numbers(problem: SpectralProblem) -> list[float]:
    """Return the numbers that kernels of modes read: the parameters, and the kept sphere."""
    return [*problem.numbers, *problem.over_radii]


def product_of_model(model: Lowered, parameters: Any = None, maxima: Any = None) -> PointProduct:
    """Return a model's product at the points; without arrays, only to compile it."""
    header = kernels.write(code_generation.product_header(model))
    return PointProduct(header, len(model.inputs), len(model.products), parameters, maxima)
