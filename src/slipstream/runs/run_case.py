"""Taking a simulation from its initial state to the end of its case.

The order of events: describe, prepare, then step and write until the end time,
then sum up. Whatever ends a run early, its output stays and is readable.
"""

import contextlib
import math
import shlex
import time as clock
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from slipstream.case.common_tables import Case
from slipstream.engine.collective import is_on_all_ranks, on_all_ranks, on_first_rank, together
from slipstream.engine.errors import InputError, RunError, SlipstreamError
from slipstream.engine.processes import Interrupted, Interruption, WallLimit
from slipstream.engine.text import STEPPING, duration, printable, quantity
from slipstream.files.durable_files import replace_file
from slipstream.files.output_folder import RUN_LOG_NAME, OutputFolder, claim_folder
from slipstream.files.run_folder import EarlierSegments, EndedBy, differences, is_around
from slipstream.runs.chosen_outputs import ChosenOutputs
from slipstream.runs.output_writer import OutputWriter
from slipstream.runs.run_recorder import RunLog, RunRecorder
from slipstream.runs.simulation_base import Simulation
from slipstream.runs.time_loop import Limits, Observer, TimeLoop, is_reached
from slipstream.show.console import (
    CompilingLine,
    Progress,
    Summary,
    announce,
    announce_steps,
    make_console,
    show_warnings,
    summarise,
)
from slipstream.show.picture_process import (
    DENSITIES,
    PICTURES,
    SCALARS,
    STATISTICS,
    PictureProcess,
    shown_spectra,
)
from slipstream.show.run_page import CHECKED, REPORT_NAME, run_checks, run_page, timeline_of
from slipstream.show.solver_texts import (
    description,
    progress_text,
    result_texts,
    shortfall_text,
    step_description,
    steps_left,
)

# The exit status of a run that was asked to stop before its end, and can continue (EX_TEMPFAIL).
UNFINISHED = 75
# The name in messages of the state to continue from, where a case names it.
STATE_KEY = "initial.restart: "


class AtItsEnd(SlipstreamError):
    """A run that was to continue has nothing left to do."""

    exit_status = 0


@dataclass
class _Effort:
    """The cost of the run so far; times in seconds."""

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


@dataclass(frozen=True)
class RunOptions:
    """How a case is run, besides what it says itself.

    Attributes
    ----------
    observers : sequence of Observer
        Further observers of the simulation between steps, after output has been written.
    seconds : float or None
        Seconds by the clock after which the run ends in order.
    elapsed : float
        Seconds that ``time.wall`` is to count from before now: those since the process began.
    settings : sequence of str
        Changes to the case for this run, each ``section.key=value``: for its record.
    log_level : str
        The level of `run.log`, a name of `slipstream.engine.accepted.LOG_LEVELS`.
    warn : callable or None
        Called on each rank with every warning, which is also shown and logged.
    artist : PictureProcess or None
        The process that draws the pictures on the first rank, if it has been started.
    """

    observers: Sequence[Observer] = ()
    seconds: float | None = None
    elapsed: float = 0.0
    settings: Sequence[str] = ()
    log_level: str = "info"
    warn: Callable[[str], None] | None = None
    artist: PictureProcess | None = None


def run_case(
    simulation: Simulation,
    output: str | Path | OutputFolder,
    console: Console | None = None,
    *,
    options: RunOptions | None = None,
    earlier: EarlierSegments | None = None,
) -> None:
    """Run the case of a simulation to its end, from where it is. Collective.

    Parameters
    ----------
    simulation : Simulation
        Made for the case.
    output : str, pathlib.Path or OutputFolder
        The output folder, made if need be and locked while the run lives, or one that
        `files.output_folder.claim_folder` has given. The output of an earlier run in it is
        replaced once this one has written its first state, and put back if it never does.
    console : rich.console.Console, optional
        The stream to which rank 0 prints; standard output by default.
    options : RunOptions, optional
        Options of the run.
    earlier : EarlierSegments, optional
        The part of the run that is done, if it continues in its folder, which has been claimed
        (`slipstream.runs.resuming`).

    Raises
    ------
    InputError
        If memory does not suffice, there is nothing to do, or another run writes into the folder.
    RunError
        If the flow blows up; the output so far stays.
    Interrupted
        If the run was asked to stop, or ``time.wall`` is over; its last state is written.
    """
    options = options or RunOptions()
    with together(simulation.comm, holds=False):
        if isinstance(output, OutputFolder):
            _CaseRun(simulation, output, console, options, earlier).run()
            return
        inputs = simulation.case.inputs()
        with claim_folder(output, simulation.comm, inputs=inputs) as folder:
            _CaseRun(simulation, folder, console, options, earlier).run()


class _CaseRun:
    """A run of a case into a folder, with all that looks on."""

    def __init__(
        self,
        simulation: Simulation,
        output: OutputFolder,
        console: Console | None,
        options: RunOptions,
        earlier: EarlierSegments | None,
    ) -> None:
        self._simulation, self._output, self._folder = simulation, output, Path(output.name)
        self._options, self._earlier = options, earlier
        is_first = simulation.rank == 0
        self._console = (console or make_console()) if is_first else Console(quiet=True)
        self._effort = _Effort()
        self._loop: TimeLoop | None = None
        self._log = RunLog(output.path, options.log_level, is_first)
        wall = simulation.case.time.wall_seconds
        self._wall = WallLimit(wall, options.elapsed, simulation.device.kind != "cpu")

    def run(self) -> None:
        """Run it to its end."""
        simulation, case = self._simulation, self._simulation.case
        if not self._output.is_locked:
            self._warn(
                [f"{self._folder} is on a file system without locks: start no other run in it"]
            )
        described = self._prepare()
        self._recorder = RunRecorder(simulation, self._output, described, self._options.settings)
        if self._earlier is not None:
            self._warn(self._earlier.warnings)
            self._recorder.warn(self._earlier.warnings)
        # Judged before anything that an earlier run has written is touched.
        chosen = ChosenOutputs(simulation, self._earlier)
        chosen.check_columns(simulation.labels())
        self._writer = OutputWriter(simulation, self._output, chosen, self._earlier)
        # Only now, unless it has been started while modules were loaded: it would take a core from
        # preparing, and a refused run draws nothing.
        drawing: contextlib.AbstractContextManager[PictureProcess | None]
        drawing = contextlib.nullcontext(self._options.artist)
        if self._options.artist is None and simulation.rank == 0 and case.output.pictures:
            drawing = PictureProcess()
        with drawing as artist:
            self._run_and_draw(artist)

    def _prepare(self) -> dict[str, str]:
        """Announce the run, and make its initial state; return the announced settings."""
        simulation, case, earlier = self._simulation, self._simulation.case, self._earlier
        described = description(simulation)
        announce(self._console, case, described, self._folder)
        if earlier is not None and (changes := earlier.changes(case)):
            self._tell(f"changed: {', '.join(changes)}")
        if not simulation.is_prepared:
            with CompilingLine(self._console):
                simulation.prepare()
        if earlier is not None and earlier.is_whole and is_over(simulation, earlier):
            step, time = simulation.step, simulation.time
            text = how_to_lengthen(case, self._folder, step, time, simulation.finished)
            raise on_all_ranks(AtItsEnd(text))
        if earlier is None and simulation.time >= case.time.end:
            raise InputError(
                f"time.end: must be beyond t = {simulation.time:g}, from where the run continues,"
                f" not {case.time.end:g}"
            )
        return described

    def _run_and_draw(self, artist: PictureProcess | None) -> None:
        simulation, effort, writer = self._simulation, self._effort, self._writer
        comm = simulation.comm
        with Interruption(comm) as interruption:
            # Only now: a run that cannot even begin must not touch the output of an earlier one.
            on_first_rank(comm, self._take_folder)
            effort.starting = clock.perf_counter() - effort.began
            self._recorder.begin()
            try:
                writer.begin()
                self._output.wrote(RUN_LOG_NAME)
                self._log.begin(self._began_text())
                loop = self._step_to_end(interruption)
                if artist and not loop.stopped_by_request:
                    begin_pictures(simulation.case, writer, self._output.path, artist)
                effort.time_writing(writer.finish)
            except BaseException as error:
                self._fail(error)
                raise
            effort.time_writing(writer.close)
        if comm is not None:
            # Rank 0 closes the files: nobody returns to code that might read them before that.
            comm.Barrier()
        if loop.stopped_by_request:
            self._stop(loop)
        self._finish(loop, artist)

    def _take_folder(self) -> None:
        if self._earlier is None:
            self._output.begin()
        else:
            self._output.go_on(self._earlier.kept.aside)

    def _fail(self, error: BaseException) -> None:
        """Keep what there is; the error that ended the run is reported, even if this fails too."""
        writer, folder = self._writer, self._folder
        self._log.error(str(error) or type(error).__name__)
        if self._is_between_steps(error):
            with contextlib.suppress(SlipstreamError):
                writer.record_state()
                writer.finish()
        with contextlib.suppress(RunError):
            self._recorder.fail(error)
        with contextlib.suppress(Exception):  # also a defect of a writer
            writer.close()
        if self._output.is_put_back():
            self._tell(f"the earlier output in {folder} is put back; this run's is in its failed")
        if writer.last_state is not None:
            how = _advice_to_continue(self._simulation.case, folder)
            self._tell(f"of step {writer.last_state}{how}")

    def _is_between_steps(self, error: BaseException) -> bool:
        """Return whether all ranks have the state before an observer of the user, which failed."""
        observer = None if self._loop is None else self._loop.failed_observer
        is_users = observer is not None and observer is not self._writer
        return is_users and (self._simulation.comm is None or is_on_all_ranks(error))

    def _step_to_end(self, interruption: Interruption) -> TimeLoop:
        """Step until the end or a request to stop; return the loop, which knows which it was."""
        simulation, case, writer = self._simulation, self._simulation.case, self._writer
        most = _steps_left(simulation, self._earlier)
        limits = Limits(case.time.end, most, self._options.seconds)
        self._loop = loop = TimeLoop(simulation, [writer, *self._options.observers], limits)
        of_step = step_description(simulation)
        announce_steps(
            self._console,
            case,
            of_step,
            simulation.time,
            loop.step_size,
            simulation.restart,
            limits.steps,
            simulation.courant,
        )
        self._recorder.describe_step(of_step)
        writer.after_state = lambda step, time: self._note_state(loop, step, time)
        writer.after_write = lambda kind, step, seconds: self._log.debug(
            f"{kind} of step {step} took {quantity(seconds, 's')}"
        )
        start = simulation.time

        def is_wall_over() -> bool:
            step_seconds = loop.stepping / loop.steps if loop.steps else 0.0
            if simulation.rank > 0 or not self._wall.is_over(step_seconds, writer.slowest_writes):
                return False
            if loop.steps == 0:
                raise RunError(
                    f"time.wall = {case.time.wall} is over before the first step: the run took"
                    f" {self._wall.elapsed():.3g} s to begin; use more"
                )
            return True

        with Progress(self._console, start, case.time.end, f"t = {start:g}") as progress:

            def show() -> None:
                expected = simulation.indicators().get("expected end")
                end = simulation.case.time.end if expected is None else expected.value
                progress.update(simulation.time, progress_text(simulation, loop.step_size), end)
                self._note_changes()
                self._warn(simulation.warnings(), progress)
                self._log.progress(lambda: self._how_far(loop, start, end))

            loop.observe()
            self._warn(simulation.warnings(), progress)
            loop.run(interruption, show, writer.is_overdue, writer.record_state, is_wall_over)
        self._effort.time_writing(writer.record_last, loop.step_size)
        late = simulation.warnings()
        self._warn(late)
        self._recorder.warn(late)
        return loop

    def _began_text(self) -> str:
        simulation = self._simulation
        verb = "begins" if self._earlier is None else "continues"
        ranks = f"{simulation.ranks} rank{'s' * (simulation.ranks > 1)}"
        where = f"{ranks} of {simulation.device.name}"
        changes = [] if self._earlier is None else self._earlier.changes(simulation.case)
        changed = f"; changed: {', '.join(changes)}" if changes else ""
        return f"{verb} at step {simulation.step}, t = {simulation.time:.6g}, on {where}{changed}"

    def _how_far(self, loop: TimeLoop, start: float, end: float) -> str:
        """Return the progress of the run, its speed, and the time left, as far as known."""
        simulation = self._simulation
        text = progress_text(simulation, loop.step_size)
        elapsed = loop.elapsed
        done = (simulation.time - start) / (end - start) if end > start else 0.0
        if not (0 < done < 1 and loop.steps):
            return text
        left = duration(elapsed * (1 - done) / done)
        return f"{text}, {quantity(elapsed / loop.steps, 's')} per step, about {left} left"

    def _note_state(self, loop: TimeLoop, step: int, time: float) -> None:
        simulation = self._simulation
        self._recorder.update(self._effort.parts(loop), _mean_timers(simulation))
        if simulation.case.output.checkpoint:
            self._log.info(f"state of step {step}, t = {time:.6g}, written")

    def _note_changes(self) -> None:
        """Record the changes that a program has made now: a state may be written next."""
        news = self._recorder.news
        if not news:
            return
        for change in news:
            self._log.info(f"from step {change.step}, t = {change.time:.6g} on: {change.text()}")
        self._recorder.update()

    def _stop(self, loop: TimeLoop) -> None:
        """End a run that was asked to stop before its end, and can continue."""
        simulation, case = self._simulation, self._simulation.case
        ended_by: EndedBy = "wall" if loop.stopped_by == "wall" else "interrupted"
        timers = _mean_timers(simulation)
        self._recorder.end(ended_by, {}, self._effort.parts(loop), timers)
        with contextlib.suppress(RunError):
            # Without plots: a user who stops a run does not want to wait for them.
            self._write_report({})
        reason = f"time.wall = {case.time.wall} is over" if ended_by == "wall" else "interrupted"
        where = f"{reason} at step {simulation.step}, t = {simulation.time:.6g};"
        stop = Interrupted(where + _advice_to_continue(case, self._folder))
        stop.is_signalled = ended_by == "interrupted"
        if case.output.checkpoint:
            stop.exit_status = UNFINISHED
        self._log.info(str(stop))
        raise on_all_ranks(stop)

    def _finish(self, loop: TimeLoop, artist: PictureProcess | None) -> None:
        """Wait for the pictures and sum up."""
        simulation, case, folder = self._simulation, self._simulation.case, self._folder
        effort, output = self._effort, self._output
        began = clock.perf_counter()
        timers = _mean_timers(simulation)
        results = result_texts(simulation, loop.stepping, loop.steps)
        if simulation.rank > 0:
            return
        pictures = artist.finish() if artist else []
        if case.run.timeline:
            output.wrote("timeline.png", "timeline.json")
            pictures += write_timeline(simulation, output.path)
        output.wrote(*(picture.name for picture in pictures))
        parts = effort.parts(loop) | {"pictures": clock.perf_counter() - began}
        ended_by = _ended_by(simulation, loop)
        advice = _advice(simulation, loop, folder)
        if advice:
            self._recorder.warn([advice])
            self._log.warning(advice)
        self._recorder.end(ended_by, results, parts, timers)
        report = self._write_report(artist.plots if artist else {})
        self._log.info(
            f"ended ({_stopped_by(simulation, loop) or 'time.end'}) at step {simulation.step},"
            f" t = {simulation.time:.6g}"
        )
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
            pictures=[folder / picture.name for picture in pictures],
            report=report,
            extras=[folder / extra.name for extra in self._writer.extras],
            advice=advice,
        )
        summarise(self._console, summary)

    def _write_report(self, plots: Mapping[str, str]) -> list[Path]:
        """Write the page of the run on the first rank, if it is wanted; return its path."""
        writer, output = self._writer, self._output
        if self._simulation.rank > 0 or not self._simulation.case.output.report:
            return []
        series = writer.series.read(("time", *CHECKED)) if writer.series else {}
        case = tomllib.loads(self._simulation.case.to_toml())
        page = run_page(
            self._folder,
            self._recorder.record,
            plots,
            run_checks(series, writer.planes, case, writer.choice.balances_energy),
            timeline=timeline_of(output),
        )
        output.wrote(REPORT_NAME)
        replace_file(output.path / REPORT_NAME, page.encode("utf-8", "replace"))
        return [self._folder / REPORT_NAME]

    def _tell(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _warn(self, warnings: Sequence[str], progress: Progress | None = None) -> None:
        """Show warnings, above the bar if there is one, and keep them."""
        if self._simulation.resumed is not None:
            warnings = [text.removeprefix(STATE_KEY) for text in warnings]
        if progress is not None:
            progress.warn(warnings)
            self._recorder.warn(warnings)
        else:
            show_warnings(self._console, warnings)
        for text in warnings:
            self._log.warning(text)
            if self._options.warn is not None:
                self._options.warn(text)


def is_over(simulation: Simulation, earlier: EarlierSegments) -> bool:
    """Return whether nothing is left to do of a run that was to continue."""
    steps = _steps_left(simulation, earlier)
    return (
        is_reached(simulation.case.time.end, simulation.time, simulation.case)
        or bool(simulation.finished)
        or (steps is not None and steps <= 0)
    )


def _steps_left(simulation: Simulation, earlier: EarlierSegments | None) -> int | None:
    """Return the number of steps that may be done; steps of earlier segments count."""
    most = simulation.case.time.max_steps
    if most is None or earlier is None:
        return most
    return most - (simulation.step - earlier.step)


def _stopped_by(simulation: Simulation, loop: TimeLoop) -> str:
    """Return the reason that ended a run; nothing if its time was over."""
    if simulation.finished:
        return simulation.finished
    if loop.is_at_end():
        return ""
    return {"seconds": "wall", "stopped": "stop()"}.get(loop.stopped_by, "time.max_steps")


def _ended_by(simulation: Simulation, loop: TimeLoop) -> EndedBy:
    """Return the reason that ended a run, for its record."""
    if simulation.finished:
        return "finished"
    if loop.is_at_end():
        return "end"
    by: dict[str, EndedBy] = {"seconds": "wall", "stopped": "stopped"}
    return by.get(loop.stopped_by, "max_steps")


def _advice(simulation: Simulation, loop: TimeLoop, folder: Path) -> str:
    """Return the advice for a run that was to end early, but has reached its last step."""
    case = simulation.case
    if not case.ends_early or simulation.finished:
        return ""
    most, far = case.time.max_steps, shortfall_text(simulation)
    # With a margin, as the pace may slacken.
    enough = simulation.step + 2 * math.ceil(0.6 * steps_left(simulation))
    longer = "" if most is None else f" --set time.max_steps={max(2 * most, enough)}"
    if loop.is_at_end():
        longer = f" --set time.end={max(2 * case.time.end, enough)}"
    message = f"not converged, {far}" if far else "not converged"
    if not case.output.checkpoint:
        return f"{message}: run again with{longer}"
    return f"{message}: continue with {_resume(folder)}{longer}"


def how_to_lengthen(case: Case, folder: Path, step: int, time: float, finished: str = "") -> str:
    """Return the advice for a run that is to continue, but has ended."""
    if finished:
        reason, change = finished, "--set convergence.tolerance=..., a smaller one"
    else:
        reason, key, larger = _end_of(case, time)
        change = f"--set {key}={larger}"
    over = f"{folder} has ended ({reason}, step {step})"
    return f"{over}, and nothing is changed; continue with {_resume(folder)} {change}"


def how_to_apply(before: Case, case: Case, folder: Path, step: int, time: float) -> str:
    """Return the advice for a run at its end that is to continue as another case."""
    reason, key, larger = _end_of(case, time)
    # Other keys, such as the end, come into force anyway.
    changed = [one for one in differences(before, case) if not is_around(one)]
    return (
        f"{key}: {folder} has ended ({reason}, step {step}), so {', '.join(changed)} would change"
        f" nothing; use a larger one too: --set {key}={larger}"
    )


def _end_of(case: Case, time: float) -> tuple[str, str, str]:
    """Return the reason why a run has ended, and the key that ended it with a larger value."""
    most = case.time.max_steps
    if is_reached(case.time.end, time, case):
        # The end that was asked for may have passed long ago.
        reason = f"t = {time:.6g}"
        if case.time.end < time * (1 - 1e-9):
            reason += f", past time.end = {case.time.end:g}"
        return reason, "time.end", f"{2 * max(case.time.end, time):g}"
    return f"time.max_steps = {most}", "time.max_steps", str(2 * (most or 1))


def _resume(folder: Path) -> str:
    return f"slipstream resume {shlex.quote(str(folder))}"


def _advice_to_continue(case: Case, folder: Path) -> str:
    if not case.output.checkpoint:
        return f" the results so far are in {folder}"
    return f" the state is in {folder}: continue with {_resume(folder)}"


def _mean_timers(simulation: Simulation) -> dict[str, float]:
    """Return the seconds by category, averaged over the ranks; empty on all but the first."""
    timers, comm = simulation.timers(), simulation.comm
    if comm is None:
        return timers
    ranks = comm.gather(timers, root=0) or []
    names = dict.fromkeys(name for one in ranks for name in one)
    return {name: sum(one.get(name, 0.0) for one in ranks) / len(ranks) for name in names}


def write_timeline(simulation: Simulation, folder: Path) -> list[Path]:
    """Write ``timeline.png`` and ``timeline.json`` of the last step that was timed, if any was.

    Returns the paths, pictures only.
    """
    title = f"{simulation.timed}, rank {simulation.rank}, {simulation.schedule}"
    return simulation.timer.write(folder, title, simulation.rank)


def begin_pictures(case: Case, writer: OutputWriter, folder: Path, artist: PictureProcess) -> None:
    """Start drawing pictures of the output."""
    common = {"title": case.title}
    energies = [plane.energy for plane in writer.choice.planes if plane.energy]
    columns = dict.fromkeys(("time", *writer.choice.columns, *energies))
    of_run = {
        "choice": writer.choice,
        "series": writer.series.read(tuple(columns)) if writer.series else {},
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
    densities = writer.chosen.drawn_densities()
    if densities:
        requests.append((DENSITIES, common | {"densities": densities}))
    artist.begin(folder, requests, case.output.report)
