"""Which rank has which particles: by place while they move, by identity in states and output.

Particles on their way are on the host, in messages of MPI. An exchange plan knows beforehand how
much goes to whom, and few steps send particles; how many differs each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.decomposition import split
from slipstream.errors import RunError
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
        """Return what each rank gets of some particles in the order of ranks, None for nothing."""
        ends = np.searchsorted(destination[order], np.arange(self.count + 1))
        parts: list[Any] = [None] * self.count
        for rank, (low, high) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
            if low < high:
                own = order[low:high]
                parts[rank] = identity[own], np.ascontiguousarray(values[:, own])
        return parts
