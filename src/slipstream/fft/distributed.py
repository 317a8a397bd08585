"""The distributed FFT as a plan with `forward` and `backward`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.device import Device, Operation, RowLaunch, open_device
from slipstream.errors import InputError
from slipstream.exchange import check_devices, local_rank, make_transport
from slipstream.fft.modes import truncate
from slipstream.fft.passes import make_column_pass, make_plane_pass
from slipstream.fft.rows import real_name
from slipstream.fft.slab import SlabGeometry
from slipstream.schedule import StepGraph, commit

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


class DistributedFFT:
    """Three-dimensional transform of arrays that are divided into slabs.

    Physical arrays are divided along z (the first axis), spectral ones along ky (the second): the
    transform ends where one exchange leaves the data. Normalisation is that of `numpy.fft`.

    Parameters
    ----------
    shape : tuple of int
        Global physical shape (nz, ny, nx).
    dtype : dtype
        Physical type: float32 or float64 (real to complex), complex64 or complex128.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array; None is serial.
    device : Device or str
        An open device, or "auto", "cpu", "cuda".
    fields : int
        Number of fields that are transformed together.
    truncation : None, "2/3", "nyquist" or sequence of int
        Which modes to keep, see `slipstream.fft.modes.truncate`. Others are discarded by
        `forward`, and zero in `backward`; they are neither transformed nor sent.
    transport : str
        How ranks exchange, see `slipstream.exchange.chosen_transport`.
    schedule : {"overlap", "serial"}
        See `slipstream.schedule.commit`.

    Raises
    ------
    InputError
        If an argument is not among those accepted.

    Examples
    --------
    >>> import numpy as np
    >>> from slipstream.fft import DistributedFFT
    >>> fft = DistributedFFT((16, 16, 16), device="cpu")
    >>> u = np.random.default_rng(0).random((16, 16, 16))
    >>> np.allclose(fft.forward(u), np.fft.rfftn(u))
    True
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any = "float64",
        *,
        comm: Any = None,
        device: Device | str = "auto",
        fields: int = 1,
        truncation: str | Sequence[int] | None = None,
        transport: str = "auto",
        schedule: str = "overlap",
    ) -> None:
        self.shape = _checked_shape(shape)
        self.dtype = _checked_dtype(dtype)
        if fields < 1:
            raise InputError(f"fields is {fields}; accepted: 1 and more")
        self.fields, real = fields, self.dtype.kind == "f"
        self.complex_dtype = np.dtype(_COMPLEX.get(self.dtype.name, self.dtype.name))
        if isinstance(device, str):
            device = open_device(device, local_rank(comm))
        check_devices(comm, device)
        self.device = device
        rank, ranks = (comm.rank, comm.size) if comm is not None else (0, 1)
        modes = truncate(self.shape, truncation, real)
        self.geometry = SlabGeometry(self.shape, modes, rank, ranks)
        self._transport = make_transport(transport, comm, self.device)
        self._columns_pass = make_column_pass(
            self.device, self.geometry, fields, self.complex_dtype
        )
        self._planes_pass = make_plane_pass(
            self.device, self.geometry, fields, real, self.complex_dtype
        )
        self._columns = self.device.empty(
            (fields, *self.geometry.columns_shape), self.complex_dtype
        )
        self._planes = self._columns.reshape(fields, -1)
        if ranks > 1:
            self._planes = self.device.empty(
                (fields, self.geometry.planes_size), self.complex_dtype
            )
        self._input, self._output = self.empty_input(), self.empty_output()
        self._forward = commit(self._record_forward(), schedule)
        self._backward = commit(self._record_backward(), schedule)

    @property
    def input_box(self) -> Box:
        """The part of this rank of the physical index space."""
        return self.geometry.physical_box

    @property
    def output_box(self) -> Box:
        """The part of this rank of the (truncated) spectral index space."""
        return self.geometry.spectral_box

    def empty_input(self) -> Any:
        """Return an uninitialised physical array of this rank, with a batch axis if fields > 1."""
        return self.device.empty(self._batched(self.input_box.shape), self.dtype)

    def empty_output(self) -> Any:
        """Return an uninitialised spectral array of this rank, with a batch axis if fields > 1."""
        return self.device.empty(self._batched(self.output_box.shape), self.complex_dtype)

    def forward(self, u: Any, out: Any = None) -> Any:
        """Transform physical to spectral space; collective over the ranks.

        Parameters
        ----------
        u : array
            This rank's part, shape of `empty_input`, on the host or on the device; kept.
        out : array, optional
            Where to store the result, shape of `empty_output`.

        Returns
        -------
        array
            This rank's spectral part, unnormalised.

        Raises
        ------
        InputError
            If a shape or dtype is not the plan's.
        """
        return self._run(self._forward, u, self._input, out, self._output)

    def backward(self, u_hat: Any, out: Any = None) -> Any:
        """Transform spectral to physical space, divided by the number of points; collective.

        Parameters
        ----------
        u_hat : array
            This rank's modes, shape of `empty_output`, on the host or on the device; kept.
        out : array, optional
            Where to store the result, shape of `empty_input`.

        Returns
        -------
        array
            This rank's physical part.

        Raises
        ------
        InputError
            If a shape or dtype is not the plan's.
        """
        return self._run(self._backward, u_hat, self._output, out, self._input)

    def _run(self, step, source, own_source, out, own_result) -> Any:
        source = source if hasattr(source, "dtype") else np.asarray(source)
        for array, own in ((source, own_source), *([(out, own_result)] if out is not None else [])):
            if array.shape != own.shape or array.dtype != own.dtype:
                raise InputError(
                    f"array of shape {array.shape} and type {array.dtype}; this plan takes shape "
                    f"{own.shape} and type {own.dtype}"
                )
        device = self.device
        device.run(device.copy(own_source, source))
        step.run()
        if out is None:
            out = device.empty(own_result.shape, own_result.dtype)
        device.run(device.copy(out, own_result))
        return out

    def _batched(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self.fields == 1 else (self.fields, *shape)

    def _record_forward(self) -> StepGraph:
        graph, columns = StepGraph(self.device), self._columns_pass
        physical = self._input.reshape(self.fields, *self.input_box.shape)
        spectral = self._output.reshape(self.fields, *self.output_box.shape)

        def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            part = physical[:, plane : plane + points.shape[1]]
            return self.device.copy(points, part), [part]

        self._planes_pass.record_forward(graph, self._planes, load)
        self._record_exchange(graph, forward=True)
        for low, high in columns.chunks():
            columns.record_forward(graph, self._columns, low, high, spectral)
        return graph

    def _record_backward(self) -> StepGraph:
        graph, columns = StepGraph(self.device), self._columns_pass
        physical = self._input.reshape(self.fields, *self.input_box.shape)
        spectral = self._output.reshape(self.fields, *self.output_box.shape)
        for low, high in columns.chunks():
            columns.record_backward(graph, spectral, self._columns, low, high)
        self._record_exchange(graph, forward=False)

        def store(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            part = physical[:, plane : plane + points.shape[1]]
            return self.device.copy(part, points), [part]

        self._planes_pass.record_backward(graph, self._planes, store)
        self._record_scaling(graph, physical)
        return graph

    def _record_exchange(self, graph: StepGraph, forward: bool) -> None:
        if self._transport is None:
            return
        plan = self.geometry.plan if forward else self.geometry.plan.reversed()
        for planes, columns in zip(self._planes, self._columns, strict=True):
            pair = (planes, columns) if forward else (columns, planes)
            self._transport.record(graph, plan, [pair], "transpose")

    def _record_scaling(self, graph: StepGraph, physical: Any) -> None:
        kernel = self.device.kernel("rows.hpp", "scale_rows", REAL=real_name(self.dtype))
        columns = self.shape[2] * (1 if self.dtype.kind == "f" else 2)
        rows = physical.size // self.shape[2]
        factor = 1.0 / float(np.prod([float(n) for n in self.shape]))
        graph.add(
            kernel.bind(RowLaunch(rows, columns), physical, rows, columns, factor),
            reads=[physical], writes=[physical], label="scale", category="compute",
        )  # fmt: skip


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = tuple(int(n) for n in shape)
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(f"shape {tuple(shape)}; accepted: three sizes (nz, ny, nx) of at least 1")
    return sizes


def _checked_dtype(dtype: Any) -> np.dtype:
    accepted = ("float32", "float64", "complex64", "complex128")
    name = np.dtype(dtype).name
    if name not in accepted:
        raise InputError(f"dtype {name!r}; accepted: {', '.join(accepted)}")
    return np.dtype(name)
