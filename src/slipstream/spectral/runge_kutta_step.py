"""The time step of any model, recorded once.

In each Runge-Kutta substage the fields that the model's products need are transformed to physical
space, and the products are transformed back. One pass over the modes does the rest: derivatives,
the pressure, the linear terms and the substage itself. `slab_engine` fuses these with the
transforms.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slipstream.engine import kernels
from slipstream.engine.array_types import Array
from slipstream.engine.device import Device, Kernel, RowLaunch
from slipstream.engine.exchange import GridTransports, Transport
from slipstream.engine.fft import PointOperation, PointProduct
from slipstream.engine.fft.pack_unpack import real_name
from slipstream.engine.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    Passes,
    Signs,
    SlabEngine,
    TileUpdate,
    record_columns,
    record_from_points,
    record_through,
    record_to_points,
)
from slipstream.engine.schedule import StepGraph
from slipstream.equations import code_generation
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.runge_kutta_tableaux import RESOLVENT
from slipstream.spectral.sheared_frame import PointShifts, gauss_constants
from slipstream.spectral.spectral_problem import KernelTables, SpectralProblem


class SpectralStep:
    """The fields of one rank, and the graphs that advance them.

    Spectral arrays have the shape (components, kz, ky of this rank, row) and hold the Fourier
    coefficients of ``u(x) = sum_k u_hat(k) exp(i k . x)``; rows are padded, see `modes_of`. Between
    steps diagnostics use the memory of the stage, and `working`: that memory and as many more
    fields as any of them needs.
    """

    def __init__(
        self,
        problem: SpectralProblem,
        device: Device,
        transport: Transport | GridTransports | None,
        passes: Callable[[Transport | GridTransports | None], Passes] | None = None,
        shares: SpectralStep | None = None,
    ) -> None:
        self.problem, self.device = problem, device
        geometry, model = problem.geometry, problem.model
        self.wavenumbers = Wavenumbers(geometry, problem.lengths, problem.is_sheared)
        dtype = problem.complex_dtype

        def fields(count: int) -> Array:
            return device.zeros((count, *geometry.stored_shape), dtype)

        if shares is None:
            state, self.working = fields(problem.size), fields(problem.stage_size)
        else:  # of the same fields
            state, self.working = shares._fields["state"], shares.working
        self.stage = self.working[: problem.size]
        self.inputs: Any = fields(len(model.inputs)) if problem.has_inputs else None
        self.forcing = fields(len(problem.forced))
        self._integrating_factor = IntegratingFactor(problem, self.wavenumbers, device)
        self._fields: dict[str, Any] = {
            "state": state,
            "stage": self.stage,
            "total": fields(problem.size) if problem.method.has_total else state,
            "inputs": self.stage if self.inputs is None else self.inputs,
            "forcing": self.forcing,
            "decay": self._integrating_factor.of_modes,
            "propagators": fields(len(problem.propagators) * len(problem.coupled)),
            "carried": fields(problem.size) if problem.method.carries else state,
        }
        self.passes: Passes = (
            SlabEngine(device, geometry, problem.transformed, dtype, transport, beside="rows")
            if passes is None
            else passes(transport)
        )
        # The factors of the patterns of force per substage, and the ones that a step reads.
        self._steady = np.ones((problem.method.substages, len(problem.forced)))
        self._step_values = np.zeros(0)
        self.tables_on = {
            one: KernelTables(problem, one, self.wavenumbers, len(problem.forced))
            for one in {device: None} | dict.fromkeys(self.passes.devices)
        }
        self.tables = self.tables_on[device]
        self.real = real_name(problem.real_dtype)
        # In a sheared frame, the shifts from points of the box to points of the frame, and back.
        self._shifts = PointShifts(problem, self.wavenumbers) if problem.is_sheared else None
        header = code_generation.mode_header(model)
        if problem.propagates:
            header += "\n" + code_generation.linear_header(model, problem.coupled)
        self._model_header = f'"{kernels.write(header)}"'
        self._step_size: float | None = None
        self._is_steady = False  # whether the last factors are 1
        # Whether the planes have the inputs of the next step: set by the code that runs steps.
        self.is_ahead = False
        # Additional nodes of a step: `before` and `after` everything else, when the stage is free,
        # and `with_points` after the first product, which has stored points.
        self.before: list[Callable[[StepGraph], None]] = []
        self.after: list[Callable[[StepGraph], None]] = []
        self.stored_points: Any = None
        self.with_points: Callable[[StepGraph], None] | None = None
        # Evaluations of the state, which are repeated if the equations change.
        self.evaluations: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept: dict[Hashable, Any] = {}

    def restate(self, problem: SpectralProblem) -> None:
        """Take other parameters of the same model: recorded graphs read them from tables."""
        self.problem, self.is_ahead = problem, False
        self._integrating_factor.restate(problem, self.wavenumbers)
        for tables in self.tables_on.values():
            tables.restate(problem)
        self._step_values, self._step_size = np.zeros(0), None

    def follow(self, numbers: Mapping[str, float]) -> None:
        """Take the numbers of parameters that follow the state."""
        problem = self.problem
        if all(problem.parameters[name] == value for name, value in numbers.items()):
            return
        problem.follow(numbers)
        if problem.model.linear_follows:
            self.restate(problem)
            return
        for tables in self.tables_on.values():
            tables.restate(problem)

    def succeed(self, former: SpectralStep) -> None:
        """Take the state and the evaluations of a step of the same fields, which ends its use."""
        former.device.synchronize()
        self.device.run(self.device.copy(self.state, former.read_state()))
        self.device.synchronize()
        self.tilt, self.evaluations = former.tilt, former.evaluations
        for evaluation in list(self.evaluations):
            evaluation.flow = self
            evaluation.restate()

    @property
    def tilt(self) -> float:
        """The tilt of the frame: wavenumbers along y are reduced by tilt times kx."""
        return self.wavenumbers.tilt

    @tilt.setter
    def tilt(self, tilt: float) -> None:
        if tilt != self.wavenumbers.tilt:
            self.wavenumbers.tilt = tilt
            for tables in self.tables_on.values():
                tables.tilt(tilt)

    @property
    def state(self) -> Any:
        """The state, to be changed: the planes that the last step left ready become invalid."""
        self.is_ahead = False
        return self._fields["state"]

    def read_state(self) -> Any:
        """Return the state to a caller that does not change it."""
        return self._fields["state"]

    def read_stage(self, substage: int) -> Any:
        """Return the input of a substage: the state, or the stage."""
        return self._fields["stage" if substage else "state"]

    @functools.cached_property
    def wave_axes(self) -> tuple[Array, Array, Array]:
        """The wavenumbers along z, y and x in double precision, on the device."""
        waves, array = self.wavenumbers, self.device.array
        return tuple(array(axis, np.float64) for axis in (waves.z, waves.y, waves.x))  # type: ignore[return-value]

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the object cached under a key for this step's fields, or make it."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def modes_of(self, array: Array) -> Array:
        """Return the kept modes of a spectral array, without the padding of its rows."""
        return array[..., : self.problem.geometry.spectral_box.shape[2]]

    # -- recording ---------------------------------------------------------------------------

    def record_step(
        self, compute: bool = True, begins: bool = True, is_odd: bool = False
    ) -> StepGraph:
        """Return the graph of one time step.

        Without `compute` it has only transforms and exchanges, for benchmarks. If it `begins`, it
        starts from the state; else from the planes, where the last step has left its inputs: run
        that only if `is_ahead`. With shifted grids, even and odd steps take turns.
        """
        graph = self._begun()
        if begins or not self.goes_ahead:
            self.record_inputs(graph, self.passes, grid=self.problem.grid_of(0, is_odd))
        for substage in range(self.problem.method.substages):
            self._record_substage(graph, substage, compute, is_odd)
        for record in self.after:
            record(graph)
        return graph

    def record_parts(self, is_odd: bool = False) -> list[StepGraph]:
        """Return the graphs of all substages, between which the stage may be changed."""
        graphs = []
        for substage in range(self.problem.method.substages):
            graph = StepGraph(self.passes.devices[0]) if substage else self._begun()
            if not substage:
                self.record_inputs(graph, self.passes, grid=self.problem.grid_of(0, is_odd))
            self._record_substage(graph, substage, is_odd=is_odd)
            graphs.append(graph)
        for record in self.after:
            record(graphs[-1])
        return graphs

    def _begun(self) -> StepGraph:
        """Return the graph of a step up to its first substage."""
        graph = self.new_graph()
        for record in self.before:
            record(graph)
        return graph

    def _record_substage(
        self, graph: StepGraph, substage: int, compute: bool = True, is_odd: bool = False
    ) -> None:
        """Record substage number `substage`, beginning with the planes."""
        method, model, passes = self.problem.method, self.problem.model, self.passes
        last = substage + 1 == method.substages
        is_scaled = bool(self.problem.held)
        if substage and is_scaled:  # only now the stage has the fields to transform
            self.record_inputs(graph, passes, "stage")
        product = self.product_on(substage == 0) if compute else None
        record_through(graph, passes, product, len(model.inputs), len(model.products))
        if compute and not substage and self.with_points:
            self.with_points(graph)
        updates = [self._substage(substage, is_odd)] if compute else []
        source = None if last or is_scaled else self._fields["inputs"]
        if last and self.goes_ahead:
            source, taken = self._beginning("state", self.problem.grid_of(0, not is_odd))
            updates += taken
        products, chunks = len(model.products), passes.input_chunks
        signs = self.problem.step_signs
        record_columns(graph, passes, source, updates, products, chunks=chunks, signs=signs)

    @property
    def goes_ahead(self) -> bool:
        """Whether the end of a step begins the next one: see `Passes.goes_ahead`."""
        # In a sheared frame the inputs depend on the tilt at the end of the step, known later.
        turns = self.problem.is_sheared and self.problem.has_inputs
        waits = self.problem.is_staged or turns or bool(self.before)
        return self.passes.goes_ahead and not waits

    def product_on(self, is_measured: bool) -> Callable[[Device], PointProduct]:
        """Return the function that makes a product; the first one of a step is measured."""

        def product(device: Device) -> PointProduct:
            tables = self.tables_on[device]
            if not is_measured:
                return tables.unmeasured
            if self.stored_points is None:
                return tables.product
            return replace(tables.product, stored=self.problem.stored, points=self.stored_points)

        return product

    def record_inputs(
        self, graph: StepGraph, passes: Passes, name: str = "state", grid: int = -1
    ) -> None:
        """Record the first half of the transform of the state, or the stage, to physical space."""
        source, updates = self._beginning(name, grid)
        signs, chunks = self.problem.step_signs, passes.input_chunks
        record_columns(graph, passes, source, updates, chunks=chunks, signs=signs)

    def _beginning(self, name: str, grid: int) -> tuple[Any, list[ColumnUpdate]]:
        """Return the fields that are transformed first, and the updates that make them."""
        if self.inputs is None:
            return self._fields[name], []
        return self.inputs, [functools.partial(self._take_inputs, name, grid)]

    def record_backward(
        self, source: Any, store: PointOperation, signs: Sequence[int]
    ) -> StepGraph:
        """Return the graph that takes spectral fields (count, kz, ky of this rank, row) to points.

        `count` is at most the number of fields that are transformed together. `store` gets each
        chunk of points, see `PlaneTask`. In a sheared box they are points of the
        box, not of the frame. Between walls, `signs` has 1 for each even field and -1 for each odd
        one.
        """
        if self._shifts is not None:
            store = self._shifts.before(store, self.device)
        graph, self.is_ahead = StepGraph(self.passes.devices[0]), False
        record_columns(graph, self.passes, source, signs=Signs(leaving=signs))
        record_to_points(graph, self.passes, store, len(source))
        return graph

    def record_forward(self, load: PointOperation, target: Any, signs: Sequence[int]) -> StepGraph:
        """Return the graph that sets spectral fields from points, not normalised."""
        if self._shifts is not None:
            load = self._shifts.after(load, self.device)
        graph, self.is_ahead = StepGraph(self.passes.devices[0]), False
        record_from_points(graph, self.passes, load, len(target))
        sizes: dict[str, Any] = {"forward": len(target), "target": target}
        record_columns(graph, self.passes, **sizes, signs=Signs(arriving=signs))
        return graph

    def new_graph(self) -> StepGraph:
        """Return a graph that begins by clearing the results of the last step."""
        graph = StepGraph(self.passes.devices[0])
        for device in self.passes.devices:
            tables = self.tables_on[device]
            graph.add(
                device.fill(tables.found, 0),
                writes=[tables.found],
                label="reset",
                category="compute",
                device=device,
            )
        return graph

    def _take_inputs(self, name: str, grid: int, tile: ColumnTile) -> TileUpdate:
        """Return the update that makes the inputs of a model from the state, or the stage."""
        state, inputs = tile.part(self._fields[name]), tile.part(self.inputs)
        nz, all_y, all_x = self.problem.geometry.spectral_box.shape
        tables, height = self.tables_on[tile.device], tile.high - tile.low
        first_x, nx = tile.kx_among(all_x)
        header = "nonlinear_rates.hpp"
        operation = self.model_kernel(header, "take_inputs", tile.device, GRID=grid).bind(
            RowLaunch(nz * height, nx),
            state,
            inputs,
            tables.wavenumbers,
            tables.phases,
            tables.parameters,
            nz,
            height,
            nx,
            *(state.strides[axis] // state.itemsize for axis in (2, 0, 1)),
            first_x,
            all_x,
            tile.low,
            all_y,
        )
        return TileUpdate(operation, [state], [inputs], [])

    def _constants_of(self, substage: int, is_odd: bool) -> dict[str, Any]:
        """Return the constants that the kernel of a substage is compiled with."""
        problem, method = self.problem, self.problem.method
        last = substage + 1 == method.substages
        propagated = self._propagators_of(substage) if problem.propagates else {}
        return {
            **propagated,
            **self._held_constants(),
            **(gauss_constants(problem) if problem.is_sheared else {}),
            "NODE": method.nodes[substage],
            "NODE_NEXT": method.divisions if last else method.nodes[substage + 1],
            "NODE_END": method.divisions,
            "WRITES_STAGE": not last,
            "WRITES_RESULT": last or method.weights[substage] != 0,
            "WRITES_INPUTS": self.inputs is not None and not problem.held,
            "MARKS": last,
            "READS_TOTAL": any(method.weights[:substage]),
            "INTEGRATING_FACTOR": problem.integrating_factor,
            "SPHERE": len(problem.numbers) if problem.dealiasing.is_spherical else -1,
            "GRID_NOW": problem.grid_of(substage, is_odd),
            "GRID_NEXT": -1 if last else problem.grid_of(substage + 1, is_odd),
            "FORCES": len(problem.forced),
            "FORCED": "{" + ", ".join(map(str, problem.forced or (0,))) + "}",
            "SUBSTAGE": substage,
        }

    def _held_constants(self) -> dict[str, Any]:
        """Return the constants of shells that keep their energy, if there are any."""
        held = self.problem.held
        if not held:
            return {}
        start, columns = 1 + self._steady.size, []
        for one in held:
            columns.append((one.first, one.size, one.low, one.high, start))
            start += one.count
        lists = ("{" + ", ".join(map(str, each)) + "}" for each in zip(*columns, strict=True))
        names = ("HELD_FIRST", "HELD_SIZE", "HELD_LOW", "HELD_HIGH", "HELD_AT")
        unit = repr(float(self.wavenumbers.unit))
        return {"HELD": len(held), "UNIT": unit, **dict(zip(names, lists, strict=True))}

    def set_held(self, factors: np.ndarray) -> None:
        """Set the factors of the rates of shells that keep their energy."""
        self.device.synchronize()
        for tables in self.tables_on.values():
            tables.device.synchronize()
            self._copy(tables.device, tables.held, factors.astype(self.problem.real_dtype))

    def _propagators_of(self, substage: int) -> dict[str, Any]:
        """Return the indices of the propagators that a substage applies; -1 for none."""
        propagators = self.problem.method.propagators(substage)
        index_of: dict[Any, int] = {
            one: number for number, one in enumerate(self.problem.propagators)
        }
        return {
            "PROPAGATED": True,
            "START_TO_STAGE": index_of.get(propagators.start_to_stage, -1),
            "RATE_TO_STAGE": index_of.get(propagators.rate_to_stage, -1),
            "START_TO_RESULT": index_of.get(propagators.start_to_result, -1),
            "RATE_TO_RESULT": index_of.get(propagators.rate_to_result, -1),
            "START_TO_CARRIED": index_of.get(propagators.start_to_carried, -1),
            "CARRY_RATE": index_of.get(propagators.carry_rate, -1),
            "BEGINS_CARRIED": propagators.begins_carried,
        }

    def _substage(self, substage: int, is_odd: bool) -> ColumnUpdate:
        """Return the function that makes a substage's update of a range of ky."""
        problem, method = self.problem, self.problem.method
        last, weight = substage + 1 == method.substages, method.weights[substage]
        read, written = problem.accesses(substage)
        lasting = problem.lasting
        feed = 0.0 if last else method.feeds[substage]
        nz, _, all_x = problem.geometry.spectral_box.shape
        product_count = len(problem.model.products)
        scale = 1.0 / math.prod(problem.geometry.shape)

        def update(tile: ColumnTile) -> TileUpdate:
            tables = self.tables_on[tile.device]
            parts = {name: tile.part(self._fields[name]) for name in sorted(read | written)}
            # The kernel does not access the others: any array will do.
            products, some = tile.columns, next(iter(parts.values()))
            names = (
                "state",
                "stage" if substage else "state",
                "total",
                "stage",
                "state" if last else "total",
                "inputs",
                "forcing",
            )
            decay: Array = parts.get("decay", tables.decay)
            decay_strides = [stride // decay.itemsize for stride in decay.strides[:2]]
            # The same strides in all parts of a tile except the decay.
            field = next(part for name, part in parts.items() if name != "decay")
            operation = self._substage_kernels(tile.device, is_odd)[substage].bind(
                RowLaunch(nz * (tile.high - tile.low), tile.kx_among(all_x)[1]),
                products,
                *(parts.get(name, some) for name in names),
                tables.step,
                decay,
                tables.wavenumbers,
                tables.phases,
                tables.parameters,
                tables.marks,
                parts.get("propagators", some),
                parts.get("carried", some),
                *self.mode_layout(tile, field),
                *[*decay_strides, 0][:2],
                feed,
                weight,
                scale,
            )
            reads = [products, tables.step, tables.decay]
            reads += [parts[name] for name in sorted(read)]
            writes, kept = (
                [parts[name] for name in sorted(names)] for names in (written, written & lasting)
            )
            if last:
                writes.append(tables.marks[tile.low : tile.high])
            # Only the kept modes of the columns are read.
            kept_part = nz / max(1, products.shape[1]) * product_count / len(products)
            read_bytes = kept_part * products.nbytes + sum(one.nbytes for one in reads[1:])
            moves = read_bytes, sum(one.nbytes for one in writes)
            return TileUpdate(operation, reads, writes, kept, moves)

        return update

    def _substage_kernels(self, device: Device, is_odd: bool) -> list[Kernel]:
        """Return the kernels of all substages."""
        common = {"REAL": self.real, "MODEL_HEADER": self._model_header}
        every = range(self.problem.method.substages)
        variants = [common | self._constants_of(substage, is_odd) for substage in every]
        return device.kernel_variants("runge_kutta_substage.hpp", "advance_substage", variants)

    def mode_layout(self, tile: ColumnTile, field: Array) -> tuple[int, ...]:
        """Return the sizes, strides and offsets with which kernels address the modes of a tile."""
        geometry, columns = self.problem.geometry, tile.columns
        (nz, all_y, all_x), modes = geometry.spectral_box.shape, geometry.modes[0]
        first_x, nx = tile.kx_among(all_x)
        of_products = [stride // columns.itemsize for stride in columns.strides[:3]]
        *of_state, row = (stride // field.itemsize for stride in field.strides[:3])
        sizes = nz, tile.high - tile.low, nx, row, modes.low, modes.gap
        return (*sizes, *of_products, *of_state, first_x, all_x, tile.low, all_y)

    def model_kernel(
        self, header: str, name: str, device: Device | None = None, **constants: Any
    ) -> Kernel:
        """Return a kernel compiled for the model, for this device or another."""
        return (device or self.device).kernel(
            header, name, REAL=self.real, MODEL_HEADER=self._model_header, **constants
        )

    def run_over_rows(self, kernel: Kernel, *arrays: Array, last: Sequence[Any] = ()) -> None:
        """Run a kernel over all rows of modes, on the device of the fields."""
        nz, ny, row = self.problem.geometry.stored_shape
        nx = self.problem.geometry.spectral_box.shape[2]
        if nz * ny:
            launch = RowLaunch(nz * ny, nx, reduces=True)
            sizes = nz, ny, nx, row, nz * ny * row
            self.device.run(kernel.bind(launch, *arrays, *sizes, *last))

    def weigh_rows(self, sums: Array, first: int = 0) -> None:
        """Multiply sums over rows of modes, from row `first` on, by their multiplicity."""
        waves = self.wavenumbers
        if not waves.has_walls:
            return
        of_rows = np.repeat(waves.multiplicity_z, waves.y.size)
        weights = self.once("weights", lambda: self.device.array(of_rows))
        own, module = weights[first : first + len(sums), None], self.device.array_module
        self.device.run(lambda stream: module.multiply(sums, own, out=sums))

    # -- between steps -----------------------------------------------------------------------

    def set_step_size(self, step: float, factors: np.ndarray | None = None) -> None:
        """Set the step size of recorded graphs, and the integrating factors for it.

        Patterns of force are multiplied by `factors`, shape (substages, patterns); 1 by default.
        """
        if factors is None and step == self._step_size and self._is_steady:
            return
        self._is_steady = factors is None
        factors = self._steady if factors is None else factors
        values = np.concatenate([[step], factors.ravel()])
        if np.array_equal(values, self._step_values):
            return
        problem = self.problem
        duration = step / problem.method.divisions
        changes = step != self._step_size and problem.integrating_factor and not problem.is_sheared
        if problem.propagates:
            if step != self._step_size:
                self._fill_propagators(step)
            changes = False
        decays = self._integrating_factor.along_axes(duration) if changes else None
        self.device.synchronize()
        for tables in self.tables_on.values():
            tables.device.synchronize()
            part = tables.step[: values.size]
            self._copy(tables.device, part, values.astype(problem.real_dtype))
            if decays is not None:
                self._copy(tables.device, tables.decay, decays)
        self._step_values = values
        if changes and decays is None:
            self._integrating_factor.fill(
                self.model_kernel("integrating_factor.hpp", "fill_integrating_factor"),
                self.tables.wavenumbers,
                self.tables.parameters,
                duration,
            )
        self._step_size = step

    def _fill_propagators(self, step: float) -> None:
        """Set the functions of the linear terms for a time step."""
        (nz, ny, nx), tables = self.problem.geometry.spectral_box.shape, self.tables
        count, array = len(self.problem.coupled), self._fields["propagators"]
        row, field = self.problem.geometry.row, array.strides[0] // array.itemsize
        if not nz * ny:
            return
        self.device.synchronize()
        for number, propagator in enumerate(self.problem.propagators):
            part = array[number * count : (number + 1) * count]
            durations = dict.fromkeys(fraction for fraction, _, _ in propagator)
            for index, duration in enumerate(durations):
                weights = [0.0] * RESOLVENT
                for fraction, phi, weight in propagator:
                    weights[phi % RESOLVENT] += weight * (fraction == duration)
                kernel = self.model_kernel(
                    "propagators.hpp",
                    "fill_propagator",
                    ADDS=index > 0,
                    IMPLICIT=self.problem.method.is_implicit,
                )
                sizes = nz, ny, nx, row, field
                arrays = part, tables.wavenumbers, tables.parameters
                launch = RowLaunch(nz * ny, nx)
                self.device.run(kernel.bind(launch, *arrays, *sizes, duration * step, *weights))

    def kept(self) -> list[Any]:
        """Return the state and the results of the last step, as they are until the next step."""
        self.device.synchronize()
        for tables in self.tables_on.values():
            tables.device.synchronize()
        return [self.read_state(), *(tables.found for tables in self.tables_on.values())]

    def restore(self, kept: list[Any]) -> None:
        """Restore what `kept` returned, perhaps by another step of the same problem."""
        self._copy(self.device, self.state, kept[0])
        for tables, found in zip(self.tables_on.values(), kept[1:], strict=True):
            self._copy(tables.device, tables.found, found)

    @staticmethod
    def _copy(device: Device, target: Array, values: Array) -> None:
        device.run(device.copy(target, values))
        device.synchronize()


class IntegratingFactor:
    """The factors exp(-rate duration) - 1 of a rank's modes, which decay at these rates.

    Subtracting 1 keeps digits where the decay is small. If the rate is a sum of functions of one
    wavenumber each, a kernel multiplies factors along x, y and z; otherwise one factor per mode is
    stored.
    """

    def __init__(self, problem: SpectralProblem, waves: Wavenumbers, device: Device) -> None:
        self._problem, self._device = problem, device
        self._rates = rates_along_axes(problem, waves) if problem.is_separable else None
        stored = len(problem.decays) if problem.has_factors_of_modes else 0
        # One factor per mode, unless they are products of factors along the axes.
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
        for axis, wavenumbers in enumerate((waves.x, waves.y, waves.z)):
            wavevector = [np.zeros_like(wavenumbers)] * 3
            wavevector[axis] = wavenumbers
            # A constant rate counts along x.
            parts.append(
                rate(*wavevector) + np.zeros_like(wavenumbers) - (constant if axis else 0.0)
            )
    return np.concatenate(parts)
