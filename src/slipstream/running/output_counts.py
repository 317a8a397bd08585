"""How many outputs a whole run writes, and whether those are more files than is wise."""

from __future__ import annotations

import math

from slipstream.accepted import STATISTICS
from slipstream.case.common_tables import Case
from slipstream.io.run_folder import OUTPUTS_NAME

# The warning starts here: quotas of file systems are about as large, and copying takes hours.
MANY_FILES = 100_000


def counts_until(case: Case, length: float) -> dict[str, int]:
    """Return how many of each kind of output are written in a run of this length."""
    output, counts = case.output, {}
    for kind in ("diagnostics", "spectra", "checkpoint", *STATISTICS, "fields"):
        interval = output.interval(kind)
        counts[kind] = _how_often(interval, length)
        if interval is None and kind in ("spectra", *STATISTICS):
            counts[kind] = 0
    if not output.checkpoint:
        counts["checkpoint"] = 0
    chosen = [*output.fields, *output.scalars]
    intervals = [getattr(one, "interval", None) for one in chosen]
    times = [len(getattr(one, "times", None) or ()) for one in chosen]
    own = [_how_often(one, length) for one in intervals if one is not None]
    counts[OUTPUTS_NAME] = max([*own, *times, 1]) if chosen else 0
    return counts


def _how_often(interval: float | None, length: float) -> int:
    """Return how often something is written: at the start, at intervals, and at the end."""
    if interval is None:
        return 1
    whole = math.floor(length / interval * (1 + 1e-12) + 1e-9)
    return whole + 1 + (length - whole * interval > 1e-6 * interval)


def files_warning(files: int) -> str:
    """Return the warning about a run that makes so many files; an empty one about few files."""
    if files <= MANY_FILES:
        return ""
    return (
        f"the run makes about {files} files, more than {MANY_FILES}: file systems may refuse them;"
        " write snapshots more rarely (output.fields_interval), or planes, boxes or coarser points"
        " of them (output.fields), into HDF5 or VTK, which have one file for each time"
    )
