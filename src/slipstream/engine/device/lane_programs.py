"""Programs for the lanes of a CPU, prepared once per step: calls, and waits for other lanes.

The interpreter serves one thread at a time. If it handed out every operation of a step and
synchronised the threads, many of them would wait for the interpreter. So the work of a lane is a
list that compiled code works through (`lane_program.hpp`). Operations that need the interpreter
stand between such lists.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from slipstream.engine.device.device_interface import (
    Device,
    Operation,
    RowLaunch,
    Stream,
    address_of,
)
from slipstream.engine.processes import renew_in_child

# The numbers of integers that `lane_program.hpp` can pass on.
_INTEGERS = (6, 16, 48)
# The processors on which it can pass arguments on.
_PROCESSORS = ("x86_64", "aarch64")
# Types of floating-point arguments.
_FLOATS = (ctypes.c_float, ctypes.c_double)
# Compiled code does not use its stream.
_ANY_STREAM = cast(Stream, None)
# Constants of `lane_program.hpp`. An item that calls a function.
_CALL = 0
# An item that waits for a counter.
_WAIT = 1
# An item that raises a counter.
_RAISE = 2
# The number of fields of an item.
_FIELDS = 7
# The spacing of counters.
_STRIDE = 16
# The most floating-point arguments of a call.
_REALS = 8


@dataclass(frozen=True)
class PackedCall:
    """The arguments of a call in the form that `lane_program.hpp` takes."""

    integers: list[int]
    reals: bytes


class HostCall:
    """An operation that calls a C function with fixed arguments and keeps their targets alive.

    `load` returns the function, when it is first needed.
    """

    def __init__(self, load: Callable[[], Any], values: Sequence[Any], kept: Any) -> None:
        self._load, self._values, self.kept = load, values, kept
        # What completes the tables that the function reads, when it is first needed.
        self.fillers: list[Callable[[], None]] = []

    @functools.cached_property
    def _function(self) -> Any:
        for fill in self.fillers:
            fill()
        return self._load()

    def __call__(self, stream: Stream) -> None:
        self._function(*self._values)

    @property
    def address(self) -> int:
        """Where the function is, for others that call it."""
        # The result of a cast to a pointer, in a fraction of its time.
        return ctypes.c_void_p.from_address(ctypes.addressof(self._function)).value or 0

    def packed(self) -> PackedCall | None:
        """Return the call in the form that compiled code takes; None if it cannot make it."""
        integers = [one.value or 0 for one in self._values if not isinstance(one, _FLOATS)]
        fits = len(integers) <= _INTEGERS[-1] and len(self._values) - len(integers) <= _REALS
        if platform.machine() not in _PROCESSORS or not fits:
            return None
        room = next(size for size in _INTEGERS if len(integers) <= size)
        content = b""
        if len(integers) < len(self._values):
            reals = (bytes(value) for value in self._values if isinstance(value, _FLOATS))
            content = b"".join(value.ljust(8, b"\0") for value in reals)
        integers += [0] * (room - len(integers))
        return PackedCall(integers, content.ljust(8 * _REALS, b"\0"))


@dataclass(frozen=True)
class LaneNode:
    """An operation of a lane, by its number, and those in other lanes that come before it."""

    number: int
    operation: Operation
    awaited: Sequence[int] = ()


class Crew:
    """The threads of a device that run lanes by compiled code, next to the calling thread.

    They begin with the first step of several lanes, and end with this object. In a forked process
    others begin.
    """

    # As in `lane_program.hpp`, with room for as many members as a process may have threads.
    _MEMBER_BYTES = 192
    _MOST = 1024

    def __init__(self, device: Device) -> None:
        self._serve, self._dismiss = (
            device.kernel("lane_program.hpp", name) for name in ("serve", "dismiss")
        )
        self.addresses = np.zeros(self._MOST, np.int64)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Do without the threads of the parent process."""
        self.count = 0
        # A step has the crew to itself.
        self.lock = threading.Lock()

    def start_members(self, count: int) -> None:
        """Start threads until there are `count` members."""
        for number in range(self.count, count):
            memory = np.zeros(self._MEMBER_BYTES + 64, np.uint8)
            address = address_of(memory) + -address_of(memory) % 64
            self.addresses[number] = address
            serve, dismiss = (
                kernel.bind(RowLaunch(1, 1), address) for kernel in (self._serve, self._dismiss)
            )
            thread = threading.Thread(target=_serve, args=(serve, memory), daemon=True)
            weakref.finalize(self, dismiss, _ANY_STREAM).atexit = False
            thread.start()
            self.count += 1


def _serve(serve: Operation, memory: np.ndarray) -> None:
    """Run compiled code until the crew is dismissed; the memory of a member lives as long."""
    serve(_ANY_STREAM)


class LanePrograms:
    """The programs of several lanes that run concurrently; each is a list of nodes.

    If all nodes are calls of compiled code, `crew` runs them, and the calling thread the last lane:
    no thread waits for the interpreter. Each lane begins with the call `begin`, and the calling
    thread's ends with the call `end`. Otherwise streams run the lanes. If an operation
    fails, the other lanes stop at their next wait, or soon after.
    """

    def __init__(
        self,
        device: Device,
        lanes: Sequence[Sequence[LaneNode]],
        crew: Crew,
        begin: HostCall,
        end: HostCall,
    ) -> None:
        self._device, self._crew = device, crew
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
        self._lanes = [
            self._parts(nodes, begin, end if lane + 1 == len(lanes) else None)
            for lane, nodes in enumerate(lanes)
        ]
        self._together: tuple[Operation, Operation] | None = None
        compiled = [parts[0].program for parts in self._lanes if len(parts) == 1]
        if len(compiled) == len(lanes) and None not in compiled:
            self._programs = np.array(compiled, np.int64)
            run = device.kernel("lane_program.hpp", "run_programs")
            fixed = crew.addresses, self._programs, len(lanes), self._counters
            untimed, with_times = (run.bind(RowLaunch(1, 1), *fixed, timed) for timed in (0, 1))
            for call, parts in itertools.product((untimed, with_times), self._lanes):
                cast(HostCall, call).fillers.append(cast(_CompiledPart, parts[0]).fill)
            self._together = untimed, with_times

    def run(self, streams: Sequence[Stream], timed: bool = False) -> bool:
        """Run the program of each lane; an earlier run must have finished.

        Return whether it is done: if the crew cannot run it, or works for another step, its stream
        gets it.
        """
        if self._together is not None and self._crew.lock.acquire(blocking=False):
            try:
                if self._crew.count + 1 < len(self._lanes):
                    self._crew.start_members(len(self._lanes) - 1)
                self._together[timed](_ANY_STREAM)
            finally:
                self._crew.lock.release()
            return True
        self._counters[...] = 0
        for stream, parts in zip(streams, self._lanes, strict=True):
            stream.submit(functools.partial(self._run_lane, parts, timed))
        return False

    def durations(self) -> np.ndarray:
        """Return the seconds of each operation in a timed run: quicker than their intervals."""
        taken = [part.times[part.places] for parts in self._lanes for part in parts]
        return 1e-9 * np.concatenate([times[:, 1] - times[:, 0] for times in taken])

    def intervals(self) -> dict[int, tuple[float, float]]:
        """Return start and end of each operation in a timed run, by `time.perf_counter`."""
        intervals = []
        for part in itertools.chain(*self._lanes):
            for item, number in part.numbers.items():
                start, stop = part.times[item] * 1e-9
                intervals.append((number, (float(start), float(stop))))
        return dict(sorted(intervals))

    def _run_lane(self, parts: Sequence[_Part], timed: bool, stream: Stream) -> None:
        try:
            for part in parts:
                if self._failed[0]:
                    return
                part.run(stream, timed)
        except BaseException:
            self._stop(stream)
            raise

    def _parts(
        self, nodes: Sequence[LaneNode], begin: HostCall, end: HostCall | None
    ) -> list[_Part]:
        """Return a lane's program: compiled parts, and operations that need the interpreter."""
        parts: list[_Part] = []
        compiled = _CompiledPart()
        compiled.add_call(begin)
        for node in nodes:
            for number in node.awaited:
                compiled.add(_WAIT, *self._marks[number])
            operation = node.operation
            if not (isinstance(operation, HostCall) and compiled.add_call(operation, node.number)):
                parts += [compiled, _InterpretedPart(node)]
                compiled = _CompiledPart()
            if node.number in self._marks:
                compiled.add(_RAISE, *self._marks[node.number])
        if end is not None:
            compiled.add_call(end)
        parts = [part for part in [*parts, compiled] if not part.empty]
        for part in parts:
            part.finish(self._device, self._failed)
        return parts


def in_sequence(device: Device, calls: Sequence[HostCall]) -> Operation:
    """Return an operation that makes calls in order, by compiled code wherever possible."""
    part = _CompiledPart()
    if not all(map(part.add_call, calls)):

        def run(stream: Stream) -> None:
            for call in calls:
                call(stream)

        return run
    part.finish(device, np.zeros(1, np.int32))
    # Not the part itself: it has this operation, and a cycle would delay its release.
    part.untimed.kept = (part.untimed.kept, part.arguments, calls)
    return part.untimed


class _Part:
    """A part of a lane's program."""

    empty = False
    # The fields of a `Program` of `lane_program.hpp`, if compiled code can run it.
    program: list[int] | None = None
    numbers: dict[int, int]  # of operations, by the rows of `times`
    times: np.ndarray  # nanoseconds in which items began and ended in a timed run

    @functools.cached_property
    def places(self) -> np.ndarray:
        """The rows of `times` that are of operations, once all items are known."""
        return np.array(list(self.numbers), np.int64)

    def finish(self, device: Device, failed: np.ndarray) -> None:
        """Prepare to run, once all items are known."""

    def run(self, stream: Stream, timed: bool) -> None:
        raise NotImplementedError


class _InterpretedPart(_Part):
    """An operation that the interpreter runs."""

    def __init__(self, node: LaneNode) -> None:
        self._operation = node.operation
        self.numbers, self.times = {0: node.number}, np.zeros((1, 2), np.int64)

    def run(self, stream: Stream, timed: bool) -> None:
        start = time.perf_counter_ns()
        self._operation(stream)
        if timed:
            self.times[0] = start, time.perf_counter_ns()


class _CompiledPart(_Part):
    """Items that compiled code works through."""

    def __init__(self) -> None:
        self._items: list[list[int]] = []
        self._calls: dict[int, tuple[HostCall, PackedCall]] = {}  # by the places of their items
        self.empty = True
        self.numbers = {}

    def add(self, kind: int, counter: int, value: int) -> None:
        """Append a wait for a counter, or an increment of it."""
        self.empty = False
        self._items.append([kind, 0, 0, 0, 0, counter, value])

    def add_call(self, call: HostCall, number: int | None = None) -> bool:
        """Append a call, of the operation with this number; return whether that is possible."""
        index, packed = len(self._items), call.packed()
        if packed is None:
            return False
        if number is not None:
            self.numbers[index] = number
        self._calls[index] = call, packed
        self.empty = False
        self._items.append([_CALL, 0, 0, len(packed.integers), 0, 0, 0])
        return True

    def finish(self, device: Device, failed: np.ndarray) -> None:
        calls = [packed for _, packed in self._calls.values()]
        # What items point to.
        self.arguments = (
            np.array([n for call in calls for n in call.integers], np.int64),
            np.frombuffer(b"".join(call.reals for call in calls), np.uint8),
        )
        integers, reals = (address_of(array) for array in self.arguments)
        for item, (_, packed) in self._calls.items():
            self._items[item][2], self._items[item][4] = integers, reals
            integers += 8 * len(packed.integers)
            reals += len(packed.reals)
        items = np.array(self._items, np.int64)
        made = {item: call for item, (call, _) in self._calls.items()}

        def fill_addresses() -> None:
            for item, call in made.items():
                items[item, 1] = call.address

        self.fill = fill_addresses
        self.times = times = np.zeros((len(items), 2), np.int64)
        self.program = [address_of(items), len(items), address_of(failed), address_of(times)]
        kernel, launch = device.kernel("lane_program.hpp", "run_items"), RowLaunch(1, 1)
        self.untimed, self._timed = (
            cast(HostCall, kernel.bind(launch, items, len(items), failed, times, timed))
            for timed in (0, 1)
        )
        for call in (self.untimed, self._timed):
            call.fillers.append(fill_addresses)

    def run(self, stream: Stream, timed: bool) -> None:
        (self._timed if timed else self.untimed)(stream)
