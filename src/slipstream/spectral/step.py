"""The time step of any model, recorded once.

Per Runge-Kutta substage the fields that the model's products need go to physical space, the
products come back, and one pass over the modes does the rest: derivatives, the pressure, the linear
part and the substage itself. See `transforms` for how these are fused with the transforms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import sympy

from slipstream import kernels
from slipstream.device import Device, Operation, RowLaunch
from slipstream.equations import code
from slipstream.equations.forms import WAVENUMBERS
from slipstream.exchange import Transport
from slipstream.fft import PointOperation, PointProduct
from slipstream.fft.rows import real_name
from slipstream.schedule import StepGraph
from slipstream.spectral.problem import SpectralProblem
from slipstream.spectral.product_rates import ProductRates
from slipstream.spectral.transforms import ColumnUpdate, FieldTransforms
from slipstream.spectral.wavenumbers import Wavenumbers


class SpectralStep(ProductRates):
    """A state on one rank and the graphs that advance it.

    Parameters
    ----------
    problem : SpectralProblem
        What to solve.
    device : Device
        Where.
    transport : Transport or None
        How ranks exchange; None on one rank.

    Attributes
    ----------
    state : array, shape (components, kz, ky of this rank, row)
        Fourier coefficients: ``u(x) = sum_k u_hat(k) exp(i k . x)``; see `modes_of`.
    stage, working : array
        What lies between substages, like the state. Between steps it serves diagnostics, and
        `working`, which begins with it, has as many fields as their largest need.
    """

    def __init__(
        self, problem: SpectralProblem, device: Device, transport: Transport | None
    ) -> None:
        self.problem, self.device = problem, device
        geometry, model = problem.geometry, problem.model
        self.wavenumbers = Wavenumbers(geometry, problem.lengths)
        dtype = problem.complex_dtype

        def fields(count: int) -> Any:
            return device.zeros((count, *geometry.stored_shape), dtype)

        self.state, self.working = fields(problem.size), fields(problem.stage_size)
        self.stage = self.working[: problem.size]
        self._total = fields(problem.size) if problem.method.has_total else self.state
        self._inputs = fields(len(model.inputs)) if problem.has_inputs else None
        self._transforms = FieldTransforms(device, geometry, problem.transformed, dtype, transport)
        # Along an axis of one point nothing varies, so nothing can move.
        sizes = zip(geometry.shape, problem.lengths, strict=True)
        per_spacing = [n / L if n > 1 else 0.0 for n, L in sizes]
        self._product = PointProduct(
            header=kernels.write(code.product_header(model)),
            inputs=len(model.inputs), outputs=len(model.products),
            parameters=device.array([*per_spacing[::-1], *problem.numbers], np.float64),
            maxima=device.zeros((max(1, geometry.planes * geometry.shape[1]),), np.int64),
        )  # fmt: skip
        # Only the first substage of a step measures its velocity, which the time step is made of.
        self._unmeasured = replace(self._product, maxima=device.zeros(
            self._product.maxima.shape, np.int64
        ))  # fmt: skip
        self._numbers = device.array([*problem.numbers, *problem.over_radii], np.float64)
        half = [length / n / 2 for n, length in zip(geometry.shape, problem.lengths, strict=True)]
        waves = self.wavenumbers
        shifts = [waves.x * half[2], waves.y * half[1], waves.z * half[0]]
        self._phases = device.array(np.exp(1j * np.concatenate(shifts)), dtype)
        self._table = device.array(self.wavenumbers.table(), problem.real_dtype)
        self.forcing = fields(len(problem.forced)) if problem.forced else None
        # The time step, and the factors of the patterns of force in each substage.
        self._steady = np.ones((problem.method.substages, len(problem.forced)))
        self._step = device.zeros((1 + self._steady.size,), problem.real_dtype)
        self._step_values = np.zeros(0)
        self._decay = device.zeros((problem.decay_size,), problem.real_dtype)
        # Rates of decay along x, y and z, of which a change of the step makes factors.
        self._rates = self._rates_along() if problem.is_separable else None
        self._model_header = f'"{kernels.write(code.mode_header(model))}"'
        self._step_size: float | None = None

    # -- recording ---------------------------------------------------------------------------

    def record_step(self, compute: bool = True) -> StepGraph:
        """Return the graph of one time step.

        Parameters
        ----------
        compute : bool
            False records the transforms and exchanges of the step alone, for benchmarks.
        """
        graph, method, model = self._new_graph(), self.problem.method, self.problem.model
        transforms = self._transforms
        self._record_inputs(graph)
        for substage in range(method.substages):
            product = self._product if substage == 0 else self._unmeasured
            transforms.record_through(
                graph, product if compute else None, len(model.inputs), len(model.products)
            )
            last = substage + 1 == method.substages
            update = self._substage(substage) if compute else None
            source = self.stage if self._inputs is None else self._inputs
            transforms.record_columns(graph, None if last else source, update, len(model.products))
        return graph

    def _record_inputs(self, graph: StepGraph) -> None:
        """Record the first half of the way to physical space."""
        if self._inputs is None:
            self._transforms.record_columns(graph, self.state)
        else:
            self._transforms.record_columns(graph, self._inputs, self._take_inputs)

    def record_backward(self, source: Any, store: PointOperation) -> StepGraph:
        """Return the graph that takes spectral fields to physical space.

        Parameters
        ----------
        source : array, shape (count, kz, ky of this rank, row)
            No more fields than are transformed together; kept.
        store : callable
            Called with each chunk of points, see `PlanePass.record_backward`.
        """
        graph = StepGraph(self.device)
        self._transforms.record_backward(graph, source, store)
        return graph

    def record_forward(self, load: PointOperation, target: Any) -> StepGraph:
        """Return the graph that sets spectral fields from physical space.

        Parameters
        ----------
        load : callable
            Called with each chunk of points, see `PlanePass.record_forward`.
        target : array, shape (count, kz, ky of this rank, row)
            No more fields than are transformed together. The result is not normalised; see
            `normalise`.
        """
        graph = StepGraph(self.device)
        self._transforms.record_forward(graph, load, target)
        return graph

    def record_courant(self) -> StepGraph:
        """Return the graph that measures the velocity, as the first substage of a step does."""
        graph = self._new_graph()
        source = self.state
        if self._inputs is not None:
            source = self._inputs
            operation, reads, writes = self._take_inputs(0, source.shape[2])
            graph.add(operation, reads=reads, writes=writes, label="inputs", category="compute")
        function = self._transforms.product_operation(self._product)
        self._transforms.record_backward(graph, source, function)
        return graph

    def _new_graph(self) -> StepGraph:
        """Return a graph that begins by forgetting the velocity measured before."""
        graph, maxima = StepGraph(self.device), self._product.maxima
        graph.add(lambda stream: maxima.fill(0), writes=[maxima], label="reset", category="compute")
        return graph

    def _take_inputs(self, low: int, high: int) -> tuple[Operation, list, list]:
        state, inputs = self.state[:, :, low:high], self._inputs[:, :, low:high]
        (nz, all_y, nx), row = self.problem.geometry.spectral_box.shape, self.problem.geometry.row
        operation = self._kernel("take_inputs").bind(
            RowLaunch(nz * (high - low), nx), state, inputs, self._table, self._numbers, nz,
            high - low, nx, row, state.strides[0] // state.itemsize, all_y * row, low, all_y,
        )  # fmt: skip
        return operation, [state], [inputs]

    def _constants(self, substage: int) -> dict[str, Any]:
        """Return what the kernel of a substage is compiled for."""
        problem, method = self.problem, self.problem.method
        last = substage + 1 == method.substages
        return {
            "NODE": method.nodes[substage],
            "NODE_NEXT": method.divisions if last else method.nodes[substage + 1],
            "NODE_END": method.divisions,
            "WRITES_STAGE": not last,
            "WRITES_RESULT": last or method.weights[substage] != 0,
            "WRITES_INPUTS": self._inputs is not None,
            "READS_TOTAL": any(method.weights[:substage]),
            "INTEGRATING_FACTOR": problem.integrating_factor,
            "SPHERE": len(problem.numbers) if problem.dealiasing.is_spherical else -1,
            "SHIFTED_NOW": problem.dealiasing.is_shifted and substage % 2 == 1,
            "SHIFTED_NEXT": problem.dealiasing.is_shifted and substage % 2 == 0,
            "FORCES": len(problem.forced),
            "FORCED": "{" + ", ".join(map(str, problem.forced or (0,))) + "}",
            "SUBSTAGE": substage,
        }

    def _substage(self, substage: int) -> ColumnUpdate:
        """Return what makes the update of a range of ky: (operation, reads, writes)."""
        problem, method = self.problem, self.problem.method
        last, weight = substage + 1 == method.substages, method.weights[substage]
        constants = self._constants(substage)
        kernel = self._kernel("advance_substage", **constants)
        start = self.state
        current = start if substage == 0 else self.stage
        result = self.state if last else self._total
        inputs = self.stage if self._inputs is None else self._inputs
        forcing = start if self.forcing is None else self.forcing
        feed = 0.0 if last else method.feeds[substage]
        z_modes = problem.geometry.modes[0]
        nz, all_y, nx = problem.geometry.spectral_box.shape
        row, scale = problem.geometry.row, 1.0 / math.prod(problem.geometry.shape)

        def update(low: int, high: int) -> tuple[Operation, list, list]:
            def part(array: Any) -> Any:
                return array[:, :, low:high]

            products, old, now = part(self._transforms.columns), part(start), part(current)
            total, stage, new = part(self._total), part(self.stage), part(result)
            operation = kernel.bind(
                RowLaunch(nz * (high - low), nx), products, old, now, total, stage, new,
                part(inputs), part(forcing), self._step, self._decay, self._table, self._phases,
                self._numbers, nz, high - low, nx, row, z_modes.low, z_modes.gap,
                products.strides[0] // products.itemsize, old.strides[0] // old.itemsize,
                all_y * row, low, all_y, feed, weight, scale,
            )  # fmt: skip
            reads = [products, old, now, part(forcing), self._step, self._decay]
            reads += [total] if constants["READS_TOTAL"] else []
            writes = [stage] if constants["WRITES_STAGE"] else []
            writes += [new] if constants["WRITES_RESULT"] else []
            if not last and self._inputs is not None:
                writes.append(part(inputs))
            return operation, reads, writes

        return update

    def _kernel(self, name: str, header: str = "spectral_substage.hpp", **constants: Any):
        real = real_name(self.problem.real_dtype)
        return self.device.kernel(
            header, name, REAL=real, MODEL_HEADER=self._model_header, **constants
        )

    # -- between steps -----------------------------------------------------------------------

    def set_step_size(self, step: float, factors: np.ndarray | None = None) -> None:
        """Set the step that the recorded graph takes, and the decay factors that go with it.

        Parameters
        ----------
        step : float
            The time step.
        factors : numpy.ndarray, shape (substages, patterns of force), optional
            What these are multiplied by; 1 by default.
        """
        factors = self._steady if factors is None else factors
        values = np.concatenate([[step], factors.ravel()])
        if np.array_equal(values, self._step_values):
            return
        problem = self.problem
        duration = step / problem.method.divisions
        self.device.synchronize()
        self._copy(self._step, values.astype(problem.real_dtype))
        self._step_values = values
        if step == self._step_size:
            return
        if problem.integrating_factor and self._rates is not None:
            self._copy(self._decay, np.exp(-duration * self._rates).astype(problem.real_dtype))
        elif problem.integrating_factor:
            nz, ny, nx = problem.geometry.spectral_box.shape
            if nz * ny:
                kernel = self._kernel("fill_decay")
                self.device.run(kernel.bind(
                    RowLaunch(nz * ny, nx), self._decay, self._table, self._numbers, nz, ny, nx,
                    duration,
                ))  # fmt: skip
        self._step_size = step

    def _copy(self, target: Any, values: np.ndarray) -> None:
        self.device.run(self.device.copy(target, values))
        self.device.synchronize()

    def _rates_along(self) -> np.ndarray:
        """Return the rates of decay along x, y and z, one after the other for each that differs."""
        waves, parts = self.wavenumbers, []
        for rate in self.problem.decays:
            along = sympy.lambdify(WAVENUMBERS, rate, "numpy")
            constant = float(along(0.0, 0.0, 0.0))
            for axis, own in enumerate((waves.x, waves.y, waves.z)):
                zeros = [np.zeros_like(own)] * 3
                zeros[axis] = own
                # What does not depend on the wavevector decays along x.
                parts.append(along(*zeros) + np.zeros_like(own) - (constant if axis else 0.0))
        return np.concatenate(parts)

    def courant_rate(self) -> float:
        """Return max(|u|/dx + |v|/dy + |w|/dz) at the start of the last step.

        Of all velocities of the model together, over this rank; not-a-number if they contain one.
        """
        if not self.problem.geometry.planes:
            return 0.0
        self.device.synchronize()
        bits = np.int64(int(self._product.maxima.max()))
        return float(bits.view(np.float64))

    def modes_of(self, array: Any) -> Any:
        """Return the kept modes of a spectral array, without the padding of its rows."""
        return array[..., : self.problem.geometry.spectral_shape[2]]

    def vector_sums(self, first: int) -> np.ndarray:
        """Return this rank's share of what a vector sums to.

        Parameters
        ----------
        first : int
            Component with which the vector begins.

        Returns
        -------
        numpy.ndarray
            Energy, enstrophy, helicity and squared divergence.
        """
        nz, ny, _ = self.problem.geometry.stored_shape
        sums = self.device.zeros((nz * ny, 4), np.float64)
        self._run_over_rows("flow_sums", self.state[first : first + 3], self._table, sums)
        return self.device.to_host(sums).sum(axis=0)

    def energies(self) -> np.ndarray:
        """Return this rank's share of what components are squared, and of how these squares decay.

        Returns
        -------
        numpy.ndarray, shape (2, components)
            Mean squares, and the rates at which viscosity and diffusion lessen them.
        """
        nz, ny, _ = self.problem.geometry.stored_shape
        sums = self.device.zeros((nz * ny, 2 * self.problem.size), np.float64)
        self._run_over_rows("component_sums", self.state, self._table, self._numbers, sums)
        return self.device.to_host(sums).sum(axis=0).reshape(2, -1)

    def vorticity(self, first: int = 0) -> Any:
        """Return the Fourier coefficients of a vector's curl, in memory of the stage."""
        part = slice(first, first + 3)
        self._run_over_rows("curl", self.state[part], self.stage[part], self._table)
        return self.stage[part]

    def make_solenoidal(self, vector: Any) -> None:
        """Take away the gradient part of a vector, shape (3, kz, ky of this rank, row)."""
        self._run_over_rows("make_solenoidal", vector, self._table)

    def keep_sphere(self, fields: Any) -> None:
        """Set modes of spectral fields to 0 that lie outside of the sphere, if one is kept."""
        if self.problem.dealiasing.is_spherical:
            waves, module = self.wavenumbers, self.device.array_module
            x, y, z = (
                self.device.array(axis**2 * over)
                for axis, over in zip(
                    (waves.x, waves.y, waves.z), self.problem.over_radii, strict=True
                )
            )
            outside = z[:, None, None] + y[:, None] + x >= 1
            for component in self.modes_of(fields):
                module.copyto(component, 0, where=outside)

    def _run_over_rows(self, name: str, *arrays: Any) -> None:
        """Run a kernel that takes every row of the state."""
        (nz, ny, row), nx = (
            self.problem.geometry.stored_shape,
            self.problem.geometry.spectral_shape[2],
        )
        if nz * ny:
            launch = RowLaunch(nz * ny, nx, reduces=True)
            field = nz * ny * row
            kernel = self._kernel(name, "mode_sums.hpp")
            self.device.run(kernel.bind(launch, *arrays, nz, ny, nx, row, field))

    def normalise(self, fields: Any) -> None:
        """Divide by the number of points, which the forward transform leaves out."""
        points = math.prod(self.problem.geometry.shape)

        def scale(stream: Any) -> None:
            fields[...] *= fields.dtype.type(1.0 / points)

        self.device.run(scale)
