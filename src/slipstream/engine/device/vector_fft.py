"""Transforms on a CPU by Slipstream's kernels (`vector_fft.hpp`), which need no plans.

Each lane of a vector has a column, or a row. Its arithmetic does not depend on the other
lanes, so results have the same bits however arrays are divided among batches, threads and ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device.device_interface import (
    REAL_NAMES,
    Device,
    Kernel,
    Operation,
    RowLaunch,
    Stream,
    address_of,
)
from slipstream.engine.device.fft_lengths import (
    CosineKind,
    Length,
    call_kernel,
    find_radices,
    get_length,
    get_roots,
    get_short_transform,
    put_addresses,
)
from slipstream.engine.device.lane_programs import HostCall, in_sequence
from slipstream.engine.device.long_lines import LineKernel, find_line_kernel
from slipstream.engine.device.memory import cache_bytes

# Lengths with separate programs, which take up to a fifth less time: also half a row of 48 points,
# and 512, of shipped cases. Half a row of 16 or 32 takes a third less.
_FIXED = frozenset(
    {8, 16, 24, 512, *(n for n in range(32, 1025) if n % 16 == 0 and 720720 % (n // 16) == 0)}
)
# The most numbers that a thread copies at a time.
_PART = 4096
# Of `fft_columns`, for both sides: no offsets, no pitches, no first plane; and the offset of a row
# that is not kept.
_NO_TABLES = [0] * 6
_NOT_KEPT = -(2**62)

# Sizes, and strides in bytes in source and target, of axes that a call of a kernel loops over.
_Axes = list[tuple[int, tuple[int, int]]]


def plan(
    device: Device,
    source: Array,
    target: Array,
    axis: int,
    forward: bool,
    scale: float = 1.0,
    cosines: tuple[str, bool] | None = None,
    among_many: bool = False,
) -> Operation:
    """Return the transform ``source -> target`` along an axis, times a constant; see `Device.fft`.

    With the kind of cosines or sines, and whether they are orthonormal, the direction is theirs.
    """
    axis %= source.ndim
    if 0 in source.shape or 0 in target.shape:
        return lambda stream: None
    pair = source, target
    contiguous = [
        k for k in range(source.ndim) if all(array.strides[k] == array.itemsize for array in pair)
    ]
    is_whole = all(stride % array.itemsize == 0 for array in pair for stride in array.strides)
    if not contiguous or not is_whole:
        return _plan_through_copies(
            device, source, target, axis, forward, scale, cosines, among_many
        )
    along = contiguous[-1]
    real = np.zeros(0, source.dtype).real.dtype
    n = (source if forward else target).shape[axis]
    is_real = source.dtype.kind != target.dtype.kind
    is_rows = axis == along
    factor = _bits_of(scale)
    if is_rows and not (cosines or among_many):
        lines = find_line_kernel(device, n, real.name, is_real, forward)
        if lines is not None:
            return _plan_lines(device, lines, pair, axis, factor)
    is_half = is_real and n % 2 == 0
    size = n // 2 if is_half else n
    of_cosines = (n, *cosines) if cosines else None
    if of_cosines:
        short = get_short_transform(*of_cosines)
        is_half, size, forward = short.is_half, short.size, short.forward
    is_plain = not (is_real or cosines) and (is_rows or find_radices(n) != ())
    if is_rows:
        name, is_halves = "fft_rows", is_half and not cosines
        special = {"PLAIN": is_plain, "SCALED": scale != 1.0, "HALVES": is_halves}
    else:
        name = "fft_columns"
        special = _constants_of_columns(is_plain, scale, cosines is not None, is_half)
    kernel, length = _kernel(device, name, size, real.name, forward, of_cosines, **special)
    functions = _compile_for_any_length(device, size, real.name, forward, is_plain and not is_rows)
    turns = get_roots(2 * size, real.name) if is_half else None
    units = (real.itemsize,) * 2 if is_rows else (source.itemsize, target.itemsize)
    calls = []
    for first, second, axes in _parts(pair, {axis, along}):
        sizes = [size for size, _ in axes]
        form = [factor, is_real, 0 if turns is None else address_of(turns), *sizes]
        if is_rows:
            after, called = [int(_exceeds_cache(target))], functions[:1]
        else:
            axes = [*axes, (n, (source.strides[axis], target.strides[axis]))]
            form.append(source.shape[along])
            after, called = _NO_TABLES, functions
        arguments = [*form, *_steps(axes, *units), *after]
        kept = source, target, turns
        calls.append(call_kernel(kernel, length, first, second, arguments, called, kept))
    return _in_sequence(device, calls)


def _plan_lines(
    device: Device, kernel: LineKernel, pair: tuple[Array, Array], axis: int, factor: int
) -> Operation:
    """Return the transform of long lines, one after the other."""
    unit = pair[0].real.itemsize
    calls = []
    for first, second, axes in _parts(pair, {axis}):
        arguments = [factor, *(size for size, _ in axes), *_steps(axes, unit, unit)]
        calls.append(kernel.bind(first, second, arguments, pair))
    return _in_sequence(device, calls)


def _in_sequence(device: Device, calls: list[Operation]) -> Operation:
    return calls[0] if len(calls) == 1 else in_sequence(device, cast("list[HostCall]", calls))


def _steps(axes: _Axes, *units: int) -> list[int]:
    """Return the strides of axes in source and target, in units of each."""
    return [steps[side] // units[side] for side in (0, 1) for _, steps in axes]


def _constants_of_columns(
    is_plain: bool, scale: float, is_cosines: bool = False, is_half: bool = False
) -> dict[str, bool]:
    return {"PLAIN": is_plain, "SCALED": scale != 1.0, "COSINES": is_cosines, "HALVES": is_half}


def _exceeds_cache(array: Array) -> bool:
    """Return whether the array that this one is a part of takes half of the cache or more.

    What is stored there first has left the cache by the time that it is read.
    """
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return 2 * int(whole.nbytes) >= cache_bytes()


def _bits_of(number: float) -> int:
    """Return a number as it lies in a table of integers."""
    return int(np.float64(number).view(np.int64))


def _plan_through_copies(
    device: Device,
    source: Array,
    target: Array,
    axis: int,
    forward: bool,
    scale: float,
    cosines: tuple[str, bool] | None,
    among_many: bool,
) -> Operation:
    """Return a transform between contiguous copies."""
    first, last = np.empty(source.shape, source.dtype), np.empty(target.shape, target.dtype)
    transform = plan(device, first, last, axis, forward, scale, cosines, among_many)

    def run(stream: Stream) -> None:
        first[...] = source
        transform(stream)
        target[...] = last

    return run


def _parts(pair: tuple[Array, Array], inner: set[int]) -> Iterator[tuple[int, int, _Axes]]:
    """Yield two addresses, and the axes to loop over from there, for each call.

    Together with the inner axes they are four.
    """
    outer: _Axes = []
    for k in range(pair[0].ndim):
        n, strides = pair[0].shape[k], (pair[0].strides[k], pair[1].strides[k])
        if n == 1 or k in inner:
            continue
        if outer and outer[-1][1] == (n * strides[0], n * strides[1]):
            n *= outer.pop()[0]
        outer.append((n, strides))
    most = 4 - max(1, len(inner))
    before, within = outer[: max(0, len(outer) - most)], outer[-most:]
    within = [(1, (0, 0))] * (most - len(within)) + within
    for index in itertools.product(*(range(n) for n, _ in before)):
        first, second = (
            address_of(array)
            + sum(i * strides[number] for i, (_, strides) in zip(index, before, strict=True))
            for number, array in enumerate(pair)
        )
        yield first, second, within


def bind_lines(
    device: Device,
    source: tuple[Array, Sequence[int], Sequence[Any]],
    target: tuple[Array, Sequence[int], Sequence[Any]],
    shape: tuple[int, int, int, int],
    forward: bool,
    scale: float = 1.0,
) -> Operation:
    """Return the transform of complex arrays (a, b, n, columns) along n, times a constant.

    Each side is an array, three strides in elements, and (offset, pitch, first plane) of its rows;
    or (None, None, 0) for an array without tables.
    """
    a, b, n, columns = shape
    if not a * b * columns:
        return lambda stream: None
    real = source[0].real.dtype.name
    if (
        n == 1
        and scale == 1.0
        and (copy := _plan_row_copies(device, source, target, (a, b, columns)))
    ):
        return copy
    is_plain = find_radices(n) != ()
    kernel, length = _kernel(
        device, "fft_columns", n, real, forward, None, **_constants_of_columns(is_plain, scale)
    )
    tables = [
        0 if one is None else one if isinstance(one, int) else address_of(one)
        for side in (source, target)
        for one in side[2]
    ]
    functions = _compile_for_any_length(device, n, real, forward, is_plain)
    arguments = [_bits_of(scale), 0, 0, a, b, columns, *source[1], *target[1], *tables]
    return call_kernel(kernel, length, source[0], target[0], arguments, functions, (source, target))


def _plan_row_copies(
    device: Device,
    source: tuple[Array, Sequence[int], Sequence[Any]],
    target: tuple[Array, Sequence[int], Sequence[Any]],
    shape: tuple[int, int, int],
) -> Operation | None:
    """Return the transform of one point, which is a copy; None if a row is not kept."""
    addresses, steps = [], []
    for array, strides, (offset, pitch, first) in (target, source):
        begin, between = 0, strides[1]
        if offset is not None:
            if offset[0] == _NOT_KEPT:
                return None
            between = int(pitch[0])
            begin = int(offset[0]) + first * between
        addresses.append(address_of(array) + begin * array.itemsize)
        steps += [0, 2 * strides[0], 2 * between]
    a, b, columns = shape[0], shape[1], 2 * shape[2]
    part = min(columns, _PART)
    rows, parts = a * b, -(-columns // part)
    real = REAL_NAMES[source[0].real.dtype.name]
    kernel = device.kernel("strided_copy.hpp", "copy_box", REAL=real)
    launch, sizes = RowLaunch(rows * parts, part), [rows, a, b, columns, parts, part]
    call = kernel.bind(launch, *addresses, *sizes, *steps)
    if isinstance(call, HostCall):  # not where nothing runs
        call.kept = source, target
    return call


def bind_products(
    device: Device,
    source: tuple[Array, np.ndarray],
    target: tuple[Array, np.ndarray],
    rows: int,
    n: int,
    product: dict[str, Any],
    maxima: Array,
    parameters: Array,
    stored: Sequence[Any] = (),
) -> Operation:
    """Return modes of rows -> `n` points -> product -> modes, by `vector_product.hpp`.

    Each side is an array and its shares of all rows, (shares, 5): for each its place in a row and
    its modes there, where it begins in the array, and strides of rows and fields, in elements. Both
    may be the same memory, if rows stay in their places. `product` are the constants of its kernel,
    and `stored` what it takes to store points.
    """
    is_half, real = n % 2 == 0, source[0].real.dtype.name
    size = n // 2 if is_half else n
    constants = {"REAL": REAL_NAMES[real], **_fixed(size), **product}
    kernel = device.kernel("vector_product.hpp", "product_of_rows", **constants)
    turns, length = get_roots(n, real), get_length(size, real)
    functions = [
        _compile_for_any_length(device, size, real, forward)[0] for forward in (False, True)
    ]
    tables = [np.ascontiguousarray(table, np.int64) for _, table in (source, target)]
    shares = [number for one in tables for number in (len(one), address_of(one))]
    kept = int(tables[0][:, 1].sum())
    table = np.array([n, is_half, kept, rows, *shares, address_of(turns), 0, 0], np.int64)
    arrays = source[0], target[0], maxima, parameters
    call = kernel.bind(RowLaunch(1, 1), *arrays, table, length.plan, *stored)
    if isinstance(call, HostCall):  # not where nothing runs
        call.kept = *arrays, table, length, turns, tables, *stored
        put_addresses(call, table, functions)
    return call


def whole_rows(modes: Array) -> tuple[Array, np.ndarray]:
    """Return an array (fields, planes, rows, modes) as a side of `bind_products`.

    Its rows lie at equal distances.
    """
    field, _, row = (stride // modes.itemsize for stride in modes.strides[:3])
    return modes, np.array([[0, modes.shape[3], 0, row, field]])


def _fixed(n: int) -> dict[str, Any]:
    """Return the constants of a length with a separate program."""
    if n not in _FIXED:
        return {}
    # One pass takes a tenth to a sixth less time than two, although its numbers fill all registers.
    # A first or last pass of 16 makes other lengths slower, or not faster.
    radices = (16,) if n == 16 else find_radices(n)
    return {"N": n, "RADICES": radices, "LENGTH_HEADER": '"strided_fft.hpp"'}


def _compile_for_any_length(
    device: Device, n: int, real: str, forward: bool, is_plain: bool = False
) -> list[Operation | None]:
    """Return a `TileTransform` and `TilePasses`; None if the kernel does not call it."""
    if n in _FIXED or (is_plain and len(find_radices(n)) <= 2):
        return [None, None]
    constants: dict[str, Any] = {"REAL": REAL_NAMES[real], "SIGN": -1 if forward else 1}
    header, name = "vector_fft_passes.hpp", "transform_passes"
    if not is_plain:
        header, name = "vector_fft_tile.hpp", "transform_whole_tile"
        constants["CHIRP"] = not find_radices(n)
    call = device.kernel(header, name, **constants).bind(RowLaunch(1, 1))
    return [None, call] if is_plain else [call, None]


def _kernel(
    device: Device,
    name: str,
    n: int,
    real: str,
    forward: bool,
    cosines: CosineKind | None = None,
    **special: bool,
) -> tuple[Kernel, Length]:
    """Return the kernel for transforms of `n` elements, and the description of the length."""
    constants: dict[str, Any] = {"REAL": REAL_NAMES[real], "SIGN": -1 if forward else 1}
    constants |= _fixed(n) | special
    return device.kernel(f"vector_{name}.hpp", name, **constants), get_length(n, real, cosines)
