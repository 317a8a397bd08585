"""The particles of one set: which rank has which, where they begin, and the numbers of a step.

While they move, a rank has the particles in its subdomain; in states and output, they are divided
by identity. Particles on their way are on the host, in messages of MPI: few steps send any, and how
many differs each time, so they need no exchange plan.

The velocity of the fluid along a path is taken as linear in time, through its values at this step
and the one before, and the equations of a particle are solved exactly with it: for tracers that is
the second-order method of Adams and Bashforth, for steps of any size. Drag may be as stiff as it
likes. The first step is one of Euler.

Exact integration of drag: Ireland et al., Int. J. Multiphase Flow 54, 31 (2013).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.case.particle_tables import ParticleSet
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.errors import RunError
from slipstream.spectral.interpolation import TOGETHER
from slipstream.spectral.spectral_problem import SpectralProblem

# Bytes that a rank sends in one round: messages of MPI count them in 32 bits.
_MOST_BYTES = 1 << 28


class ParticleRanks:
    """Who has which places, and which identities."""

    def __init__(self, problem: SpectralProblem, comm: Comm) -> None:
        geometry = problem.geometry
        self._comm = comm
        self.rank, self.count = geometry.rank, len(geometry.physical_boxes)
        sizes = zip(geometry.shape, problem.lengths, strict=True)
        # Numbers of points along z and y, and points per length.
        self._axes = [(n, n / length) for n, length in sizes][:2]
        # The ranks that have points, by plane and row.
        self._owner: Array = np.zeros(geometry.shape[:2], np.int64)
        for rank, box in enumerate(geometry.physical_boxes):
            self._owner[box.start[0] : box.stop[0], box.start[1] : box.stop[1]] = rank

    def of_places(self, places: Array, module: Any = np) -> Array:
        """Return the ranks that have the points at places [x, y, z] in an array of this module."""
        if not module.isfinite(places).all():
            raise RunError(
                "particles: positions are not finite any more; use a smaller time.step, if the flow"
                " has blown up"
            )
        found = []
        for (n, per_length), own in zip(self._axes, (places[2], places[1]), strict=True):
            point = (module.floor(own * per_length) % n).astype(np.int64)
            found.append(module.minimum(point, n - 1))
        if module is not np and isinstance(self._owner, np.ndarray):
            self._owner = module.asarray(self._owner)
        return self._owner[found[0], found[1]]

    def range_of(self, number: int, rank: int | None = None) -> tuple[int, int]:
        """Return the identities of `number` particles that a rank writes, and reads."""
        return split(number, self.count)[self.rank if rank is None else rank]

    def of_identities(self, identity: np.ndarray, number: int) -> np.ndarray:
        """Return the ranks that write identities."""
        starts = np.array([low for low, _ in split(number, self.count)])
        return np.searchsorted(starts, identity, side="right") - 1

    def exchange(
        self, destination: np.ndarray, identity: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send particles of the host to ranks; return the arriving ones, by rank. Collective."""
        comm = self._comm
        if comm is None:
            return identity, values
        order = np.argsort(destination, kind="stable")
        own = len(order) * (len(values) * values.itemsize + identity.itemsize)
        rounds = comm.allreduce(max(1, math.ceil(own / _MOST_BYTES)), op=max)
        came: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.count)]
        for low, high in split(len(order), rounds):
            sent = self._parts(order[low:high], destination, identity, values)
            for rank, one in enumerate(comm.alltoall(sent)):
                if one is not None:
                    came[rank].append(one)
        parts = [one for of_rank in came for one in of_rank]
        if not parts:
            return identity[:0], values[:, :0]
        return (
            np.concatenate([one for one, _ in parts]),
            np.concatenate([one for _, one in parts], axis=1),
        )

    def _parts(
        self, order: np.ndarray, destination: np.ndarray, identity: np.ndarray, values: np.ndarray
    ) -> Sequence[Any]:
        """Return each rank's share of some particles in the order of ranks, None for nothing."""
        ends = np.searchsorted(destination[order], np.arange(self.count + 1))
        parts: list[Any] = [None] * self.count
        for rank, (low, high) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
            if low < high:
                own = order[low:high]
                parts[rank] = identity[own], np.ascontiguousarray(values[:, own])
        return parts


# How many cells a block has along each axis, in whose order particles are sorted for the cache.
_BLOCK = 4
# Particles whose first places are drawn together.
_DRAWN_TOGETHER = 1 << 16


class ParticleState:
    """The particles of one set on this rank.

    Attributes
    ----------
    state : array, shape (6 or 9, capacity)
        Position, driving velocity of the step before and, of inertial ones, velocity; x first.
    identity : array of int64
        The number of each particle.
    count : int
        How many there are here.
    """

    def __init__(self, settings: ParticleSet, device: Device) -> None:
        self.settings, self._device = settings, device
        self.is_inertial = settings.kind == "inertial"
        self.rows = 9 if self.is_inertial else 6
        self.count, self.capacity = 0, 0
        self.state: Array = device.empty((self.rows, 0), np.float64)
        self.identity: Array = device.empty((0,), np.int64)
        # How many there are; how many are so far outside that they have to go to other ranks.
        self.counts = device.zeros((2,), np.int64)
        self.numbers = device.zeros((9,), np.float64)
        # The size of the last step; none before the first, and where the flow has been set.
        self.last_step: float | None = None
        self._numbers_of: tuple[float, float | None] | None = None

    def fill(self, identity: Array, state: Array, spare: float) -> bool:
        """Have these particles, here or on the host; return whether memory is new."""
        device, count = self._device, len(identity)
        grows = count > self.capacity or not self.capacity
        if grows:
            self.capacity = max(TOGETHER, math.ceil(count * (1 + spare)))
            self.state = device.zeros((self.rows, self.capacity), np.float64)
            self.identity = device.zeros((self.capacity,), np.int64)
        if count:
            for target, source in zip(self.state, state, strict=True):
                device.run(device.copy(target[:count], source))
            device.run(device.copy(self.identity[:count], identity))
        self.count = count
        device.run(device.copy(self.counts, np.array([count, 0])))
        device.synchronize()
        return grows

    def set_step(self, step: float) -> None:
        """Set what the next step, of this size, multiplies by."""
        if self._numbers_of != (step, self.last_step):
            one = self.settings
            numbers = step_numbers(step, self.last_step, one.response_time)
            drift = [(one.response_time or 0.0) * g for g in one.gravity]
            self._device.synchronize()
            self._device.run(self._device.copy(self.numbers, np.array([*numbers, *drift])))
            self._device.synchronize()
            self._numbers_of = step, self.last_step
        self.last_step = step

    def sort(self, shape: Sequence[int], lengths: Sequence[float]) -> None:
        """Put particles into the order of Morton of the blocks of cells that they are in.

        What neighbours in this order read lies close together along all axes.
        """
        module = self._device.array_module
        self._device.synchronize()
        key: Any = 0
        for n, length, row in zip(shape, lengths, (2, 1, 0), strict=True):
            cell = module.floor(self.state[row, : self.count] * (n / length)) % n
            key = key + (_spread((cell / _BLOCK).astype(np.int64)) << row)
        order = module.argsort(key)
        for row in (*self.state, self.identity):
            row[: self.count] = row[: self.count][order]
        self._device.synchronize()


def _spread(numbers: Any) -> Any:
    """Return numbers of up to 21 bits with two zeros after each bit."""
    for shift, mask in (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ):
        numbers = (numbers | numbers << shift) & mask
    return numbers


def step_numbers(
    step: float, before: float | None, response_time: float | None
) -> tuple[float, float, float, float, float, float]:
    """Return what a step multiplies velocity, driving velocity and that of before by.

    The first three are for the position, the others for the velocity. The driving velocity N is
    linear in time: N + (t / before) (N - N'), and dv/dt = (N - v) / response_time is exact.
    """
    ratio = step / before if before else 0.0
    if response_time is None:
        return 0.0, step * (1 + ratio / 2), -step * ratio / 2, 0.0, 1.0, 0.0
    z = step / response_time
    decay = math.exp(-z)
    # Integrals of the exponential: (1 - exp(-z)) / z, and what is left of it to next orders.
    first, second, third = (_tail(z, order) for order in (1, 2, 3))
    own, slope = z * second, ratio * z * third
    return (
        step * first,
        step * (own + slope),
        -step * slope,
        decay,
        z * first + ratio * z * second,
        -ratio * z * second,
    )


def _tail(z: float, order: int) -> float:
    """Return sum_n (-z)^n / (n + order)!: of order 1 that is (1 - exp(-z)) / z."""
    if z < 1:
        return math.fsum((-z) ** n / math.factorial(n + order) for n in range(20))
    found = math.exp(-z)
    for lower in range(order):
        found = (1 / math.factorial(lower) - found) / z
    return found


def first_places(settings: ParticleSet, low: int, high: int, lengths: np.ndarray) -> np.ndarray:
    """Return where particles of some identities begin: uniform in the box, or in pairs."""
    pairs = settings.separation is not None
    first, last = (low // 2, -(-high // 2)) if pairs else (low, high)
    places = np.empty((3, last - first))
    directions = np.empty((3, last - first))
    for block in range(first // _DRAWN_TOGETHER, -(-last // _DRAWN_TOGETHER)):
        start = block * _DRAWN_TOGETHER
        random = np.random.default_rng([settings.seed, block])
        own = slice(max(start, first) - start, min(start + _DRAWN_TOGETHER, last) - start)
        part = slice(start + own.start - first, start + own.stop - first)
        places[:, part] = random.random((3, _DRAWN_TOGETHER))[:, own]
        if pairs:
            directions[:, part] = random.standard_normal((3, _DRAWN_TOGETHER))[:, own]
    places *= lengths[:, None]
    if not pairs:
        return places
    directions *= (settings.separation or 0.0) / np.linalg.norm(directions, axis=0)
    both = np.stack([places, places + directions], axis=2).reshape(3, -1)
    return both[:, low - 2 * first : high - 2 * first]
