"""``slipstream bench``: the benchmarks on the command line."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Annotated, Any, cast, get_type_hints

import typer

from slipstream.bench import requests

app = typer.Typer(help="Measure speed, beside the bound of the same run.", no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Measure speed, beside the bound of the same run."""


def _add(name: str, request: type[requests.Request]) -> None:
    """Add a command whose options are the fields of a request, its own ones first."""

    def command(**options: Any) -> None:
        from slipstream.bench.harness import run_benchmark

        run_benchmark(f"slipstream.bench.{name}_bench", request(**options))

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
    app.command(name, help=request.__doc__)(command)


_add("headlines", requests.HeadlinesRequest)
_add("dns", requests.DNSRequest)
_add("exchange", requests.ExchangeRequest)
_add("fft", requests.TransformRequest)
_add("advection", requests.AdvectionRequest)
_add("lattice", requests.LatticeRequest)
