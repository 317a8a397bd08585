"""The energy budget and the scales of a turbulent flow, from its Fourier coefficients."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import Kernel
from slipstream.engine.device.array_kernels import sum_of_rows
from slipstream.equations import Lowered
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, vectors_of

# The names of the scales of large eddies, and of small ones in three dimensions and in a plane.
LARGE = ("rms_velocity", "integral_scale", "turnover_time")
_VISCOUS = ("taylor_scale", "taylor_reynolds")
SMALL = {
    False: (*_VISCOUS, "kolmogorov_scale", "kolmogorov_time", "kmax_eta"),
    True: (*_VISCOUS, "kraichnan_scale", "kraichnan_time", "kmax_eta"),
}
# The value of scales that are undefined, such as those of a fluid at rest.
_NONE = 0.0
# The column of the residual of the whole energy, and its ending in fields' own budgets.
_RESIDUALS = "budget_residual", "residual"
# What is not known, in a state: those have finite numbers.
_UNKNOWN = float(np.finfo(float).max)


class Balance(NamedTuple):
    """What a budget remembers of a row: the next one is compared with it."""

    time: float
    energy: float
    dissipation: float
    # What is lost less what is gained, but for forces and bodies.
    loss: float
    # Of forces that change with the flow and the time alone, not from step to step.
    power: float
    # Of all steps up to the row, of the other forces and of bodies.
    work: float
    # The results of the row.
    residual: float
    added: float


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
      In three dimensions pi / (2 u'^2) times the sum over modes of their energy over k (Pope,
      Turbulent Flows (2000), sect. 6.5). In two, 2 / u'^2 times that sum: there the correlation of
      a mode is 2 J1(k r) / (k r), whose integral is 2 / k;
    - ``turnover_time``: T = L / u'.

    Each mode counts with its exact wavenumber, not with its shell. Undefined scales are 0.
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
    - ``kmax_eta``: eta times the largest wavenumber that is kept along every axis. The smallest
      eddies are alike in all directions: the axis that resolves least decides.

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


class EnergyBudget:
    """Turns sums over modes into diagnostics, and remembers energies for their budgets.

    Fields in `set_by_bodies` have no residual, since the energy that bodies add to each is not
    known. The work of forces that change from step to step, those of the fields in `stepped`, is
    taken from `add_work`.
    """

    def __init__(
        self,
        fields: list[FieldParts],
        model: Lowered,
        viscosity: float | None,
        largest_wavenumber: float,
        has_driving: bool,
        is_plane: bool = False,
        set_by_bodies: Collection[str] = (),
        stepped: Collection[str] = (),
    ) -> None:
        self._fields, self._model = fields, model
        self._viscosity, self._largest = viscosity, largest_wavenumber
        self._has_driving, self._is_plane = has_driving, is_plane
        self._set_by_bodies = set_by_bodies
        # Means by which the energy as a whole grows.
        self._gained = [name for name, field in model.gains.items() if not field]
        # By the prefix of a budget's names, "" for the energy: the work so far, the last row, the
        # one before it, and the rows of a state that a run continues from.
        self._work = dict.fromkeys(("", *budgets_of(model)), 0.0)
        self._stepped = self._by_budget(dict.fromkeys(stepped, 1.0))
        self._last: dict[str, Balance] = {}
        self._before: dict[str, Balance] = {}
        self._stored: list[dict[str, Balance]] = []

    def _by_budget(self, of_fields: Mapping[str, float]) -> dict[str, float]:
        """Return the sum of the active fields, and the number of each with its own budget."""
        passive = self._model.passive
        whole = sum(one for name, one in of_fields.items() if name not in passive)
        own = {prefix: of_fields.get(prefix[:-1], 0.0) for prefix in self._work if prefix}
        return {"": whole, **own}

    def add_work(self, works: Mapping[str, float]) -> None:
        """Add the work of a step, by field, "" for that of bodies."""
        new = self._by_budget(works)
        # Not changed in place: copies of this budget share it.
        self._work = {prefix: work + new[prefix] for prefix, work in self._work.items()}

    def state(self) -> np.ndarray | None:
        """Return the work so far and the last two rows by budget, if rows alone do not suffice."""
        if not any(self._stepped.values()):
            return None
        none = Balance(*[_UNKNOWN] * len(Balance._fields))
        rows = [
            [work, *self._last.get(prefix, none), *self._before.get(prefix, none)]
            for prefix, work in self._work.items()
        ]
        return np.nan_to_num(rows, nan=_UNKNOWN, posinf=math.inf, neginf=-math.inf)

    def read(self, state: np.ndarray) -> None:
        """Continue with the work of a state, whose rows are for `recall`."""
        size, state = len(Balance._fields), np.where(state == _UNKNOWN, math.nan, state)
        if state.shape == (len(self._work), 1 + 2 * size):
            self._work = dict(zip(self._work, state[:, 0].tolist(), strict=True))
            self._stored = [
                {name: Balance(*one) for name, one in zip(self._work, rows.tolist(), strict=True)}
                for rows in (state[:, 1 : 1 + size], state[:, 1 + size :])
            ]

    def recall(self, row: Mapping[str, float]) -> None:
        """Take earlier diagnostics, perhaps of another budget, as those before the next ones."""
        self._last, self._before = {}, {}
        whole = ["bodies_power", *self._gained]
        for prefix, names in {"": whole, **budgets_of(self._model)}.items():
            stored = [rows[prefix] for rows in self._stored if rows[prefix].time == row["time"]]
            if stored:
                self._last[prefix] = stored[0]
                continue
            gains = [f"{prefix}driving", *names]
            self._last[prefix] = Balance(
                row["time"],
                row.get(f"{prefix}energy", row["energy"]),  # of the only field
                dissipation := row[f"{prefix}dissipation"],
                dissipation - sum(row.get(name, 0.0) for name in gains),
                row.get(f"{prefix}injection", 0.0),
                math.nan if self._stepped[prefix] else self._work[prefix],
                row.get(f"{prefix}{_RESIDUALS[bool(prefix)]}", math.nan),
                row.get(f"{prefix}work", math.nan),
            )

    def update(
        self,
        time: float,
        squares: np.ndarray,
        vectors: Mapping[str, VectorSums],
        means: Mapping[str, float],
        powers: Mapping[str, float] | None = None,
        steady: Mapping[str, float] = MappingProxyType({}),
        motion: VectorSums | None = None,
        bodies: float | None = None,
    ) -> dict[str, float]:
        """Return the diagnostics at a time, from the results of `component_sums` and `vector_sums`.

        `powers` are those of forces by field, `steady` those of them that follow from the flow and
        the time alone, `bodies` the power of bodies, and `motion` the sums of the velocity. A
        residual compares the change of energy since the last call with the work of steps, and with
        losses and gains by the trapezoidal rule; the first is not-a-number. A second call at the
        same time returns the same.
        """
        model = self._model
        losses = sum(means[name] for name in model.losses)
        halves = squares[:, : model.active].sum(axis=1) / 2
        energy, dissipation, driving = (float(half) for half in halves)
        dissipation += losses
        result = {"energy": energy}
        if len(self._fields) > 1:
            for field in self._fields:
                own = squares[0, field.first : field.first + field.size]
                result[f"{field.name}_energy"] = float(own.sum()) / 2
        result["dissipation"] = dissipation
        if self._has_driving:
            result["driving"] = driving
        if powers is not None:
            result["injection"] = self._by_budget(powers)[""]
        if bodies is not None:
            result["bodies_power"] = bodies
        for prefix, field in vectors_of(self._fields):
            sums = vectors[field.name]
            result[f"{prefix}enstrophy"] = sums.enstrophy
            if field.is_magnetic:
                result["current_helicity"] = sums.helicity
                result["magnetic_helicity"] = sums.potential_helicity
            else:
                result[f"{prefix}helicity"] = sums.helicity
            square = sums.square_divergence
            result[f"{prefix}divergence"] = math.sqrt(square) if square >= 0 else math.nan
        if motion is not None:
            result |= large_scales(motion, self._is_plane)
            if self._viscosity is not None:
                flow = self._viscosity, self._largest, self._is_plane
                result |= small_scales(motion, *flow)
        loss = dissipation - driving - sum(means[name] for name in self._gained)
        power = self._by_budget(steady)
        balance = self._balance("", time, energy, dissipation, loss, power[""])
        if powers is not None or bodies is not None:
            result["work"] = balance.added
        result["budget_residual"] = balance.residual
        for field in self._fields:
            result |= self._own_budget(time, field, squares, means, powers, power)
        return result

    def _own_budget(
        self,
        time: float,
        field: FieldParts,
        squares: np.ndarray,
        means: Mapping[str, float],
        powers: Mapping[str, float] | None,
        power: Mapping[str, float],
    ) -> dict[str, float]:
        """Return the budget of a field that has its own."""
        prefix = f"{field.name}_"
        names = budgets_of(self._model).get(prefix)
        if names is None:
            return {}
        halves = squares[:, field.first : field.first + field.size].sum(axis=1) / 2
        energy, dissipation, driving = (float(half) for half in halves)
        result = {f"{prefix}dissipation": dissipation}
        if self._has_driving:
            result[f"{prefix}driving"] = driving
        is_forced = powers is not None and field.name in powers
        if powers is not None and is_forced:
            result[f"{prefix}injection"] = powers[field.name]
        if field.name in self._set_by_bodies:
            return result
        loss = dissipation - driving - sum(means[name] for name in names)
        balance = self._balance(prefix, time, energy, dissipation, loss, power[prefix])
        if is_forced:
            result[f"{prefix}work"] = balance.added
        return result | {prefix + _RESIDUALS[True]: balance.residual}

    def _balance(
        self,
        prefix: str,
        time: float,
        energy: float,
        dissipation: float,
        loss: float,
        power: float,
    ) -> Balance:
        """Return the balance of this row, and remember it for the next."""
        last, work = self._last.get(prefix), self._work[prefix]
        residual = added = math.nan
        if last is not None and time <= last.time:
            residual, added = last.residual, last.added
        elif last is not None:
            span, mean = time - last.time, (dissipation + last.dissipation) / 2
            added = work - last.work + span * (power + last.power) / 2
            change = (energy - last.energy - added) / span + (loss + last.loss) / 2
            residual = change / mean if mean > 0 else change
            self._before = {**self._before, prefix: last}
        new = Balance(time, energy, dissipation, loss, power, work, residual, added)
        self._last = {**self._last, prefix: new}
        return new


def budgets_of(model: Lowered) -> dict[str, list[str]]:
    """Return the prefixes of the fields with their own budgets, and the gains of each."""
    budgets: dict[str, list[str]] = {f"{name}_": [] for name in model.passive}
    for mean, field in model.gains.items():
        if field:
            budgets.setdefault(f"{field}_", []).append(mean)
    return budgets


def budget_kernels(flow: SpectralStep) -> tuple[Kernel, Kernel]:
    """Return the kernels of `component_sums` and `vector_sums`."""
    header = "energy_budget.hpp"
    return (
        flow.model_kernel(header, "component_sums"),
        flow.device.kernel(header, "vector_sums", REAL=flow.real),
    )


def component_sums(flow: SpectralStep) -> np.ndarray:
    """Return this rank's mean squares, and rates of damping and driving: shape (3, components)."""
    arrays = flow.read_state(), flow.tables.wavenumbers, flow.tables.parameters
    kernels = budget_kernels(flow)
    return _sums_over_rows(flow, 3 * flow.problem.size, kernels[0], *arrays).reshape(3, -1)


def vector_sums(flow: SpectralStep, vector: Array, across: int | None = None) -> np.ndarray:
    """Return this rank's `VectorSums` of a vector, or its part in the plane `across` an axis."""
    arrays = vector, flow.tables.wavenumbers
    kernel, size = budget_kernels(flow)[1], len(VectorSums._fields)
    return _sums_over_rows(flow, size, kernel, *arrays, last=(3 if across is None else across,))


def _sums_over_rows(
    flow: SpectralStep, size: int, kernel: Kernel, *arrays: Array, last: Sequence[int] = ()
) -> np.ndarray:
    nz, ny, _ = flow.problem.geometry.stored_shape
    sums = flow.device.zeros((nz * ny, size), np.float64)
    flow.run_over_rows(kernel, *arrays, sums, last=last)
    flow.weigh_rows(sums)
    return sum_of_rows(flow.device, sums)
