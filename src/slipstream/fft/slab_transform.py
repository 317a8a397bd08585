"""The three-dimensional transform of slabs: the slab engine with points in a user's arrays.

Forward, every rank transforms its planes along x and y, exchanges, and transforms along z;
backward, the reverse. The exchange is divided twice: into kx chunks and into plane chunks. While
one travels, the next is transformed along y, and those that have arrived along z. On a CPU, planes
are transformed in batches that stay in a core's cache.

Where a transport can store into the memory of other ranks, the transforms do so themselves. Where
it cannot, they leave blocks packed, ready to be sent. A rank's own block never travels: it is
stored in its place at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.array_types import Array
from slipstream.device import Device
from slipstream.exchange import Transport
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.line_transforms import balanced_batch
from slipstream.fft.plane_transforms import UserPoints
from slipstream.fft.slab_engine import (
    SlabEngine,
    record_columns,
    record_from_points,
    record_to_points,
)
from slipstream.fft.slab_layout import SlabGeometry, kx_ranges
from slipstream.fft.transform_parts import Part
from slipstream.schedule import StepGraph

# Working set, in bytes, of one batch of planes on a CPU: points and modes.
_PLANE_BATCH = 3 << 20
# What part of a GPU's memory the modes of a batch may take. The kx chunks leave behind the last
# batch: two of them at 1024³ on two H200s cost a sixth.
_BATCH_SHARE = 16


@dataclass(frozen=True)
class SlabOptions:
    """What may be chosen freely, and is tuned: all choices give the same result.

    `kx_chunks` and `plane_chunks` are how many there are. `store` is whether transforms store into
    the memory of other ranks, if the transport can; `tiled`, whether to take the device's own
    kernels for strided transforms; and `whole`, whether one rank leaves a forward transform that
    keeps all modes to one library plan.
    """

    kx_chunks: int = 1
    plane_chunks: int = 1
    store: bool = True
    tiled: bool = True
    whole: bool = False


class SlabTransform(Part):
    """Records transforms between slabs of planes and slabs of columns. Collective.

    They are those of one rank of so many; of several, one alone may have all of the array.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        arguments: Arguments,
        rank: int,
        ranks: int,
        options: SlabOptions,
    ) -> None:
        self._device, self._options, self._fields = device, options, arguments.fields
        nz, ny, nx = arguments.shape
        z, y, x = arguments.modes
        fields, complex_dtype = arguments.fields, arguments.complex_dtype
        width = nx // 2 + 1 if arguments.real else nx
        alignment = max(1, device.row_bytes // complex_dtype.itemsize)
        geometry = SlabGeometry((nz, ny, nx), (z, y, x), rank, ranks, alignment)
        ranges = kx_ranges(geometry, options.kx_chunks, alignment)
        self._whole = options.whole and ranks == 1
        self._whole &= arguments.spectral_shape == (nz, ny, width)
        row = -(-width // alignment) * alignment
        plane_bytes = 2 * fields * ny * row * complex_dtype.itemsize
        limit = max(1, _PLANE_BATCH // plane_bytes)
        if device.kind != "cpu":
            limit = max(1, device.memory_total() // (_BATCH_SHARE * plane_bytes // 2))
        batch = max(1, balanced_batch(geometry.planes, limit, device.lanes))
        user = UserPoints(arguments.real, batch, row, options.tiled)
        self._engine = SlabEngine(
            device, geometry, fields, complex_dtype, transport, ranges, user, options.store
        )
        self.buffer_bytes = self._engine.buffer_bytes + device.lanes * batch * plane_bytes // 2
        self.exchanges = int(transport is not None)
        sent = [one.geometry.plan.off_rank_elements() for one in ranges] if transport else []
        self.wire_elements = fields * sum(sent)
        # Exchanges are made together, and recorded by each rank alone.
        made = [
            self._engine.exchange(kx, range(fields), forward, chunk, options.plane_chunks)
            for kx in range(len(ranges))
            for forward in (True, False)
            for chunk in range(options.plane_chunks)
        ]
        self._stores = all(one.targets.stores for one in made)

    def describe(self) -> str:
        if not self.exchanges:
            return "transforms along x, y, z" + (" (forward: one plan)" if self._whole else "")
        how = "stored by the transforms" if self._stores else "copied"
        division = f"{len(self._engine.ranges)} x {self._options.plane_chunks} chunks"
        return f"slab transform: x, y, exchange ({division}, {how}), z"

    def record_forward(self, graph: StepGraph, physical: Array, spectral: Array) -> None:
        """Record (fields, planes, ny, nx) -> (fields, kz, ky of this rank, kx); the source is kept.

        Spectral arrays may be strided views, with kx contiguous; the arrays may share memory.
        """
        if self._whole and physical.flags.c_contiguous and spectral.flags.c_contiguous:
            graph.add(
                self._device.fft_all(physical, spectral, True),
                reads=[physical],
                writes=[spectral],
                label="fft",
                category="fft",
            )
            return
        fields, chunks = self._fields, self._options.plane_chunks
        record_from_points(graph, self._engine, physical, fields, chunks)
        record_columns(graph, self._engine, forward=fields, target=spectral)

    def record_backward(
        self, graph: StepGraph, spectral: Array, physical: Array, scale: float = 1.0
    ) -> None:
        """Record spectral -> physical, times a constant; parameters as in `record_forward`."""
        fields, chunks = self._fields, self._options.plane_chunks
        record_columns(graph, self._engine, spectral, chunks=chunks)
        record_to_points(graph, self._engine, physical, fields, chunks, scale)
