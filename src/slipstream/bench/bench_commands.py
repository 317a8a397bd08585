"""``slipstream bench``: the benchmarks on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream import mpi_launch
from slipstream.bench.bench_options import (
    Copies,
    DeviceName,
    Devices,
    Exchange,
    Memory,
    Ranks,
    Record,
    Repetitions,
    Residency,
    Streams,
    Sweep,
    Tiles,
    TilesPerExchange,
    check_format,
    check_residency,
)
from slipstream.errors import InputError

app = typer.Typer(help="Measure speed, beside the bound of the same run.", no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Measure speed, beside the bound of the same run."""


@app.command()
def dns(
    n: Annotated[
        int, typer.Option("--n", metavar="N", min=1, help="Points along each axis.")
    ] = 128,
    ranks: Ranks = None,
    device: DeviceName = "auto",
    precision: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    integrator: Annotated[str, typer.Option(help="rk2, heun, rk3, rk4, jst3 or jst4.")] = "rk2",
    model: Annotated[
        str, typer.Option(help="hd, boussinesq, mhd, gpe or FILE.py:FUNCTION.")
    ] = "hd",
    schedule: Annotated[str, typer.Option(help="overlap or serial.")] = "overlap",
    transport: Annotated[str, typer.Option(help="auto, or one of bench exchange.")] = "auto",
    repetitions: Repetitions = 15,
    plain: Annotated[
        bool, typer.Option(help="Time plain 3-D plans too (fields on devices only).")
    ] = True,
    residency: Residency = "device",
    memory: Memory = None,
    tiles: Tiles = None,
    tiles_per_exchange: TilesPerExchange = None,
    streams: Streams = 0,
    copies: Copies = "memcpy2D",
    devices: Devices = 1,
    update: Annotated[
        str, typer.Option(help="Where modes are advanced, with residency host: device or host.")
    ] = "device",
    resident: Annotated[
        bool, typer.Option(help="Let columns stay on the device as memory allows.")
    ] = True,
    sweep: Sweep = False,
    json: Record = None,
) -> None:
    """Time a step of turbulence: its parts, its transforms alone, and plain transforms."""
    from slipstream.bench.bench_tables import print_figures, print_streamed_step
    from slipstream.bench.dns_bench import case_of_step, measure_step
    from slipstream.bench.dns_out_of_core_bench import measure_streamed_step, step_variants
    from slipstream.bench.repetitions import write_record
    from slipstream.fft import Streaming
    from slipstream.spectral.spectral_simulation import SpectralSimulation

    how = Streaming(
        tiles,
        tiles_per_exchange,
        streams,
        copies,
        devices,
        update=update,
        resident=resident,
    )
    others = {"--memory": memory is not None, "--no-resident": not resident, "--sweep": sweep}
    check_residency(residency, how, others)
    settings = case_of_step(n, model, integrator, precision, device, schedule, transport)
    if residency == "device":
        case = settings()
        _relaunch_if_asked(ranks)
        simulation = SpectralSimulation(case, mpi_launch.world_comm(), device)
        result, opened = measure_step(case, simulation, repetitions, plain), simulation.device
        show, title, name = print_figures, f"time step of turbulence on {opened.name}", "dns"
    else:
        how.check()
        settings(memory, how)
        _relaunch_if_asked(ranks)
        opened, _ = _open(device)

        def make(variant: Any) -> Any:
            case = settings(memory, variant.streaming, variant.schedule)
            return SpectralSimulation(case, mpi_launch.world_comm(), device)

        result = measure_streamed_step(make, step_variants(how, sweep, schedule), repetitions)
        title = f"time step of fields on the host, through {opened.name}"
        show, name = print_streamed_step, "dns of fields on the host"
    comm = mpi_launch.world_comm()
    if comm is None or comm.rank == 0:
        show(title, result)
        if json is not None:
            write_record(json, name, opened, result)


@app.command()
def exchange(
    ranks: Ranks = None,
    device: DeviceName = "auto",
    transport: Annotated[
        str, typer.Option(metavar="NAMES", help="Transports, with commas; all if not given.")
    ] = "",
    smallest: Annotated[
        str, typer.Option(metavar="SIZE", help="Smallest message between two ranks.")
    ] = "4KiB",
    largest: Annotated[
        str, typer.Option(metavar="SIZE", help="Largest; each is four times the one before.")
    ] = "256MiB",
    repetitions: Repetitions = 15,
    json: Record = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw bandwidth against size.")
    ] = None,
) -> None:
    """Measure bandwidth between ranks: one way, both ways and all to all, by transport."""
    from slipstream.bench.bench_tables import names_of, print_exchange
    from slipstream.bench.exchange_bench import ExchangeRequest, check_names, measure_exchange
    from slipstream.bench.exchange_patterns import message_sizes
    from slipstream.bench.exchange_plot import plot_exchange
    from slipstream.bench.repetitions import write_record
    from slipstream.byte_sizes import bytes_of

    sizes = message_sizes(bytes_of(smallest), bytes_of(largest))
    request = ExchangeRequest(names_of(transport), sizes, repetitions)
    check_names(request.transports)
    check_format(plot)
    _relaunch_if_asked(ranks)
    opened, comm = _open(device)
    result = measure_exchange(request, opened, comm)
    if comm.rank == 0:
        title = f"exchange between {comm.size} ranks on {opened.name}"
        print_exchange(title, result)
        if json is not None:
            write_record(json, "exchange", opened, result)
        if plot is not None:
            plot_exchange(plot, title, result)


@app.command()
def fft(
    n: Annotated[
        str,
        typer.Option(
            "--n", metavar="N", help="Points along each axis: one number, or z,y,x as in arrays."
        ),
    ] = "128",
    ranks: Ranks = None,
    device: DeviceName = "auto",
    dtype: Annotated[
        str, typer.Option(help="float64, float32, complex128 or complex64.")
    ] = "float64",
    layout: Annotated[str, typer.Option(help="slab, pencil or root.")] = "slab",
    order: Annotated[str, typer.Option(help="transposed or natural.")] = "transposed",
    truncation: Annotated[
        str, typer.Option(help="none, 2/3, nyquist, or largest wavenumbers z,y,x.")
    ] = "none",
    transport: Annotated[str, typer.Option(help="auto, or one of bench exchange.")] = "auto",
    tune: Annotated[str, typer.Option(help="off, quick or full.")] = "off",
    wire: Annotated[str, typer.Option(help="none, float32 or bfloat16.")] = "none",
    fields: Annotated[int, typer.Option(min=1, help="Fields transformed together.")] = 1,
    repetitions: Repetitions = 15,
    plain: Annotated[
        bool, typer.Option(help="Time plain library plans, and mpi4py-fft, too.")
    ] = True,
    residency: Residency = "device",
    memory: Memory = None,
    tiles: Tiles = None,
    tiles_per_exchange: TilesPerExchange = None,
    streams: Streams = 0,
    copies: Copies = "memcpy2D",
    devices: Devices = 1,
    exchange: Exchange = "host",
    sweep: Sweep = False,
    in_place: Annotated[bool, typer.Option("--in-place", help="In one array on the host.")] = False,
    json: Record = None,
    timelines: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw what overlaps."),
    ] = None,
) -> None:
    """Time a distributed transform: its parts, its bounds, and what others take for the same."""
    from slipstream.bench.bench_tables import print_fft, print_streaming
    from slipstream.bench.fft_bench import measure_fft
    from slipstream.bench.fft_out_of_core_bench import draw_timelines, measure_streaming
    from slipstream.bench.measured_transform import TransformRequest, parse_shape, parse_truncation
    from slipstream.bench.repetitions import write_record
    from slipstream.fft import Streaming

    request = TransformRequest(
        parse_shape(n),
        dtype,
        layout,
        order,
        parse_truncation(truncation),
        transport,
        tune,
        None if wire == "none" else wire,
        fields,
        repetitions,
        plain,
    )
    how = Streaming(tiles, tiles_per_exchange, streams, copies, devices, exchange)
    others = {
        "--memory": memory is not None,
        "--sweep": sweep,
        "--in-place": in_place,
        "--timelines": timelines is not None,
    }
    check_residency(residency, how, others)
    check_format(timelines, "--timelines")
    _relaunch_if_asked(ranks)
    opened, comm = _open(device)
    if residency == "host":
        result, drawn = measure_streaming(request, how, memory, sweep, in_place, opened, comm)
        if comm is None or comm.rank == 0:
            print_streaming(f"transform of arrays on the host, through {opened.name}", result)
            if json is not None:
                write_record(json, "fft of arrays on the host", opened, result)
            if timelines is not None:
                draw_timelines(timelines, drawn)
        return
    result = measure_fft(request, opened, comm)
    if comm is None or comm.rank == 0:
        print_fft(f"transform on {opened.name}", result)
        if json is not None:
            write_record(json, "fft", opened, result)


@app.command()
def advection(
    n: Annotated[
        str,
        typer.Option(
            "--n", metavar="N", help="Points along each axis: one number, or z,y,x as in arrays."
        ),
    ] = "420",
    ranks: Ranks = None,
    device: DeviceName = "auto",
    strategies: Annotated[str, typer.Option(metavar="NAMES", help="Strategies, with commas.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="All strategies that fit ranks and devices (default).")
    ] = False,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    grid: Annotated[
        str, typer.Option(metavar="Z,Y,X", help="Ranks along each axis; chosen if not given.")
    ] = "",
    shell: Annotated[
        str, typer.Option(help="Thickness of the CPU's shell in hybrid strategies, or auto.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of the CPU on each rank; all by default.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps timed together.")] = 10,
    repetitions: Repetitions = 7,
    json: Record = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw points per second by ranks.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Records of other numbers of ranks, for the picture."),
    ] = None,
    timelines: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw what ran when, for each strategy.")
    ] = None,
) -> None:
    """Time the overlap strategies of the advection test, side by side."""
    from slipstream.bench.advection_bench import AdvectionRequest, measure_advection
    from slipstream.bench.advection_plot import plot_advection, plot_timelines, read_results
    from slipstream.bench.bench_tables import names_of, print_advection
    from slipstream.bench.measured_transform import parse_shape
    from slipstream.bench.repetitions import write_record

    if every and strategies:
        raise InputError("--all and --strategies exclude each other")
    request = AdvectionRequest(
        parse_shape(n),
        dtype,
        names_of(strategies),
        parse_shape(grid) if grid else None,
        _shell(shell),
        threads,
        steps,
        repetitions,
    )
    check_format(plot)
    check_format(timelines, "--timelines")
    earlier = read_results(beside or [])
    _relaunch_if_asked(ranks)
    opened, comm = _open(device)
    steps_of: dict[str, Any] = {}
    result = measure_advection(request, comm, opened.kind == "cuda", steps_of)
    if comm is None or comm.rank == 0:
        title = f"advection, {' x '.join(map(str, request.shape))}, on {opened.name}"
        print_advection(title, result)
        if json is not None:
            write_record(json, "advection", opened, result)
        if plot is not None:
            plot_advection(plot, title, [*earlier, result])
        if timelines is not None:
            plot_timelines(timelines, f"{title}: one step on rank 0", steps_of)


@app.command()
def lattice(
    n: Annotated[
        str,
        typer.Option(
            "--n", metavar="N", help="Voxels along each axis: one number, or z,y,x as in arrays."
        ),
    ] = "256",
    sample: Annotated[
        str, typer.Option(help="sandstone, spheres, random-pack, or dense: no solid.")
    ] = "sandstone",
    porosity: Annotated[float, typer.Option(min=0.01, max=0.99, help="Of the sample.")] = 0.13,
    radius: Annotated[
        float | None, typer.Option(help="Of grains, in voxels; 1/32 of the edge by default.")
    ] = None,
    ranks: Ranks = None,
    device: DeviceName = "auto",
    precision: Annotated[str, typer.Option(help="float64, float32 or mixed.")] = "float64",
    propagation: Annotated[str, typer.Option(help="auto, aa or two-lattice.")] = "auto",
    layout: Annotated[
        str,
        typer.Option(help="auto, stream, collision, bundle, vector-collision or vector-bundle."),
    ] = "auto",
    order: Annotated[str, typer.Option(help="auto, raster or row-tiles.")] = "auto",
    encoding: Annotated[str, typer.Option(help="auto, compact, wide or strips.")] = "auto",
    partition: Annotated[str, typer.Option(help="bisection or cartesian.")] = "bisection",
    schedule: Annotated[str, typer.Option(help="overlap or serial.")] = "overlap",
    transport: Annotated[str, typer.Option(help="auto, or one of bench exchange.")] = "auto",
    sweep: Annotated[bool, typer.Option("--sweep", help="Vary one thing after the other.")] = False,
    repetitions: Repetitions = 15,
    json: Record = None,
    timelines: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw what ran when.")
    ] = None,
) -> None:
    """Time lattice Boltzmann flow through pores: layouts, propagations, encodings, ranks."""
    from slipstream.bench.advection_plot import plot_timelines
    from slipstream.bench.bench_tables import print_lattice
    from slipstream.bench.lattice_bench import LatticeRequest, measure_lattice, sample_parameters
    from slipstream.bench.measured_transform import parse_shape
    from slipstream.bench.repetitions import write_record

    shape = parse_shape(n)
    storage = {
        "propagation": propagation,
        "layout": layout,
        "order": order,
        "encoding": encoding,
        "precision": precision,
    }
    request = LatticeRequest(
        sample,
        shape,
        sample_parameters(sample, porosity, radius, min(shape)),
        storage,
        partition,
        schedule,
        transport,
        sweep,
        repetitions,
    )
    check_format(timelines, "--timelines")
    _relaunch_if_asked(ranks)
    opened, comm = _open(device)
    steps_of: dict[str, Any] = {}
    result = measure_lattice(request, opened, comm, steps_of)
    if comm is None or comm.rank == 0:
        title = f"lattice Boltzmann, {sample} {' x '.join(map(str, shape))}, on {opened.name}"
        print_lattice(title, result)
        if json is not None:
            write_record(json, "lattice", opened, result)
        if timelines is not None:
            compared = {name: steps_of[name] for name in ("serial", "overlap") if name in steps_of}
            plot_timelines(timelines, f"{title}: two steps on rank 0", compared or steps_of)


def _shell(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdigit():
        raise InputError(f"--shell {text!r} is no thickness; accepted: auto, 0, 1, 2, ...")
    return int(text)


def _relaunch_if_asked(ranks: int | None) -> None:
    """Leave this command to ranks of its own if ``--ranks`` asks for them."""
    if mpi_launch.should_relaunch(ranks):
        raise typer.Exit(mpi_launch.relaunch(ranks))


def _open(device: str) -> tuple[Any, Any]:
    """Return this rank's device, and the ranks. Collective."""
    from slipstream.exchange import open_matching_device

    comm = mpi_launch.world_comm()
    return open_matching_device(device, comm), comm
