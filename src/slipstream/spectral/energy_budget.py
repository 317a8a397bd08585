"""The energy budget of a flow, from its Fourier coefficients.

Normalisation: coefficients are those of ``u(x) = sum_k u_hat(k) exp(i k . x)``, so the mean of
``|u|^2 / 2`` over the box is the sum of ``|u_hat|^2 / 2`` over all modes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Kernel
from slipstream.device.row_sums import sum_of_rows
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, vectors_of


def kolmogorov_length(viscosity: float, dissipation: float) -> float:
    """Return the size of the smallest eddies."""
    with np.errstate(over="ignore"):  # infinity tells more than an error of Python's numbers
        return float((np.float64(viscosity) ** 3 / dissipation) ** 0.25)


def kraichnan_length(viscosity: float, dissipation: float) -> float:
    """Return the size of the smallest eddies in two dimensions, from what enstrophy loses."""
    with np.errstate(over="ignore"):
        return float((np.float64(viscosity) ** 3 / dissipation) ** (1 / 6))


class EnergyBudget:
    """Turns sums over modes into diagnostics, and remembers the energy for its budget.

    Scales of turbulence need the `viscosity` of the first vector; None leaves them out. In a plane
    the smallest is that at which enstrophy is dissipated.
    """

    def __init__(
        self,
        fields: list[FieldParts],
        viscosity: float | None,
        largest_wavenumber: float,
        has_driving: bool,
        is_plane: bool = False,
    ) -> None:
        self._fields, self._viscosity, self._largest = fields, viscosity, largest_wavenumber
        self._has_driving, self._is_plane = has_driving, is_plane
        self._previous: tuple[float, float, float, float] | None = None
        self._residual = math.nan

    def recall(self, row: Mapping[str, float]) -> None:
        """Take over the diagnostics before the next ones, as another budget has returned them."""
        gain = row.get("driving", 0.0) + row.get("injection", 0.0)
        dissipation = row["dissipation"]
        self._previous = row["time"], row["energy"], dissipation, dissipation - gain
        self._residual = row.get("budget_residual", math.nan)

    def update(
        self,
        time: float,
        squares: np.ndarray,
        vectors: dict[str, np.ndarray],
        power: float | None = None,
    ) -> dict[str, float]:
        """Return the diagnostics at a time, from what `component_sums` and `vector_sums` return.

        The residual compares the change of energy since the call before with what was lost and
        gained in between, by the trapezoidal rule; not-a-number at first. Two calls at one time
        give the same.
        """
        energy, dissipation, driving = (float(half) for half in squares.sum(axis=1) / 2)
        result = {"energy": energy}
        if len(self._fields) > 1:
            for field in self._fields:
                own = squares[0, field.first : field.first + field.size]
                result[f"{field.name}_energy"] = float(own.sum()) / 2
        result["dissipation"] = dissipation
        if self._has_driving:
            result["driving"] = driving
        if power is not None:
            result["injection"] = power
        for prefix, field in vectors_of(self._fields):
            _, enstrophy, helicity, of_potential, divergence, _ = map(float, vectors[field.name])
            result[f"{prefix}enstrophy"] = enstrophy
            if field.is_magnetic:
                result |= {"current_helicity": helicity, "magnetic_helicity": of_potential}
            else:
                result[f"{prefix}helicity"] = helicity
            result[f"{prefix}divergence"] = math.sqrt(divergence) if divergence >= 0 else math.nan
        if self._viscosity is not None:
            velocity = vectors[vectors_of(self._fields)[0][1].name]
            result |= self._scales(self._viscosity, velocity[0], velocity[1], velocity[5])
        gain = driving + (power or 0.0)
        result["budget_residual"] = self._balance(time, energy, dissipation, gain)
        return result

    def _scales(
        self, viscosity: float, energy: float, enstrophy: float, palinstrophy: float
    ) -> dict[str, float]:
        dissipation = 2 * viscosity * float(enstrophy)
        if not dissipation > 0:
            return {"taylor_reynolds": 0.0, "kmax_eta": 0.0}
        with np.errstate(over="ignore", divide="ignore"):
            slowness = np.sqrt(np.float64(20) / (3 * viscosity * dissipation))
        return {
            "taylor_reynolds": float(energy * slowness),
            "kmax_eta": self._largest
            * (
                kraichnan_length(viscosity, 2 * viscosity * palinstrophy)
                if self._is_plane
                else kolmogorov_length(viscosity, dissipation)
            ),
        }

    def _balance(self, time: float, energy: float, dissipation: float, gain: float) -> float:
        """Return the residual since the earlier call, and remember this one for the next."""
        loss = dissipation - gain
        if self._previous is not None and time > self._previous[0]:
            earlier, energy_before, dissipation_before, loss_before = self._previous
            if math.isnan(loss_before):  # that of a force whose power was not known yet
                loss_before = loss
            mean = (dissipation + dissipation_before) / 2
            change = (energy - energy_before) / (time - earlier) + (loss + loss_before) / 2
            self._residual = change / mean if mean > 0 else change
        self._previous = (time, energy, dissipation, loss)
        return self._residual


def budget_kernels(flow: SpectralStep) -> tuple[Kernel, Kernel]:
    """Return the kernels of `component_sums` and `vector_sums`."""
    header = "energy_budget.hpp"
    return (
        flow.model_kernel(header, "component_sums"),
        flow.device.kernel(header, "vector_sums", REAL=flow.real),
    )


def component_sums(flow: SpectralStep) -> np.ndarray:
    """Return this rank's share of mean squares, and of the rates that damp and drive them.

    The shape is (3, components).
    """
    arrays = flow.read_state(), flow.tables.wavenumbers, flow.tables.parameters
    kernels = budget_kernels(flow)
    return _sums_over_rows(flow, 3 * flow.problem.size, kernels[0], *arrays).reshape(3, -1)


def vector_sums(flow: SpectralStep, first: int) -> np.ndarray:
    """Return this rank's share of a vector's energy, enstrophy, helicities and other sums.

    Those are the squared divergence and the palinstrophy, half the mean square of the slopes of the
    curl. The first helicity is that of the vector and its curl, the second that of its potential
    and it.
    """
    vector = flow.read_state()[first : first + 3]
    kernels = budget_kernels(flow)
    return _sums_over_rows(flow, 6, kernels[1], vector, flow.tables.wavenumbers)


def _sums_over_rows(flow: SpectralStep, size: int, kernel: Kernel, *arrays: Array) -> np.ndarray:
    nz, ny, _ = flow.problem.geometry.stored_shape
    sums = flow.device.zeros((nz * ny, size), np.float64)
    flow.run_over_rows(kernel, *arrays, sums)
    return sum_of_rows(flow.device, sums)
