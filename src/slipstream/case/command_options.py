"""Options of the command line: the values that they accept, and their completion in shells."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.case import SHIPPED_CASES, Case
from slipstream.case.case_loading import SOLVERS as CASES
from slipstream.case.case_loading import read_tables
from slipstream.case.table import key_at, keys_of, sentence
from slipstream.engine.accepted import DEVICES, LOG_LEVELS, listed
from slipstream.engine.errors import InputError, SlipstreamError
from slipstream.engine.text import shown

# The file of the case in the folder of every run.
_CASE_OF_RUN = "case.toml"


def one_of(names: Iterable[str], what: str = "{}") -> Any:
    """Return an option that takes one of some names, with `what` of them said in its help."""
    accepted = list(names)

    def checked(context: typer.Context, parameter: Any, value: str | None) -> str | None:
        if value is not None and value not in accepted and not context.resilient_parsing:
            raise InputError(
                f"{parameter.opts[-1]}: {shown(value)} is not accepted; accepted:"
                f" {', '.join(accepted)}"
            )
        return value

    return typer.Option(
        help=f"{what.format(listed(accepted))}.",
        callback=checked,
        autocompletion=beginning_with(accepted),
    )


def beginning_with(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes an option or argument from a list of names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_case(incomplete: str) -> list[tuple[str, str]]:
    """Return shipped cases, TOML files and folders that begin so, with their descriptions."""
    shipped = [(name, case.what) for name, case in SHIPPED_CASES.items()]
    return [one for one in shipped if one[0].startswith(incomplete)] + [
        (path, "") for path in _paths(incomplete) if path.endswith(("/", ".toml"))
    ]


def complete_run(incomplete: str) -> list[str]:
    """Return folders of runs, and folders that may hold some, that begin so."""
    folders = [path for path in _paths(incomplete) if path.endswith("/")]
    if not incomplete:
        folders += _paths("runs/")
    runs = [path.rstrip("/") for path in folders if os.path.isfile(f"{path}{_CASE_OF_RUN}")]
    return runs or folders


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return keys that begin so, of the case on the command line or of all, with their meaning."""
    keys = {key: key_at(CASES[one], key) for one in _families() for key in keys_of(CASES[one])}
    return [
        (f"{key}=", declared.description or "")
        for key, declared in keys.items()
        if f"{key}=".startswith(incomplete)
    ]


def _families() -> list[str]:
    """Return the solver family of the case on the command line that is completed, or all."""
    # The command line without a value for the last option is not parsed; shells pass it so.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    for word in line.split()[2:]:
        word = os.path.join(word, _CASE_OF_RUN) if os.path.isdir(word) else word
        try:
            tables, _ = read_tables(word)
        except (OSError, SlipstreamError):
            continue
        if tables.get("solver") in tuple(CASES):
            return [tables["solver"]]
    return list(CASES)


def _paths(incomplete: str) -> list[str]:
    """Return files, and folders with a slash behind them, that begin so."""
    found = glob.glob(f"{glob.escape(incomplete)}*")
    return sorted(f"{path}/" if os.path.isdir(path) else path for path in found)


def value(metavar: str, help: str, *names: str) -> Any:
    """Return an option with a value, named like its argument unless it has other names."""
    return typer.Option(*names, metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


# Arguments and options of several commands.
CaseArgument = Annotated[
    Path,
    typer.Argument(
        help="The case: a TOML file, or one of `slipstream cases`.",
        metavar="CASE",
        autocompletion=complete_case,
    ),
]


RunArgument = Annotated[
    Path,
    typer.Argument(help="Output folder of the run.", metavar="RUN", autocompletion=complete_run),
]


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, e.g. grid.points=64; KEY= unsets it.",
        autocompletion=complete_setting,
    ),
]


Ranks = Annotated[int | None, value("N", "Start N MPI ranks on this machine.")]


_MEANING_OF_DEVICE = sentence(key_at(Case, "run.device").description or "").removesuffix(".")


Device = Annotated[str | None, one_of([*DEVICES, "auto"], f"{_MEANING_OF_DEVICE}: {{}}")]


RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Output folders of runs; several go into one figure or page.",
        metavar="RUN...",
        autocompletion=complete_run,
    ),
]


AnyDevice = Annotated[str, one_of([*DEVICES, "auto"])]


Quiet = Annotated[bool, flag("--quiet", "Print errors only; run.log has the rest.")]


LogLevel = Annotated[str, one_of(LOG_LEVELS, "What run.log has: {}")]
