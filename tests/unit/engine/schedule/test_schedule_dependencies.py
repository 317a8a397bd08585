"""Dependencies between nodes follow exactly from the bytes that their arrays share."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slipstream.engine.device import HostDevice
from slipstream.engine.schedule import StepGraph
from slipstream.engine.schedule.overlap_executor import urgency_order
from slipstream.engine.schedule.step_graph import AccessHistory, ByteRegion

BASE = np.zeros(24, np.complex128)


def dependencies(*accesses):
    """Return the dependencies of nodes given as (reads, writes)."""
    history = AccessHistory()
    return [history.record(i, reads, writes) for i, (reads, writes) in enumerate(accesses)]


def test_read_after_write_write_after_read_and_write_after_write():
    a, b = np.zeros(4), np.zeros(4)
    assert dependencies(([], [a]), ([a], [b])) == [set(), {0}]
    assert dependencies(([a], [b]), ([], [a])) == [set(), {0}]
    assert dependencies(([], [a]), ([], [a])) == [set(), {0}]
    assert dependencies(([a], []), ([a], [])) == [set(), set()]
    assert dependencies(([], [a]), ([], [b])) == [set(), set()]


def test_a_node_may_access_more_unless_later_ones_come_before_that():
    a, b, c = (np.zeros(4) for _ in range(3))
    graph = StepGraph(HostDevice(threads=1))
    for reads, writes in (([], [a]), ([a], [b]), ([], [c])):
        graph.add(None, reads=reads, writes=writes, label="", category="io")
    assert graph.extend(2, [b], [])
    assert list(graph.nodes[2].dependencies) == [1]
    assert not graph.extend(1, [c], []) and not graph.extend(0, [], [b])
    # A refused call is not remembered, and an accepted one is.
    graph.add(None, reads=[], writes=[b], label="", category="io")
    assert list(graph.nodes[3].dependencies) == [1, 2]


def test_all_readers_are_waited_for_and_a_write_hides_what_it_covers():
    a = np.zeros(8)
    found = dependencies(([], [a]), ([a], []), ([a[:2]], []), ([], [a]), ([a], []))
    assert found == [set(), {0}, {0}, {0, 1, 2}, {3}]
    # A write of a part hides nothing of the rest.
    assert dependencies(([], [a]), ([], [a[:4]]), ([a[4:]], [])) == [set(), {0}, {0}]


def test_interleaved_views_are_independent():
    a = np.zeros((6, 8))
    pairs = [(a[::2], a[1::2]), (a[:, :4], a[:, 4:]), (a.T[::2], a.T[1::2]), (BASE.real, BASE.imag)]
    for first, second in pairs:
        assert dependencies(([], [first]), ([], [second])) == [set(), set()]
        assert dependencies(([], [first]), ([], [first])) == [set(), {0}]
    assert dependencies(([], [a[::2]]), ([], [a[::3]])) == [set(), {0}]  # row 0 is common


def test_views_of_equal_strides_overlap_where_they_share_a_byte():
    """All pairs of some: within rows and beyond their ends, whole elements and halves of them."""
    memory, results = np.zeros(64, np.int8), []
    for start, size, rows, columns in itertools.product(range(9), (1, 2), (1, 2, 3), (1, 2, 4, 5)):
        elements = memory[start : start + 2].view(f"i{size}" if size == 2 else np.int8)[:1]
        view = np.lib.stride_tricks.as_strided(elements, (rows, columns), (8, 2))
        places = start + 8 * np.arange(rows)[:, None] + 2 * np.arange(columns)
        bytes_of = {int(place) + byte for place in places.flat for byte in range(size)}
        results.append((ByteRegion(elements.ctypes.data, view), bytes_of))
    for (one, own), (other, others) in itertools.combinations(results, 2):
        assert one.overlaps(other) == other.overlaps(one) == (not own.isdisjoint(others))


@pytest.mark.parametrize("axis", [1, 2])
def test_pieces_of_an_array_are_told_apart_without_an_exact_test(axis, monkeypatch):
    pieces = np.split(np.zeros((4, 6, 8), np.complex128), 2, axis)
    pairs = [tuple(pieces), (pieces[0].real, pieces[1].real), (pieces[0].real, pieces[0].imag)]
    monkeypatch.delattr(np, "shares_memory")
    for pair in pairs:
        one, other = (ByteRegion(piece.__array_interface__["data"][0], piece) for piece in pair)
        assert not one.overlaps(other) and not other.overlaps(one)


def test_empty_views_touch_nothing():
    a = np.zeros(8)
    found = dependencies(([], [a]), ([a[:0]], [a[3:3]]), ([], [a[8:]]), ([a], []))
    assert found == [set(), set(), set(), {0}]


def test_writing_the_real_part_does_not_hide_the_imaginary_one():
    """Both views have one shape and one stride; only the size of an element differs."""
    found = dependencies(([], [BASE]), ([], [BASE.real]), ([BASE.imag], []))
    assert found == [set(), {0}, {0}]


@st.composite
def views(draw):
    """Return a view of BASE: ranges, steps, blocks, reversed, transposed, real or imaginary."""
    if draw(st.booleans()):
        start, stop = sorted(draw(st.tuples(st.integers(0, 24), st.integers(0, 24))))
        view = BASE[start : stop : draw(st.sampled_from([1, 1, 2, 3, 5]))]
    else:
        rows = draw(st.sampled_from([2, 4, 6]))
        block = BASE.reshape(rows, -1)
        low, high = sorted(draw(st.tuples(st.integers(0, rows), st.integers(0, rows))))
        left, right = sorted(draw(st.tuples(st.integers(0, 24 // rows), st.integers(0, 12))))
        view = block[low:high, left:right]
        view = view.T if draw(st.booleans()) else view
    view = view[::-1] if draw(st.booleans()) else view
    return (
        getattr(view, draw(st.sampled_from(["real", "imag", "base"])))
        if draw(st.booleans())
        else view
    )


def touched(view):
    """Return the bytes of BASE that a view covers."""
    start = view.__array_interface__["data"][0] - BASE.ctypes.data
    return {
        start + sum(i * s for i, s in zip(index, view.strides, strict=True)) + byte
        for index in np.ndindex(*view.shape)
        for byte in range(view.itemsize)
    }


ACCESSES = st.tuples(st.lists(views(), max_size=2), st.lists(views(), max_size=2))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(ACCESSES, max_size=10))
@example([([], [BASE]), ([], [BASE.real]), ([BASE.imag], [])])
def test_what_conflicts_is_ordered_and_nothing_else_waits(accesses):
    read = [set().union(*map(touched, reads)) for reads, _ in accesses]
    written = [set().union(*map(touched, writes)) for _, writes in accesses]
    direct = dependencies(*accesses)
    before = []  # all that must have run before node i, directly or not
    for wanted in direct:
        before.append(wanted.union(*(before[j] for j in wanted)))
    for i, j in itertools.combinations(range(len(accesses)), 2):
        conflict = bool(written[i] & (read[j] | written[j]) or read[i] & written[j])
        assert i in before[j] or not conflict
        assert conflict or i not in direct[j]


def test_arrays_of_a_gpu_are_compared_by_their_addresses():
    class Foreign:
        """Interface that CuPy shows of a complex128 array; its memory cannot be read here."""

        def __init__(self, address, shape, strides, contiguous):
            self.data, self.flags = SimpleNamespace(ptr=address), SimpleNamespace()
            self.flags.c_contiguous = contiguous
            self.shape, self.strides, self.itemsize = shape, strides, 16
            self.size = shape[0] * shape[1]
            self.nbytes = 16 * self.size

    whole = Foreign(1 << 40, (4, 8), (128, 16), True)
    left, right = (Foreign((1 << 40) + 16 * c, (4, 4), (128, 16), False) for c in (0, 4))
    elsewhere = Foreign(1 << 41, (4, 8), (128, 16), True)
    found = dependencies(([], [left]), ([], [right]), ([whole], []), ([], [elsewhere]))
    assert found == [set(), set(), {0, 1}, set()]


class NoTransfer:
    ordered = False


def random_graph(data, count):
    """Return a graph whose nodes read and write random slots, some of them transfers."""
    graph, slots = StepGraph(HostDevice()), [np.zeros(2) for _ in range(5)]
    for i in range(count):
        reads, writes = (
            [slots[k] for k in data.draw(st.sets(st.integers(0, 4), max_size=2))] for _ in range(2)
        )
        if data.draw(st.booleans()):
            graph.add_transfer(NoTransfer(), reads=reads, writes=writes, label=f"{i}")
        else:
            graph.add(None, reads=reads, writes=writes, label=f"{i}", category="compute")
    return graph


@pytest.mark.slow
@given(st.data(), st.integers(0, 12))
def test_urgency_order_respects_dependencies_and_puts_feeders_first(data, count):
    nodes = random_graph(data, count).nodes
    order = [node.index for node in urgency_order(nodes)]
    assert sorted(order) == list(range(count))
    position = {index: i for i, index in enumerate(order)}
    assert all(position[j] < position[node.index] for node in nodes for j in node.dependencies)
    transfers = [node.index for node in nodes if node.transfer]
    assert [index for index in order if index in transfers] == transfers
    # Whatever stands before a transfer feeds it, or one before it.
    feeds = set()
    for index in transfers:
        stack = [index]
        while stack:
            feeder = stack.pop()
            feeds.add(feeder)
            stack += nodes[feeder].dependencies
        assert set(order[: position[index] + 1]) <= feeds


def test_unknown_category_is_an_error_that_names_those_accepted():
    with pytest.raises(ValueError, match="'network' is unknown; accepted.*communication"):
        StepGraph(HostDevice()).add(None, label="send", category="network")
