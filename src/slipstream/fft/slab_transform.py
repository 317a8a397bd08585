"""The three-dimensional transform of slabs, in chunks whose exchanges hide behind transforms.

Forward, every rank transforms its planes along x and y, exchanges, and transforms along z;
backward, the reverse. The exchange is divided twice: into kx chunks and into plane chunks. While
one travels, the next is transformed along y, and those that have arrived along z. On a CPU, planes
are transformed in batches that stay in a core's cache.

Where a transport can store into the memory of other ranks, the transforms do so themselves. Where
it cannot, they leave blocks packed, ready to be sent. A rank's own block never travels: it is
stored in its place at once.
"""

from __future__ import annotations

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.exchange import Transport
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.layout_stages import Part
from slipstream.fft.plane_transforms import KxRange, PlanePass, UserPoints
from slipstream.fft.slab_chunks import KxChunk, SlabOptions, lane_after_exchange
from slipstream.fft.slab_layout import SlabGeometry
from slipstream.fft.truncation import Modes
from slipstream.schedule import StepGraph

# Working set, in bytes, of one batch of planes on a CPU: points and modes.
_PLANE_BATCH = 3 << 20
# What part of a GPU's memory the modes of a batch may take. The kx chunks leave behind the last
# batch: two of them at 1024³ on two H200s cost a sixth.
_BATCH_SHARE = 16


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
        self._device, self._transport, self._options = device, transport, options
        nz, ny, nx = arguments.shape
        shape = nz, ny, nx
        z, y, x = arguments.modes
        fields, complex_dtype = arguments.fields, arguments.complex_dtype
        width = nx // 2 + 1 if arguments.real else nx
        alignment = max(1, device.row_bytes // complex_dtype.itemsize)
        ranges = [
            KxRange(SlabGeometry(shape, (z, y, Modes(size, size, 0)), rank, ranks, alignment), *low)
            for low, size in _ranges(x, options.kx_chunks, alignment)
        ]
        self.kx_chunks = [
            KxChunk(device, transport, options, one, fields, complex_dtype) for one in ranges
        ]
        self.exchanges = int(transport is not None)
        sent = [one.geometry.plan.off_rank_elements() for one in ranges]
        self.wire_elements = fields * sum(sent)
        keeps_all = arguments.spectral_shape == (nz, ny, width)
        self._whole = options.whole and ranks == 1 and keeps_all
        geometry = SlabGeometry(shape, (z, y, x), rank, ranks, alignment)
        self._count = geometry.planes
        row = -(-width // alignment) * alignment
        plane_bytes = 2 * fields * ny * row * complex_dtype.itemsize
        limit = max(1, _PLANE_BATCH // plane_bytes)
        if device.kind != "cpu":
            limit = max(1, device.memory_total() // (_BATCH_SHARE * plane_bytes // 2))
        batch = max(1, balanced_batch(self._count, limit, device.lanes))
        user = UserPoints(arguments.real, batch, row, options.tiled)
        self._planes = PlanePass(device, geometry, fields, complex_dtype, ranges=ranges, user=user)
        self.buffer_bytes = device.lanes * batch * plane_bytes // 2
        self.buffer_bytes += sum(chunk.buffer_bytes for chunk in self.kx_chunks)

    def describe(self) -> str:
        if self._transport is None:
            return "transforms along x, y, z" + (" (forward: one plan)" if self._whole else "")
        stores = all(chunk.forward_exchanges[0].targets.stores for chunk in self.kx_chunks)
        how = "stored by the transforms" if stores else "copied"
        division = f"{len(self.kx_chunks)} x {self._options.plane_chunks} chunks"
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
        for number, (first, last) in enumerate(self._plane_chunks()):
            for chunk in self.kx_chunks:
                chunk.forward_exchanges[number].targets.record_open(graph, "transpose")
            targets = [chunk.leaving(number) for chunk in self.kx_chunks]
            self._planes.record_forward(graph, targets, physical, first, last)
        for chunk in self.kx_chunks:
            chunk.record_z_forward(graph, spectral)

    def record_backward(
        self, graph: StepGraph, spectral: Array, physical: Array, scale: float = 1.0
    ) -> None:
        """Record spectral -> physical, times a constant; parameters as in `record_forward`."""
        for chunk in self.kx_chunks:
            chunk.record_z_backward(graph, spectral)
            self._record_close_backward(graph, chunk, 0)
        # The first planes of all kx chunks leave before the others, and are transformed meanwhile.
        for number in range(1, self._options.plane_chunks):
            for chunk in self.kx_chunks:
                self._record_close_backward(graph, chunk, number)
        sources = [self._planes.packed(n, chunk.planes) for n, chunk in enumerate(self.kx_chunks)]
        lane = lane_after_exchange(graph, self._transport)
        for first, last in self._plane_chunks():
            self._planes.record_backward(graph, sources, physical, first, last, scale, lane)

    @staticmethod
    def _record_close_backward(graph: StepGraph, chunk: KxChunk, number: int) -> None:
        for exchange in chunk.backward_exchanges[number : number + 1]:
            exchange.targets.record_close(graph, "transpose")

    def _plane_chunks(self) -> list[tuple[int, int]]:
        """Return the ranges of local planes that are exchanged one by one."""
        return list(split(self._count, self._options.plane_chunks))


def _ranges(x: Modes, chunks: int, alignment: int) -> list[tuple[tuple[int, int], int]]:
    """Divide the kept modes of x into ranges without gaps.

    Returns where each begins among the kept modes and among all, and its length.
    """
    sides = [(0, 0, x.low), (x.low, x.low + x.gap, x.high)]
    if x.high and not x.gap:
        sides = [(0, 0, x.count)]
    result = []
    for kept, everywhere, size in sides:
        for low, high in split(-(-size // alignment), chunks):
            start, stop = low * alignment, min(high * alignment, size)
            if stop > start:
                result.append(((kept + start, everywhere + start), stop - start))
    return result
