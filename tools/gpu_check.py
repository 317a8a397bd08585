"""Everything that needs a GPU, in one command: ``python tools/gpu_check.py``.

Runs the tests that hold on any device on a GPU, those that only a GPU can run, and the parallel
ones on 2 and 4 MPI ranks, which share the GPUs in turn. What does not disturb each other runs at
the same time. Run it from the root of the repository; its last line is ``N passed, N failed``, the
sum over all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipstream import mpi_launch
from slipstream.device import cuda_device_count
from slipstream.errors import InputError
from slipstream.printable_text import allow_plain_output

# What measures the memory of a GPU runs alone.
ALONE = ("tests/gpu",)
SERIAL = (
    "tests/unit/fft/test_fft.py",
    "tests/unit/exchange/test_box_copies.py",
    "tests/unit/advection/test_advection_kernels.py",
    "tests/unit/package/test_examples.py",
)
ROOT = Path(__file__).resolve().parents[1]


def shares(folder: str, count: int) -> list[tuple[str, ...]]:
    """Return the test files of a folder, divided among so many processes.

    They are long if their tests are many, so each gets a long file and then a short one.
    """
    files = sorted((ROOT / folder).glob("test_*.py"), key=lambda path: -path.stat().st_size)
    names = [str(path.relative_to(ROOT)) for path in files]
    return [(*names[i :: 2 * count], *names[2 * count - 1 - i :: 2 * count]) for i in range(count)]


# Kernels are many, and a process mostly waits for one of its own to be compiled.
PHYSICS = shares("tests/physics", 6)
PARALLEL = shares("tests/parallel", 3)
# Ranks that share a GPU and poll each other's messages are slow beside anything else.
SHARED = tuple(
    f"tests/parallel/test_{name}.py"
    for name in (
        "advection_strategies",
        "fft_agreement",
        "fft_layouts",
        "halo_exchange",
        "lattice_flow",
        "parallel_advection",
        "parallel_fft",
        "parallel_lattice_run",
        "parallel_models",
        "parallel_pores",
        "parallel_simulation",
        "peer_transport",
        "several_plans",
        "sparse_exchange",
    )
)
# One group after the other: ranks, what they run, and the seconds after which they are stopped,
# below ten minutes in all.
GROUPS = (
    ((1, ALONE, 140),),
    (
        *((ranks, share, 280) for ranks in (2, 1) for share in PARALLEL),
        (1, SERIAL, 280),
        *((1, share, 280) for share in PHYSICS),
    ),
    ((4, SHARED, 150),),
)
_SECONDS_PER_TEST = 60
# Of what failures say, where pytest did not come to tell them.
_CHARACTERS = 20_000


class Tally:
    """A pytest plugin that writes each outcome to a file at once, so that it outlives an abort.

    Parameters
    ----------
    path : path
        The file, to which all ranks append: failures of any rank, successes of the first. What
        failures say is in a file beside it.
    is_first : bool
        Whether this process is the first rank.
    """

    def __init__(self, path: str | Path, is_first: bool = True) -> None:
        self._path, self._is_first = Path(path), is_first

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the outcome of a test."""
        if report.failed:
            self.note("failed", report.nodeid)
            with _failures(self._path).open("a", encoding="utf-8") as file:
                file.write(f"\n{report.nodeid}\n{report.longreprtext}\n")
        elif report.when == "call" and report.passed and self._is_first:
            self.note("passed", report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot even be read."""
        if report.failed:
            self.note("failed", report.nodeid)

    def note(self, outcome: str, name: str) -> None:
        """Append one line."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{outcome} {name}\n")


def _failures(record: Path) -> Path:
    return record.with_suffix(".failures")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, or with ``--record`` the given tests as one rank; return the exit status."""
    allow_plain_output()
    parser = argparse.ArgumentParser(prog="python tools/gpu_check.py", description=__doc__)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.record:
        return _run_tests(options.tests, Path(options.record))
    return _check()


def _check() -> int:
    count = cuda_device_count()
    if not count:
        print("gpu-check: CuPy finds no GPU, so nothing was checked")
        print("0 passed, 1 failed")
        return 1
    print(f"gpu-check: {count} GPU{'s' * (count > 1)}", flush=True)
    passed = failed = 0
    # Runs flush every file, and would await a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="slipstream-gpu-check-", dir=memory) as folder:
        for number, group in enumerate(GROUPS):
            parts = [(*part, Path(folder) / f"{number}-{i}") for i, part in enumerate(group)]
            with ThreadPoolExecutor(len(parts)) as threads:
                for own in threads.map(lambda part: _tally(*part), parts):
                    passed, failed = passed + own[0], failed + own[1]
    sys.stderr.flush()
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def _tally(ranks: int, tests: Sequence[str], seconds: float, record: Path) -> tuple[int, int]:
    """Run one part and print what it said; return how many tests passed and failed."""
    record.touch()
    log = record.with_suffix(".log")
    began = time.monotonic()
    status = _launch(ranks, tests, record, seconds, log)
    took = time.monotonic() - began
    outcomes = [line.split()[0] for line in record.read_text().splitlines()]
    # What ends badly, or tests nothing, has failed even if no test could say so.
    unexplained = "failed" not in outcomes and (status != 0 or not outcomes)
    lines = [f"\ngpu-check: {ranks} rank{'s' * (ranks > 1)}, {took:.0f} s: {' '.join(tests)}"]
    lines.append(log.read_text(errors="replace").rstrip() if log.exists() else "")
    if unexplained:
        lines.append(f"gpu-check: the tests ended with status {status}")
    print("\n".join(lines), flush=True)
    return outcomes.count("passed"), outcomes.count("failed") + unexplained


def _run_tests(tests: Sequence[str], record: Path) -> int:
    """Run tests in this process, which may be one of several ranks."""
    import pytest

    comm = mpi_launch.world_comm()
    is_first = comm is None or comm.rank == 0
    tally = Tally(record, is_first)
    present = [path for path in tests if Path(path).exists()]
    for path in sorted(set(tests) - set(present)) if is_first else ():
        print(f"gpu-check: {path} is missing; run this from the root of the repository")
        tally.note("failed", path)
    options = [
        "--device=cuda",
        "-q",
        "--color=no",
        "-p",
        "no:cacheprovider",
        f"--timeout={_SECONDS_PER_TEST}",
        "--timeout-method=thread",
        # Ranks that tidy up one folder at the same time fail.
        f"--basetemp={record.with_suffix(f'.files-{comm.rank if comm else 0}')}",
    ]
    return int(pytest.main([*options, *present], plugins=[tally])) if present else 1


def _launch(ranks: int, tests: Sequence[str], record: Path, seconds: float, log: Path) -> int:
    """Run tests on some ranks, in processes that may hang or crash; return their exit status."""
    try:
        launcher = [mpi_launch.find_mpiexec(), "-n", str(ranks)] if ranks > 1 else []
    except InputError as error:
        log.write_text(f"gpu-check: {error}")
        return error.exit_status
    module = [sys.executable, __file__, "--record", str(record)]
    # Several parts share the cores.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}
    with log.open("w") as said:
        child = subprocess.Popen(
            [*launcher, *module, *tests],
            env={**os.environ, **threads, **mpi_launch.launch_environment(ranks)},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            if _failures(record).exists():
                said.write(_failures(record).read_text(errors="replace")[:_CHARACTERS])
            said.write(f"\ngpu-check: not done after {seconds:g} s")
            return 1
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


if __name__ == "__main__":
    sys.exit(main())
