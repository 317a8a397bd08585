"""The frame of a shearing box, which a mean flow S y along x tilts: there all fields are periodic.

The wavenumber along y of a mode is the wavenumber of its label less the tilt times kx, and the tilt
grows at the rate S. When the tilt reaches Lx/Ly, the frame fits the box again, and its modes are
the modes of an upright frame with other labels (Rogallo, NASA TM 81315 (1981)). Labels change at
half of that tilt, so that the tilt stays between -1/2 and 1/2 of Lx/Ly. Modes whose labels lie
outside of the grid are dropped, and modes whose labels were outside before begin at 0. Products are
computed at the points of the frame, so they are dealiased as in any box.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from slipstream.case.spectral_case import Forcing
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, Operation
from slipstream.engine.errors import InputError
from slipstream.engine.fft import PointOperation
from slipstream.equations.fourier_forms import COORDINATES, WAVENUMBERS, filters_in
from slipstream.spectral.formula_parser import is_name, parsed
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.runge_kutta_tableaux import METHODS
from slipstream.spectral.spectral_problem import SpectralProblem

if TYPE_CHECKING:
    from slipstream.case import SpectralCase
    from slipstream.spectral.runge_kutta_step import SpectralStep

# The most numbers of a component in one exchange.
_AT_ONCE = 1 << 22
_FORCES = "kind 'linear' with a rate and without shells, and a 'formula' of y, z and t"
# The number of points between nodes for rates that are not polynomials.
_USUAL = 3
# The most points between nodes.
_MOST = 8


def check_sheared(case: SpectralCase, problem: SpectralProblem) -> None:
    """Refuse what a shearing box cannot have."""
    if not problem.is_sheared:
        return
    nx, ny, _ = case.grid.points_xyz
    explicit = ", ".join(name for name, method in METHODS.items() if not method.functions)
    refused = {
        "forcing": (not all(map(_is_steady, case.forcing)), _FORCES),
        "bodies": (bool(case.bodies), "none"),
        "particles": (bool(case.particles), "none"),
        "grid.walls": (case.grid.walls is not None, "none"),
        "numerics.linear": (case.numerics.linear == "all", "'decay'"),
        "time.integrator": (problem.propagates, explicit),
        "grid.points": (ny == 1 and nx > 1, "more than one point along y"),
    }
    for key, (is_given, accepted) in refused.items():
        if is_given:
            raise InputError(f"{key}: not with a mean shear; accepted with it: {accepted}")


def _is_steady(force: Forcing) -> bool:
    """Whether a force is the same in every frame: it has no waves along x, or those of the flow."""
    if force.kind != "formula" or isinstance(force.formula, str) and is_name(force.formula):
        return force.rate is not None and force.shells is None
    texts = [force.formula] if isinstance(force.formula, str) else list(force.formula or ())
    return not any(
        parsed(one, "forcing.formula", has_time=True).has(COORDINATES[0]) for one in texts
    )


def gauss_constants(problem: SpectralProblem) -> dict[str, Any]:
    """Return the constants with which the kernel of a substage integrates decay rates."""
    if not problem.integrating_factor:
        return {}
    count = 1
    for rate in problem.decays:
        degree = 2 * _USUAL - 1
        if not filters_in(rate):
            degree = sympy.Poly(rate, *WAVENUMBERS).degree(WAVENUMBERS[1])
        count = max(count, int(max(degree, 0)) // 2 + 1)  # of a rate 0 it is -oo
    count = min(count, _MOST)
    places, weights = np.polynomial.legendre.leggauss(count)
    lists = {"GAUSS_PLACES": (places + 1) / 2, "GAUSS_WEIGHTS": weights / 2}
    texts = {name: f"{{{', '.join(map(repr, map(float, own)))}}}" for name, own in lists.items()}
    return {"GAUSS": count, **texts}


class PointShifts:
    """Shifts between points of the frame and of the box: along x, by the tilt times y."""

    def __init__(self, problem: SpectralProblem, waves: Wavenumbers) -> None:
        self._waves, length = waves, problem.lengths[2]
        self._points = problem.geometry.shape[2]
        self._y = problem.point_lines[1][problem.geometry.physical_box.slices()[1]]
        self._kx = 2 * math.pi / length * np.arange(self._points // 2 + 1)

    def before(self, store: PointOperation, device: Device) -> PointOperation:
        """Return an operation that shifts points of the frame to the box, and passes them on."""
        return self._shifted(store, device, -1)

    def after(self, load: PointOperation, device: Device) -> PointOperation:
        """Return an operation that loads points of the box, and shifts them to the frame."""
        return self._shifted(load, device, 1)

    def _shifted(self, function: PointOperation, device: Device, sign: int) -> PointOperation:
        def operation(points: Array, plane: int) -> tuple[Operation, list[Any]]:
            inner, accessed = function(points, plane)

            def run(stream: Any) -> None:
                if sign > 0:
                    inner(stream)
                self._shift(points, device, sign)
                if sign < 0:
                    inner(stream)

            return run, accessed

        return operation

    def _shift(self, points: Any, device: Device, sign: int) -> None:
        tilt = self._waves.tilt
        if not tilt:
            return
        fft = device.array_module.fft
        phases = np.exp(1j * sign * tilt * np.outer(self._y, self._kx))
        own = np.result_type(points.dtype, np.complex64)
        modes = fft.rfft(points, axis=-1) * device.array(phases, own)
        points[...] = fft.irfft(modes, self._points, axis=-1)


def _period(problem: SpectralProblem) -> float:
    """Return the tilt at which the modes are those of an upright frame."""
    return problem.lengths[2] / problem.lengths[1]


def periods_after(flow: SpectralStep, step: float) -> int:
    """Return the number of periods by which new labels reduce the tilt when the step ends."""
    tilt = flow.tilt + flow.problem.shear * step
    return math.floor(tilt / _period(flow.problem) + 0.5)


def advance_frame(flow: SpectralStep, step: float, comm: Comm) -> None:
    """Tilt the frame by the shear over the step that has ended. Collective."""
    periods = periods_after(flow, step)
    if periods:
        _relabel(flow, periods, comm)
    flow.tilt += flow.problem.shear * step - periods * _period(flow.problem)


def _relabel(flow: SpectralStep, periods: int, comm: Comm) -> None:
    """Store each mode under its label in an earlier frame; drop modes without a label there."""
    geometry, device = flow.problem.geometry, flow.device
    boxes, rank = geometry.spectral_boxes, geometry.rank
    here = boxes[rank]
    device.synchronize()
    state = flow.modes_of(flow.state)
    # By the other rank: the indices of exchanged modes at the sender and the receiver.
    incoming = [_moved(flow, periods, here, other) for other in boxes]
    outgoing = [_moved(flow, periods, other, here) for other in boxes]
    planes = max(1, _AT_ONCE // max(1, *(box.size // max(1, box.shape[0]) for box in boxes)))
    for component in range(len(state)):
        for low in range(0, here.shape[0], planes):
            part = slice(low, low + planes)
            modes = device.to_host(state[component, part])
            sent = [modes[:, source, x] for source, _, x in outgoing]
            came = sent if comm is None else comm.alltoall(sent)
            relabelled = np.zeros_like(modes)
            for (_, target, x), values in zip(incoming, came, strict=True):
                relabelled[:, target, x] = values
            device.run(device.copy(state[component, part], relabelled))
            device.synchronize()


def _moved(
    flow: SpectralStep, periods: int, target: Box, source: Box
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the modes of a rank's box that come from another's: ky there, ky here, and kx."""
    waves = flow.wavenumbers
    _, labels, all_x = waves.integers
    count = len(labels)
    (_, rows, columns), (_, first, left) = target.slices(), source.start
    moved_labels = labels[rows][:, None] + periods * all_x[columns]
    target_row = np.where(np.abs(moved_labels) <= count // 2, moved_labels % count, -1)
    x = np.arange(columns.start, columns.stop)
    inside = (
        (target_row >= first) & (target_row < source.stop[1]) & (x >= left) & (x < source.stop[2])
    )
    here, column = np.nonzero(inside)
    return target_row[here, column] - first, here, column + columns.start - left
