"""Print the times of transforms and steps on a CPU, next to FFTW's measured plans.

    python tools/cpu_table.py --out table.json             all three tables
    python tools/cpu_table.py pairs --shapes 64 31x37x41   r2c and c2r, relative to FFTW's
    python tools/cpu_table.py ranks                        a substage over one r2c by FFTW
    python tools/cpu_table.py threads --threads 1 4 16     a step by thread count, and its bits

Each figure comes from ``--processes`` separate processes. In each, the compared actions
take turns, and the minimum counts; tables show the median over processes, and the spread.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine import processes as mpi_launch
from slipstream.engine.array_types import Comm
from slipstream.engine.device import HostDevice
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.schedule import commit
from slipstream.fft import DistributedFFT
from slipstream.spectral.spectral_simulation import SpectralSimulation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.dns import DNSRequest, case_of_step
from bench.reference_ffts import plain_transforms

TITLES = {
    "pairs": "r2c and c2r over FFTW's",
    "ranks": "substage of hd over one r2c by FFTW, a thread a rank",
    "threads": "step of hd, two substages",
}
Figures = dict[str, Any]


def time_actions(
    actions: Mapping[str, Callable[[], object]],
    seconds: float,
    comm: Comm = None,
    lone: bool = False,
) -> dict[str, float]:
    """Return the shortest time of each action; they take turns for `seconds`. Collective.

    A `lone` thread counts its own CPU time, which other threads do not change.
    """
    clock = time.thread_time if lone else time.perf_counter
    best = dict.fromkeys(actions, float("inf"))
    began = time.perf_counter()
    for turn in itertools.count():
        for name, action in actions.items():
            if comm is not None:
                comm.Barrier()
            start = clock()
            action()
            if comm is not None:
                comm.Barrier()
            if turn > 1:  # the first turns touch memory and find out how many threads pay
                best[name] = min(best[name], clock() - start)
        enough = turn > 12 and time.perf_counter() - began > seconds
        if comm.bcast(enough) if comm is not None else enough:
            return best
    raise AssertionError


def measure_pair(shape: tuple[int, int, int], dtype: str, threads: int, seconds: float) -> Figures:
    """Compare a transform there and back with FFTW's, by as many threads."""
    device = HostDevice(threads=threads)
    plan = DistributedFFT(shape, dtype, device=device)
    points, back, modes = plan.empty_input(), plan.empty_input(), plan.empty_output()
    points[...] = np.random.default_rng(0).random(shape) - 0.5
    plain_forward, plain_backward = plain_transforms(device, shape, np.dtype(dtype), threads)
    # Small transforms are repeated until the clock's steps do not matter.
    number = max(1, round(4e5 / np.prod(shape)))

    def repeated(action: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(number):
                action()

        return run

    actions = {
        "forward": lambda: plan.forward(points, out=modes),
        "backward": lambda: plan.backward(modes, out=back),
        "plain forward": plain_forward,
        "plain backward": plain_backward,
    }
    best = time_actions(
        {name: repeated(one) for name, one in actions.items()}, seconds, lone=threads == 1
    )
    ours, plain = (best[f"{who}forward"] + best[f"{who}backward"] for who in ("", "plain "))
    milliseconds = {name: one / number * 1e3 for name, one in best.items()}
    return {"ratio": ours / plain, "ms": milliseconds, "error": float(abs(back - points).max())}


def make_step(n: int, comm: Comm) -> tuple[SpectralSimulation, Any]:
    """Return a simulation of hd and its recorded step, on a device as runs have it."""
    device = open_matching_device("cpu", comm)
    case = case_of_step(DNSRequest(n=n, device="cpu"))
    simulation = SpectralSimulation(case, comm, device)
    simulation._allocate()
    simulation._initialise()
    simulation.flow.set_step_size(1e-6)
    # Steps of zeros would show nothing by their bits.
    random = np.random.default_rng(0)
    state = simulation.flow.state
    shape = *state.shape[:-1], simulation.problem.geometry.modes[2].count
    state[..., : shape[-1]] = random.standard_normal((*shape, 2)).view(complex)[..., 0]
    return simulation, commit(simulation.flow.record_step(), case.run.schedule)


def measure_ranks(n: int, seconds: float) -> Figures:
    """Compare a substage on these ranks, a thread each, with FFTW's r2c on one. Collective."""
    comm = mpi_launch.world_comm()
    simulation, step = make_step(n, comm)
    is_first = comm is None or comm.rank == 0
    plain = plain_transforms(simulation.device, (n,) * 3, "float64", 1)[0] if is_first else None
    wait = comm.Barrier if comm is not None else lambda: None
    wait()
    best = {"step": float("inf"), "r2c": float("inf")}
    for _ in range(8):
        best["step"] = min(
            best["step"], time_actions({"step": step.run}, seconds / 16, comm)["step"]
        )
        if plain is not None:
            best["r2c"] = min(best["r2c"], time_actions({"r2c": plain}, seconds / 16)["r2c"])
        wait()
    substage = best["step"] / simulation.problem.method.substages
    milliseconds = {"substage": substage * 1e3, "r2c": best["r2c"] * 1e3}
    return {"ratio": substage / best["r2c"], "ms": milliseconds}


def measure_threads(n: int, seconds: float) -> Figures:
    """Time a step by all threads, and give a digest of the state after some steps."""
    simulation, step = make_step(n, None)
    for _ in range(5):
        step.run()
    kept = simulation.problem.geometry.modes[2].count
    state = np.ascontiguousarray(simulation.flow.state[..., :kept])
    digest = hashlib.sha256(state.tobytes()).hexdigest()[:16]
    best = time_actions({"step": step.run}, seconds)["step"]
    step.run(profile=True)
    by_node: dict[str, float] = {}
    for entry in step.timeline.entries:
        by_node[entry.label] = by_node.get(entry.label, 0.0) + (entry.stop - entry.start) * 1e3
    return {"ms": {"step": best * 1e3}, "bits": digest, "ms of all threads": by_node}


def measure_in_process(table: str, ranks: int = 1, **options: object) -> Figures:
    """Return the measurement of a process, or of a number of ranks."""
    launcher = [mpi_launch.find_mpiexec(), "--oversubscribe", "-n", str(ranks)]
    words = [word for name, one in options.items() for word in (f"--{name}", str(one))]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(options.get("threads", 1)),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = [*launcher[: 4 * (ranks > 1)], sys.executable, __file__, "measure", table, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(lines[-1])
    return figures


def rows_of(table: str, arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each row of a table, and what its processes are asked for."""
    size = {"n": arguments.n, "seconds": arguments.seconds}
    if table == "ranks":
        return [(f"{n} rank{'s' * (n > 1)}", {"ranks": n, **size}) for n in arguments.ranks]
    cores = len(os.sched_getaffinity(0))
    counts = [n for n in arguments.threads if n <= cores]
    if table == "threads":
        return [(f"{n} thread{'s' * (n > 1)}", {"threads": n, **size}) for n in counts]
    return [
        (
            f"{shape} {dtype}, {n} thread{'s' * (n > 1)}",
            {"shape": shape, "dtype": dtype, "threads": n, "seconds": arguments.seconds},
        )
        for dtype in arguments.dtypes
        for n in counts
        if n <= 2
        for shape in arguments.shapes
    ]


def print_row(name: str, measured: Sequence[Figures]) -> None:
    """Print one row: a median over processes, its spread, and the times of the quickest one."""
    values = sorted(
        figures["ratio"] if "ratio" in figures else figures["ms"]["step"] for figures in measured
    )
    quickest = min(
        measured,
        key=lambda figures: figures["ratio"] if "ratio" in figures else figures["ms"]["step"],
    )
    times = "  ".join(f"{key} {one:.3f}" for key, one in quickest["ms"].items())
    bits = " ".join({figures["bits"] for figures in measured if "bits" in figures})
    unit = "" if "ratio" in measured[0] else " ms"
    print(
        f"  {name:28} {statistics.median(values):7.3f}{unit} ({values[0]:.3f} to"
        f" {values[-1]:.3f})  {times} {bits}",
        flush=True,
    )


def main() -> None:
    """Measure in this process, or start processes that measure and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(TITLES))
    parser.add_argument(
        "--shapes", nargs="+", default=["64", "96", "128", "192", "256", "31x37x41"]
    )
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--n", type=int, default=128, help="points of a step along each axis")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--out", type=Path, help="file to write the figures to")
    # Of one process.
    parser.add_argument("--shape")
    parser.add_argument("--dtype")
    arguments = parser.parse_args()
    if arguments.tables[0] == "measure":
        measure(arguments)
        return
    results: dict[str, dict[str, list[Figures]]] = {}
    for table in arguments.tables:
        print(f"{TITLES[table]}, {arguments.processes} processes each", flush=True)
        rows = rows_of(table, arguments)
        of_table: dict[str, list[Figures]] = {name: [] for name, _ in rows}
        # Processes take turns, so that other load of the machine affects all rows alike.
        for _ in range(arguments.processes):
            for name, options in rows:
                of_table[name].append(measure_in_process(table, **options))
        for name, measured in of_table.items():
            print_row(name, measured)
        results[table] = of_table
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(results, indent=1))


def measure(arguments: argparse.Namespace) -> None:
    """Measure one row of a table in this process, and print it for the calling process."""
    table, threads = arguments.tables[1], arguments.threads[0]
    if table == "pairs":
        lengths = [int(n) for n in arguments.shape.split("x")]
        z, y, x = lengths if len(lengths) == 3 else lengths * 3
        figures = measure_pair((z, y, x), arguments.dtype, threads, arguments.seconds)
    elif table == "ranks":
        figures = measure_ranks(arguments.n, arguments.seconds)
    else:
        figures = measure_threads(arguments.n, arguments.seconds)
    comm = mpi_launch.world_comm()
    if comm is None or comm.rank == 0:
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
