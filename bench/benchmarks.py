"""``python -m bench``: the table of benchmarks; each is a command."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from bench import requests

if TYPE_CHECKING:
    from bench.harness import Run


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its options, and where it is measured.

    `made`, `timed` and `bound` describe the preparation, the timed part, and the bound: the bytes
    that the recorded nodes must move, at a rate measured in the same run.
    """

    request: type[requests.Request]
    module: str
    made: str
    timed: str
    bound: str

    def run(self) -> Run:
        """Import and return what measures."""
        run: Run = importlib.import_module(f"bench.{self.module}").run
        return run


BENCHMARKS = {
    "headlines": Benchmark(
        requests.HeadlinesRequest,
        "headlines_bench",
        "fresh processes of the benchmarks below",
        "their headlines, on one device and on several",
        "those of these benchmarks",
    ),
    "dns": Benchmark(
        requests.DNSRequest,
        "step_bench",
        "the simulation of a turbulence case, of fields on the device or the host",
        "a step, its transforms alone, and plain 3-D transforms",
        "bytes that a step moves in a GPU's memory, by a large copy; from the host, bytes over the"
        " bus, by copies both ways; from disk, the drive, or all else if that takes longer",
    ),
    "exchange": Benchmark(
        requests.ExchangeRequest,
        "exchange_bench",
        "plans of messages: one way, both ways, all to all",
        "an exchange, by every transport and size of message",
        "bytes that leave a rank, by a large copy on CPUs and the fastest one-way exchange on GPUs",
    ),
    "ranks": Benchmark(
        requests.RanksRequest,
        "ranks_bench",
        "a fresh process for each row, as one rank of many",
        "set-up and recording of its step and of its transform, where nothing runs",
        "none; memory and messages are in the table",
    ),
    "fft": Benchmark(
        requests.TransformRequest,
        "fft_bench",
        "the plan of a distributed transform, of arrays on the device or the host",
        "both directions, and plans of FFTW, cuFFT and mpi4py-fft",
        "bytes that leave a rank, by an exchange alone; from the host, bytes over the bus",
    ),
    "advection": Benchmark(
        requests.AdvectionRequest,
        "advection_bench",
        "a Gaussian in a periodic box, by each strategy that fits",
        "steps of each strategy, side by side",
        "a read and a write of every point, by a large copy",
    ),
    "lattice": Benchmark(
        requests.LatticeRequest,
        "lattice_bench",
        "the pores of a sample, and populations on them",
        "steps alone and in pairs, beside copies",
        "a read and a write of every population, and links, by a large copy",
    ),
}

app = typer.Typer(help="Measure speed, beside the bound of the same run.", no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Measure speed, and its bound in the same run."""


def _add(name: str, benchmark: Benchmark) -> None:
    """Add a command whose options are the fields of a request, its own ones first."""
    request = benchmark.request

    def command(**options: Any) -> None:
        from bench import harness

        harness.run_benchmark(name, benchmark.run, request(**options))

    hints, annotated = get_type_hints(request), cast(Any, Annotated)

    def parameter(name: str, default: Any, option: Any) -> inspect.Parameter:
        # What is parsed from a text may be of any type, also of one that typer does not know.
        hint = hints[name] if option.parser is None else Any
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, kind, default=default, annotation=annotated[hint, option])

    own = list(request.__annotations__)
    ordered = sorted(fields(request), key=lambda one: one.name not in own)
    parameters = [parameter(one.name, one.default, one.metadata["option"]) for one in ordered]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    about = f"Made: {benchmark.made}. Timed: {benchmark.timed}. Bound: {benchmark.bound}."
    app.command(name, help=f"{request.__doc__}\n\n{about}")(command)


for _name, _benchmark in BENCHMARKS.items():
    _add(_name, _benchmark)
