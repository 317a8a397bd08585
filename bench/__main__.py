"""``python -m bench NAME``: a command for each benchmark; its options are a request's fields."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer

from bench import advection, dns, exchange, fft, harness, headlines, lattice, ranks
from slipstream import cli

BENCHMARKS: dict[str, tuple[type[harness.Request], harness.Run]] = {
    "headlines": (headlines.HeadlinesRequest, headlines.run),
    "dns": (dns.DNSRequest, dns.run),
    "exchange": (exchange.ExchangeRequest, exchange.run),
    "ranks": (ranks.RanksRequest, ranks.run),
    "fft": (fft.TransformRequest, fft.run),
    "advection": (advection.AdvectionRequest, advection.run),
    "lattice": (lattice.LatticeRequest, lattice.run),
}

app = typer.Typer(
    help="Measure speed, and its bound in the same run.",
    no_args_is_help=True,
    add_completion=False,
)


def _add_command(name: str, request: type[harness.Request], run: harness.Run) -> None:
    """Add a command whose options are the fields of a request, those of all benchmarks last."""

    def command(**options: Any) -> None:
        harness.run_benchmark(name, run, request(**options))

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
    paragraphs = (" ".join(one.split()) for one in (request.__doc__ or "").split("\n\n"))
    app.command(name, help="\n\n".join(paragraphs))(command)


for _name, _benchmark in BENCHMARKS.items():
    _add_command(_name, *_benchmark)


def main(arguments: list[str] | None = None) -> None:
    """Run a benchmark and exit with the statuses of the ``slipstream`` command."""
    cli.main(arguments, app, "python -m bench")


if __name__ == "__main__":
    main()
