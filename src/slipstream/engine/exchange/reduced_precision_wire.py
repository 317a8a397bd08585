"""A narrower wire: double-precision data are sent as FP32 or bfloat16, and widened on receipt.

The network carries half or a quarter of the bytes, with any transport. A rank's own block is copied
exactly. The kernel that narrows the data measures the error. Rounding is to nearest, ties to even;
to bfloat16 via FP32.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device, Kernel, RowLaunch, address_of
from slipstream.engine.errors import InputError
from slipstream.engine.exchange.exchange_plan import (
    Block,
    ExchangePlan,
    joined,
    ranges_of,
    views_of_ranges,
)
from slipstream.engine.exchange.transport_base import Exchange, Transport
from slipstream.engine.schedule import StepGraph

# By name: the type in `reduced_precision.hpp`, and a type of the same size for transports.
WIRES: dict[str, tuple[str, Any]] = {
    "float32": ("Float32", np.complex64),
    "bfloat16": ("Bfloat16", np.uint32),
}
# Elements per row of the kernels, which measure errors row by row.
_ROW = 1024


class NarrowWire(Transport):
    """Exchanges complex128 arrays over another transport, in fewer bits.

    `wire` is the precision of the real and imaginary parts in transit; `InputError` if unknown.
    Without other ranks (`comm` is None) exchanges can only be noted.
    """

    def __init__(self, inner: Transport, device: Device, comm: Comm, wire: str) -> None:
        if wire not in WIRES:
            raise InputError(f"wire {wire!r} is unknown; accepted: {', '.join(WIRES)}")
        super().__init__(device)
        self.name = f"{inner.name}, {wire} on the wire"
        self.inner, self.wire = inner, wire
        self._comm = comm
        kind, self._dtype = WIRES[wire]
        self.narrow, self.widen = (
            device.kernel("reduced_precision.hpp", name, NARROW=kind)
            for name in ("narrow_rows", "widen_rows")
        )
        # Weak: steps keep their exchanges alive, and exchanges their arrays.
        self._exchanges: weakref.WeakValueDictionary[int, NarrowExchange] = (
            weakref.WeakValueDictionary()
        )
        self._narrow_arrays: weakref.WeakValueDictionary[tuple[int, int], Any] = (
            weakref.WeakValueDictionary()
        )
        self._prepared = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        return self.inner.empty(shape, dtype)

    def allocated_bytes(self, size: int) -> int:
        return self.inner.allocated_bytes(size)

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> NarrowExchange:
        """Prepare an exchange of complex128 arrays, or raise `InputError`. Collective."""
        arrays = [array for pair in pairs for array in pair]
        for array in arrays:
            if array.dtype != np.complex128:
                raise InputError(
                    f"wire {self.wire!r} narrows data of double precision, complex128, not "
                    f"{array.dtype}; choose double precision, or no wire"
                )
        narrow = self._narrow(arrays)
        narrow_pairs = list(zip(narrow[::2], narrow[1::2], strict=True))
        exchange = NarrowExchange(self, plan, pairs, narrow_pairs, whole)
        self._exchanges[self._prepared] = exchange
        self._prepared += 1
        return exchange

    def _narrow(self, arrays: list[Array]) -> list[Array]:
        """Return the narrow arrays for wide ones, always the same."""
        keys = [(address_of(array), array.nbytes) for array in arrays]
        # All ranks make an array or none; empty arrays cannot be identified by their addresses.
        missing = [key[1] > 0 and key not in self._narrow_arrays for key in keys]
        if self._comm is not None:
            missing = self._comm.allreduce(np.array(missing, int))
        result = []
        for array, key, absent in zip(arrays, keys, missing, strict=True):
            narrow = self._narrow_arrays.get(key)
            if absent:
                narrow = self._narrow_arrays[key] = self.inner.empty((array.size,), self._dtype)
            elif narrow is None:
                narrow = self.device.empty((0,), self._dtype)
            result.append(narrow)
        return result

    def error_sums(self) -> np.ndarray:
        """Return the sums of squares of errors and of data of this rank: (exchanges, 2).

        They are sums of ``|x - narrowed(x)|^2`` and ``|x|^2`` over the data sent to others in the
        latest run of every exchange that still exists. Not-a-number if data were, or if they
        exceeded the range of the wire. If the squares of nonzero data underflow, they are far below
        that range: both sums are then the smallest positive number.
        """
        sums = [self.device.to_host(exchange.sums) for exchange in self._exchanges.values()]
        totals = np.array([s.sum(axis=0) for s in sums]).reshape(-1, 3)
        totals[(totals[:, 1] == 0) & (totals[:, 2] > 0), :2] = np.nextafter(0, 1)
        return totals[:, :2]

    def relative_error(self, comm: Comm = None) -> float:
        """Return the largest error of an exchange, relative to the data sent in it. Collective.

        It is the root of the ratio of `error_sums` over some ranks, by default those of the
        transport; 0 if nothing was sent.
        """
        sums, comm = self.error_sums(), comm or self._comm
        if comm is not None:
            sums = comm.allreduce(sums)
        sent = sums[sums[:, 1] != 0]
        return float(np.sqrt(sent[:, 0] / sent[:, 1]).max(initial=0.0))

    def check(self) -> None:
        self.inner.check()

    def give_up(self, failure: BaseException) -> None:
        self.inner.give_up(failure)


class NarrowExchange(Exchange):
    """An exchange between kernels that narrow and kernels that widen.

    `narrow` are the arrays for the wide `pairs`; `sums` has squares of errors and data, and
    absolute values, for each row that was narrowed in the latest run.
    """

    def __init__(
        self,
        transport: NarrowWire,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        narrow: list[tuple[Array, Array]],
        whole: bool,
    ) -> None:
        super().__init__(transport.device, plan, pairs, whole)
        self._transport, self._narrow = transport, narrow
        self._inner = transport.inner.prepare(plan, narrow)
        lanes = self.device.lanes
        self._leaving, self._arriving = _parts(self.sends, lanes), _parts(self.receives, lanes)
        self._rows = sum(map(len, self._leaving))
        self.sums = self.device.zeros((len(pairs) * self._rows, 3), np.float64)

    def messages(self) -> list[tuple[int, int]]:
        return self._inner.messages()

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        narrow, widen = self._transport.narrow, self._transport.widen
        sums = self.sums.reshape(len(self.pairs), self._rows, 3)
        for (wide, _), (thin, _), of_pair in zip(self.pairs, self._narrow, sums, strict=True):
            done = 0
            for number, rows in enumerate(self._leaving):
                sums_of_rows = of_pair[done : done + len(rows)]
                done += len(rows)
                self._add(
                    graph, narrow, (wide, thin), rows, f"{label}: narrow", number, sums_of_rows
                )
        self._inner.record_close(graph, label)
        for (_, wide), (_, thin) in zip(self.pairs, self._narrow, strict=True):
            for number, rows in enumerate(self._arriving):
                self._add(graph, widen, (thin, wide), rows, f"{label}: widen", number)

    def _add(
        self,
        graph: StepGraph,
        kernel: Kernel,
        arrays: tuple[Array, Array],
        rows: np.ndarray,
        label: str,
        number: int,
        *sums: Array,
    ) -> None:
        launch = RowLaunch(len(rows), _ROW, reduces=bool(sums))
        places = self.device.array(rows)
        bound = kernel.bind(launch, *arrays, *sums, places, len(rows))

        def operation(stream: Any, keep_alive: Any = (self, places)) -> None:
            bound(stream)

        ranges = joined((first, first + count) for first, count in rows.tolist())
        read, written = (views_of_ranges(array, ranges) for array in arrays)
        graph.add(
            operation,
            reads=read,
            writes=[*written, *sums],
            label=label,
            category="pack",
            lane=graph.lane_of_batch(number)[1],
            device=self.device,
        )


def _parts(blocks: Sequence[Block], lanes: int) -> list[np.ndarray]:
    """Return first element and length of rows that cover blocks, divided among lanes."""
    rows = [
        (first, min(_ROW, stop - first))
        for start, stop in ranges_of(blocks)
        for first in range(start, stop, _ROW)
    ]
    table = np.array(rows, np.int64).reshape(-1, 2)
    return [table[low:high] for low, high in split(len(rows), lanes) if low < high]
