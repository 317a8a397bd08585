"""Options that several benchmarks have, and what of them goes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.errors import InputError

# Options that mean the same everywhere.
Ranks = Annotated[int | None, typer.Option(metavar="N", min=1, help="Start N MPI ranks.")]
DeviceName = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Repetitions = Annotated[int, typer.Option(min=1, help="Timed runs of each part.")]
Record = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a record.")]
# How arrays on the host stream.
Residency = Annotated[str, typer.Option(help="device, or host: arrays stream through the device.")]
Memory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="What a rank may take of a device: 8 GiB.")
]
Tiles = Annotated[int | None, typer.Option(min=1, help="Tiles of a field.")]
TilesPerExchange = Annotated[int | None, typer.Option(min=1, help="Tiles that are sent together.")]
Streams = Annotated[int, typer.Option(help="0 for the pipeline, or 1 to 16 streams.")]
Copies = Annotated[str, typer.Option(help="memcpy2D, zero-copy or packed.")]
Devices = Annotated[int, typer.Option(min=1, help="GPUs of a rank.")]
Exchange = Annotated[str, typer.Option(help="Send tiles from the host, or from the device.")]
Sweep = Annotated[bool, typer.Option("--sweep", help="Vary how arrays stream.")]


def check_format(path: str | Path | None, option: str = "--plot") -> None:
    """Raise InputError if an option names a file that cannot be a picture; None is no picture."""
    if path is None:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    accepted = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if Path(path).suffix.lstrip(".").lower() not in accepted:
        raise InputError(
            f"{option} {str(path)!r} is no picture; accepted: such as FILE.png, FILE.pdf"
        )


def check_residency(residency: str, streaming: Any, others: Mapping[str, bool]) -> None:
    """Refuse a residency that is none, and options that have no effect.

    Parameters
    ----------
    residency : str
        As asked.
    streaming : Streaming
        How arrays shall stream.
    others : mapping of str to bool
        Which further options for arrays on the host were given.

    Raises
    ------
    InputError
        Naming the first of them.
    """
    if residency not in ("device", "host"):
        raise InputError(f"--residency {residency!r}; accepted: device, host")
    default = type(streaming)()
    changed = {
        f"--{name.replace('_', '-')}": value != getattr(default, name)
        for name, value in asdict(streaming).items()
        if name != "resident"
    }
    given = [name for name, is_given in (changed | others).items() if is_given]
    if residency == "device" and given:
        raise InputError(f"{given[0]} is for --residency host; leave it out, or ask for that")
