"""What lies between the passes of a streamed transform: exchanges of groups of tiles.

Ranks exchange from host to host, or from the devices that have transformed tiles; then some
groups are on the device at the same time, and their memory counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.exchange import Transport, make_transport
from slipstream.fft.fft_arguments import Arguments
from slipstream.outofcore.host_device_copy import HostDeviceCopier
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_slots import aligned
from slipstream.outofcore.tile_stores import (
    ByDevice,
    ExchangeStore,
    Pair,
    TileGroups,
    device_buffer_bytes,
    device_buffers,
    group_sizes,
)
from slipstream.outofcore.tiles import TiledPass


class Exchanges:
    """The exchanges of a transform on one rank. Collective.

    `exchanged` says of each pass but the last whether an exchange follows it. Ranks exchange by the
    transport asked for what has been transformed; if that goes from device to device, what is not
    transformed before goes from the host, by what is automatic there.
    """

    def __init__(
        self,
        arguments: Arguments,
        passes: Sequence[TiledPass],
        exchanged: Sequence[bool],
        rank: int,
        streaming: Streaming,
        comm: Comm,
        device: Device,
        home: Device,
    ) -> None:
        self._arguments, self._passes, self._exchanged = arguments, passes, exchanged
        self._rank, self._streaming = rank, streaming
        self._comm, self._device, self._home = comm, device, home
        end = device if streaming.from_device else home
        self.transport = make_transport(arguments.transport, comm, end)
        # Known to be so on all ranks, also on those that have nothing to send.
        self.from_device = streaming.from_device and self.transport is not None and any(exchanged)
        self._from_host = self.transport
        if self.from_device and not all(one.axes for one in passes):
            self._from_host = make_transport("auto", comm, home)
        self._cut: list[int] = []
        self._known_sizes: dict[tuple[int, ...], tuple[int, int]] = {}
        self._buffers: list[Pair] = []
        self._stores: dict[bool, list[ExchangeStore | None]] = {}

    def dtype(self, number: int) -> np.dtype:
        """Return the type of the array between a pass and the next."""
        transformed = any(one.axes for one in self._passes[: number + 1])
        return self._arguments.complex_dtype if transformed else self._arguments.dtype

    def device_bytes(self, cut: Sequence[int]) -> int:
        """Return the bytes of a device that exchanges take, given the tiles of each pass."""
        if self.transport is None or not self.from_device:
            return 0
        return device_buffer_bytes(self.transport, self._sizes(cut))

    def provide(self, cut: Sequence[int]) -> None:
        """Allocate the buffers of exchanges, given the tiles of each pass. Collective."""
        self._cut = list(cut)
        transport = self.transport
        if transport is not None and self.from_device:
            sizes = self._sizes(cut)
            self._buffers = on_every_rank(self._comm, lambda: device_buffers(transport, sizes))

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

    def leaves_device(self, number: int, forward: bool) -> bool:
        """Return whether what a pass is followed by is an exchange from device to device."""
        feeding = self._passes[number if forward else number + 1]
        return self.from_device and self._exchanged[number] and bool(feeding.axes)

    def _store(self, number: int, forward: bool) -> ExchangeStore:
        groups, dtype = self._groups(number, self._cut, forward), self.dtype(number)
        if not self.leaves_device(number, forward):
            return ExchangeStore(cast(Transport, self._from_host), groups, self._rank, dtype)
        shape = groups.targets[self._rank].shape
        arrived = on_every_rank(self._comm, lambda: self._home.empty(shape, dtype))
        bus = HostDeviceCopier(self._device, self._home, "memcpy2D")
        by_device = ByDevice(bus, arrived, self._buffers)
        transport = cast(Transport, self.transport)
        return ExchangeStore(transport, groups, self._rank, dtype, by_device)

    def _sizes(self, cut: Sequence[int]) -> tuple[int, int]:
        """Return the bytes that a group sends and receives at most, going either way."""
        key = tuple(cut)
        if key not in self._known_sizes:
            sizes = [(0, 0)]
            for number, forward in itertools.product(range(len(self._exchanged)), (True, False)):
                if self.leaves_device(number, forward):
                    item = self.dtype(number).itemsize
                    for plan in self._groups(number, cut, forward).plans(self._rank):
                        sends, receives = group_sizes(plan)
                        sizes.append((aligned(sends * item), aligned(receives * item)))
            sent, received = (max(one) for one in zip(*sizes, strict=True))
            self._known_sizes[key] = sent, received
        return self._known_sizes[key]

    def _groups(self, number: int, cut: Sequence[int], forward: bool) -> TileGroups:
        """Return what the exchange after a pass sends and receives, if passes are cut so."""
        left, right = self._passes[number], self._passes[number + 1]
        feeding, tiles = (left, cut[number]) if forward else (right, cut[number + 1])
        usual = 1 if self.leaves_device(number, forward) else tiles
        together = self._streaming.tiles_per_exchange or usual
        groups = []
        for field in range(self._arguments.fields):
            of_ranks = [
                [tile[1 if forward else 0] for tile in feeding.tiles(rank, field, tiles)]
                for rank in range(self._arguments.ranks)
            ]
            for low in range(0, tiles, together):
                groups.append([_spanned(own[low : low + together]) for own in of_ranks])
        return TileGroups(groups, right.before if forward else left.after, tiles, together)


def _spanned(boxes: Sequence[Box]) -> Box:
    """Return the box that consecutive tiles make together."""
    filled = [box for box in boxes if box.size]
    return Box(filled[0].start, filled[-1].stop) if filled else boxes[0]
