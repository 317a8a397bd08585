"""Going on with a run in its own folder, from its last intact state to the end of its case.

The series, spectra, fields and other output in the folder are continued: rows and snapshots later
than the state are dropped, and those written only because a segment ended there are replaced.
Output that does not match the seals of the state is set aside. Nothing in the folder changes before
the simulation has taken over the state and all else has been judged.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from slipstream.case import Case
from slipstream.case.case_loading import parse_case_of_run, parse_stored_case
from slipstream.case.toml_text import to_toml
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_all_ranks, on_first_rank, own, together
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError
from slipstream.files.checkpoint import Checkpoint, Manifest, open_checkpoint
from slipstream.files.folder_lock import WAIT, WAIT_OR_CHOOSE, check_lock
from slipstream.files.folder_seals import KeptOutput
from slipstream.files.output_folder import REPLACED_NAME, OutputFolder, claim_run
from slipstream.files.run_folder import (
    CASE_NAME,
    RUN_RECORD_NAME,
    SERIES_NAME,
    EarlierSegments,
    RunFolder,
    RunRecord,
    Segment,
    solve_the_same,
    table_differences,
    text_of,
)
from slipstream.runs.run_case import (
    STATE_KEY,
    AtItsEnd,
    RunOptions,
    how_to_apply,
    how_to_lengthen,
    run_case,
)
from slipstream.runs.run_history import RunHistory, tables_of
from slipstream.runs.simulation_base import make_simulation
from slipstream.runs.time_loop import is_reached

_MOST_DIFFERENCES = 8


def output_mark(folder: str | Path) -> tuple[int, str] | None:
    """Return the mark of a folder with its last state, unlike all others; None without a state."""
    with contextlib.suppress(InputError):
        entered = RunFolder(folder)
        inode = os.stat(entered.path).st_ino
        return next(((inode, said.checksum) for _, said in entered.manifests()), None)
    return None


def earlier_in(claimed: OutputFolder, case: Case) -> EarlierSegments:
    """Return the part of a run that is done, for a simulation that wrote into the folder before."""
    path, said = next(claimed.manifests())
    kept = claimed.kept_output(said.seals, claimed.recorded())
    warnings = [
        f"{claimed.name}/{name}: {text}; it begins again" for name, text in kept.aside.items()
    ]
    step, time = said.began or (said.step, said.time)
    return EarlierSegments(step, time, case, True, path, kept, tuple(warnings))


def has_state(folder: str | Path) -> bool:
    """Return whether a folder has a state from which its run may continue."""
    with contextlib.suppress(InputError):
        return bool(RunFolder(folder).states())
    return False


def case_to_resume(
    folder: str | Path,
    settings: Sequence[str] = (),
    case: Case | None = None,
    from_state: bool = False,
) -> Case:
    """Return the case with which a run continues in its folder; change nothing.

    Parameters
    ----------
    folder : str or pathlib.Path
        The output folder of the run.
    settings : sequence of str
        Changes to its case, each ``section.key=value``.
    case : Case, optional
        Instead of the run's own.
    from_state : bool
        Whether the case of the state is taken where the folder has another one.

    Raises
    ------
    InputError
        If it is no run's, cannot be written, or has no state to resume from, a key or value is not
        accepted, or the state is of another case than the folder.
    AtItsEnd
        If there is nothing left to do.
    """
    with _explain_errors():
        entered = RunFolder(folder, for_writing=True)
        _check_writable(entered)
        reading = _Reading(entered, settings, case, from_state)
        reading.check_unfinished()
        return reading.case


def resume_run(
    folder: str | Path,
    settings: Sequence[str] = (),
    comm: Comm = None,
    device: str | Device = "auto",
    console: Console | None = None,
    *,
    case: Case | None = None,
    options: RunOptions | None = None,
    from_state: bool = False,
) -> None:
    """Continue with a run, in its folder, to the end of its case. Collective.

    Parameters
    ----------
    folder, settings, case, from_state
        See `case_to_resume`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work, any number of them.
    device : str or Device
        The device that computes; "auto" leaves it to the case's ``run.device``.
    console, options
        See `slipstream.runs.run_case`.

    Raises
    ------
    InputError
        Also if the state does not suit the case; the folder is as it was then.
    AtItsEnd
        If there is nothing left to do.
    RunError, Interrupted
        See `slipstream.runs.run_case`.
    """
    comm = own(comm, "resume")
    path = Path(folder)
    with (
        _explain_errors(),
        together(comm, holds=False),
        claim_run(path, comm, _check_writable) as claimed,
    ):
        # Another segment may have come and gone since anybody looked.
        _read_on_first_rank(comm, claimed, settings, case, from_state, None)
        state = open_checkpoint(claimed.name, comm)
        case, earlier = _read_on_first_rank(comm, claimed, settings, case, from_state, state)
        simulation = make_simulation(case, comm, device)
        simulation.resumed = state
        options = replace(options or RunOptions(), settings=settings)
        run_case(simulation, claimed, console, options=options, earlier=earlier)


def _read_on_first_rank(
    comm: Comm,
    claimed: OutputFolder,
    settings: Sequence[str],
    case: Case | None,
    from_state: bool,
    state: Checkpoint | None,
) -> tuple[Case, EarlierSegments]:
    """Return on all ranks what a run continues with. Collective."""

    def read() -> tuple[Case, EarlierSegments] | str:
        try:
            reading = _Reading(claimed, settings, case, from_state, state)
            reading.check_unfinished()
            return reading.case, reading.earlier(claimed.recorded())
        except AtItsEnd as end:
            return end.text()  # ranks share no such errors

    earlier = on_first_rank(comm, read)
    if isinstance(earlier, str):
        raise on_all_ranks(AtItsEnd(earlier))
    return earlier


def _check_writable(run: RunFolder) -> None:
    """Refuse a folder in which no run can continue, before anything is made there."""
    path = run.path
    if not run.states() and not run.has(REPLACED_NAME):
        there = run.has(CASE_NAME)
        case = (
            f"; run its case again, as {path / CASE_NAME} has it"
            if there
            else "; use the folder of a run"
        )
        raise InputError(f"{path}: holds no state of a run to continue from{case}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(
            f"{path} cannot be written: no permission; copy it, or start another run from it:"
            f" --set initial.restart={path}"
        )
    check_lock(path)


class _Reading:
    """Reads what a run continues with: from a state that is intact, or else from the latest."""

    def __init__(
        self,
        folder: RunFolder,
        settings: Sequence[str],
        case: Case | None,
        from_state: bool,
        intact: Checkpoint | None = None,
    ) -> None:
        self._folder, self._settings, self._from_state = folder, settings, from_state
        self._intact = intact
        path, said = next(folder.manifests(), (None, None))
        self._state: Manifest | None = intact or said
        self._state_path = path if intact is None else intact.path
        self._warnings: list[str] = []
        self._aside: dict[str, str] = {}
        self._record = self._read_record()
        text, source = self._case_text(case is not None), f"{folder.name}/{CASE_NAME}"
        self.case = parse_case_of_run(text, settings, source) if case is None else case
        self._before = self.case
        # Keys that are no longer accepted, or would import other code, are not compared.
        with contextlib.suppress(InputError):
            before = text if self._state is None else self._state.case
            self._before = parse_stored_case(before, self.case, source)

    def earlier(self, recorded: set[str]) -> EarlierSegments:
        """Return the earlier segments, and which output continues if a state is intact."""
        kept = KeptOutput()
        if self._intact is not None:
            kept = self._folder.kept_output(self._intact.seals, recorded)
            for name, reason in kept.aside.items():
                self._set_aside(name, reason)
        step, time = self._began()
        return EarlierSegments(
            step,
            time,
            self._before,
            self._is_whole(),
            self._state_path,
            KeptOutput(kept.seals, {**self._aside, **kept.aside}),
            tuple(self._warnings),
        )

    def _set_aside(self, name: str, reason: str) -> None:
        self._aside[name] = reason
        path = f"{self._folder.name}/{name}"
        if not self._folder.has(name):
            self._warnings.append(f"{path} is missing; it begins again")
        else:
            self._warnings.append(
                f"{path}: {reason}; it is kept as {name}.damaged, and begins again"
            )

    # -- the case ------------------------------------------------------------------------------

    def _case_text(self, is_given: bool) -> str:
        """Return the present case of the run, if it agrees with the case of the state."""
        state = self._state
        try:
            text = self._folder.own_case()
        except InputError as error:
            if state is None or not state.case:
                raise
            reason = str(error).partition("cannot be read as a case: ")[2] or str(error)
            self._set_aside(CASE_NAME, reason)
            return state.case
        if state is None:
            return text
        if self._from_state:
            return state.case
        segments = [segment.case for segment in self._record.segments]
        if not segments:
            self._check_same({} if is_given else self._differences(state.case, text))
        elif all(self._differences(case_text, state.case) for case_text in [*segments, text]):
            # No segment of this run has written such a state.
            self._check_same(self._differences(state.case, text), always=True)
        elif not is_given and all(self._differences(case_text, text) for case_text in segments):
            # No segment of this run was begun with such a case.
            self._check_same(self._differences(state.case, text))
        # Keys that a program had changed by then have their changed values.
        tables = tomllib.loads(text)
        changed = RunHistory(self._folder).tables_at(tables)
        return text if changed is tables else to_toml(changed)

    def _differences(self, before: str, after: str) -> dict[str, str]:
        """Return the differences between two cases, without changes by a program."""
        by_program = {change.key for segment in self._record.segments for change in segment.changes}
        return {
            key: text_of(key, *values)
            for key, values in table_differences(tables_of(before), tables_of(after)).items()
            if key not in by_program
        }

    def _check_same(self, differences: dict[str, str], always: bool = False) -> None:
        """Refuse differences that no setting decides."""
        chosen = [setting.partition("=")[0].strip() for setting in self._settings]
        left = {
            key: text
            for key, text in differences.items()
            if always
            or not any(key == setting or setting.startswith(f"{key}.") for setting in chosen)
        }
        if left:
            name = self._state_path.name if self._state_path else "the state"
            shown = ", ".join(list(left.values())[:_MOST_DIFFERENCES])
            more = " ..." if len(left) > _MOST_DIFFERENCES else ""
            key = next(iter(left))
            choice = "" if always else f"--set {key}=... for each, or "
            raise InputError(
                f"{self._folder.name}: its state {name} is of another case than {CASE_NAME}"
                f" ({shown}{more}); choose: {choice}--from-state for the case of the state"
            )

    # -- earlier segments ----------------------------------------------------------------------

    def _read_record(self) -> RunRecord:
        try:
            record = self._folder.record()
        except InputError as error:
            self._set_aside(RUN_RECORD_NAME, str(error).partition(": ")[2])
            return RunRecord()
        if not record.segments and self._state is not None and self._state.began is not None:
            self._set_aside(RUN_RECORD_NAME, "it is missing")
        return record

    def _is_whole(self) -> bool:
        segments = self._record.segments
        if not segments:
            return RUN_RECORD_NAME not in self._aside
        return segments[-1].ended is not None and segments[-1].error is None

    def _began(self) -> tuple[int, float]:
        """Return the step and time at which the run began."""
        if self._state is not None and self._state.began is not None:
            return self._state.began
        if self._record.segments:
            first = self._record.segments[0]
            return first.from_step, first.from_time
        with contextlib.suppress(InputError, OSError, IndexError, KeyError):
            columns, _ = self._folder.series(SERIES_NAME)
            return int(columns["step"][0]), float(columns["time"][0])
        return 0, 0.0

    def check_unfinished(self) -> None:
        """Raise `AtItsEnd` if the last state says so; it need not be read as a whole for that.

        Output that a segment did not write because it was killed at the end is still to be written.
        """
        state = self._state
        if state is None or not self._is_whole():
            return
        most = self.case.time.max_steps
        is_steady = self._is_finished_at(state.step)
        if (
            is_steady
            or is_reached(self.case.time.end, state.time, self.case)
            or (most is not None and state.step - self._began()[0] >= most)
        ):
            why = "the flow is steady" if is_steady else ""
            place = Path(self._folder.name), state.step, state.time
            if not solve_the_same(self._before, self.case):
                raise InputError(how_to_apply(self._before, self.case, *place))
            raise AtItsEnd(how_to_lengthen(self.case, *place, why))

    def _is_finished_at(self, step: int) -> bool:
        """Return whether the run ended by itself at this step, and is asked for nothing else."""
        last = self._record.segments[-1] if self._record.segments else Segment()
        is_there = last.ended_by == "finished" and last.to_step == step
        return is_there and solve_the_same(self._before, self.case)


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    """Turn errors about a state or a folder into advice on how to resume."""
    try:
        yield
    except InputError as error:
        text = error.text().removeprefix(STATE_KEY).replace(WAIT_OR_CHOOSE, WAIT)
        if text.startswith("image.path: ") and " does not exist" in text:
            text += "; where it is now: --set image.path=..."
        error.args = (text,)
        raise
