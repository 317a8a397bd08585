"""Transforms on a CPU by Slipstream's kernels (`vector_fft.hpp`), which need no plans.

Each lane of a vector has a column, or a row. Its arithmetic does not depend on the other
lanes, so results have the same bits however arrays are divided among batches, threads and ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import gpu_fft_launch
from slipstream.engine.device.cosine_transforms import ShortTransform, shorten
from slipstream.engine.device.device_interface import (
    REAL_NAMES,
    Device,
    Kernel,
    Operation,
    RowLaunch,
    Stream,
    address_of,
)
from slipstream.engine.device.lane_programs import HostCall, in_sequence
from slipstream.engine.device.memory import cache_bytes

# The largest radix that `vector_fft.hpp` has: lengths with larger primes are convolutions.
_LARGEST_RADIX = 61

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
        return _plan_through_copies(device, source, target, axis, forward, scale, cosines)
    along = contiguous[-1]
    real = np.zeros(0, source.dtype).real.dtype
    n = (source if forward else target).shape[axis]
    is_real = source.dtype.kind != target.dtype.kind
    is_rows = axis == along
    is_half = is_real and n % 2 == 0
    size = n // 2 if is_half else n
    of_cosines = (n, *cosines) if cosines else None
    if of_cosines:
        short = _shorten(*of_cosines)
        is_half, size, forward = short.is_half, short.size, short.forward
    is_plain = not (is_real or cosines) and (is_rows or _find_radices(n) != ())
    if is_rows:
        name, is_halves = "fft_rows", is_half and not cosines
        special = {"PLAIN": is_plain, "SCALED": scale != 1.0, "HALVES": is_halves}
    else:
        name = "fft_columns"
        special = _constants_of_columns(is_plain, scale, cosines is not None, is_half)
    kernel, length = _kernel(device, name, size, real.name, forward, of_cosines, **special)
    functions = _compile_for_any_length(device, size, real.name, forward, is_plain and not is_rows)
    turns = _roots(2 * size, real.name) if is_half else None
    units = (real.itemsize,) * 2 if is_rows else (source.itemsize, target.itemsize)
    factor = _bits_of(scale)
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
        steps = [axis_steps[side] // units[side] for side in (0, 1) for _, axis_steps in axes]
        arguments = [*form, *steps, *after]
        kept = source, target, turns
        calls.append(_call(kernel, length, first, second, arguments, called, kept))
    return calls[0] if len(calls) == 1 else in_sequence(device, cast("list[HostCall]", calls))


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
) -> Operation:
    """Return a transform between contiguous copies."""
    first, last = np.empty(source.shape, source.dtype), np.empty(target.shape, target.dtype)
    transform = plan(device, first, last, axis, forward, scale, cosines)

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
    is_plain = _find_radices(n) != ()
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
    return _call(kernel, length, source[0], target[0], arguments, functions, (source, target))


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
    turns, length = _roots(n, real), _get_length(size, real)
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
        _put_addresses(call, table, functions)
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
    radices = (16,) if n == 16 else _find_radices(n)
    return {"N": n, "RADICES": radices, "LENGTH_HEADER": '"strided_fft.hpp"'}


def _compile_for_any_length(
    device: Device, n: int, real: str, forward: bool, is_plain: bool = False
) -> list[Operation | None]:
    """Return a `TileTransform` and `TilePasses`; None if the kernel does not call it."""
    if n in _FIXED or (is_plain and len(_find_radices(n)) <= 2):
        return [None, None]
    constants: dict[str, Any] = {"REAL": REAL_NAMES[real], "SIGN": -1 if forward else 1}
    header, name = "vector_fft_passes.hpp", "transform_passes"
    if not is_plain:
        header, name = "vector_fft_tile.hpp", "transform_whole_tile"
        constants["CHIRP"] = not _find_radices(n)
    call = device.kernel(header, name, **constants).bind(RowLaunch(1, 1))
    return [None, call] if is_plain else [call, None]


def _call(
    kernel: Kernel,
    length: _Length,
    source: Array | int,
    target: Array | int,
    arguments: Sequence[int],
    functions: Sequence[Operation | None],
    kept: tuple[Any, ...],
) -> Operation:
    """Return the call of a kernel from one array, or address, to another; it keeps `kept` alive.

    The kernel calls the functions, whose addresses follow the arguments.
    """
    table = np.array([*arguments, *[0] * len(functions)], np.int64)
    call = kernel.bind(RowLaunch(1, 1), source, target, table, length.plan)
    if isinstance(call, HostCall):  # not where nothing runs
        call.kept = *kept, table, length
        _put_addresses(call, table, functions)
    return call


def _put_addresses(
    call: HostCall, table: np.ndarray, functions: Sequence[Operation | None]
) -> None:
    """Have the addresses of functions put at the end of a table once they are compiled."""
    called = [function if isinstance(function, HostCall) else None for function in functions]

    def put() -> None:
        table[-len(called) :] = [function.address if function else 0 for function in called]

    if any(called):
        call.fillers.append(put)


def _kernel(
    device: Device,
    name: str,
    n: int,
    real: str,
    forward: bool,
    cosines: tuple[int, str, bool] | None = None,
    **special: bool,
) -> tuple[Kernel, _Length]:
    """Return the kernel for transforms of `n` elements, and the description of the length."""
    constants: dict[str, Any] = {"REAL": REAL_NAMES[real], "SIGN": -1 if forward else 1}
    constants |= _fixed(n) | special
    return device.kernel(f"vector_{name}.hpp", name, **constants), _get_length(n, real, cosines)


class _Length:
    """The description of a length for `vector_fft.hpp`: the address of a `Plan`."""

    def __init__(self, n: int, real: str, cosines: tuple[int, str, bool] | None) -> None:
        self._kept: list[np.ndarray] = []
        radices = _find_radices(n)
        if radices:
            entries = [*self._passes(n, radices, real), *[0] * 7]
        else:
            by = next(m for m in itertools.count(2 * n - 1) if max(_find_primes(m)) <= 7)
            tables = [self._keep(table) for table in _make_chirp(n, by, real)]
            entries = [n, *[0] * 4, *self._passes(by, _find_radices(by), real), *tables]
        of_cosines = self._cosines(_shorten(*cosines), real) if cosines else [0] * 3
        self.plan = np.array([*entries, *of_cosines], np.int64)

    def _cosines(self, short: ShortTransform, real: str) -> list[int]:
        """Return a `Cosines` of the header."""
        complex_type = np.result_type(real, np.complex64)
        pair = np.dtype([("places", np.int64, 2), ("factors", complex_type, 2)])
        tables = []
        for places, factors in (
            (short.points, short.point_factors),
            short.results_of_modes(),
        ):
            table = np.empty(len(places), pair)
            table["places"], table["factors"] = places, factors
            tables.append(self._keep(table))
        return [len(short.mode_of), *tables]

    def _passes(self, n: int, radices: tuple[int, ...], real: str) -> list[int]:
        """Return a `Length` of the header."""
        # Passes leave the digits of modes in the reverse order.
        positions = np.arange(0, n, radices[-1], dtype=np.int64)
        modes, weight, length = np.zeros_like(positions), 1, n
        for radix in radices[:-1]:
            length //= radix
            modes += weight * (positions // length % radix)
            weight *= radix
        tables = np.array(radices, np.int64), modes, _roots(n, real)
        return [n, len(radices), *map(self._keep, tables)]

    def _keep(self, table: np.ndarray) -> int:
        self._kept.append(table)
        return address_of(table)


@functools.cache
def _get_length(n: int, real: str, cosines: tuple[int, str, bool] | None = None) -> _Length:
    return _Length(n, real, cosines)


@functools.cache
def _shorten(n: int, kind: str, orthonormal: bool) -> ShortTransform:
    return shorten(kind, n, orthonormal)


def _make_chirp(n: int, by: int, real: str) -> list[np.ndarray]:
    """Return the tables by which transforms of length `by` give one of another length."""
    k = np.arange(n, dtype=np.int64)
    # Angles of pi k^2 / n, by squares modulo 2 n.
    chirp = gpu_fft_launch.roots(2 * n, np.longdouble)[k * k % (2 * n)]
    wave = np.zeros(by, chirp.dtype)
    wave[:n] = wave[(by - k) % by] = chirp.conj()
    return [
        one.astype(np.result_type(real, np.complex64)) for one in (chirp, np.fft.fft(wave) / by)
    ]


@functools.cache
def _roots(n: int, real: str) -> np.ndarray:
    return gpu_fft_launch.roots(n, real)


def _find_radices(n: int) -> tuple[int, ...]:
    """Return radices whose product is `n`, the smallest first; none if a prime is too large.

    They make few passes, and the first, which reads memory, is the lightest: on an EPYC of the
    fifth generation 128 rows take a tenth less time by 2 and 8 and 8 than in the reverse order.
    """
    primes = _find_primes(n)
    if max(primes) > _LARGEST_RADIX:
        return ()
    odd, twos = [prime for prime in primes if prime > 2], primes.count(2)
    eights, rest = divmod(twos, 3)
    few = {0: [], 1: [4, 4] if eights else [2], 2: [4]}[rest]
    eights -= rest == 1 and eights > 0
    return tuple(sorted([*odd, *few, *[8] * eights])) or (1,)


def _find_primes(n: int) -> list[int]:
    """Return the prime factors of a number, with their multiplicity; of 1, 1."""
    factors, prime = [], 2
    while n > 1:
        if prime * prime > n:
            prime = n
        while n % prime == 0:
            factors.append(prime)
            n //= prime
        prime += 1
    return factors or [1]
