"""Options of arrays on the host that stream through devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slipstream.accepted import COPIES, MAX_STREAMS
from slipstream.argument_checks import whole_number
from slipstream.errors import InputError

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
