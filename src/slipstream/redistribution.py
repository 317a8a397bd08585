"""Moving an array of the host from one decomposition to another, once and without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box


def redistribute(
    values: np.ndarray, sources: Sequence[Box], targets: Sequence[Box], comm: Any
) -> np.ndarray:
    """Return this rank's part of a distributed array in another decomposition. Collective.

    `values` is this rank's part, of any dtype; each decomposition has one box per rank.
    """
    rank = 0 if comm is None else comm.rank
    source, target = sources[rank], targets[rank]
    values = np.ascontiguousarray(values)
    result = np.empty(target.shape, values.dtype)
    own = source.intersect(target)
    result[own.slices(target)] = values[own.slices(source)]
    if comm is None:
        return result
    outgoing = _Messages(values, source, targets, rank)
    incoming = _Messages(result, target, sources, rank)
    comm.Alltoallw(outgoing.arguments, incoming.arguments)
    outgoing.free()
    incoming.free()
    return result


class _Messages:
    """The parts of an array that the others have, or get, as MPI describes them in place."""

    def __init__(self, array: np.ndarray, box: Box, others: Sequence[Box], rank: int) -> None:
        from mpi4py import MPI

        self._made, types = [], []
        for peer, other in enumerate(others):
            part = box.intersect(other)
            if peer == rank or not part.size:
                types.append(MPI.BYTE)
                continue
            size = array.itemsize
            starts = [where.start for where in part.slices(box)]
            kind = MPI.BYTE.Create_subarray(
                [*box.shape[:-1], box.shape[-1] * size],
                [*part.shape[:-1], part.shape[-1] * size],
                [*starts[:-1], starts[-1] * size],
            )
            self._made.append(kind.Commit())
            types.append(kind)
        counts = [int(kind is not MPI.BYTE) for kind in types]
        self.arguments = [array.view(np.uint8), (counts, [0] * len(others)), types]

    def free(self) -> None:
        for kind in self._made:
            kind.Free()
