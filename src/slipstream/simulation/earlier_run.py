"""The run whose last state another run goes on from."""

from __future__ import annotations

from typing import TypeVar, cast

from slipstream.case import Case, parse_case
from slipstream.errors import InputError
from slipstream.io.checkpoint import Checkpoint, open_checkpoint

AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(folder: str, case: AnyCase) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, and its case; refuse another solver's."""
    checkpoint = open_checkpoint(folder)
    earlier = parse_case(checkpoint.case, source=str(checkpoint.path))
    if earlier.solver != case.solver:
        raise InputError(
            f"initial.restart: {folder} is of solver {earlier.solver!r}, this case of "
            f"{case.solver!r}; both must be the same"
        )
    return checkpoint, cast(AnyCase, earlier)
