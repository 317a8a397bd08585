"""Solid bodies in the box, by volume penalisation.

In a body, fields follow du/dt = -(mask/eta) (u - u_body) in addition to their equations (Angot,
Bruneau and Fabrie, Numer. Math. 81, 497, 1999). A step is split (Lie): first a step of the
equations, then one of the penalisation, solved exactly at every point,

    u <- u_body + (u - u_body) exp(-mask step / eta),

with bodies where they are at the end of the step; then modes are taken, dealiased, and the pressure
projects the velocity. So eta does not limit the step. The splitting error is at the surface:
between two steps the flow diffuses into the body. If the step is shorter than eta, this is less
than the diffusion during eta.

The mask is (1 - tanh(2 d / width)) / 2, with d the distance from the surface, negative inside. With
width = 2.648 sqrt(viscosity eta) the flow outside equals the flow around a sharp surface to second
order in the width (Hester, Vasil and Burns, J. Comput. Phys. 430, 110043, 2021), and so eta follows
from the width.

The force and the torque on a body are sums over points of the momentum that it takes. To round-off,
the mean velocity changes by their sum and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slipstream.case import SpectralCase
from slipstream.case.named_tables import Body
from slipstream.case.spectral_case import Forcing
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.decomposition import split
from slipstream.engine.device import RowLaunch
from slipstream.engine.device.array_kernels import sum_of_rows
from slipstream.engine.errors import InputError
from slipstream.engine.fft.slab_engine import (
    ColumnTile,
    Signs,
    TileUpdate,
    record_columns,
    record_from_points,
    record_to_points,
)
from slipstream.engine.schedule import StepGraph
from slipstream.equations.fourier_forms import AXES, with_numbers
from slipstream.files.voxel_images import open_image
from slipstream.spectral.fields_at_points import PointReader, values_to_modes
from slipstream.spectral.formula_parser import GivenFunction, evaluator, is_name, parsed
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem, field_parts, key_of, velocity_of

# The ratio of width to sqrt(diffusivity eta) that puts the surface in its place, for a hyperbolic
# tangent (Hester, Vasil and Burns).
_OPTIMAL = 2.64822828
# The same ratio for an error function.
_OPTIMAL_ERF = 3.11346786
# Numbers of the box, as in bodies.hpp.
_HEADER = 8
# Numbers of each body before those of its fields, as in bodies.hpp.
_PARTS = 28
# Beyond this many widths the mask is 0 in double precision.
_REACHES = 9.0
_FAR = 1e300
_KINDS = {"sphere": 0, "cylinder": 1, "box": 2, "image": 3, "formula": 3}
# The most curves of forces in a picture.
_MOST_DRAWN = 6
# The number of points at which a formula is evaluated together.
_POINTS_AT_A_TIME = 1 << 22


def _set_by(body: Body, problem: SpectralProblem, key: str) -> set[int]:
    """Return the components that a body sets: the velocity, and scalars for which it has values."""
    velocity = velocity_of(problem.model)
    parts = {part.name: part for part in field_parts(problem.model)}
    components = set(range(velocity.start, velocity.stop))
    for name in body.values:
        part = parts.get(name)
        if part is None or part.is_vector:
            scalars = ", ".join(n for n, one in parts.items() if not one.is_vector) or "none"
            raise InputError(f"{key}.values: {name!r} is no scalar of the model; it has: {scalars}")
        components |= set(range(part.first, part.first + part.size))
    return components


def _fields_of(bodies: Sequence[Body], problem: SpectralProblem) -> tuple[range, list[int]]:
    """Return the components that are transformed to points, and which of them bodies set."""
    components = set[int]().union(
        *(_set_by(body, problem, key_of("bodies", bodies, n)) for n, body in enumerate(bodies))
    )
    return range(min(components), max(components) + 1), sorted(components)


def _center(body: Body, lengths: np.ndarray) -> np.ndarray:
    return lengths / 2 if body.center is None else np.array(body.center)


def _through(body: Body, lengths: np.ndarray) -> np.ndarray:
    """Return for each axis whether the body extends through the whole box."""
    if body.shape == "cylinder":
        return np.array([axis == body.axis and body.length is None for axis in AXES])
    if body.size is not None:
        return np.array(body.size) >= lengths * (1 - 1e-12)
    return np.zeros(3, bool)


def check_bodies(case: SpectralCase, problem: SpectralProblem) -> list[str]:
    """Refuse bodies that cannot be computed; return warnings."""
    bodies, warnings = case.bodies, []
    if not bodies:
        return []
    lengths = np.array(problem.lengths[::-1])
    for force in case.forcing if case.grid.walls else ():
        if force.kind == "mean-flow" and force.velocity and force.velocity[2]:
            raise InputError(
                f"forcing.velocity: {list(force.velocity)} would go through the walls of"
                " grid.walls; accepted: 0 along z"
            )
    for number, body in enumerate(bodies):
        key = key_of("bodies", bodies, number)
        through = _through(body, lengths)
        turning = np.array(body.rotation) != 0
        # Only rotation about its axis keeps a body that extends through the box periodic.
        if any(through[a] and turning[b] for a in range(3) for b in range(3) if a != b):
            raise InputError(
                f"{key}.rotation: {list(body.rotation)} would turn a body that extends through the"
                " whole box; accepted: rotation about its own axis"
            )
        if case.grid.walls and (
            body.velocity[2] or not 0 <= _center(body, lengths)[2] <= lengths[2]
        ):
            name = "velocity" if body.velocity[2] else "center"
            accepted = "0" if name == "velocity" else f"0 to {lengths[2]:g}"
            raise InputError(
                f"{key}.{name}: {list(getattr(body, name))} would be beyond the walls of"
                f" grid.walls; accepted: along z {accepted}"
            )
        _etas(body, problem, key)
        _check_size(body, problem, key)
        spacing = max(_spacings(problem))
        smallest = min([2 * body.radius] if body.radius else body.size or [math.inf])
        if smallest < spacing:
            warnings.append(
                f"{key}: {smallest:g} across, it is smaller than the spacing of points,"
                f" {spacing:g}: it has little or no effect; use more points, or a larger body"
            )
        if body.width is not None and body.width < spacing:
            warnings.append(
                f"{key}.width: {body.width:g} is less than the spacing of points, {spacing:g}:"
                " the surface is not resolved; use more points, or a larger width"
            )
        if body.formula is not None and not is_name(body.formula):
            parsed(body.formula, f"{key}.formula", has_time=True)
    return warnings


def _check_size(body: Body, problem: SpectralProblem, key: str) -> None:
    """Refuse round bodies that would overlap their periodic images."""
    sides = zip(AXES, problem.geometry.shape[::-1], problem.lengths[::-1], strict=True)
    for axis, points, side in sides:
        is_along = body.shape == "cylinder" and axis == body.axis
        name = "length" if is_along else "radius"
        size, most = getattr(body, name), side if is_along else side / 2
        if points > 1 and size is not None and size > most * (1 + 1e-12):
            raise InputError(f"{key}.{name}: {size:g}; accepted: at most {most:g}, to fit in")


def bytes_of_bodies(bodies: Sequence[Body], problem: SpectralProblem) -> int:
    """Return the bytes of points, masks and sums."""
    if not bodies:
        return 0
    fields, box = len(_fields_of(bodies, problem)[0]), problem.geometry.physical_box
    masks = sum(_KINDS[body.shape] == 3 for body in bodies)
    points = (fields + masks) * box.size * problem.real_dtype.itemsize
    return int(points + 8 * box.shape[0] * box.shape[1] * len(bodies) * (fields + 3))


def _spacings(problem: SpectralProblem) -> list[float]:
    sizes = zip(problem.geometry.shape, problem.lengths, strict=True)
    return [length / n for n, length in sizes if n > 1] or [min(problem.lengths)]


def _width(body: Body, problem: SpectralProblem) -> float:
    return body.width if body.width is not None else 1.5 * max(_spacings(problem))


def _diffusivity(problem: SpectralProblem, component: int) -> float | None:
    """Return the diffusivity of a component, if it is damped by a Laplacian."""
    decay = with_numbers(problem.model.decay[component], problem.values)
    rate = problem.decay_functions[problem.decays.index(decay)]
    k = 2 * math.pi / max(problem.lengths)
    one, two, three = (float(np.real(rate(n * k, 0.0, 0.0))) for n in (1, 2, 3))
    own = (two - one) / (3 * k**2)
    return own if own > 0 and abs(three - one - 8 * own * k**2) < 1e-9 * three else None


def _etas(body: Body, problem: SpectralProblem, key: str) -> dict[int, float]:
    """Return the relaxation time eta of each component that a body sets."""
    etas = {}
    for component in sorted(_set_by(body, problem, key)):
        eta = body.eta
        if eta is None:
            diffusivity = _diffusivity(problem, component)
            if diffusivity is None:
                name = problem.model.components[component]
                raise InputError(
                    f"{key}.eta: missing, and {name} has no diffusivity from which it follows;"
                    " accepted: a time, such as a few time steps"
                )
            factor = _OPTIMAL_ERF if body.shape == "image" else _OPTIMAL
            eta = (_width(body, problem) / factor) ** 2 / diffusivity
        etas[component] = eta
    return etas


class Bodies:
    """The bodies of a simulation, on this rank. Methods are collective."""

    def __init__(
        self, bodies: Sequence[Body], forces: Sequence[Forcing], flow: SpectralStep, comm: Comm
    ) -> None:
        self._flow, self._comm = flow, comm
        flow.after.append(self.record)
        problem, device = flow.problem, flow.device
        self._bodies = bodies
        self._fields, self._set_components = _fields_of(bodies, problem)
        self._vector = velocity_of(problem.model).start - self._fields.start
        self._box = problem.geometry.physical_box
        shape = self._box.shape
        self._points = device.zeros((len(self._fields), *shape), problem.real_dtype)
        stored = [body for body in bodies if _KINDS[body.shape] == 3]
        self._masks = device.zeros((len(stored), *shape), problem.real_dtype)
        self._rows, self._parts = shape[0] * shape[1], len(self._fields) + 3
        self._sums = device.zeros((self._rows, len(bodies), self._parts), np.float64)
        nz, all_y, _ = problem.geometry.stored_shape
        ranges = len(problem.geometry.ranges)
        self._gains = device.zeros((ranges, max(1, nz * all_y)), np.float64)
        self._held = device.zeros((3,), np.float64)
        size = _HEADER + len(bodies) * (_PARTS + 2 * len(self._fields))
        self._numbers = device.zeros((size,), np.float64)
        self._means = device.zeros((3,), np.float64)
        self._functions: dict[int, Callable[..., Any]] = {}
        self._moving: list[int] = []
        self._measured: np.ndarray | None = None
        self._step, self._is_old, self._warned = math.nan, True, False
        self.warnings: list[str] = []
        self.restate(forces)
        for number, body in enumerate(bodies):
            if body.shape == "image":
                self._read_image(number, body)
            elif body.formula is not None:
                self._take_formula(number, body)

    def restate(self, forces: Sequence[Forcing]) -> None:
        """Change the parameters of the same bodies, and the mean flow that is held."""
        problem, device = self._flow.problem, self._flow.device
        held = [one.velocity for one in forces if one.kind == "mean-flow"]
        self.holds = bool(held)
        self._mean = np.array(held[0] if held else (0.0, 0.0, 0.0), float)
        device.synchronize()
        device.run(device.copy(self._means, self._mean))
        device.synchronize()
        self._etas = [
            _etas(body, problem, key_of("bodies", self._bodies, n))
            for n, body in enumerate(self._bodies)
        ]
        self._last_numbers = np.zeros(0)

    # -- masks -------------------------------------------------------------------------------

    def _place_of(self, number: int) -> int:
        return sum(_KINDS[body.shape] == 3 for body in self._bodies[:number])

    def _read_image(self, number: int, body: Body) -> None:
        """Set a mask to the solid voxels of an image, smoothed by a Gaussian. Collective."""
        flow, key = self._flow, key_of("bodies", self._bodies, number)
        device, shape = flow.device, flow.problem.geometry.shape
        image = open_image(str(body.path), pore=body.solid, comm=self._comm)
        if tuple(image.shape) != tuple(shape):
            raise InputError(
                f"{key}.path: {body.path} has {list(image.shape[::-1])} voxels along x, y and z;"
                f" accepted: the numbers of grid.points, {list(shape[::-1])}"
            )
        solid = image.read(self._box).astype(flow.problem.real_dtype)
        if not sum_over_ranks(self._comm, np.array([float(solid.sum())]))[0]:
            what = "but 0" if body.solid is None else f"with the value {body.solid}"
            raise InputError(f"{key}.solid: {body.path} has no voxel {what}; accepted: one it has")
        target = flow.stage[:1]
        even = [1] if flow.problem.signs else []
        values_to_modes(flow, device.array(solid)[None], target, even)
        # A Gaussian filter turns the step at the surface into an error function of the width.
        deviation = _width(body, flow.problem) / math.sqrt(2 * math.pi)
        z, y, x = (device.array_module.exp(-0.5 * (deviation * k) ** 2) for k in flow.wave_axes)
        modes = flow.modes_of(target)[0]
        modes *= (z[:, None, None] * y[:, None] * x).astype(flow.problem.real_dtype)
        mask = self._masks[self._place_of(number) : self._place_of(number) + 1]
        device.synchronize()
        PointReader(flow, target, even).read(flow, mask)
        device.array_module.clip(mask, 0, 1, out=mask)
        device.synchronize()

    def _take_formula(self, number: int, body: Body) -> None:
        key = f"{key_of('bodies', self._bodies, number)}.formula"
        if is_name(body.formula):
            given = GivenFunction(str(body.formula), key, 1)
            self._functions[number], moves = given.component(0), given.has_time
        else:
            expression = parsed(str(body.formula), key, has_time=True)
            self._functions[number] = evaluator(expression)
            moves = "t" in {str(one) for one in expression.free_symbols}
        if moves:
            self._moving.append(number)
        self._evaluate(number, 0.0)

    def _evaluate(self, number: int, time: float) -> None:
        """Set a mask from a formula for the distance, at a time."""
        flow, body, function = self._flow, self._bodies[number], self._functions[number]
        device, (planes, rows, nx) = flow.device, self._box.shape
        if not self._rows:
            return
        mask = self._masks[self._place_of(number)]
        along_z, along_y, along_x = (
            axis[part]
            for axis, part in zip(flow.problem.point_lines, self._box.slices(), strict=True)
        )
        y, x = device.array(along_y)[None, :, None], device.array(along_x)[None, None, :]
        count = max(1, _POINTS_AT_A_TIME // (rows * nx))
        kernel = device.kernel("bodies.hpp", "masks_of_distances", **self._constants)
        width = _width(body, flow.problem)

        def fill(stream: Any) -> None:
            for low in range(0, planes, count):
                z = device.array(along_z[low : low + count])[:, None, None]
                mask[low : low + count] = function(x, y, z, device.array_module, time=time)

        device.run(fill)
        device.run(kernel.bind(RowLaunch(planes * rows, nx), mask, planes * rows, nx, width))
        device.synchronize()

    # -- in a step ---------------------------------------------------------------------------

    @property
    def _constants(self) -> dict[str, Any]:
        fields = len(self._fields)
        return {
            "REAL": self._flow.real,
            "FIELDS": fields,
            "VECTOR": self._vector,
            "BODY_SIZE": _PARTS + 2 * fields,
            "REACHES": _REACHES,
        }

    def record(self, graph: StepGraph) -> None:
        """Record the action of bodies, which ends the step. Collective."""
        flow, fields = self._flow, len(self._fields)
        state = flow.read_state()[self._fields.start : self._fields.stop]
        own = flow.problem.signs[self._fields.start : self._fields.stop]
        signs = Signs(leaving=own, arriving=own)
        record_columns(graph, flow.passes, state, signs=signs)
        record_to_points(graph, flow.passes, self._points, fields)
        self._record_points(graph)
        record_from_points(graph, flow.passes, self._points, fields)
        updates = [self._update(state)]
        record_columns(graph, flow.passes, updates=updates, forward=fields, signs=signs)

    def _record_points(self, graph: StepGraph) -> None:
        device, (_, rows_y, nx) = self._flow.device, self._box.shape
        kernel = device.kernel("bodies.hpp", "penalise", **self._constants)
        points = self._points.reshape(len(self._fields), self._rows, nx)
        masks = self._masks.reshape(-1)
        for number, (low, high) in enumerate(split(self._rows, device.lanes)):
            if low == high:
                continue
            rows, sums = points[:, low:high], self._sums[low:high]
            operation = kernel.bind(
                RowLaunch(high - low, nx, reduces=True),
                rows,
                self._numbers,
                masks[low * nx :] if masks.size else rows,
                sums,
                high - low,
                low,
                rows_y,
                nx,
                self._rows * nx,
                self._box.start[0],
                self._box.start[1],
                len(self._bodies),
            )
            graph.add(
                operation,
                reads=[self._numbers, *([masks] if masks.size else [])],
                writes=[rows, sums],
                label="bodies",
                category="compute",
                lane=graph.lane_of_batch(number, device)[1],
                moves=(rows.nbytes, rows.nbytes),
            )

    def _update(self, state: Array) -> Callable[[ColumnTile], TileUpdate]:
        flow = self._flow
        problem = flow.problem
        is_set = ["true" if one in self._set_components else "false" for one in self._fields]
        active = ["true" if one < problem.model.active else "false" for one in self._fields]
        spherical = problem.dealiasing.is_spherical
        constants = {
            "REAL": flow.real,
            "TAKES_MODES": 1,
            "FIELDS": len(self._fields),
            "VECTOR": self._vector,
            "TAKEN": "{" + ", ".join(is_set) + "}",
            "ACTIVE": "{" + ", ".join(active) + "}",
            "HOLDS": "true" if self.holds else "false",
            "SPHERE": len(problem.numbers) if spherical else -1,
            "WALLS": "false" if problem.mirror is None else "true",
        }
        nz, _, all_x = problem.geometry.spectral_box.shape
        scale = 1.0 / math.prod(problem.geometry.shape)
        ranges: list[int] = []

        def update(tile: ColumnTile) -> TileUpdate:
            fields, tables = tile.part(state), flow.tables_on[tile.device]
            first_x, nx = tile.kx_among(all_x)
            if first_x not in ranges:
                ranges.append(first_x)
            gains = self._gains[ranges.index(first_x)]
            kernel = tile.device.kernel("bodies.hpp", "take_penalised", **constants)
            operation = kernel.bind(
                RowLaunch(nz * (tile.high - tile.low), nx, reduces=True),
                tile.columns,
                fields,
                tables.wavenumbers,
                tables.parameters,
                self._means,
                self._held,
                gains,
                *flow.mode_layout(tile, fields),
                scale,
            )
            reads = [tile.columns, fields, self._means]
            writes = [fields, gains, self._held]
            return TileUpdate(
                operation, reads, writes, [fields], (2 * fields.nbytes, fields.nbytes)
            )

        return update

    def set_step(self, time: float, step: float) -> None:
        """Set the size of the next step, and where bodies are at its end."""
        device, problem = self._flow.device, self._flow.problem
        lengths = np.array(problem.lengths[::-1])
        points = np.array(problem.geometry.shape[::-1])
        header = np.zeros(_HEADER)
        header[0] = step
        # Along an axis of one point nothing has a distance.
        periods = np.array(problem.periods[::-1])
        header[1:4], header[4:7] = np.where(points > 1, periods, 0), lengths / points
        header[7] = problem.point_lines[0][0]
        bodies = [
            self._numbers_of(n, body, time + step, lengths) for n, body in enumerate(self._bodies)
        ]
        numbers = np.concatenate([header, *bodies])
        if not np.array_equal(numbers, self._last_numbers):
            device.synchronize()
            device.run(device.copy(self._numbers, numbers))
            device.synchronize()
            self._last_numbers = numbers
        for number in self._moving:
            device.synchronize()
            self._evaluate(number, time + step)
        self._step, self._measured, self._is_old = step, None, False
        self._warn_of_layers(step)

    def new_warnings(self) -> list[str]:
        """Return the warnings of bodies, each once."""
        found, self.warnings = self.warnings, []
        return found

    def _warn_of_layers(self, step: float) -> None:
        """Warn once where the flow diffuses further into bodies in a step than in eta."""
        first = self._fields[self._vector]
        viscosity = _diffusivity(self._flow.problem, first)
        least = min(etas[first] for etas in self._etas)
        if viscosity and step > 2 * least and not self._warned:
            self._warned = True
            # The mean overshoot of a random walk that is stopped at a surface at regular times.
            recedes = 0.5826 * math.sqrt(2 * viscosity * step)
            self.warnings.append(
                f"bodies: the time step {step:.3g} is longer than eta, {least:.3g}: between steps"
                f" the flow diffuses into bodies, whose surface recedes by about {recedes:.2g};"
                " use a smaller step (time.step, time.max_step), or a larger width"
            )

    def _numbers_of(self, number: int, body: Body, time: float, lengths: np.ndarray) -> np.ndarray:
        """Return the numbers of a body at a time that the kernel reads."""
        numbers = np.zeros(_PARTS + 2 * len(self._fields))
        center = _center(body, lengths)
        stays = _KINDS[body.shape] == 3
        numbers[0] = _KINDS[body.shape]
        numbers[1:4] = center if stays else center + np.array(body.velocity) * time
        numbers[4:7], numbers[7:10] = body.velocity, body.rotation
        axes = np.eye(3) if stays else turned(np.array(body.rotation) * time).T
        width, through = _width(body, self._flow.problem), _through(body, lengths)
        half = np.full(3, body.radius or 0.0)
        if body.shape == "cylinder":
            along = AXES.index(body.axis)
            # In the body's axes the cylinder is along the last one.
            axes = np.roll(np.eye(3), 2 - along, axis=0) @ axes
            numbers[20:23] = _FAR if through.any() else (body.length or 0.0) / 2
            half[along] = numbers[22]
        elif body.size is not None:
            half = np.where(through, _FAR, np.array(body.size) / 2)
            numbers[20:23] = half
        numbers[10:19] = axes.ravel()
        numbers[19], numbers[23], numbers[24] = body.radius or 0.0, width, self._place_of(number)
        if any(body.rotation) and body.shape != "sphere":
            half = np.where(through, _FAR, np.linalg.norm(half[~through]))
        numbers[25:28] = _FAR if stays else half + _REACHES * width
        # The kernel computes the target velocity itself.
        unknowns = self._flow.problem.model.unknowns
        for component, eta in self._etas[number].items():
            place = _PARTS + 2 * (component - self._fields.start)
            numbers[place] = body.values.get(unknowns[component].field, 0.0)
            numbers[place + 1] = 1 / eta
        return numbers

    # -- results -----------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget the last step, since the state has been replaced."""
        self._is_old, self._measured = True, None

    def kept(self) -> tuple[float, np.ndarray] | None:
        """Return the last step, and what bodies took from this rank's fields in it; else None."""
        if self._is_old:
            return None
        if self._measured is None:
            device = self._flow.device
            device.synchronize()
            size = len(self._bodies) * self._parts
            sums = np.zeros(size)
            if self._rows:
                sums = sum_of_rows(device, self._sums.reshape(self._rows, size))
            gain = float(sum_of_rows(device, self._gains.reshape(-1, 1))[0])
            waves = self._flow.wavenumbers
            has_mean = all(np.any(axis == 0) for axis in (waves.z, waves.y, waves.x))
            held = device.to_host(self._held) if self.holds and has_mean else np.zeros(3)
            self._measured = np.concatenate([sums, [gain], held])
        return self._step, self._measured

    def restore(self, kept: tuple[float, np.ndarray] | None) -> None:
        """Restore what `kept` returned, perhaps in another simulation of the same case."""
        self._is_old = kept is None
        if kept is not None:
            self._step, self._measured = kept

    def work(self) -> float:
        """Return the work of bodies and of the mean-flow force in the last step. Collective."""
        self._flow.device.synchronize()
        own = sum_of_rows(self._flow.device, self._gains.reshape(-1, 1))
        return float(sum_over_ranks(self._comm, own)[0])

    def measured(self) -> tuple[dict[str, float], float, float]:
        """Return columns of the last step, and the powers of bodies and of the mean-flow force."""
        kept = self.kept()
        names = [name for body in self._bodies for name in self._names(body)]
        own = np.zeros(len(self._bodies) * self._parts + 4) if kept is None else kept[1]
        total = sum_over_ranks(self._comm, own)
        step = math.nan if kept is None else self._step
        problem = self._flow.problem
        volume = math.prod(problem.lengths)
        each = total[:-4].reshape(len(self._bodies), self._parts)
        per_point = volume / math.prod(problem.geometry.shape) / step
        # The force, the torque, and the scalars of each body.
        first = self._vector
        order = [*range(first, first + 3), *range(self._parts - 3, self._parts)]
        order += [scalar - self._fields.start for scalar in self._scalars]
        values = (each[:, order] * per_point).ravel().tolist()
        held, push = 0.0, np.full(3, 0.0 if self.holds else math.nan)
        if self.holds:
            push = (self._mean - total[-3:]) / step
            held = float(np.dot(self._mean + total[-3:], push)) / 2
        columns = dict(zip(names, values, strict=True))
        if self.holds:
            columns |= {f"mean_force_{a}": float(f) for a, f in zip(AXES, push, strict=True)}
        if kept is None:
            return dict.fromkeys(columns, math.nan), math.nan, math.nan if self.holds else 0.0
        return columns, float(total[-4]) / step - held, held

    def _names(self, body: Body) -> list[str]:
        scalars = [
            f"{body.name}_{self._flow.problem.model.components[one]}_loss" for one in self._scalars
        ]
        return [
            *(f"{body.name}_force_{axis}" for axis in AXES),
            *(f"{body.name}_torque_{axis}" for axis in AXES),
            *scalars,
        ]

    @property
    def _scalars(self) -> list[int]:
        vector = self._fields.start + self._vector
        return [one for one in self._set_components if not vector <= one < vector + 3]

    def fields(self) -> list[str]:
        """Return the names of fields that bodies set: budgets of single fields would not close."""
        unknowns = self._flow.problem.model.unknowns
        return list(dict.fromkeys(unknowns[one].field for one in self._set_components))

    def drawn_forces(self) -> list[str]:
        """Return the columns of forces to draw: of the first bodies, along axes with points."""
        points = self._flow.problem.geometry.shape[::-1]
        axes = [axis for axis, n in zip(AXES, points, strict=True) if n > 1]
        return [f"{body.name}_force_{axis}" for body in self._bodies for axis in axes][:_MOST_DRAWN]

    def labels(self) -> dict[str, str]:
        """Return the long names of columns."""
        labels = {
            "bodies_power": "energy per volume that bodies add per time; mean of the last step"
        }
        for body in self._bodies:
            for axis in AXES:
                labels[f"{body.name}_force_{axis}"] = (
                    f"force on {body.name} along {axis}, of a fluid of density 1; mean of the last"
                    " step"
                )
                labels[f"{body.name}_torque_{axis}"] = (
                    f"torque on {body.name} around {axis}, about its center; mean of the last step"
                )
            for name in self._names(body)[6:]:
                scalar = name.removeprefix(f"{body.name}_").removesuffix("_loss")
                labels[name] = f"amount of {scalar} that {body.name} takes per time"
        for axis in AXES if self.holds else ():
            labels[f"mean_force_{axis}"] = (
                f"force per mass that keeps the mean flow along {axis}; mean of the last step"
            )
        return labels


def turned(angles: np.ndarray) -> np.ndarray:
    """Return the matrix that rotates by a vector of angles (Rodrigues' formula)."""
    angle = float(np.linalg.norm(angles))
    if angle == 0:
        return np.eye(3)
    x, y, z = angles / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation: np.ndarray = (
        np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * (cross @ cross)
    )
    return rotation
