"""``slipstream report``: the page of a run, or of several, made of what their folders have now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from slipstream.errors import InputError
from slipstream.io.durable_files import errors_name, replace_file
from slipstream.io.foreign_files import open_file
from slipstream.report.compared_runs import comparison_page, runs_by_name
from slipstream.report.page_style import GENERATOR
from slipstream.report.run_checks import run_checks
from slipstream.report.run_page import run_page, timeline_of
from slipstream.report.stored_run import StoredRun

_MOST_RUNS, _COMPARISON = 24, "comparison.html"


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page of one run, or of several side by side, and return its path.

    Parameters
    ----------
    folders : sequence of pathlib.Path
        Output folders of runs, which may be under way; they are only read.
    out : pathlib.Path, optional
        The file; by default in ``reports``, with the name of the run, or ``comparison.html``.

    Raises
    ------
    InputError
        If a folder holds no run, or the file is there and is no such page.
    """
    if len(folders) > _MOST_RUNS:
        raise InputError(f"report: {len(folders)} runs; accepted: at most {_MOST_RUNS} on one page")
    runs = runs_by_name(folders)
    path = out or Path("reports") / (f"{next(iter(runs))}.html" if len(runs) == 1 else _COMPARISON)
    _check(path)
    text = page_of(next(iter(runs.values()))) if len(runs) == 1 else comparison_page(runs)
    with errors_name(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode("utf-8", "replace"))
    return path


def page_of(run: StoredRun) -> str:
    """Return the page of a run, with plots of what it has written."""
    with run.drawn():
        return run_page(
            run.path,
            run.record,
            {one.name: one.svg() for one in run.pictures() if not one.is_summary},
            run_checks(run.series[0], run.planes(), run.case),
            case=run.case_text,
            is_running=run.is_running,
            timeline=timeline_of(run.folder),
        )


def _check(path: Path) -> None:
    """Refuse to replace a file that is no page of ours."""
    if path.is_dir():
        raise InputError(f"--out: {path} is a folder; accepted: a file, such as report.html")
    if os.path.lexists(path):
        try:
            with open_file(path) as file:
                is_ours = GENERATOR.encode() in file.read(1000)
        except OSError:
            is_ours = False
        if not is_ours:
            raise InputError(f"--out: {path} exists and is no report; choose another file")
