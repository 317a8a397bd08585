"""How much memory a portion needs, before anything is allocated."""

from __future__ import annotations

from typing import Any

from slipstream.device import Device
from slipstream.lattice.d3q19 import DIRECTIONS
from slipstream.lattice.population_layout import Storage
from slipstream.simulation.device_memory import check_memory

# Bytes of the links of a site, when all is set up; while links are made, all of them are wide too.
_LINKS = {"wide": 72.0, "compact": 20.2, "strips": 40.0}
_WIDE = 72.0
# Voxels, their ranks in rows, and a little for tables of rows.
_BYTES_PER_VOXEL = 3.2


def memory_needed(sites: int, voxels: int, storage: Storage) -> int:
    """Return the bytes that a rank needs on its device.

    Parameters
    ----------
    sites, voxels : int
        Pores and voxels of the rank's box.
    storage : Storage
        How populations are stored.
    """
    arrays = 2 if storage.propagation == "two-lattice" else 1
    populations = arrays * DIRECTIONS * storage.dtype.itemsize
    links = _LINKS[storage.encoding]
    making = _WIDE if storage.encoding != "wide" else 0
    # Wide links are gone before populations come; fields are made in pieces no larger than those.
    return int(sites * (links + max(making, populations)) + voxels * _BYTES_PER_VOXEL)


def check_room(comm: Any, device: Device, need: int) -> None:
    """Make sure that what an image needs can be allocated. Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        The ranks.
    device : Device
        This rank's device, or its host.
    need : int
        Bytes that all ranks which share it need on it.

    Raises
    ------
    InputError
        On all ranks, if the free memory of any device does not suffice.
    """
    what, less = "image: this image", "a part of it (image.crop)"
    check_memory(comm, [(device, need)], what, less)
