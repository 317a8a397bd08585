"""The `mpi` transport: plans executed by MPI from host memory, staged where data are on a GPU.

Two variants give the same bits: ``point-to-point`` (persistent requests, one message per peer and
array) and ``alltoall`` (one non-blocking collective per array). What a rank sends to itself never
passes through MPI.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.exchange.plan import Block, ExchangePlan
from slipstream.schedule import StepGraph

TRANSPORTS = {"mpi-p2p": "point-to-point", "mpi": "alltoall"}

# The standard guarantees tags up to 32767 only.
_TAGS = 32000


def chosen_transport(name: str) -> str:
    """Return the transport that a name stands for: ``auto`` is point-to-point messages.

    Raises
    ------
    InputError
        If the name is unknown.
    """
    name = "mpi-p2p" if name == "auto" else name
    if name not in TRANSPORTS:
        raise InputError(f"transport {name!r} is unknown; accepted: auto, {', '.join(TRANSPORTS)}")
    return name


class MpiTransport:
    """Records exchanges over an MPI communicator.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm
        Duplicated, so that messages cannot be taken for those of others.
    name : {"auto", "mpi", "mpi-p2p"}
        Collectives or point-to-point messages. ``auto`` is point-to-point, the faster one in
        shared memory by our measurements.

    Raises
    ------
    InputError
        If the name is unknown.
    """

    def __init__(self, communicator: Any, name: str = "auto") -> None:
        self.name = chosen_transport(name)
        self.communicator = communicator.Dup()
        self._variant = TRANSPORTS[self.name]
        self._next_tag = 0

    def record(
        self,
        graph: StepGraph,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Any, Any]],
        label: str,
    ) -> None:
        """Record the exchange of several arrays by one plan.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added. All ranks must record the same exchanges in the same order.
        plan : ExchangePlan
            This rank's plan.
        pairs : sequence of (source, target)
            Packed, contiguous arrays of ``plan.send_size`` and ``plan.receive_size`` elements,
            flattened by the transport, on the graph's device.
        label : str
            Name in timelines.
        """
        tag, self._next_tag = self._next_tag, (self._next_tag + len(pairs)) % _TAGS
        flat = [(source.reshape(-1), target.reshape(-1)) for source, target in pairs]
        for source, target in flat:
            self._record_own(graph, plan, source, target, label)
        sends, receives = self._off_rank(plan)
        staged = [self._stage(graph, source, target) for source, target in flat]
        for (source, _), (pinned, _) in zip(flat, staged, strict=True):
            if pinned is not source:
                _record_copies(graph, sends, source, pinned, f"{label}: copy out", "copy out")
        kind = _PointToPoint if self._variant == "point-to-point" else _AllToAll
        graph.add_transfer(
            kind(self.communicator, sends, receives, staged, tag),
            reads=[_part(source, block) for source, _ in staged for block in sends],
            writes=[_part(target, block) for _, target in staged for block in receives],
            label=label,
        )
        for (_, target), (_, pinned) in zip(flat, staged, strict=True):
            if pinned is not target:
                _record_copies(graph, receives, pinned, target, f"{label}: copy in", "copy in")

    def _off_rank(self, plan: ExchangePlan) -> tuple[list[Block], list[Block]]:
        sends = [block for block in plan.sends if block.peer != plan.rank]
        return sends, [block for block in plan.receives if block.peer != plan.rank]

    def _record_own(self, graph, plan, source, target, label) -> None:
        own_sends = [block for block in plan.sends if block.peer == plan.rank]
        own_receives = [block for block in plan.receives if block.peer == plan.rank]
        for send, receive in zip(own_sends, own_receives, strict=True):
            part, place = _part(source, send), _part(target, receive)
            operation = graph.device.copy(place, part)
            graph.add(
                operation, reads=[part], writes=[place], label=f"{label}: own", category="pack"
            )

    def _stage(self, graph: StepGraph, source: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
        if graph.device.kind == "cpu":
            return source, target
        # Overlapping exchanges of different parts of one array share its staging memory.
        return tuple(_staging(graph.device, array) for array in (source, target))


def _staging(device: Any, array: Any) -> np.ndarray:
    key = (array.data.ptr, array.size, array.dtype.str)
    buffers = device.__dict__.setdefault("staging_buffers", {})
    if key not in buffers:
        buffers[key] = device.pinned(array.shape, array.dtype)
    return buffers[key]


def _record_copies(graph, blocks, source, target, label, lane) -> None:
    for block in blocks:
        part, place = _part(source, block), _part(target, block)
        operation = graph.device.copy(place, part)
        graph.add(operation, reads=[part], writes=[place], label=label, category="copy", lane=lane)


def _part(array: Any, block: Block) -> Any:
    return array[block.offset : block.offset + block.count]


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
        self._prepare(sends, receives, pairs, tag)

    def test(self) -> bool:
        return self._mpi.Request.Testall(self._requests)

    def wait(self) -> None:
        self._mpi.Request.Waitall(self._requests)


class _PointToPoint(_Messages):
    ordered = False

    def _prepare(self, sends, receives, pairs, tag) -> None:
        def spec(array: np.ndarray, block: Block) -> list[Any]:
            return [_part(array, block).view(np.uint8), block.count // self._unit, self._type]

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
