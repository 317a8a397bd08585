"""Ways over the bus: how a box of an array on the host gets to a device, and back.

``memcpy2D``
    The copy engines: rectangles of rows, at no cost to anything else. Short rows go out by a
    kernel, since the engines write them to the host at a fraction of the speed of the bus.
``zero-copy``
    A kernel of the device that reads, or writes, pinned memory of the host: worth it where rows are
    short (Ravikumar, Appelhans and Yeung, SC 2019).
``packed``
    The host's threads gather the box in a contiguous buffer, which then crosses in one copy.
"""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Array
from slipstream.device import REAL_NAMES, Device, Operation, RowLaunch
from slipstream.device.array_addresses import merged_axes
from slipstream.outofcore.file_arrays import FileHome, MappedFiles, files_of
from slipstream.outofcore.file_transfers import FileTransfer
from slipstream.schedule import StepGraph
from slipstream.schedule.step_graph import Node

# Bytes of rows that copy engines write to the host at less than full speed.
_SHORT_ROW = 32 << 10

# Numbers of a row that some threads copy together.
_PART = 4096

# By whether a file is read.
_LABELS = {True: "read", False: "write"}
# Transfers of files, each way, that are under way at the same time: while the last requests of one
# are waited for, a drive has those of the next.
_AT_ONCE = 4

COPIES = ("memcpy2D", "zero-copy", "packed")


class HostDeviceCopier:
    """Records copies between the host, whose arrays are pinned, and a device."""

    def __init__(self, device: Device, home: Device, copies: str) -> None:
        self._device, self._home, self._copies = device, home, copies
        self._turn = 0
        # The transfer of files each way that another of the same tile may join: its graph's nodes,
        # its place among them, and what it does.
        self._latest: dict[bool, tuple[list[Node], int, FileTransfer]] = {}

    def begin_tile(self) -> None:
        """Begin a tile, whose transfers of files are others than those before."""
        self._latest.clear()

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

        If `inward`, the source is on the host. `staging` is a buffer from the method of
        that name, at least as large as the source.
        """
        files = None
        if isinstance(self._home, FileHome):
            files = files_of(source if inward else target)
        operation: Operation
        label = "copy in" if inward else "copy out"
        # Copy engines are slow out of a device, where rows are short and not side by side.
        is_slow = False
        if staging is None and not inward and self._device.kind != "cpu":
            shape, _ = merged_axes(target, source)
            is_slow = len(shape) > 1 and shape[-1] * target.itemsize < _SHORT_ROW
        if files is not None and staging is None:
            self._record_transfer(graph, target, source, files, inward, self._device)
            return
        if files is None and (self._copies == "zero-copy" or is_slow):
            operation = copy_box(self._device, target, source)
        elif staging is None:
            operation = self._device.copy(target, source)
        else:
            self._record_packed(graph, target, source, inward, lane, staging, files)
            return
        graph.add(
            operation,
            reads=[source],
            writes=[target],
            label=label,
            category="copy",
            lane=lane,
            device=self._device,
        )

    def _record_transfer(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        files: MappedFiles,
        inward: bool,
        device: Device,
    ) -> None:
        """Record a transfer of files, together with those of the same tile if that may be."""
        nodes, index, operation = self._latest.get(inward, ([], 0, None))
        if nodes is graph.nodes and operation and graph.extend(index, [source], [target]):
            operation.add(target, source, files)
            return
        operation = FileTransfer(target, source, files, inward)
        self._latest[inward] = graph.nodes, len(graph.nodes), operation
        self._turn += 1
        graph.add(
            operation,
            reads=[source],
            writes=[target],
            label=_LABELS[inward],
            category="io",
            lane=f"{_LABELS[inward]} {self._turn % _AT_ONCE}",
            device=device,
        )

    def _record_packed(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        inward: bool,
        lane: str,
        staging: Array,
        files: MappedFiles | None,
    ) -> None:
        packed = staging[: source.nbytes].view(source.dtype).reshape(source.shape)
        ways: list[tuple[Array, Array]] = [(packed, source), (target, packed)]
        for number, (to, of) in enumerate(ways):
            on_host = inward == (number == 0)
            device = self._home if on_host else self._device
            label = "pack" if on_host else "copy in" if inward else "copy out"
            if on_host and files is not None:
                self._record_transfer(graph, to, of, files, inward, device)
                continue
            operation = copy_box(device, to, of) if on_host else device.copy(to, of)
            graph.add(
                operation,
                reads=[of],
                writes=[to],
                label=label,
                category="pack" if on_host else "copy",
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
