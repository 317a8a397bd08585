"""Lengths of transforms by `vector_fft.hpp`: their radices, and tables of factors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import gpu_fft_launch
from slipstream.engine.device.cosine_transforms import ShortTransform, shorten
from slipstream.engine.device.device_interface import Kernel, Operation, RowLaunch, address_of
from slipstream.engine.device.lane_programs import HostCall

# The largest radix that `vector_fft.hpp` has: lengths with larger primes are convolutions.
_LARGEST_RADIX = 61
# The points of a cosine or sine transform, its kind, and whether it is orthonormal.
CosineKind = tuple[int, str, bool]


class HasPlan(Protocol):
    """The description of a length for a kernel, as numbers and addresses."""

    plan: np.ndarray


class Length:
    """The description of a length for `vector_fft.hpp`: the address of a `Plan`."""

    def __init__(self, n: int, real: str, cosines: CosineKind | None) -> None:
        self._kept: list[np.ndarray] = []
        radices = find_radices(n)
        if radices:
            entries = [*self._passes(n, radices, real), *[0] * 7]
        else:
            by = find_next_smooth(2 * n - 1)
            tables = [self._keep(table) for table in _make_chirp(n, by, real)]
            entries = [n, *[0] * 4, *self._passes(by, find_radices(by), real), *tables]
        of_cosines = self._cosines(get_short_transform(*cosines), real) if cosines else [0] * 3
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
        tables = np.array(radices, np.int64), modes, get_roots(n, real)
        return [n, len(radices), *map(self._keep, tables)]

    def _keep(self, table: np.ndarray) -> int:
        self._kept.append(table)
        return address_of(table)


@functools.cache
def get_length(n: int, real: str, cosines: CosineKind | None = None) -> Length:
    """Return the description of a length; it is kept."""
    return Length(n, real, cosines)


@functools.cache
def get_short_transform(n: int, kind: str, orthonormal: bool) -> ShortTransform:
    """Return the Fourier transform by which cosines or sines are computed; it is kept."""
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
def get_roots(n: int, real: str) -> np.ndarray:
    """Return exp(-2 pi i k / n) for k < n; they are kept."""
    return gpu_fft_launch.roots(n, real)


def find_radices(n: int) -> tuple[int, ...]:
    """Return radices whose product is `n`, the smallest first; none if a prime is too large.

    They make few passes, and the first, which reads memory, is the lightest: on an EPYC of the
    fifth generation 128 rows take a tenth less time by 2 and 8 and 8 than in the reverse order.
    """
    primes = find_primes(n)
    if max(primes) > _LARGEST_RADIX:
        return ()
    odd, twos = [prime for prime in primes if prime > 2], primes.count(2)
    eights, rest = divmod(twos, 3)
    few = {0: [], 1: [4, 4] if eights else [2], 2: [4]}[rest]
    eights -= rest == 1 and eights > 0
    return tuple(sorted([*odd, *few, *[8] * eights])) or (1,)


def find_primes(n: int) -> list[int]:
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


def find_divisors(n: int) -> list[int]:
    """Return all divisors of a number."""
    divisors = {1}
    for prime in find_primes(n):
        divisors |= {prime * divisor for divisor in divisors}
    return sorted(divisors)


def find_next_smooth(least: int) -> int:
    """Return the smallest number, not below `least`, without primes above 7."""
    odd = [1]
    for prime in (3, 5, 7):
        for factor in odd:  # which grows
            if factor * prime < prime * least:
                odd.append(factor * prime)
    return min(factor << (-(-least // factor) - 1).bit_length() for factor in odd)


def call_kernel(
    kernel: Kernel,
    length: HasPlan,
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
        put_addresses(call, table, functions)
    return call


def put_addresses(call: HostCall, table: np.ndarray, functions: Sequence[Operation | None]) -> None:
    """Have the addresses of functions put at the end of a table once they are compiled."""
    called = [function if isinstance(function, HostCall) else None for function in functions]

    def put() -> None:
        table[-len(called) :] = [function.address if function else 0 for function in called]

    if any(called):
        call.fillers.append(put)
