"""What lies between the passes of a streamed transform: exchanges of groups of pencils.

Ranks exchange from host to host, or from the devices that have transformed pencils; then some
groups are on the device at the same time, and their memory counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.exchange import ExchangePlan, Transport
from slipstream.fft.arguments import Arguments
from slipstream.fft.pencils import PassGeometry
from slipstream.fft.stores import (
    DeviceExchangeStore,
    ExchangeStore,
    device_buffer_bytes,
    device_buffers,
    group_sizes,
)
from slipstream.fft.streaming import Streaming
from slipstream.fft.workspace import aligned


class Between:
    """The exchanges of a transform on one rank.

    Parameters
    ----------
    arguments : Arguments
        What to transform.
    passes : sequence of PassGeometry
        What is done one after the other going forward.
    exchanged : sequence of bool
        Whether there is an exchange behind each pass but the last.
    rank : int
        This rank.
    streaming : Streaming
        How pencils stream.
    transport : Transport or None
        How ranks exchange.
    home : Device
        The host.
    """

    def __init__(
        self, arguments: Arguments, passes: Sequence[PassGeometry], exchanged: Sequence[bool],
        rank: int, streaming: Streaming, transport: Transport | None, home: Device,
    ) -> None:  # fmt: skip
        self._arguments, self._passes, self._exchanged = arguments, passes, exchanged
        self._rank, self._streaming = rank, streaming
        self._transport, self._home = transport, home
        # Known to be so on all ranks, also on those that have nothing to send.
        self.from_device = streaming.from_device and transport is not None and any(exchanged)
        self._cut: list[int] = []
        self._buffers: list[tuple[Any, Any]] = []
        self._stores: dict[bool, list[ExchangeStore | None]] = {}

    def dtype(self, number: int) -> np.dtype:
        """Return the type of what passes between a pass and the next."""
        transformed = any(one.axes for one in self._passes[: number + 1])
        return self._arguments.complex_dtype if transformed else self._arguments.dtype

    def device_bytes(self, cut: Sequence[int]) -> int:
        """Return the bytes of a device that exchanges take if passes are cut into so many."""
        return device_buffer_bytes(self._sizes(cut)) if self.from_device else 0

    def provide(self, cut: Sequence[int]) -> None:
        """Allocate what exchanges need if passes are cut into so many pencils. Collective."""
        self._cut = list(cut)
        if self.from_device:
            self._buffers = device_buffers(self._transport, self._sizes(cut))

    def stores(self, forward: bool) -> list[ExchangeStore | None]:
        """Return what each pass leaves for the next: an exchange, or None for an array.

        Collective when it is first called for a direction.
        """
        if forward not in self._stores:
            self._stores[forward] = [
                self._store(number, forward) if is_exchanged else None
                for number, is_exchanged in enumerate(self._exchanged)
            ]
        return self._stores[forward]

    def _store(self, number: int, forward: bool) -> ExchangeStore:
        sources, targets, pencils, together = self._groups(number, self._cut, forward)
        given = self._transport, sources, targets, pencils, together, self._rank, self.dtype(number)
        if self.from_device:
            return DeviceExchangeStore(*given, self._home, self._buffers)
        return ExchangeStore(*given)

    def _sizes(self, cut: Sequence[int]) -> tuple[int, int]:
        """Return the bytes that a group sends and receives at most, going either way."""
        sizes = [(0, 0)]
        for number, is_exchanged in enumerate(self._exchanged):
            for forward in (True, False) if is_exchanged else ():
                sources, targets, _, _ = self._groups(number, cut, forward)
                for boxes in sources:
                    plan = ExchangePlan.redistribution(boxes, targets, self._rank)
                    item = self.dtype(number).itemsize
                    sizes.append(tuple(aligned(count * item) for count in group_sizes(plan)))
        sent, received = (max(one) for one in zip(*sizes, strict=True))
        return sent, received

    def _groups(
        self, number: int, cut: Sequence[int], forward: bool
    ) -> tuple[list[list[Box]], Sequence[Box], int, int]:
        """Return, behind a pass, what is sent and wanted, and numbers of pencils.

        The boxes of all ranks for each group of pencils, the box that each rank wants, the number
        of pencils of a field, and of those that are sent together.
        """
        left, right = self._passes[number], self._passes[number + 1]
        feeding, pencils = (left, cut[number]) if forward else (right, cut[number + 1])
        usual = 1 if self._streaming.from_device else pencils
        together = self._streaming.pencils_per_exchange or usual
        groups = []
        for field in range(self._arguments.fields):
            of_ranks = [
                [pencil[1 if forward else 0] for pencil in feeding.pencils(rank, field, pencils)]
                for rank in range(self._arguments.ranks)
            ]
            for low in range(0, pencils, together):
                groups.append([_spanned(own[low : low + together]) for own in of_ranks])
        return groups, right.before if forward else left.after, pencils, together


def _spanned(boxes: Sequence[Box]) -> Box:
    """Return the box that consecutive pencils make together."""
    filled = [box for box in boxes if box.size]
    return Box(filled[0].start, filled[-1].stop) if filled else boxes[0]
