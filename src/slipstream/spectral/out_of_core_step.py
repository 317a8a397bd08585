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
from dataclasses import replace

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.decomposition import Box, split
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import PackTargets
from slipstream.outofcore.device_limits import first_that_fits
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_executor import Slot, TileDevice, TileExecutor
from slipstream.outofcore.tiles import tile_counts
from slipstream.schedule import StepGraph
from slipstream.spectral.kernel_tables import product_of_model
from slipstream.spectral.resident_columns import ResidentColumns
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.tile_work import TileChunk, TileNeeds, TilePasses
from slipstream.spectral.transform_passes import ColumnUpdate, FieldTransforms, ProductOf

# Ranges of planes that are sent one by one, where nobody says how many.
_RANGES = 4
# More bytes than any device has.
_NO_LIMIT = 1 << 62


class StreamedPasses:
    """What takes fields on the host through a step. Collective.

    Tiles come from, and go to, the arrays of `transforms`. They go through `devices` in turn, on
    each of which `limit` bytes may be allocated.

    Attributes
    ----------
    tiles : int
        Into how many tiles a pass cuts the columns of this rank, and its planes at least.
    device_bytes : int
        Bytes allocated on each device; small tables are reckoned generously.
    resident : ResidentColumns
        What stays there between passes.

    Raises
    ------
    InputError
        If the limit is too low; the message names the smallest that would do.
    """

    goes_ahead = True

    def __init__(
        self,
        transforms: FieldTransforms,
        problem: SpectralProblem,
        devices: Sequence[Device],
        comm: Comm,
        streaming: Streaming,
        limit: int,
    ) -> None:
        self._host, self._streaming = transforms, streaming
        self.devices, self._home = list(devices), transforms.devices[0]
        self._geometry, self._needs = problem.geometry, needs_of(problem, streaming.update)
        self._product = product_of_model(problem.model)
        # Ranks may have been told different limits: each looks at its own devices.
        self._executor, self.tiles = self._fitting(comm, -largest(comm, -limit))
        self.device_bytes = self._executor.bytes
        # On a CPU the fields themselves are in the same memory.
        fields = problem.memory(self._home) if self._home in self.devices else 0
        self.resident = self._keep(max(0, limit - self.device_bytes - fields))

    # -- memory ------------------------------------------------------------------------------

    def _fitting(self, comm: Comm, limit: int) -> tuple[TileExecutor[TilePasses], int]:
        """Return devices with the fewest tiles that fit on all ranks, and how many. Collective."""
        counts = list(self._counts())
        found = first_that_fits(comm, counts, lambda count: self._made(count, limit))
        if found:
            return found
        least = on_every_rank(comm, lambda: self._made(counts[-1], _NO_LIMIT).bytes)
        raise InputError(
            f"run.memory: {bytes_text(limit)} on each device is too little for this step; it "
            f"takes at least {math.ceil(largest(comm, least) / 2**20)} MiB"
            + (f" with {counts[-1]} tiles" if self._streaming.tiles else "")
        )

    def _counts(self) -> Iterator[int]:
        """Yield numbers of tiles to try, larger ones when smaller ones do not fit."""
        g = self._geometry
        longest = max(-(-g.shape[0] // g.ranks), -(-g.spectral_shape[1] // g.ranks))
        size = self._needs.fields * g.field_size * self._needs.dtype.itemsize
        return tile_counts(size, longest, self._streaming.tiles)

    def _most(self, count: int) -> tuple[int, int]:
        """Return how many planes, and how many ky, tiles have at most."""
        g = self._geometry
        return max(1, -(-g.planes // count)), max(1, -(-g.columns_shape[1] // count))

    def _made(self, count: int, limit: int) -> TileExecutor[TilePasses]:
        """Return devices for so many tiles, or raise `TooLittleMemory`."""
        needs, streaming, most = self._needs, self._streaming, self._most(count)
        size = needs.slot_bytes(*most)
        packed = 2 * size * streaming.slots if streaming.copies == "packed" else 0
        if packed > self._home.memory_free():
            raise InputError(
                f"run.streaming: packed copies take {bytes_text(packed)} of the host, of which "
                f"{bytes_text(self._home.memory_free())} are free; cut more tiles, or leave "
                "copies out"
            )
        ranges = self._ranges(count)

        def worker_of(device: Device) -> Callable[[str], TilePasses]:
            return lambda lane: TilePasses(needs, device, *most, ranges, self._product)

        return TileExecutor(
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

    def _keep(self, left: int) -> ResidentColumns:
        """Return the columns for which there is memory left."""
        g, needs, most = self._geometry, self._needs, self._most(self.tiles)[1]
        size = needs.column_bytes(most)
        count = min(left // size, -(-g.columns_shape[1] // most)) if self._streaming.resident else 0
        kept = ResidentColumns(g, self.devices[0], needs.fields, needs.dtype, most, count)
        self.device_bytes += kept.tiles * size
        return kept

    # -- recording ---------------------------------------------------------------------------

    def record_columns(
        self,
        graph: StepGraph,
        source: Array = None,
        updates: Sequence[ColumnUpdate] = (),
        forward: int = 0,
    ) -> None:
        """Record one pass over the columns; parameters as of `FieldTransforms.record_columns`."""
        if updates and self._streaming.update == "host":
            # What has to be on the host before, and comes from there after.
            if forward:
                self._record_tiles(graph, None, (), forward)
            self._host.record_columns(graph.on(self._home), None, updates)
            updates, forward = (), 0
        if source is None:
            if updates or forward:
                self._record_tiles(graph, None, updates, forward)
            return
        targets = self._host.pack_targets(range(len(source)), False)
        targets.record_open(graph, "transpose")
        self._record_tiles(graph, source, updates, forward, targets)
        targets.record_close(graph, "transpose")

    def _record_tiles(
        self,
        graph: StepGraph,
        source: Array,
        updates: Sequence[ColumnUpdate],
        forward: int,
        targets: PackTargets | None = None,
    ) -> None:
        columns, ky = self._host.columns, self._geometry.columns_shape[1]
        most = self._most(self.tiles)[1]
        for low in range(0, ky, most):
            high, slot = min(low + most, ky), self._executor.next_slot()
            shape = (self._needs.fields, columns.shape[1], most, columns.shape[3])
            place, own = self.resident.columns(low), columns[:, :, low:high]
            place = slot.place(shape, columns.dtype) if place is None else place
            chunk, work, size = TileChunk(slot, place, low, high), slot.work(graph), high - low
            kept: list[Array] = []
            if forward:
                for z in self.resident.elsewhere(low):
                    slot.record_in(graph, place[:forward, z, :size], own[:forward, z])
                slot.worker.columns.record_forward(work, place[:forward], 0, size)
            for update in updates:
                kept += self._record_update(graph, slot, chunk, update)
            if source is not None:
                array, count = chunk.part(source), len(source)
                self._record_missing(graph, slot, chunk, [array])
                slot.worker.columns.record_backward(work, array, place[:count], 0, size)
                self._record_columns_out(graph, slot, place[:count, :, :size], low, targets)
            elif not updates:
                slot.record_out(graph, own[:forward], place[:forward, :, :size])
            for array in kept:
                slot.record_out(graph, chunk.on_host(array), array)

    def _record_columns_out(
        self,
        graph: StepGraph,
        slot: Slot[TilePasses],
        columns: Array,
        low: int,
        targets: PackTargets,
    ) -> None:
        """Record that columns leave a device; they begin at a ky of this rank."""
        first = self._geometry.spectral_box.start[1] + low
        fields, nz, ky, row = columns.shape
        box = Box((0, first, 0), (nz, first + ky, row))
        for field in range(fields):
            for part, target in targets.views(field, box):
                if not self.resident.is_here(low, part.start[0]):
                    slot.record_out(graph, target, columns[field][part.slices(box)])

    def _record_update(
        self, graph: StepGraph, slot: Slot[TilePasses], chunk: TileChunk, update: ColumnUpdate
    ) -> list[Array]:
        """Record an update of a chunk; return what of it has to leave the device."""
        done = update(chunk.columns())
        self._record_missing(graph, slot, chunk, done.reads)
        slot.work(graph).add(
            done.operation,
            reads=done.reads,
            writes=done.writes,
            label="substage",
            category="compute",
        )
        chunk.note(done.writes)
        return done.kept

    def _record_missing(
        self, graph: StepGraph, slot: Slot[TilePasses], chunk: TileChunk, arrays: Sequence[Array]
    ) -> None:
        """Record copies of those arrays that are parts of fields, and not in the slot yet."""
        for array in chunk.missing(arrays):
            slot.record_in(graph, array, chunk.on_host(array))
        chunk.note(arrays)

    def record_through(
        self, graph: StepGraph, product_of: ProductOf | None, inputs: int, outputs: int
    ) -> None:
        """Record a pass over the planes; parameters as of `FieldTransforms.record_through`."""
        g, most = self._geometry, self._most(self.tiles)[0]
        parts = self._ranges(self.tiles)
        for part, (first, last) in enumerate(split(g.planes, parts)):
            targets = self._host.pack_targets(range(outputs), True, part, parts)
            targets.record_open(graph, "transpose")
            for low in range(first, last, most):
                high = min(low + most, last)
                self._record_planes(graph, product_of, inputs, outputs, low, high, targets)
            targets.record_close(graph, "transpose")

    def _record_planes(
        self,
        graph: StepGraph,
        product_of: ProductOf | None,
        inputs: int,
        outputs: int,
        low: int,
        high: int,
        targets: PackTargets,
    ) -> None:
        g, slot, source = self._geometry, self._executor.next_slot(), self._host.planes
        most = self._most(self.tiles)[0]
        place = slot.place((self._needs.fields, g.packed_size(most)), source.dtype)
        blocks = list(zip(g.packed_blocks(), g.packed_blocks(most), strict=True))
        work, kept = slot.work(graph), self.resident.ky

        def planes_of(packed: Array, fields: int, at: int, size: int) -> Array:
            part = packed[:fields, at : at + (high - low) * size]
            return part.reshape(fields, high - low, size // g.row, g.row)

        for rank, ((start, size), (there, _)) in enumerate(blocks):
            packed = planes_of(place, inputs, there, size)
            own = planes_of(source, inputs, start + low * size, size)
            if rank == g.rank:
                self.resident.record_in(work, packed, low)
                packed, own = packed[:, :, kept:], own[:, :, kept:]
            if own.size:
                slot.record_in(graph, packed, own)
        product = product_of(slot.device) if product_of else None
        if product is not None:
            product = replace(product, maxima=product.maxima[low * g.shape[1] :])
        slot.worker.planes.record_through(
            work, place[:inputs], place[:outputs], product, 0, high - low
        )
        z, ky = g.physical_box.start[0], 0
        for rank, (_, (there, size)) in enumerate(blocks):
            packed, first = planes_of(place, outputs, there, size), ky
            ky += size // g.row
            if rank == g.rank:
                self.resident.record_out(work, packed, low)
                packed, first = packed[:, :, kept:], first + kept
            box = Box((z + low, first, 0), (z + high, ky, g.row))
            for field in range(outputs):
                for part, target in targets.views(field, box):
                    slot.record_out(graph, target, packed[field][part.slices(box)])

    def _ranges(self, tiles: int) -> int:
        """Return in how many ranges of planes products are sent."""
        if self._geometry.ranks == 1:
            return 1
        sent = self._streaming.tiles_per_exchange
        return -(-tiles // sent) if sent else _RANGES


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
