"""The distributed FFT as a plan with `forward` and `backward`.

Arguments are checked and agreed between ranks (`fft_arguments.py`). `layout_search.py` finds the
stages: layouts, with the axes transformed in them. A `Plan` (`fft_plan.py`) turns stages into
parts: slabs by the engine of the solvers, other layouts by `route_transform.py`, arrays on the host
by `streamed_transform.py`. For each pair of arrays the parts are recorded once, in a graph of
transforms, copies and exchanges. Later calls run that graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from slipstream.engine.array_types import Array
from slipstream.engine.collective import collectively, give_up, is_on_all_ranks, together
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, Stream
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.errors import InputError, KnownAttributes, bytes_text
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.fft import spectral_operations
from slipstream.engine.fft.fft_arguments import Arguments, agreed_arguments
from slipstream.engine.fft.fft_plan import Plan
from slipstream.engine.fft.fft_tuning import make_plan
from slipstream.engine.fft.user_arrays import PendingTransform, RecordedSteps, Turns, UserArrays
from slipstream.engine.outofcore.memory_budget import Streaming
from slipstream.engine.schedule import CommittedStep, StepGraph, Timeline, commit
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import html_table, html_text

if TYPE_CHECKING:
    from slipstream.engine.fft.streamed_transform import StreamedPlan
    from slipstream.engine.fft.transform_parts import Modes


Given = TypeVar("Given")
Lengths = float | Sequence[float] | None
Kind = Literal["fft", "dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4"]


Method = TypeVar("Method", bound=Callable[..., Any])


def _announce_refusals(method: Method) -> Method:
    """Announce to the other ranks that a collective method refuses its arguments."""

    @functools.wraps(method)
    def call(self: DistributedFFT, *arguments: Any, **options: Any) -> Any:
        with signals_held:
            try:
                self._get_plan()
                return method(self, *arguments, **options)
            except InputError as failure:
                # The other ranks may know of the failure, or fail themselves.
                is_known = is_on_all_ranks(failure) or getattr(failure, "is_told", False)
                if self._door is not None and not is_known:
                    with self._turns:
                        self._door.begun += 1
                        self._announce_refusal(failure)
                raise

    return call  # type: ignore[return-value]


class DistributedFFT(KnownAttributes):
    """Transform of an array that is divided among ranks. Collective.

    Each rank passes and receives its own part: `input_box` and `output_box`. Axes, real
    transforms and normalisation follow `numpy.fft`, cosine and sine transforms `scipy.fft`.

    Parameters
    ----------
    shape : int or tuple of int
        Global physical shape of one to eight axes; the last is contiguous.
    dtype : dtype
        Physical type: float32 or float64 (real to complex; the last of the Fourier axes has
        ``n // 2 + 1`` modes), complex64 or complex128. Integers stand for float64, as in NumPy.
    axes : int or sequence of int, optional
        The axes that are transformed, each once; negative ones count from the end. The default is
        all. For real arrays, the last of them keeps half of the modes.
    kinds : str or sequence of str
        The transform along each of the axes: "fft", or a cosine or sine transform of type 1 to 4,
        "dct1" to "dst4". If none is "fft", modes have the type of the points.
    norm : {"backward", "ortho", "forward"}
        The normalisation, as in `numpy.fft` and `scipy.fft`.
    comm : mpi4py.MPI.Comm, optional
        Communicator of the ranks that share the array; None is serial.
    device : Device or str
        An open device, or "auto", "cpu", "cuda".
    fields : int
        Number of fields that are transformed together; arrays then have a leading axis.
    layout : {"slab", "pencil", "root"}
        How arrays are divided: along the first axis; along the first two axes, over a process grid;
        or not at all, with everything on the first rank, which is fastest for small arrays.
    order : {"transposed", "natural"}
        Spectral arrays are divided along the next axes, which saves an exchange, or along the same
        axes as physical arrays.
    process_grid : (int, int), optional
        For layout "pencil"; by default the most even grid.
    input_boxes : sequence of Box, optional
        One box per rank of the physical index space, in any arrangement that covers it once; they
        replace layout. Boxes may be empty. A pair (start, stop) is accepted as a box.
    output_boxes : sequence of Box, optional
        The same for the spectral index space; they replace order.
    truncation : None, "2/3", "nyquist" or sequence of int
        Which modes to keep, see `transform_parts.truncate`. Others are discarded by `forward`, and
        zero in `backward`; they are neither transformed nor sent. It applies to the Fourier axes: a
        sequence has a number for each of these, in the order of `axes`.
    padding : None, "3/2", float or sequence of float
        Number of points along Fourier axes, relative to `shape`. Physical arrays are larger, and
        modes are those of the smaller grid, without its Nyquist modes. With "3/2", quadratic
        products at the points do not alias into the modes.
    transport : str
        How ranks exchange: "auto", or one of the transports that `slipstream info` lists. "auto" is
        shared memory on one node, else NCCL between GPUs, else messages of MPI.
    workers : int, optional
        Number of ranks that transform; the others only send and receive data. Default: all.
    wire : None, "float32" or "bfloat16"
        Narrower type in which double-precision data are exchanged; see `wire_error`.
    tune : {"off", "quick", "full"}
        Whether to measure some or all choices on this machine, and remember the fastest in the
        cache.
    schedule : {"overlap", "serial"}
        Whether exchanges and copies overlap with transforms; results are the same.
    residency : {"device", "host", "disk", "auto"}
        Where arrays are stored. Arrays on the host may be larger than any device; they stream
        through it tile by tile. Arrays on disk may be larger than any memory: those of
        `numpy.memmap`, or of `empty_input` and `empty_output`; on one rank. "auto" is the device if
        everything fits there.
    memory : int or str, optional
        With arrays on the host or on disk: limit of a rank's memory on its device, such as
        "8 GiB"; by default most of the free memory.
    scratch : str or sequence of str, optional
        With arrays on disk: the folder for files of the plan, by default for temporary files.
        Of several, each has a part of every array; let them be on different drives.
    streaming : Streaming or mapping, optional
        How arrays on the host stream, see `slipstream.fft.Streaming`; a mapping has its attributes.

    Attributes
    ----------
    arguments : Arguments
        The arguments, checked and completed.
    device : Device
        The device that transforms.
    input_box : Box
        This rank's part of the physical index space.
    output_box : Box
        This rank's part of the spectral index space.
    residency : {"device", "host", "disk"}
        Where arrays live.
    home : Device
        The device that allocates them.

    Raises
    ------
    InputError
        On all ranks, if an argument is not among those accepted, or differs between ranks.

    Notes
    -----
    For type checkers, results are NumPy arrays; on a GPU they are CuPy arrays.

    Arrays that are passed again are used in place, without copies: pass the same arrays in every
    call, or arrays from `empty_input` and `empty_output`. Other arrays are copied to arrays of the
    plan. The plan keeps the last few arrays that it uses in place.

    On a GPU, calls with arrays of the GPU return before the result is ready; work queued on the
    stream later sees it. Calls that return arrays of the host wait.

    A plan's memory is freed when it is closed or deleted. It can be used in a ``with``
    statement: ``with DistributedFFT(...) as fft:``.

    Examples
    --------
    >>> import numpy as np
    >>> from slipstream.engine.fft import DistributedFFT
    >>> fft = DistributedFFT((16, 16, 16), device="cpu")
    >>> u = np.random.default_rng(0).random((16, 16, 16))
    >>> np.allclose(fft.forward(u), np.fft.rfftn(u))
    True
    """

    arguments: Arguments
    device: Device
    input_box: Box
    output_box: Box
    residency: Literal["device", "host", "disk"]
    home: Device
    _component: DistributedFFT | None = None

    @collectively
    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: Any = "float64",
        *,
        comm: Any = None,
        device: Device | Literal["auto", "cpu", "cuda"] = "auto",
        axes: int | Sequence[int] | None = None,
        kinds: Kind | Sequence[Kind] = "fft",
        norm: Literal["backward", "ortho", "forward"] = "backward",
        fields: int = 1,
        layout: Literal["slab", "pencil", "root"] = "slab",
        order: Literal["transposed", "natural"] = "transposed",
        process_grid: Sequence[int] | None = None,
        input_boxes: Sequence[Box | tuple[Sequence[int], Sequence[int]]] | None = None,
        output_boxes: Sequence[Box | tuple[Sequence[int], Sequence[int]]] | None = None,
        truncation: Literal["2/3", "nyquist"] | Sequence[int] | None = None,
        padding: Literal["3/2"] | float | Sequence[float] | None = None,
        transport: str = "auto",
        workers: int | None = None,
        wire: Literal["float32", "bfloat16"] | None = None,
        tune: Literal["off", "quick", "full"] = "off",
        schedule: Literal["overlap", "serial"] = "overlap",
        residency: Literal["device", "host", "disk", "auto"] = "device",
        memory: int | str | None = None,
        scratch: str | Sequence[str] | None = None,
        streaming: Streaming | Mapping[str, Any] | None = None,
    ) -> None:
        asked = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "comm", "device")
        }
        arguments = agreed_arguments(comm, **asked)
        self._asked = asked
        rank = 0 if comm is None else comm.rank
        self._comm, opened = comm, open_matching_device(device, comm)
        self._meter = MemoryMeter()
        with self._meter:
            plan, transforming, home = make_plan(arguments, opened, comm)
        self.arguments = arguments
        self.device = transforming
        self.home = home
        self.input_box = arguments.input_boxes[rank]
        self.output_box = arguments.output_boxes[rank]
        self.residency = plan.residency
        self._plan: Plan | None = plan
        self._transport = plan.transport
        self._policy = "serial" if plan.is_alone else schedule
        self._steps = {forward: RecordedSteps() for forward in (True, False)}
        self._arrays = UserArrays(self.arguments, rank, self.device, self.home, self._meter)
        self._array_type = self.home.array_module.ndarray
        self._turns = Turns(comm is None)
        # It counts collective calls, so that other ranks learn which one this rank refuses, even
        # after the plan is closed.
        self._door = None if self._comm is None else self._comm.door

    def close(self) -> None:
        """Free the memory of the plan, once its transforms are done.

        The same happens when the plan is deleted, or at the end of a ``with`` statement. Calls of a
        closed plan raise `InputError`; arrays that it returned stay valid.
        """
        if self._component is not None:
            self._component.close()
            self._component = None
        with signals_held, self._turns.last():
            if self._plan is not None:
                self.device.synchronize()
            self._plan = self._transport = self._comm = None
            for steps in self._steps.values():
                steps.clear()
            self._arrays.of_plan.clear()

    def __repr__(self) -> str:
        a, where = self.arguments, self.device.kind if self._plan else "closed"
        shown = [repr(tuple(np.ravel(self._asked["shape"]).tolist())), repr(a.dtype.name)]
        if sorted(a.axes) != list(range(len(a.shape))) or a.half_axis not in (None, a.axes[-1]):
            shown.append(f"axes={a.axes}")
        if set(a.kinds) != {"fft"}:
            shown.append(f"kinds={a.kinds}")
        defaults = {"norm": "backward", "fields": 1, "layout": "slab", "order": "transposed"}
        for name, default in defaults.items():
            if getattr(a, name) != default:
                shown.append(f"{name}={getattr(a, name)!r}")
        for name in ("truncation", "padding", "wire"):
            if self._asked[name] is not None:
                shown.append(f"{name}={self._asked[name]!r}")
        for name in ("input_boxes", "output_boxes"):
            if self._asked[name] is not None:
                shown.append(f"{name}=...")
        ranks = f"{a.ranks} rank{'s' * (a.ranks > 1)}"
        return f"<DistributedFFT({', '.join(shown)}) on {ranks}, {where}>"

    def _repr_html_(self) -> str:
        if self._plan is None:
            return f"<code>{html_text(repr(self))}</code>"
        a = self.arguments
        rows = {
            "points": f"{_product(a.shape)} {a.dtype.name}, this rank {_ranges(self.input_box)}",
            "modes": f"{_product(a.spectral_shape)} {a.spectral_dtype.name}, "
            f"this rank {_ranges(self.output_box)}",
            "axes": ", ".join(f"{x}: {kind}" for x, kind in zip(a.axes, a.kinds, strict=True)),
            "norm": a.norm,
            "fields": str(a.fields),
            "ranks": f"{a.ranks} on {self.device.name}, transport {self.transport}",
            "way": "; ".join(self._plan.describe_parts()),
        }
        return html_table("DistributedFFT", rows.items())

    def __reduce__(self) -> tuple[Callable[..., DistributedFFT], tuple[Any, ...]]:
        # Only the arguments are pickled: loading a plan is collective, like making it.
        self._get_plan()
        return _made_again, (self._asked, self.device.kind, _name_of(self._comm))

    @_announce_refusals
    def like(self, **changes: Any) -> DistributedFFT:
        """Return another plan with some arguments changed. Collective.

        Parameters
        ----------
        **changes
            Arguments of `DistributedFFT` other than `comm` and `device`, by name.

        Returns
        -------
        DistributedFFT
            Calls of both plans, asynchronous ones included, take turns.
        """
        self._get_plan()
        with together(self._comm):
            unknown = sorted(set(changes) - set(self._asked))
            if unknown:
                raise InputError(f"{unknown[0]} is unknown; accepted: {', '.join(self._asked)}")
            made = DistributedFFT(**{**self._asked, **changes}, comm=self._comm, device=self.device)
        made._turns = self._turns
        return made

    @_announce_refusals
    def padded(self, padding: str | float | Sequence[float] = "3/2") -> DistributedFFT:
        """Return a plan between the modes of this one and more points. Collective.

        Modes are divided as in this plan. The backward transform interpolates, and the forward one
        drops modes that this plan does not have: products at its points are free of aliasing.

        Parameters
        ----------
        padding : "3/2", float or sequence of float
            See `DistributedFFT`.

        Raises
        ------
        InputError
            If this plan has Nyquist modes, which do not determine values between the points.
        """
        a = self.arguments
        for axis, kind in zip(a.axes, a.kinds, strict=True):
            if kind == "fft" and a.padding is None and a.modes[axis].has_nyquist:
                raise InputError(
                    f"axis {axis} has its Nyquist mode, which cannot be padded; accepted: plans of "
                    "truncation '2/3', 'nyquist' or a sequence"
                )
        return self.like(padding=padding, input_boxes=None, output_boxes=a.output_boxes)

    @property
    def component(self) -> DistributedFFT:
        """The plan for a single field of this plan's several, made on first use. Collective.

        ``fft.component.forward(u[1], out=u_hat[1])`` transforms the second field.
        """
        self._get_plan()
        if self.arguments.fields == 1:
            return self
        with signals_held:
            if self._component is None:
                self._component = self.like(fields=1)
            return self._component

    def __enter__(self) -> DistributedFFT:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None = None, trace: object = None
    ) -> None:
        give_up(self._comm, error)
        self.close()

    @property
    def shape(self) -> tuple[int, ...]:
        """Global physical shape."""
        return self.arguments.shape

    @property
    def spectral_shape(self) -> tuple[int, ...]:
        """Global shape of the spectral array, with the kept modes only."""
        return self.arguments.spectral_shape

    @property
    def modes(self) -> tuple[Modes, ...]:
        """The modes kept along each axis, see `slipstream.engine.fft.Modes`."""
        return self.arguments.modes

    @property
    def streamed(self) -> StreamedPlan | None:
        """The passes of a transform whose arrays are not on the device; None if they are."""
        plan = self._get_plan()
        return None if plan.residency == "device" else cast("StreamedPlan", plan)

    @property
    def exchanges(self) -> int:
        """Number of redistributions of the data in one transform."""
        return self._get_plan().exchanges

    @property
    def transport(self) -> str:
        """Name of the transport, "none" if there is nothing to exchange."""
        transport = self._get_plan().transport
        return transport.name if transport else "none"

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave this rank in one transform."""
        return self._get_plan().wire_bytes

    @property
    def allocated_bytes(self) -> dict[str, int]:
        """Bytes that this rank's plan has allocated so far, on the "device" and on the "host".

        Memory of a CPU is on the "host". Users' arrays, including those from `empty_input`, and the
        internal memory of libraries do not count.
        """
        self._get_plan()
        return self._meter.total()

    @property
    def input_boxes(self) -> tuple[Box, ...]:
        """The parts of the physical index space, by rank."""
        return tuple(self.arguments.input_boxes)

    @property
    def output_boxes(self) -> tuple[Box, ...]:
        """The parts of the spectral index space, by rank."""
        return tuple(self.arguments.output_boxes)

    def wavenumbers(self, lengths: Lengths = None) -> list[np.ndarray]:
        """Return the wavenumbers of this rank's modes, one array for each transformed axis.

        They are NumPy arrays in the order of `axes`, shaped to be broadcast over a spectral array
        without its axis of fields.

        Parameters
        ----------
        lengths : float or sequence of float, optional
            Length of the box along each axis: wavenumbers are multiples of ``2 pi / length``, and
            of ``pi / length`` along axes of cosines and sines. By default they are the integers of
            `numpy.fft`, or numbers of half waves, as for lengths 2 pi and pi.

        Returns
        -------
        list of numpy.ndarray
        """
        self._get_plan()
        return spectral_operations.wavenumbers(self.arguments, self.output_box, lengths)

    def points(self, lengths: Lengths = None) -> list[np.ndarray]:
        """Return the coordinates of this rank's points, one array for each transformed axis.

        They have the shapes of `wavenumbers`. Along Fourier axes they begin at 0. For cosines and
        sines they depend on the type: "dct1" includes both ends, "dst1" excludes them, "dct2" and
        "dst2" begin half a spacing from either end.
        """
        self._get_plan()
        return spectral_operations.points(self.arguments, self.input_box, lengths)

    def derivative(
        self, u_hat: Any, axis: int, order: int = 1, lengths: Lengths = None
    ) -> npt.NDArray[Any]:
        """Return the modes of a derivative of a field.

        Parameters
        ----------
        u_hat : array
            This rank's modes, which are not changed.
        axis : int
            One of the transformed axes, counted without the axis of fields.
        order : int
            Order of the derivative; even along axes of cosines and sines, since odd derivatives
            turn one into the other.
        lengths : float or sequence of float, optional
            As for `wavenumbers`.

        Returns
        -------
        array
            This rank's modes. Odd derivatives of Nyquist modes are zero.
        """
        self._get_plan()
        u_hat = self._arrays.checked(u_hat, "output", "u_hat")
        return spectral_operations.derivative(self, u_hat, axis, order, lengths)

    @_announce_refusals
    def product(self, *modes: Any) -> npt.NDArray[Any]:
        """Return the modes of the product of some fields, multiplied at the points. Collective.

        The product of two fields is free of aliasing if the plan has truncation "2/3" or padding
        "3/2".
        """
        return spectral_operations.product(self, *modes)

    @_announce_refusals
    def convolve(self, u: Any, v: Any) -> npt.NDArray[Any]:
        """Return the periodic convolution of two fields, ``sum_m u[m] v[n - m]``. Collective.

        Both arrays are this rank's points. A truncation of the plan applies to the result.
        """
        return spectral_operations.convolution(self, u, v)

    @_announce_refusals
    def forward_adjoint(self, u_hat: Any) -> npt.NDArray[Any]:
        """Return the adjoint of `forward`, applied to modes. Collective.

        Backpropagation needs it: given the gradient `u_hat` of a real function with respect to
        ``forward(u)``, it returns the gradient with respect to `u`. Complex numbers are pairs of
        real ones: ``Re sum(conj(a) forward(u))`` equals ``Re sum(conj(forward_adjoint(a)) u)``.
        """
        u_hat = self._arrays.checked(u_hat, "output", "u_hat")
        return spectral_operations.forward_adjoint(self, u_hat)

    @_announce_refusals
    def backward_adjoint(self, u: Any) -> npt.NDArray[Any]:
        """Return the adjoint of `backward`, applied to points, as `forward_adjoint`. Collective."""
        u = self._arrays.checked(u, "input", "u")
        return spectral_operations.backward_adjoint(self, u)

    def empty_input(self) -> npt.NDArray[Any]:
        """Return an uninitialised physical array of this rank, with a batch axis if fields > 1."""
        self._get_plan()
        return self._arrays.empty("input")

    def empty_output(self) -> npt.NDArray[Any]:
        """Return an uninitialised spectral array of this rank, with a batch axis if fields > 1."""
        self._get_plan()
        return self._arrays.empty("output")

    def empty_in_place(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return a physical and a spectral array of this rank that share one memory.

        `forward` and `backward` between them are in place. The rows of a real physical array are
        padded, as in FFTW, so it is not contiguous; a GPU copies it first.
        """
        self._get_plan()
        return self._arrays.in_place()

    def remember(self, *arrays: Any) -> None:
        """Use arrays of another plan in place from the first call on, as if from `empty_input`."""
        self._get_plan()
        for array in arrays:
            self._arrays.note(array)

    @overload
    def forward(self, u: Any, out: None = None, stream: Any = None) -> npt.NDArray[Any]: ...

    @overload
    def forward(self, u: Any, out: Given, stream: Any = None) -> Given: ...

    def forward(self, u: Any, out: Any = None, stream: Any = None) -> Any:
        """Transform physical to spectral space; collective over the ranks.

        Parameters
        ----------
        u : array
            This rank's part, shape of `empty_input`, on the host or on the device: NumPy's, CuPy's
            or any other that supports DLPack; not changed, unless `out` shares its memory.
        out : array, optional
            Where to store the result, shape of `empty_output`. May be `u` itself, if complex and
            of the same shape: then the transform is in place. See also `empty_in_place`.
        stream : Stream or cupy.cuda.Stream, optional
            The stream that the transform belongs to; CuPy's null stream by default.

        Returns
        -------
        array
            This rank's spectral part; `out` if it was given.

        Raises
        ------
        InputError
            If an array does not have the plan's shape or type, or is not writable.
        RunError
            If another rank does not answer, see ``SLIPSTREAM_TIMEOUT``.
        """
        return self._run(True, u, out, stream)

    @overload
    def backward(self, u_hat: Any, out: None = None, stream: Any = None) -> npt.NDArray[Any]: ...

    @overload
    def backward(self, u_hat: Any, out: Given, stream: Any = None) -> Given: ...

    def backward(self, u_hat: Any, out: Any = None, stream: Any = None) -> Any:
        """Transform spectral to physical space; collective over the ranks.

        Parameters
        ----------
        u_hat : array
            This rank's modes, shape of `empty_output`, on the host or on the device; not changed,
            unless `out` shares its memory.
        out : array, optional
            Where to store the result, shape of `empty_input`.
        stream : Stream or cupy.cuda.Stream, optional
            The stream that the transform belongs to; CuPy's null stream by default.

        Returns
        -------
        array
            This rank's physical part.

        Raises
        ------
        InputError, RunError
            As for `forward`.
        """
        return self._run(False, u_hat, out, stream)

    @_announce_refusals
    def forward_async(self, u: Any, out: Any = None, stream: Any = None) -> PendingTransform:
        """Begin to transform physical to spectral space, and return immediately. Collective.

        Parameters are those of `forward`. Arrays are in use until `wait` returns. Calls of a plan,
        and of plans that share its communicator (made by `like`, `padded` and `component`), run in
        the order in which they are made. Other plans run in any order, which requires threads in
        MPI (``MPI_THREAD_MULTIPLE``).

        Returns
        -------
        PendingTransform
            Its `wait` returns the result; its `done` does not wait.
        """
        return self._begin_transform(True, u, out, stream)

    @_announce_refusals
    def backward_async(self, u_hat: Any, out: Any = None, stream: Any = None) -> PendingTransform:
        """Begin to transform spectral to physical space; see `forward_async`. Collective."""
        return self._begin_transform(False, u_hat, out, stream)

    @_announce_refusals
    def profile(self, u: Any, u_hat: Any) -> dict[str, Timeline]:
        """Transform `u` to `u_hat` and back; return the timeline of all operations. Collective.

        Both arrays are overwritten.
        """
        timelines = {}
        self._get_plan()
        for array, side, name in ((u, "input", "u"), (u_hat, "output", "u_hat")):
            self._arrays.checked(array, side, name, is_written=True)
        for name, source, target in (("forward", u, u_hat), ("backward", u_hat, u)):
            self._run(name == "forward", source, target, None, profile=True)
            timelines[name] = self._profiled
        return timelines

    @_announce_refusals
    def wire_error(self) -> float:
        """Return the relative error that the narrow wire made in the last transforms. Collective.

        It is the norm of the rounding errors over the norm of the data, the largest of all
        exchanges of the last forward and backward transform; 0 without a narrow wire, and 1 if all
        numbers were too small for it.
        """
        transport = self._get_plan().transport
        self.device.synchronize()
        return transport.relative_error(self._comm) if transport else 0.0

    def describe(self) -> str:
        """Return a description of this plan, in lines for users."""
        a, plan = self.arguments, self._get_plan()
        lines = [
            f"{_product(a.shape)} {a.dtype.name} to "
            f"{_product(a.spectral_shape)} {a.spectral_dtype.name}, "
            f"{a.fields} field{'s' * (a.fields > 1)}, on the {self.residency}",
            f"{a.ranks} rank{'s' * (a.ranks > 1)} on {self.device.name}, {plan.workers} of "
            f"them transform; transport {self.transport}",
            f"{self.exchanges} exchange{'s' * (self.exchanges != 1)} each way, "
            f"{self.wire_bytes / 2**20:.4g} MiB leave this rank",
        ]
        lines += [f"  {line}" for line in plan.describe_parts()]
        allocated = [
            f"{bytes_text(size)} of the {place}"
            for place, size in self.allocated_bytes.items()
            if size or place == ("host" if self.device.kind == "cpu" else "device")
        ]
        copies = sum(array.nbytes for array in self._arrays.of_plan.values())
        copied = f", {bytes_text(copies)} of it for arrays that are copied" if copies else ""
        lines.append(f"{' and '.join(allocated)} allocated on this rank so far{copied}")
        return "\n".join(lines)

    def _run(self, forward: bool, source: Any, out: Any, stream: Any, profile: bool = False) -> Any:
        with self._turns:
            try:
                if self._door is not None:
                    if self._plan is not None:  # a closed one refuses
                        transport = self._transport
                        self._door.settle_refusal(transport.check if transport else lambda: None)
                    self._door.begun += 1
                if stream is not None and not isinstance(stream, Stream):
                    stream = self._arrays.stream(stream)
                users_out, step, step_output = out, None, out
                if type(source) is self._array_type is type(out):
                    step = self._steps[forward].find(source, out)
                if step is None:
                    step, step_output, out = self._prepared(forward, source, out, stream)
                    users_out = out if users_out is None else users_out
                if self._transport:
                    self._transport.check()
                if profile:
                    step.timeline.clear()
                    self._profiled = step.timeline
                step.run(profile, stream)
                if self.residency != "device":  # if no other work is ordered by the stream
                    step.synchronize()
                if profile:
                    self.device.synchronize()
                if step_output is not out:
                    if out is None:
                        out = users_out = self.home.empty(step_output.shape, step_output.dtype)
                    self._arrays.copy(out, step_output, stream or self.device.default_stream)
                return users_out
            except InputError as failure:
                self._announce_refusal(failure)  # usually on all ranks: then the plan stays usable
                raise
            except BaseException as failure:
                if self._transport:
                    self._transport.give_up(failure)
                raise

    def _announce_refusal(self, failure: InputError) -> None:
        """Announce to the ranks in the present call that this rank has refused it."""
        if self._door is not None:
            failure.is_told = True  # type: ignore[attr-defined]
            self._door.refuse_call(failure)

    def _begin_transform(
        self, forward: bool, source: Any, out: Any, stream: Any
    ) -> PendingTransform:
        self._get_plan()
        arrays, sides = self._arrays, ("input", "output") if forward else ("output", "input")
        name = "u" if forward else "u_hat"
        source = arrays.checked(source, sides[0], name)
        if out is not None:
            arrays.checked(out, sides[1], "out", is_written=True)
        if self.device.kind == "cpu":
            call = functools.partial(self._run, forward, source, out, stream)
            return PendingTransform(self._turns.start(call), None, None)
        if stream is not None and not isinstance(stream, Stream):
            stream = arrays.stream(stream)
        result = self._run(forward, source, out, stream)
        return PendingTransform(None, result, (stream or self.device.default_stream).record())

    def _prepared(
        self, forward: bool, source: Any, out: Any, stream: Stream | None
    ) -> tuple[CommittedStep, Array, Array | None]:
        """Return the step of a transform, the array with its result, and the user's array for it.

        The user's arrays are used in place if possible; else the plan's arrays are, and the source
        is copied.
        """
        plan, arrays = self._get_plan(), self._arrays
        name, *sides = ("u", "input", "output") if forward else ("u_hat", "output", "input")
        source = arrays.checked(source, sides[0], name)
        out = None if out is None else arrays.checked(out, sides[1], "out", is_written=True)
        step_input = source if arrays.usable(source) else arrays.get_plan_array(sides[0])
        if out is None and self.residency == "disk":
            out = arrays.empty(sides[1])
        in_place = out is not None and arrays.usable(out)
        step_output = out if in_place else arrays.get_plan_array(sides[1])
        if step_input is source and step_output is out:
            points, modes = (source, out) if forward else (out, source)
            if not arrays.apart(points, modes):
                step_output = arrays.get_plan_array(sides[1])
        steps = self._steps[forward]
        step = steps.find(step_input, step_output)
        if step is None and not steps.has_room():
            step_input, step_output = (
                arrays.get_plan_array(sides[0]),
                arrays.get_plan_array(sides[1]),
            )
            step = steps.find(step_input, step_output)
        if step is None:
            graph = StepGraph(self.device)
            record = plan.record_forward if forward else plan.record_backward
            pair = step_input, step_output
            if self.arguments.fields == 1:
                pair = step_input[None], step_output[None]
            with self._meter:
                record(graph, *pair)
                step = commit(graph, self._policy)
            is_own = step_input is not source and step_output is not out
            steps.add(step_input, step_output, step, always=is_own)
        if step_input is not source:
            arrays.copy(step_input, source, stream or self.device.default_stream)
        return step, step_output, out

    def _get_plan(self) -> Plan:
        if self._plan is None:
            raise InputError("this plan is closed; make another one")
        return self._plan


def _product(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _ranges(box: Box) -> str:
    return ", ".join(f"{low}:{high}" for low, high in zip(box.start, box.stop, strict=True))


def _name_of(comm: Any) -> str:
    """Return the predefined communicator with the same ranks."""
    if comm is None:
        return "none"
    from mpi4py import MPI

    for name, known in (("world", MPI.COMM_WORLD), ("self", MPI.COMM_SELF)):
        if MPI.Comm.Compare(comm, known) <= MPI.CONGRUENT:
            return name
    reordered = MPI.Comm.Compare(comm, MPI.COMM_WORLD) == MPI.SIMILAR
    of = "all of MPI's ranks in another order" if reordered else "some of MPI's ranks"
    raise InputError(
        f"a plan of {of} cannot be pickled; accepted: comm None, COMM_WORLD, COMM_SELF, or one "
        "with the same ranks in the same order"
    )


def _made_again(asked: dict[str, Any], device: Any, comm: str) -> DistributedFFT:
    """Make a pickled plan again. Collective."""
    if comm == "none":
        return DistributedFFT(**asked, device=device)
    from mpi4py import MPI

    known = {"world": MPI.COMM_WORLD, "self": MPI.COMM_SELF}[comm]
    return DistributedFFT(**asked, comm=known, device=device)
