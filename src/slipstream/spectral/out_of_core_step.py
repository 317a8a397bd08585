"""Steps of fields that stay on the host: tile by tile through devices.

A substage takes its fields over the bus twice. In the pass over the columns a range of ky comes in,
is transformed back from the products' planes, advanced, and transformed towards physical space
again; in the pass over the planes some planes come in, go to physical space, are multiplied, and
return. What fits on a device is then no limit to a simulation: the host's memory is. So do GHOST's
batches (Rosenberg et al., Atmosphere 11, 178 (2020)) and the pencils of Ravikumar, Appelhans and
Yeung (SC 2019), which take the update to the host; that is the alternative here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np

from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.slab_engine import PLANE_CHUNKS, Passes, SlabEngine, SlabExchange
from slipstream.outofcore.memory_budget import first_that_fits
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_slots import TileDevice, TileSlots
from slipstream.outofcore.tiles import tile_counts
from slipstream.schedule import StepGraph
from slipstream.spectral.kernel_tables import product_of_model
from slipstream.spectral.resident_columns import ResidentColumns
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.streamed_tiles import (
    HostFields,
    StreamedColumnTile,
    StreamedPlaneTile,
    TileNeeds,
    TileTransforms,
)

# More bytes than any device has.
_NO_LIMIT = 1 << 62


class StepTiles:
    """The tiles of a step: how many there may be, and the memory that they take of `devices`."""

    def __init__(
        self,
        problem: SpectralProblem,
        devices: Sequence[Device],
        home: Device,
        streaming: Streaming,
    ) -> None:
        self.devices, self._home, self.streaming = list(devices), home, streaming
        self.geometry, self.needs = problem.geometry, needs_of(problem, streaming.update)
        self._product = product_of_model(problem.model)

    def check(self, comm: Comm, limit: int) -> None:
        """Refuse a limit into which no tiles fit, without allocating any field. Collective."""
        limit = -largest(comm, -limit)
        if largest(comm, self._least_bytes()) > limit:
            self._refuse(comm, limit)

    def fitting(self, comm: Comm, limit: int) -> tuple[TileSlots[TileTransforms], int]:
        """Return devices with the fewest tiles that fit on all ranks, and how many. Collective."""
        # Ranks may have been told different limits: each looks at its own devices.
        limit = -largest(comm, -limit)
        found = first_that_fits(comm, self._counts(), lambda count: self._made(count, limit))
        return found or self._refuse(comm, limit)

    def _refuse(self, comm: Comm, limit: int) -> NoReturn:
        count = self._counts()[-1]

        def least() -> int:
            if self.streaming.tiles or all(one.kind == "cpu" for one in self.devices):
                return self._least_bytes()
            # The smallest tiles are made, to find out what a library takes for them.
            return self._made(count, _NO_LIMIT).bytes

        raise self._too_little(limit, largest(comm, on_every_rank(comm, least)))

    def _too_little(self, limit: int, need: int) -> InputError:
        tiles = f" with {self._counts()[-1]} tiles" if self.streaming.tiles else ""
        return InputError(
            f"run.memory: {bytes_text(limit)} on each device is too little for this step; it "
            f"takes at least {math.ceil(need / 2**20)} MiB{tiles}"
        )

    def planned(self, limit: int) -> tuple[int, int]:
        """Return into how many tiles a pass is cut, and columns of how many ky then stay.

        A library's work area is not in it: nothing is allocated.

        Raises
        ------
        InputError
            If no tiles fit.
        """
        for count in self._counts():
            left = limit - self._bytes(count)
            if left >= 0:
                most, all_ky = self.most(count)[1], self.geometry.columns_shape[1]
                return count, min(self.staying_tiles(count, left) * most, all_ky)
        raise self._too_little(limit, self._least_bytes())

    def staying_tiles(self, count: int, left: int) -> int:
        """Return how many of so many tiles' columns stay on the device if that much is left."""
        if not self.streaming.resident:
            return 0
        most, all_ky = self.most(count)[1], self.geometry.columns_shape[1]
        return min(left // self.needs.column_bytes(most), -(-all_ky // most))

    def _least_bytes(self) -> int:
        return self._bytes(self._counts()[-1])

    def _bytes(self, count: int) -> int:
        """Return the bytes that so many tiles take, but for what a library works in."""
        most = self.most(count)
        slots = self.streaming.slots * self.needs.slot_bytes(*most)
        beside = (self.needs.bytes_beside(most[0], one, self.streaming) for one in self.devices)
        return slots + max(beside)

    def _counts(self) -> list[int]:
        """Return numbers of tiles to try, larger ones when smaller ones do not fit."""
        g = self.geometry
        longest = max(-(-g.shape[0] // g.ranks), -(-g.spectral_shape[1] // g.ranks))
        size = self.needs.fields * g.field_size * self.needs.dtype.itemsize
        return list(tile_counts(size, longest, self.streaming.tiles))

    def most(self, count: int) -> tuple[int, int]:
        """Return how many planes, and how many ky, tiles have at most."""
        g = self.geometry
        return max(1, -(-g.planes // count)), max(1, -(-g.columns_shape[1] // count))

    def chunks(self, count: int) -> int:
        """Return in how many chunks planes are sent, if there are so many tiles."""
        if self.geometry.ranks == 1:
            return 1
        sent = self.streaming.tiles_per_exchange
        return -(-count // sent) if sent else PLANE_CHUNKS

    def _made(self, count: int, limit: int) -> TileSlots[TileTransforms]:
        """Return devices for so many tiles, or raise `TooLittleMemory`."""
        needs, streaming, most = self.needs, self.streaming, self.most(count)
        size = needs.slot_bytes(*most)
        packed = 2 * size * streaming.slots if streaming.copies == "packed" else 0
        if packed > self._home.memory_free():
            raise InputError(
                f"run.streaming: packed copies take {bytes_text(packed)} of the host, of which "
                f"{bytes_text(self._home.memory_free())} are free; cut more tiles, or leave "
                "copies out"
            )
        chunks = self.chunks(count)

        def worker_of(device: Device) -> Callable[[str], TileTransforms]:
            return lambda lane: TileTransforms(needs, device, *most, chunks, self._product)

        return TileSlots(
            [
                TileDevice(
                    one,
                    self._home,
                    streaming,
                    [size],
                    worker_of(one),
                    needs.bytes_beside(most[0], one, streaming),
                    limit,
                )
                for one in self.devices
            ]
        )


class StreamedPasses:
    """The passes of fields on the host, tile by tile. Collective.

    Tiles come from, and go to, the arrays of `transforms`. On each device that tiles go through
    `limit` bytes may be allocated, and `device_bytes` are, small tables reckoned generously. A pass
    cuts the columns of this rank into `tiles`, and its planes into at least as many.
    """

    goes_ahead, sends_field_by_field = True, False

    def __init__(
        self,
        transforms: SlabEngine,
        problem: SpectralProblem,
        step_tiles: StepTiles,
        comm: Comm,
        limit: int,
    ) -> None:
        self._host, self._tiles, home = transforms, step_tiles, transforms.devices[0]
        self.devices, self.geometry = step_tiles.devices, problem.geometry
        self.ranges = transforms.ranges
        self._slots, self.tiles = step_tiles.fitting(comm, limit)
        self.device_bytes = self._slots.bytes
        # On a CPU the fields themselves are in the same memory.
        fields = problem.memory(home) if home in self.devices else 0
        self.resident = self._keep(max(0, limit - self.device_bytes - fields))
        most = step_tiles.most(self.tiles)
        self._fields = HostFields(transforms, self.resident, step_tiles.needs.fields, *most)

    def _keep(self, left: int) -> ResidentColumns:
        """Return the columns for which there is memory left."""
        g, needs, most = self.geometry, self._tiles.needs, self._tiles.most(self.tiles)[1]
        size, count = needs.column_bytes(most), self._tiles.staying_tiles(self.tiles, left)
        kept = ResidentColumns(g, self.devices[0], needs.fields, needs.dtype, most, count)
        self.device_bytes += kept.tiles * size
        return kept

    # -- tiles -------------------------------------------------------------------------------

    @property
    def updating(self) -> Passes:
        return self._host if self._tiles.streaming.update == "host" else self

    @property
    def plane_chunks(self) -> int:
        """How many chunks of planes are sent one by one."""
        return self._tiles.chunks(self.tiles)

    def column_tiles(
        self, graph: StepGraph, kx: int = 0, arriving: bool = False
    ) -> Iterator[StreamedColumnTile]:
        """Yield tiles of columns, each in the slot whose turn it is."""
        ky, most = self.geometry.columns_shape[1], self._fields.ky
        for low in range(0, ky, most):
            slot = self._slots.next_slot()
            yield StreamedColumnTile(graph, slot, self._fields, low, min(low + most, ky))

    def plane_tiles(
        self, graph: StepGraph, first: int, last: int, arriving: bool = False
    ) -> Iterator[StreamedPlaneTile]:
        """Yield tiles of planes, each in the slot whose turn it is."""
        most = self._fields.planes
        for low in range(first, last, most):
            slot = self._slots.next_slot()
            yield StreamedPlaneTile(graph, slot, self._fields, low, min(low + most, last))

    def exchange(
        self, kx: int, fields: range, forward: bool, chunk: int = 0, chunks: int = 1
    ) -> SlabExchange:
        """Return where tiles leave what is exchanged. Collective."""
        return self._host.exchange(kx, fields, forward, chunk, chunks, whole=False)


def needs_of(problem: SpectralProblem, update: str) -> TileNeeds:
    """Return what a step needs of tiles if modes are advanced on the device, or on the host."""
    g, inputs = problem.geometry, len(problem.model.inputs)
    counts = {"inputs": inputs, "forcing": len(problem.forced), "decay": 0}
    used, reals, substages = [], 0, problem.method.substages
    for substage in range(substages):
        read, written = problem.accesses(substage)
        # In the end, what the next step begins with is there too.
        names = read | written | ({"inputs"} if problem.has_inputs else set())
        used.append(sum(counts.get(name, problem.size) for name in names))
        reals = max(reals, len(problem.decays) * ("decay" in read))
    if update == "host":
        used, reals = [inputs], 0
    real = np.dtype(problem.real_dtype).itemsize
    tables = 1024 * sum(g.shape) + real * problem.decay_size * problem.is_separable
    return TileNeeds(
        geometry=g,
        dtype=np.dtype(problem.complex_dtype),
        inputs=inputs,
        products=len(problem.model.products),
        spectral=max(used),
        reals=reals,
        constants=2 * 8 * g.planes * g.shape[1] + tables,
    )
