"""The distributed FFT as a plan with `forward` and `backward`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.array_types import Array
from slipstream.collective import collectively
from slipstream.decomposition import Box
from slipstream.device import Device, Stream
from slipstream.errors import InputError
from slipstream.exchange import NarrowWire, open_matching_device
from slipstream.fft.fft_arguments import agreed_arguments
from slipstream.fft.fft_plan import Plan
from slipstream.fft.residency import make_plan
from slipstream.fft.user_arrays import RecordedSteps, UserArrays
from slipstream.outofcore.streaming_options import Streaming
from slipstream.schedule import CommittedStep, StepGraph, Timeline, commit

if TYPE_CHECKING:
    from slipstream.fft.out_of_core_fft import StreamedPlan


class DistributedFFT:
    """Transform of an array that is divided among ranks. Collective.

    Every rank gives and gets its own part: `input_box` and `output_box` say which. Normalisation is
    that of `numpy.fft`: forward transforms have no factor, backward ones divide by the number of
    points.

    Parameters
    ----------
    shape : tuple of int
        Global physical shape of one, two or three axes; the last is contiguous.
    dtype : dtype
        Physical type: float32 or float64 (real to complex; the last axis of the spectral array has
        ``n // 2 + 1`` modes), complex64 or complex128.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array, any communicator; None is serial.
    device : Device or str
        An open device, or "auto", "cpu", "cuda".
    fields : int
        Number of fields that are transformed together; arrays then have a leading axis.
    layout : {"slab", "pencil", "root"}
        How arrays are divided: along the first axis; along the first two axes, over a process grid;
        or not at all, everything being on the first rank, which is fastest for small arrays.
    order : {"transposed", "natural"}
        Spectral arrays are divided along the next axes, which saves an exchange, or along the same
        ones as physical arrays.
    process_grid : (int, int), optional
        Of layout "pencil"; the most even one by default.
    input_boxes, output_boxes : sequence of Box, optional
        One box per rank of the physical and of the spectral index space, in any arrangement that
        covers it once; instead of what layout and order say. Boxes may be empty. A box is also
        accepted as a pair (start, stop).
    truncation : None, "2/3", "nyquist" or sequence of int
        Which modes to keep, see `slipstream.fft.truncate`. Others are discarded by `forward`, and
        zero in `backward`; they are neither transformed nor sent.
    transport : str
        How ranks exchange, see `slipstream.exchange.chosen_transport`.
    workers : int, optional
        How many ranks transform; the others only give and get data. All by default.
    wire : None, "float32" or "bfloat16"
        Narrower type in which data of double precision travel; see `wire_error`.
    tune : {"off", "quick", "full"}
        Whether to measure what is fastest here, and remember it; see `slipstream.tuner`.
    schedule : {"overlap", "serial"}
        See `slipstream.schedule.commit`.
    residency : {"device", "host", "auto"}
        Where arrays live. Those on the host may be larger than any device, through which they
        stream tile by tile. "auto" is the device if everything fits there.
    memory : int or str, optional
        What a rank may take of a device then, such as "8 GiB"; by default most of what is free.
    streaming : Streaming or mapping, optional
        How arrays on the host stream, see `slipstream.fft.Streaming`.

    Attributes
    ----------
    residency : {"device", "host"}
        Where arrays live.
    home : Device
        Who allocates them.

    Raises
    ------
    InputError
        On all ranks, if an argument is not among those accepted, or differs between ranks.

    Notes
    -----
    Arrays that come again are used in place, without copies: give the same arrays in every call, or
    those of `empty_input` and `empty_output`. Others are copied, once the plan has arrays of its
    own. The plan keeps the last few arrays that it uses in place.

    On a GPU, calls return before the result is there; it is in order with the stream.

    What a plan allocates is given back when it is closed or deleted. It is of use in a ``with``
    statement: ``with DistributedFFT(...) as fft:``.

    Examples
    --------
    >>> import numpy as np
    >>> from slipstream.fft import DistributedFFT
    >>> fft = DistributedFFT((16, 16, 16), device="cpu")
    >>> u = np.random.default_rng(0).random((16, 16, 16))
    >>> np.allclose(fft.forward(u), np.fft.rfftn(u))
    True
    """

    @collectively
    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any = "float64",
        *,
        comm: Any = None,
        device: Device | str = "auto",
        fields: int = 1,
        layout: str = "slab",
        order: str = "transposed",
        process_grid: Sequence[int] | None = None,
        input_boxes: Sequence[Box] | None = None,
        output_boxes: Sequence[Box] | None = None,
        truncation: str | Sequence[int] | None = None,
        transport: str = "auto",
        workers: int | None = None,
        wire: str | None = None,
        tune: str = "off",
        schedule: str = "overlap",
        residency: str = "device",
        memory: int | str | None = None,
        streaming: Streaming | Mapping[str, Any] | None = None,
    ) -> None:
        self._at_work = threading.Lock()
        self.arguments = agreed_arguments(
            comm,
            shape=shape,
            dtype=dtype,
            fields=fields,
            layout=layout,
            order=order,
            process_grid=process_grid,
            input_boxes=input_boxes,
            output_boxes=output_boxes,
            truncation=truncation,
            transport=transport,
            workers=workers,
            wire=wire,
            tune=tune,
            schedule=schedule,
            residency=residency,
            memory=memory,
            streaming=streaming,
        )
        rank = 0 if comm is None else comm.rank
        self._comm, self.device = comm, open_matching_device(device, comm)
        self.input_box = self.arguments.input_boxes[rank]
        self.output_box = self.arguments.output_boxes[rank]
        plan, self.home = make_plan(self.arguments, self.device, comm)
        self._plan: Plan | StreamedPlan | None = plan
        self._transport = plan.transport
        self.residency = "device" if isinstance(plan, Plan) else "host"
        self._policy = "serial" if plan.is_alone else schedule
        self._steps = {forward: RecordedSteps() for forward in (True, False)}
        self._arrays = UserArrays(self.arguments, rank, self.device, self.home)
        self._array_type = self.home.array_module.ndarray

    def close(self) -> None:
        """Give back the memory that the plan has, once what it computes is done.

        The same happens when the plan is deleted, or at the end of a ``with`` statement. Calls of a
        closed plan raise `InputError`; arrays that it has given live on.
        """
        with self._at_work:
            if self._plan is not None:
                self.device.synchronize()
            self._plan = self._transport = self._comm = None
            for steps in self._steps.values():
                steps.clear()
            self._arrays.clear()

    def __enter__(self) -> DistributedFFT:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def shape(self) -> tuple[int, ...]:
        """Global physical shape."""
        return self.arguments.shape

    @property
    def spectral_shape(self) -> tuple[int, ...]:
        """Global shape of the spectral array, with the modes that are kept."""
        return self.arguments.spectral_shape

    @property
    def modes(self) -> tuple:
        """The modes kept along each axis, see `slipstream.fft.Modes`."""
        return self.arguments.modes

    @property
    def streamed(self) -> StreamedPlan | None:
        """The passes of a transform whose arrays are on the host; None if they are not."""
        plan = self._opened()
        return None if isinstance(plan, Plan) else plan

    @property
    def exchanges(self) -> int:
        """How often the data are redistributed in one transform."""
        return self._opened().exchanges

    @property
    def transport(self) -> str:
        """Name of the transport, "none" where there is nothing to exchange."""
        transport = self._opened().transport
        return transport.name if transport else "none"

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave this rank in one transform."""
        return self._opened().wire_bytes

    def wavenumbers(self) -> list[np.ndarray]:
        """Return the integer wavenumbers of this rank's modes, one array per axis.

        They are shaped to be broadcast over a spectral array without its axis of fields.
        """
        box, result = self.output_box, []
        for axis, modes in enumerate(self.arguments.modes):
            part = modes.wavenumbers()[box.start[axis] : box.stop[axis]]
            result.append(part.reshape([-1 if a == axis else 1 for a in range(len(box.start))]))
        return result

    def empty_input(self) -> Any:
        """Return an uninitialised physical array of this rank, with a batch axis if fields > 1."""
        self._opened()
        return self._arrays.empty("input")

    def empty_output(self) -> Any:
        """Return an uninitialised spectral array of this rank, with a batch axis if fields > 1."""
        self._opened()
        return self._arrays.empty("output")

    def empty_in_place(self) -> tuple[Any, Any]:
        """Return a physical and a spectral array of this rank that share one memory.

        `forward` and `backward` between them are in place. The rows of a real physical array are
        padded, as in FFTW, so that it is not contiguous as a whole; a GPU copies it first.
        """
        self._opened()
        return self._arrays.in_place()

    def remember(self, *arrays: Any) -> None:
        """Use arrays of another plan in place from the first call on, as those of `empty_input`."""
        for array in arrays:
            self._arrays.note(array)

    def forward(self, u: Any, out: Any = None, stream: Any = None) -> Any:
        """Transform physical to spectral space; collective over the ranks.

        Parameters
        ----------
        u : array
            This rank's part, shape of `empty_input`, on the host or on the device; kept, unless
            `out` shares its memory.
        out : array, optional
            Where to store the result, shape of `empty_output`. May be `u` itself, if complex and
            of the same shape: then the transform is in place. See also `empty_in_place`.
        stream : Stream or cupy.cuda.Stream, optional
            What the transform is part of; CuPy's null stream by default.

        Returns
        -------
        array
            This rank's spectral part, unnormalised.

        Raises
        ------
        InputError
            If an array's shape or type is not the plan's, or it cannot be written.
        RunError
            If another rank does not answer, see ``SLIPSTREAM_TIMEOUT``.
        """
        return self._run(True, u, out, stream)

    def backward(self, u_hat: Any, out: Any = None, stream: Any = None) -> Any:
        """Transform spectral to physical space, divided by the number of points; collective.

        Parameters
        ----------
        u_hat : array
            This rank's modes, shape of `empty_output`, on the host or on the device; kept, unless
            `out` shares its memory.
        out : array, optional
            Where to store the result, shape of `empty_input`.
        stream : Stream or cupy.cuda.Stream, optional
            What the transform is part of; CuPy's null stream by default.

        Returns
        -------
        array
            This rank's physical part.

        Raises
        ------
        InputError, RunError
            As of `forward`.
        """
        return self._run(False, u_hat, out, stream)

    def profile(self, u: Any, u_hat: Any) -> dict[str, Timeline]:
        """Transform `u` to `u_hat` and back, as their methods do; return what ran when. Collective.

        Both arrays are overwritten.
        """
        timelines = {}
        self._opened()
        for array, side, name in ((u, "input", "u"), (u_hat, "output", "u_hat")):
            self._arrays.checked(array, side, name)
        for name, source, target in (("forward", u, u_hat), ("backward", u_hat, u)):
            self._run(name == "forward", source, target, None, profile=True)
            timelines[name] = self._profiled
        return timelines

    def wire_error(self) -> float:
        """Return the relative error that the narrow wire made in the last transforms. Collective.

        It is the root of the sum of squares of what was lost, over that of what was sent: the
        largest of the exchanges that the last transforms, forward and backward, consisted of; 0
        without a narrow wire, and 1 where all numbers were too small for it.
        """
        transport = self._opened().transport
        if not isinstance(transport, NarrowWire):
            return 0.0
        self.device.synchronize()
        return transport.relative_error(self._comm)

    def describe(self) -> str:
        """Return what this plan does, in lines for people."""
        a, plan = self.arguments, self._opened()
        lines = [
            f"{' x '.join(map(str, a.shape))} {a.dtype.name} to "
            f"{' x '.join(map(str, a.spectral_shape))} {a.complex_dtype.name}, "
            f"{a.fields} field{'s' * (a.fields > 1)}, on the {self.residency}",
            f"{a.ranks} rank{'s' * (a.ranks > 1)} on {self.device.name}, {plan.workers} of "
            f"them transform; transport {self.transport}",
            f"{self.exchanges} exchange{'s' * (self.exchanges != 1)} each way, "
            f"{self.wire_bytes / 2**20:.4g} MiB leave this rank",
        ]
        return "\n".join(lines + [f"  {line}" for line in plan.describe_parts()])

    def _run(self, forward: bool, source: Any, out: Any, stream: Any, profile: bool = False) -> Any:
        # On one rank calls take turns; on several, ranks might take the turns of different threads.
        if not self._at_work.acquire(blocking=self._comm is None):
            raise InputError(
                "another thread runs this plan now; accepted: one call at a time, or a plan for "
                "each thread"
            )
        try:
            return self._transformed(forward, source, out, stream, profile)
        except InputError:
            raise  # of all ranks, as a rule: then the plan is as good as before
        except BaseException as failure:
            if self._transport:
                self._transport.give_up(failure)
            raise
        finally:
            self._at_work.release()

    def _transformed(self, forward: bool, source: Any, out: Any, stream: Any, profile: bool) -> Any:
        if stream is not None and not isinstance(stream, Stream):
            stream = self._arrays.stream(stream)
        step, result = None, out
        if type(source) is self._array_type is type(out):
            step = self._steps[forward].find(source, out)
        if step is None:
            step, result = self._prepared(forward, source, out, stream)
        if self._transport:
            self._transport.check()
        if profile:
            step.timeline.clear()
            self._profiled = step.timeline
        step.run(profile, stream)
        if self.residency == "host":  # where nothing else is in order with the stream
            step.synchronize()
        if profile:
            self.device.synchronize()
        if result is out:
            return out
        if out is None:
            out = self.home.empty(result.shape, result.dtype)
        self._arrays.copy(out, result, stream or self.device.default_stream)
        return out

    def _prepared(
        self, forward: bool, source: Any, out: Any, stream: Stream | None
    ) -> tuple[CommittedStep, Array]:
        """Return the step of a transform, and the array that has its result.

        The user's arrays are used in place where possible, else the plan's own, to which the source
        is copied.
        """
        plan, arrays = self._opened(), self._arrays
        name, *sides = ("u", "input", "output") if forward else ("u_hat", "output", "input")
        source = arrays.checked(source, sides[0], name)
        target = None if out is None else arrays.checked(out, sides[1], "out")
        used = source if arrays.usable(source) else arrays.own(sides[0])
        result = target if target is not None and arrays.usable(target) else arrays.own(sides[1])
        if used is source and result is target:
            points, modes = (source, target) if forward else (target, source)
            if not arrays.apart(points, modes):
                result = arrays.own(sides[1])
        steps = self._steps[forward]
        step = steps.find(used, result)
        if step is None and not steps.has_room():
            used, result = arrays.own(sides[0]), arrays.own(sides[1])
            step = steps.find(used, result)
        if step is None:
            graph = StepGraph(self.device)
            record = plan.record_forward if forward else plan.record_backward
            record(graph, *(a if self.arguments.fields > 1 else a[None] for a in (used, result)))
            step = commit(graph, self._policy)
            steps.add(used, result, step, used is not source and result is not target)
        if used is not source:
            arrays.copy(used, source, stream or self.device.default_stream)
        return step, out if result is target else result

    def _opened(self) -> Plan | StreamedPlan:
        if self._plan is None:
            raise InputError("this plan is closed; make another one")
        return self._plan
