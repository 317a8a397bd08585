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

# The sides of the bus.
_SIDES = ("host", "device")
# Slots of a pipeline: one tile is copied in, one processed, and one copied out.
PIPELINE_SLOTS = 3
# Options of transforms only, and of steps only.
_OF_TRANSFORMS = {"exchange"}
_OF_STEPS = {"update", "resident"}
# The fraction of the free memory for our arrays; the rest is for libraries.
USABLE = 0.9
# More bytes than any device has.
NO_LIMIT = 1 << 62
# Bytes of a tile that keep the bus busy.
_TILE = 128 << 20
# Tiles that keep a pipeline filled.
_FEWEST = 8

T = TypeVar("T")


@dataclass(frozen=True)
class Streaming:
    """How arrays on the host stream through devices; results differ by rounding at most.

    `InputError` names an option that is not accepted.

    Attributes
    ----------
    tiles : int or None
        Number of tiles into which a pass cuts a rank's part of each field; None: the fewest that
        fit in memory.
    tiles_per_exchange : int or None
        Number of tiles that are sent together. None: in a transform all tiles of a field, or one
        from the device; in a step a quarter of all tiles.
    streams : int
        0 for the pipeline of copies in, work and copies out; 1 to 16 for that number of streams:
        each does all three for its tiles.
    copies : {"memcpy2D", "zero-copy", "packed"}
        How tiles cross the bus: by the copy engines, by a kernel that accesses the host's memory,
        or gathered by the host's threads. Data from other ranks always cross from the device by
        the copy engines.
    devices : int
        Number of GPUs of its node that a rank streams through.
    exchange : {"host", "device"}
        From where ranks exchange the tiles of a transform: the host, or the device that has
        transformed them. The device then holds all tiles that are sent together.
    update : {"device", "host"}
        Where a step advances modes: with their tile, or on the host's cores, with more copies over
        the bus.
    resident : bool
        Whether a step keeps columns on the device, as far as memory allows; false if a rank has
        several devices, or the host advances modes.
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
        """Number of tiles on a device at the same time."""
        return self.streams or PIPELINE_SLOTS

    @property
    def lanes(self) -> list[str]:
        """The names of lanes that do all work of their tiles; one empty name: the pipeline."""
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


class TooLittleMemory(Exception):
    """The limit does not allow it."""


def devices_of(device: Device, comm: Comm, count: int) -> list[Device]:
    """Return `count` devices: this rank's and the next ones of its node. Collective."""
    if count == 1:
        return [device]
    local = local_rank(comm)
    return on_every_rank(comm, lambda: open_devices(device, local, count))


def memory_limit(devices: Sequence[Device], memory: int | str | None, comm: Comm) -> int:
    """Return the bytes that this rank may allocate on each of its devices. Collective.

    They are the user's limit, or this rank's share of the free memory.
    """
    identities = [device.identity for device in devices]
    everyone = identities if comm is None else list(itertools.chain(*comm.allgather(identities)))
    if memory is not None:
        return on_every_rank(comm, lambda: bytes_of(memory, "memory"))
    shares = (device.memory_free() / everyone.count(device.identity) for device in devices)
    return int(USABLE * min(shares))


def fits_on_all(comm: Comm, need: int, limit: int) -> bool:
    """Return whether all ranks need at most their limit. Collective."""
    return _on_all(comm, need <= limit)


def fewest_tiles(
    comm: Comm,
    counts: Sequence[int],
    limit: int,
    size: Callable[[int], int],
    make: Callable[[int, int], T],
) -> tuple[T, int] | None:
    """Return the object with the fewest tiles for which all ranks have memory. Collective.

    `counts` grow. `size(count)` is the memory of tiles without a library's work area: that is known
    only after slow planning. `make(count, limit)` raises `TooLittleMemory` if they need more. None
    if no number fits; `InputError` on all ranks if a device has less memory than it reported.
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
        result = None  # frees its memory before the next attempt
    return None


def tile_counts(
    size: int, longest: int, most: int, asked: int | None, in_long_runs: int
) -> Iterator[int]:
    """Yield numbers of tiles to try for `size` bytes, in increasing order.

    There are at most `most` tiles; beyond `longest` they are of another kind. A number `asked` by
    the user is the only one. The first tiles are large enough to keep the bus busy, and not more
    than are copied `in_long_runs`.
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
    """Return the refusal of a limit, given under a key, that is less than the need."""
    return InputError(
        f"{key} {bytes_text(limit)} on each device is too little for this {what}; it takes at "
        f"least {enough_text(need)}{tiles}"
    )


def _on_all(comm: Comm, said: bool) -> bool:
    return said if comm is None else all(comm.allgather(said))
