"""How much memory a subdomain needs, computed before anything is allocated.

It is a sum over sites and voxels, not what a noted flow allocates as in other families: it chooses
between ways to store populations, and their links depend on the pores, which of a large image in a
forecast are only counted.
"""

from __future__ import annotations

from slipstream.array_types import Comm
from slipstream.device import Device
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.flow_snapshot import BYTES_AT_ONCE
from slipstream.lattice.population_layout import ENCODINGS, PROPAGATIONS, Storage
from slipstream.lattice.velocity_set import VelocitySet
from slipstream.simulation.device_memory import check_memory

# Directions along which populations bounce back from walls, as bits.
_BYTES_OF_WALLS = 4
# Voxels, their ranks in rows, and a little for tables of rows.
_BYTES_PER_VOXEL = 3.2


def memory_needed(
    sites: int, voxels: int, storage: Storage, velocity_set: VelocitySet = D3Q19
) -> int:
    """Return the bytes that a rank needs on its device."""
    arrays = PROPAGATIONS[storage.propagation].arrays
    populations = arrays * velocity_set.directions * storage.dtype.itemsize
    links = ENCODINGS[storage.encoding].bytes_per_site(velocity_set)
    # Links are made from wide ones, which are freed before populations are allocated. Output is
    # made a few planes at a time, which take no more than that.
    wide = ENCODINGS["wide"].bytes_per_site(velocity_set) if storage.encoding != "wide" else 0
    per_site = links + max(wide, populations) + _BYTES_OF_WALLS
    return int(sites * per_site + voxels * _BYTES_PER_VOXEL)


def memory_with_output(sites: int, voxels: int, storage: Storage, processor: str) -> int:
    """Return the bytes that a rank of a run needs on its device, "cpu" or "gpu", for output too."""
    field = voxels * storage.real.itemsize
    output = min(8 * field, BYTES_AT_ONCE)
    # If the device is the host, it also holds two copies of a field that is written.
    return memory_needed(sites, voxels, storage) + output + (2 * field if processor == "cpu" else 0)


def check_room(comm: Comm, device: Device, need: int) -> None:
    """Refuse an image if a device lacks `need` bytes of free memory. Collective."""
    what, less = "image: this image", "a part of it (image.crop)"
    check_memory(comm, [(device, need)], what, less)
