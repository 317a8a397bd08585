"""The arrays that users give to a plan and get from it: allocated, checked, and taken in place.

Recording a transform between two arrays takes longer than a copy, and keeps them alive. So arrays
are used in place from the second time on; what comes only once is copied.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, Stream, address_of
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.padded_rows import padded_row

# How many arrays that came lately are recognised when they come again.
_RECOGNISED = 8


def array_key(array: Array) -> Hashable:
    """Return what tells arrays apart: address, layout, and whether they may be written."""
    on_host = isinstance(array, np.ndarray)
    place = array.__array_interface__["data"] if on_host else array.data.ptr
    return place, array.shape, array.strides, array.dtype


class UserArrays:
    """Physical ("input") and spectral ("output") arrays of one rank.

    Arrays that are used in place are at `home`: on the device that transforms, or on the host.
    """

    def __init__(self, arguments: Arguments, rank: int, device: Device, home: Device) -> None:
        self._arguments, self._rank = arguments, rank
        self._device, self._home = device, home
        self._kinds: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        for side, boxes, dtype in (
            ("input", arguments.input_boxes, arguments.dtype),
            ("output", arguments.output_boxes, arguments.complex_dtype),
        ):
            shape = boxes[rank].shape
            self._kinds[side] = (
                shape if arguments.fields == 1 else (arguments.fields, *shape),
                dtype,
            )
        self._own: dict[str, Array] = {}
        self._seen: deque[Hashable] = deque(maxlen=_RECOGNISED)

    def empty(self, side: str) -> Array:
        """Return an uninitialised array that is used in place from the first time on."""
        array = self._home.empty(*self._kinds[side])
        self.note(array)
        return array

    def in_place(self) -> tuple[Array, Array]:
        """Return both arrays in one memory; rows of real points are padded, as in FFTW."""
        (physical, dtype), (spectral, complex_dtype) = self._kinds["input"], self._kinds["output"]
        row = padded_row(physical[-1]) if self._arguments.real else physical[-1]
        stored = (*physical[:-1], row)
        sizes = math.prod(stored) * dtype.itemsize, math.prod(spectral) * complex_dtype.itemsize
        memory = self._home.empty((max(sizes),), np.uint8)
        first = memory[: sizes[0]].view(dtype).reshape(stored)[..., : physical[-1]]
        second = memory[: sizes[1]].view(complex_dtype).reshape(spectral)
        self.note(first)
        self.note(second)
        return first, second

    def note(self, array: Array) -> None:
        """Remember an array that will come again."""
        self._seen.append(array_key(array))

    def check(self, array: Array, side: str) -> None:
        """Raise `InputError` if an array is not one that the plan takes."""
        shape, dtype = self._kinds[side]
        if tuple(array.shape) != shape or array.dtype != dtype:
            raise InputError(
                f"array of shape {tuple(array.shape)} and type {array.dtype}; this plan takes "
                f"shape {shape} and type {dtype} on rank {self._rank}"
            )
        if not isinstance(array, (np.ndarray, self._device.array_module.ndarray)):
            raise InputError(
                f"array of type {type(array).__name__}; this plan on a {self._device.kind} device "
                f"takes {' and '.join({'numpy', self._device.array_module.__name__})} arrays"
            )

    def usable(self, array: Array) -> bool:
        """Return whether an array is used in place; others are copied to those of `own`."""
        if not self._home.holds(array):
            return False
        fits = array.size and address_of(array) % 16 == 0 and min(array.strides) > 0
        if self._home.kind == "cuda":
            # A library may choose another way for other strides, and so give other bits.
            fits = fits and array.flags.c_contiguous
        else:
            fits = fits and array.strides[-1] == array.itemsize and array.flags.writeable
        if fits and array_key(array) not in self._seen:
            self.note(array)
            return False
        return bool(fits)

    def own(self, side: str) -> Array:
        """Return the plan's own array of a side."""
        if side not in self._own:
            self._own[side] = self.empty(side)
        return self._own[side]

    def copy(self, target: Array, source: Array, stream: Stream) -> None:
        """Copy between users' arrays and the plan's, in order with a stream."""
        if isinstance(target, np.ndarray):
            stream.synchronize()
            target[...] = self._device.to_host(source)
            return
        if isinstance(source, np.ndarray):  # from which a GPU takes only what is in order
            source = np.ascontiguousarray(source)
        stream.submit(self._device.copy(target, source))

    def stream(self, given: Any) -> Stream:
        """Return the stream that a user means: one of ours, one of CuPy's, or none."""
        if given is None:
            return self._device.default_stream
        if isinstance(given, Stream):
            return given
        if self._device.kind == "cpu" or not hasattr(given, "ptr"):
            accepted = "a stream of this device" + ", or of CuPy" * (self._device.kind != "cpu")
            raise InputError(f"stream {given!r}; accepted: {accepted}")
        return self._device.stream_of(given)
