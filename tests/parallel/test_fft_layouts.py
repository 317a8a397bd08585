"""Any array, divided in any way, against numpy.fft by global index, on any number of ranks."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, choices, together, transforms
from fft_oracle import check
from slipstream.engine.decomposition import Box, slabs
from slipstream.engine.fft import truncate
from slipstream.engine.fft.fft_plan import SlabOptions
from slipstream.fft import DistributedFFT

LAYOUTS = [
    (layout, order) for layout in ("slab", "pencil", "root") for order in ("transposed", "natural")
]
# One to three axes, with fewer points than ranks, primes, lengths 1.
SHAPES = [(1,), (5,), (30,), (3, 2), (13, 7), (3, 1, 2), (5, 12, 9)]


@pytest.mark.parametrize(("layout", "order"), LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_layout_equals_numpy(comm, device, shape, layout, order):
    check(comm, device, shape, "float64", layout=layout, order=order)


@pytest.mark.slow
@alike(examples=25)
@given(data=st.data())
def test_any_division_of_any_array_equals_numpy(comm, device, device_kind, ranks, transports, data):
    case = data.draw(transforms(ranks, tiled=device_kind != "cpu"))
    case |= data.draw(choices(ranks, transports))
    together(comm, check, comm, device, **case)


@alike(examples=12)
@given(data=st.data())
def test_bricks_of_any_arrangement_equal_numpy(comm, device, ranks, transports, data):
    shape, truncation = (12, 17, 10), data.draw(st.sampled_from([None, "2/3"]))
    modes = tuple(m.count for m in truncate(shape, truncation, True))
    boxes = {
        "input_boxes": data.draw(bricks(shape, ranks)),
        "output_boxes": data.draw(bricks(modes, ranks)),
    }
    other = data.draw(choices(ranks, transports))
    together(comm, check, comm, device, shape, "float64", 1, truncation, **boxes, **other)


def test_boxes_may_be_pairs_of_corners(comm, device, ranks):
    shape = (5, 12, 9)
    pairs = [(box.start, box.stop) for box in slabs(shape, 1, ranks)]
    as_pairs = check(comm, device, shape, "float64", input_boxes=pairs)
    as_boxes = check(comm, device, shape, "float64", input_boxes=[Box(*pair) for pair in pairs])
    for first, second in zip(as_pairs, as_boxes, strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("layout", ["slab", "pencil", "root"])
def test_any_number_of_workers_gives_the_same_transform(comm, device, ranks, layout):
    for workers in range(1, ranks + 1):
        check(comm, device, (5, 12, 9), "complex128", layout=layout, workers=workers)


@pytest.mark.parametrize("order", ["transposed", "natural"])
def test_kernels_of_a_gpu_store_pencils_into_the_next_layout(
    comm, device, device_kind, ranks, order, transports
):
    if device_kind == "cpu" or ranks == 1 or "peer" not in transports:
        pytest.skip("kernels of GPUs, and an exchange that stores")
    fft = DistributedFFT(
        (12, 15, 10), comm=comm, device=device, layout="pencil", order=order, transport="peer"
    )
    timelines = fft.profile(fft.empty_input(), fft.empty_output())
    # Back in pencils there is nothing to transform: what arrives is moved to the user's array.
    moves = {"redistribute"} if order == "natural" else set()
    for timeline in timelines.values():
        assert {one.label for one in timeline.entries if one.category == "pack"} == moves


def test_chunks_of_pencils_give_the_same_bits(
    comm, device, device_kind, ranks, transports, monkeypatch
):
    if device_kind == "cpu" or ranks == 1:
        pytest.skip("kernels of GPUs, and an exchange")
    results = []
    for chunks in (1, 3):
        options = partial(SlabOptions, kx_chunks=chunks)
        monkeypatch.setattr("slipstream.engine.fft.fft_tuning.SlabOptions", options)
        for name in transports:
            results.append(
                check(comm, device, (5, 12, 96), "float64", 2, layout="pencil", transport=name)
            )
    for one in results[1:]:
        for first, second in zip(results[0], one, strict=True):
            assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("axes", [(0, 1, 2), (2,), (0, 2)])
def test_long_lines_have_the_same_bits_on_any_ranks(comm, device, device_kind, axes):
    if device_kind != "cpu":
        pytest.skip("CPUs have another transform for them")
    shape, given = (4, 6, 8192), {"device": device, "axes": axes}
    u = np.random.default_rng(7).standard_normal(shape)
    alone, shared = DistributedFFT(shape, **given), DistributedFFT(shape, comm=comm, **given)
    modes = alone.forward(u)
    part = shared.forward(np.ascontiguousarray(u[tuple(shared.input_box.slices())]))
    np.testing.assert_array_equal(part, modes[tuple(shared.output_box.slices())])
    back = shared.backward(part)
    points = alone.backward(modes)[tuple(shared.input_box.slices())]
    np.testing.assert_array_equal(back, points)
