"""How benchmarks measure: medians of repetitions, taken in turn, beside a measured bound."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipstream.device import Device, large_copy
from slipstream.machine_info import gather_facts


def medians(
    device: Device, actions: Mapping[str, Callable[[], None]], repetitions: int, comm: Any = None
) -> dict[str, float]:
    """Time several actions side by side.

    One repetition runs each action once, so that all of them see the same noise.

    Parameters
    ----------
    device : Device
        Waited for before and after each action.
    actions : mapping of str to callable
        What to time. Each is run once beforehand.
    repetitions : int
        Number of timed runs.
    comm : mpi4py.MPI.Comm, optional
        Ranks that start together; the slowest one counts.

    Returns
    -------
    dict of str to float
        Median seconds.
    """
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for repetition in range(repetitions + 1):
        for name, action in actions.items():
            device.synchronize()
            if comm is not None:
                comm.Barrier()
            start = time.perf_counter()
            action()
            device.synchronize()
            elapsed = time.perf_counter() - start
            if repetition:
                samples[name].append(elapsed)
    result = {name: statistics.median(values) for name, values in samples.items()}
    if comm is not None:
        everyone = comm.allgather(result)
        result = {name: max(one[name] for one in everyone) for name in result}
    return result


def extreme(comm: Any, value: float, choose: Callable[..., float]) -> float:
    """Return what `choose`, such as max, takes of the values of all ranks. Collective."""
    return value if comm is None else choose(comm.allgather(value))


def copy_bandwidth(device: Device, size: int = 1 << 30) -> Callable[[], float]:
    """Return a function that measures bytes read plus written per second by a large copy."""
    copy, moved = large_copy(device, size)
    return lambda: moved / medians(device, {"copy": copy}, 5)["copy"]


def commit_name() -> str:
    """Return the commit of the source tree, marked if changed; "unknown" outside of one."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except OSError:
        return os.environ.get("SLIPSTREAM_COMMIT", "unknown")
    return result.stdout.strip() or os.environ.get("SLIPSTREAM_COMMIT", "unknown")


def write_record(path: str | Path, benchmark: str, device: Device, result: Mapping) -> None:
    """Write a result as JSON, with what is needed to understand it later.

    Parameters
    ----------
    path : path
        The file.
    benchmark : str
        Name of the benchmark.
    device : Device
        Where it ran.
    result : mapping
        Settings and figures.
    """
    # Paths tell of a person's machine, not of a measurement.
    paths = ("cache folder", "mpiexec")
    facts = {name: fact for name, fact in gather_facts().items() if name not in paths}
    record = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_name(),
        "device": device.name,
        "machine": facts,
        "result": dict(result),
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
