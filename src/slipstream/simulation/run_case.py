"""Taking a simulation from its initial state to the end of its case.

The order of events: describe, prepare, then step and write until the end time,
then sum up. Whatever ends a run early, what was written stays and is readable.
"""

import contextlib
import shlex
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from slipstream.case.common_tables import Case
from slipstream.collective import on_all_ranks, on_first_rank, together
from slipstream.errors import InputError, RunError, SlipstreamError
from slipstream.io.run_record import EndedBy
from slipstream.printable_text import printable
from slipstream.report.console import (
    STEPPING,
    Progress,
    Summary,
    announce,
    announce_steps,
    make_console,
    summarise,
)
from slipstream.report.picture_choice import shown_spectra
from slipstream.report.picture_process import PICTURES, SCALARS, STATISTICS, PictureProcess
from slipstream.simulation.chosen_outputs import ChosenOutputs
from slipstream.simulation.earlier_segments import EarlierSegments
from slipstream.simulation.output_folder import OutputFolder, claim_folder, inputs_of
from slipstream.simulation.output_writer import OutputWriter
from slipstream.simulation.run_record import RunRecorder
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.stop_requests import Interrupted, Interruption
from slipstream.simulation.time_loop import Limits, Observer, TimeLoop, is_reached

# The status with which a run ends that was asked to, before its end, and can go on (EX_TEMPFAIL).
UNFINISHED = 75
# What messages call the state to go on from where a case names it.
STATE_KEY = "initial.restart: "


class AtItsEnd(SlipstreamError):
    """A run that was to go on has nothing left to do."""

    exit_status = 0


@dataclass
class _Effort:
    """What the run has cost so far; times in seconds."""

    began: float = field(default_factory=clock.perf_counter)
    starting: float = 0.0
    writing: float = 0.0

    def time_writing(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call a function that writes, and add what it takes."""
        began = clock.perf_counter()
        write(*arguments)
        self.writing += clock.perf_counter() - began

    def parts(self, loop: TimeLoop) -> dict[str, float]:
        """Return the seconds by part of the run."""
        return {
            "start": self.starting,
            STEPPING: loop.stepping,
            "diagnostics and output": loop.observing + self.writing,
        }


def run_case(
    simulation: Simulation,
    output: str | Path | OutputFolder,
    console: Console | None = None,
    *,
    observers: Sequence[Observer] = (),
    seconds: float | None = None,
    settings: Sequence[str] = (),
    earlier: EarlierSegments | None = None,
) -> None:
    """Run the case of a simulation to its end, from where it is. Collective.

    Parameters
    ----------
    simulation : Simulation
        Made for the case.
    output : str, pathlib.Path or OutputFolder
        The output folder, made if need be and locked while the run lives, or one that
        `slipstream.simulation.claim_folder` has given. The output of an earlier run in it is
        replaced once this one has written its first state, and put back if it never does.
    console : rich.console.Console, optional
        Where rank 0 prints; standard output by default.
    observers : sequence of Observer
        What else looks at the simulation between steps, after output has been written.
    seconds : float, optional
        Seconds by the clock after which the run ends in order.
    settings : sequence of str
        What was changed of the case for this run, each ``section.key=value``: for its record.
    earlier : EarlierSegments, optional
        What the run has done before, if it goes on in its folder, which has been claimed
        (`slipstream.simulation.resuming`).

    Raises
    ------
    InputError
        If memory does not suffice, there is nothing to do, or another run writes into the folder.
    RunError
        If the flow blows up; what was written stays.
    Interrupted
        If the run was asked to stop; its last state is written.
    """
    with together(simulation.comm):
        if isinstance(output, OutputFolder):
            _run(simulation, output, console, observers, seconds, settings, earlier)
            return
        inputs = inputs_of(simulation.case)
        with claim_folder(output, simulation.comm, inputs=inputs) as folder:
            _run(simulation, folder, console, observers, seconds, settings, earlier)


def _run(
    simulation: Simulation,
    output: OutputFolder,
    console: Console | None,
    observers: Sequence[Observer],
    seconds: float | None,
    settings: Sequence[str],
    earlier: EarlierSegments | None,
) -> None:
    effort, folder = _Effort(), output.path
    console = (console or make_console()) if simulation.rank == 0 else Console(quiet=True)
    if not output.is_locked:
        text = f"warning: {folder} is on a file system without locks: start no other run in it"
        console.print(Text(text, style="yellow"), soft_wrap=True)
    description = _prepare(simulation, folder, console, earlier)
    recorder = RunRecorder(simulation, output, description, settings)
    # Judged before anything that an earlier run has written is touched.
    chosen = ChosenOutputs(simulation, earlier)
    chosen.check_columns(simulation.labels())
    writer = OutputWriter(simulation, output, chosen, earlier)
    # Only now: what loads meanwhile would take a core from preparing, and a refused run draws none.
    drawing: contextlib.AbstractContextManager[PictureProcess | None] = contextlib.nullcontext()
    if simulation.rank == 0 and simulation.case.output.pictures:
        drawing = PictureProcess()
    with drawing as artist:
        _run_and_draw(
            simulation, output, writer, console, artist, observers, seconds, effort, recorder
        )


def _run_and_draw(
    simulation: Simulation,
    output: OutputFolder,
    writer: OutputWriter,
    console: Console,
    artist: PictureProcess | None,
    observers: Sequence[Observer],
    seconds: float | None,
    effort: _Effort,
    recorder: RunRecorder,
) -> None:
    comm, folder = simulation.comm, output.path
    with Interruption(comm) as interruption:
        # Only now: a run that cannot even begin must not touch the output of an earlier one.
        on_first_rank(comm, output.begin if simulation.resumed is None else output.go_on)
        effort.starting = clock.perf_counter() - effort.began
        recorder.begin()
        writer.begin()
        try:
            loop = _step_to_end(
                simulation, [writer, *observers], seconds, interruption, effort, console, recorder
            )
        except BaseException as error:
            # What ended the run is what is told, also where this is lost with it.
            with contextlib.suppress(RunError):
                recorder.fail(error)
            with contextlib.suppress(RunError):
                writer.close()
            if output.is_put_back():
                text = f"the earlier output in {folder} is put back; this run's is in its failed"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
            if writer.last_state is not None:
                text = f"of step {writer.last_state}" + _how_to_go_on(simulation.case, folder)
                console.print(text, markup=False, highlight=False, soft_wrap=True)
            raise
        try:
            if artist and loop.stopped_by != "interrupted":
                begin_pictures(simulation.case.title, writer, folder, artist)
        finally:
            effort.time_writing(writer.close)
    if comm is not None:
        # Rank 0 closes the files: nobody returns to code that might read them before that.
        comm.Barrier()
    if loop.stopped_by == "interrupted":
        recorder.end("interrupted", {}, effort.parts(loop), _mean_timers(simulation))
        stop = Interrupted(
            f"interrupted at step {simulation.step}, t = {simulation.time:.6g};"
            + _how_to_go_on(simulation.case, folder)
        )
        stop.exit_status = UNFINISHED if simulation.case.output.checkpoint else stop.exit_status
        raise stop
    _finish(simulation, writer, loop, effort, output, console, artist, recorder)


def _prepare(
    simulation: Simulation, folder: Path, console: Console, earlier: EarlierSegments | None
) -> dict[str, str]:
    """Announce the run, and make its initial state; return what was announced."""
    case, description = simulation.case, simulation.describe()
    announce(console, case, description, folder)
    if earlier is not None and (changes := earlier.changes(case)):
        text = f"changed: {', '.join(changes)}"
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
    if not simulation.is_prepared:
        simulation.prepare()
    if earlier is not None and is_over(simulation, earlier):
        text = how_to_lengthen(case, folder, simulation.step, simulation.time, simulation.finished)
        raise on_all_ranks(AtItsEnd(text))
    if simulation.time >= case.time.end:
        raise InputError(
            f"time.end: must be beyond t = {simulation.time:g}, from where the run goes on,"
            f" not {case.time.end:g}"
        )
    return description


def _step_to_end(
    simulation: Simulation,
    observers: Sequence[Any],
    seconds: float | None,
    interruption: Interruption,
    effort: _Effort,
    console: Console,
    recorder: RunRecorder,
) -> TimeLoop:
    """Step until the end or a request to stop; return the loop, which knows which it was."""
    case, writer = simulation.case, observers[0]
    limits = Limits(case.time.end, _steps_left(simulation, writer.earlier), seconds)
    loop = TimeLoop(simulation, observers, limits)
    description = simulation.describe_step()
    announce_steps(
        console,
        case,
        description,
        simulation.time,
        loop.step_size,
        simulation.restart,
        limits.steps,
    )
    recorder.describe_step(description)
    writer.after_state = lambda: recorder.update(effort.parts(loop), _mean_timers(simulation))
    with Progress(console, simulation.time, case.time.end) as progress:

        def tell_warnings() -> None:
            warnings = simulation.warnings()
            if simulation.resumed is not None:
                warnings = [text.removeprefix(STATE_KEY) for text in warnings]
            progress.warn(warnings)
            recorder.warn(warnings)

        def show() -> None:
            progress.update(simulation.time, simulation.progress(loop.step_size))
            tell_warnings()

        loop.observe()
        tell_warnings()
        loop.run(interruption, show, writer.is_overdue, writer.record_state)
    effort.time_writing(writer.record_last, loop.step_size)
    return loop


def is_over(simulation: Simulation, earlier: EarlierSegments) -> bool:
    """Return whether nothing is left to do of a run that was to go on."""
    steps = _steps_left(simulation, earlier)
    return (
        is_reached(simulation.case.time.end, simulation.time, simulation.case)
        or bool(simulation.finished)
        or (steps is not None and steps <= 0)
    )


def _steps_left(simulation: Simulation, earlier: EarlierSegments | None) -> int | None:
    """Return how many steps may be done; those of earlier segments of the run count."""
    most = simulation.case.time.max_steps
    if most is None or earlier is None:
        return most
    return most - (simulation.step - earlier.step)


def _finish(
    simulation: Simulation,
    writer: OutputWriter,
    loop: TimeLoop,
    effort: _Effort,
    output: OutputFolder,
    console: Console,
    artist: PictureProcess | None,
    recorder: RunRecorder,
) -> None:
    """Wait for the pictures and sum up."""
    case, folder = simulation.case, output.path
    began = clock.perf_counter()
    timers = _mean_timers(simulation)
    results = simulation.results(loop.stepping, loop.steps)
    if simulation.rank > 0:
        return
    pictures = artist.finish() if artist else []
    if case.run.timeline:
        output.wrote("timeline.png", "timeline.json")
        pictures += simulation.write_timeline(folder)
    output.wrote(*(picture.name for picture in pictures))
    parts = effort.parts(loop) | {"pictures": clock.perf_counter() - began}
    recorder.end(_ended_by(simulation, loop), results, parts, timers)
    summary = Summary(
        wall=clock.perf_counter() - effort.began,
        steps=loop.steps,
        time=simulation.time,
        points=case.points,
        parts=parts,
        timers=timers,
        results=results,
        stopped_by=_stopped_by(simulation, loop),
        folder=folder,
        pictures=pictures,
        extras=writer.extras,
        advice=_advice(simulation, loop, folder),
    )
    summarise(console, summary)


def _stopped_by(simulation: Simulation, loop: TimeLoop) -> str:
    """Return what ended a run; nothing if its time was over."""
    if simulation.finished:
        return simulation.finished
    if loop.is_at_end():
        return ""
    return {"seconds": "wall", "stopped": "stop()"}.get(loop.stopped_by, "time.max_steps")


def _ended_by(simulation: Simulation, loop: TimeLoop) -> EndedBy:
    """Return what ended a run, for its record."""
    if simulation.finished:
        return "finished"
    if loop.is_at_end():
        return "end"
    by: dict[str, EndedBy] = {"seconds": "wall", "stopped": "stopped"}
    return by.get(loop.stopped_by, "max_steps")


def _advice(simulation: Simulation, loop: TimeLoop, folder: Path) -> str:
    """Return how to go on with a run that was to end early, but has come to its last step."""
    case = simulation.case
    if not case.ends_early or simulation.finished:
        return ""
    most = case.time.max_steps
    longer = "" if most is None else f" --set time.max_steps={2 * most}"
    if loop.is_at_end():
        longer = f" --set time.end={2 * case.time.end}"
    if not case.output.checkpoint:
        return f"not converged: run again with{longer}"
    return f"not converged: go on with {_resume(folder)}{longer}"


def how_to_lengthen(case: Case, folder: Path, step: int, time: float, finished: str = "") -> str:
    """Return what to do with a run that is to go on, but has come to its end."""
    most = case.time.max_steps
    if finished:
        reason, change = finished, "another convergence.tolerance, say"
    elif is_reached(case.time.end, time, case):
        reason, change = f"t = {time:.6g}", f"--set time.end={2 * case.time.end:g}"
    else:
        reason, change = f"time.max_steps = {most}", f"--set time.max_steps={2 * (most or 1)}"
    over = f"{folder} has come to its end ({reason}, step {step})"
    return f"{over}; go on with {_resume(folder)} {change}"


def _resume(folder: Path) -> str:
    return f"slipstream resume {shlex.quote(str(folder))}"


def _how_to_go_on(case: Case, folder: Path) -> str:
    if not case.output.checkpoint:
        return f" what was computed is in {folder}"
    return f" the state is in {folder}: go on with {_resume(folder)}"


def _mean_timers(simulation: Simulation) -> dict[str, float]:
    """Return the seconds by category, averaged over the ranks; empty on all but the first."""
    timers, comm = simulation.timers(), simulation.comm
    if comm is None:
        return timers
    ranks = comm.gather(timers, root=0) or []
    names = dict.fromkeys(name for one in ranks for name in one)
    return {name: sum(one.get(name, 0.0) for one in ranks) / len(ranks) for name in names}


def begin_pictures(title: str, writer: OutputWriter, folder: Path, artist: PictureProcess) -> None:
    """Have the pictures of what has been written drawn."""
    common = {"title": title}
    of_run = {
        "choice": writer.choice,
        "series": writer.series.read(("time", *writer.choice.columns)) if writer.series else {},
        "labels": writer.labels,
        "spectra": shown_spectra(writer.spectra()),
        "planes": writer.planes,
    }
    requests = [(PICTURES, common | of_run)]
    scalars = writer.chosen.drawn(writer.series) if writer.series else {}
    if scalars:
        requests.append((SCALARS, common | {"scalars": scalars}))
    if writer.statistics:
        requests.append(
            (STATISTICS, common | {"choice": writer.choice, "statistics": writer.statistics})
        )
    artist.begin(folder, requests)
