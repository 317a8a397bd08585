"""Transforms between modes and points outside of a step: to set, read, or sum fields.

Each chunk of planes is set on the device and transformed, or summed as soon as the backward
transform has produced it, so no field of points is ever in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.device import Kernel, Operation, RowLaunch
from slipstream.engine.device.array_kernels import sum_of_rows
from slipstream.engine.errors import InputError
from slipstream.engine.fft import PointOperation
from slipstream.engine.fft.pack_unpack import real_name
from slipstream.engine.schedule import commit
from slipstream.spectral.formula_parser import check_periodic, check_resolved, evaluator, judge_loss
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.spectrum import keep_sphere, remove_gradients, variances

# The number of points that are summed together, which bounds temporary arrays.
_POINTS_AT_A_TIME = 1 << 22
# The number of powers that `PointSums` sums.
POWERS = 7
# The points that one row of threads sums.
_SEGMENT = 4096
# The most parts of a chunk with separate counts.
_COPIES = 64


def set_formulas(
    flow: SpectralStep, formulas: Mapping[str, Callable[..., Any]], key: str, comm: Comm
) -> list[str]:
    """Set the components of the state to formulas, those without to 0; return warnings."""
    components = flow.problem.model.components
    functions = [formulas.get(str(value)) for value in components]
    set_points(flow, flow.state, functions, flow.problem.signs)
    return fit(flow, flow.state[: len(flow.problem.model.unknowns)], 0, key, comm)


def set_points(
    flow: SpectralStep,
    target: Any,
    functions: Sequence[Callable[..., Any] | None],
    signs: Sequence[int],
) -> None:
    """Set spectral fields to functions of x, y, z and a module; None is 0. Collective.

    Between walls `signs`, here and below, is 1 for each even field and -1 for each odd one.
    """
    device, axes = flow.device, flow.problem.point_lines
    box = flow.problem.geometry.physical_box
    start, rows = box.start[0], box.slices()[1]

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        first = start + plane
        z = device.array(axes[0][first : first + points.shape[1]][:, None, None])
        y = device.array(axes[1][rows][None, :, None])
        x = device.array(axes[2][None, None, :])

        def fill(stream: Any) -> None:
            for index, function in enumerate(functions):
                points[index] = 0
                if function is not None:
                    points[index] += function(x, y, z, device.array_module)

        return fill, []

    to_modes(flow, load, target, signs)


def to_modes(flow: SpectralStep, load: PointOperation, target: Any, signs: Sequence[int]) -> None:
    """Set spectral fields to the transforms of points that `load` makes chunk by chunk."""
    commit(flow.record_forward(load, target, signs), "serial").run()
    normalise(flow, target)


def normalise(flow: SpectralStep, target: Any) -> None:
    """Divide spectral fields by the number of points: forward transforms do not normalise."""
    scale = target.dtype.type(1.0 / math.prod(flow.problem.geometry.shape))

    def multiply(stream: Any) -> None:
        with np.errstate(all="ignore"):  # behind the modes of a row, memory may hold anything
            flow.device.array_module.multiply(target, scale, out=target)

    flow.device.run(multiply)


def values_to_modes(
    flow: SpectralStep, values: Array, target: Any, signs: Sequence[int] = ()
) -> None:
    """Set spectral fields to the transforms of values [component, z of this rank, y, x]."""

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        part = values[:, plane : plane + points.shape[1]]
        return flow.device.copy(points, part), [part]

    to_modes(flow, load, target, signs)
    # The caller owns the values, and may free them.
    flow.device.synchronize()


def to_points(
    flow: SpectralStep, spectral: Any, store: PointOperation, signs: Sequence[int]
) -> None:
    """Transform spectral fields to points, and pass each chunk to `store`."""
    commit(flow.record_backward(spectral, store, signs), "serial").run()
    flow.device.synchronize()


def finite_variances(
    flow: SpectralStep, fields: Any, first: int, key: str, comm: Comm
) -> np.ndarray:
    """Return the variances of new values of fields, which must be finite. Collective."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = variances(flow, flow.modes_of(fields), comm)
    for value, square in zip(flow.problem.model.unknowns[first:], squares, strict=False):
        if not np.isfinite(square):
            raise InputError(
                f"{key}: {value} is not a finite number at all points, or exceeds the range of "
                f"{flow.problem.real_dtype}"
            )
    return squares


def fit(
    flow: SpectralStep,
    fields: Any,
    first: int,
    key: str,
    comm: Comm,
    before: np.ndarray | None = None,
) -> list[str]:
    """Remove from fields what the state cannot represent; return warnings of the loss. Collective.

    They are new values of the components of the state from `first` on. Values that are not finite,
    or would be lost entirely, are refused.
    """
    problem, warnings = flow.problem, []
    unknowns = problem.model.unknowns[first : first + len(fields)]
    if before is None:
        before = finite_variances(flow, fields, first, key, comm)
    if problem.dealiasing.is_spherical:
        keep_sphere(flow, fields)
        kept = variances(flow, flow.modes_of(fields), comm)
        for value, part, whole in zip(unknowns, before - kept, before, strict=True):
            what = f"{key}: {value} has modes beyond the sphere that numerics.dealiasing keeps"
            warnings += judge_loss(part / whole if whole > 0 else 0.0, what, "use more points")
        before = kept
    for vector in problem.model.vectors:
        if first <= vector < first + len(fields):
            what = f"{key}: {problem.model.unknowns[vector].field}"
            place = vector - first
            own = float(before[place : place + 3].sum())
            warnings += remove_gradients(flow, [fields[place : place + 3]], what, comm, own)
    return warnings


def set_values(
    flow: SpectralStep,
    values: Array,
    key: str,
    comm: Comm,
    first: int = 0,
    writer: PointWriter | None = None,
) -> list[str]:
    """Set components of the state to values at the points; return warnings. Collective.

    Refused values leave the state unchanged. A `writer` of these components of the stage saves the
    recording of the transform.
    """
    target = flow.stage[first : first + len(values)]
    signs = flow.problem.signs[first : first + len(values)]
    sums = (writer or PointWriter(flow, target, signs)).write(flow, values)
    kept = finite_variances(flow, target, first, key, comm)
    warnings = _lost_modes(flow, sums, kept, first, key, comm)
    warnings += fit(flow, target, first, key, comm, kept)
    flow.device.run(flow.device.copy(flow.state[first : first + len(values)], target))
    return warnings


def _lost_modes(
    flow: SpectralStep, local_sums: np.ndarray, kept: np.ndarray, first: int, key: str, comm: Comm
) -> list[str]:
    """Return warnings of the share of values, with these sums, that dealiasing discards."""
    warnings, points = [], math.prod(flow.problem.geometry.shape)
    sums, squares = sum_over_ranks(comm, local_sums).T / points
    unknowns = flow.problem.model.unknowns[first:]
    for value, mean, square, rest in zip(unknowns, sums, squares, kept, strict=False):
        whole = square - mean**2
        # A loss below the rounding of the mean is none.
        share = (whole - rest) / whole if whole > 1e-12 * square else 0.0
        what = f"{key}: {value} has modes that numerics.dealiasing discards"
        warnings += judge_loss(share, what, "use more points")
    return warnings


class PointWriter:
    """Sets spectral fields to the transforms of values at points, recorded once. Collective."""

    def __init__(self, flow: SpectralStep, target: Array, signs: Sequence[int]) -> None:
        self._sources: list[Array] = []
        self._chunks: dict[int, Array] = {}
        self._target = target
        # The recorded step has no reference to its owner.
        sources, chunks, device, kernel = self._sources, self._chunks, flow.device, sum_kernel(flow)

        def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            fields, planes, ny, nx = points.shape
            rows, field_size = planes * ny, points.strides[0] // points.itemsize

            def run(stream: Any) -> None:
                device.copy(points, sources[0][:, plane : plane + planes])(stream)
                table = device.empty((rows, 2 * fields), np.float64)
                launch = RowLaunch(fields * rows, nx, reduces=True)
                kernel.bind(launch, points, table, fields, rows, nx, field_size)(stream)
                chunks[plane] = table

            return run, []

        self._step = commit(flow.record_forward(load, target, signs), "serial")

    def write(self, flow: SpectralStep, values: Array) -> np.ndarray:
        """Set the fields; return sums of each component's values and of their squares."""
        flow.is_ahead = False  # the planes, which the last step left ready, are overwritten
        self._sources[:] = [values]
        self._step.run()
        normalise(flow, self._target)
        # The caller owns the values, and may free them.
        flow.device.synchronize()
        self._sources.clear()
        total = np.zeros((len(values), 2))
        for _, table in sorted(self._chunks.items()):
            total += sum_of_rows(flow.device, table).reshape(total.shape)
        self._chunks.clear()
        return total


def sum_kernel(flow: SpectralStep) -> Kernel:
    """Return the kernel that sums values at points."""
    return flow.device.kernel("value_sums.hpp", "sums_of_values", REAL=flow.real)


class PointReader:
    """Reads some spectral fields at this rank's points, recorded once. Collective."""

    def __init__(self, flow: SpectralStep, fields: Array, signs: Sequence[int] = ()) -> None:
        # The recorded step has no reference to its owner: dropped simulations are freed
        # immediately.
        self._targets: list[Array] = []
        targets, device = self._targets, flow.device
        written = device.zeros((1,), np.float64)

        def store(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            def run(stream: Any) -> None:
                part = targets[0][:, plane : plane + points.shape[1]]
                device.copy(part, points)(stream)

            return run, [written]

        self._step = commit(flow.record_backward(fields, store, signs), "serial")

    def read(self, flow: SpectralStep, target: Array) -> None:
        """Write the fields as they are now into an array of the host or the device."""
        flow.is_ahead = False  # the planes, which the last step left ready, are overwritten
        self._targets[:] = [target]
        self._step.run()
        flow.device.synchronize()
        self._targets.clear()


def sum_of_squares(flow: SpectralStep, spectral: Any, signs: Sequence[int]) -> np.ndarray:
    """Return the sum of the squares of fields at this rank's points, on the host. Collective."""
    total = np.empty(flow.problem.geometry.physical_box.shape, flow.problem.real_dtype)
    written = flow.device.zeros((1,), np.float64)

    def store(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        def run(stream: Any) -> None:
            part = points[0] * points[0]
            for one in points[1:]:
                part += one * one
            flow.device.copy(total[plane : plane + len(part)], part)(stream)

        return run, [written]

    to_points(flow, spectral, store, signs)
    return total


@dataclass(frozen=True)
class Binning:
    """Bins of one variable, or two: the first edge, bins to a unit, and how many bins, of each."""

    lows: np.ndarray
    per_bin: np.ndarray
    counts: tuple[int, ...]


class PointSums:
    """Sums over the box of powers of fields, and their counts by bins. Its methods are collective.

    Segments of chunks are summed in order, so the sums are the same in every run.
    """

    def __init__(
        self, flow: SpectralStep, spectral: Any, signs: Sequence[int] = (), bins: int = 0
    ) -> None:
        device, count = flow.device, len(spectral)
        # The recorded step has no reference to its owner: dropped simulations are freed
        # immediately.
        powers: dict[int, Any] = {}  # by the first plane
        tables: dict[int, Any] = {}
        self._powers, self._tables = powers, tables
        edges = self._edges = device.zeros((4, count), np.float64)

        def add(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            size = math.prod(points.shape[1:])
            field_size = points.strides[0] // points.itemsize
            segments = -(-size // _SEGMENT)
            powers[plane] = device.empty((segments, POWERS * count), np.float64)
            add_powers = point_kernel(flow, "sums_of_powers").bind(
                RowLaunch(count * segments, _SEGMENT, reduces=True),
                *(points, edges[0], edges[1], powers[plane]),
                *(count, segments, _SEGMENT, size, field_size),
            )
            if not bins:
                return add_powers, [powers[plane]]
            table, add_up = bind_bins(flow, points, edges[2:], (bins,), count)
            tables[plane] = table

            def run(stream: Any) -> None:
                add_powers(stream)
                device.fill(table, 0)(stream)
                add_up(stream)

            return run, [powers[plane], table]

        self._step = commit(flow.record_backward(spectral, add, signs), "serial")

    def read(
        self,
        flow: SpectralStep,
        comm: Comm,
        shifts: np.ndarray | float = 0.0,
        scales: np.ndarray | float = 1.0,
        binning: Binning | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of powers of (field - shift) * scale by field, and counts by field and bin.

        Powers are the first to the sixth of the magnitude, then the signed third.
        """
        device, count = flow.device, self._edges.shape[1]
        edges = np.zeros(self._edges.shape)
        edges[0], edges[1] = shifts, scales
        if binning is not None:
            edges[2], edges[3] = binning.lows, binning.per_bin
        device.run(device.copy(self._edges, device.array(edges)))
        flow.is_ahead = False  # the planes, which the last step left ready, are overwritten
        self._step.run()
        device.synchronize()
        total = np.zeros((count, POWERS))
        for _, table in sorted(self._powers.items()):
            total += sum_of_rows(device, table).reshape(total.shape)
        counted: Any = sum(
            (device.to_host(one.sum(axis=0))[:, 0] for one in self._tables.values()), 0
        )
        counts = sum_over_ranks(comm, np.asarray(counted, dtype=np.float64))
        return sum_over_ranks(comm, total), counts


def bind_bins(
    flow: SpectralStep,
    values: Any,
    edges: Any,
    bins: Sequence[int],
    sets: int = 1,
    scales: Any = None,
) -> tuple[Any, Operation]:
    """Return a table, and the operation that adds counts by bin, and sums of other values, to it.

    The table [copy, set, 1 + others, bin] has whole numbers, so the order of additions does not
    matter. `edges` are the first edges and the numbers of bins per unit, [2, set and variable].
    """
    device, size = flow.device, math.prod(values.shape[1:])
    variables, (first, *rest) = len(bins), bins
    averaged, all_bins = len(values) // sets - variables, math.prod(bins)
    # Summing the copies takes less time than counting.
    copies = max(1, min(_COPIES, size // max(_SEGMENT, all_bins)))
    length = -(-size // copies)
    table = device.zeros((copies, sets, 1 + averaged, all_bins), np.int64)
    operation = point_kernel(flow, "sums_in_bins_of_values", values.dtype).bind(
        RowLaunch(copies * sets, length),
        *(values, edges[0], edges[1], edges[0] if scales is None else scales, table),
        *(sets, variables, averaged, first, math.prod(rest), copies, length, size),
        values.strides[0] // values.itemsize,
    )
    return table, operation


def point_kernel(flow: SpectralStep, name: str, dtype: Any = None) -> Kernel:
    """Return a kernel of statistics at points, by default for the dtype of the state."""
    real = flow.real if dtype is None else real_name(dtype)
    return flow.device.kernel("point_statistics.hpp", name, REAL=real)


def sum_over_points(
    flow: SpectralStep,
    spectral: Any,
    function: Callable[[Any], Any],
    comm: Comm,
    signs: Sequence[int],
) -> float:
    """Return the sum over the box of ``function(fields)``, of some planes at a time. Collective.

    Planes are summed in the order of z, so the sum does not depend on their division into chunks or
    among ranks.
    """
    device, box = flow.device, flow.problem.geometry.physical_box
    sums: dict[int, Any] = {}

    def add(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        size = points.shape[2] * points.shape[3]
        count = max(1, _POINTS_AT_A_TIME // size)

        def run(stream: Any) -> None:
            for low in range(0, points.shape[1], count):
                fields = (one[low : low + count].astype(np.float64, order="C") for one in points)
                # Each plane alone: a GPU's sum along an axis depends on how many there are.
                sums[plane + low] = [values.sum() for values in function(fields)]

        return run, []

    to_points(flow, spectral, add, signs)
    planes = np.zeros(flow.problem.geometry.shape[0])
    for plane, values in sums.items():
        own, low = device.to_host(device.array_module.stack(values)), box.start[0] + plane
        planes[low : low + len(own)] = own
    return float(np.sum(sum_over_ranks(comm, planes)))


def coefficients_of(problem: SpectralProblem) -> list[sympy.Expr]:
    """Return the functions of the points that multiply fields."""
    return [expression.subs(problem.values) for expression in problem.model.coefficients]


def check_coefficients(problem: SpectralProblem) -> list[str]:
    """Refuse coefficients that are not periodic in the box; return warnings of unresolved parts."""
    warnings: list[str] = []
    for expression in coefficients_of(problem):
        check_periodic(expression, problem.periods, "equation.model")
        warnings += check_resolved(expression, problem, "equation.model")
    return warnings


def set_coefficients(flow: SpectralStep) -> None:
    """Set the constant components: the functions of the points that multiply fields."""
    functions = coefficients_of(flow.problem)
    if functions:
        first = len(flow.problem.model.unknowns)
        target, signs = flow.state[first:], flow.problem.signs[first:]
        set_points(flow, target, [evaluator(expression) for expression in functions], signs)
        keep_sphere(flow, target)
