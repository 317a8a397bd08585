"""The run whose last state another run goes on from.

Its folder may be somebody else's: what the case in it names is compared, never imported.
"""

from __future__ import annotations

from typing import TypeVar, cast

from slipstream.array_types import Comm
from slipstream.case import Case, parse_stored_case
from slipstream.collective import on_every_rank
from slipstream.io.checkpoint import Checkpoint, open_checkpoint

AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(folder: str, case: AnyCase, comm: Comm) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, and its case. Collective.

    Another solver's is refused.
    """
    checkpoint = open_checkpoint(folder, comm)

    def parsed() -> Case:
        where = f"initial.restart: {checkpoint.path}"
        return parse_stored_case(checkpoint.case, case, where)

    return checkpoint, cast(AnyCase, on_every_rank(comm, parsed))
