"""``slipstream run CASE --check``: what a run would do and cost, from a short trial of it.

The trial does a few steps, and writes one of each output into a folder that is removed afterwards;
where that would be large, output is made but not written. A family may add its own findings
(`Simulation.pilot_findings`).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import shutil
import socket
import tempfile
import time as clock
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipstream.case.common_tables import Case
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, on_first_rank, together
from slipstream.engine.errors import SlipstreamError, bytes_text
from slipstream.engine.fields import Field, PilotFindings
from slipstream.engine.private_cache import CODE_SUFFIXES, cache_folder
from slipstream.engine.processes import Interrupted, Interruption, own_age
from slipstream.engine.text import STEPPING, counted, duration, printable
from slipstream.files.checkpoint import CHECKPOINTS_NAME
from slipstream.files.output_folder import claim_folder
from slipstream.files.run_folder import OUTPUTS_NAME
from slipstream.files.stored_arrays import stored_layout
from slipstream.runs.chosen_outputs import ChosenOutputs
from slipstream.runs.output_writer import OutputWriter, counts_until, files_warning
from slipstream.runs.run_case import begin_pictures
from slipstream.runs.simulation_base import Simulation
from slipstream.runs.time_loop import Limits, TimeLoop
from slipstream.show.console import announce, make_console
from slipstream.show.picture_process import PictureProcess
from slipstream.show.solver_texts import description, pilot_texts

# Seconds for which steps are timed.
_STEPPING = 2.5
# Seconds that pilots take.
_PILOT = 4.0
# Steps before any is timed, which load kernels.
_WARMING = 2
# Rows of diagnostics that are timed, at most.
_ROWS = 8
# Files from which the number of an output's files is reported.
_TELLING = 100
# Bytes of a device from which output is not written in a trial.
LARGE = 4 << 30
# Bytes that are written then, to know how fast.
_PROBE = 64 << 20
# Files and folders of each kind of output.
_NAMES = {
    "diagnostics": ("diagnostics.csv", "diagnostics.zarr"),
    "spectra": ("spectra.zarr",),
    "checkpoint": (CHECKPOINTS_NAME,),
    "fields": ("fields.zarr",),
    OUTPUTS_NAME: (OUTPUTS_NAME,),
    **{kind: (f"{kind}.zarr",) for kind in STATISTICS},
}
# Files of a zarr array that has an axis of time, and others.
_OF_A_TIME = re.compile(r"/c[/.]\d+[/.]\d")
_PLAIN_NAMES = {
    "diagnostics": "row of diagnostics",
    "checkpoint": "state",
    "fields": "snapshot of fields",
    OUTPUTS_NAME: "chosen output",
}


@dataclass
class Trial:
    """Measurements of a short trial; times in seconds, the same on all ranks."""

    start_time: float = 0.0
    first_step: float = math.nan
    courant: float | None = None
    step_seconds: float = 0.0
    steps: int = 0
    # Until the first step, with kernels compiled before.
    starting: float = 0.0
    picture_seconds: float = 0.0
    # For one output of each kind.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    files: dict[str, float] = field(default_factory=dict)
    # For files that exist once: the case, pictures, and descriptions of stores.
    more_bytes: float = 0.0
    more_files: float = 0.0
    # Number of processes of each host, and their memory in bytes.
    hosts: dict[str, tuple[int, int]] = field(default_factory=dict)
    memory_free: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunCost:
    """The expected cost of a run; times in seconds.

    Attributes
    ----------
    steps : float
        Number of time steps.
    counts : dict of str to int
        Numbers of outputs of each kind.
    parts : dict of str to float
        Seconds by part of the run.
    disk, files : int
        Bytes on disk at the end, and files.
    """

    steps: float
    counts: Mapping[str, int]
    parts: Mapping[str, float]
    disk: int
    files: int

    @property
    def wall(self) -> float:
        """Seconds by the clock."""
        return sum(self.parts.values())


def check_run(
    make: Callable[[], Simulation],
    case: Case,
    folder: Path,
    comm: Comm = None,
    console: Console | None = None,
    kmax_eta: float = 1.0,
) -> RunCost:
    """Announce what a run would do and take, and write nothing that stays. Collective.

    Parameters
    ----------
    make : callable
        Makes the simulation of the case; called again where the first had to compile kernels.
    case : Case
        The case.
    folder : pathlib.Path
        The output folder that the run would have.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    console : rich.console.Console, optional
        The stream to which rank 0 prints; standard output by default.
    kmax_eta : float
        The resolution of the smallest eddies that is wanted.

    Returns
    -------
    RunCost
        The announced results.

    Raises
    ------
    InputError
        If the run would be refused.
    Interrupted
        If the check was asked to stop.
    """
    rank = 0 if comm is None else comm.rank
    console = (console or make_console()) if rank == 0 else Console(quiet=True)
    simulation = make()
    with together(simulation.comm, holds=False):
        trial, pilot = _do_trial(simulation, folder, console, kmax_eta)
        # Summing up may take memory too, of a run that is long enough.
        stepping = cost_of(case, trial, pilot).parts[STEPPING]
        simulation.findings(stepping, max(1, trial.steps))
        trial.hosts = _memory_of_hosts(simulation.comm)
    compiled = trial.starting < 0
    if compiled:
        del simulation
        began = clock.perf_counter()
        again = make()
        with together(again.comm, holds=False):
            again.prepare()
        trial.starting = -trial.starting + clock.perf_counter() - began
    cost = cost_of(case, trial, pilot)
    _show(console, case, trial, pilot, cost, folder)
    return cost


def _do_trial(
    simulation: Simulation, folder: Path, console: Console, kmax_eta: float
) -> tuple[Trial, PilotFindings]:
    """Do the trial and the family's part; `starting` is negative if kernels were compiled."""
    trial = Trial(memory_free=_memory_free())
    simulation.check_size()
    announce(console, simulation.case, description(simulation), folder)
    before, imported = _kernels(), own_age()
    began = clock.perf_counter()
    simulation.prepare()
    trial.starting = imported + clock.perf_counter() - began
    trial.start_time = simulation.time
    with _trial_folder(folder, simulation.comm) as place:
        _step_and_write(simulation, place, trial)
    trial.warnings = simulation.warnings()
    compiled = largest(simulation.comm, int(_kernels() != before))
    if compiled:
        trial.starting = -imported
    pilot = simulation.pilot_findings(trial.first_step, kmax_eta, _PILOT)
    return trial, pilot


def _kernels() -> int:
    """Return the number of kernels that have been compiled on this machine."""
    with contextlib.suppress(OSError, SlipstreamError):
        return sum(one.suffix in CODE_SUFFIXES for one in cache_folder().iterdir())
    return 0


def _memory_free() -> int:
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) * 1024


def _step_and_write(simulation: Simulation, folder: Path, trial: Trial) -> None:
    """Do a few steps, and make one of each output, in a folder for the trial."""
    case, comm = simulation.case, simulation.comm
    chosen = ChosenOutputs(simulation)
    chosen.check_columns(simulation.labels())
    is_large = largest(comm, max(need for _, need in simulation.memory())) > LARGE
    drawing: contextlib.AbstractContextManager[PictureProcess | None] = contextlib.nullcontext()
    if simulation.rank == 0 and case.output.pictures and not is_large:
        drawing = PictureProcess()
    with (
        Interruption(comm) as interruption,
        drawing as artist,
        claim_folder(folder / "run", comm) as output,
    ):
        on_first_rank(comm, output.begin)
        writer = OutputWriter(simulation, output, chosen)
        try:
            simulation.is_timed = False
            end, most = case.time.end, case.time.max_steps
            watching = [] if is_large else [writer]
            warming = TimeLoop(simulation, watching, Limits(end, min(most or _WARMING, _WARMING)))
            trial.first_step, trial.courant = simulation.step_size(), simulation.courant
            if not is_large:
                writer.record(warming.step_size)
            warming.run(interruption, lambda: None)
            loop = TimeLoop(simulation, [], Limits(end, most, _STEPPING))
            loop.run(interruption, lambda: None)
            if "interrupted" in (warming.stopped_by, loop.stopped_by):
                raise Interrupted("interrupted; nothing was written")
            timed = loop if loop.steps else warming
            trial.steps = timed.steps
            trial.step_seconds = timed.stepping / max(1, timed.steps)
            if is_large:
                _count_output(simulation, folder, trial)
                return
            writer.record_last(loop.step_size)
            if artist:
                began = clock.perf_counter()
                begin_pictures(case, writer, output.path, artist)
                artist.finish()
                trial.picture_seconds = clock.perf_counter() - began
        finally:
            writer.close()
        trial.seconds, counts = dict(writer.seconds), dict(writer.counts)
        trial.seconds["diagnostics"] = _of_diagnostics(simulation, trial.seconds["diagnostics"])
        counts[OUTPUTS_NAME] = 2 if chosen.has_files else 0
        found = on_first_rank(comm, lambda: _measure_outputs(output.path, counts))
        (trial.bytes, trial.more_bytes), (trial.files, trial.more_files) = found
    trial.picture_seconds = largest(comm, trial.picture_seconds)


def _of_diagnostics(simulation: Simulation, first: float) -> float:
    """Return the seconds of a row as the mean of some, since there will be many. Collective."""
    first = largest(simulation.comm, first)
    began, rows = clock.perf_counter(), 1
    while rows < _ROWS and rows * first < _STEPPING:
        simulation.diagnostics()
        rows += 1
    return largest(simulation.comm, (first + clock.perf_counter() - began) / rows)


def _count_output(simulation: Simulation, folder: Path, trial: Trial) -> None:
    """Make states and fields without writing them: their sizes, and the seconds to write them."""
    comm = simulation.comm

    def probe() -> float:
        began = clock.perf_counter()
        with (folder / "probe").open("wb") as file:
            file.write(os.urandom(1 << 20) * (_PROBE >> 20))
            os.fsync(file.fileno())
        return (clock.perf_counter() - began) / _PROBE

    per_byte = on_first_rank(comm, probe)
    paths = {kind: partial(simulation.paths, kind) for kind in simulation.case.path_kinds}
    kinds: dict[str, Callable[[], Iterator[Field]]]
    kinds = {"fields": simulation.fields, "checkpoint": simulation.checkpoint, **paths}
    for kind, make in kinds.items():
        began, size, files = clock.perf_counter(), 0, 0
        for part in make():
            size += part.data.nbytes
            box = part.offset, part.data.shape
            boxes = [box] if comm is None else comm.allgather(box)
            files += stored_layout(part.shape, boxes, part.data.itemsize).files(part.shape)
            del part  # before the next one is made
        made = clock.perf_counter() - began
        total = size if comm is None else sum(comm.allgather(size))
        trial.bytes[kind], trial.files[kind] = total, files
        trial.seconds[kind] = largest(comm, made) + per_byte * total
    began = clock.perf_counter()
    diagnostics = simulation.diagnostics()
    trial.seconds["diagnostics"] = largest(comm, clock.perf_counter() - began)
    # All digits as text, and eight bytes.
    trial.bytes["diagnostics"] = 30.0 * len(diagnostics)
    began = clock.perf_counter()
    spectra = simulation.spectra()
    trial.seconds["spectra"] = largest(comm, clock.perf_counter() - began)
    trial.bytes["spectra"] = 8.0 * sum(values.size for _, values in spectra.values())


@contextlib.contextmanager
def _trial_folder(folder: Path, comm: Comm) -> Iterator[Path]:
    """Make a folder on the file system of the output, and remove it at the end. Collective."""

    def made() -> str:
        absolute = folder.absolute()
        parent = next(parent for parent in absolute.parents if parent.exists())
        writable = parent if os.access(parent, os.W_OK | os.X_OK) else None
        return tempfile.mkdtemp(prefix=".slipstream-check-", dir=writable)

    trial_folder = Path(on_first_rank(comm, made))
    try:
        yield trial_folder
    finally:
        if comm is None or comm.rank == 0:
            shutil.rmtree(trial_folder, ignore_errors=True)


def _measure_outputs(
    folder: Path, counts: Mapping[str, int]
) -> tuple[tuple[dict[str, float], float], tuple[dict[str, float], float]]:
    """Return the bytes and the files of one of each kind of output, and of all that is there once.

    Files of series do not become more.
    """
    sizes, files = {}, {}
    for kind, count in counts.items():
        places = [folder / name for name in _NAMES.get(kind, (f"{kind}.zarr",))]
        if count:
            sizes[kind] = sum(sum(_sizes_in(place).values()) for place in places) / count
            files[kind] = sum(_repeated(_sizes_in(place)) for place in places) / count
    # For a row among many: in the text, and in the zarr group.
    *_, row = (folder / "diagnostics.csv").read_bytes().splitlines() or [b""]
    sizes["diagnostics"] = len(row) + 8.0 * len(row.split(b","))
    files["diagnostics"] = 0.0
    everything = _sizes_in(folder)
    more = [
        max(0.0, whole - sum(counts[kind] * one for kind, one in of.items() if kind in counts))
        for whole, of in ((sum(everything.values()), sizes), (len(everything), files))
    ]
    return (sizes, more[0]), (files, more[1])


def _sizes_in(path: Path) -> dict[Path, int]:
    """Return the bytes of each file at a path, in a folder or not."""
    found = path.rglob("*") if path.is_dir() else [path] if path.exists() else []
    return {one: one.lstat().st_size for one in found if not one.is_dir()}


def _repeated(files: Collection[Path]) -> int:
    """Return the number of files that each time adds: not what zarr stores have once."""
    return sum(
        CHECKPOINTS_NAME in path.parts
        or ".zarr" not in str(path)
        or bool(_OF_A_TIME.search(str(path)))
        for path in files
    )


def _memory_of_hosts(comm: Comm) -> dict[str, tuple[int, int]]:
    """Return the number of processes of each host, and their largest memory. Collective."""
    mine = socket.gethostname(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    hosts: dict[str, tuple[int, int]] = {}
    for name, used in [mine] if comm is None else comm.allgather(mine):
        number, total = hosts.get(name, (0, 0))
        hosts[name] = number + 1, total + used
    return hosts


# -- what follows for the run ----------------------------------------------------------------------


def cost_of(case: Case, trial: Trial, pilot: PilotFindings) -> RunCost:
    """Return the cost of a run, from a trial and the forecast of its family."""
    left = case.time.end - trial.start_time
    steps, most = pilot.steps, case.time.max_steps
    if steps is None:
        steps = math.ceil(left / trial.first_step - 1e-9) if trial.first_step > 0 else math.nan
        steps *= case.steps_at_once
    until = left
    if case.ends_early and pilot.steps is not None:
        until = min(left, pilot.steps)
    if most is not None and steps > most:
        until, steps = until * most / steps, most
    counts = counts_until(case, until)
    if case.fixed_step is None:
        steps += _steps_for_hits(counts, steps)
    # After steps alone is anything written.
    occasions = 1 + math.ceil(steps / case.steps_at_once)
    counts = {kind: min(count, occasions) for kind, count in counts.items()}
    stepping = steps * trial.step_seconds
    output = sum(counts[kind] * trial.seconds.get(kind, 0.0) for kind in counts)
    wall = trial.starting + stepping + output + trial.picture_seconds
    if case.output.checkpoint:
        more = int(wall / (60 * case.output.checkpoint_minutes))
        counts["checkpoint"] = max(counts["checkpoint"], more + 1)
        output = sum(counts[kind] * trial.seconds.get(kind, 0.0) for kind in counts)
    kept = {
        kind: min(count, case.output.keep_checkpoints) if kind == "checkpoint" else count
        for kind, count in counts.items()
    }
    disk = trial.more_bytes + sum(kept[kind] * trial.bytes.get(kind, 0.0) for kind in kept)
    parts = {
        "start": trial.starting,
        STEPPING: stepping,
        "diagnostics and output": output,
        "pictures": trial.picture_seconds,
    }
    files = trial.more_files + sum(kept[kind] * trial.files.get(kind, 0.0) for kind in kept)
    return RunCost(steps, counts, parts, int(disk), round(files))


def _steps_for_hits(counts: Mapping[str, int], steps: float) -> float:
    """Return the number of steps that shortening adds, so that adaptive steps hit times of output.

    Between two of them it is half a step on average, and none where steps fit.
    """
    more = 0.0
    for kind in ("fields", OUTPUTS_NAME, *STATISTICS):
        gaps = counts.get(kind, 0) - 1
        if gaps > 0 and abs(steps / gaps - round(steps / gaps)) > 0.02:
            more += gaps / 2
    return more


# -- for people ------------------------------------------------------------------------------------


def _show(
    console: Console,
    case: Case,
    trial: Trial,
    pilot: PilotFindings,
    cost: RunCost,
    folder: Path,
) -> None:
    table = Table(title="what a run would take", show_header=False, box=box.HORIZONTALS)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def add(name: str, text: str) -> None:
        table.add_row(name, Text(printable(text)))

    fixed = case.fixed_step is not None
    first = f"{trial.first_step / case.steps_at_once:.4g}"
    number = "" if trial.courant is None else f", Courant number {trial.courant:.3g}"
    add("time step" if fixed else "first time step", first + number)
    about = "about " if not fixed or pilot.steps is not None else ""
    about = "at most " if case.ends_early and pilot.steps is None else about
    how = pilot.source if pilot.steps is not None else ""
    how = how or ("" if fixed else "if the first step's size stays")
    add(STEPPING, f"{about}{cost.steps:.0f}" + (f", {how}" if how else ""))
    parts = ", ".join(f"{name} {duration(one)}" for name, one in cost.parts.items() if one)
    add("wall time", f"about {duration(cost.wall)}: {parts}")
    plural = "step" if trial.steps == 1 else "steps"
    add("timed", f"{trial.steps} {plural}, {duration(trial.step_seconds)} each")
    for kind, name in _PLAIN_NAMES.items():
        count, size = cost.counts.get(kind, 0), trial.bytes.get(kind, 0.0)
        if count and size:
            kept = f"the last {case.output.keep_checkpoints} are kept"
            note = f", {kept}" if kind == "checkpoint" else ""
            often = "once" if count == 1 else f"{count} times"
            files = trial.files.get(kind, 0.0)
            files_text = f" in {files:.0f} files" if files >= _TELLING else ""
            add(name, f"{bytes_text(size)}{files_text}, {often}{note}")
    free = shutil.disk_usage(next(x for x in (folder, *folder.absolute().parents) if x.exists()))
    disk = f"{bytes_text(cost.disk)} in {counted(cost.files, 'file')}"
    add("disk in all", f"{disk}, of {bytes_text(free.free)} free")
    for name, (processes, used) in trial.hosts.items():
        who = "this process" if processes == 1 else f"{processes} processes"
        on = "host memory" if len(trial.hosts) == 1 else f"memory of {name}"
        left = f", of {bytes_text(trial.memory_free)} free" if len(trial.hosts) == 1 else ""
        add(on, f"{bytes_text(used)} for {who}{left}")
    for name, fact in pilot_texts(pilot, case).items():
        add(name, fact)
    console.print(table, highlight=False)
    warnings = list(pilot.warnings)
    # A forecast says more than a warning of the present state.
    is_said = any("kmax_eta" in text for text in warnings)
    warnings += [text for text in trial.warnings if not (is_said and "kmax_eta" in text)]
    wall = case.time.wall_seconds
    if wall is not None and cost.wall > wall:
        start = cost.parts["start"]
        jobs = math.ceil((cost.wall - start) / (wall - start)) if wall > start else math.inf
        warnings.append(
            f"time.wall = {case.time.wall} ends the run before its time; with slipstream resume it"
            f" takes about {jobs} jobs"
            if jobs < math.inf
            else f"time.wall = {case.time.wall} is over before the run has begun"
        )
    if cost.disk > free.free:
        warnings.append(f"the output does not fit: {bytes_text(free.free)} are free")
    if warning := files_warning(cost.files):
        warnings.append(warning)
    for text in warnings:
        console.print(Text(printable(f"warning: {text}"), style="yellow"), soft_wrap=True)
    console.print("checked only: nothing was run or written", highlight=False)
