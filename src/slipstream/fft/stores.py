"""Where pencils come from and go to: arrays, and the packed buffers of exchanges.

A pencil is a box of the global index space. A store names the arrays that hold such a box, part by
part: one view of an array, or a part of every block that is sent to, or has come from, another
rank. What copies a pencil to the host so packs it for its receivers, and what copies it back
unpacks it: nothing is packed on the host. Where ranks see each other's memory, the copy from the
device goes straight to the receiver, and nothing is left to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.exchange import Block, Exchange, ExchangePlan, Transport, part_of
from slipstream.schedule import StepGraph

# Parts of a box, each with the view that holds it.
Views = list[tuple[Box, Any]]


class ArrayStore:
    """An array that holds one box.

    Parameters
    ----------
    box : Box
        Which part of the index space it holds.
    array : array, shape of the box
        On the host, pinned, or on a device.
    on_device : bool
        Whether it stays on the device; all fields take turns in it then, and it has no axis for
        them.
    padded : bool
        Whether rows of real numbers end with padding that may be written: it crosses the bus with
        them, since that is one piece then.
    """

    def __init__(self, box: Box, array: Any, on_device: bool = False, padded: bool = False) -> None:
        self._box, self._array, self.on_device, self.padded = box, array, on_device, padded

    def write_views(self, box: Box) -> Views:
        """Return where to write a box."""
        part = box.intersect(self._box)
        if not part.size:
            return []
        slices = part.slices(self._box)
        view = self._array[slices[1:]][None] if self.on_device else self._array[slices]
        return [(part, view)]

    read_views = write_views

    def record_before(self, graph: StepGraph, field: int, pencil: int) -> None:
        """Record what must come before a pencil is written: nothing."""

    def record_written(self, graph: StepGraph, field: int, pencil: int) -> None:
        """Record what follows when a pencil has been written: nothing."""


class ExchangeStore:
    """Packed buffers of an exchange between all ranks, in groups of pencils. Collective.

    Parameters
    ----------
    transport : Transport
        How ranks exchange, from host to host; allocates the buffers.
    sources : sequence of sequence of Box
        By group, the box that each rank sends.
    targets : sequence of Box
        What each rank wants.
    pencils, together : int
        How many pencils a field has, and a group: the last one of a field may have fewer.
    rank : int
        This rank.
    dtype : dtype
        Of the elements.
    """

    on_device = padded = False

    def __init__(
        self, transport: Transport, sources: Sequence[Sequence[Box]],
        targets: Sequence[Box], pencils: int, together: int, rank: int, dtype: Any,
    ) -> None:  # fmt: skip
        self._pencils, self._together, self._rank = pencils, together, rank
        plans = [ExchangePlan.redistribution(boxes, targets, rank) for boxes in sources]
        # What arrives is only what the group has, not all that this rank wants.
        sizes = [(p.send_size, sum(block.count for block in p.receives)) for p in plans]
        all_sent, all_received = (sum(own) for own in zip(*sizes, strict=True))
        # Where everything goes straight to the receivers, this memory is never touched.
        empty = np.empty if transport.reaches_all else transport.empty
        packed = empty((all_sent,), dtype), transport.empty((all_received,), dtype)
        self._groups, sent, received = [], 0, 0
        for plan, (outgoing, incoming) in zip(plans, sizes, strict=True):
            pair = packed[0][sent : sent + outgoing], packed[1][received : received + incoming]
            sent, received = sent + outgoing, received + incoming
            self._groups.append((plan, pair, transport.prepare(plan, [pair])))

    @property
    def bytes(self) -> int:
        """Number of bytes that leave this rank."""
        return sum(plan.off_rank_elements() * send.itemsize for plan, (send, _), _ in self._groups)

    @property
    def allocated(self) -> int:
        """Number of bytes on the host that the buffers take."""
        return sum(
            receive.nbytes + (0 if exchange.places else send.nbytes)
            for _, (send, receive), exchange in self._groups
        )

    def write_views(self, box: Box) -> Views:
        """Return where to write a box: what this rank keeps goes to where it is read."""
        views: Views = []
        for plan, (send, receive), exchange in self._groups:
            if exchange.places:
                for block in plan.sends:
                    views += views_of(exchange.places[0][block.peer], block, box)
                continue
            own = [block for block in plan.receives if block.peer == self._rank]
            for block in plan.sends:
                is_own = block.peer == self._rank
                views += _views(receive if is_own else send, own[0] if is_own else block, box)
        return views

    def read_views(self, box: Box) -> Views:
        """Return where to read a box."""
        return [
            view
            for plan, (_, receive), _ in self._groups
            for block in plan.receives
            for view in _views(receive, block, box)
        ]

    def record_before(self, graph: StepGraph, field: int, pencil: int) -> None:
        """Record the wait for the receivers' memory before the first pencil of a group."""
        exchange = self._exchange_of(field, pencil)
        if pencil % self._together == 0 and exchange.places:
            exchange.record_open(graph, "transpose")

    def record_written(self, graph: StepGraph, field: int, pencil: int) -> None:
        """Record the exchange of a group when its last pencil has been written."""
        if (pencil + 1) % self._together == 0 or pencil + 1 == self._pencils:
            exchange = self._exchange_of(field, pencil)
            if exchange.places:
                exchange.record_close(graph, "transpose")
            else:
                exchange.record(graph, "transpose", own=False)

    def _exchange_of(self, field: int, pencil: int) -> Exchange:
        groups = -(-self._pencils // self._together)
        return self._groups[field * groups + pencil // self._together][2]


def _views(packed: Any, block: Block, box: Box) -> Views:
    return views_of(part_of(packed, block), block, box)


def views_of(values: Any, block: Block, box: Box) -> Views:
    """Return the part of a block, whose values these are, that is in a box; nothing if none is."""
    part = box.intersect(block.box)
    if not part.size:
        return []
    return [(part, values.reshape(block.box.shape)[part.slices(block.box)])]
