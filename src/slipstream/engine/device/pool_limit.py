"""The limit of CuPy's memory pool, ``CUPY_GPU_MEMORY_LIMIT``, for processes that share a GPU.

CuPy alone refuses what exceeds the limit even if its pool keeps blocks that nobody uses: these it
frees only where the GPU itself has no more.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import cupy


def allocate_pooled(size: int) -> Any:
    """Allocate bytes of the current GPU from CuPy's pool, which first frees its unused blocks."""
    pool = cupy.get_default_memory_pool()
    for collect in (lambda: None, gc.collect):
        with contextlib.suppress(cupy.cuda.memory.OutOfMemoryError):
            return pool.malloc(size)
        collect()
        pool.free_all_blocks()
    return pool.malloc(size)


def keep_to_limit() -> None:
    """Make all of CuPy allocate this way, if its pool has a limit on the current GPU.

    Allocators that users have chosen stay.
    """
    pool = cupy.get_default_memory_pool()
    if pool.get_limit() and cupy.cuda.get_allocator() == pool.malloc:
        cupy.cuda.set_allocator(allocate_pooled)


def reserve(size: int) -> int:
    """Lower the limit by bytes that are to be allocated outside of the pool; return by how many.

    That is none without a limit.
    """
    pool = cupy.get_default_memory_pool()
    if not pool.get_limit():
        return 0
    for collect in (lambda: None, gc.collect):
        collect()
        pool.free_all_blocks()
        limit = pool.get_limit()
        # A limit of zero would be none.
        if pool.total_bytes() + size < limit:
            pool.set_limit(size=limit - size)
            return size
    raise cupy.cuda.memory.OutOfMemoryError(size, pool.total_bytes(), pool.get_limit())


def give_back(size: int) -> None:
    """Raise the limit by what `reserve` has returned."""
    if size:
        pool = cupy.get_default_memory_pool()
        pool.set_limit(size=pool.get_limit() + size)
