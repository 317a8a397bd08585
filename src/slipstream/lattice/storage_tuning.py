"""Which storage to use: the usual one of CPUs, or the fastest, measured on the image itself.

Sums over the pores are made in the order of the storage. So that runs on CPUs have the same bits
each time, nothing is measured there unless it is asked for: likely storages differ by some
percent.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream import tuner
from slipstream.array_types import Comm
from slipstream.case.lattice_case import Numerics
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.lattice_memory import Share, check_room, memory_needed
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow

# What is worth a try on each kind of device, with any propagation, the usual winner first.
_CANDIDATES = {
    "cpu": [
        {"layout": "stream", "order": "raster", "encoding": "strips"},
        {"layout": "stream", "order": "row-tiles", "encoding": "strips"},
    ],
    "gpu": [
        {"layout": layout, "order": order, "encoding": encoding}
        for layout, order, encoding in (
            ("vector-collision", "raster", "compact"),
            ("vector-collision", "row-tiles", "compact"),
            ("vector-collision", "row-tiles", "wide"),
            ("stream", "raster", "compact"),
            ("stream", "raster", "wide"),
        )
    ],
}
_PROPAGATION = "aa"
# Voxels that suffice to tell, and pairs of steps that are timed, after one that is not.
_VOXELS = {"cpu": 1 << 23, "gpu": 1 << 24}
_PAIRS = 3


def choose_storage(
    wishes: dict[str, str],
    subdomain: Subdomain,
    device: Device,
    comm: Comm = None,
    need: Callable[[Storage], int] | None = None,
    is_measured: bool | None = None,
) -> tuple[Storage, dict[Storage, float]]:
    """Return the storage to use, and seconds of a pair of steps of those measured. Collective.

    `wishes` are arguments of `Storage`; "auto" stands for whatever is fastest if that `is_measured`
    (by default not on CPUs), or else for the usually fastest one. Nothing is measured without a
    choice. `need` gives the bytes that this rank's run needs on its device, by default those of the
    flow; if memory suffices for no choice, InputError says so on all ranks before anything is
    allocated.
    """
    candidates = storage_candidates(wishes, subdomain, device, comm, need, is_measured)
    if len(candidates) == 1:
        return candidates[0], {}
    part = some_planes(subdomain, _VOXELS[device.processor])

    def prepare(storage: Storage) -> Callable[[], None]:
        flow = PoreFlow(part, Fluid(), storage, device)

        def pair() -> None:
            flow.advance(2)
            flow.synchronize()

        return pair

    times = tuner.measure(lambda _: candidates, prepare, comm, repetitions=_PAIRS)
    return times.best(), times


def storage_wishes(numerics: Numerics) -> dict[str, str]:
    """Return the settings of a case of how populations are stored."""
    return {name: getattr(numerics, name) for name in (*TUNED, "precision")}


def storage_candidates(
    wishes: dict[str, str],
    subdomain: Subdomain,
    device: Device,
    comm: Comm = None,
    need: Callable[[Storage], int] | None = None,
    is_measured: bool | None = None,
) -> list[Storage]:
    """Return the candidates of `choose_storage`: worth a try, and within memory. Collective."""
    candidates = worth_a_try(wishes, device.processor)
    if len(candidates) == 1:
        return candidates
    fitting = _that_fit(candidates, need or _flow_need(subdomain, device.processor), device, comm)
    if is_measured is None:
        is_measured = device.processor != "cpu"
    return fitting if is_measured else fitting[:1]


def worth_a_try(wishes: dict[str, str], processor: str) -> list[Storage]:
    """Return the storages worth a try that agree with the wishes; if none, all that agree."""
    open_ = [name for name, value in wishes.items() if value == "auto"]
    fixed = {name: value for name, value in wishes.items() if value != "auto"}
    if fixed.get("encoding") == "strips" and processor != "cpu":
        raise InputError("encoding 'strips' is for CPUs; accepted on a GPU: auto, compact, wide")
    if not open_:
        return [Storage(**fixed)]
    likely = [
        Storage(**{"propagation": _PROPAGATION, **candidate, **fixed})
        for candidate in _CANDIDATES[processor]
        if all(fixed.get(name, value) == value for name, value in candidate.items())
    ]
    if likely:
        return likely
    usual = {"propagation": _PROPAGATION, "precision": "float64", **_CANDIDATES[processor][0]}
    choices = [("compact", "wide") if name == "encoding" else (usual[name],) for name in open_]
    return [
        Storage(**fixed, **dict(zip(open_, values, strict=True)))
        for values in itertools.product(*choices)
    ]


def _flow_need(subdomain: Subdomain, processor: str) -> Callable[[Storage], int]:
    sites = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))
    share = Share(sites, subdomain.box.size, {})
    return lambda storage: memory_needed(share, storage, processor)


def _that_fit(
    candidates: list[Storage], need: Callable[[Storage], int], device: Device, comm: Comm
) -> list[Storage]:
    """Return those for which memory suffices; refuse if it does for none. Collective."""
    mine = device.identity, device.memory_free(), np.array([need(one) for one in candidates])
    everyone = [mine] if comm is None else comm.allgather(mine)
    needs: dict[Any, Any] = {identity: 0 for identity, _, _ in everyone}
    for identity, _, own in everyone:
        needs[identity] = needs[identity] + own
    fits = np.all([needs[identity] <= free for identity, free, _ in everyone], axis=0)
    if fits.any():
        return list(itertools.compress(candidates, fits))
    least = int(np.argmin(sum(needs.values())))
    check_room(comm, device, int(needs[device.identity][least]))
    return [candidates[least]]


def some_planes(subdomain: Subdomain, voxels: int) -> Subdomain:
    """Return the middle of a subdomain, walled, with about so many voxels."""
    planes, rows, columns = subdomain.box.shape
    wanted = max(1, min(planes, voxels // max(1, rows * columns)))
    first = (planes - wanted) // 2
    own = np.zeros((wanted + 2, rows + 2, columns + 2), np.uint8)
    own[1:-1, 1:-1, 1:-1] = subdomain.own[1 + first : 1 + first + wanted, 1:-1, 1:-1]
    start = (subdomain.box.start[0] + first, *subdomain.box.start[1:])
    box = Box(
        start,
        tuple(a + n for a, n in zip(start, (min(wanted, planes), rows, columns), strict=True)),
    )
    return dataclasses.replace(subdomain, box=box, own=own, images=[], neighbours={})
