"""Whether a simulation fits into the free memory of its devices, which ranks may share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.errors import InputError


def ranks_per_device(comm: Comm, device: Device) -> int:
    """Return how many ranks share this rank's device. Collective."""
    if comm is None:
        return 1
    return comm.allgather(device.identity).count(device.identity)


def check_memory(
    comm: Comm,
    needs: Sequence[tuple[Device, int]],
    what: str = "grid.points: this grid",
    less: str = "fewer points",
) -> None:
    """Refuse on all ranks what does not fit into the free memory of some device. Collective.

    Parameters
    ----------
    needs : sequence of (Device, int)
        This rank's devices, and the bytes that all ranks which share one need on it.
    what, less : str
        What needs the memory, beginning with its key in the case, and what would need less.
    """
    mine = [(one.identity, one.kind, one.name, need, one.memory_free()) for one, need in needs]
    everyone = [mine] if comm is None else comm.allgather(mine)
    facts = list(itertools.chain(*everyone))
    for _, kind, name, need, free in facts:
        if need <= free:
            continue
        alike = {identity: one for identity, other, _, one, _ in facts if other == kind}
        enough = math.ceil(sum(alike.values()) / max(1, free))
        raise InputError(
            f"{what} needs {need / 2**30:.3g} GiB on {name}, of which {free / 2**30:.3g} GiB are "
            f"free; use {less}, more ranks on more devices (about {enough} like this one in all), "
            'or numerics.precision = "float32"'
        )
