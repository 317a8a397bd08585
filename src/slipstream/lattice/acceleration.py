"""Acceleration: the steady state of a flow, extrapolated from how the flow approaches it.

Steady flow is a fixed point of the time steps, which approach it slowly where pressure spreads
through narrow pores. Anderson's method (1965; Walker and Ni, SIAM J. Numer. Anal. 49, 2011) finds
the combination of the last few states whose residual, the change by some steps, is smallest, and
continues from there. For flow without inertia that is a Krylov method.

States are compared, kept and changed by density and momentum only: the rest of the populations
follows them within a few steps. That takes a fifth of the memory that populations would, in single
precision a tenth. Inner products are sums of whole numbers, so that a flow has the same bits in any
storage and on any number of ranks. Mass is conserved: increments have no mean density.

What the combination leaves of the residual is density that has yet to spread through the medium,
mostly: the pressure that `PressureBlocks` finds for it is added.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import largest, sum_over_ranks
from slipstream.engine.device import RowLaunch
from slipstream.engine.device.array_kernels import ROWS_OF_GROUP, group_sums, scale_to_bits
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.pressure_blocks import PressureBlocks, blocks_memory
from slipstream.lattice.velocity_set import Storage

# Steps between two extrapolations. After fewer, the last increment has not settled; all cost time.
PERIOD = 6
# Sites of a row, whose sums are exact: on a GPU few enough that all of its threads have rows.
_COLUMNS = {"cpu": 4096, "gpu": 512}
# Products of vectors are at most 2^_BITS.
_BITS = 34
# Up to this many sites sums are exact.
_EXACT_SITES = 1 << 53 - _BITS
# Threads of a block of a GPU.
_THREADS = 256
# Vectors for whose products two blocks have room.
_FEW_VECTORS = 12
# The numbers of a site: density and momentum.
_NUMBERS = 4
# Attributes that belong to the flow, and are no part of the state.
_OF_FLOW = ("_flow", "_comm", "_blocks", "_constants")
# Attributes that are arrays on the device.
_ON_DEVICE = ("_before", "_residual", "_residual_changes", "_changes", "_largest", "_sums")
# By how much a residual may grow before the changes are forgotten.
_GROWTH = 2.0
# How often it may grow so before the pressures are forgotten, too.
_MOST_GROWN = 2
# Residuals below this many times the round-off count as round-off.
_NOISE = 2.0
# Changes more parallel than that are one.
_RANK = 1e-10
# The largest change of the density of a flow with inertia, which must stay positive.
_MOST_DENSITY = 0.1
# The part of the free memory that vectors may take.
_SHARE = 0.5
# Bytes that no device has.
_TOO_MUCH = 1 << 50
# With fewer vectors it is hardly faster than without.
_FEWEST = 3


@dataclass(frozen=True)
class Extrapolation:
    """The estimate of the steady state from the last residuals.

    Attributes
    ----------
    norm, expected_norm : float
        Of the residual, and of what it would be if the flow were linear.
    value : float
        The steady value of the quantity that is followed, as extrapolated.
    round_off : float
        What the norm would be if nothing but the last digit of each number changed.
    digit : float
        The relative size of that digit.
    """

    norm: float
    expected_norm: float
    value: float
    round_off: float
    digit: float


class Acceleration:
    """Extrapolates a flow from its last changes, `vectors` at most. Its methods are collective."""

    def __init__(self, flow: PoreFlow, vectors: int, comm: Comm) -> None:
        device, sites = flow.device, flow.sites.stored
        self._flow, self._comm, self._vectors = flow, comm, vectors
        self._before = device.zeros((_NUMBERS, sites), flow.storage.real)
        self._residual = device.zeros((_NUMBERS, sites), np.float32)
        shape = (vectors, _NUMBERS, sites)
        self._residual_changes, self._changes = (device.zeros(shape, np.float32) for _ in range(2))
        self._constants = {
            **flow.constants,
            "VECTORS": vectors,
            "THREADS": _THREADS,
            # All sums of a thread are in registers if there are few vectors, even of two blocks.
            "BLOCKS_PER_SM": 2 if vectors <= _FEW_VECTORS else 1,
        }
        self._columns = _COLUMNS[device.processor]
        self._rows = -(-flow.sites.count // self._columns)
        self._largest = device.zeros((self._rows, 4), np.float64)
        self._sums = device.zeros((self._rows, 2 * vectors + 3), np.float64)
        self._blocks = PressureBlocks(flow, comm)
        # How often the residual has grown. Then the changes are forgotten, and time steps continue.
        self.rejections = 0
        self._total = int(sum_over_ranks(comm, np.array([flow.sites.count]))[0])
        self.begin()

    def begin(self) -> None:
        """Forget all changes, and begin from the flow as it is."""
        self._slot = 0  # of the newest change
        self._filled: list[int] = []
        self._products = np.zeros((self._vectors, self._vectors))
        self._density = np.zeros(self._vectors)  # sums over the changes of it
        self._most_density = np.zeros(self._vectors)
        # Of changes, the residual, a density and the numbers; 0 for unknown ones.
        self._scales = np.zeros(self._vectors + 3)
        self._most_change = np.zeros(self._vectors)  # of the residual
        self._is_noise = False
        self._most_residual = 0.0  # 0 where the flow has no residual yet
        self._values = np.zeros(self._vectors)  # changes of the quantity that is followed
        self._weights = np.zeros(self._vectors)
        self._last: tuple[float, float] | None = None  # value and norm before
        self.go_on()

    def kept(self) -> dict[str, Any]:
        """Return everything that the next extrapolation is made of, on the host."""
        state = {name: value for name, value in vars(self).items() if name not in _OF_FLOW}
        to_host = self._flow.device.to_host
        return {
            name: np.array(to_host(value)) if name in _ON_DEVICE else copy.deepcopy(value)
            for name, value in state.items()
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from what another one has kept, whose flow this one's has been set to."""
        device = self._flow.device
        for name, value in kept.items():
            if name in _ON_DEVICE:
                device.run(device.copy(getattr(self, name), value))
            else:
                setattr(self, name, copy.deepcopy(value))

    def add(self, numbers: Array) -> None:
        """Add density and momentum to all sites, less the mean density, and begin from there."""
        device, comm, flow = self._flow.device, self._comm, self._flow
        density, xp = numbers[0, : flow.sites.count], device.array_module
        most = largest(comm, float(xp.abs(density).max()) if self._rows else 0.0)
        scale = scale_to_bits(most, _BITS // 2)
        whole = xp.rint(density * np.float64(scale)).astype(np.int64)
        mass = sum_over_ranks(comm, np.array([int(whole.sum())]))[0] / (scale or 1.0)
        weights = np.zeros(self._vectors)
        weights[0] = -1
        device.run(device.copy(self._changes[0], numbers))
        self._add_correction(weights, 0.0, mass / self._total)
        self.begin()

    def measure(self, value: float) -> Extrapolation | None:
        """Take the residual of the steps since `go_on`, and the value of a linear quantity.

        Returns what follows from both; nothing if the flow is not the same any more, or if there
        were fewer steps than before, as after a restart.
        """
        flow, slot = self._flow, self._slot
        if flow.steps - self._began != PERIOD or flow.fluid != self._fluid:
            self.begin()
            return None
        flow.synchronize()
        self._run(
            "take_residual",
            flow.populations_on_device,
            self._before,
            self._residual,
            self._residual_changes[slot],
            self._changes[slot],
            self._largest,
        )
        residual, change, density, number = self._most()
        scales = self._scales
        self._most_change[slot], self._most_residual = change, residual
        scales[slot], scales[-3], scales[-1] = (
            scale_to_bits(size, _BITS // 2) for size in (change, residual, number)
        )
        scales[-2] = scale_to_bits(density, _BITS)
        self._run(
            "multiply_vectors",
            self._before,
            self._residual,
            self._residual_changes,
            self._changes[slot],
            flow.device.array(scales),
            self._sums,
            slot,
        )
        *pairs, square, mass, numbers = self._exact_sums()
        sizes = np.array([1 / size if size else 0.0 for size in scales])
        with_change = np.array(pairs[::2], float) * sizes[:-3] * sizes[slot]
        with_residual = np.array(pairs[1::2], float) * sizes[:-3] * sizes[-3]
        norm = math.sqrt(square) * float(sizes[-3])
        digit = float(np.finfo(flow.storage.dtype).eps)
        round_off = number * math.sqrt(self._total) * digit
        if flow.storage.has_unit:
            # The worst is too much to assume of so large a digit.
            round_off = math.sqrt(numbers) * float(sizes[-1]) * digit
            digit /= math.sqrt(self._total)
        self._is_noise = norm < _NOISE * round_off
        # With inertia there may be no steady state, which shows in residuals that grow at all.
        growth = 1.0 if flow.fluid.inertia else _GROWTH
        if self._last is not None and norm > max(growth * self._last[1], round_off):
            self.rejections += 1
            self.begin()
            return Extrapolation(norm, norm, value, round_off, digit)
        if self._last is not None:
            self._products[slot] = self._products[:, slot] = with_change
            self._density[slot], self._most_density[slot] = mass * sizes[-2], density
            self._values[slot] = value - self._last[0]
            self._filled = [size for size in self._filled if size != slot] + [slot]
        self._weights[:] = 0
        expected = norm
        if self._filled:
            weights = self._solve(with_residual)
            self._weights[self._filled] = weights
            expected = math.sqrt(max(0.0, norm**2 - float(weights @ with_residual[self._filled])))
        self._last = value, norm
        limit = value - float(self._weights @ self._values)
        return Extrapolation(norm, expected, limit, round_off, digit)

    def go_on(self) -> None:
        """Change the flow to the extrapolated state, from which the next steps are taken."""
        flow, blocks, weights = self._flow, self._blocks, self._weights
        flow.synchronize()
        mean, most = 0.0, float(np.abs(weights) @ self._most_density)
        # The pressure of round-off would be larger than what it is to balance.
        solves = self._most_residual > 0 and self.rejections <= _MOST_GROWN and not self._is_noise
        if solves:
            left = self._most_residual + float(np.abs(weights) @ self._most_change)
            vectors = self._residual, self._residual_changes
            mean, bound = blocks.solve(*vectors, weights, left, flow.fluid, PERIOD)
            most += bound
        # The density of a flow with inertia has to stay positive.
        limits = flow.fluid.inertia and most * flow.unit > _MOST_DENSITY
        share = _MOST_DENSITY / (most * flow.unit) if limits else 1.0
        weights = weights * share
        self._began, self._fluid = flow.steps, flow.fluid
        if self._filled and self._filled[-1] == self._slot:
            self._slot = (self._slot + 1) % self._vectors
        mean = (share * mean - float(weights @ self._density)) / self._total
        self._add_correction(weights, share if solves else 0.0, mean)

    def _add_correction(self, weights: np.ndarray, share: float, mean: float) -> None:
        flow, given = self._flow, self._flow.device.array(weights)
        arrays = self._changes, given, self._blocks.pressure
        results = self._changes[self._slot], self._before
        self._run("add_correction", flow.populations_on_device, *arrays, share, mean, *results)

    def _solve(self, with_residual: np.ndarray) -> np.ndarray:
        """Return the weights of the changes that leave the smallest residual."""
        products = self._products[np.ix_(self._filled, self._filled)]
        lengths = np.sqrt(np.diag(products))
        lengths[lengths == 0] = np.inf
        scaled = products / lengths / lengths[:, None]
        weights = np.linalg.lstsq(scaled, with_residual[self._filled] / lengths, rcond=_RANK)[0]
        weights = weights / lengths
        return weights if self._comm is None else self._comm.bcast(weights, 0)

    def _most(self) -> list[float]:
        """Return the largest residual, residual change, density change, and numbers per site."""
        device, largest = self._flow.device, self._largest
        if self._rows:
            largest = group_sums(device, largest, name="maxima_of_rows")
        largest_squares = device.to_host(largest).max(axis=0, initial=0)
        if self._comm is not None:
            largest_squares = self._comm.allreduce(largest_squares, op=np.maximum)
        most: list[float] = np.sqrt(largest_squares).tolist()
        return most

    def _exact_sums(self) -> list[int]:
        """Return the sums over all rows of all ranks, which are whole numbers."""
        columns = self._sums.shape[1]
        parts = np.zeros((2, columns))
        if self._rows:
            device, groups = self._flow.device, self._sums
            # In two levels, of so few sites that the sums are exact.
            for rows in (ROWS_OF_GROUP, _EXACT_SITES // self._columns // ROWS_OF_GROUP):
                groups = group_sums(device, groups, rows)
            totals = [sum(map(int, column)) for column in device.to_host(groups).T]
            parts[:] = [[one >> _BITS for one in totals], [one % (1 << _BITS) for one in totals]]
        high, low = sum_over_ranks(self._comm, parts)
        return [(int(a) << _BITS) + int(b) for a, b in zip(high, low, strict=True)]

    def _run(self, name: str, *arguments: Any) -> None:
        if not self._rows:
            return
        flow = self._flow
        kernel = flow.device.kernel("steady_vectors.hpp", name, **self._constants)
        sites, stored = flow.sites.count, flow.sites.stored
        launch = RowLaunch(self._rows, self._columns, reduces=True)
        size = self._rows, self._columns, sites, stored
        flow.device.run(kernel.bind(launch, *arguments, *size))


def vectors_that_fit(wanted: int, flow: PoreFlow, comm: Comm, room: int | None = None) -> int:
    """Return for how many vectors there is memory on all devices, at most `wanted`. Collective.

    They take at most half of the free memory, or of `room` if given; 0 if the flow is better not
    accelerated.
    """
    device, sites, one, shape = flow.device, flow.sites.stored, flow.storage, flow.subdomain.shape
    need = np.array([vectors_needed(sites, count, one, shape) for count in range(wanted + 1)])
    share = _SHARE
    if room is not None:
        need[need > max(room, 0)] = _TOO_MUCH
        share = 1.0
    mine = device.identity, int(share * device.memory_free()), need
    everyone = [mine] if comm is None else comm.allgather(mine)
    fits = []
    for identity, free, _ in everyone:
        together = sum(needs for other, _, needs in everyone if other == identity)
        fits.append(int(np.flatnonzero(together <= max(free, 0))[-1]))
    most = min(fits)
    return most if most >= min(_FEWEST, wanted) else 0


def foreseen_vectors(
    wanted: int, sites: int, storage: Storage, shape: Sequence[int], free: int, limit: int | None
) -> int:
    """Return the number of vectors for which an imagined rank has room.

    The limit replaces half of the free memory.
    """
    room = int(_SHARE * free) if limit is None else limit
    needs = (vectors_needed(sites, count, storage, shape) for count in range(1, wanted + 1))
    most = sum(need <= room for need in needs)
    return most if most >= min(_FEWEST, wanted) else 0


def vectors_needed(sites: int, vectors: int, storage: Storage, shape: Sequence[int]) -> int:
    """Return the bytes on the device of an acceleration with some vectors."""
    each = storage.real.itemsize + np.dtype(np.float32).itemsize * (1 + 2 * vectors)
    return sites * _NUMBERS * each + blocks_memory(shape, sites) if vectors else 0
