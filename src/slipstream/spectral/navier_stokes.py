"""The incompressible Navier-Stokes equations as a recorded time step.

    du/dt + div(u u) + grad p = viscosity laplacian(u),    div u = 0

in a periodic box, pseudospectral. Per Runge-Kutta substage 3 fields go to physical space and 5
products come back: 8 real transforms. One kernel forms the products, one takes their divergence,
projects and advances the substage; see `transforms` for how they are fused with the transforms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.device import Device, Operation, RowLaunch
from slipstream.exchange import Transport
from slipstream.fft import PointOperation, PointProduct, SlabGeometry, plane_pass_bytes
from slipstream.fft.rows import real_name
from slipstream.schedule import StepGraph
from slipstream.spectral.integrators import RungeKutta
from slipstream.spectral.transforms import ColumnUpdate, FieldTransforms
from slipstream.spectral.wavenumbers import Wavenumbers

VELOCITIES, PRODUCTS = 3, 5


@dataclass(frozen=True)
class FlowProblem:
    """What a Navier-Stokes step is recorded for.

    Attributes
    ----------
    geometry : SlabGeometry
        This rank's part of physical and spectral space.
    lengths : tuple of float
        Box lengths (Lz, Ly, Lx), non-dimensional.
    viscosity : float
        Kinematic viscosity, non-dimensional.
    method : RungeKutta
        Time integrator.
    integrating_factor : bool
        Whether viscosity is integrated exactly.
    real_dtype : dtype
        float32 or float64.
    """

    geometry: SlabGeometry
    lengths: tuple[float, float, float]
    viscosity: float
    method: RungeKutta
    integrating_factor: bool
    real_dtype: np.dtype

    @property
    def complex_dtype(self) -> np.dtype:
        """The dtype of spectral arrays."""
        return np.result_type(self.real_dtype, np.complex64)

    @property
    def state_copies(self) -> int:
        """Number of velocity fields kept in spectral space."""
        return 3 if self.method.has_total else 2

    def memory(self, device: Device) -> int:
        """Return the bytes that `NavierStokesStep` allocates on a device."""
        g, item = self.geometry, np.dtype(self.complex_dtype).itemsize
        state = self.state_copies * VELOCITIES * math.prod(g.stored_shape)
        columns = PRODUCTS * math.prod(g.columns_shape)
        planes = PRODUCTS * g.planes_size if g.ranks > 1 else 0
        chunk = plane_pass_bytes(g, PRODUCTS, self.complex_dtype, device)
        rows = 2 * 8 * g.planes * g.shape[1]
        return item * (state + columns + planes) + chunk + rows


class NavierStokesStep:
    """State of a flow on one rank and the graphs that advance it.

    Parameters
    ----------
    problem : FlowProblem
        What to solve.
    device : Device
        Where.
    transport : Transport or None
        How ranks exchange; None on one rank.

    Attributes
    ----------
    velocity : array, shape (3, kz, ky of this rank, row)
        Fourier coefficients of u, v, w: ``u(x) = sum_k u_hat(k) exp(i k . x)``; see `modes_of`.
    """

    def __init__(self, problem: FlowProblem, device: Device, transport: Transport | None) -> None:
        self.problem, self.device = problem, device
        geometry = problem.geometry
        self.wavenumbers = Wavenumbers(geometry, problem.lengths)
        dtype = problem.complex_dtype
        copies = [
            device.zeros((VELOCITIES, *geometry.stored_shape), dtype)
            for _ in range(problem.state_copies)
        ]
        self.velocity, self.stage = copies[:2]
        self._total = copies[2] if problem.method.has_total else self.velocity
        self._transforms = FieldTransforms(device, geometry, PRODUCTS, dtype, transport)
        per_spacing = [n / L for n, L in zip(geometry.shape, problem.lengths, strict=True)]
        self._product = PointProduct(
            header="navier_stokes_product.hpp", inputs=VELOCITIES, outputs=PRODUCTS,
            parameters=device.array(per_spacing[::-1], np.float64),
            maxima=device.zeros((max(1, geometry.planes * geometry.shape[1]),), np.int64),
        )  # fmt: skip
        # Only the first substage of a step measures its velocity, which the time step is made of.
        self._unmeasured = replace(self._product, maxima=device.zeros(
            self._product.maxima.shape, np.int64
        ))  # fmt: skip
        self._table = device.array(self.wavenumbers.table(), problem.real_dtype)
        self._host_parameters = device.pinned((1 + self._table.size,), problem.real_dtype)
        self._parameters = device.zeros(self._host_parameters.shape, problem.real_dtype)
        self._upload = device.copy(self._parameters, self._host_parameters)
        self._step_size: float | None = None

    # -- recording ---------------------------------------------------------------------------

    def record_step(self, compute: bool = True) -> StepGraph:
        """Return the graph of one time step.

        Parameters
        ----------
        compute : bool
            False records the transforms and exchanges of the step alone, for benchmarks.
        """
        graph, method = self._new_graph(), self.problem.method
        transforms = self._transforms
        transforms.record_columns(graph, self.velocity)
        for substage in range(method.substages):
            product = self._product if substage == 0 else self._unmeasured
            transforms.record_through(graph, product if compute else None, VELOCITIES)
            last = substage + 1 == method.substages
            update = self._substage(substage) if compute else None
            transforms.record_columns(graph, None if last else self.stage, update, forward=True)
        return graph

    def record_backward(self, source: Any, store: PointOperation) -> StepGraph:
        """Return the graph that takes three spectral fields to physical space.

        Parameters
        ----------
        source : array
            Shape of `velocity`; kept.
        store : callable
            Called with each chunk of points, see `PlanePass.record_backward`.
        """
        graph = StepGraph(self.device)
        self._transforms.record_backward(graph, source, store)
        return graph

    def record_forward(self, load: PointOperation) -> StepGraph:
        """Return the graph that sets `velocity` from physical space.

        Parameters
        ----------
        load : callable
            Called with each chunk of points, see `PlanePass.record_forward`. The result is not
            normalised; see `scale_velocity`.
        """
        graph = StepGraph(self.device)
        self._transforms.record_forward(graph, load, self.velocity)
        return graph

    def record_courant(self) -> StepGraph:
        """Return the graph that measures the velocity, as the first substage of a step does."""
        graph = self._new_graph()
        function = self._transforms.product_operation(self._product)
        self._transforms.record_backward(graph, self.velocity, function)
        return graph

    def _new_graph(self) -> StepGraph:
        """Return a graph that begins by forgetting the velocity measured before."""
        graph, maxima = StepGraph(self.device), self._product.maxima
        graph.add(lambda stream: maxima.fill(0), writes=[maxima], label="reset", category="compute")
        return graph

    def _substage(self, substage: int) -> ColumnUpdate:
        """Return what makes the update of a range of ky: (operation, reads, writes)."""
        problem, method = self.problem, self.problem.method
        last = substage + 1 == method.substages
        weight = method.weights[substage]
        early_weight = any(method.weights[:substage])
        node = method.nodes[substage]
        constants = {
            "NODE": node,
            "NODE_NEXT": method.divisions if last else method.nodes[substage + 1],
            "NODE_END": method.divisions,
            "WRITES_STAGE": not last,
            "WRITES_RESULT": last or weight != 0,
            "READS_TOTAL": early_weight,
            "INTEGRATING_FACTOR": problem.integrating_factor,
        }
        kernel = self._kernel("advance_substage", **constants)
        start = self.velocity
        current = start if substage == 0 else self.stage
        result = self.velocity if last else self._total
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
                self._parameters, self._table, nz, high - low, nx, row, z_modes.low, z_modes.gap,
                products.strides[0] // products.itemsize, old.strides[0] // old.itemsize,
                all_y * row, low, all_y, feed, weight, scale, problem.viscosity,
            )  # fmt: skip
            reads = [products, old, now, self._parameters]
            reads += [total] if constants["READS_TOTAL"] else []
            writes = [stage] if constants["WRITES_STAGE"] else []
            writes += [new] if constants["WRITES_RESULT"] else []
            return operation, reads, writes

        return update

    def _kernel(self, name: str, **constants: Any):
        real = real_name(self.problem.real_dtype)
        return self.device.kernel("navier_stokes.hpp", name, REAL=real, **constants)

    # -- between steps -----------------------------------------------------------------------

    def set_step_size(self, step: float) -> None:
        """Set the step that the recorded graph takes, and the decay factors that go with it."""
        if step == self._step_size:
            return
        problem = self.problem
        rate = problem.viscosity * step / problem.method.divisions
        decay = np.exp(-rate * self.wavenumbers.table() ** 2)
        self.device.synchronize()
        self._host_parameters[0] = step
        self._host_parameters[1:] = decay if problem.integrating_factor else 1.0
        self.device.run(self._upload)
        self._step_size = step

    def courant_rate(self) -> float:
        """Return max(|u|/dx + |v|/dy + |w|/dz) at the start of the last step.

        The maximum over this rank; not-a-number if the velocity contains one.
        """
        if not self.problem.geometry.planes:
            return 0.0
        self.device.synchronize()
        bits = np.int64(int(self._product.maxima.max()))
        return float(bits.view(np.float64))

    def modes_of(self, array: Any) -> Any:
        """Return the kept modes of a spectral array, without the padding of its rows."""
        return array[..., : self.problem.geometry.spectral_shape[2]]

    def flow_sums(self) -> np.ndarray:
        """Return this rank's share of energy, enstrophy, helicity and squared divergence."""
        nz, ny, _ = self.problem.geometry.stored_shape
        sums = self.device.zeros((nz * ny, 4), np.float64)
        self._run_over_rows("flow_sums", self.velocity, self._table, sums)
        return self.device.to_host(sums).sum(axis=0)

    def vorticity(self) -> Any:
        """Return the vorticity's Fourier coefficients, in the memory of the stage."""
        self._run_over_rows("curl", self.velocity, self.stage, self._table)
        return self.stage

    def _run_over_rows(self, name: str, *arrays: Any) -> None:
        """Run a kernel that takes every row of the velocity."""
        (nz, ny, row), nx = (
            self.problem.geometry.stored_shape,
            self.problem.geometry.spectral_shape[2],
        )
        if nz * ny:
            launch = RowLaunch(nz * ny, nx, reduces=True)
            field = nz * ny * row
            kernel = self._kernel(name)
            self.device.run(kernel.bind(launch, *arrays, nz, ny, nx, row, field))

    def scale_velocity(self) -> None:
        """Divide `velocity` by the number of points, which the forward transform leaves out."""
        points = math.prod(self.problem.geometry.shape)
        velocity = self.velocity

        def scale(stream: Any) -> None:
            velocity[...] *= velocity.dtype.type(1.0 / points)

        self.device.run(scale)
