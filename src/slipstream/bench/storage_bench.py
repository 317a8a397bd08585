"""The rates of a folder's file system while all ranks write, and read, a file each.

Files are written as runs write them: as a whole, under another name, flushed. What is read has been
dropped from the memory of the host where the system does that; where it does not, nothing is said
of reading. What servers or disks keep in memory of their own cannot be told from what they store.
"""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import largest, on_every_rank, on_first_rank
from slipstream.io.durable_files import (
    errors_name,
    flush_file,
    flush_folder,
    replace_file,
)

# Bytes of a rank's file, of all files at most as a share of what is free, and of what is read at
# once; small files of a rank; and how often everything is done.
_FILE, _SHARE, _PIECE = 256 << 20, 0.05, 4 << 20
_SMALL_FILES, _REPETITIONS = 32, 3
# Places in a file that are looked at to see whether it is in memory.
_PROBES = 16


def storage_rates(folder: Path, comm: Comm, ranks_of_node: int) -> dict[str, float]:
    """Return what a node writes and reads, and what a file takes, as `Storage` has it. Collective.

    Ranks read what others have written, of another node if there are several.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    place = Path(on_first_rank(comm, lambda: _made(folder)))
    try:
        free = on_first_rank(comm, lambda: shutil.disk_usage(place).free)
        size = max(_PIECE, int(min(_FILE, _SHARE * free / ranks)) // _PIECE * _PIECE)
        # Nothing makes less of noise.
        content = np.random.default_rng(rank).bytes(size)
        own, other = place / f"{rank}", place / f"{(rank + ranks_of_node) % ranks}"
        writing, reading, were_read = [], [], True
        for _ in range(_REPETITIONS):
            on_every_rank(comm, lambda: own.unlink(missing_ok=True))
            writing.append(_slowest(comm, lambda: _write(own, content)))
            on_every_rank(comm, lambda: _forget(own))
            were_read = were_read and not largest(comm, int(_is_in_memory(other)))
            reading.append(_slowest(comm, lambda: _read(other)))
        small = _slowest(comm, lambda: _write_small(place, rank))
    finally:
        if rank == 0:
            shutil.rmtree(place, ignore_errors=True)
    of_node = 1e-9 * size * min(ranks, ranks_of_node)
    found = {"node_write_gb_per_s": of_node / statistics.median(writing)}
    if were_read:
        found["node_read_gb_per_s"] = of_node / statistics.median(reading)
    return {**found, "file_ms": 1e3 * small / _SMALL_FILES}


def _made(folder: Path) -> str:
    absolute = folder.absolute()
    there = next(one for one in (absolute, *absolute.parents) if one.is_dir())
    with errors_name(there):
        return tempfile.mkdtemp(prefix=".slipstream-storage-", dir=there)


def _slowest(comm: Comm, do: Callable[[], None]) -> float:
    """Return the seconds until all ranks have done something that they begin together."""

    def timed() -> float:
        began = time.perf_counter()
        do()
        return time.perf_counter() - began

    if comm is not None:
        comm.Barrier()
    return largest(comm, on_every_rank(comm, timed))


def _write(path: Path, content: bytes) -> None:
    replace_file(path, content)
    flush_file(path)


def _write_small(place: Path, rank: int) -> None:
    for number in range(_SMALL_FILES):
        _write(place / f"{rank}.{number}", b"0" * 4096)
    flush_folder(place)


def _forget(path: Path) -> None:
    """Drop a file, which has been flushed, from this host's memory."""
    with errors_name(path), path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _is_in_memory(path: Path) -> bool:
    """Return whether parts of a file are read without waiting, or that cannot be told."""
    with errors_name(path), path.open("rb") as file:
        size, byte = os.fstat(file.fileno()).st_size, bytearray(1)
        # From the end: to read a part makes the system read what follows.
        for number in reversed(range(_PROBES)):
            try:
                os.preadv(file.fileno(), [byte], number * size // _PROBES, os.RWF_NOWAIT)
                return True
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    # The file system does not tell: its files may be in memory, as those of tmpfs.
                    return True
    return False


def _read(path: Path) -> None:
    with errors_name(path), path.open("rb", buffering=0) as file:
        while file.read(_PIECE):
            pass
