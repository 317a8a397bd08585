"""A failure on one rank, of any kind, is a failure on all, and no rank waits."""

import math
import random
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike
from slipstream.engine import own_communicator
from slipstream.engine.collective import (
    greatest,
    largest,
    on_every_rank,
    on_first_rank,
    own,
    together,
)
from slipstream.engine.errors import InputError, RunError, SlipstreamError


def failing(rank, failures):
    if rank in failures:
        raise failures[rank]
    return 10 * rank


@pytest.mark.parametrize(
    ("error", "others", "text"),
    [
        (InputError("no such file"), InputError, "no such file"),
        (RunError("too late"), RunError, "too late"),
        (ZeroDivisionError("one by none"), RunError, "ZeroDivisionError: one by none"),
        (MemoryError(), RunError, "MemoryError"),
    ],
)
def test_all_say_what_happened_on_the_rank_that_failed(comm, ranks, error, others, text):
    rank, last = (0 if comm is None else comm.rank), ranks - 1
    with pytest.raises(type(error) if rank == last else others) as caught:
        on_every_rank(comm, lambda: failing(rank, {last: error}))
    if ranks == 1 or rank == last and not isinstance(error, SlipstreamError):
        assert caught.value is error
    else:
        assert str(caught.value) == f"{text} (on rank {last})"
    assert on_every_rank(comm, lambda: failing(rank, {})) == 10 * rank


def test_what_all_say_is_said_without_a_number(comm, ranks):
    rank = 0 if comm is None else comm.rank
    with pytest.raises(InputError) as caught:
        on_every_rank(comm, lambda: failing(rank, {rank: InputError("refused")}))
    assert str(caught.value) == "refused"


def test_the_lowest_rank_speaks_for_all(comm, ranks):
    rank = 0 if comm is None else comm.rank
    with pytest.raises(InputError) as caught:
        on_every_rank(comm, lambda: failing(rank, {rank: InputError(f"refused by {rank}")}))
    assert str(caught.value) == "refused by 0" + ("" if ranks == 1 else " (on rank 0)")


def test_the_first_rank_does_it_for_all(comm, ranks):
    rank, calls = (0 if comm is None else comm.rank), []
    assert on_first_rank(comm, lambda: calls.append(rank) or [1, 2]) == [1, 2]
    assert calls == ([0] if rank == 0 else [])
    with pytest.raises(InputError, match="no case"):
        on_first_rank(comm, lambda: failing(0, {0: InputError("no case")}))


def test_largest(comm, ranks):
    rank = 0 if comm is None else comm.rank
    assert largest(comm, -rank) == 0
    assert largest(comm, rank) == ranks - 1


@pytest.mark.parametrize("lengths", [(1, 1), (500, 500), (1, 500)], ids=str)
def test_each_rank_gets_what_is_for_it(comm, ranks, lengths):
    if ranks == 1:
        pytest.skip("needs several ranks")
    mine, length = own(comm, "test"), lengths[comm.rank == ranks - 1]
    heard = mine.alltoall([f"{comm.rank} to {rank}" * length for rank in range(ranks)])
    many = [lengths[rank == ranks - 1] for rank in range(ranks)]
    assert heard == [f"{rank} to {comm.rank}" * many[rank] for rank in range(ranks)]


def test_examples_are_alike_where_ranks_have_imported_different_modules(
    comm, ranks, tmp_path, monkeypatch
):
    """Draws for a test must not depend on the rank, or exchanges would wait for ever."""
    rank, drawn = (0 if comm is None else comm.rank), []
    if rank == ranks - 1:
        module = types.ModuleType("only_here")
        module.__file__ = str(tmp_path / "only_here.py")
        source = random.Random(0)
        numbers = [source.randrange(2**31) for _ in range(100)]
        (tmp_path / "only_here.py").write_text(f"NUMBERS = {numbers}\n")
        monkeypatch.setitem(sys.modules, "only_here", module)

    @alike(examples=50)
    @given(number=st.integers(0, 2**32 - 1))
    def draw(number):
        drawn.append(number)

    draw()
    for other in [drawn] if comm is None else comm.allgather(drawn):
        assert other == drawn


@pytest.fixture
def meeting(comm):
    """Return a communicator whose collective calls begin with a meeting."""
    return own(comm, "test")


@pytest.mark.several_ranks
def test_ranks_learn_what_others_bring_to_a_meeting(meeting):
    rank, last = meeting.rank, meeting.size - 1
    meeting.Barrier()
    assert meeting.allgather(rank) == list(range(meeting.size))
    # Nothing to say, short messages, and a long one, which are gathered in different ways.
    assert meeting.allgather(None) == [None] * meeting.size
    for length in (0, 100, 10_000):
        said = [f"{rank}" * (length if rank == last else 1) for rank in range(meeting.size)]
        assert meeting.allgather(said[rank]) == said
    assert meeting.bcast("x" * 400 * (rank == last), root=last) == "x" * 400
    assert greatest(meeting, float(-rank)) == 0.0
    assert greatest(meeting, -math.inf) == -math.inf
    assert math.isnan(greatest(meeting, math.nan if rank == last else 1.0))
    with pytest.raises(InputError, match="no such file"):
        on_every_rank(meeting, lambda: failing(rank, {last: InputError("no such file")}))
    assert greatest(meeting, 3.0) == 3.0


@pytest.mark.several_ranks
def test_a_rank_that_fails_ends_the_meeting_of_all(meeting):
    with pytest.raises(RunError, match="lost"), together(meeting):
        if meeting.rank == 0:
            raise RunError("lost")
        greatest(meeting, 1.0)


@pytest.mark.several_ranks
def test_a_rank_that_fails_as_others_leave_a_meeting_leaves_none_inside_mpi(meeting, monkeypatch):
    wait, is_last = own_communicator._wait, meeting.rank == meeting.size - 1

    def wait_and_fail(*arguments):
        monkeypatch.setattr(own_communicator, "_wait", wait)
        wait(*arguments)
        raise KeyboardInterrupt

    if is_last:
        monkeypatch.setattr(own_communicator, "_wait", wait_and_fail)
    with pytest.raises(KeyboardInterrupt if is_last else RunError):
        meeting.allreduce(1)
    with pytest.raises(RunError, match="make"):
        meeting.allreduce(1)
