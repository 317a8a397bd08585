"""Constants and launch sizes of the tiled transforms, as in ``strided_fft.hpp``.

The kernels hold whole transforms in shared memory, so what limits them is how many bytes and
registers fit on one multiprocessor at a time. This module factorises lengths into radices that
registers can hold, and chooses tiles that leave several blocks per multiprocessor: while one
computes, the others keep the memory busy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.engine.device.device_interface import BlockLaunch

# The limits of Hopper. Bytes of shared memory per block: the system takes one KiB of each.
SHARED_LIMIT = 227 * 1024
# Multiprocessors of a GPU.
MULTIPROCESSORS = 132
# The most blocks on a multiprocessor at a time.
BLOCKS_PER_MULTIPROCESSOR = 32
# Bytes of shared memory of a multiprocessor.
_SHARED_PER_MULTIPROCESSOR = 228 * 1024
# Registers of a multiprocessor.
_REGISTERS = 65536

_RADICES = (16, 8, 4, 2, 3, 5, 7, 11, 13)


@functools.cache
def factorise(n: int, budget: int = 16, first: int = 1, last: int = 1) -> tuple[int, ...] | None:
    """Split `n` into radices: as few as registers allow, then as even as possible.

    A thread holds at most `budget` complex numbers (larger primes are used regardless), and `first`
    and `last` butterflies of the first and last radix at a time. If the last radix would be too
    large, it is followed by a radix 1. None if `n` has a prime factor above 13.
    """
    if n == 1:
        return (1,)

    def cost(radices: tuple[int, ...]) -> tuple[int, int, int]:
        held = list(radices)
        held[0] *= first
        held[-1] = max(held[-1], last * radices[-1])
        return sum(max(0, count - budget) for count in held), len(radices), sum(radices)

    candidates: list[tuple[int, ...]] = []
    for radix in (radix for radix in _RADICES if n % radix == 0):
        if n == radix:
            candidates += [(radix,), (radix, 1)]
        elif rest := factorise(n // radix, budget, 1, last):
            candidates.append((radix, *rest))
    return min(candidates, key=cost, default=None)


def roots(n: int, real_dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return exp(-2 pi i k / n) for k < n, rounded once, and exactly symmetric."""
    return roots_at(np.arange(n, dtype=np.int64), n, real_dtype)


def roots_at(k: np.ndarray, n: int, real_dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return exp(-2 pi i k / n) for integers 0 <= k < n, rounded once."""
    octant, rest = np.divmod(8 * k, n)
    rest = np.where(octant % 2, n - rest, rest)  # eighths of k / n from the nearest axis
    angle = 2 * np.arccos(np.longdouble(-1)) * rest.astype(np.longdouble) / (8 * n)
    cosine, sine = np.cos(angle), np.sin(angle)
    swapped = np.isin(octant, (1, 2, 5, 6))
    real = np.where(swapped, sine, cosine) * np.where(np.isin(octant, (2, 3, 4, 5)), -1, 1)
    imaginary = np.where(swapped, cosine, sine) * np.where(octant < 4, -1, 1)
    table = np.empty(k.shape, np.result_type(real_dtype, np.complex64))
    table.real, table.imag = real, imaginary
    return table


@dataclass(frozen=True)
class TiledKernel:
    """How to compile and launch one tiled kernel."""

    header: str
    name: str
    constants: Mapping[str, object]
    # Per block: threads, dynamic shared memory (on a CPU the same array lies on the stack), and
    # columns (`strided_fft`), rows (`fused_product`) or pairs of rows (`real_rows`).
    threads: int
    shared_bytes: int
    items_per_block: int

    def launch(self, items: int, planes: int = 1, fields: int = 1) -> BlockLaunch:
        """Return the launch for `items` neighbouring columns or rows of each plane and field."""
        blocks = -(-items // self.items_per_block)
        return BlockLaunch(blocks, self.threads, self.shared_bytes, planes, fields)


def strided_fft(
    n: int,
    real_dtype: np.typing.DTypeLike,
    sign: int,
    limit: int = SHARED_LIMIT,
    are_even: bool = False,
) -> TiledKernel | None:
    """Return the kernel for transforms of `n` rows; None if `n` is unsupported or does not fit.

    If rows `are_even`, they begin at an even number of elements, and two are one access in single
    precision.
    """
    real = np.dtype(real_dtype)
    radices = factorise(n, budget=8)
    element = 2 * real.itemsize
    # Runs of 128 bytes use memory best, 64 almost as well; 32 are one sector of the cache. Best are
    # two resident blocks in double and three in single precision, whose threads take fewer
    # registers: while one computes, the others load.
    fits = [width for width in (128, 64, 32) if n * width <= limit]
    if radices is None or not fits:
        return None
    blocks_wanted = 2 if real.itemsize == 8 else 3
    overlap = [run for run in fits if run > 32 and _resident(n * run) >= blocks_wanted]
    lanes = (overlap or fits)[0] // element
    while n * lanes // max(radices) < 64:
        lanes *= 2
    shared_bytes = n * lanes * element
    # Forward transforms in single precision issue less if a thread takes two columns: y and z of
    # 256 points take 0.94 of the time on an H200, of 512 points 0.97 and 1. Backward ones take 1.03
    # to 1.1 of it, and so do forward ones with runs of 64 bytes.
    has_long_runs = lanes * element >= 128
    width = 2 if are_even and real.itemsize == 4 and sign < 0 and has_long_runs else 1
    # One butterfly a thread in the widest pass, or two, and as many blocks as leave it the
    # registers that it needs: on an H200 this beat fewer threads with more butterflies each, by up
    # to a tenth.
    most_threads = 1024 if real.itemsize == 8 or not overlap else 512 // width
    butterflies = n * lanes // (width * max(radices))
    rounds = -(-butterflies // most_threads)
    threads = 32 * -(-butterflies // (32 * rounds))
    registers = 40 * width if real.itemsize == 4 else 64 if threads > 128 else 72
    registers *= max(1, max(radices) // 8)
    blocks = max(1, min(_resident(shared_bytes), _REGISTERS // (threads * registers)))
    constants = _constants(n, radices, real, threads, blocks)
    constants |= {"SIGN": sign, "LANES": lanes, "WIDTH": width}
    return TiledKernel("strided_fft.hpp", "strided_fft", constants, threads, shared_bytes, lanes)


def fused_product(
    n: int,
    real_dtype: np.typing.DTypeLike,
    inputs: int,
    outputs: int,
    product_header: str,
    limit: int = SHARED_LIMIT,
    rows: int = 0,
    kept: int | None = None,
) -> TiledKernel | None:
    """Return the kernel for planes of `rows` rows of `n` points.

    Rows keep `kept` modes, by default as many as an argument says. None if `n` is unsupported or
    does not fit. The kernel is launched for an even number of rows of each plane.
    """
    real = np.dtype(real_dtype)
    radices = factorise(n, budget=24, first=2, last=inputs)
    if radices is None:
        return None
    radices = (*radices, 1) if len(radices) == 1 else radices
    row_bytes = _count_row_elements(n, radices) * 2 * real.itemsize
    points = n // radices[-1]
    held = max(2 * radices[0], *radices[1:], inputs * radices[-1])
    registers = _count_registers(held, radices, real)
    # Lines of mirrored pairs fill warps in the first and the last pass, and in single precision a
    # block has four warps: 0.8 of the time for 256 points and 0.85 for 512 on an H200.
    wanted = -(-32 // max(1, n // radices[0] // 2))
    wanted = max(wanted, -(-(128 if real.itemsize == 4 else 64) // points))
    candidates = []
    # All products together, or as many as there are inputs, which takes less shared memory. The
    # points stay in registers then, so no thread can have two butterflies of them.
    for group in (outputs, min(inputs, outputs)):
        pair_bytes = max(inputs, group) * row_bytes
        if pair_bytes > limit:
            continue
        if group < outputs:
            beside = inputs * radices[-1] + max(radices[:-1])
            registers = max(registers, beside * real.itemsize // 2 + 8)
        pairs = max(1, min(wanted, limit // pair_bytes))
        shared_bytes = pairs * pair_bytes
        threads, blocks = _find_occupancy(points * pairs, shared_bytes, registers)
        if group == outputs or threads >= points * pairs:
            candidates.append((blocks, group, pairs, threads, shared_bytes))
    if not candidates:
        return None
    # Groups pay where they leave room for half as many blocks more: on an H200, six instead of
    # four take 0.84 of the time at 512 points in double precision.
    blocks, group, pairs, threads, shared_bytes = candidates[0]
    if 2 * candidates[-1][0] >= 3 * blocks:
        blocks, group, pairs, threads, shared_bytes = candidates[-1]
    if group < outputs and real.itemsize == 4:
        # Points that are held spill less with 96 registers instead of 80: five blocks take 0.92 of
        # the time of six at 512 points on an H200.
        roomy, fewer = _find_occupancy(points * pairs, shared_bytes, registers + 16)
        threads, blocks = (roomy, fewer) if roomy == threads else (threads, blocks)
    constants = _constants(n, radices, real, threads, blocks) | {
        "INPUTS": inputs,
        "OUTPUTS": outputs,
        "GROUP": group,
        "ODD_ROWS": rows if rows % 2 else 0,
        "PAIRS": pairs,
        "PRODUCT_HEADER": f'"{product_header}"',
    }
    if kept is not None:
        constants["KEPT"] = kept
    return TiledKernel(
        "fused_product.hpp", "fused_product", constants, threads, shared_bytes, 2 * pairs
    )


def real_rows(
    n: int, real_dtype: np.typing.DTypeLike, sign: int, limit: int = SHARED_LIMIT
) -> TiledKernel | None:
    """Return the kernel for real rows of `n` points; None if `n` is unsupported or does not fit."""
    real = np.dtype(real_dtype)
    # Small first radices (a thread holds two butterflies of them), and large ones after them: on an
    # H200 that beat even ones by a third.
    radices = factorise(n, budget=16, first=4)
    if radices is None:
        return None
    radices = (*radices, 1) if len(radices) == 1 else radices
    pair_bytes = _count_row_elements(n, radices) * 2 * real.itemsize
    if pair_bytes > limit:
        return None
    points = n // radices[-1]
    pairs = max(1, min(-(-64 // points), limit // pair_bytes))
    threads = min(512, 32 * -(-points * pairs // 32))
    # With 128 registers a thread; small blocks wait for each other's barriers least.
    blocks = max(1, min(_resident(pairs * pair_bytes), _REGISTERS // (128 * threads)))
    constants = _constants(n, radices, real, threads, blocks) | {
        "SIGN": sign,
        "PAIRS": pairs,
    }
    return TiledKernel("real_fft.hpp", "real_rows", constants, threads, pairs * pair_bytes, pairs)


def _constants(
    n: int, radices: tuple[int, ...], real: np.dtype, threads: int, blocks: int
) -> dict[str, object]:
    kind = "double" if real.itemsize == 8 else "float"
    return {"N": n, "RADICES": radices, "REAL": kind, "THREADS": threads, "BLOCKS_PER_SM": blocks}


def _count_row_elements(n: int, radices: tuple[int, ...]) -> int:
    """Return the elements of a row of `paired_real_fft.hpp`, gaps included."""
    return n + n // (8 if n & (n - 1) or radices[-1] > 4 else 16) + 1


def _resident(shared_bytes: int) -> int:
    """Return the number of blocks that a multiprocessor's shared memory holds."""
    return min(16, _SHARED_PER_MULTIPROCESSOR // (shared_bytes + 1024))


def _count_registers(held: int, radices: tuple[int, ...], real: np.dtype) -> int:
    """Return the registers that a thread needs for `held` complex numbers."""
    # Fitted to what nvcc 13 takes for radices 2 to 16 without spilling.
    needed = 11 * held // 2 + 36 + 16 * any(radix % 2 and radix > 3 for radix in radices)
    # In single precision more warps are worth some bytes that are spilled.
    return min(256, needed if real.itemsize == 8 else max(72, needed // 2 - 4))


def _find_occupancy(items: int, shared_bytes: int, registers: int) -> tuple[int, int]:
    """Return threads per block, and resident blocks, for a number of registers per thread."""
    # A quarter of the registers is for every fourth warp.
    warps = 4 * (_REGISTERS // (4 * 32 * registers))
    wanted = -(-items // 32)
    blocks = max(1, min(_resident(shared_bytes), warps // min(4, wanted)))
    rounds = -(-wanted // min(32, warps // blocks))
    return 32 * -(-wanted // rounds), blocks
