"""Calls of C functions with fixed arguments: CPU operations that do not need the interpreter."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.device.device_interface import Stream

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
