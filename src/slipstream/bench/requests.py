"""What benchmarks are asked: a request for each command, whose fields are the command's options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from typer import Option

from slipstream.byte_sizes import bytes_of
from slipstream.errors import InputError

Shape: TypeAlias = tuple[int, int, int]
# Each message is so many times as large as the one before; its elements have so many bytes.
FACTOR, ELEMENT_SIZE = 4, 8


def parse_shape(text: str) -> Shape:
    """Return a shape from ``N`` or three comma-separated numbers in the order of the arrays."""
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    sizes = 3 * sizes if len(sizes) == 1 else sizes
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(
            f"--n {text!r} is no shape; accepted: points along each axis, one number or three "
            "with commas between, in the order of the arrays (z,y,x)"
        )
    return sizes[0], sizes[1], sizes[2]


def parse_truncation(text: str) -> str | tuple[int, ...] | None:
    """Return a truncation from ``none``, a name, or the largest wavenumber of each axis."""
    if text in ("none", "2/3", "nyquist"):
        return None if text == "none" else text
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"--truncation {text!r} is unknown; accepted: none, 2/3, nyquist, or the largest "
            "wavenumber along each axis with commas between, in the order of the arrays (z,y,x)"
        )
    return tuple(map(int, parts))


def parse_shell(text: str) -> int | None:
    """Return a thickness; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdigit():
        raise InputError(f"--shell {text!r} is no thickness; accepted: auto, 0, 1, 2, ...")
    return int(text)


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def message_sizes(smallest: int = 1 << 12, largest: int = 1 << 28) -> list[int]:
    """Return the sizes to measure, in bytes: each the fourfold of the one before."""
    if smallest < ELEMENT_SIZE or smallest % ELEMENT_SIZE:
        raise InputError(
            f"the smallest message has {smallest} bytes; accepted: a multiple of {ELEMENT_SIZE}"
        )
    if largest < smallest:
        raise InputError(
            f"the largest message, {largest} bytes, is smaller than the smallest, {smallest} bytes"
        )
    count = int(math.log(largest / smallest, FACTOR) + 1e-9) + 1
    return [smallest * FACTOR**power for power in range(count)]


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


def _option(parse: Callable[[str], Any], *names: str, **settings: Any) -> Any:
    """Return an option that is text for a person, and what it means in a request."""
    return Option(
        *names, parser=lambda value: parse(value) if isinstance(value, str) else value, **settings
    )


# Options that mean the same everywhere.
Transport = Annotated[str, Option(help="auto, or one of bench exchange.")]
Schedule = Annotated[str, Option(help="overlap or serial.")]
Points = Annotated[
    Any,
    _option(
        parse_shape,
        "--n",
        metavar="N",
        help="Points along each axis: one number, or z,y,x as in arrays.",
    ),
]
Repetitions = Annotated[int, Option(min=1, help="Timed runs of each part.")]
Picture = Annotated[Path | None, Option(metavar="FILE.png", help="Draw what ran when.")]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every benchmark can be asked."""

    ranks: Annotated[int | None, Option(metavar="N", min=1, help="Start N MPI ranks.")] = None
    device: Annotated[str, Option(help="cpu, cuda or auto.")] = "auto"
    repetitions: Repetitions = 15
    json: Annotated[Path | None, Option(metavar="FILE", help="Write a record.")] = None

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""


@dataclass(frozen=True, kw_only=True)
class TileRequest(Request):
    """How arrays on the host stream through devices, tile by tile."""

    residency: Annotated[str, Option(help="device, or host: arrays stream through the device.")] = (
        "device"
    )
    memory: Annotated[
        str | None, Option(metavar="SIZE", help="What a rank may take of a device: 8 GiB.")
    ] = None
    tiles: Annotated[int | None, Option(min=1, help="Tiles of a field.")] = None
    tiles_per_exchange: Annotated[
        int | None, Option(min=1, help="Tiles that are sent together.")
    ] = None
    streams: Annotated[int, Option(help="0 for the pipeline, or 1 to 16 streams.")] = 0
    copies: Annotated[str, Option(help="memcpy2D, zero-copy or packed.")] = "memcpy2D"
    devices: Annotated[int, Option(min=1, help="GPUs of a rank.")] = 1
    sweep: Annotated[bool, Option("--sweep", help="Vary how arrays stream.")] = False

    def check_residency(self, streaming: Any, others: Mapping[str, bool]) -> None:
        """Refuse a residency that is none, and options that have no effect."""
        if self.residency not in ("device", "host"):
            raise InputError(f"--residency {self.residency!r}; accepted: device, host")
        default = type(streaming)()
        changed = {
            f"--{name.replace('_', '-')}": value != getattr(default, name)
            for name, value in asdict(streaming).items()
            if name != "resident"
        }
        changed |= {"--memory": self.memory is not None, **others, "--sweep": self.sweep}
        given = [name for name, is_given in changed.items() if is_given]
        if self.residency == "device" and given:
            raise InputError(f"{given[0]} is for --residency host; leave it out, or ask for that")


@dataclass(frozen=True)
class DNSRequest(TileRequest):
    """Time a step of turbulence: its parts, its transforms alone, and plain transforms."""

    n: Annotated[int, Option("--n", metavar="N", min=1, help="Points along each axis.")] = 128
    precision: Annotated[str, Option(help="float64 or float32.")] = "float64"
    integrator: Annotated[str, Option(help="rk2, heun, rk3, rk4, jst3 or jst4.")] = "rk2"
    model: Annotated[str, Option(help="hd, boussinesq, mhd, gpe or FILE.py:FUNCTION.")] = "hd"
    schedule: Schedule = "overlap"
    transport: Transport = "auto"
    plain: Annotated[bool, Option(help="Time plain 3-D plans too (fields on devices only).")] = True
    update: Annotated[
        str, Option(help="Where modes are advanced, with residency host: device or host.")
    ] = "device"
    resident: Annotated[bool, Option(help="Let columns stay on the device as memory allows.")] = (
        True
    )

    @property
    def streaming(self) -> Any:
        from slipstream.fft import Streaming

        return Streaming(
            self.tiles,
            self.tiles_per_exchange,
            self.streams,
            self.copies,
            self.devices,
            update=self.update,
            resident=self.resident,
        )

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""
        from slipstream.bench.dns_bench import case_of_step

        how = self.streaming
        self.check_residency(how, {"--no-resident": not self.resident})
        if self.residency == "host":
            how.check()
        case_of_step(self, how if self.residency == "host" else None)


@dataclass(frozen=True)
class ExchangeRequest(Request):
    """Measure bandwidth between ranks: one way, both ways and all to all, by transport."""

    transports: Annotated[
        Any,
        _option(
            names_of,
            "--transport",
            metavar="NAMES",
            help="Transports, with commas; all if not given.",
        ),
    ] = ()
    smallest: Annotated[
        Any,
        _option(
            bytes_of,
            metavar="SIZE",
            show_default="4KiB",
            help="Smallest message between two ranks.",
        ),
    ] = 1 << 12
    largest: Annotated[
        Any,
        _option(
            bytes_of,
            metavar="SIZE",
            show_default="256MiB",
            help="Largest; each is four times the one before.",
        ),
    ] = 1 << 28
    plot: Annotated[
        Path | None, Option(metavar="FILE.png", help="Draw bandwidth against size.")
    ] = None

    @property
    def sizes(self) -> list[int]:
        return message_sizes(self.smallest, self.largest)

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""
        from slipstream.exchange import TRANSPORTS

        accepted = ("auto", *TRANSPORTS)
        for name in self.transports if self.sizes else ():
            if name not in accepted:
                raise InputError(f"transport {name!r} is unknown; accepted: {', '.join(accepted)}")
        check_format(self.plot)


@dataclass(frozen=True)
class TransformRequest(TileRequest):
    """Time a distributed transform: its parts, its bounds, and what others take for the same."""

    shape: Points = (128, 128, 128)
    dtype: Annotated[str, Option(help="float64, float32, complex128 or complex64.")] = "float64"
    layout: Annotated[str, Option(help="slab, pencil or root.")] = "slab"
    order: Annotated[str, Option(help="transposed or natural.")] = "transposed"
    truncation: Annotated[
        Any,
        _option(
            parse_truncation,
            metavar="MODES",
            help="none, 2/3, nyquist, or largest wavenumbers z,y,x.",
        ),
    ] = None
    transport: Transport = "auto"
    tune: Annotated[str, Option(help="off, quick or full.")] = "off"
    wire: Annotated[
        Any,
        _option(
            lambda text: None if text == "none" else text,
            metavar="TYPE",
            help="none, float32 or bfloat16.",
        ),
    ] = None
    fields: Annotated[int, Option(min=1, help="Fields transformed together.")] = 1
    plain: Annotated[bool, Option(help="Time plain library plans, and mpi4py-fft, too.")] = True
    exchange: Annotated[str, Option(help="Send tiles from the host, or from the device.")] = "host"
    in_place: Annotated[bool, Option("--in-place", help="In one array on the host.")] = False
    timelines: Annotated[Path | None, Option(metavar="FILE.png", help="Draw what overlaps.")] = None

    @property
    def streaming(self) -> Any:
        from slipstream.fft import Streaming

        return Streaming(
            self.tiles,
            self.tiles_per_exchange,
            self.streams,
            self.copies,
            self.devices,
            self.exchange,
        )

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""
        others = {"--in-place": self.in_place, "--timelines": self.timelines is not None}
        self.check_residency(self.streaming, others)
        check_format(self.timelines, "--timelines")

    def settings(self) -> dict[str, Any]:
        """Return what a record says of the transform."""
        names = "dtype layout order truncation transport tune wire fields repetitions"
        return {"shape": list(self.shape)} | {name: getattr(self, name) for name in names.split()}


@dataclass(frozen=True)
class AdvectionRequest(Request):
    """Time the overlap strategies of the advection test, side by side."""

    shape: Points = (420, 420, 420)
    strategies: Annotated[
        Any, _option(names_of, metavar="NAMES", help="Strategies, with commas.")
    ] = ()
    every: Annotated[
        bool, Option("--all", help="All strategies that fit ranks and devices (default).")
    ] = False
    dtype: Annotated[str, Option(help="float64 or float32.")] = "float64"
    grid: Annotated[
        Any,
        _option(
            lambda text: parse_shape(text) if text else None,
            metavar="Z,Y,X",
            help="Ranks along each axis; chosen if not given.",
        ),
    ] = None
    shell: Annotated[
        Any,
        _option(
            parse_shell,
            metavar="POINTS",
            help="Thickness of the CPU's shell in hybrid strategies, or auto.",
        ),
    ] = None
    threads: Annotated[
        int | None, Option(min=1, help="Threads of the CPU on each rank; all by default.")
    ] = None
    steps: Annotated[int, Option(min=1, help="Steps timed together.")] = 10
    repetitions: Repetitions = field(default=7, kw_only=True)
    plot: Annotated[
        Path | None, Option(metavar="FILE.png", help="Draw points per second by ranks.")
    ] = None
    beside: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Records of other numbers of ranks, for the picture."),
    ] = None
    timelines: Annotated[
        Path | None, Option(metavar="FILE.png", help="Draw what ran when, for each strategy.")
    ] = None

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""
        if self.every and self.strategies:
            raise InputError("--all and --strategies exclude each other")
        from slipstream.bench.advection_bench import read_results

        check_format(self.plot)
        check_format(self.timelines, "--timelines")
        read_results(self.beside or [])


@dataclass(frozen=True)
class LatticeRequest(Request):
    """Time lattice Boltzmann flow through pores: layouts, propagations, encodings, ranks."""

    shape: Annotated[
        Any,
        _option(
            parse_shape,
            "--n",
            metavar="N",
            help="Voxels along each axis: one number, or z,y,x as in arrays.",
        ),
    ] = (256, 256, 256)
    sample: Annotated[str, Option(help="sandstone, spheres, random-pack, or dense: no solid.")] = (
        "sandstone"
    )
    porosity: Annotated[float, Option(min=0.01, max=0.99, help="Of the sample.")] = 0.13
    radius: Annotated[
        float | None, Option(help="Of grains, in voxels; 1/32 of the edge by default.")
    ] = None
    precision: Annotated[str, Option(help="float64, float32 or mixed.")] = "float64"
    propagation: Annotated[str, Option(help="auto, aa or two-lattice.")] = "auto"
    layout: Annotated[
        str, Option(help="auto, stream, collision, bundle, vector-collision or vector-bundle.")
    ] = "auto"
    order: Annotated[str, Option(help="auto, raster or row-tiles.")] = "auto"
    encoding: Annotated[str, Option(help="auto, compact, wide or strips.")] = "auto"
    partition: Annotated[str, Option(help="bisection or cartesian.")] = "bisection"
    schedule: Schedule = "overlap"
    transport: Transport = "auto"
    sweep: Annotated[bool, Option("--sweep", help="Vary one thing after the other.")] = False
    timelines: Picture = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the sample."""
        radius = self.radius if self.radius is not None else max(2.0, min(self.shape) / 32)
        solid = 1 - self.porosity
        found: dict[str, dict[str, Any]] = {
            "dense": {},
            "sandstone": {"porosity": self.porosity, "radius": radius},
            "spheres": {"lattice": "simple", "solid_fraction": solid},
            "random-pack": {"solid_fraction": solid, "radius": radius},
        }
        if self.sample not in found:
            raise InputError(f"--sample {self.sample!r} is unknown; accepted: {', '.join(found)}")
        return found[self.sample]

    @property
    def storage(self) -> dict[str, str]:
        """Arguments of `Storage`; "auto" for whatever is fastest."""
        names = ("propagation", "layout", "order", "encoding", "precision")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""
        _ = self.parameters
        check_format(self.timelines, "--timelines")
