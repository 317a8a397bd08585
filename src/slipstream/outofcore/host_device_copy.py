"""Ways over the bus: how a box of an array on the host gets to a device, and back.

``memcpy2D``
    The copy engines: rectangles of rows, at no cost to anything else. Short rows go out by a
    kernel, since the engines write them to the host at a fraction of the speed of the bus.
``zero-copy``
    A kernel of the device that reads, or writes, pinned memory of the host: worth it where rows are
    short (Ravikumar, Appelhans and Yeung, SC 2019).
``packed``
    The host's threads gather the box in a contiguous buffer, which then crosses at once.
"""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Array
from slipstream.device import REAL_NAMES, Device, Operation, RowLaunch
from slipstream.device.array_addresses import merged_axes
from slipstream.outofcore.file_arrays import FileHome, MappedFiles, files_of
from slipstream.outofcore.file_transfers import FileTransfer
from slipstream.schedule import StepGraph

# Bytes of rows that copy engines write to the host at less than full speed.
_SHORT_ROW = 32 << 10

# Numbers of a row that some threads copy together.
_PART = 4096

# By whether a file is read.
_LABELS = {True: "read", False: "write"}

COPIES = ("memcpy2D", "zero-copy", "packed")


class HostDeviceCopier:
    """Records copies between the host, whose arrays are pinned, and a device."""

    def __init__(self, device: Device, home: Device, copies: str) -> None:
        self._device, self._home, self._copies = device, home, copies

    def staging(self, size: int) -> Array | None:
        """Return memory of so many bytes in which boxes are packed, if they are.

        What goes to a GPU from a file, or back, passes through it.
        """
        home = self._home
        if isinstance(home, FileHome):
            return home.host.empty((size,), np.uint8) if self._device.kind != "cpu" else None
        return home.empty((size,), np.uint8) if self._copies == "packed" else None

    def record(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        inward: bool,
        lane: str,
        staging: Array | None,
    ) -> None:
        """Record ``target[...] = source``, views of one shape.

        If `inward`, the source is the one on the host. `staging` is a buffer from the method of
        that name, at least as large as the source.
        """
        files = None
        if isinstance(self._home, FileHome):
            files = files_of(source if inward else target)
        label, device = "copy in" if inward else "copy out", self._device
        if staging is None:
            if files is not None:
                _add_file(graph, target, source, files, inward, lane, device)
                return
            # Copy engines are slow out of a device, where rows are short and not side by side.
            is_slow = False
            if not inward and device.kind != "cpu":
                shape, _ = merged_axes(target, source)
                is_slow = len(shape) > 1 and shape[-1] * target.itemsize < _SHORT_ROW
            by_kernel = self._copies == "zero-copy" or is_slow
            copy = copy_box(device, target, source) if by_kernel else device.copy(target, source)
            _add(graph, copy, target, source, label, "copy", lane, device)
            return
        packed = staging[: source.nbytes].view(source.dtype).reshape(source.shape)
        for number, (to, of) in enumerate([(packed, source), (target, packed)]):
            if inward != (number == 0):
                _add(graph, device.copy(to, of), to, of, label, "copy", lane, device)
            elif files is not None:
                _add_file(graph, to, of, files, inward, _LABELS[inward], self._home)
            else:
                pack = copy_box(self._home, to, of)
                _add(graph, pack, to, of, "pack", "pack", lane, self._home)


def _add_file(
    graph: StepGraph,
    target: Array,
    source: Array,
    files: MappedFiles,
    inward: bool,
    lane: str,
    device: Device,
) -> None:
    transfer = FileTransfer(target, source, files, inward)
    _add(graph, transfer, target, source, _LABELS[inward], "io", lane, device)


def _add(
    graph: StepGraph,
    operation: Operation,
    target: Array,
    source: Array,
    label: str,
    category: str,
    lane: str,
    device: Device,
) -> None:
    graph.add(
        operation,
        reads=[source],
        writes=[target],
        label=label,
        category=category,
        lane=lane,
        device=device,
    )


def copy_box(device: Device, target: Array, source: Array) -> Operation:
    """Return the operation ``target[...] = source`` as a kernel that reaches both.

    They have one shape of up to four axes, and one type, on the device or pinned on the host.
    """
    shape, strides = merged_axes(target, source)
    if 0 in shape:
        return lambda stream: None
    real = np.zeros(0, target.dtype).real.dtype
    words, size = target.itemsize // real.itemsize, real.itemsize
    if any(own[-1] != target.itemsize for own in strides):  # no axis is contiguous in both
        shape, strides = [*shape, 1], [[*own, target.itemsize] for own in strides]
    shape, strides = (
        [1] * (4 - len(shape)) + shape,
        [[0] * (4 - len(own)) + [step // size for step in own] for own in strides],
    )
    rows, columns = int(np.prod(shape[:3])), shape[3] * words
    part = min(columns, _PART)
    parts = -(-columns // part)
    kernel = device.kernel("strided_copy.hpp", "copy_box", REAL=REAL_NAMES[real.name])
    return kernel.bind(
        RowLaunch(rows * parts, part),
        target,
        source,
        rows,
        shape[1],
        shape[2],
        columns,
        parts,
        part,
        *strides[0][:3],
        *strides[1][:3],
    )
