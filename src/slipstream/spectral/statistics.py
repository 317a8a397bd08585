"""Statistics of a state: transfer, anisotropy, correlations, structure functions, densities.

Statistics of modes are sums over shells and other bins (`spectrum`). Statistics of points are
summed on the device for each chunk of planes that the backward transform produces, so no field of
points is ever in memory as a whole. Fields to transform are made in the memory of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.case.output_tables import plain_name
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.device import RowLaunch
from slipstream.engine.device.array_kernels import scale_to_bits
from slipstream.engine.errors import InputError
from slipstream.engine.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    TileUpdate,
    record_columns,
    record_through,
)
from slipstream.engine.fields import Field
from slipstream.engine.schedule import StepGraph, commit
from slipstream.equations import Quantity
from slipstream.equations.fourier_forms import AXES, Form
from slipstream.files.time_series import whole_field
from slipstream.spectral.evaluation import Evaluation
from slipstream.spectral.expressions import quantity_of
from slipstream.spectral.fields_at_points import Binning, PointSums, bind_bins
from slipstream.spectral.kept_modes import shells_of, smallest_wavenumber
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.spectrum import (
    Bins,
    box_means,
    by_field,
    sums_in_bins,
    sums_in_shells,
    variances,
    vorticity,
)

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation


# Expressions that are evaluated together.
_MOST = 9
# The highest order of structure functions.
ORDERS = 6
# Bins per root mean square.
_BINS_TO_ONE = 10
# The distance of the last bin on either side, in root mean squares.
_FARTHEST = 10
_BINS = 2 * _BINS_TO_ONE * _FARTHEST


# -- of chosen scalars -----------------------------------------------------------------------------


class JointDensity:
    """The probability density of one or two scalars, and conditional `means` of others."""

    def __init__(
        self,
        simulation: SpectralSimulation,
        of: Sequence[Any],
        means: Sequence[Any],
        bins: Sequence[int],
        where: str,
    ) -> None:
        self._simulation, self._bins, self._where = simulation, tuple(bins), where
        keys = [f"{where}.of"] * len(of) + [f"{where}.means"] * len(means)
        quantities = [
            quantity_of(source, simulation.problem, key)
            for source, key in zip((*of, *means), keys, strict=True)
        ]
        for quantity, key in zip(quantities, keys, strict=True):
            if quantity.rank or quantity.is_complex:
                raise InputError(
                    f"{key}: {quantity.text} is {quantity.kind}; accepted: real scalars"
                )
        if len(quantities) > _MOST:
            raise InputError(
                f"{where}.means: has {len(means)}; accepted: {_MOST - len(of)} at most"
            )
        texts = [str(getattr(source, "text", source)) for source in (*of, *means)]
        names = [plain_name(text) for text in texts]
        self.names, self.means = names[: len(of)], names[len(of) :]
        self.texts = texts
        for group in (self.names, self.means):
            if len(set(group)) < len(group):
                raise InputError(f"{where}: {group[0]!r} is there twice; accepted: each once")
        if "time" in self.names:
            raise InputError(f"{where}.of: 'time' is taken; accepted: other names")
        forms = [quantity.forms[0] for quantity in quantities]
        size = next(n for n in (1, 3, 9) if n >= len(forms))
        together = Quantity([*forms, *[Form({})] * (size - len(forms))], ", ".join(texts))
        self._together = together

    @cached_property
    def _values(self) -> Evaluation:
        return Evaluation(self._simulation.flow, self._together, self._where)

    def limits(self) -> list[tuple[float, float]]:
        """Return the least and the largest value of each variable. Collective."""
        simulation, limits = self._simulation, []
        ends = [
            self._values.reduce(how, simulation.comm, simulation.time) for how in ("min", "max")
        ]
        for number in range(len(self.names)):
            low, high = (float(np.ravel(one)[number]) for one in ends)
            if not math.isfinite(high - low):
                raise InputError(
                    f"{self._where}: {self.texts[number]} has values that are not finite;"
                    " give a range"
                )
            # The largest value is in the last bin.
            span = high - low
            limits.append((low, high + 1e-9 * span) if span > 0 else (low - 0.5, low + 0.5))
        return limits

    def coordinates(self, ranges: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
        """Return the middles of bins, by variable."""
        return {
            name: low + (np.arange(count) + 0.5) * ((high - low) / count)
            for name, count, (low, high) in zip(self.names, self._bins, ranges, strict=True)
        }

    def read(self, ranges: Sequence[Sequence[float]]) -> list[np.ndarray]:
        """Return the density, then each conditional mean, of the present state. Collective.

        The density integrates to the share of points in the bins; a mean without points is
        not-a-number.
        """
        simulation, flow = self._simulation, self._simulation.flow
        device, module = flow.device, flow.device.array_module
        count, averaged = len(self.names), len(self.means)
        # One more bin on either side takes the values beyond.
        bins = [n + 2 for n in self._bins]
        widths = np.array(
            [(high - low) / n for n, (low, high) in zip(self._bins, ranges, strict=True)]
        )
        lows = np.array([low for low, _ in ranges]) - widths
        edges = device.array(np.stack([lows, 1 / widths]))
        chunks: dict[int, tuple[Any, np.ndarray]] = {}

        def take(values: Array, plane: int) -> None:
            size = math.prod(values.shape[1:])
            scales = np.zeros(max(1, averaged))
            for number in range(averaged):
                most = float(module.abs(values[count + number]).max())
                # Values that are not finite make all means not-a-number.
                bits = 62 - size.bit_length()
                scales[number] = scale_to_bits(most, bits) if math.isfinite(most) else math.nan
            known = device.array(np.nan_to_num(scales))
            if not np.isfinite(scales).all():
                values = module.nan_to_num(values)
            table, add = bind_bins(flow, values, edges, bins, scales=known)
            add(device.default_stream)
            chunks[plane] = table.sum(axis=0)[0], scales

        used = slice(0, count + averaged)
        self._values.each_chunk(take, simulation.time, exact=True, components=used)
        device.synchronize()
        total = np.zeros((1 + averaged, math.prod(bins)))
        for _, (sums, scales) in sorted(chunks.items()):
            chunk = device.to_host(sums).astype(np.float64)
            total[0] += chunk[0]
            for number in range(averaged):
                if scales[number] != 0:
                    total[1 + number] += chunk[1 + number] / scales[number]
        inner: Any = (slice(None), *(slice(1, -1) for _ in bins))
        points, *means = sum_over_ranks(simulation.comm, total).reshape(-1, *bins)[inner]
        density = points / (math.prod(widths) * math.prod(flow.problem.geometry.shape))
        with np.errstate(invalid="ignore"):
            return [density, *(np.where(points > 0, one / points, np.nan) for one in means)]

    def long_names(self) -> dict[str, str]:
        """Return the descriptions of the density and the means, by name."""
        texts = self.texts
        variables = " and ".join(texts[: len(self.names)])
        names = {"density": f"probability density of {variables}"}
        for name, text in zip(self.means, texts[len(self.names) :], strict=True):
            names[f"{name}_mean"] = f"mean of {text} at given {variables}"
        return names

    def fields(self, ranges: Sequence[Sequence[float]] | None) -> dict[str, Field]:
        """Return the density and the means as fields, by name. Collective."""
        ranges = self.limits() if ranges is None else ranges
        axes = self.coordinates(ranges)
        named = zip(self.long_names().items(), self.read(ranges), strict=True)
        return {name: whole_field(name, text, values, axes) for (name, text), values in named}


# -- of modes --------------------------------------------------------------------------------------


def nonlinear_term(flow: SpectralStep) -> Array:
    """Return the rate of every mode due to products, in the memory of the stage. Collective.

    Where substages shift the grid, it is the mean over both grids: without aliases, as in the step.
    """
    grids = (False, True) if flow.problem.dealiasing.is_shifted else (False,)
    for is_shifted in grids:
        commit(record_nonlinear_term(flow, is_shifted, 1 / len(grids)), "serial").run()
    flow.device.synchronize()
    return flow.stage


def record_nonlinear_term(
    flow: SpectralStep, is_shifted: bool = False, weight: float = 1.0
) -> StepGraph:
    """Return the graph that sets the stage to the nonlinear term; a shifted one is added to it."""
    passes, model = flow.passes, flow.problem.model
    graph, outputs = StepGraph(passes.devices[0]), len(model.products)
    flow.is_ahead = False
    flow.record_inputs(graph, passes, grid=0 if is_shifted else -1)
    record_through(graph, passes, flow.product_on(False), len(model.inputs), outputs)
    updates, signs = [_update(flow, is_shifted, weight)], flow.problem.step_signs
    record_columns(graph, passes, None, updates, outputs, signs=signs)
    return graph


def _update(flow: SpectralStep, is_shifted: bool, weight: float) -> ColumnUpdate:
    problem = flow.problem
    nz, _, all_x = problem.geometry.spectral_box.shape
    scale = weight / math.prod(problem.geometry.shape)

    def update(tile: ColumnTile) -> TileUpdate:
        products, stage = tile.columns, tile.part(flow.stage)
        tables = flow.tables_on[tile.device]
        kernel = flow.model_kernel(
            "nonlinear_rates.hpp",
            "nonlinear_term",
            tile.device,
            SPHERE=len(problem.numbers) if problem.dealiasing.is_spherical else -1,
            SHIFTED=is_shifted,
            ADDS=is_shifted,
        )
        operation = kernel.bind(
            RowLaunch(nz * (tile.high - tile.low), tile.kx_among(all_x)[1]),
            products,
            stage,
            tables.wavenumbers,
            tables.phases,
            tables.parameters,
            *flow.mode_layout(tile, stage),
            scale,
        )
        reads = [products, stage] if is_shifted else [products]
        return TileUpdate(operation, reads, [stage], [stage])

    return update


def transfer(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield the energy transfer to each shell by products, and the flux through it. Collective.

    The transfer is the sum over a shell of Re(conj(u_hat) . N_hat), where N is the nonlinear term
    of the field u. The flux through a wavenumber is minus the sum of the transfer up to it. Uniform
    source terms belong to neither.
    """
    waves = flow.wavenumbers
    rates = flow.modes_of(nonlinear_term(flow))
    state = flow.modes_of(flow.read_state())

    def sums(first: int, size: int) -> np.ndarray:
        part = slice(first, first + size)
        return sums_in_shells(flow, state[part], rates[part], comm)

    axis = {"wavenumber": waves.unit * np.arange(waves.shell_count)}
    for name, values in by_field(parts, flow.problem.model.active, sums):
        of = "energy" if name == "energy" else f"energy of {name}"
        yield whole_field(
            f"{name}_transfer",
            f"transfer of {of} to a shell by products (non-dimensional)",
            values,
            axis,
        )
        yield whole_field(
            f"{name}_flux",
            f"flux of {of} through a wavenumber to larger ones (non-dimensional)",
            -np.cumsum(values),
            axis,
        )


def anisotropic(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield spectra over wavenumbers perpendicular and parallel to z. Collective."""
    waves, (length_z, *lengths), state = flow.wavenumbers, flow.problem.periods, flow.read_state()
    modes_z, *modes = flow.problem.geometry.modes
    across = smallest_wavenumber(lengths, modes)
    along, levels = 2 * math.pi / length_z, modes_z.low
    shells = shells_of(waves.furthest[1:], across)

    number = "rint(sqrt(y * y + x * x) / a) * c + rint(fabs(z) / b)"
    bins = Bins(number, shells * levels, across, along, float(levels))

    def sums(first: int, size: int) -> np.ndarray:
        part = flow.modes_of(state[first : first + size])
        return sums_in_bins(flow, part, part, bins, comm).reshape(shells, levels) / 2

    perpendicular = {"wavenumber_perpendicular": across * np.arange(shells)}
    parallel = {"wavenumber_parallel": along * np.arange(levels)}
    for name, values in by_field(parts, flow.problem.model.active, sums):
        text = f"spectrum of {name} over wavenumbers"
        yield whole_field(
            f"{name}_spectrum",
            f"{text} across and along z, sums to its energy (non-dimensional)",
            values,
            perpendicular | parallel,
        )
        yield whole_field(
            f"{name}_spectrum_perpendicular",
            f"{text} across z, sums to its energy (non-dimensional)",
            values.sum(axis=1),
            perpendicular,
        )
        yield whole_field(
            f"{name}_spectrum_parallel",
            f"{text} along z, sums to its energy (non-dimensional)",
            values.sum(axis=0),
            parallel,
        )


def correlation(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield two-point correlations of all fields along x, y and z. Collective.

    <u'(x) u'(x + r)>, where u' is the fluctuation about the mean over the box, at separations of 0
    to half of the box. Vectors have a longitudinal correlation and a transverse one, which is the
    mean of both transverse components. A correlation is the sum of the spectrum over the wavenumber
    along the axis times cos(k r).
    """
    state, shape = flow.modes_of(flow.read_state()), flow.problem.geometry.shape
    components = sum(part.size for part in parts)
    for axis, name in enumerate(AXES):
        size, length = shape[2 - axis], flow.problem.lengths[2 - axis]
        if size == 1:
            continue
        each = [state[number : number + 1] for number in range(components)]
        means = box_means(flow, state[:components], comm) ** 2
        places = np.arange(size // 2 + 1)
        if axis == 1 and flow.tilt:  # where wavenumbers along y are no multiples of the smallest
            values = np.empty((components, len(places)))
            for number in places:
                moved = _moved(flow, components, axis, number * (length / size))
                values[:, number] = [
                    sums_in_bins(flow, component, other, Bins("0", 1), comm)[0]
                    for component, other in zip(each, moved, strict=True)
                ] - means
        else:
            units = [length / (2 * math.pi) if number == axis else 0.0 for number in range(3)]
            bins = Bins("rint(fabs(x * a + y * b + z * c))", size // 2 + 1, *units)
            spectra = np.array(
                [sums_in_bins(flow, component, component, bins, comm) for component in each]
            )
            spectra[:, 0] -= means
            values = spectra @ np.cos(2 * math.pi / size * np.outer(places, places))
        separation = {f"separation_{name}": places * (length / size)}
        for part in parts:
            correlations = values[part.first : part.first + part.size]
            kinds = {"correlation": correlations[0]}
            if part.is_vector:
                across = (correlations.sum(axis=0) - correlations[axis]) / 2
                kinds = {"longitudinal": correlations[axis], "transverse": across}
            for kind, values_of_kind in kinds.items():
                text = "" if kind == "correlation" else f"{kind} "
                yield whole_field(
                    f"{part.name}_{kind}_{name}",
                    f"{text}two-point correlation of {part.name} along {name} (non-dimensional)",
                    values_of_kind,
                    separation,
                )


def _moved(flow: SpectralStep, components: int, axis: int, distance: float) -> list[Array]:
    """Return the modes of components shifted by a distance, in the memory of the stage."""
    moved = _multiplied(flow, slice(components), lambda k: np.exp(1j * k * distance), axis)
    return [flow.modes_of(moved[place : place + 1]) for place in range(components)]


# -- of points -------------------------------------------------------------------------------------


def _multiplied(
    flow: SpectralStep, part: slice, function: Callable[[np.ndarray], np.ndarray], axis: int
) -> Any:
    """Return components multiplied by a function of one wavenumber, in memory of the stage."""
    waves = flow.wavenumbers
    along = (waves.x, waves.along_y, waves.z[:, None, None])[axis]
    own = flow.device.array(function(along), flow.problem.complex_dtype)
    source, target = flow.modes_of(flow.state[part]), flow.modes_of(flow.stage[part])
    flow.device.array_module.multiply(source, own, out=target)
    flow.device.synchronize()
    return flow.stage[part]


def structure(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield the structure functions of all fields along x, y and z. Collective.

    They are means over the box of powers of differences, at separations of 1, 2, 4 ... spacings, up
    to half of the box. Vectors have longitudinal functions, with the signed third power too, and
    transverse ones, which are the mean of both transverse components. Axes of one point have none.
    """
    shape, lengths = flow.problem.geometry.shape, flow.problem.lengths
    components = sum(part.size for part in parts)
    for axis, name in enumerate(AXES):
        size, length = shape[2 - axis], lengths[2 - axis]
        steps = [1 << power for power in range(size.bit_length()) if 2 << power <= size]
        if not steps:
            continue
        distances = np.array(steps) * (length / size)
        means = [_powers_of_differences(flow, components, axis, r, comm) for r in distances]
        powers = np.moveaxis(np.array(means), 0, -1)  # [component, power, separation]
        yield from _structure_fields(parts, powers, axis, {f"separation_{name}": distances})


def _structure_fields(
    parts: Sequence[FieldParts], powers: np.ndarray, axis: int, separation: dict[str, np.ndarray]
) -> Iterator[Field]:
    name, orders = AXES[axis], {"order": np.arange(1.0, ORDERS + 1)}
    for part in parts:
        means = powers[part.first : part.first + part.size]
        text = f"structure functions of {part.name} along {name}, <|difference|^order>"
        if not part.is_vector:
            yield whole_field(
                f"{part.name}_structure_{name}", text, means[0, :ORDERS], orders | separation
            )
            continue
        across = [means[other, :ORDERS] for other in range(3) if other != axis]
        yield whole_field(
            f"{part.name}_longitudinal_{name}",
            f"longitudinal {text}",
            means[axis, :ORDERS],
            orders | separation,
        )
        yield whole_field(
            f"{part.name}_transverse_{name}",
            f"transverse {text}",
            (across[0] + across[1]) / 2,
            orders | separation,
        )
        yield whole_field(
            f"{part.name}_longitudinal_third_{name}",
            f"<difference^3> with its sign, of {part.name} along {name}",
            means[axis, ORDERS],
            separation,
        )


def _powers_of_differences(
    flow: SpectralStep, size: int, axis: int, distance: float, comm: Comm
) -> np.ndarray:
    """Return means of |difference|^1 ... |difference|^ORDERS, and of difference^3, by component."""
    differences = _multiplied(flow, slice(size), lambda k: np.expm1(1j * k * distance), axis)
    signs = flow.problem.signs[:size]
    sums = flow.once(("powers", size), lambda: PointSums(flow, differences, signs))
    means: np.ndarray = sums.read(flow, comm)[0] / math.prod(flow.problem.geometry.shape)
    return means


def pdf(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield probability densities, and moments, of fields and their derivatives. Collective.

    Every component of every field has them; so do the components of the curl of a vector, and each
    component's derivative along its own axis. The variable is the deviation from the mean over the
    root mean square deviation. Bins have a width of 0.1 and go from -10 to 10; values beyond are
    counted in the outermost bins. The skewness and flatness of a constant field are not-a-number.
    """
    size = sum(part.size for part in parts)
    names = [str(value) for value in flow.problem.model.components[:size]]
    signs = np.array(flow.problem.signs, int)
    yield from _densities(flow, flow.state[:size], signs[:size], names, names, "component", comm)
    for part in parts:
        if part.is_vector:
            vector_signs = signs[part.first : part.first + 3]
            curl = [f"{part.name}_curl_{axis}" for axis in AXES]
            texts = [f"the {axis} component of curl {part.name}" for axis in AXES]
            spectral = vorticity(flow, part.first)
            yield from _densities(flow, spectral, -vector_signs, curl, texts, "curl", comm)
            slopes = [f"{part.name}_derivative_{axis}" for axis in AXES]
            texts = [f"d {part.name}_{axis} / d {axis}" for axis in AXES]
            for axis in range(3):
                component = slice(part.first + axis, part.first + axis + 1)
                _multiplied(flow, component, lambda k: 1j * k, axis)
            spectral = flow.stage[part.first : part.first + 3]
            if vector_signs.size:
                vector_signs = vector_signs * (1, 1, -1)
            yield from _densities(flow, spectral, vector_signs, slopes, texts, "derivative", comm)


def _densities(
    flow: SpectralStep,
    spectral: Any,
    signs: np.ndarray,
    names: Sequence[str],
    texts: Sequence[str],
    kind: str,
    comm: Comm,
) -> Iterator[Field]:
    modes = flow.modes_of(spectral)
    mean, sigma = box_means(flow, modes, comm), np.sqrt(variances(flow, modes, comm))
    # A constant field is in the bin of its mean whatever the scale.
    over = np.divide(1.0, sigma, out=np.ones_like(sigma), where=sigma > 0)
    middle = _BINS / 2 + np.where(sigma > 0, 0.0, 0.5)
    per_bin = over * _BINS_TO_ONE
    binning = Binning(mean - middle / per_bin, per_bin, (_BINS,))
    own = signs.tolist()
    sums = flow.once(("pdf", kind, names[0]), lambda: PointSums(flow, spectral, own, _BINS))
    powers, counts = sums.read(flow, comm, mean, over * (sigma > 0), binning)
    points = math.prod(flow.problem.geometry.shape)
    powers, counts = powers / points, counts / points
    axis = {"value": (np.arange(_BINS) + 0.5) / _BINS_TO_ONE - _FARTHEST}
    for column, (name, text) in enumerate(zip(names, texts, strict=True)):
        density, (square, fourth, cube) = counts[column], powers[column, [1, 3, 6]]
        yield whole_field(
            f"{name}_pdf",
            f"probability density of {text}, in root mean squares from its mean",
            density * _BINS_TO_ONE,
            axis,
            kind=kind,
        )
        moments = {
            "mean": mean[column],
            "rms": sigma[column],
            "skewness": cube / square**1.5 if square > 0 else np.nan,
            "flatness": fourth / square**2 if square > 0 else np.nan,
        }
        for word, number in moments.items():
            long = "root mean square distance from the mean" if word == "rms" else word
            yield whole_field(f"{name}_{word}", f"{long} of {text}", number, {})


# Functions by the name in `slipstream.engine.accepted`. They take the step, its fields and the
# communicator, and yield small fields.
STATISTICS: dict[str, Callable[[SpectralStep, list[FieldParts], Comm], Iterator[Field]]] = {
    "transfer": transfer,
    "anisotropic": anisotropic,
    "correlation": correlation,
    "structure": structure,
    "pdf": pdf,
}
