"""The cost of one rank of many: processor time, memory and messages of its set-up and recording.

Nothing runs, and no other rank exists. Each row is a fresh process (`one_rank`), so that its memory
and imports are a rank's. A step of turbulence divides space into slabs if each rank has a plane,
and into the most even pencils if there are at least as many ranks as planes: with fewer, a rank has
too many pieces of planes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from bench.harness import (
    ROOT,
    Column,
    Outcome,
    Request,
    Transport,
    headline,
    names_of,
    notes_of,
    option,
    show_table,
)
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, bytes_text
from slipstream.engine.fft.slab_layout import pencil_grid
from slipstream.spectral.kept_modes import kept_modes

SUBJECTS = {
    "slab step": "RK4 step in slabs",
    "pencil step": "RK4 step in pencils",
    "transform": "forward transform in pencils",
}


def counts_of(text: str) -> tuple[int, ...]:
    """Return the numbers in a comma-separated list."""
    names = names_of(text)
    if not names or not all(name.isdecimal() and int(name) for name in names):
        raise InputError(f"--of {text!r}; accepted: numbers of ranks with commas between")
    return tuple(map(int, names))


@dataclass(frozen=True, kw_only=True)
class RanksRequest(Request):
    """Measure the set-up and recording of a step and a transform on one rank of many."""

    of: Annotated[
        tuple[int, ...],
        option(
            "How many ranks there are, with commas.",
            parse=counts_of,
            metavar="NUMBERS",
            show_default="64,1024,16384,262144",
        ),
    ] = (64, 1024, 16384, 262144)
    points: Annotated[int, option("Points along each axis.", "--n", metavar="N", min=1)] = 16384
    ranks_per_node: Annotated[int, option("Ranks of a node.", metavar="N", min=1)] = 8
    transport: Transport = "auto"


def run(request: RanksRequest, device: Device, comm: Comm) -> Outcome:
    """Measure on the first rank. Collective."""
    result = on_first_rank(comm, lambda: measure_ranks(request, device.kind))
    headlines = {
        f"{row['what']}, {row['ranks']}": headline(row["seconds"]) for row in result["rows"]
    }
    title = f"one rank of many, {request.points}³ points"
    return Outcome("ranks", title, device, result, print_ranks, headlines)


def measure_ranks(request: RanksRequest, kind: str) -> dict[str, Any]:
    """Return a row for each number of ranks and each subject that can be divided among them."""
    rows = []
    for ranks in request.of:
        for what in SUBJECTS:
            if _gives_work(what, request.points, ranks):
                asked = (what, ranks, request.points, request.ranks_per_node, request.transport)
                rows.append(_in_fresh_process((kind, *asked)))
    return {"points": request.points, "ranks per node": request.ranks_per_node, "rows": rows}


def _gives_work(what: str, points: int, ranks: int) -> bool:
    """Return whether all ranks have work; in a transform some may have none."""
    if what == "slab step":
        return ranks <= points
    if what == "transform":
        return True
    shape = (points,) * 3
    grid = pencil_grid(shape, kept_modes(shape, "2/3"), ranks)
    return ranks >= points and grid is not None


def _in_fresh_process(asked: tuple[Any, ...]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.one_rank", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def print_ranks(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each number of ranks and each subject."""
    columns: dict[str, Column] = {
        "what": lambda row: SUBJECTS[row["what"]],
        "ranks": "ranks",
        "set-up": "seconds|s",
        "imports": "seconds of imports|s",
        "files": "Python files",
        "memory": lambda row: bytes_text(row["bytes"]),
        "peers": "peers",
        "messages": "messages",
        "largest": lambda row: bytes_text(row["largest message"]),
        "sent": lambda row: bytes_text(row["bytes sent"]),
    }
    meaning = "set-up: geometry, exchanges and recorded graph of one rank, in processor time"
    show_table(title, columns, result["rows"], [meaning, *notes_of(result)])
