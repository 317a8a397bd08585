"""Which devices a rank streams through, and what it may take of their memory."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from slipstream.array_types import Comm
from slipstream.byte_sizes import bytes_of, bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.device import Device, open_devices
from slipstream.errors import InputError
from slipstream.exchange import local_rank

# The fraction of the free memory that our arrays may take; the rest is for libraries.
USABLE = 0.9
# More bytes than any device has.
NO_LIMIT = 1 << 62

# Bytes of a tile that keep the bus busy, and tiles that keep a pipeline filled.
_TILE, _FEWEST = 128 << 20, 8

T = TypeVar("T")


class TooLittleMemory(Exception):
    """The limit does not allow it."""


def devices_of(device: Device, comm: Comm, count: int) -> list[Device]:
    """Return this rank's device and the next ones of its node, so many in all. Collective."""
    if count == 1:
        return [device]
    local = local_rank(comm)
    return on_every_rank(comm, lambda: open_devices(device, local, count))


def memory_limit(devices: Sequence[Device], memory: int | str | None, comm: Comm) -> int:
    """Return how many bytes this rank may take on each of its devices. Collective.

    That is the limit that the user allows each rank, or its share of the free memory.
    """
    mine = [one.identity for one in devices]
    everyone = mine if comm is None else list(itertools.chain(*comm.allgather(mine)))
    if memory is not None:
        return on_every_rank(comm, lambda: bytes_of(memory, "memory"))
    shares = (one.memory_free() / everyone.count(one.identity) for one in devices)
    return int(USABLE * min(shares))


def fits_on_all(comm: Comm, need: int, limit: int) -> bool:
    """Return whether every rank may take what it needs. Collective."""
    return _on_all(comm, need <= limit)


def fewest_tiles(
    comm: Comm,
    counts: Sequence[int],
    limit: int,
    size: Callable[[int], int],
    make: Callable[[int, int], T],
) -> tuple[T, int] | None:
    """Return the object with the fewest tiles for which all ranks have memory. Collective.

    `counts` grow. What so many tiles take has this `size`, but for what a library needs to work in:
    that is known when it has planned, which takes its time. `make(count, limit)` raises
    `TooLittleMemory` where the limit does not allow a number. None if no number fits.

    Raises
    ------
    InputError
        On all ranks, if a device of any has less than it said.
    """

    def made(count: int) -> T | None:
        try:
            return make(count, limit)
        except TooLittleMemory:
            return None

    possible = bisect.bisect_left(counts, True, key=lambda count: size(count) <= limit)
    for count in counts[largest(comm, possible) :]:
        result = on_every_rank(comm, partial(made, count))
        fits = _on_all(comm, result is not None)
        if result is not None and fits:
            return result, count
        result = None  # frees what it took before the next attempt
    return None


def tile_counts(
    size: int, longest: int, most: int, asked: int | None, in_long_runs: int
) -> Iterator[int]:
    """Yield numbers of tiles to try for so many bytes, more of them when fewer do not fit.

    There cannot be more than `most`, and beyond `longest` tiles are of another kind. A number that
    the user has asked for is the only one. The fewest are those of a size that keeps the bus busy,
    but no more than are copied `in_long_runs`.
    """
    if asked is not None:
        yield min(asked, most)
        return
    count = max(_FEWEST, min(-(-size // _TILE), in_long_runs))
    for last in sorted({longest, most}):
        while count < last:
            yield count
            count = max(count + 1, count * 5 // 4)
        yield last
        count = last + 1


def too_little(key: str, limit: int, what: str, need: int, tiles: str = "") -> InputError:
    """Return the refusal of a limit, given under a key, that is less than what something needs."""
    return InputError(
        f"{key} {bytes_text(limit)} on each device is too little for this {what}; it takes at "
        f"least {math.ceil(need / 2**20)} MiB{tiles}"
    )


def _on_all(comm: Comm, said: bool) -> bool:
    return said if comm is None else all(comm.allgather(said))
