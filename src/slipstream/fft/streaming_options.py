"""What may be chosen where arrays on the host stream through devices."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import InputError
from slipstream.fft.fft_arguments import whole_number
from slipstream.fft.host_device_copy import COPIES


@dataclass(frozen=True)
class TileStreaming:
    """How tiles stream through devices: no choice changes the result.

    Attributes
    ----------
    tiles : int or None
        Into how many tiles a pass cuts each field of a rank; None: as many as memory asks for.
    tiles_per_exchange : int or None
        How many tiles are sent together; None: see those who exchange.
    streams : int
        0 for the pipeline of copies in, transforms and copies out; 1 to 16 for so many streams,
        each of which does all three for its tiles.
    copies : {"memcpy2D", "zero-copy", "packed"}
        How tiles cross the bus, see `host_device_copy`; what has arrived on a device from
        other ranks always crosses by the copy engines.
    devices : int
        How many GPUs of its node a rank streams through.
    """

    tiles: int | None = None
    tiles_per_exchange: int | None = None
    streams: int = 0
    copies: str = "memcpy2D"
    devices: int = 1

    def check(self) -> None:
        """Refuse what cannot be.

        Raises
        ------
        InputError
            If a value is not among those accepted.
        """
        for name in ("tiles", "tiles_per_exchange"):
            if getattr(self, name) is not None:
                whole_number(f"streaming: {name}", getattr(self, name), 1)
        whole_number("streaming: streams", self.streams, 0, 16)
        whole_number("streaming: devices", self.devices, 1)
        if self.copies not in COPIES:
            raise InputError(f"streaming: copies {self.copies!r}; accepted: {', '.join(COPIES)}")


@dataclass(frozen=True)
class Streaming(TileStreaming):
    """How transforms of arrays on the host stream: what `TileStreaming` says, and exchanges.

    All tiles of a field are sent together, or one from a device, unless a number is given.

    Attributes
    ----------
    exchange : {"host", "device"}
        From where ranks exchange tiles: the host, or the device that has transformed them, for
        which some tiles that are sent together are on the device at the same time.
    """

    exchange: str = "host"

    @property
    def from_device(self) -> bool:
        """Whether ranks exchange from device to device."""
        return self.exchange == "device"

    def check(self) -> None:
        """Refuse what cannot be, as `TileStreaming.check` does."""
        super().check()
        if self.exchange not in ("host", "device"):
            raise InputError(f"streaming: exchange {self.exchange!r}; accepted: host, device")
        if self.from_device and self.devices > 1:
            raise InputError(
                f"streaming: exchange 'device' with {self.devices} devices of a rank; accepted: 1"
            )
