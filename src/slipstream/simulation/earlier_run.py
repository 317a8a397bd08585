"""The run whose last state another run goes on from.

Its folder may be somebody else's: what the case in it names is compared, never imported.
"""

from __future__ import annotations

import contextlib
import copy
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from slipstream.array_types import Comm
from slipstream.case import Case, parse_stored_case
from slipstream.collective import on_every_rank
from slipstream.errors import InputError
from slipstream.io.checkpoint import Checkpoint, open_checkpoint
from slipstream.io.checkpoint_manifest import Damage, read_manifest
from slipstream.io.run_record import read_run_record

AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(
    place: str | Checkpoint, case: AnyCase, comm: Comm
) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, unless it is open, and its case. Collective.

    Another solver's is refused.
    """
    checkpoint = open_checkpoint(place, comm) if isinstance(place, str) else place

    def parsed() -> Case:
        where = f"initial.restart: {checkpoint.path}"
        return parse_stored_case(checkpoint.case, case, where)

    return checkpoint, cast(AnyCase, on_every_rank(comm, parsed))


def tables_at_state(tables: dict[str, Any], folder: Path, states: Sequence[Path]) -> dict[str, Any]:
    """Return the tables of the case of a run as they were at a state, the first that is readable.

    Settings that a program has changed between steps are in the run's record, and in its states.
    """
    changes, began = [], 0
    with contextlib.suppress(InputError):
        for segment in read_run_record(folder).segments[-1:]:
            changes, began = segment.changes, segment.from_step
    for state in states if changes else ():
        with contextlib.suppress(Damage, OSError, ValueError, RecursionError):
            said = read_manifest(state)
            if said.step <= began:
                break
            theirs = tomllib.loads(said.case)
            result = copy.deepcopy(tables)
            for change in changes:
                if change.step <= said.step:
                    _take_over(change.key, theirs, result)
            return result
    return tables


def _take_over(key: str, theirs: dict[str, Any], tables: dict[str, Any]) -> None:
    """Give a key of tables the value that others have, or remove it if they have none."""
    name, _, inner = key.partition(".")
    source, target = theirs.get(name), tables.get(name)
    if not inner or not isinstance(source, dict) or not isinstance(target, dict):
        return
    target.pop(inner, None)
    if inner in source:
        target[inner] = source[inner]
