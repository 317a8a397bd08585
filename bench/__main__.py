"""``python -m bench NAME``: a command for each benchmark; its options are a request's fields."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from bench import advection, dns, exchange, fft, harness, headlines, lattice, ranks
from slipstream import cli


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its options, the function that measures, and what its help says."""

    request: type[harness.Request]
    run: harness.Run
    timed: str
    bound: str


BENCHMARKS = {
    "headlines": Benchmark(
        headlines.HeadlinesRequest,
        headlines.run,
        "the benchmarks below in fresh processes, on one device and on several",
        "the bound of each benchmark",
    ),
    "dns": Benchmark(
        dns.DNSRequest,
        dns.run,
        "time steps, their transforms alone, and plain 3-D transforms",
        "the bytes that a step moves in a GPU's memory, at the rate of a large copy; from the host,"
        " the bytes over the bus, at the rate of copies both ways; from disk, the drive or"
        " everything else, whichever takes longer",
    ),
    "exchange": Benchmark(
        exchange.ExchangeRequest,
        exchange.run,
        "an exchange by every pattern, transport and size of message",
        "the bytes that leave a rank, at the rate of a large copy on CPUs and of the fastest"
        " one-way exchange on GPUs",
    ),
    "ranks": Benchmark(
        ranks.RanksRequest,
        ranks.run,
        "set-up and recording of one rank's step and transform, each in a fresh process",
        "none",
    ),
    "fft": Benchmark(
        fft.TransformRequest,
        fft.run,
        "both directions, and plans of FFTW, cuFFT and mpi4py-fft",
        "the bytes that leave a rank, at the rate of an exchange alone; from the host, the bytes"
        " over the bus",
    ),
    "advection": Benchmark(
        advection.AdvectionRequest,
        advection.run,
        "steps of each strategy, alternately",
        "a read and a write of every point, at the rate of a large copy",
    ),
    "lattice": Benchmark(
        lattice.LatticeRequest,
        lattice.run,
        "steps alone and in pairs",
        "a read and a write of every population, and the links, at the rate of a large copy",
    ),
}

app = typer.Typer(
    help="Measure speed, and its bound in the same run.",
    no_args_is_help=True,
    add_completion=False,
)


def _add_command(name: str, benchmark: Benchmark) -> None:
    """Add a command whose options are the fields of a request, those of all benchmarks last."""
    request = benchmark.request

    def command(**options: Any) -> None:
        harness.run_benchmark(name, benchmark.run, request(**options))

    hints = get_type_hints(request, include_extras=True)
    parameters = []
    for field in sorted(fields(request), key=lambda one: one.name not in request.__annotations__):
        hint = hints[field.name]
        if hint.__metadata__[0].parser is not None:  # the result may be of a type unknown to typer
            hint = Annotated[Any, hint.__metadata__[0]]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(field.name, kind, default=field.default, annotation=hint)
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    about = f"{request.__doc__}\n\nTimed: {benchmark.timed}. Bound: {benchmark.bound}."
    app.command(name, help=about)(command)


for _name, _benchmark in BENCHMARKS.items():
    _add_command(_name, _benchmark)


def main(arguments: list[str] | None = None) -> None:
    """Run a benchmark and exit with the statuses of the ``slipstream`` command."""
    cli.main(arguments, app, "python -m bench")


if __name__ == "__main__":
    main()
