"""How much memory a subdomain needs, computed before anything is allocated.

Populations, and what a rank exchanges, are those of a pair of steps that is only noted. The rest is
a sum over sites and voxels: it chooses between ways to store populations, and links depend on the
pores, which of a large image in a forecast are only counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.device.noting_device import NotingDevice
from slipstream.exchange import RankPlace, Transport
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.flow_snapshot import BYTES_AT_ONCE
from slipstream.lattice.neighbour_tables import AlignedUnits, Links
from slipstream.lattice.population_layout import ENCODINGS, PROPAGATIONS, Storage
from slipstream.lattice.pore_sites import stored_sites, unit_of
from slipstream.lattice.pore_step import PoreStep, SwappedSites
from slipstream.lattice.velocity_set import VelocitySet
from slipstream.simulation.device_memory import MakeTransport, check_memory, noted_memory

# Directions along which populations bounce back from walls, as bits.
_BYTES_OF_WALLS = 4
# Voxels, their ranks in rows, and a little for tables of rows.
_BYTES_PER_VOXEL = 3.2


@dataclass(frozen=True)
class Share:
    """What one rank has: so many sites in so many voxels, and links to sites of other ranks.

    The transport is that of the exchange of all ranks; `rank` is this one.
    """

    sites: int
    voxels: int
    crossing: Mapping[int, int]
    rank: RankPlace = RankPlace(0, 1, 1)
    transport: str = "none"


def memory_needed(share: Share, storage: Storage, processor: str) -> int:
    """Return the bytes that a rank needs on its device, "cpu" or "gpu"."""

    def make(make_transport: MakeTransport) -> PoreStep:
        device = NotingDevice("cpu" if processor == "cpu" else "cuda")
        transport = make_transport(share.transport if share.crossing else "none", device)
        return noted_step(share, storage, device, transport, "overlap")

    step = noted_memory(make, share.rank)["host" if processor == "cpu" else "device"]
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


def noted_step(
    share: Share,
    storage: Storage,
    device: NotingDevice,
    transport: Transport | None,
    policy: str,
) -> PoreStep:
    """Return the pair of steps of a rank on a device that notes."""
    sites = _NumberedSites(device, stored_sites(share.sites, storage.group, unit_of(device)))
    units = AlignedUnits(sites, storage, ())
    arrays = [
        device.empty((D3Q19.directions, sites.stored), storage.dtype)
        for _ in range(PROPAGATIONS[storage.propagation].arrays)
    ]
    swapped = sum(share.crossing.values())
    return PoreStep(
        Links(units, units, ENCODINGS[storage.encoding].bytes_per_site(D3Q19)),
        [arrays[0], arrays[-1]],
        storage,
        device,
        # Which sites they are is not known; it makes no difference to what all of them move.
        SwappedSites(
            np.arange(min(swapped, share.sites)),
            device.empty((swapped,), np.int64),
            dict(share.crossing),
        ),
        share.rank.rank,
        transport,
        policy,
    )


@dataclass(frozen=True)
class _NumberedSites:
    """The sites of steps that are only noted, without links."""

    device: NotingDevice
    stored: int
    velocity_set: VelocitySet = D3Q19


def check_room(comm: Comm, device: Device, need: int) -> None:
    """Refuse an image if a device lacks `need` bytes of free memory. Collective."""
    what, less = "image: this image", "a part of it (image.crop)"
    check_memory(comm, [(device, need)], what, less)
