"""The parts of a transform, and which wavenumbers of an axis exist in a spectral array."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, split
from slipstream.engine.device import Device, Stream
from slipstream.engine.errors import InputError, is_finite, whole_numbers
from slipstream.engine.exchange import ExchangePlan, Transport, pack_targets, part_of
from slipstream.engine.schedule import StepGraph

# The most points per mode: more is considered a mistake.
_MOST_PADDING = 16
# The size of an array in bytes from which several threads pay off.
_DIVIDED = 256 << 10


@dataclass(frozen=True)
class Modes:
    """The kept modes of one axis: ``0 .. low-1`` and ``size-high .. size-1``.

    Attributes
    ----------
    size : int
        Number of points along the axis in physical space.
    low, high : int
        Number of modes kept at either end of the range; ``high`` is 0 for the half-complex axis
        of a real transform, and between walls.
    walls : bool
        Whether the axis ends at walls: its modes are sines or cosines, whose period is twice the
        length.
    """

    size: int
    low: int
    high: int
    walls: bool = False

    @property
    def count(self) -> int:
        """Number of modes kept."""
        return self.low + self.high

    @property
    def period(self) -> int:
        """Number of points in a period."""
        return 2 * self.size if self.walls else self.size

    @property
    def gap(self) -> int:
        """Number of modes of a complex transform that are not kept."""
        return self.size - self.count

    @property
    def has_nyquist(self) -> bool:
        """Whether the Nyquist mode of an even number of points is kept."""
        return self.size % 2 == 0 and max(self.low - 1, self.high) == self.size // 2

    def wavenumbers(self) -> np.ndarray:
        """Return the integer wavenumbers in the order of storage."""
        return np.concatenate([np.arange(self.low), np.arange(-self.high, 0)])

    def positions(self) -> np.ndarray:
        """Return, for each of the `size` modes, its index among those kept, or -1."""
        positions = np.full(self.size, -1, dtype=np.int64)
        positions[: self.low] = np.arange(self.low)
        positions[self.size - self.high :] = np.arange(self.low, self.count)
        return positions


def truncated(size: int, largest: int, half: bool = False) -> Modes:
    """Keep the wavenumbers ``|k| <= largest``; the Nyquist mode is never kept.

    A Nyquist mode lacks a partner of the opposite sign, and so a derivative.
    """
    largest = min(largest, (size - 1) // 2)
    return Modes(size, largest + 1, 0 if half else largest)


def padded_sizes(
    sizes: Sequence[int], axes: Sequence[int], padding: float | str | Sequence[float] | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Return the number of points and the padding factor of every axis.

    Raises
    ------
    InputError
        If the padding is invalid, see `DistributedFFT`.
    """
    if padding is None:
        return tuple(sizes), None
    wanted: Any = 1.5 if isinstance(padding, str) and padding == "3/2" else padding
    several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    factors: list[Any] = list(wanted) if several else [wanted] * len(axes)
    if (
        not axes
        or len(factors) != len(axes)
        or not all(is_finite(one) and 1 <= one <= _MOST_PADDING for one in factors)
    ):
        raise InputError(
            f"padding {padding!r}; accepted: None, '3/2', or a number from 1 to {_MOST_PADDING}, "
            f"or one for each of the {len(axes)} Fourier axes"
        )
    result = list(sizes)
    for axis, factor in zip(axes, factors, strict=True):
        result[axis] = math.ceil(sizes[axis] * factor)
    return tuple(result), tuple(map(float, factors))


def truncate(
    shape: Sequence[int], truncation: str | Sequence[int] | None, real: bool
) -> tuple[Modes, ...]:
    """Return the modes of every axis of a transform.

    Parameters
    ----------
    shape : sequence of int
        Physical shape; the last axis is half-complex if `real`.
    truncation : None, "2/3", "nyquist" or sequence of int
        Keep all modes; the modes free of aliasing in a quadratic product (3 k < n: Orszag, J.
        Atmos. Sci. 28, 1074 (1971)); all but the Nyquist modes; or modes up to a given wavenumber
        along each axis.
    real : bool
        Whether the physical field is real.

    Raises
    ------
    InputError
        If the truncation is unknown, or exceeds the wavenumbers of the shape.
    """
    shape = whole_numbers("shape", shape, 1)
    halves = [real and axis == len(shape) - 1 for axis in range(len(shape))]
    if truncation is None:
        return tuple(
            Modes(n, n // 2 + 1, 0) if half else Modes(n, n - n // 2, n // 2)
            for n, half in zip(shape, halves, strict=True)
        )
    try:
        if isinstance(truncation, str):
            largest = {"2/3": [(n - 1) // 3 for n in shape], "nyquist": list(shape)}[truncation]
        else:
            largest = [operator.index(k) for k in truncation]
    except (KeyError, TypeError):
        largest = []
    if len(largest) != len(shape) or min(largest) < 0:
        raise InputError(
            f"truncation {truncation!r} is unknown; accepted: None, '2/3', 'nyquist' or the "
            f"largest wavenumber of each of the {len(shape)} axes"
        )
    most = [(n - 1) // 2 for n in shape]
    if not isinstance(truncation, str) and any(k > n for k, n in zip(largest, most, strict=True)):
        raise InputError(
            f"truncation {truncation!r}: there are no such wavenumbers; accepted: at most"
            f" {tuple(most)}, without Nyquist modes"
        )
    return tuple(truncated(n, k, h) for n, k, h in zip(shape, largest, halves, strict=True))


def split_scale(scale: float, shape: Sequence[int]) -> tuple[float, float]:
    """Return the factors of the first and of the last pass of a backward transform.

    Each axis of a `shape` has a share, as in NumPy, so that no sum overflows whose result does
    not. The first factor has those of all axes but the last. It is a power of two, so that results
    have the bits of a transform that scales at its end.
    """
    points = math.prod(shape)
    if scale >= 1.0 or points == 1:
        return 1.0, scale
    share = 1.0 - math.log(shape[-1]) / math.log(points)
    first = 2.0 ** round(share * math.log2(scale))
    return first, scale / first


class Part:
    """The interface of the parts of a transform. `Part()` itself does nothing.

    If one rank has the array and transforms it, the other ranks use `Part()`.
    """

    # Redistributions of the array.
    exchanges = 0
    # Elements of all fields that leave this rank in a transform: of the result's type, and real.
    wire_elements = real_wire_elements = 0
    # Memory that the part allocates, without source and target.
    buffer_bytes = 0

    def describe(self) -> str:
        """Return a description of the part in one line, for users."""
        return "another rank transforms"

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record the transform from physical to spectral space, times a constant."""

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record the transform back, times a constant."""


def in_lanes(
    graph: StepGraph, axis: int, source: Array, target: Array
) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Divide an operation along one axis among the lanes.

    Yields the name of each lane, with its parts of the source and of the target.
    """
    free_axes = [other for other in range(source.ndim) if other != axis]
    # The slowest axis with an index for every lane, or the longest one.
    several = graph.lane_of_batch(0) != graph.lane_of_batch(1) and source.nbytes >= _DIVIDED
    lanes = graph.device.lanes if several else 1
    along = next((other for other in free_axes if source.shape[other] >= lanes), None)
    if along is None:
        along = max(free_axes, key=lambda other: source.shape[other])
    for number, (low, high) in enumerate(split(source.shape[along], lanes)):
        lane = graph.lane_of_batch(number)[1]
        where = (*[slice(None)] * along, slice(low, high))
        if high > low:
            yield lane, (source[where], target[where])


def along(array: Array, axis: int, low: int, high: int) -> Array:
    """Return the part of an array with a range of indices along an axis."""
    return array[(slice(None),) * axis + (slice(low, high),)]


class Redistribution(Part):
    """Moves an array from one layout, a box per rank, to another. Collective.

    Blocks are packed in its own memory, or in `memory`: flat bytes to send from and to receive in.
    If the transport can store, blocks are stored directly in the memory of other ranks.
    """

    exchanges = 1

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        source: Sequence[Box],
        target: Sequence[Box],
        rank: int,
        dtype: DTypeLike,
        memory: tuple[Array, Array] | None = None,
    ) -> None:
        self._boxes = source[rank], target[rank]
        there = ExchangePlan.redistribution(source, target, rank)
        self.wire_elements = there.off_rank_elements()
        sizes = there.send_size, there.receive_size
        if memory is None:
            empty = transport.empty if transport else device.empty
            packed = empty((sizes[0],), dtype), empty((sizes[1],), dtype)
            self.buffer_bytes = sum(array.nbytes for array in packed)
            back = packed[::-1]
        else:
            outgoing, incoming = (array.view(dtype) for array in memory)
            packed = outgoing[: sizes[0]], incoming[: sizes[1]]
            back = outgoing[: sizes[1]], incoming[: sizes[0]]
        self._ways = [
            (plan, arrays[1], boxes, pack_targets(transport, plan, [arrays], memory is not None))
            for plan, arrays, boxes in (
                (there, packed, self._boxes),
                (there.reversed(), back, self._boxes[::-1]),
            )
        ]

    def describe(self) -> str:
        return f"exchange from boxes of {self._boxes[0].shape} to {self._boxes[1].shape}"

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record source layout -> target layout; the scale must be 1."""
        self._record(graph, self._ways[0], source, target)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record target layout -> source layout; the scale must be 1."""
        self._record(graph, self._ways[1], source, target)

    def _record(self, graph: StepGraph, way: tuple[Any, ...], source: Array, target: Array) -> None:
        plan, arrived, boxes, exchange = way
        exchange.record_open(graph, "redistribute")
        packed = []
        for block in plan.sends:
            part = source[block.box.slices(boxes[0])]
            if block.peer == plan.rank:
                memory = target[block.box.slices(boxes[1])]
                graph.add_copy(memory, part, label="own block")
            else:
                memory = exchange.blocks[0][block.peer].reshape(block.box.shape)
                packed.append((memory, part))
        _add_copies(graph, packed, "pack", [source], [memory for memory, _ in packed])
        exchange.record_close(graph, "redistribute")
        received = [block for block in plan.receives if block.peer != plan.rank]
        arrivals = [part_of(arrived, block) for block in received]
        unpacked = [
            (target[block.box.slices(boxes[1])], part.reshape(block.box.shape))
            for block, part in zip(received, arrivals, strict=True)
        ]
        _add_copies(graph, unpacked, "unpack", arrivals, [target])


def _add_copies(
    graph: StepGraph,
    pairs: Sequence[tuple[Array, Array]],
    label: str,
    reads: Sequence[Array],
    writes: Sequence[Array],
) -> None:
    """Record copies (target, source) for all other ranks as one node: there may be thousands."""
    if not pairs:
        return
    copies = [graph.device.copy(target, source) for target, source in pairs]

    def operation(stream: Stream) -> None:
        for copy in copies:
            copy(stream)

    size = sum(source.nbytes for _, source in pairs)
    graph.add(
        operation, reads=reads, writes=writes, label=label, category="pack", moves=(size, size)
    )


def _allocate_in_order(
    device: Device, shape: tuple[int, ...], dtype: DTypeLike, order: Sequence[int]
) -> Array:
    """Return an uninitialised array whose axes are in another order in memory."""
    back = [list(order).index(axis) for axis in range(len(shape))]
    return device.empty(tuple(shape[axis] for axis in order), dtype).transpose(back)


class AxisTransform(Part):
    """The transform along one local axis, with truncation.

    `before` is the shape of the local array in physical space, and `real` whether the transform
    along this axis is real. Rows `among_many` have the bits that planes give them (`Device.fft`).
    """

    def __init__(
        self,
        device: Device,
        before: tuple[int, ...],
        axis: int,
        modes: Modes,
        real: bool,
        complex_dtype: DTypeLike,
        among_many: bool,
    ) -> None:
        self._device, self._axis, self._modes, self._real = device, axis, modes, real
        self._among_many = among_many
        self._width = width = before[axis] // 2 + 1 if real else before[axis]
        self._all = self._points = None
        # cuFFT uses the modes of real points as working memory, so it gets a copy of them.
        self._overwrites = real and (device.kind != "cpu" or device.tiled_transforms())
        if modes.count < width or self._overwrites:
            shape = tuple(width if a == axis else n for a, n in enumerate(before))
            # cuFFT needs real points at aligned addresses; the points of a column are not.
            aside = real and axis != len(before) - 1 and device.tiled_transforms()
            order = [a for a in range(len(before)) if a != axis or not aside] + [axis] * aside
            self._all = _allocate_in_order(device, shape, complex_dtype, order)
            if aside:
                real_dtype = np.zeros(0, complex_dtype).real.dtype
                self._points = _allocate_in_order(device, before, real_dtype, order)
                self.buffer_bytes = self._points.nbytes
            self.buffer_bytes += self._all.nbytes

    def describe(self) -> str:
        kind = "real " if self._real else ""
        return f"{kind}transform along axis {self._axis - 1}"

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record points -> modes, times a constant; the source is not changed."""
        everything, aside = self._all, self._points
        if everything is None or (everything.shape == target.shape and aside is None):
            self._transform(graph, source, target, True, scale)
            return
        if aside is not None:
            self._copy(graph, aside, source, "transpose")
        self._transform(graph, source if aside is None else aside, everything, True, scale)
        for kept, among_all in self._sides(target, everything):
            self._copy(graph, kept, among_all, "truncate")

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record modes -> points, times a constant; the source is not changed."""
        everything = self._all
        if everything is not None:
            for kept, among_all in self._sides(source, everything):
                self._copy(graph, among_all, kept, "truncate")
            rest = along(everything, self._axis, self._modes.low, self._width - self._modes.high)
            if rest.size:
                fill = self._device.fill(rest, 0)
                graph.add(fill, writes=[rest], label="pad", category="pack")
            source = everything
        aside = self._points
        self._transform(graph, source, target if aside is None else aside, False, scale)
        if aside is not None:
            self._copy(graph, target, aside, "transpose")

    def _copy(self, graph: StepGraph, target: Array, source: Array, label: str) -> None:
        if self._points is None:
            graph.add_copy(target, source, label=label)
            return
        if not target.size:  # shapes of arrays without elements may differ
            return
        # Copy engines would move every element separately.
        copy = self._device.array_module.copyto
        graph.add(
            lambda stream: copy(target, source),
            reads=[source],
            writes=[target],
            label=label,
            category="pack",
        )

    def _transform(
        self, graph: StepGraph, source: Array, target: Array, forward: bool, scale: float
    ) -> None:
        label = f"fft axis {self._axis - 1}"
        parts = list(in_lanes(graph, self._axis, source, target))
        for lane, (points, modes) in parts:
            operation = self._device.fft(
                points, modes, self._axis, forward, scale=scale, among_many=self._among_many
            )
            if len(parts) == 1 and source.nbytes >= _DIVIDED:  # a line: threads share it
                operation = self._device.with_all_threads(operation)
            writes = [points, modes] if self._overwrites and not forward else [modes]
            graph.add(
                operation, reads=[points], writes=writes, label=label, category="fft", lane=lane
            )

    def _sides(self, kept: Array, everything: Array) -> list[tuple[Array, Array]]:
        """Return the places of the modes of each sign: among the kept modes, and among all."""
        low, count, width = self._modes.low, self._modes.count, self._width
        sides = [(0, low, 0, low), (low, count, width - self._modes.high, width)]
        axis = self._axis
        pairs = [(along(kept, axis, a, b), along(everything, axis, c, d)) for a, b, c, d in sides]
        return [pair for pair in pairs if pair[0].size]
