"""The start of a run that continues: the state of another, or its own segments and their output.

The folder of another run may be somebody else's: what the case in it names is compared, never
imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from slipstream.array_types import Comm
from slipstream.case import Case, parse_stored_case
from slipstream.case.toml_text import toml_value
from slipstream.collective import on_every_rank
from slipstream.io.folder_seals import KeptOutput
from slipstream.printable_text import shortened

if TYPE_CHECKING:
    from slipstream.io.checkpoint import Checkpoint

# Tables that do not change the problem.
_AROUND = ("title", "time", "run", "output", "initial")
_MOST_LETTERS = 60
AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(
    place: str | Checkpoint, case: AnyCase, comm: Comm
) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, unless it is open, and its case. Collective.

    Another solver's is refused.
    """
    from slipstream.io.checkpoint import open_checkpoint  # not by who only compares cases

    checkpoint = open_checkpoint(place, comm) if isinstance(place, str) else place

    def parsed() -> Case:
        where = f"initial.restart: {checkpoint.path}"
        return parse_stored_case(checkpoint.case, case, where)

    return checkpoint, cast(AnyCase, on_every_rank(comm, parsed))


@dataclass(frozen=True)
class EarlierSegments:
    """The part of a run that is done.

    Attributes
    ----------
    step, time
        At which the run began: times of output and ``time.max_steps`` count from there.
    case : Case
        Of the segment before.
    is_whole : bool
        Whether that has written all that it was to write: it was not killed, and did not fail.
    state : pathlib.Path or None
        From which it continues.
    kept : KeptOutput
        What of its output continues.
    warnings : tuple of str
        What of it does not, and why.
    """

    step: int
    time: float
    case: Case
    is_whole: bool = True
    state: Path | None = None
    kept: KeptOutput = field(default_factory=KeptOutput)
    warnings: tuple[str, ...] = ()

    def changes(self, case: Case) -> list[str]:
        """Return what another case changes, for people, each ``key: before -> now``."""
        return [text_of(key, *values) for key, values in differences(self.case, case).items()]


def solve_the_same(before: Case, now: Case) -> bool:
    """Return whether two cases are of the same problem, numerically too."""
    return all(key.partition(".")[0] in _AROUND for key in differences(before, now))


def differences(before: Case, now: Case) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two cases differ, each with both values."""
    return table_differences(before.model_dump(mode="json"), now.model_dump(mode="json"))


def table_differences(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which the tables of two cases differ, each with both values."""
    first, second = _flat(before), _flat(now)
    return {
        key: (first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    }


def text_of(key: str, before: Any, now: Any) -> str:
    """Return a difference for people."""
    return f"{key}: {_text(before)} -> {_text(now)}"


def _flat(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and not above:
            found |= _flat(value, f"{key}.")
        else:
            found[above + key] = value
    return found


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    try:
        return shortened(toml_value(value), _MOST_LETTERS)
    except TypeError:
        return shortened(str(value), _MOST_LETTERS)
