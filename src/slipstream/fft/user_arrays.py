"""The arrays that users give to a plan and get from it: allocated, checked, and taken in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.device import Device, Stream
from slipstream.errors import InputError
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.known_arrays import KnownArrays
from slipstream.fft.padded_rows import padded_row


class UserArrays:
    """Physical and spectral arrays of one rank.

    Parameters
    ----------
    arguments : Arguments
        The transform.
    rank : int
        This rank.
    device : Device
        What transforms.
    home : Device
        Where arrays are that need not be copied: the same, or the host.
    """

    def __init__(self, arguments: Arguments, rank: int, device: Device, home: Device) -> None:
        self._arguments, self._rank = arguments, rank
        self._device, self._home = device, home
        self._own: dict[str, Any] = {}
        self._known = KnownArrays(home)

    def _shape(self, side: str) -> tuple[int, ...]:
        a = self._arguments
        box = (a.input_boxes if side == "input" else a.output_boxes)[self._rank]
        return box.shape if a.fields == 1 else (a.fields, *box.shape)

    def _dtype(self, side: str) -> np.dtype:
        return self._arguments.dtype if side == "input" else self._arguments.complex_dtype

    def empty(self, side: str) -> Any:
        """Return an uninitialised array, of side "input" or "output"."""
        array = self._home.empty(self._shape(side), self._dtype(side))
        self._known.note(array)
        return array

    def in_place(self) -> tuple[Any, Any]:
        """Return both arrays in one memory; rows of real points are padded, as in FFTW."""
        physical, spectral = self._shape("input"), self._shape("output")
        row = padded_row(physical[-1]) if self._arguments.real else physical[-1]
        stored = (*physical[:-1], row)
        types = self._dtype("input"), self._dtype("output")
        sizes = math.prod(stored) * types[0].itemsize, math.prod(spectral) * types[1].itemsize
        memory = self._home.empty((max(sizes),), np.uint8)
        first = memory[: sizes[0]].view(types[0]).reshape(stored)[..., : physical[-1]]
        second = memory[: sizes[1]].view(types[1]).reshape(spectral)
        self._known.note(first)
        self._known.note(second)
        return first, second

    def note(self, array: Any) -> None:
        """Remember an array that will come again."""
        self._known.note(array)

    def check(self, array: Any, side: str) -> None:
        """Refuse an array that is not one of the plan's.

        Raises
        ------
        InputError
            If it is not.
        """
        shape, dtype = self._shape(side), self._dtype(side)
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

    def usable(self, array: Any) -> bool:
        """Return whether an array is taken in place; others are copied to those of `own`."""
        return self._known.usable(array)

    def own(self, side: str) -> Any:
        """Return the plan's own array of a side."""
        if side not in self._own:
            self._own[side] = self.empty(side)
        return self._own[side]

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Copy between users' arrays and the plan's, in order with a stream."""
        if isinstance(target, np.ndarray):
            stream.synchronize()
            target[...] = self._device.to_host(source)
            return
        if isinstance(source, np.ndarray):  # from which a GPU takes only what is in order
            source = np.ascontiguousarray(source)
        stream.submit(self._device.copy(target, source))

    def stream(self, given: Any) -> Any:
        """Return the stream that a user means: one of ours, one of CuPy's, or none."""
        if given is None:
            return self._device.default_stream
        if isinstance(given, Stream):
            return given
        if self._device.kind == "cpu" or not hasattr(given, "ptr"):
            accepted = "a stream of this device" + ", or of CuPy" * (self._device.kind != "cpu")
            raise InputError(f"stream {given!r}; accepted: {accepted}")
        return self._device.stream_of(given)
