"""Programs for the lanes of a CPU, prepared once per step: calls, and waits for other lanes.

The interpreter serves one thread at a time. If it handed out every operation of a step and
synchronised the threads, many of them would wait for the interpreter. So the work of a lane is a
list that compiled code works through (`lane_program.hpp`). Operations that need the interpreter
stand between such lists.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from slipstream.device.array_addresses import address_of
from slipstream.device.device_interface import Device, Operation, RowLaunch, Stream

# What `lane_program.hpp` can pass on: at most this many integers and floating-point numbers, and
# only on these processors.
_INTEGERS = (6, 16, 48)
_REALS = 8
_PROCESSORS = ("x86_64", "aarch64")
_FLOATS = (ctypes.c_float, ctypes.c_double)


@dataclass(frozen=True)
class PackedCall:
    """A call in the form that `lane_program.hpp` takes: a function's address and its arguments."""

    address: int
    integers: list[int]
    reals: bytes


class HostCall:
    """An operation that calls a C function with fixed arguments and keeps their targets alive."""

    def __init__(self, function: Any, values: Sequence[Any], kept: Any) -> None:
        self._function, self._values, self.kept = function, values, kept

    def __call__(self, stream: Stream) -> None:
        self._function(*self._values)

    def packed(self) -> PackedCall | None:
        """Return the call in the form that compiled code takes, or None if it cannot make it."""
        integers = [one.value or 0 for one in self._values if not isinstance(one, _FLOATS)]
        fits = len(integers) <= _INTEGERS[-1] and len(self._values) - len(integers) <= _REALS
        if platform.machine() not in _PROCESSORS or not fits:
            return None
        room = next(size for size in _INTEGERS if len(integers) <= size)
        content = b""
        if len(integers) < len(self._values):
            reals = (bytes(one) for one in self._values if isinstance(one, _FLOATS))
            content = b"".join(one.ljust(8, b"\0") for one in reals)
        integers += [0] * (room - len(integers))
        address = address_of_function(self._function)
        return PackedCall(address, integers, content.ljust(8 * _REALS, b"\0"))


def address_of_function(function: Any) -> int:
    """Return what a cast to a pointer gives, in a fraction of its time."""
    return ctypes.c_void_p.from_address(ctypes.addressof(function)).value or 0


# As in `lane_program.hpp`: kinds of items, their fields, the spacing of counters, and the number of
# floating-point numbers that calls are given.
_CALL, _WAIT, _RAISE = range(3)
_FIELDS, _STRIDE, _REALS = 7, 16, 8


@dataclass(frozen=True)
class LaneNode:
    """An operation of a lane, by its number, and those in other lanes that come before it."""

    number: int
    operation: Operation
    awaited: Sequence[int] = ()


class LanePrograms:
    """The programs of several lanes that run concurrently; each is a list of nodes.

    If an operation fails, the other lanes stop at their next wait, or soon after.
    """

    def __init__(self, device: Device, lanes: Sequence[Sequence[LaneNode]]) -> None:
        self._device = device
        self._counters = np.zeros((_STRIDE * (len(lanes) + 1),), np.int32)
        self._failed = self._counters[_STRIDE * len(lanes) :]
        stop = device.kernel("lane_program.hpp", "stop_lanes")
        self._stop = stop.bind(RowLaunch(1, 1), self._counters, len(lanes))
        # For each operation that others wait for: the counter that it raises, and the value.
        awaited = {number for nodes in lanes for node in nodes for number in node.awaited}
        self._marks: dict[int, tuple[int, int]] = {}
        for lane, nodes in enumerate(lanes):
            counter = address_of(self._counters[_STRIDE * lane :])
            marked = [node.number for node in nodes if node.number in awaited]
            self._marks |= {number: (counter, 1 + i) for i, number in enumerate(marked)}
        self._lanes = [self._parts(nodes) for nodes in lanes]

    def run(self, streams: Sequence[Stream], timed: bool = False) -> None:
        """Submit the program of each lane to its stream; an earlier run must have finished."""
        self._counters[...] = 0
        for stream, parts in zip(streams, self._lanes, strict=True):
            stream.submit(partial(self._run_lane, parts, timed))

    def intervals(self) -> dict[int, tuple[float, float]]:
        """Return when each operation ran in a timed run, in seconds of `time.perf_counter`."""
        parts = (part for parts in self._lanes for part in parts)
        return dict(sorted(entry for part in parts for entry in part.intervals()))

    def _run_lane(self, parts: Sequence[_Part], timed: bool, stream: Stream) -> None:
        try:
            for part in parts:
                if self._failed[0]:
                    return
                part.run(stream, timed)
        except BaseException:
            self._stop(stream)
            raise

    def _parts(self, nodes: Sequence[LaneNode]) -> list[_Part]:
        """Return a lane's program: compiled parts, and operations that need the interpreter."""
        parts: list[_Part] = []
        compiled = _CompiledPart()
        for node in nodes:
            for number in node.awaited:
                compiled.add(_WAIT, *self._marks[number])
            operation = node.operation
            packed = operation.packed() if isinstance(operation, HostCall) else None
            if packed is not None:
                compiled.add_calls(node.number, [packed])
            else:
                parts += [compiled, _InterpretedPart(node)]
                compiled = _CompiledPart()
            if node.number in self._marks:
                compiled.add(_RAISE, *self._marks[node.number])
        parts = [part for part in [*parts, compiled] if not part.empty]
        for part in parts:
            part.finish(self._device, self._failed)
        return parts


def in_sequence(device: Device, calls: Sequence[HostCall]) -> Operation:
    """Return an operation that makes calls in order, by compiled code wherever possible."""
    packed = [one for one in (call.packed() for call in calls) if one is not None]
    if len(packed) < len(calls):

        def run(stream: Stream) -> None:
            for call in calls:
                call(stream)

        return run
    part = _CompiledPart()
    part.add_calls(0, packed)
    part.finish(device, np.zeros(1, np.int32))
    # Not the part itself: it has this operation, and a cycle would outlive what is dropped.
    part.untimed.kept = (part.untimed.kept, part.arguments, calls)
    return part.untimed


def _bound(
    device: Device, items: np.ndarray, failed: np.ndarray, times: np.ndarray, timed: int
) -> HostCall:
    """Return the call of the compiled code that works through items."""
    kernel = device.kernel("lane_program.hpp", "run_items")
    return cast(HostCall, kernel.bind(RowLaunch(1, 1), items, len(items), failed, times, timed))


class _Part:
    """A part of a lane's program."""

    empty = False

    def finish(self, device: Device, failed: np.ndarray) -> None:
        """Prepare to run, once all items are known."""

    def run(self, stream: Stream, timed: bool) -> None:
        raise NotImplementedError

    def intervals(self) -> Iterator[tuple[int, tuple[float, float]]]:
        """Yield the number of each operation and when it ran."""
        raise NotImplementedError


class _InterpretedPart(_Part):
    """An operation that the interpreter runs."""

    def __init__(self, node: LaneNode) -> None:
        self._node = node
        self._start = self._stop = 0.0

    def run(self, stream: Stream, timed: bool) -> None:
        start = time.perf_counter()
        self._node.operation(stream)
        if timed:
            self._start, self._stop = start, time.perf_counter()

    def intervals(self) -> Iterator[tuple[int, tuple[float, float]]]:
        yield self._node.number, (self._start, self._stop)


class _CompiledPart(_Part):
    """Items that compiled code works through."""

    def __init__(self) -> None:
        self._items: list[list[int]] = []
        self._calls: dict[int, PackedCall] = {}  # by the places of their items
        self._spans: list[tuple[int, int, int]] = []  # numbers of operations, first and last places

    @property
    def empty(self) -> bool:  # type: ignore[override]
        return not self._items

    def add(self, kind: int, counter: int, value: int) -> None:
        """Append a wait for a counter, or an increment of it."""
        self._items.append([kind, 0, 0, 0, 0, counter, value])

    def add_calls(self, number: int, calls: Sequence[PackedCall]) -> None:
        """Append the call of an operation."""
        self._spans.append((number, len(self._items), len(self._items) + len(calls) - 1))
        for call in calls:
            self._calls[len(self._items)] = call
            self._items.append([_CALL, call.address, 0, len(call.integers), 0, 0, 0])

    def finish(self, device: Device, failed: np.ndarray) -> None:
        calls = list(self._calls.values())
        # What items point to.
        self.arguments = (
            np.array([n for call in calls for n in call.integers], np.int64),
            np.frombuffer(b"".join(call.reals for call in calls), np.uint8),
        )
        integers, reals = (address_of(array) for array in self.arguments)
        for place, call in self._calls.items():
            self._items[place][2], self._items[place][4] = integers, reals
            integers += 8 * len(call.integers)
            reals += len(call.reals)
        items = np.array(self._items, np.int64)
        self._times = times = np.zeros((len(items), 2), np.int64)
        self.untimed, self._timed = (
            _bound(device, items, failed, times, timed) for timed in (0, 1)
        )

    def run(self, stream: Stream, timed: bool) -> None:
        (self._timed if timed else self.untimed)(stream)

    def intervals(self) -> Iterator[tuple[int, tuple[float, float]]]:
        for number, first, last in self._spans:
            start, stop = self._times[first, 0] * 1e-9, self._times[last, 1] * 1e-9
            yield number, (float(start), float(stop))
