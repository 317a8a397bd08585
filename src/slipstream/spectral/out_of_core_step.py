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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.byte_sizes import bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.decomposition import Box, split
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.streaming_options import TileStreaming
from slipstream.fft.tile_geometry import tile_counts
from slipstream.schedule import StepGraph
from slipstream.spectral.kernel_tables import product_of_model
from slipstream.spectral.resident_columns import ResidentColumns
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.tile_buffers import Slot, TileChunk, TileDevice, TileNeeds
from slipstream.spectral.tile_outlets import Outlet
from slipstream.spectral.transform_passes import ColumnUpdate, FieldTransforms, ProductOf

# Ranges of planes that are sent one by one, where nobody says how many.
_PARTS = 4


@dataclass(frozen=True)
class StepStreaming(TileStreaming):
    """How a step streams: what `TileStreaming` says, and where modes are advanced.

    Attributes
    ----------
    update : {"device", "host"}
        With their tile, or on the host's cores, which takes more trips over the bus.
    resident : bool
        Whether columns stay on the device, as far as memory allows; false where a rank has
        several devices, or modes are advanced on the host.
    """

    update: str = "device"
    resident: bool = True

    def __post_init__(self) -> None:
        if self.devices > 1 or self.update == "host":
            object.__setattr__(self, "resident", False)


class StreamedPasses:
    """What takes fields on the host through a step. Collective.

    Parameters
    ----------
    transforms : FieldTransforms
        On the host, whose arrays tiles come from and go to.
    problem : SpectralProblem
        What to solve.
    devices : sequence of Device
        Through which tiles go, in turn.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    streaming : StepStreaming
        How.
    limit : int
        How many bytes may be allocated on each device.

    Attributes
    ----------
    devices : list of Device
        Where passes run.
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
        comm: Any,
        streaming: StepStreaming,
        limit: int,
    ) -> None:
        self._host, self._streaming, self._comm = transforms, streaming, comm
        self.devices, self._home = list(devices), transforms.devices[0]
        self._geometry, self._needs = problem.geometry, needs_of(problem, streaming.update)
        self._product = product_of_model(problem.model)
        # Ranks may have been told different limits: each looks at its own devices.
        self._stations = self._fitting(-largest(comm, -limit))
        on_every_rank(comm, lambda: [station.provide_scratch() for station in self._stations])
        # On a CPU the fields themselves are in the same memory.
        fields = problem.memory(self._home) if self._home in self.devices else 0
        self.resident = self._keep(max(0, limit - self.device_bytes - fields))
        self._turn = 0

    # -- memory ------------------------------------------------------------------------------

    def _fitting(self, limit: int) -> list[TileDevice]:
        """Return devices with the fewest tiles that fit on all ranks. Collective."""
        for count in self._counts():
            self.tiles, self.device_bytes = count, self._needed(count)
            if largest(self._comm, self.device_bytes) > limit:
                continue
            made = on_every_rank(self._comm, self._made)
            self.device_bytes += max(one.scratch_bytes for one in made)
            if largest(self._comm, self.device_bytes) <= limit:
                return made
            del made
        smallest = largest(self._comm, self.device_bytes)
        raise InputError(
            f"run.memory: {bytes_text(limit)} on each device is too little for this step; it "
            f"takes at least {math.ceil(smallest / 2**20)} MiB"
            + (f" with {count} tiles" if self._streaming.tiles else "")
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

    def _needed(self, count: int) -> int:
        """Return the bytes of a device that so many tiles take, scratch apart."""
        streams = self._streaming.streams
        return max(self._needs.device_bytes(*self._most(count), d, streams) for d in self.devices)

    def _made(self) -> list[TileDevice]:
        most = self._most(self.tiles)
        return [
            TileDevice(
                self._needs, one, self._home, *most, self._parts(), self._streaming, self._product
            )
            for one in self.devices
        ]

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
        source: Any = None,
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
        outlet = None if source is None else Outlet(self._host, len(source), False)
        if outlet:
            outlet.record_open(graph)
        if outlet or updates or forward:
            self._record_tiles(graph, source, updates, forward, outlet)
        if outlet:
            outlet.record_close(graph)

    def _record_tiles(
        self,
        graph: StepGraph,
        source: Any,
        updates: Sequence[ColumnUpdate],
        forward: int,
        outlet: Outlet | None = None,
    ) -> None:
        columns, ky = self._host.columns, self._geometry.columns_shape[1]
        most = self._most(self.tiles)[1]
        for low in range(0, ky, most):
            high, slot = min(low + most, ky), self._next_slot()
            shape = (self._needs.fields, columns.shape[1], most, columns.shape[3])
            place, own = self.resident.columns(low), columns[:, :, low:high]
            place = slot.place(shape, columns.dtype) if place is None else place
            chunk, work, size = TileChunk(slot, place, low, high), slot.work(graph), high - low
            kept: list[Any] = []
            if forward:
                for z in self.resident.elsewhere(low):
                    slot.record_in(graph, place[:forward, z, :size], own[:forward, z])
                slot.station.columns.record_forward(work, place[:forward], 0, size)
            for update in updates:
                kept += self._record_update(graph, slot, chunk, update)
            if source is not None:
                array, count = chunk.part(source), len(source)
                self._record_missing(graph, slot, chunk, [array])
                slot.station.columns.record_backward(work, array, place[:count], 0, size)
                self._record_columns_out(graph, slot, place[:count, :, :size], low, outlet)
            elif not updates:
                slot.record_out(graph, own[:forward], place[:forward, :, :size])
            for array in kept:
                slot.record_out(graph, chunk.on_host(array), array)

    def _record_columns_out(
        self, graph: StepGraph, slot: Slot, columns: Any, low: int, outlet: Outlet
    ) -> None:
        """Record that columns leave a device; they begin at a ky of this rank."""
        first = self._geometry.spectral_box.start[1] + low
        fields, nz, ky, row = columns.shape
        box = Box((0, first, 0), (nz, first + ky, row))
        for field in range(fields):
            for part, target in outlet.views(field, box):
                if not self.resident.is_here(low, part.start[0]):
                    slot.record_out(graph, target, columns[field][part.slices(box)])

    def _record_update(
        self, graph: StepGraph, slot: Slot, chunk: TileChunk, update: ColumnUpdate
    ) -> list[Any]:
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
        self, graph: StepGraph, slot: Slot, chunk: TileChunk, arrays: Sequence[Any]
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
        parts = self._parts()
        for part, (first, last) in enumerate(split(g.planes, parts)):
            outlet = Outlet(self._host, outputs, True, part, parts)
            outlet.record_open(graph)
            for low in range(first, last, most):
                high = min(low + most, last)
                self._record_planes(graph, product_of, inputs, outputs, low, high, outlet)
            outlet.record_close(graph)

    def _record_planes(
        self,
        graph: StepGraph,
        product_of: ProductOf | None,
        inputs: int,
        outputs: int,
        low: int,
        high: int,
        outlet: Outlet,
    ) -> None:
        g, slot, source = self._geometry, self._next_slot(), self._host.planes
        most = self._most(self.tiles)[0]
        place = slot.place((self._needs.fields, g.packed_size(most)), source.dtype)
        blocks = list(zip(g.packed_blocks(), g.packed_blocks(most), strict=True))
        work, kept = slot.work(graph), self.resident.ky

        def planes_of(packed: Any, fields: int, at: int, size: int) -> Any:
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
        slot.station.planes.record_through(
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
                for part, target in outlet.views(field, box):
                    slot.record_out(graph, target, packed[field][part.slices(box)])

    def _parts(self) -> int:
        """Return in how many parts products are sent."""
        if self._geometry.ranks == 1:
            return 1
        sent = self._streaming.tiles_per_exchange
        return -(-self.tiles // sent) if sent else _PARTS

    def _next_slot(self) -> Slot:
        """Return the slot whose turn it is: of one device after the other."""
        devices, turn = len(self._stations), self._turn
        self._turn += 1
        slots = self._stations[turn % devices].slots
        slot = slots[turn // devices % len(slots)]
        slot.clear()
        return slot


def needs_of(problem: SpectralProblem, update: str) -> TileNeeds:
    """Return what a step needs of tiles.

    Parameters
    ----------
    problem : SpectralProblem
        What to solve.
    update : {"device", "host"}
        Where modes are advanced.
    """
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
