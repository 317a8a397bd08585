"""A rank that fails at the door of what ranks do together, or between, keeps no other waiting."""

import pytest

from flows import environment, python
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE
from slipstream.engine.processes import find_mpiexec

pytestmark = pytest.mark.mpi

SHAPE = "u is an array of shape (3,) and type float64; this plan takes shape (4, 8, 8)"
CLOSED = "this plan is closed; make another one (on rank 0)"
SAID = {
    "plan:give_another_shape:peer": SHAPE,
    "plan:give_another_shape:mpi": SHAPE,
    "plan:give_another_shape:mpi-p2p": SHAPE,
    "plan:give_another_shape:mpi-hierarchical": SHAPE,
    "plan:begin_with_another_shape:auto": SHAPE,
    "plan:close_before:auto": CLOSED,
    "plan:multiply_nothing:auto": "product of no fields",
    "plan:ask_for_the_error_of_a_closed_plan:auto": CLOSED,
    "plan:leave_block:auto": "ValueError: a mistake of the user (on rank 0)",
    "plan:leave_by_key:auto": "KeyboardInterrupt (on rank 0)",
    "simulation:step_back:auto": "steps is -1; accepted: whole numbers of at least 1 (on rank 0)",
    "simulation:leave_block:auto": "ValueError: a mistake of the user (on rank 0)",
    "simulation:leave_by_key:auto": "KeyboardInterrupt (on rank 0)",
}
ENDS = {f"{what}:end:auto": "LookupError: nobody catches this" for what in ("plan", "simulation")}


def said_by_rank_1(*cases, **variables):
    """Return the message of the second rank when the first fails; no rank may wait for long."""
    # A rank that still waits would say so only after this test has given up.
    variables |= {"OMP_NUM_THREADS": "1", "SLIPSTREAM_TIMEOUT": "3000"}
    result = python(
        "tests/support/rank_fails.py",
        *cases,
        environment={**environment(2), **variables},
        launcher=[find_mpiexec(), "-n", "2"],
    )
    parts = [line.partition(" on rank 1: ") for line in result.stdout.splitlines()]
    said = {case: text for case, of_rank_1, text in parts if of_rank_1}
    assert list(said) == list(cases), result.stdout + result.stderr
    return said


@pytest.mark.parametrize("cases", [SAID, *({name: text} for name, text in ENDS.items())])
def test_the_others_hear_which_rank_has_failed_and_by_what(cases):
    for name, text in said_by_rank_1(*cases, **{RANKS_PER_NODE: "1"}).items():
        assert cases[name] in text
