"""How much memory a subdomain needs, computed before anything is allocated.

It is a sum over sites, voxels and links to other ranks: it chooses between ways to store
populations, before the links of the pores are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.flow_snapshot import BYTES_AT_ONCE
from slipstream.lattice.population_layout import ENCODINGS, PROPAGATIONS, Storage
from slipstream.lattice.pore_sites import SITES_OF_UNIT, stored_sites
from slipstream.simulation.device_memory import check_memory, swap_bytes

# Directions along which populations bounce back from walls, as bits.
_BYTES_OF_WALLS = 4
# Voxels, their ranks in rows, and a little for tables of rows.
_BYTES_PER_VOXEL = 3.2
# Addresses of a population that is swapped, after each of the two steps of a pair.
_BYTES_OF_ADDRESSES = 16


@dataclass(frozen=True)
class Share:
    """What one rank has: sites among voxels, and how many links lead to each other rank."""

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


def check_room(comm: Comm, device: Device, need: int) -> None:
    """Refuse an image if a device lacks `need` bytes of free memory. Collective."""
    what, less = "image: this image", "a part of it (image.crop)"
    check_memory(comm, [(device, need)], what, less)
