"""The run whose last state another run goes on from."""

from __future__ import annotations

from typing import TypeVar, cast

from slipstream.array_types import Comm
from slipstream.case import Case, parse_case
from slipstream.collective import on_every_rank
from slipstream.errors import InputError
from slipstream.io.checkpoint import Checkpoint, open_checkpoint

AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(folder: str, case: AnyCase, comm: Comm) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, and its case. Collective.

    Another solver's is refused.
    """
    checkpoint = open_checkpoint(folder, comm)
    earlier = on_every_rank(comm, lambda: parse_case(checkpoint.case, source=str(checkpoint.path)))
    if earlier.solver != case.solver:
        raise InputError(
            f"initial.restart: {folder} is of solver {earlier.solver!r}, this case of "
            f"{case.solver!r}; both must be the same"
        )
    return checkpoint, cast(AnyCase, earlier)
