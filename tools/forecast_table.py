"""Forecast steps and transforms of this machine, then measure them, and print both in a table.

    mpiexec -n 2 python tools/forecast_table.py --out forecast-2.json
    python tools/forecast_table.py --show forecast-1.json forecast-2.json

The rates are those of ``slipstream info --calibrate``, measured first, on the same ranks. All
forecasts are written to the file before anything of them is measured. Each step is timed in rounds,
fewer where it takes long; the table shows the median over rounds, and the quartiles. On two cores
that do nothing else it takes one to two minutes; begin each with nothing else running.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipstream.api.forecast import Machine, step_time
from slipstream.api.forecast.step_rates import calibrate, counts_of_family, stepping
from slipstream.engine import processes as mpi_launch
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank, own
from slipstream.engine.device import Device
from slipstream.engine.exchange import open_matching_device

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.harness import read_results, write_record

# Points along an axis. The calibration times other sizes.
SIZES = {
    "cpu": {
        "spectral": (32, 64, 128),
        "lattice": (48, 72, 128),
        "advection": (48, 96, 160),
        "transform": (32, 64, 128),
    },
    "gpu": {
        "spectral": (64, 256, 768),
        "lattice": (96, 200, 480),
        "advection": (64, 256, 840),
        "transform": (64, 256, 768),
    },
}
# The largest number of rounds.
ROUNDS = 9
# Seconds of repeated steps in each round.
SECONDS = 0.2
# Seconds after which no further round starts.
LONGEST = 5.0
# The smallest number of rounds.
FEWEST = 3
Row = dict[str, Any]


def rows_of(kind: str) -> Iterator[Row]:
    """Yield the forecasts for a kind of device."""
    for family, sizes in SIZES[kind].items():
        for points in sizes:
            yield {"family": family, "points": points}


def forecast_row(row: Row, machine: Machine, ranks: int) -> float:
    """Return the forecast for a step or a transform, in seconds."""
    counts = counts_of_family(row["family"], row["points"], machine, ranks)
    return step_time(counts, machine).total


def time_rounds(steps: Callable[[], Any], count: int, device: Device, comm: Comm) -> list[float]:
    """Return the seconds of a step in each round, on the slowest rank. Collective."""

    def seconds(repetitions: int) -> float:
        device.synchronize()
        if comm is not None:
            comm.Barrier()
        began = time.perf_counter()
        for _ in range(repetitions):
            steps()
        device.synchronize()
        local_seconds = (time.perf_counter() - began) / repetitions / count
        return local_seconds if comm is None else float(comm.allreduce(local_seconds, op=max))

    began = time.perf_counter()

    def is_over() -> bool:
        is_late = time.perf_counter() - began > LONGEST
        return is_late if comm is None else bool(comm.allreduce(is_late, op=max))

    seconds(2)
    rounds: list[float] = []
    longest = seconds(1)
    while len(rounds) < FEWEST or (len(rounds) < ROUNDS and not is_over()):
        rounds.append(seconds(max(1, int(SECONDS / (count * longest)))))
        longest = max(longest, rounds[-1])  # a busy machine has single steps that take long
    return rounds


def run_forecasts(out: Path, name: str) -> None:
    """Calibrate, forecast, write that, and measure. Collective."""
    comm = own(mpi_launch.world_comm(), "forecasts")
    ranks = 1 if comm is None else comm.size
    device = open_matching_device(name, comm)
    with tempfile.TemporaryDirectory() as folder:
        machine = calibrate(device, comm, Path(folder) / "machine.toml")
    rows = list(rows_of(device.processor))
    for row in rows:
        row["forecast"] = forecast_row(row, machine, ranks)
    result = {
        "ranks": ranks,
        "forecast at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}",
        "rates": machine.model_dump(exclude_none=True),
        "rows": rows,
    }

    def write() -> None:
        write_record(out, "forecast", device, result, {"asked": {"ranks": ranks, "device": name}})

    on_first_rank(comm, write)
    for row in rows:
        steps = stepping(row["family"], row["points"], device, comm)
        row["measured"] = time_rounds(*steps, device, comm)
        on_first_rank(comm, write)  # results so far survive an early end
    if comm is None or comm.rank == 0:
        show([result])


def show(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of forecasts and measurements."""
    print("| what | points | ranks | forecast | measured | quartiles | error |")
    print("|---|---|---|---|---|---|---|")
    for record in records:
        for row in record["rows"]:
            if "measured" not in row:
                continue
            low, middle, high = (1e3 * x for x in statistics.quantiles(row["measured"], n=4))
            expected = 1e3 * row["forecast"]
            print(
                f"| {row['family']} | {row['points']}³ | {record['ranks']} | {expected:.3g} ms"
                f" | {middle:.3g} ms | {low:.3g} to {high:.3g} | {expected / middle - 1:+.0%} |"
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="write a record")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=Path, nargs="+", help="print records")
    asked = parser.parse_args()
    if asked.show:
        show(read_results("forecast", asked.show, "--show"))
    elif asked.out:
        run_forecasts(asked.out, asked.device)
    else:
        parser.error("give --out FILE or --show FILE ...")


if __name__ == "__main__":
    main()
