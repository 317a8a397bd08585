"""Output that a thread writes during the run: all of it, in order, in limited memory."""

import threading

import numpy as np
import pytest

from slipstream.engine.errors import RunError
from slipstream.engine.fields import Field
from slipstream.runs.output_writer import WriteQueue

SIZE = 8


def field(number):
    return Field(str(number), ("x",), (1,), (0,), np.array([float(number)]))


@pytest.fixture(params=[True, False], ids=["thread", "at once"])
def queue(request):
    with_thread = WriteQueue(request.param, most_bytes=2 * SIZE)
    yield with_thread
    with_thread.close()


def test_all_is_written_in_order_and_what_waits_is_called_here(queue):
    written, called = [], []
    for number in range(20):
        queue.write(
            lambda fields: written.extend(one.name for one in fields),
            map(field, range(number, number + 3)),
            lambda: called.append(threading.current_thread()),
        )
    queue.finish()
    assert written == [str(number + i) for number in range(20) for i in range(3)]
    assert called == [threading.current_thread()] * 20


def test_no_more_fields_wait_than_there_is_room_for():
    queue, made, waiting = WriteQueue(True, most_bytes=3 * SIZE), [], []

    def fields():
        for number in range(50):
            yield field(number)
            made.append(number)

    def take(fields):
        for number, _ in enumerate(fields):
            # One is being written, and one is made for which there is no room yet.
            waiting.append(len(made) - number)

    queue.write(take, fields())
    queue.close()
    assert len(waiting) == 50 and max(waiting) <= 4


def test_a_field_larger_than_all_room_is_written():
    queue, written = WriteQueue(True, most_bytes=1), []
    queue.write(lambda fields: written.extend(fields), map(field, range(3)))
    queue.close()
    assert len(written) == 3


def fail(fields):
    next(fields)
    raise RunError("the disk is full")


def test_what_fails_is_told_once_and_nothing_is_written_after_it():
    queue, written = WriteQueue(True), []
    with pytest.raises(RunError, match="the disk is full"):
        queue.write(fail, map(field, range(10)))
        queue.finish()
    queue.write(written.extend, map(field, range(10)))
    queue.finish()
    queue.close()
    assert written == []


def test_a_field_that_cannot_be_made_fails_where_it_is_made(queue):
    def fields():
        yield field(0)
        raise RunError("no memory")

    with pytest.raises(RunError, match="no memory"):
        queue.write(list, fields())


def test_the_thread_ends_whatever_has_failed():
    before = threading.active_count()
    queue = WriteQueue(True)
    queue.write(fail, [field(0)])
    with pytest.raises(RunError, match="the disk is full"):
        queue.close()
    queue.close()
    assert threading.active_count() == before
