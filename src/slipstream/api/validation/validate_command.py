"""``slipstream validate``: runs reference cases, prints their findings, and records them."""

from __future__ import annotations

import json
import math
import os
import time as clock
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from slipstream import __version__
from slipstream.api.validation import reference_cases, spectral_cases
from slipstream.api.validation.reference_cases import Finding, ReferenceCase
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import WaitedTooLong, on_first_rank, own, together
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, RunError, name_among
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.text import duration
from slipstream.runs.run_recorder import commit_name, facts_to_publish

CASES: dict[str, Sequence[ReferenceCase]] = {
    "spectral": spectral_cases.CASES,
    "advection": reference_cases.ADVECTION,
    "lattice": reference_cases.LATTICE,
    "fft": reference_cases.FFT,
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a reference case: findings or failure, and seconds."""

    family: str
    title: str
    findings: Sequence[Finding]
    failure: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the case has run, with all findings within their tolerances."""
        return not self.failure and all(one.is_within for one in self.findings)


def validate(
    family: str | None,
    device: str | Device,
    comm: Comm,
    json_file: Path | None,
    console: Console,
) -> None:
    """Run the reference cases of a family, or all; print and perhaps record them. Collective.

    Parameters
    ----------
    family : str, optional
        One of `slipstream.engine.accepted.VALIDATED`; all of them by default.
    device : {"auto", "cpu", "cuda"} or Device
        The device, or its kind.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    json_file : pathlib.Path, optional
        The file in which rank 0 writes the findings and the machine.
    console : rich.console.Console
        The console on which rank 0 prints.

    Raises
    ------
    InputError
        If there is no such family, or the path cannot be a file.
    RunError
        If a case fails, after all cases have run.
    """
    families = list(CASES) if family is None else [name_among("family", family, CASES)]
    comm = own(comm, "validation")
    if comm is not None and comm.rank:
        console = Console(quiet=True)
    on_first_rank(comm, lambda: check_file(json_file))
    device = open_matching_device(device, comm)
    ranks = 1 if comm is None else comm.size
    plural = "rank" if ranks == 1 else "ranks"
    _print(console, f"Slipstream {__version__}, {device.name}, {ranks} {plural}", "bold")
    began, outcomes = clock.perf_counter(), []
    for name in families:
        for case in CASES[name]:
            outcomes.append(run_case(name, case, device, comm))
            show(console, outcomes[-1])
    seconds = clock.perf_counter() - began
    failed = sum(not one.passed for one in outcomes)
    if json_file is not None:
        on_first_rank(comm, lambda: write_json(json_file, outcomes, device, ranks, seconds))
        _print(console, f"written: {json_file}")
    count = f"{len(outcomes)} reference cases in {duration(seconds)}"
    if failed:
        raise RunError(f"{failed} of {count} failed")
    _print(console, f"all {count} passed", "bold")


def run_case(family: str, case: ReferenceCase, device: Device, comm: Comm) -> Outcome:
    """Run a case; a failure on any rank is its outcome. Collective."""
    began, failure = clock.perf_counter(), ""
    findings: list[Finding] = []
    try:
        with together(comm, holds=False):
            for finding in case.run(device, comm):
                findings.append(finding)
    except WaitedTooLong:
        raise
    except Exception as error:
        if os.environ.get("SLIPSTREAM_TRACEBACK") == "1":
            traceback.print_exc()
        failure = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(family, case.title, findings, failure, clock.perf_counter() - began)


def show(console: Console, outcome: Outcome) -> None:
    """Print the outcome of a case, in a paragraph of at most 80 columns."""
    _print(console, f"{outcome.family}: {outcome.title}, {duration(outcome.seconds)}")
    for source in dict.fromkeys(finding.source for finding in outcome.findings):
        _print(console, source, "dim", 2)
    for finding in outcome.findings:
        mark, style = ("passed", "green") if finding.is_within else ("FAILED", "bold red")
        line = Text(f"{mark}  ", style).append(finding.what, "default")
        console.print(Padding(line, (0, 0, 0, 2), expand=False), highlight=False)
        figures = (
            f"{finding.got:.10g}, expected {finding.expected:.10g};"
            f" error {finding.error:.2g}, allowed {finding.tolerance:.2g}"
        )
        _print(console, figures, indent=10)
    if outcome.failure:
        _print(console, f"FAILED  {outcome.failure}", "bold red", 2)


def _print(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    console.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False), highlight=False)


# -- the record ------------------------------------------------------------------------------------


def check_file(path: Path | None) -> None:
    """Refuse a path that cannot become a file, before anything is computed."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"--json {path}: is a folder; accepted: a file")
    path.parent.mkdir(parents=True, exist_ok=True)


def write_json(
    path: Path, outcomes: Sequence[Outcome], device: Device, ranks: int, seconds: float
) -> None:
    """Write the findings and the machine, for a paper or a bug report."""
    record = {
        "format": 1,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "commit": commit_name(),
        "device": device.name,
        "ranks": ranks,
        "machine": facts_to_publish(),
        "seconds": round(seconds, 3),
        "passed": all(one.passed for one in outcomes),
        "cases": [_as_json(one) for one in outcomes],
    }
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "family": outcome.family,
        "case": outcome.title,
        "seconds": round(outcome.seconds, 3),
        "verdict": "passed" if outcome.passed else "failed",
        "failure": outcome.failure,
        "findings": [
            {
                "what": finding.what,
                "source": finding.source,
                "expected": finding.expected,
                # JSON has no infinity or not-a-number.
                "got": finding.got if math.isfinite(finding.got) else str(finding.got),
                "error": finding.error if math.isfinite(finding.error) else str(finding.error),
                "tolerance": finding.tolerance,
                "verdict": "passed" if finding.is_within else "failed",
            }
            for finding in outcome.findings
        ],
    }
