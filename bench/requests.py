"""What benchmarks are asked: a request for each command, whose fields are the command's options.

A field's type and default are those of the option; `Option` in its metadata says the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from typer import Option

from slipstream import accepted
from slipstream.accepted import listed
from slipstream.byte_sizes import bytes_of
from slipstream.errors import InputError

if TYPE_CHECKING:
    from slipstream.fft import Streaming

Shape: TypeAlias = tuple[int, int, int]
# The ratio of the sizes of successive messages; the bytes of an element.
FACTOR, ELEMENT_SIZE = 4, 8
# Truncations that have a name; and samples, with those of their parameters that are set here.
TRUNCATIONS = ("none", "2/3", "nyquist")
LATTICE_SAMPLES = {
    "dense": (),
    "sandstone": ("porosity", "radius"),
    "spheres": ("lattice", "solid_fraction"),
    "random-pack": ("solid_fraction", "radius"),
}


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
    if text in TRUNCATIONS:
        return None if text == "none" else text
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"--truncation {text!r} is unknown; accepted: {', '.join(TRUNCATIONS)}, or the largest "
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
    """Return the sizes to measure, in bytes: each is four times its predecessor."""
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

    formats = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if Path(path).suffix.lstrip(".").lower() not in formats:
        raise InputError(
            f"{option} {str(path)!r} is no picture; accepted: such as FILE.png, FILE.pdf"
        )


def _option(
    default: Any,
    help: str,
    *names: str,
    parse: Callable[[str], Any] | None = None,
    kw_only: Any = MISSING,
    **settings: Any,
) -> Any:
    """Return a field that is an option; `parse` turns its text into a value."""
    if parse is not None:
        settings["parser"] = lambda value: parse(value) if isinstance(value, str) else value
    metadata = {"option": Option(*names, help=help, **settings)}
    return field(default=default, metadata=metadata, kw_only=kw_only)


def _choice(
    default: Any, values: Iterable[str], help: str = "{}.", *names: str, **settings: Any
) -> Any:
    """Return an option that takes some of these values, which the help lists."""
    return _option(default, help.format(listed(values)), *names, **settings)


_PICTURE = "FILE.png"


def _picture(help: str) -> Any:
    return _option(None, help, metavar=_PICTURE)


def _points(default: Shape, what: str = "Points") -> Any:
    help = f"{what} along each axis: one number, or z,y,x as in arrays."
    return _option(default, help, "--n", parse=parse_shape, metavar="N")


def _schedule() -> Any:
    return _choice("overlap", sorted(accepted.SCHEDULES))


def _transport() -> Any:
    return _choice("auto", ["auto", *accepted.TRANSPORTS])


_REPETITIONS = "Timed runs of each part."


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every benchmark can be asked."""

    ranks: int | None = _option(None, "Start N MPI ranks.", metavar="N", min=1)
    device: str = _choice("auto", [*accepted.DEVICES, "auto"])
    repetitions: int = _option(15, _REPETITIONS, min=1)
    json: Path | None = _option(None, "Write a record.", metavar="FILE")
    against: Path | None = _option(
        None, "Compare with an earlier record; exit with 1 if a time is worse.", metavar="FILE"
    )
    tolerance: float = _option(
        0.05, "By what fraction a time may be longer than in that record.", min=0
    )

    def check(self) -> None:
        """Refuse what cannot be, before ranks are started."""

    def check_pictures(self) -> None:
        """Refuse files that cannot be pictures."""
        for one in fields(self):
            if one.metadata["option"].metavar == _PICTURE:
                check_format(getattr(self, one.name), f"--{one.name}")


@dataclass(frozen=True, kw_only=True)
class TileRequest(Request):
    """How arrays on the host stream through devices, tile by tile."""

    residency: str = _choice(
        "device",
        accepted.RESIDENCIES,
        "{}; from the host and from disk, arrays stream through the device.",
    )
    scratch: str | None = _option(
        None, "The folder of arrays with residency disk.", metavar="FOLDER"
    )
    memory: str | None = _option(None, "What a rank may take of a device: 8 GiB.", metavar="SIZE")
    tiles: int | None = _option(None, "Tiles of a field.", min=1)
    tiles_per_exchange: int | None = _option(None, "Tiles that are sent together.", min=1)
    streams: int = _option(0, "0 for the pipeline, or 1 to 16 streams.")
    copies: str = _choice("memcpy2D", accepted.COPIES)
    devices: int = _option(1, "GPUs of a rank.", min=1)
    sweep: bool = _option(False, "Vary how arrays stream.", "--sweep")

    @property
    def streaming(self) -> Streaming:
        """How arrays stream: those options of `Streaming` that this benchmark has."""
        from slipstream.fft import Streaming

        names = [one.name for one in fields(Streaming) if hasattr(self, one.name)]
        return Streaming(**{name: getattr(self, name) for name in names})

    def check_residency(self, others: Mapping[str, bool]) -> None:
        """Refuse a residency that is none, and options that have no effect."""
        if self.residency not in accepted.RESIDENCIES:
            names = ", ".join(accepted.RESIDENCIES)
            raise InputError(f"--residency {self.residency!r}; accepted: {names}")
        streaming = self.streaming
        default = type(streaming)()
        changed = {
            f"--{name.replace('_', '-')}": value != getattr(default, name)
            for name, value in asdict(streaming).items()
            if name != "resident"
        }
        changed |= {"--memory": self.memory is not None, **others, "--sweep": self.sweep}
        if self.residency != "disk" and self.scratch is not None:
            raise InputError("--scratch is for --residency disk; leave it out, or ask for that")
        given = [name for name, is_given in changed.items() if is_given]
        if self.residency == "device" and given:
            raise InputError(f"{given[0]} is for --residency host; leave it out, or ask for that")


@dataclass(frozen=True)
class HeadlinesRequest(Request):
    """Measure all headline figures, each in fresh processes, on one device and on several."""

    processes: int = _option(3, "Fresh processes for each figure.", min=1)
    only: tuple[str, ...] = _option(
        (), "Figures whose names have one of these, with commas.", parse=names_of, metavar="TEXTS"
    )

    def check(self) -> None:
        if (self.ranks or 1) > 1:
            raise InputError("--ranks is not for headlines: they start ranks themselves")


@dataclass(frozen=True)
class DNSRequest(TileRequest):
    """Time a step of turbulence: its parts, its transforms alone, and plain transforms."""

    n: int = _option(128, "Points along each axis.", "--n", metavar="N", min=1)
    precision: str = _choice("float64", accepted.PRECISIONS)
    integrator: str = _choice("rk2", accepted.INTEGRATORS)
    model: str = _choice("hd", [*accepted.MODELS, "FILE.py:FUNCTION"])
    schedule: str = _schedule()
    transport: str = _transport()
    plain: bool = _option(True, "Time plain 3-D plans too (fields on devices only).")
    update: str = _choice(
        "device", accepted.UPDATES, "Where modes are advanced, with residency host: {}."
    )
    resident: bool = _option(True, "Let columns stay on the device as memory allows.")

    def check(self) -> None:
        from bench.step_bench import case_of_step

        how = self.streaming
        self.check_residency({"--no-resident": not self.resident})
        case_of_step(self, None if self.residency == "device" else how)


def counts_of(text: str) -> tuple[int, ...]:
    """Return the numbers in a comma-separated list."""
    names = names_of(text)
    if not names or not all(name.isdecimal() and int(name) for name in names):
        raise InputError(f"--of {text!r}; accepted: numbers of ranks with commas between")
    return tuple(map(int, names))


@dataclass(frozen=True)
class RanksRequest(Request):
    """Measure what one rank of many takes to set up and record a step and a transform."""

    of: tuple[int, ...] = _option(
        (64, 1024, 16384, 262144),
        "How many ranks there are, with commas.",
        parse=counts_of,
        metavar="NUMBERS",
        show_default="64,1024,16384,262144",
    )
    points: int = _option(16384, "Points along each axis.", "--n", metavar="N", min=1)
    ranks_per_node: int = _option(8, "Ranks of a node.", metavar="N", min=1)
    transport: str = _choice("auto", ("auto", *accepted.TRANSPORTS))


@dataclass(frozen=True)
class ExchangeRequest(Request):
    """Measure bandwidth between ranks: one way, both ways and all to all, by transport."""

    transports: tuple[str, ...] = _choice(
        (),
        accepted.TRANSPORTS,
        "With commas, all if not given: {}.",
        "--transport",
        parse=names_of,
        metavar="NAMES",
    )
    smallest: int = _option(
        1 << 12,
        "Smallest message between two ranks.",
        parse=bytes_of,
        metavar="SIZE",
        show_default="4KiB",
    )
    largest: int = _option(
        1 << 28,
        "Largest; each is four times its predecessor.",
        parse=bytes_of,
        metavar="SIZE",
        show_default="256MiB",
    )
    ranks_per_node: int | None = _option(
        None, "Take every N ranks for a node, on any machine.", metavar="N", min=1
    )
    plot: Path | None = _picture("Draw bandwidth against size.")

    @property
    def sizes(self) -> list[int]:
        return message_sizes(self.smallest, self.largest)

    def check(self) -> None:
        names = ("auto", *accepted.TRANSPORTS)
        for name in self.transports if self.sizes else ():
            if name not in names:
                raise InputError(f"transport {name!r} is unknown; accepted: {', '.join(names)}")


@dataclass(frozen=True)
class TransformRequest(TileRequest):
    """Time a distributed transform: its parts, its bounds, and what others take for the same."""

    shape: Shape = _points((128, 128, 128))
    dtype: str = _choice("float64", accepted.FFT_DTYPES)
    layout: str = _choice("slab", accepted.FFT_LAYOUTS)
    order: str = _choice("transposed", accepted.FFT_ORDERS)
    truncation: str | tuple[int, ...] | None = _option(
        None,
        f"{', '.join(TRUNCATIONS)}, or largest wavenumbers z,y,x.",
        parse=parse_truncation,
        metavar="MODES",
    )
    transport: str = _transport()
    tune: str = _choice("off", accepted.TUNES)
    wire: str | None = _choice(
        None,
        ["none", *accepted.WIRES],
        parse=lambda text: None if text == "none" else text,
        metavar="TYPE",
    )
    fields: int = _option(1, "Fields transformed together.", min=1)
    plain: bool = _option(True, "Time plain library plans, and mpi4py-fft, too.")
    exchange: str = _choice("host", ["host", "device"], "From where tiles are sent: {}.")
    in_place: bool = _option(False, "In one array on the host.", "--in-place")
    timelines: Path | None = _picture("Draw what overlaps.")

    def check(self) -> None:
        others = {"--in-place": self.in_place, "--timelines": self.timelines is not None}
        self.check_residency(others)

    def settings(self) -> dict[str, Any]:
        """Return what a record says of the transform."""
        names = "dtype layout order truncation transport tune wire fields repetitions"
        return {"shape": list(self.shape)} | {name: getattr(self, name) for name in names.split()}


@dataclass(frozen=True)
class AdvectionRequest(Request):
    """Time the overlap strategies of the advection test, side by side."""

    shape: Shape = _points((420, 420, 420))
    strategies: tuple[str, ...] = _choice(
        (), accepted.STRATEGIES, "With commas: {}.", parse=names_of, metavar="NAMES"
    )
    every: bool = _option(False, "All strategies that fit ranks and devices (default).", "--all")
    dtype: str = _choice("float64", accepted.PRECISIONS)
    grid: Shape | None = _option(
        None,
        "Ranks along each axis; chosen if not given.",
        parse=lambda text: parse_shape(text) if text else None,
        metavar="Z,Y,X",
    )
    shell: int | None = _option(
        None,
        "Thickness of the CPU's shell in hybrid strategies, or auto.",
        parse=parse_shell,
        metavar="POINTS",
    )
    threads: int | None = _option(None, "Threads of the CPU on each rank; all by default.", min=1)
    steps_per_pass: int | None = _option(
        None, "Steps of a pass over memory; what suits the device by default.", min=1, max=2
    )
    steps: int = _option(10, "Steps timed together.", min=1)
    repetitions: int = _option(7, _REPETITIONS, min=1, kw_only=True)
    plot: Path | None = _picture("Draw points per second by ranks.")
    beside: list[Path] | None = _option(
        None, "Records of other numbers of ranks, for the picture.", metavar="FILE"
    )
    timelines: Path | None = _picture("Draw what ran when, for each strategy.")

    def check(self) -> None:
        if self.every and self.strategies:
            raise InputError("--all and --strategies exclude each other")
        from bench.harness import read_results

        read_results("advection", self.beside or [], "--beside")


@dataclass(frozen=True)
class LatticeRequest(Request):
    """Time lattice Boltzmann flow through pores: layouts, propagations, encodings, ranks."""

    shape: Shape = _points((256, 256, 256), "Voxels")
    sample: str = _choice("sandstone", LATTICE_SAMPLES, "{}; dense has no solid.")
    porosity: float = _option(0.13, "Of the sample.", min=0.01, max=0.99)
    radius: float | None = _option(None, "Of grains, in voxels; 1/32 of the edge by default.")
    precision: str = _choice("float64", accepted.LATTICE_PRECISIONS)
    propagation: str = _choice("auto", ["auto", *accepted.PROPAGATIONS])
    layout: str = _choice("auto", ["auto", *accepted.POPULATION_LAYOUTS])
    order: str = _choice("auto", ["auto", *accepted.SITE_ORDERS])
    encoding: str = _choice("auto", ["auto", *accepted.ENCODINGS])
    partition: str = _choice("bisection", accepted.PARTITIONS)
    schedule: str = _schedule()
    transport: str = _transport()
    sweep: bool = _option(False, "Vary one thing after the other.", "--sweep")
    timelines: Path | None = _picture("Draw what ran when.")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the sample."""
        if self.sample not in LATTICE_SAMPLES:
            names = ", ".join(LATTICE_SAMPLES)
            raise InputError(f"--sample {self.sample!r} is unknown; accepted: {names}")
        given = {
            "porosity": self.porosity,
            "radius": self.radius if self.radius is not None else max(2.0, min(self.shape) / 32),
            "lattice": "simple",
            "solid_fraction": 1 - self.porosity,
        }
        return {name: given[name] for name in LATTICE_SAMPLES[self.sample]}

    @property
    def storage(self) -> dict[str, str]:
        """Arguments of `Storage`; "auto" for whatever is fastest."""
        names = ("propagation", "layout", "order", "encoding", "precision")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        _ = self.parameters
