"""The points of each device: every point is advanced once, with all its neighbours valid."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.advection import STRATEGIES
from slipstream.advection.overlap_strategies import place
from slipstream.engine.decomposition import Box

DEVICES = {"cpu": SimpleNamespace(row_bytes=1), "gpu": SimpleNamespace(row_bytes=128)}


def points(boxes):
    found = [p for box in boxes for p in itertools.product(*map(range, box.start, box.stop))]
    assert len(found) == len(set(found))
    return set(found)


def neighbours(box, shape):
    """Return the points within one of a box's, by index in the periodic array."""
    grown = points([box.grown((1, 1, 1))]) if box.size else ()
    return {tuple(i % n for i, n in zip(point, shape, strict=True)) for point in grown}


@st.composite
def placements(draw):
    """Return the regions of a rank's box, the box, the whole shape, and the divided axes."""
    divided = draw(st.tuples(*[st.integers(0, 1)] * 3))
    start = tuple(draw(st.integers(0, 3)) if d else 0 for d in divided)
    lengths = draw(st.tuples(*[st.integers(0, 6)] * 3))
    lengths = [length if d else max(1, length) for length, d in zip(lengths, divided, strict=True)]
    stop = tuple(map(int.__add__, start, lengths))
    shape = tuple(
        b + draw(st.integers(0, 3)) if d else b for b, d in zip(stop, divided, strict=True)
    )
    box = Box(start, stop)
    name, shell = draw(st.sampled_from(sorted(STRATEGIES))), draw(st.integers(0, 4))
    if len(STRATEGIES[name].devices) == 1:
        shell = 1
    dtype = draw(st.sampled_from(["float32", "float64"]))
    return name, place(STRATEGIES[name], DEVICES, box, divided, dtype, shell), box, shape, divided


@given(placements())
def test_devices_share_the_points_of_a_rank(placement):
    name, regions, box, _, _ = placement
    assert set(regions) <= set(STRATEGIES[name].devices)
    owned = [part for region in regions.values() for part in region.boxes]
    assert points(owned) == points([box])


@pytest.mark.slow
@given(placements())
def test_what_is_advanced_first_and_the_rest_are_all(placement):
    for region in placement[1].values():
        first, rest = points(region.outer()), points(region.inner())
        assert not first & rest
        assert first | rest == points(region.boxes)


@given(placements())
def test_every_neighbour_of_a_point_is_in_the_memory_of_its_device(placement):
    """In its own box or halo; along axes without a halo its device has all points."""
    _, regions, _, shape, _ = placement
    for region in regions.values():
        layout = region.layout
        for axis, width in enumerate(layout.halo):
            if not width:
                assert (layout.box.start[axis], layout.box.stop[axis]) == (0, shape[axis])
        present = points([layout.box.grown(layout.halo)])
        for part in region.boxes:
            near = points([part.grown(layout.halo)]) if part.size else set()
            assert near <= present


@given(placements())
def test_what_others_read_is_advanced_first(placement):
    """Other ranks read points near their boxes, and the CPU points near its shell."""
    _, regions, box, shape, divided = placement
    early = {name: points(region.outer()) for name, region in regions.items()}
    # Every point that this rank may have to send: within one of its faces of divided axes.
    inside = points([box.grown([-d for d in divided])])
    sent = points([box]) - inside
    assert sent <= set().union(*early.values())
    if len(regions) == 2:
        (block,) = regions["gpu"].boxes
        shell = set().union(*(neighbours(part, shape) for part in regions["cpu"].boxes))
        assert shell & points([block]) <= early["gpu"]


@given(placements())
def test_what_the_gpu_reads_of_the_shell_is_the_cpus(placement):
    _, regions, box, _, _ = placement
    if len(regions) == 2:
        layout = regions["gpu"].layout
        read = points([layout.box.grown(layout.halo)]) - points([layout.box])
        assert read <= points(regions["cpu"].boxes)
        assert regions["cpu"].layout.box == box


@pytest.mark.parametrize("divided", [(0, 0, 0), (1, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("name", ["hybrid", "hybrid-overlap"])
def test_shell_is_as_thick_as_asked(name, divided):
    box = Box((0, 0, 0), (9, 10, 11))
    for shell in (1, 2, 3):
        regions = place(STRATEGIES[name], DEVICES, box, divided, "float64", shell)
        x = shell if divided[2] else 0
        block = Box((shell, shell, x), (9 - shell, 10 - shell, 11 - x))
        assert regions["gpu"].boxes == (block,)
        # The devices' own memory, and no more: the GPU's block with a halo where there is a shell.
        assert regions["gpu"].layout.box == block
        assert regions["gpu"].layout.halo == (1, 1, divided[2])
        assert regions["cpu"].layout.halo == divided
    assert set(place(STRATEGIES[name], DEVICES, box, divided, "float64", 0)) == {"gpu"}
    assert set(place(STRATEGIES[name], DEVICES, box, divided, "float64", 5)) == {"cpu"}


def test_rows_begin_where_each_device_likes_it():
    box = Box((0, 0, 0), (9, 10, 11))
    for dtype in ("float32", "float64"):
        regions = place(STRATEGIES["hybrid"], DEVICES, box, (1, 1, 1), dtype, 2)
        for name, least in (("cpu", 64), ("gpu", 128)):
            layout = regions[name].layout
            pitch = layout.shape[2] * np.dtype(dtype).itemsize
            assert (pitch % least, pitch // least % 2) == (0, 1)
