"""The `mpi` transports: plans executed by MPI from host memory, staged where data are on a GPU.

Two variants give the same bits: ``mpi-p2p`` (persistent requests, one message per peer and array)
and ``mpi`` (one non-blocking all-to-all per array).
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from slipstream.exchange.plan import Block
from slipstream.exchange.transport import Transport, part_of
from slipstream.schedule import StepGraph

# The standard guarantees tags up to 32767 only.
_TAGS = 32000


class MpiTransport(Transport):
    """Exchanges over MPI.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm
        Its private duplicate is used, so that messages cannot be taken for those of others.
    name : {"mpi-p2p", "mpi"}
        Point-to-point messages or collectives.
    """

    def __init__(self, communicator: Any, name: str = "mpi-p2p") -> None:
        self.name = name
        self.communicator = _private(communicator)
        self._next_tag = 0
        self._staging_arrays: dict[tuple[int, int], tuple[Any, np.ndarray]] = {}

    def _record_messages(self, graph, sends, receives, pairs, label) -> None:
        tag, self._next_tag = self._next_tag, (self._next_tag + len(pairs)) % _TAGS
        staged = pairs
        if graph.device.kind != "cpu":
            staged = [(self._staging(graph, s), self._staging(graph, t)) for s, t in pairs]
            for (source, _), (pinned, _) in zip(pairs, staged, strict=True):
                _record_copies(graph, sends, source, pinned, f"{label}: copy out", "copy out")
        kind = _PointToPoint if self.name == "mpi-p2p" else _AllToAll
        graph.add_transfer(
            kind(self.communicator, sends, receives, staged, tag),
            reads=[part_of(source, block) for source, _ in staged for block in sends],
            writes=[part_of(target, block) for _, target in staged for block in receives],
            label=label,
        )
        if graph.device.kind != "cpu":
            for (_, target), (_, pinned) in zip(pairs, staged, strict=True):
                _record_copies(graph, receives, pinned, target, f"{label}: copy in", "copy in")

    def _staging(self, graph: StepGraph, array: Any) -> np.ndarray:
        """Return the host memory that stands for an array of the device, always the same."""
        key = array.data.ptr, array.nbytes
        if key not in self._staging_arrays:
            # The array is kept too: while it lives, no other one can have its address.
            pinned = graph.device.pinned(array.shape, array.dtype)
            self._staging_arrays[key] = array, pinned
        return self._staging_arrays[key][1]


def _private(communicator: Any) -> Any:
    """Return the duplicate of a communicator that all its transports use. Collective."""
    from mpi4py import MPI

    if not _duplicate:
        _duplicate.append(MPI.Comm.Create_keyval())
    duplicate = communicator.Get_attr(_duplicate[0])
    if duplicate is None:
        duplicate = communicator.Dup()
        communicator.Set_attr(_duplicate[0], duplicate)
    return duplicate


# The key under which a communicator remembers its duplicate, once there is one.
_duplicate: list[int] = []


def _free_with(owner: Any, handle: Any) -> None:
    """Free a local MPI object when its owner is collected; at exit MPI does so itself."""
    weakref.finalize(owner, handle.Free).atexit = False


def _record_copies(graph, blocks: list[Block], source, target, label: str, lane: str) -> None:
    for block in blocks:
        part, place = part_of(source, block), part_of(target, block)
        operation = graph.device.copy(place, part)
        graph.add(operation, reads=[part], writes=[place], label=label, category="copy", lane=lane)


class _Messages:
    """Common to both variants: requests that are tested and waited for together."""

    def __init__(self, communicator, sends, receives, pairs, tag) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._communicator = communicator
        self._requests: list[Any] = []
        counts = [n for block in (*sends, *receives) for n in (block.offset, block.count)]
        # Counting in the largest common unit keeps all counts and offsets far below 2^31.
        self._unit = max(1, math.gcd(*counts))
        itemsize = pairs[0][0].itemsize
        self._type = MPI.BYTE.Create_contiguous(self._unit * itemsize).Commit()
        _free_with(self, self._type)
        self._prepare(sends, receives, pairs, tag)
        for request in self._requests:
            _free_with(self, request)

    def test(self) -> bool:
        return self._mpi.Request.Testall(self._requests)

    def wait(self) -> None:
        self._mpi.Request.Waitall(self._requests)


class _PointToPoint(_Messages):
    ordered = False

    def _prepare(self, sends, receives, pairs, tag) -> None:
        def spec(array: np.ndarray, block: Block) -> list[Any]:
            return [part_of(array, block).view(np.uint8), block.count // self._unit, self._type]

        for number, (source, target) in enumerate(pairs):
            for block in receives:
                request = self._communicator.Recv_init(
                    spec(target, block), block.peer, tag + number
                )
                self._requests.append(request)
            for block in sends:
                request = self._communicator.Send_init(
                    spec(source, block), block.peer, tag + number
                )
                self._requests.append(request)

    def start(self) -> None:
        self._mpi.Prequest.Startall(self._requests)


class _AllToAll(_Messages):
    ordered = True

    def _prepare(self, sends, receives, pairs, tag) -> None:
        size = self._communicator.size

        def layout(blocks: list[Block]) -> tuple[list[int], list[int]]:
            counts, offsets = [0] * size, [0] * size
            for block in blocks:
                counts[block.peer] = block.count // self._unit
                offsets[block.peer] = block.offset // self._unit
            return counts, offsets

        self._messages = [
            (
                [source.view(np.uint8), layout(sends), self._type],
                [target.view(np.uint8), layout(receives), self._type],
            )
            for source, target in pairs
        ]

    def start(self) -> None:
        self._requests = [
            self._communicator.Ialltoallv(source, target) for source, target in self._messages
        ]
