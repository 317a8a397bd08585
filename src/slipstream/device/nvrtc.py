"""Kernels for GPUs: compiled at run time by NVRTC, through CuPy, and launched."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from slipstream.device.device_interface import BlockLaunch, Kernel, Operation, RowLaunch, Stream

_THREADS = 256
_MAXIMUM_BLOCKS = 1 << 30
# Bytes of shared memory that a block may have without asking for more.
_USUAL_SHARED = 48 * 1024


class CudaKernel(Kernel):
    """A kernel of one GPU."""

    def __init__(self, context: cupy.cuda.Device, text: str, name: str) -> None:
        self._context, self._text, self._name = context, text, name

    @functools.cached_property
    def _function(self) -> Any:
        with self._context:
            return _compiled(self._text, self._context.id).get_function(self._name)

    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> Operation:
        function, values = self._function, tuple(_argument(value) for value in arguments)
        grid: tuple[int, ...]
        block: tuple[int, ...]
        if isinstance(launch, BlockLaunch):
            grid, block = (min(launch.blocks, _MAXIMUM_BLOCKS),), (launch.threads,)
            shared = launch.shared_bytes
            if shared > _USUAL_SHARED:
                with self._context:  # of each GPU there is a function of its own
                    function.max_dynamic_shared_size_bytes = max(
                        shared, function.max_dynamic_shared_size_bytes
                    )
        else:
            grid, block = _row_grid(launch)
            shared = 0
        if 0 in grid:
            return lambda stream: None

        def operation(stream: Stream, keep_alive: Any = arguments) -> None:
            function(grid, block, values, shared_mem=shared)

        return operation


@functools.cache
def _compiled(text: str, ordinal: int) -> cupy.RawModule:
    """Return the module of a GPU; CuPy keeps the binary on disk, by a digest of the text."""
    # No contraction to fused multiply-adds: see FLAGS in `host_compiler`.
    options = ("--std=c++17", "--fmad=false")
    return cupy.RawModule(code=text, backend="nvrtc", options=options)


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, np.ndarray):  # pinned memory, which the GPU reaches under its own address
        return np.int64(value.ctypes.data)
    return np.int64(value) if isinstance(value, int) else value


def _row_grid(launch: RowLaunch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    across = min(_THREADS, max(32, 1 << max(0, launch.columns - 1).bit_length()))
    across = 32 if launch.reduces else across
    rows_per_block = _THREADS // across
    blocks = -(-launch.rows // rows_per_block)
    return (min(blocks, _MAXIMUM_BLOCKS),), (across, rows_per_block)
