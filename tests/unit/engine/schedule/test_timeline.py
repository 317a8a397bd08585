"""Process timers and timelines: sums of known intervals, and files that other programs read."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from slipstream.engine.device import HostDevice
from slipstream.engine.schedule import CATEGORIES, POLICIES, StepGraph, Timeline, commit
from slipstream.engine.schedule.committed_steps import COLOURS, Entry


def timeline(*entries):
    """Return a timeline of (category, start, stop), each in a lane named by its category."""
    result = Timeline()
    result.entries += [Entry(f"{c} {a}", c, c, a, b) for c, a, b in entries]
    return result


def test_totals_are_busy_seconds_and_count_overlap_in_each_category():
    line = timeline(("fft", 0, 4), ("communication", 2, 8), ("fft", 10, 11))
    assert line.totals() == {"fft": 5, "communication": 6}
    assert line.duration() == 11
    line.clear()
    assert line.totals() == {}
    assert line.duration() == 0
    assert line.exposed() == 0


def test_exposed_communication_is_what_nothing_hides():
    # On the wire 2..8 and 7..9; computing 0..4, 3..5 and 8..20: exposed 5..8.
    line = timeline(
        ("communication", 2, 8),
        ("communication", 7, 9),
        ("fft", 0, 4),
        ("pack", 3, 5),
        ("compute", 8, 20),
    )
    assert line.exposed() == 3
    assert line.exposed("compute") == 11
    assert line.exposed("fft") == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fft", "pack", "communication"]), st.integers(0, 30), st.integers(0, 9)
        )
    )
)
def test_exposed_counts_the_ticks_with_one_category_only(intervals):
    line = timeline(*((c, start, start + length) for c, start, length in intervals))
    running = [{e.category for e in line.entries if e.start <= t < e.stop} for t in range(40)]
    for category in ("fft", "pack", "communication"):
        assert line.exposed(category) == sum(active == {category} for active in running)


def test_chrome_trace_has_one_complete_event_per_entry_in_microseconds(tmp_path):
    line = timeline(("fft", 5.0, 5.5), ("io", 5.25, 6.0))
    line.write_chrome_trace(tmp_path / "trace.json", rank=3)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert events == [
        {"name": "fft 5.0", "cat": "fft", "ph": "X", "pid": 3, "tid": "fft", "ts": 0, "dur": 5e5},
        {"name": "io 5.25", "cat": "io", "ph": "X", "pid": 3, "tid": "io", "ts": 25e4, "dur": 75e4},
    ]


def pixels(path):
    """Return the colours, 0 to 255, of all pixels of a PNG."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    return np.rint(255 * imread(path)[..., :3]).astype(int).reshape(-1, 3)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_picture_shows_the_colour_of_every_category(tmp_path, count):
    present = list(CATEGORIES)[:count]
    line = timeline(*((c, i, i + 1) for i, c in enumerate(present)))
    line.write_picture(tmp_path / "timeline.png", title="a step")
    image = pixels(tmp_path / "timeline.png")
    for category, name in COLOURS.items():
        colour = [int(name[i : i + 2], 16) for i in (1, 3, 5)]
        count = (image == colour).all(axis=1).sum()
        # A bar is tens of thousands of pixels, an anti-aliased letter none of exactly this colour.
        assert (count > 1000) == (category in present)


def test_every_category_has_a_colour():
    assert set(COLOURS) == set(CATEGORIES)
    assert len(set(COLOURS.values())) == len(CATEGORIES)


@pytest.mark.parametrize("policy", POLICIES)
def test_profiled_runs_add_an_entry_per_node(policy):
    graph, a, b = StepGraph(HostDevice()), np.zeros(4), np.zeros(4)
    graph.add(lambda stream: None, writes=[a], label="first", category="fft")
    graph.add(lambda stream: None, reads=[a], writes=[b], label="second", category="pack", lane="x")
    step = commit(graph, policy)
    step.run()
    assert step.timeline.entries == []
    step.run(profile=True)
    step.run(profile=True)
    entries = step.timeline.entries
    assert sorted((e.label, e.category, e.lane) for e in entries) == [
        ("first", "fft", "compute"),
        ("first", "fft", "compute"),
        ("second", "pack", "x"),
        ("second", "pack", "x"),
    ]
    for first, second in zip(
        *(sorted(e.start for e in entries if e.label == name) for name in ("first", "second")),
        strict=True,
    ):
        assert first < second
