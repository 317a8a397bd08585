"""The three-dimensional transform of slabs between a user's arrays: one use of the slab engine.

Forward, every rank transforms its planes along x and y, exchanges, and transforms its columns along
z. Backward, it does the reverse. `SlabOptions` are the choices that tuning makes; `SlabTransform`
sets up the engine for them. These files have the rest, from the whole to the details:

slab_engine.py
    Passes, ranges, tiles and exchanges, their overlap, and the engine itself.
slab_layout.py
    The planes, columns and modes of a rank, and their layout in memory.
plane_transforms.py, column_transforms.py
    The transforms along x and y, and along z.
streamed_slabs.py, streamed_transform.py
    The same passes for fields on the host, tile by tile, and the transforms that consist of them.

If a transport can store into the memory of other ranks, the transforms store their results there;
otherwise they store packed blocks, ready to be sent. A rank's own block is never sent: the
transforms store it in its final place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device
from slipstream.exchange import Transport
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.plane_transforms import PlaneBatches, row_alignment
from slipstream.fft.slab_engine import (
    SlabEngine,
    record_columns,
    record_from_points,
    record_to_points,
)
from slipstream.fft.slab_layout import chunk_geometry
from slipstream.fft.transform_parts import Part
from slipstream.schedule import StepGraph


@dataclass(frozen=True)
class SlabOptions:
    """The tuned choices, which change the speed but not the result.

    `kx_chunks` and `plane_chunks` are numbers of chunks. With `store`, transforms store into the
    memory of other ranks if the transport supports it. With `tiled`, strided transforms use the
    kernels of Slipstream if the device has them. With `whole`, one rank computes a forward
    transform that keeps all modes with a single plan of the library.
    """

    kx_chunks: int = 1
    plane_chunks: int = 1
    store: bool = True
    tiled: bool = True
    whole: bool = False


class SlabTransform(Part):
    """Records the transforms of one rank between its planes and its columns. Collective.

    The array is divided among `ranks` ranks, and this one is number `rank`. If one rank alone holds
    the array, it makes the transform for a single rank, without a transport.
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
        # On a CPU columns are transformed in a user's array, without gaps.
        has_gaps = device.kind != "cpu" or device.tiled_transforms()
        alignment = row_alignment(device, complex_dtype) if has_gaps else 1
        geometry = chunk_geometry(
            (nz, ny, nx), (z, y, x), rank, ranks, alignment, chunks=options.kx_chunks
        )
        self._whole = options.whole and ranks == 1
        self._whole &= arguments.spectral_shape == (nz, ny, width)
        batches = PlaneBatches.of_user(
            device, geometry, fields, complex_dtype, arguments.real, options.tiled
        )
        self._engine = SlabEngine(
            device, geometry, fields, complex_dtype, transport, batches, options.store
        )
        self.buffer_bytes = self._engine.buffer_bytes + batches.bytes
        self.exchanges = int(transport is not None)
        # Complex elements of all fields that this rank sends to others in one transform.
        self.wire_elements = fields * geometry.off_rank_elements if transport else 0
        # Making an exchange is collective; recording it later is not.
        made = [
            self._engine.exchange(kx, range(fields), forward, chunk, options.plane_chunks)
            for kx in range(len(geometry.ranges))
            for forward in (True, False)
            for chunk in range(options.plane_chunks)
        ]
        self._stores = all(one.targets.stores for one in made)

    def describe(self) -> str:
        if not self.exchanges:
            return "transforms along x, y, z" + (" (forward: one plan)" if self._whole else "")
        how = "stored by the transforms" if self._stores else "copied"
        division = f"{len(self._engine.geometry.ranges)} x {self._options.plane_chunks} chunks"
        return f"slab transform: x, y, exchange ({division}, {how}), z"

    def record_forward(self, graph: StepGraph, physical: Array, spectral: Array) -> None:
        """Record (fields, planes, ny, nx) -> (fields, kz, ky of this rank, kx).

        The source is not changed, unless the two arrays share memory. The spectral array may be
        a strided view whose kx is contiguous.
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
        if self._holds_columns(physical, spectral):
            engine = self._engine.with_memory(spectral)
            record_from_points(graph, engine, physical, fields, chunks)
            record_columns(graph, engine, forward=fields)
            return
        record_from_points(graph, self._engine, physical, fields, chunks)
        record_columns(graph, self._engine, forward=fields, target=spectral)

    def record_backward(
        self, graph: StepGraph, spectral: Array, physical: Array, scale: float = 1.0
    ) -> None:
        """Record spectral -> physical, times a constant; parameters as in `record_forward`."""
        fields, chunks = self._fields, self._options.plane_chunks
        record_columns(graph, self._engine, spectral, chunks=chunks)
        record_to_points(graph, self._engine, physical, fields, chunks, scale)

    def _holds_columns(self, physical: Array, spectral: Array) -> bool:
        """Return whether columns may be transformed along z in the array of their modes.

        On a CPU this saves a third of a transform's memory traffic.
        """
        return (
            self._device.kind == "cpu"
            and not self.exchanges
            and spectral.shape[1:] == self._engine.columns[0].shape[1:]
            and spectral.flags.c_contiguous
            and not np.may_share_memory(physical, spectral)
        )
