"""``slipstream bench``: the benchmarks on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from slipstream import launch
from slipstream.report.console import make_console

app = typer.Typer(help="Measure speed, beside the bound of the same run.", no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Measure speed, beside the bound of the same run."""


@app.command()
def dns(
    n: Annotated[
        int, typer.Option("--n", metavar="N", min=1, help="Points along each axis.")
    ] = 128,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Start N MPI ranks.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    precision: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    integrator: Annotated[str, typer.Option(help="rk2, rk3 or rk4.")] = "rk2",
    schedule: Annotated[str, typer.Option(help="overlap or serial.")] = "overlap",
    transport: Annotated[str, typer.Option(help="auto, mpi-p2p, mpi or nccl.")] = "auto",
    repetitions: Annotated[int, typer.Option(min=1, help="Timed runs of each part.")] = 15,
    plain: Annotated[bool, typer.Option(help="Time FFTW's or cuFFT's own 3-D plan too.")] = True,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a record.")] = None,
) -> None:
    """Time a Navier-Stokes step: its parts, its transforms alone, and plain transforms."""
    from slipstream.bench.dns import measure_step
    from slipstream.bench.measure import write_record
    from slipstream.case import validate_case
    from slipstream.spectral.simulation import make_simulation

    case = validate_case(
        {
            "solver": "spectral",
            "grid": {"points": n},
            "equation": {"viscosity": 1e-3},
            "initial": {"flow": "taylor-green"},
            "time": {"end": 1.0, "step": 1e-6, "integrator": integrator},
            "numerics": {"precision": precision},
            "run": {"device": device, "schedule": schedule, "transport": transport},
        }
    )
    if launch.should_relaunch(ranks):
        raise typer.Exit(launch.relaunch(ranks))
    simulation = make_simulation(case, launch.communicator(), device)
    result = measure_step(case, simulation, repetitions, plain)
    if simulation.problem.geometry.rank == 0:
        print_result(f"time step of turbulence on {simulation.device.name}", result)
        if json is not None:
            write_record(json, "dns", simulation.device, result)


def print_result(title: str, result: dict[str, Any]) -> None:
    """Print figures as a table."""
    table = Table(title=title, show_header=False, box=box.HORIZONTALS)
    for name, value in result.items():
        if isinstance(value, dict):
            for key, inner in value.items():
                table.add_row(f"{name}: {key}", _text(inner))
        else:
            table.add_row(name, _text(value))
    make_console().print(table, highlight=False)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
