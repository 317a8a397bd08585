"""Going on with a run in its own folder, from its last intact state to the end of its case.

The series, spectra, fields and other output that are there are continued: what is later than the
state is left out, and what was written only because a segment ended there is replaced. Nothing in
the folder changes before the simulation has taken over the state and all else has been judged.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from slipstream.array_types import Comm
from slipstream.case import Case
from slipstream.case.case_loading import parse_case_of_run, parse_stored_case
from slipstream.case.toml_writer import to_toml
from slipstream.collective import on_all_ranks, on_first_rank, own, together
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.io.checkpoint import CHECKPOINTS_NAME, generations
from slipstream.io.checkpoint_manifest import Damage, read_manifest
from slipstream.io.foreign_files import content_of
from slipstream.io.run_record import read_run_record
from slipstream.io.time_series import read_series
from slipstream.printable_text import one_line
from slipstream.simulation.earlier_run import tables_at_state
from slipstream.simulation.earlier_segments import EarlierSegments
from slipstream.simulation.folder_lock import check_lock
from slipstream.simulation.output_folder import claim_run
from slipstream.simulation.run_case import (
    STATE_KEY,
    AtItsEnd,
    RunOptions,
    how_to_lengthen,
    run_case,
)
from slipstream.simulation.solver_registry import make_simulation
from slipstream.simulation.time_loop import is_reached

_CASE = "case.toml"
_MOST_CASE = 1 << 20
_OTHER_FOLDER = "wait for it, stop it, or choose another with --out", "wait for it, or stop it"


@dataclass(frozen=True)
class Resumption:
    """What a run goes on with: the case from now on, and what is known of the segments before."""

    folder: Path
    case: Case
    earlier: EarlierSegments


def has_state(folder: str | Path) -> bool:
    """Return whether a folder has a state from which its run may go on."""
    try:
        return bool(generations(Path(folder) / CHECKPOINTS_NAME))
    except OSError:
        return False


def read_resumption(
    folder: str | Path, settings: Sequence[str] = (), case: Case | None = None
) -> Resumption:
    """Return what a run goes on with, by what is in its folder; change nothing.

    Parameters
    ----------
    folder : str or pathlib.Path
        The output folder of the run.
    settings : sequence of str
        What to change of its case, each ``section.key=value``.
    case : Case, optional
        In place of the run's own.

    Raises
    ------
    InputError
        If it is no run's, cannot be written, or has no state to go on from, or a key or value is
        not accepted.
    AtItsEnd
        If there is nothing left to do.
    """
    with _in_terms_of_runs():
        _check_writable(Path(folder))
    return _read(Path(folder), settings, case)


def _read(path: Path, settings: Sequence[str], case: Case | None) -> Resumption:
    own_case, source = _case_of(path), str(path / _CASE)
    if case is None:
        case = parse_case_of_run(own_case, settings, source)
    before = case
    # What is not accepted any more, or would import other code, is not compared.
    with contextlib.suppress(InputError):
        before = parse_stored_case(own_case, case, source)
    found = Resumption(path, case, _earlier(path, before))
    _check_unfinished(found)
    return found


def resume_run(
    folder: str | Path,
    settings: Sequence[str] = (),
    comm: Comm = None,
    device: str | Device = "auto",
    console: Console | None = None,
    *,
    case: Case | None = None,
    options: RunOptions | None = None,
) -> None:
    """Go on with a run, in its folder, to the end of its case. Collective.

    Parameters
    ----------
    folder, settings, case
        See `read_resumption`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work, any number of them.
    device : str or Device
        What computes; "auto" leaves it to the case's ``run.device``.
    console, options
        See `slipstream.simulation.run_case`.

    Raises
    ------
    InputError
        Also if the state does not suit the case; the folder is as it was then.
    AtItsEnd
        If there is nothing left to do.
    RunError, Interrupted
        See `slipstream.simulation.run_case`.
    """
    comm = own(comm, "resume")
    path = Path(folder)
    with _in_terms_of_runs(), together(comm):
        on_first_rank(comm, lambda: _check_writable(path))
        with claim_run(path, comm) as claimed:
            # Another segment may have come and gone since anybody looked.
            found = on_first_rank(comm, lambda: _resumption_or_end(path, settings, case))
            if isinstance(found, str):
                raise on_all_ranks(AtItsEnd(found))
            simulation = make_simulation(found.case, comm, device)
            simulation.resumed = str(path)
            options = replace(options or RunOptions(), settings=settings)
            run_case(simulation, claimed, console, options=options, earlier=found.earlier)


def _resumption_or_end(
    folder: Path, settings: Sequence[str], case: Case | None
) -> Resumption | str:
    """Return what `read_resumption` returns, or says at the end of a run: ranks share no errors."""
    try:
        return _read(folder, settings, case)
    except AtItsEnd as end:
        return end.text()


def _check_writable(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"{path}: no such folder of a run")
    if not has_state(path) and not (path / ".replaced").is_dir():
        case = f"; run its case again, as {path / _CASE} has it" if (path / _CASE).exists() else ""
        raise InputError(f"{path}: holds no state of a run to go on from{case}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(
            f"{path} cannot be written: no permission; copy it, or start another run from it:"
            f" --set initial.restart={path}"
        )
    check_lock(path)


def _case_of(path: Path) -> str:
    """Return the text of a run's case: that of its folder, or of its last state.

    What a program has changed until then has the value that it was given.
    """
    try:
        text = content_of(path / _CASE, _MOST_CASE).decode()
        tables = tomllib.loads(text)
        if not tables:
            raise ValueError("it is empty")
        states = generations(path / CHECKPOINTS_NAME) if has_state(path) else []
        changed = tables_at_state(tables, path, states)
        return text if changed is tables else to_toml(changed)
    except (OSError, ValueError, RecursionError) as error:
        for state in generations(path / CHECKPOINTS_NAME):
            with contextlib.suppress(Damage, OSError):
                return read_manifest(state).case
        reason = one_line(str(error))
        raise InputError(f"{path / _CASE}: {reason}; and no state has the case") from error


def _earlier(path: Path, case: Case) -> EarlierSegments:
    """Return what is known of a run, by its record or else by its series."""
    segments = read_run_record(path).segments
    if segments:
        is_whole = segments[-1].ended is not None and segments[-1].error is None
        return EarlierSegments(segments[0].from_step, segments[0].from_time, case, is_whole)
    with contextlib.suppress(InputError, OSError, IndexError):
        columns, _ = read_series(path / "diagnostics.csv")
        return EarlierSegments(int(columns["step"][0]), float(columns["time"][0]), case)
    return EarlierSegments(0, 0.0, case)


def _check_unfinished(found: Resumption) -> None:
    """Raise `AtItsEnd` if the last state says so; it need not be read as a whole for that.

    What a segment that was killed at the end has not written any more is left to be done.
    """
    if not found.earlier.is_whole:
        return
    for state in generations(found.folder / CHECKPOINTS_NAME):
        with contextlib.suppress(Damage, OSError):
            said = read_manifest(state)
            most = found.case.time.max_steps
            if is_reached(found.case.time.end, said.time, found.case) or (
                most is not None and said.step - found.earlier.step >= most
            ):
                raise AtItsEnd(how_to_lengthen(found.case, found.folder, said.step, said.time))
            return


@contextlib.contextmanager
def _in_terms_of_runs() -> Iterator[None]:
    """Say of a state, or a folder, what is of use where a run goes on."""
    try:
        yield
    except InputError as error:
        error.args = (error.text().removeprefix(STATE_KEY).replace(*_OTHER_FOLDER),)
        raise
