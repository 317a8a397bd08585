"""Taking a simulation from its initial state to the end of its case.

The order of events: describe, prepare, then step and write until the end time,
then sum up. Whatever ends a run early, what was written stays and is readable.
"""

import contextlib
import time as clock
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from slipstream.case.common_tables import Case
from slipstream.collective import on_first_rank, together
from slipstream.errors import InputError, RunError
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
from slipstream.report.picture_process import PICTURES, STATISTICS, PictureProcess
from slipstream.simulation.output_folder import OutputFolder, claim_folder, inputs_of
from slipstream.simulation.output_writer import OutputWriter, check_finite
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.stop_requests import Interrupted, Interruption


@dataclass
class _Effort:
    """What the run has cost so far; times in seconds."""

    began: float = field(default_factory=clock.perf_counter)
    first_step: int = 0
    steps: int = 0
    starting: float = 0.0
    stepping: float = 0.0
    writing: float = 0.0

    def time_writing(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call a function that writes, and add what it takes."""
        began = clock.perf_counter()
        write(*arguments)
        self.writing += clock.perf_counter() - began


def run_case(
    simulation: Simulation, output: str | Path | OutputFolder, console: Console | None = None
) -> None:
    """Run the case of a simulation to its end, from its beginning. Collective.

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
            _run(simulation, output, console)
            return
        inputs = inputs_of(simulation.case)
        with claim_folder(output, simulation.comm, inputs=inputs) as folder:
            _run(simulation, folder, console)


def _run(simulation: Simulation, output: OutputFolder, console: Console | None) -> None:
    if simulation.rank > 0 or not simulation.case.output.pictures:
        _run_and_draw(simulation, output, console, None)
        return
    with PictureProcess() as artist:
        _run_and_draw(simulation, output, console, artist)


def _run_and_draw(
    simulation: Simulation,
    output: OutputFolder,
    console: Console | None,
    artist: PictureProcess | None,
) -> None:
    effort, comm, folder = _Effort(), simulation.comm, output.path
    console = (console or make_console()) if simulation.rank == 0 else Console(quiet=True)
    if not output.is_locked:
        text = f"warning: {folder} is on a file system without locks: start no other run in it"
        console.print(Text(text, style="yellow"), soft_wrap=True)
    _prepare(simulation, folder, console)
    with Interruption(comm) as interruption:
        # Only now: a run that cannot even begin must not touch the output of an earlier one.
        on_first_rank(comm, output.begin)
        effort.starting = clock.perf_counter() - effort.began
        writer = OutputWriter(simulation, output)
        try:
            was_interrupted = _step_to_end(simulation, writer, interruption, effort, console)
        except BaseException:
            # What ended the run is what is told, also where this is lost with it.
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
            if artist and not was_interrupted:
                _begin_pictures(simulation.case.title, writer, folder, artist)
        finally:
            effort.time_writing(writer.close)
    if comm is not None:
        # Rank 0 closes the files: nobody returns to code that might read them before that.
        comm.Barrier()
    if was_interrupted:
        raise Interrupted(
            f"interrupted at step {simulation.step}, t = {simulation.time:.6g};"
            + _how_to_go_on(simulation.case, folder)
        )
    _finish(simulation, writer, effort, output, console, artist)


def _prepare(simulation: Simulation, folder: Path, console: Console) -> None:
    """Announce the run, and make its initial state."""
    case = simulation.case
    announce(console, case, simulation.describe(), folder)
    simulation.prepare()
    if simulation.time >= case.time.end:
        raise InputError(
            f"time.end: must be beyond t = {simulation.time:g}, from where the run goes on,"
            f" not {case.time.end:g}"
        )


def _step_to_end(
    simulation: Simulation,
    writer: OutputWriter,
    interruption: Interruption,
    effort: _Effort,
    console: Console,
) -> bool:
    """Step until the end or a request to stop; return whether it was such a request."""
    case, step_size = simulation.case, _next_step_size(simulation, writer)
    announce_steps(console, case, simulation.describe_step(), simulation.time, step_size)
    effort.first_step = simulation.step
    was_interrupted = False
    with Progress(console, simulation.time, case.time.end) as progress:
        effort.time_writing(writer.record, step_size)
        progress.warn(simulation.warnings())
        while _goes_on(simulation, effort):
            was_interrupted, is_overdue = interruption.requested(writer.is_overdue())
            if was_interrupted:
                break
            if is_overdue:
                effort.time_writing(writer.record_state)
            began = clock.perf_counter()
            simulation.advance(step_size)
            step_size = _next_step_size(simulation, writer)
            effort.stepping += clock.perf_counter() - began
            effort.steps = simulation.step - effort.first_step
            effort.time_writing(writer.record, step_size)
            progress.update(simulation.time, simulation.progress(step_size))
            progress.warn(simulation.warnings())
    effort.time_writing(writer.record_last, step_size)
    return was_interrupted


def _goes_on(simulation: Simulation, effort: _Effort) -> bool:
    """Return whether there are time and steps left, and something to use them for."""
    most = simulation.case.time.max_steps
    if most is not None and effort.steps >= most:
        return False
    return not (simulation.finished or _is_at_end(simulation))


def _is_at_end(simulation: Simulation) -> bool:
    end = simulation.case.time.end
    # Times are sums of many steps: without a tolerance rounding could ask for one more.
    return end - simulation.time <= 1e-12 * end


def _next_step_size(simulation: Simulation, writer: OutputWriter) -> float:
    """Return the next time step: shortened to hit the end, and output if steps adapt anyway."""
    step_size = simulation.step_size()
    # In a fluid at rest a Courant number allows any step, so infinity is legitimate.
    if step_size != float("inf"):
        check_finite("the time step", step_size, simulation)
    if simulation.time + step_size <= simulation.time:
        raise RunError(
            f"the time step shrank to {step_size:.3g} at step {simulation.step},"
            f" t = {simulation.time:.6g}: the flow has blown up"
        )
    if not simulation.shortens_steps or _is_at_end(simulation):
        return step_size
    stop = simulation.case.time.end
    if simulation.case.fixed_step is None:
        stop = min(stop, writer.next_time(simulation.time))
    remaining = stop - simulation.time
    # What remains may be the same but for rounding.
    return remaining if remaining <= step_size * (1 + 1e-9) else step_size


def _finish(
    simulation: Simulation,
    writer: OutputWriter,
    effort: _Effort,
    output: OutputFolder,
    console: Console,
    artist: PictureProcess | None,
) -> None:
    """Wait for the pictures and sum up."""
    case, folder = simulation.case, output.path
    began = clock.perf_counter()
    timers = _mean_timers(simulation)
    results = simulation.results(effort.stepping, effort.steps)
    if simulation.rank > 0:
        return
    pictures = artist.finish() if artist else []
    if case.run.timeline:
        output.wrote("timeline.png", "timeline.json")
        pictures += simulation.write_timeline(folder)
    output.wrote(*(picture.name for picture in pictures))
    parts = {
        "start": effort.starting,
        STEPPING: effort.stepping,
        "diagnostics and output": effort.writing,
        "pictures": clock.perf_counter() - began,
    }
    summary = Summary(
        wall=clock.perf_counter() - effort.began,
        steps=effort.steps,
        time=simulation.time,
        points=case.points,
        parts=parts,
        timers=timers,
        results=results,
        stopped_by=_stopped_by(simulation),
        folder=folder,
        pictures=pictures,
        extras=writer.extras,
        advice=_advice(simulation, folder),
    )
    summarise(console, summary)


def _stopped_by(simulation: Simulation) -> str:
    """Return what ended a run; nothing if its time was over."""
    if simulation.finished:
        return simulation.finished
    return "" if _is_at_end(simulation) else "time.max_steps"


def _advice(simulation: Simulation, folder: Path) -> str:
    """Return how to go on with a run that was to end early, but has come to its last step."""
    case = simulation.case
    if not case.ends_early or simulation.finished:
        return ""
    longer = f" --set time.end={2 * case.time.end}" if _is_at_end(simulation) else ""
    if not case.output.checkpoint:
        return f"not converged: run again with{longer or ' a larger time.max_steps'}"
    return f"not converged: go on with --set initial.restart={folder}{longer} --out OTHER"


def _how_to_go_on(case: Case, folder: Path) -> str:
    if not case.output.checkpoint:
        return f" what was computed is in {folder}"
    return f" the state is in {folder}: go on with --set initial.restart={folder} --out OTHER"


def _mean_timers(simulation: Simulation) -> dict[str, float]:
    """Return the seconds by category, averaged over the ranks; empty on all but the first."""
    timers, comm = simulation.timers(), simulation.comm
    if comm is None:
        return timers
    ranks = comm.gather(timers, root=0) or []
    names = dict.fromkeys(name for one in ranks for name in one)
    return {name: sum(one.get(name, 0.0) for one in ranks) / len(ranks) for name in names}


def _begin_pictures(title: str, writer: OutputWriter, folder: Path, artist: PictureProcess) -> None:
    common = {"folder": folder, "title": title}
    of_run = {
        "choice": writer.choice,
        "series": writer.series.read(("time", *writer.choice.curves)) if writer.series else {},
        "labels": writer.labels,
        "spectra": shown_spectra(writer.spectra()),
        "plane": writer.plane,
    }
    requests = [(PICTURES, common | of_run)]
    if writer.statistics:
        requests.append((STATISTICS, common | {"statistics": writer.statistics}))
    artist.begin(requests)
