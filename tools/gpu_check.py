"""Everything that needs a GPU, in one command: ``python tools/gpu_check.py``.

Runs three kinds of tests on GPUs: the tests for any device, the tests for GPUs only, and the
parallel tests on 2 and 4 MPI ranks, which take GPUs in turn. Parts run at the same time while the
memory of the GPUs suffices: each part states the memory of its processes, and gets no more. Run it
from the root of the repository. Its last line is ``N passed, N failed``, the sum over all parts;
the texts of failures are just above.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.engine import processes as mpi_launch
from slipstream.engine.device import cuda_device_count
from slipstream.engine.errors import InputError
from slipstream.engine.text import allow_plain_output

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Part:
    """Tests that some ranks run together.

    Attributes
    ----------
    ranks : int
        How many processes run them.
    tests : tuple of str
        Their files.
    seconds : float
        After which they are stopped. Parts that may take long start first.
    gib : float
        Limit of allocations on a GPU by each process and by each of its children; CUDA's own memory
        is not included.
    children : int
        Number of processes with GPUs that the tests start at a time.
    alone : bool
        Whether nothing else may run at the same time: for tests that measure time or the memory of
        a whole GPU, and for ranks that share a GPU and poll each other's messages.
    """

    ranks: int
    tests: tuple[str, ...]
    seconds: float
    gib: float
    children: int = 0
    alone: bool = False

    @property
    def working(self) -> int:
        """Number of processes that work at a time: tests wait for the processes that they start."""
        return max(self.ranks, self.children)

    def claims(self, first: int, gpus: int) -> list[float]:
        """Return the GiB that the processes take on each GPU, where the first has the given one."""
        per_process = self.gib + _CONTEXT
        if self.ranks > 1 and gpus > 1:
            per_process += _NCCL
        if _EVERY_GPU in self.tests:
            return [self.ranks * per_process] * gpus
        if self.ranks == 1:
            return [
                per_process * (1 + self.children) if gpu == first else 0.0 for gpu in range(gpus)
            ]
        return [per_process * -(-self.ranks // gpus)] * gpus

    def sees_all(self) -> bool:
        """Return whether the processes see all GPUs, or only the first process's GPU."""
        return self.ranks > 1 or self.alone or _EVERY_GPU in self.tests


# GiB of CUDA in a process besides its arrays: streams, graphs, kernels and their stacks.
_CONTEXT = 1.0
# GiB of NCCL between GPUs.
_NCCL = 1.0
# GiB that remain free for other users of a GPU.
_LEFT = 1.0
# Its tests open a second GPU if there is one.
_EVERY_GPU = "tests/parallel/test_streamed_steps.py"
# A machine of 16 cores and 128 GiB could not open a GPU in 20 processes at a time.
_PROCESSES_PER_CORE = 0.75


def shares(folder: str, count: int) -> list[tuple[str, ...]]:
    """Return the test files of a folder, divided among `count` processes.

    Long files have many tests, so each process gets a long file and then a short one.
    """
    files = sorted((ROOT / folder).glob("test_*.py"), key=lambda path: -path.stat().st_size)
    names = [str(path.relative_to(ROOT)) for path in files]
    return [(*names[i :: 2 * count], *names[2 * count - 1 - i :: 2 * count]) for i in range(count)]


SERIAL = (
    "tests/unit/engine/fft/test_fft.py",
    "tests/unit/engine/exchange/test_box_copies.py",
    "tests/unit/advection/test_advection_kernels.py",
)
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


def parts_of(gpus: int) -> list[Part]:
    """Return everything that is checked; with two GPUs, and their cores, in more parts."""
    more = min(gpus, 2)
    parallel = shares("tests/parallel", 3 * more)
    return [
        *(Part(2, tests, 400, 3.0) for tests in parallel),
        *(Part(1, tests, 395, 3.0) for tests in parallel),
        *(Part(1, tests, 390, 1.5) for tests in shares("tests/physics", 6 * more)),
        Part(1, SERIAL, 380, 3.0),
        Part(1, ("tests/gpu/test_cuda.py",), 370, 1.5, children=1),
        Part(1, ("tests/unit/package/test_examples.py",), 360, 1.0, children=2),
        Part(4, SHARED, 150, 3.0, alone=True),
        Part(1, ("tests/gpu/test_cuda_device.py",), 45, 8.0, alone=True),
    ]


class Schedule:
    """Which part starts when, and on which GPUs: one that may take long before others.

    Parameters
    ----------
    parts : sequence of Part
        All of them.
    free : sequence of float
        The GiB that are free on each GPU.
    processes : float
        How many may work at a time.
    """

    def __init__(self, parts: Sequence[Part], free: Sequence[float], processes: float) -> None:
        # What waits until nothing else runs would keep others waiting: it comes last.
        self.waiting = sorted(parts, key=lambda part: (part.alone, -part.seconds))
        self._free, self._processes = list(free), processes
        self._running: list[tuple[Part, list[float]]] = []

    def start(self) -> tuple[Part, list[int]] | None:
        """Return a part that starts now, and the GPUs that it sees; None if nothing can."""
        if any(part.alone for part, _ in self._running):
            return None
        for part in self.waiting:
            first = max(range(len(self._free)), key=lambda gpu: self._free[gpu])
            claims = part.claims(first, len(self._free))
            # What does not even fit alone is tried nevertheless: it may take less.
            if self._running and (part.alone or not self._fits(part, claims)):
                continue
            self.waiting.remove(part)
            self._take(claims, 1)
            self._running.append((part, claims))
            return part, list(range(len(self._free))) if part.sees_all() else [first]
        return None

    def end(self, part: Part) -> None:
        """Note that a part has ended."""
        index = next(i for i, (one, _) in enumerate(self._running) if one is part)
        self._take(self._running.pop(index)[1], -1)

    def _fits(self, part: Part, claims: Sequence[float]) -> bool:
        working = sum(one.working for one, _ in self._running)
        fits = all(one <= free for one, free in zip(claims, self._free, strict=True))
        return fits and working + part.working <= self._processes

    def _take(self, claims: Sequence[float], sign: int) -> None:
        self._free = [free - sign * one for free, one in zip(self._free, claims, strict=True)]


# The variable that counts attempts to start.
_ATTEMPTS = "SLIPSTREAM_GPU_CHECK_ATTEMPTS"
_MOST_ATTEMPTS = 20
# cudaErrorMemoryAllocation.
_OUT_OF_MEMORY = 2
# Kernels may have to be compiled, while other parts have the cores.
_SECONDS_PER_TEST = 150
# Characters kept of the output of a part that ended before pytest reported its failures.
_CHARACTERS = 20_000


@dataclass(frozen=True)
class Failure:
    """A test that failed in a part, or the part itself; ranks and what they said."""

    test: str
    part: Part
    said: list[tuple[int, str]]


class Tally:
    """A pytest plugin that writes each outcome to a file immediately, so that it outlives an abort.

    Parameters
    ----------
    record : path
        Path with which the names of all ranks' files begin; each rank has one file.
    rank : int
        Number of this process. A test passes if it passes on the first rank and fails on none.
    """

    def __init__(self, record: str | Path, rank: int = 0) -> None:
        self._path, self._rank = Path(f"{record}.rank-{rank:03}"), rank

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the outcome of a test."""
        if report.failed:
            captured = [f"--- {title} ---\n{text}" for title, text in report.sections]
            self.note("failed", report.nodeid, "\n".join([report.longreprtext, *captured]))
        elif report.when == "call" and report.passed and self._rank == 0:
            self.note("passed", report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot even be read."""
        if report.failed:
            self.note("failed", report.nodeid, report.longreprtext)

    def note(self, outcome: str, test: str, text: str = "") -> None:
        """Append one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([outcome, test, self._rank, text]) + "\n")


def read_tally(record: Path) -> tuple[set[str], dict[str, list[tuple[int, str]]]]:
    """Return the tests that passed, and the ranks and texts of each test that failed."""
    passed: set[str] = set()
    failed: dict[str, list[tuple[int, str]]] = {}
    for path in sorted(record.parent.glob(f"{record.name}.rank-*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                outcome, test, rank, text = json.loads(line)
            except ValueError:  # a rank that was killed while it wrote
                continue
            if outcome == "passed":
                passed.add(test)
            else:
                failed.setdefault(test, []).append((rank, text))
    return passed - failed.keys(), failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, or with ``--record`` the given tests as one rank; return the exit status."""
    allow_plain_output()
    parser = argparse.ArgumentParser(prog="python tools/gpu_check.py", description=__doc__)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.record:
        return _run_tests(options.tests, Path(options.record))
    return _run_parts()


def _run_parts() -> int:
    count = cuda_device_count()
    if not count:
        print("gpu-check: CuPy finds no GPU, so nothing was checked")
        print("0 passed, 1 failed")
        return 1
    free = memory_free(count)
    shown = ", ".join(f"{gib:.0f} GiB free" for gib in free)
    print(f"gpu-check: {count} GPU{'s' * (count > 1)}, {shown}", flush=True)
    began, cores = time.monotonic(), len(os.sched_getaffinity(0))
    usable = [gib - _LEFT for gib in free]
    schedule = Schedule(parts_of(count), usable, max(4.0, _PROCESSES_PER_CORE * cores))
    passed, failures = 0, list[Failure]()
    # Runs flush every file, and would await a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="slipstream-gpu-check-", dir=memory) as folder,
        ThreadPoolExecutor(len(schedule.waiting)) as threads,
    ):
        running: dict[Future[tuple[int, list[Failure]]], Part] = {}
        while schedule.waiting or running:
            while (started := schedule.start()) is not None:
                record = Path(folder) / f"{len(schedule.waiting)}"
                running[threads.submit(_outcome, *started, record)] = started[0]
            for done in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                schedule.end(running.pop(done))
                more, failed = done.result()
                passed, failures = passed + more, failures + failed
            free = [min(pair) for pair in zip(free, memory_free(count), strict=True)]
    shown = ", ".join(f"{gib:.0f}" for gib in free)
    print(f"\ngpu-check: {time.monotonic() - began:.0f} s; at least {shown} GiB were free")
    print(*failure_texts(failures), sep="\n", end="")
    sys.stderr.flush()
    print(f"{passed} passed, {len(failures)} failed", flush=True)
    return 1 if failures else 0


def memory_free(count: int) -> list[float]:
    """Return the GiB that are free on each GPU."""
    import cupy

    return [cupy.cuda.Device(gpu).mem_info[0] / 2**30 for gpu in range(count)]


def failure_texts(failures: Iterable[Failure]) -> list[str]:
    """Return the texts of failures, each once, with all ranks that printed it."""
    places: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        for rank, text in failure.said:
            where = places.setdefault((failure.test, text.strip()), [])
            where.append(f"rank {rank} of {failure.part.ranks}")
    return [
        f"\ngpu-check: failed: {test} ({', '.join(dict.fromkeys(where))})\n{text}\n"
        for (test, text), where in places.items()
    ]


def _outcome(part: Part, gpus: Sequence[int], record: Path) -> tuple[int, list[Failure]]:
    """Run one part and print its outcome; return the number of passed tests, and the failures."""
    log = record.with_suffix(".log")
    began = time.monotonic()
    status = _launch(part, gpus, record, log)
    took = time.monotonic() - began
    passed, failed = read_tally(record)
    failures = [Failure(test, part, said) for test, said in failed.items()]
    # A part that ends badly, or tests nothing, has failed even if no test reported it.
    if status is None or (not failures and (status or not passed)):
        text = log.read_text(errors="replace")[-_CHARACTERS:].strip() if log.exists() else ""
        end = f"stopped after {part.seconds:g} s" if status is None else f"status {status}"
        failures.append(Failure(" ".join(part.tests), part, [(0, f"{text}\ngpu-check: {end}")]))
    on = f" on GPU {gpus[0]}" if len(gpus) == 1 else ""
    print(
        f"gpu-check: {part.ranks} rank{'s' * (part.ranks > 1)}{on}, {took:.0f} s,"
        f" {len(passed)} passed, {len(failures)} failed: {' '.join(part.tests)}",
        flush=True,
    )
    return len(passed), failures


def _run_tests(tests: Sequence[str], record: Path) -> int:
    """Run tests in this process, which may be one of several ranks."""
    import pytest

    _open_gpu(record.with_name("opening"))
    comm = mpi_launch.world_comm()
    rank = comm.rank if comm is not None else 0
    tally = Tally(record, rank)
    present = [path for path in tests if Path(path).exists()]
    for path in sorted(set(tests) - set(present)) if rank == 0 else ():
        tally.note("failed", path, "it is missing; run this from the root of the repository")
    options = [
        "--device=cuda",
        "-q",
        "--color=no",
        "-p",
        "no:cacheprovider",
        f"--timeout={_SECONDS_PER_TEST}",
        "--timeout-method=thread",
        # Ranks that tidy up one folder at the same time fail.
        f"--basetemp={record.with_suffix(f'.files-{rank}')}",
    ]
    return int(pytest.main([*options, *present], plugins=[tally])) if present else 1


def _open_gpu(lock: Path) -> None:
    """Open this rank's GPU, one process after the other, and try again if that fails.

    A driver needs host memory for this, which may be short for a moment when many processes start
    together on a machine whose memory grows with use.
    """
    from cupy.cuda import runtime

    ordinal = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0)) % runtime.getDeviceCount()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            runtime.setDevice(ordinal)
            runtime.free(0)
            return
        except runtime.CUDARuntimeError as failure:
            error = failure
            attempts = int(os.environ.get(_ATTEMPTS, 0))
            if error.status != _OUT_OF_MEMORY or attempts == _MOST_ATTEMPTS:
                raise
    print(f"gpu-check: GPU {ordinal} could not be opened ({error}): again in 2 s", flush=True)
    time.sleep(2)
    # In a new process image, since a failed driver may not start again in this one.
    os.environ[_ATTEMPTS] = str(attempts + 1)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _environment(part: Part, gpus: Sequence[int]) -> dict[str, str]:
    """Return the environment of a part: its GPUs, and the limit of their memory."""
    environment = dict(os.environ)
    seen = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(gpus) == 1:
        environment["CUDA_VISIBLE_DEVICES"] = seen[gpus[0]] if seen != [""] else str(gpus[0])
    environment["CUPY_GPU_MEMORY_LIMIT"] = str(int(part.gib * 2**30))
    # Several parts share the cores.
    environment.setdefault("OMP_NUM_THREADS", "2")
    return environment | mpi_launch.launch_environment(part.ranks, environment)


def _launch(part: Part, gpus: Sequence[int], record: Path, log: Path) -> int | None:
    """Run tests in processes that may hang or crash; return their status, None if stopped."""
    try:
        launcher = [mpi_launch.find_mpiexec(), "-n", str(part.ranks)] if part.ranks > 1 else []
    except InputError as error:
        log.write_text(f"gpu-check: {error}")
        return error.exit_status
    with log.open("w") as said:
        child = subprocess.Popen(
            [*launcher, sys.executable, __file__, "--record", str(record), *part.tests],
            env=_environment(part, gpus),
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(timeout=part.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


if __name__ == "__main__":
    sys.exit(main())
