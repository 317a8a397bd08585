"""The storage of populations: how much memory each takes, and which is fastest."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slipstream.case.lattice_case import Numerics
from slipstream.engine import tuner
from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device
from slipstream.engine.device_memory import check_memory, swap_bytes
from slipstream.engine.errors import InputError
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.pore_step import SITES_OF_UNIT, stored_sites
from slipstream.lattice.velocity_set import D3Q19, ENCODINGS, PROPAGATIONS, TUNED, Storage
from slipstream.lattice.voxel_fields import BYTES_AT_ONCE

# Directions along which populations bounce back from walls, as bits.
_BYTES_OF_WALLS = 4
# Voxels, their ranks in rows, and a little for tables of rows.
_BYTES_PER_VOXEL = 3.2
# Addresses of a population that is swapped, after each of the two steps of a pair.
_BYTES_OF_ADDRESSES = 16
# Voxels that suffice to tell, and pairs of steps that are timed, after one that is not.
_VOXELS = {"cpu": 1 << 23, "gpu": 1 << 24}
_PAIRS = 3


@dataclass(frozen=True)
class Share:
    """One rank's sites and voxels, and the number of its links to each other rank."""

    sites: int
    voxels: int
    crossing: Mapping[int, int]
    transport: str = "none"


def memory_needed(share: Share, storage: Storage, processor: str) -> int:
    """Return the bytes that a rank needs on its device, "cpu" or "gpu"."""
    item = storage.dtype.itemsize
    stored = stored_sites(share.sites, storage.group, SITES_OF_UNIT[processor])
    arrays = PROPAGATIONS[storage.propagation].arrays
    step = arrays * D3Q19.directions * stored * item
    if swapped := sum(share.crossing.values()):
        step += _BYTES_OF_ADDRESSES * swapped + swap_bytes(share.transport, swapped * item)
    links = ENCODINGS[storage.encoding].bytes_per_site(D3Q19)
    # Links are made from wide ones, which are freed before populations are allocated. Output is
    # made a few planes at a time, which take no more than that.
    wide = ENCODINGS["wide"].bytes_per_site(D3Q19) if storage.encoding != "wide" else 0
    tables = share.sites * (links + _BYTES_OF_WALLS) + share.voxels * _BYTES_PER_VOXEL
    return int(tables + max(share.sites * wide, step))


def memory_with_output(share: Share, storage: Storage, processor: str) -> int:
    """Return the bytes that a rank of a run needs on its device, for output too."""
    field = share.voxels * storage.real.itemsize
    output = min(8 * field, BYTES_AT_ONCE)
    # If the device is the host, it also holds two copies of a field that is written.
    output += 2 * field if processor == "cpu" else 0
    return memory_needed(share, storage, processor) + output


def check_room(
    comm: Comm, device: Device, need: int, precision: object = "", what: str = "this image"
) -> None:
    """Refuse an image if a device lacks `need` bytes of free memory. Collective."""
    less = "a part of it (image.crop)"
    check_memory(comm, [(device, need)], f"image: {what}", less, precision)


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
    if need is None:
        sites = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))
        share = Share(sites, subdomain.box.size, {})
        need = partial(memory_needed, share, processor=device.processor)
    candidates = worth_a_try(wishes, device.processor)
    candidates = storage_candidates(candidates, device, comm, need, is_measured)
    return measured_storage(candidates, subdomain, device, comm)


def measured_storage(
    candidates: list[Storage], subdomain: Subdomain, device: Device, comm: Comm
) -> tuple[Storage, dict[Storage, float]]:
    """Return the fastest candidate, and seconds of a pair of steps of each. Collective."""
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
    candidates: list[Storage],
    device: Device,
    comm: Comm,
    need: Callable[[Storage], int],
    is_measured: bool | None = None,
) -> list[Storage]:
    """Return those of several candidates that `choose_storage` measures, or takes. Collective."""
    if len(candidates) == 1:
        return candidates
    fitting = _that_fit(candidates, need, device, comm)
    if is_measured is None:
        is_measured = device.processor != "cpu"
    return fitting if is_measured else fitting[:1]


def worth_a_try(wishes: dict[str, str], processor: str) -> list[Storage]:
    """Return the storages worth a try that agree with the wishes; if none, all that agree."""
    open_ = [name for name, value in wishes.items() if value == "auto"]
    fixed = {name: value for name, value in wishes.items() if value != "auto"}
    if fixed.get("encoding") == "strips" and processor != "cpu":
        raise InputError(
            "numerics.encoding: 'strips' is for CPUs; accepted on a GPU: auto, compact, wide"
        )
    if not open_:
        return [Storage(**fixed)]
    likely = [
        Storage(**{**candidate, **fixed})
        for candidate in _CANDIDATES[processor]
        if all(fixed.get(name, value) == value for name, value in candidate.items())
    ]
    if likely:
        return likely
    usual = {**Storage().choices, **_CANDIDATES[processor][0]}
    choices = [("compact", "wide") if name == "encoding" else (usual[name],) for name in open_]
    return [
        Storage(**fixed, **dict(zip(open_, values, strict=True)))
        for values in itertools.product(*choices)
    ]


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
    precision = candidates[least].dtype
    check_room(comm, device, int(needs[device.identity][least]), precision)
    return [candidates[least]]


def some_planes(subdomain: Subdomain, voxels: int) -> Subdomain:
    """Return the middle of a subdomain, walled, with about this number of voxels."""
    planes, rows, columns = subdomain.box.shape
    wanted = max(1, min(planes, voxels // max(1, rows * columns)))
    first = (planes - wanted) // 2
    voxels_there = np.zeros((wanted + 2, rows + 2, columns + 2), np.uint8)
    voxels_there[1:-1, 1:-1, 1:-1] = subdomain.own[1 + first : 1 + first + wanted, 1:-1, 1:-1]
    start = (subdomain.box.start[0] + first, *subdomain.box.start[1:])
    box = Box(
        start,
        tuple(a + n for a, n in zip(start, (min(wanted, planes), rows, columns), strict=True)),
    )
    return dataclasses.replace(subdomain, box=box, own=voxels_there, images=[], neighbours={})
