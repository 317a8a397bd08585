"""Halos: each rank's box needs a few points of its neighbours, faces, edges and corners alike.

`HaloPlan` is geometry: which boxes of points go to whom, periodic images included, in one exchange
of all neighbours. `HaloExchange` executes it on arrays, packed through any transport; where ranks
see each other's memory, one kernel stores the points straight into the halos of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.decomposition import Box, PaddedBox
from slipstream.device import Device
from slipstream.exchange.exchange_plan import Block, ExchangePlan
from slipstream.exchange.pack_unpack import move
from slipstream.exchange.transport_base import Transport
from slipstream.schedule import StepGraph


@dataclass(frozen=True)
class HaloPiece:
    """A box of points that one rank has and another one's halo needs.

    Attributes
    ----------
    peer : int
        The other rank.
    source, target : Box
        The points, and where they belong in the halo: the same box, or its periodic image.
    offset : int
        Where they begin in the packed array.
    """

    peer: int
    source: Box
    target: Box
    offset: int


@dataclass(frozen=True)
class HaloPlan:
    """What one rank sends into the halos of others, and receives into its own.

    Attributes
    ----------
    packed : ExchangePlan
        The exchange of packed arrays: one block per peer, whose box counts packed elements.
    sends, receives : tuple of HaloPiece
        Pieces that other ranks need, and that come from them.
    own : tuple of HaloPiece
        What this rank's halo needs of its own box.
    """

    packed: ExchangePlan
    sends: tuple[HaloPiece, ...]
    receives: tuple[HaloPiece, ...]
    own: tuple[HaloPiece, ...]

    @classmethod
    def make(
        cls, boxes: Sequence[Box], shape: Sequence[int], widths: Sequence[int], rank: int
    ) -> HaloPlan:
        """Plan the halos of a periodic array.

        Parameters
        ----------
        boxes : sequence of Box
            One per rank; together they cover the array once. Empty ones have no halo.
        shape : sequence of int
            Shape of the array.
        widths : sequence of int
            Width of the halo along each axis, at most the array's size.
        rank : int
            The rank to plan for.
        """

        def between(sender: int, receiver: int, peer: int, offset: int) -> list[HaloPiece]:
            found = []
            for source, target in _images(boxes[sender], boxes[receiver], shape, widths):
                found.append(HaloPiece(peer, source, target, offset))
                offset += source.size
            return found

        def gather(kind: str) -> tuple[tuple[HaloPiece, ...], tuple[Block, ...]]:
            pieces, blocks, offset = [], [], 0
            for peer in range(len(boxes)):
                if peer == rank:
                    continue
                pair = (rank, peer) if kind == "send" else (peer, rank)
                found = between(*pair, peer, offset)
                if found:
                    stop = found[-1].offset + found[-1].source.size
                    blocks.append(Block(peer, Box((offset,), (stop,)), offset, stop - offset))
                    pieces += found
                    offset = stop
            return tuple(pieces), tuple(blocks)

        sends, outgoing = gather("send")
        receives, incoming = gather("receive")
        sizes = (sum(block.count for block in blocks) for blocks in (outgoing, incoming))
        packed = ExchangePlan(rank, outgoing, incoming, *sizes)
        return cls(packed, sends, receives, tuple(between(rank, rank, rank, 0)))


def _images(
    sender: Box, receiver: Box, shape: Sequence[int], widths: Sequence[int]
) -> list[tuple[Box, Box]]:
    """Return the parts of a box whose images lie in another one's halo, and where."""
    if not receiver.size or not sender.size:
        return []
    reach, pairs = receiver.grown(widths), []
    for signs in itertools.product(*((-1, 0, 1) if width else (0,) for width in widths)):
        distances = [sign * size for sign, size in zip(signs, shape, strict=True)]
        if sender == receiver and not any(distances):
            continue
        target = sender.shifted(distances).intersect(reach)
        if target.size:
            pairs.append((target.shifted([-distance for distance in distances]), target))
    return pairs


class HaloExchange:
    """The halos of some arrays, ready to be filled in step graphs. Making one is collective.

    Parameters
    ----------
    device : Device
        Where the arrays are.
    plan : HaloPlan
        This rank's plan.
    layouts : sequence of PaddedBox
        Where the points of each rank lie in its arrays.
    arrays : sequence of arrays
        This rank's arrays of shape ``layouts[rank].shape``, made by the transport's `empty`.
    transport : Transport or None
        None for a single rank.
    """

    def __init__(
        self,
        device: Device,
        plan: HaloPlan,
        layouts: Sequence[PaddedBox],
        arrays: Sequence[Any],
        transport: Transport | None,
    ) -> None:
        if transport is None:
            make = _Alone
        elif transport.reaches_all:
            make = _Stored
        else:
            make = _Packed
        self._ways = [make(device, plan, layouts, array, transport) for array in arrays]

    def record(self, graph: StepGraph, number: int, label: str = "halo") -> None:
        """Record that the halo of array `number` is filled.

        Halos may be stored by other ranks as soon as this rank has sent them its part of the
        exchange before: by then it must have read what that one's array replaces. Steps that fill
        two arrays in turn, and read halos only to compute what they send, are of this kind.
        """
        self._ways[number].record(graph, label)


class _Alone:
    """One rank, whose halo is made of images of its own points."""

    # What feeds other ranks does not queue behind large kernels.
    _lane = "halo"

    def __init__(
        self, device: Device, plan: HaloPlan, layouts: Sequence[PaddedBox], array: Any, _: Any
    ) -> None:
        self._device, self._plan, self._array = device, plan, array
        self._layout = layouts[plan.packed.rank]
        self._own = [(self._view(p.source), self._view(p.target)) for p in plan.own]

    def record(self, graph: StepGraph, label: str) -> None:
        self._record_move(graph, self._own, f"{label}: own", "pack")

    def _view(self, box: Box) -> Any:
        return self._array[self._layout.slices(box)]

    def _record_move(
        self, graph: StepGraph, pairs: Sequence[tuple[Any, Any]], label: str, category: str
    ) -> None:
        if pairs:
            graph.add(
                move(self._device, pairs),
                reads=[source for source, _ in pairs],
                writes=[target for _, target in pairs],
                label=label,
                category=category,
                device=self._device,
                lane=self._lane,
            )


class _Packed(_Alone):
    """Faces are packed into one block per neighbour, which any transport takes."""

    def __init__(self, device, plan, layouts, array, transport) -> None:
        super().__init__(device, plan, layouts, array, transport)
        outgoing = transport.empty((plan.packed.send_size,), array.dtype)
        incoming = transport.empty((plan.packed.receive_size,), array.dtype)
        self._packs = [(self._view(p.source), _part(outgoing, p)) for p in plan.sends]
        self._unpacks = [(_part(incoming, p), self._view(p.target)) for p in plan.receives]
        self._exchange = transport.prepare(plan.packed, [(outgoing, incoming)])

    def record(self, graph: StepGraph, label: str) -> None:
        self._record_move(graph, self._own + self._packs, f"{label}: pack", "pack")
        self._exchange.record(graph, label)
        self._record_move(graph, self._unpacks, f"{label}: unpack", "pack")


class _Stored(_Alone):
    """One kernel stores what the neighbours need where they need it; flags tell them.

    Nobody asks whether a halo may be overwritten: see `HaloExchange.record`.
    """

    def __init__(self, device, plan, layouts, array, transport) -> None:
        super().__init__(device, plan, layouts, array, transport)
        flat = array.reshape(-1)
        sizes = [math.prod(layout.shape) for layout in layouts]
        receivers = [block.peer for block in plan.packed.sends]
        senders = [block.peer for block in plan.packed.receives]
        whole = ExchangePlan(
            plan.packed.rank,
            tuple(Block(peer, Box((0,), (sizes[peer],)), 0, sizes[peer]) for peer in receivers),
            tuple(Block(peer, Box((0,), (flat.size,)), 0, flat.size) for peer in senders),
            flat.size,
            flat.size,
        )
        (theirs,) = transport.exchange_places(whole, [flat])
        self._stores = []
        for piece in plan.sends:
            layout = layouts[piece.peer]
            place = theirs[piece.peer].reshape(layout.shape)[layout.slices(piece.target)]
            self._stores.append((self._view(piece.source), place))
        self._halo = [self._view(piece.target) for piece in plan.receives]
        self._arrived = transport.handshake(receivers, senders)

    def record(self, graph: StepGraph, label: str) -> None:
        self._record_move(graph, self._own + self._stores, label, "communication")
        stored = [place for _, place in self._stores]
        self._arrived.record(graph, stored, [], self._halo, f"{label}: wait", ("signal", "arrival"))


def _part(packed: Any, piece: HaloPiece) -> Any:
    return packed[piece.offset : piece.offset + piece.source.size].reshape(piece.source.shape)
