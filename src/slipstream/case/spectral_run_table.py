"""``[run]`` of the spectral family: where fields are, and how they stream from the host."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from slipstream.byte_sizes import bytes_of
from slipstream.case.common_tables import Run, Table
from slipstream.errors import InputError


class SpectralStreaming(Table):
    """``run.streaming``: how fields on the host stream; results do not depend on it.

    Attributes
    ----------
    tiles : int or None
        Into how many tiles a pass cuts what a rank has; as many as memory asks for by default.
    tiles_per_exchange : int or None
        After how many tiles of planes ranks exchange; by default in four parts.
    streams : int
        0 for a pipeline of copies in, work and copies out; 1 to 16 for streams that do all three.
    copies : {"memcpy2D", "zero-copy", "packed"}
        How tiles cross the bus.
    devices : int
        How many GPUs of its node a rank streams through.
    update : {"device", "host"}
        Where modes are advanced: with their tile, or on the host's cores.
    resident : bool
        Whether columns stay on the device, as far as memory allows. None do where a rank has
        several devices, or modes are advanced on the host.
    """

    tiles: Annotated[int, Field(ge=1)] | None = None
    tiles_per_exchange: Annotated[int, Field(ge=1)] | None = None
    streams: Annotated[int, Field(ge=0, le=16)] = 0
    copies: Literal["memcpy2D", "zero-copy", "packed"] = "memcpy2D"
    devices: Annotated[int, Field(ge=1)] = 1
    update: Literal["device", "host"] = "device"
    resident: bool = True


class SpectralRun(Run):
    """``[run]`` of the spectral family.

    Attributes
    ----------
    residency : {"device", "host", "auto"}
        Where the fields are: on the device, or on the host, from which they stream through it;
        "auto" takes the device if they fit there.
    memory : int, str or None
        What each rank may take of each of its devices, if the fields are on the host: bytes, or
        text such as "8 GiB"; by default its share of what is free.
    streaming : SpectralStreaming or None
        How fields on the host stream.
    schedule : {"overlap", "serial"}
        Whether communication hides behind computation; both give identical bits.
    transport : {"auto", "mpi-p2p", "mpi", "nccl"}
        How ranks exchange data.
    """

    schedule: Literal["overlap", "serial"] = "overlap"
    transport: Literal["auto", "mpi-p2p", "mpi", "nccl"] = "auto"
    residency: Literal["device", "host", "auto"] = "device"
    memory: int | str | None = None
    streaming: SpectralStreaming | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _is_a_size(cls, memory: Any) -> Any:
        try:
            if memory is not None:
                bytes_of(memory if isinstance(memory, int | str) else "")
        except InputError as error:
            raise ValueError(str(error)) from None
        return memory

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        for name in ("memory", "streaming"):
            if self.residency == "device" and getattr(self, name) is not None:
                raise ValueError(f'\'{name}\' goes with residency "host" or "auto"')
        if self.residency != "device" and self.transport == "nccl":
            raise ValueError(
                f"transport 'nccl' exchanges between GPUs; with residency '{self.residency}' "
                "accepted: auto, mpi-p2p, mpi"
            )
        return self
