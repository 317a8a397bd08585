"""How much memory of a device the tiles of arrays on the host may take, by options or by itself."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from slipstream.engine.accepted import COPIES, MAX_STREAMS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, on_every_rank
from slipstream.engine.device import Device, open_devices
from slipstream.engine.errors import InputError, bytes_of, bytes_text, enough_text, whole_number
from slipstream.engine.exchange import local_rank

# Of the bus, where something happens.
_SIDES = ("host", "device")
# Slots that make a pipeline: one tile on its way in, one worked on, one on its way out.
PIPELINE_SLOTS = 3
# What only transforms, or only the steps of a simulation, have.
_OF_TRANSFORMS = {"exchange"}
_OF_STEPS = {"update", "resident"}


@dataclass(frozen=True)
class Streaming:
    """How arrays on the host stream through devices; results differ by rounding at most.

    `InputError` names an option that is not accepted.

    Attributes
    ----------
    tiles : int or None
        Into how many tiles a pass cuts each field of a rank; None: as many as memory asks for.
    tiles_per_exchange : int or None
        How many tiles are sent together; None: all of a field, or one from a device, in a
        transform, and a quarter of all in a step.
    streams : int
        0 for the pipeline of copies in, work and copies out; 1 to 16 for so many streams, each of
        which does all three for its tiles.
    copies : {"memcpy2D", "zero-copy", "packed"}
        How tiles cross the bus: by the copy engines, by a kernel that reaches the host's memory,
        or gathered by the host's threads. What has arrived on a device from other ranks always
        crosses by the copy engines.
    devices : int
        How many GPUs of its node a rank streams through.
    exchange : {"host", "device"}
        From where ranks exchange the tiles of a transform: the host, or the device that has
        transformed them, for which some tiles that are sent together are on the device at the same
        time.
    update : {"device", "host"}
        Where a step advances modes: with their tile, or on the host's cores, which takes more trips
        over the bus.
    resident : bool
        Whether a step leaves columns on the device, as far as memory allows; false where a rank
        has several devices, or modes are advanced on the host.
    """

    tiles: int | None = None
    tiles_per_exchange: int | None = None
    streams: int = 0
    copies: str = "memcpy2D"
    devices: int = 1
    exchange: str = "host"
    update: str = "device"
    resident: bool = True

    def __post_init__(self) -> None:
        for name in ("tiles", "tiles_per_exchange"):
            if getattr(self, name) is not None:
                self._set(name, whole_number(f"streaming: {name}", getattr(self, name), 1))
        self._set("streams", whole_number("streaming: streams", self.streams, 0, MAX_STREAMS))
        self._set("devices", whole_number("streaming: devices", self.devices, 1))
        for name, accepted in (("copies", COPIES), ("exchange", _SIDES), ("update", _SIDES)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in accepted:
                raise InputError(f"streaming: {name} {value!r}; accepted: {', '.join(accepted)}")
        if self.from_device and self.devices > 1:
            raise InputError(
                f"streaming: exchange 'device' with {self.devices} devices of a rank; accepted: 1"
            )
        if self.devices != 1 or self.update == "host":
            self._set("resident", False)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def slots(self) -> int:
        """How many tiles are on a device at the same time."""
        return self.streams or PIPELINE_SLOTS

    @property
    def lanes(self) -> list[str]:
        """The lanes of a device that do all for their tiles; one without a name: the pipeline."""
        return [f"stream {number}" for number in range(self.streams)] or [""]

    @property
    def from_device(self) -> bool:
        """Whether ranks exchange from device to device."""
        return self.exchange == "device"

    def of_transform(self) -> dict[str, Any]:
        """Return the options that a transform has, by name."""
        return {name: one for name, one in asdict(self).items() if name not in _OF_STEPS}

    def of_step(self) -> dict[str, Any]:
        """Return the options that a step has, by name."""
        return {name: one for name, one in asdict(self).items() if name not in _OF_TRANSFORMS}


DEFAULT = Streaming()


def checked_streaming(value: Streaming | Mapping[str, Any]) -> Streaming:
    """Return a user's options of a streamed transform, or raise `InputError`."""
    if not isinstance(value, Streaming):
        keys = DEFAULT.of_transform()
        if not isinstance(value, Mapping) or not set(value) <= set(keys):
            raise InputError(f"streaming {value!r}; accepted: a mapping with {', '.join(keys)}")
        value = Streaming(**value)
    if value.update != DEFAULT.update:
        raise InputError("streaming: update is for the steps of simulations; leave it out")
    return value


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
        f"least {enough_text(need)}{tiles}"
    )


def _on_all(comm: Comm, said: bool) -> bool:
    return said if comm is None else all(comm.allgather(said))
