"""All headline figures in one run: each in fresh processes, on one device and on several.

Each process chooses plans, streams and memory itself, so a figure has a spread over processes as
well as a spread over the repetitions within each.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from bench.harness import (
    ROOT,
    Column,
    Headline,
    Outcome,
    Request,
    left_out,
    names_of,
    option,
    show_table,
)
from slipstream.engine.array_types import Comm
from slipstream.engine.device import Device, cuda_device_count
from slipstream.engine.errors import InputError
from slipstream.engine.text import counted, quantity

# The benchmarks on one GPU, and on all GPUs with a rank each.
_GPU = {
    "DNS 512³": "dns --n 512 --no-plain",
    "DNS 512³ single": "dns --n 512 --no-plain --precision float32",
    "DNS mhd 512³": "dns --n 512 --no-plain --model mhd",
    "FFT 512³": "fft --n 512 --no-plain",
    "FFT 1024³": "fft --n 1024 --no-plain",
    "sandstone 320³": "lattice --n 320 --radius 20",
    "sandstone 320³ single": "lattice --n 320 --radius 20 --precision float32",
    "advection 420³": "advection --n 420 --strategies gpu",
    "DNS 512³ from the host": "dns --n 512 --residency host --memory 8GiB",
}
_GPUS = {
    "DNS 512³": "dns --n 512 --no-plain",
    "DNS 1024³": "dns --n 1024 --no-plain",
    "FFT 512³": "fft --n 512 --no-plain",
    "FFT 1024³": "fft --n 1024 --no-plain",
    "FFT 1024³ truncated": "fft --n 1024 --no-plain --truncation 2/3",
    "FFT 1024³ pencils": "fft --n 1024 --no-plain --layout pencil",
    "sandstone 320³": "lattice --n 320 --radius 20",
}
_CPU = {
    "DNS 128³": "dns --n 128 --no-plain",
    "FFT 128³": "fft --n 128 --no-plain",
    "sandstone 128³": "lattice --n 128 --radius 8",
    "advection 200³": "advection --n 200 --strategies single",
}
_CPUS = {name: _CPU[name] for name in ("DNS 128³", "FFT 128³")}


@dataclass(frozen=True, kw_only=True)
class HeadlinesRequest(Request):
    """Measure all headline figures, each in fresh processes, on one device and on several."""

    processes: Annotated[int, option("Fresh processes for each figure.", min=1)] = 3
    only: Annotated[
        tuple[str, ...],
        option(
            "Figures whose names contain one of these, with commas.",
            parse=names_of,
            metavar="TEXTS",
        ),
    ] = ()

    def check(self) -> None:
        if (self.ranks or 1) > 1:
            raise InputError("--ranks is not for headlines: they start ranks themselves")


def run(request: HeadlinesRequest, device: Device, comm: Comm) -> Outcome:
    """Measure every figure in fresh processes."""
    figures: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    ranks = 2 if device.kind == "cpu" else cuda_device_count()
    for name, command in commands_of(device.kind, ranks).items():
        if request.only and not any(part in name for part in request.only):
            continue
        try:
            measurements = [_measured(command, device.kind) for _ in range(request.processes)]
        except _Failed as error:
            missing[name] = str(error)
            continue
        for key in measurements[0]:
            figures[f"{name}: {key}"] = _figure(command, [one[key] for one in measurements])
    result = {
        "processes": request.processes,
        "figures": [{"name": name, **one} for name, one in figures.items()],
        "left out": missing,
    }
    headlines = {
        name: Headline(one["seconds"], one["spread of repetitions"], one["bound (s)"])
        for name, one in figures.items()
    }
    title = f"headline figures on {device.name}"
    return Outcome("headlines", title, device, result, print_headlines, headlines)


def commands_of(kind: str, ranks: int) -> dict[str, str]:
    """Return the arguments of ``python -m bench`` for each figure, by name."""
    single, several = (_CPU, _CPUS) if kind == "cpu" else (_GPU, _GPUS)
    unit = "rank" if kind == "cpu" else "GPU"
    commands = {f"{name}, 1 {unit}": command for name, command in single.items()}
    if ranks > 1:
        for name, command in several.items():
            commands[f"{name}, {counted(ranks, unit)}"] = f"{command} --ranks {ranks}"
    return commands


class _Failed(Exception):
    """A benchmark that ended without a record; the text is its last line of output."""


def _measured(command: str, kind: str) -> dict[str, dict[str, Any]]:
    """Return the headlines of a benchmark that runs in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as folder:
        record = Path(folder) / "record.json"
        arguments = [*shlex.split(command), "--device", kind, "--json", str(record)]
        done = subprocess.run(
            [sys.executable, "-m", "bench", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not record.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise _Failed(said[-1] if said else f"ended with status {done.returncode}")
        headlines: dict[str, dict[str, Any]]
        headlines = json.loads(record.read_text(encoding="utf-8"))["headlines"]
        return headlines


def _figure(command: str, measurements: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a figure of the headlines that several processes measured."""
    seconds = [one["seconds"] for one in measurements]
    median = statistics.median(seconds)
    bounds = [one["bound"] for one in measurements if one["bound"] is not None]
    bound = statistics.median(bounds) if bounds else None
    return {
        "command": f"python -m bench {command}",
        "seconds": median,
        "seconds of each process": seconds,
        "spread of processes": (max(seconds) - min(seconds)) / median,
        "spread of repetitions": max(one["spread"] for one in measurements),
        "bound (s)": bound,
        "fraction of the bound": bound / median if bound else None,
    }


def print_headlines(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each figure."""
    columns: dict[str, Column] = {
        "figure": "name",
        "median": "seconds|s",
        "bound": lambda row: quantity(row["bound (s)"], "s") if row["bound (s)"] else "",
        "fraction\nof the bound": lambda row: _percent(row["fraction of the bound"]),
        "spread of\nprocesses": lambda row: _percent(row["spread of processes"]),
        "spread of\nrepetitions": lambda row: _percent(row["spread of repetitions"]),
    }
    note = (
        f"median of the medians of {result['processes']} fresh processes; spread of processes:"
        " (largest - smallest) / median; spread of repetitions: distance of the quartiles / median"
    )
    show_table(title, columns, result["figures"], [note, *left_out(result)])


def _percent(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{100 * value:.3g} %"
