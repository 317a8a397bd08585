"""Some steps of some points against NumPy, and the kernels of CPU and GPU bit by bit.

All memory that a step must not use holds not-a-numbers, and all that it must not write is compared
with what it was.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.advection import stencil
from slipstream.advection.stencil import Stencil, TileSize
from slipstream.engine.decomposition import Box, PaddedBox
from slipstream.engine.device import HostDevice

ROWS, TILES = HostDevice(), HostDevice(tiled=True)
COURANTS = [(1.0, 1.0, 1.0), (0.7, -0.4, 0.9), (-1.0, 0.0, 0.31), (0.0, 0.0, 0.0)]
UNTOUCHED = 777
OFFSETS = list(itertools.product((-1, 0, 1), repeat=3))


@pytest.fixture(scope="module")
def devices(device):
    """Devices that must agree: both kernels on the CPU, and the tested device."""
    return {"rows": ROWS, "tiles": TILES, "given": device}


def coefficients(courant):
    """Return the 27 coefficients of u(p + o) by o, as the paper has them."""
    along = [
        {-1: c * (1 + c) / 2, 0: 1 - c**2, 1: -c * (1 - c) / 2} for c in map(np.longdouble, courant)
    ]
    return {o: along[0][o[0]] * along[1][o[1]] * along[2][o[2]] for o in OFFSETS}


def by_rolling(values, courant):
    """Return a periodic array after one step."""
    return sum(
        a * np.roll(values, [-o for o in offset], (0, 1, 2))
        for offset, a in coefficients(courant).items()
    )


def tolerance(values, steps):
    """Return the largest error of some steps of rounded numbers.

    Three blends of three products, each one rounded, are nine roundings of half an epsilon. Each of
    the nine weights has an error of 1.5 epsilon at most, and nowhere do weights sum to more than
    5/4 an axis: 9/2 (5/4)^3 + 3 * 3 * 1.5 (5/4)^2 is less than 32. A step makes values, and errors
    of steps before, (5/4)^3 < 2 times as large at most.
    """
    return steps * 2 ** (steps - 1) * 32 * np.finfo(values.dtype).eps * np.abs(values).max()


LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 23])
# Fewer than a vector's lanes, some vectors, more than a tile.
COLUMNS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 61, 63, 65, 67, 130])


def cut(draw, size, shortest=0):
    """Return a range within an axis, with at least some points, at some distance of the ends."""
    start = draw(st.integers(shortest, size - shortest - 1))
    return start, draw(st.integers(start + 1, size - shortest))


@st.composite
def problems(draw):
    """Return layout, boxes, dtype, Courant numbers and steps: any halo, sizes 1, 2 and primes."""
    steps = draw(st.integers(1, 2))
    shape = draw(st.tuples(LENGTHS, LENGTHS, COLUMNS))
    start = draw(st.tuples(*[st.integers(-2, 9)] * 3))
    halo = draw(st.tuples(*[st.sampled_from([0, steps, steps + 1])] * 3))
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64"])))
    stop = tuple(map(int.__add__, start, shape))
    layout = PaddedBox(Box(start, stop), halo, 128 // dtype.itemsize)
    # Rows that wrap are complete, or keep their distance from the ends.
    distances = (0, 0, 0 if halo[2] else steps)
    ranges = [
        cut(draw, n, least) if n > 2 * least and draw(st.booleans()) else (0, n)
        for n, least in zip(shape, distances, strict=True)
    ]
    box = Box(*zip(*ranges, strict=True))
    hole = Box(*zip(*(cut(draw, n) for n in shape[:2]), (0, shape[2]), strict=True))
    boxes = box.without(hole) or [box]
    numbers = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1, 1, width=16))
    courant = draw(st.one_of(st.sampled_from(COURANTS), st.tuples(numbers, numbers, numbers)))
    return layout, [box.shifted(start) for box in boxes], dtype, courant, steps


def random_world(layout, dtype):
    """Return values of all points and their halo."""
    shape = layout.box.grown(layout.halo).shape
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def in_memory(layout, dtype, value):
    """Return memory full of a value, with some to spare at both ends, and where the array is."""
    size, spare = math.prod(layout.shape), 64
    return np.full(size + 2 * spare, value, dtype), slice(spare, spare + size)


def advanced(device, layout, boxes, world, courant, steps=1, tile=None):
    """Advance the points of some boxes; return their array, with NaN at points not written.

    What is not a neighbour of theirs is NaN before, too.
    """
    outer = layout.box.grown(layout.halo)
    needed = np.zeros(outer.shape, bool)
    for box in boxes:
        needed[box.slices(outer)] = True
    for _ in range(steps):
        needed = np.any([np.roll(needed, offset, (0, 1, 2)) for offset in OFFSETS], axis=0)
    host, inside = in_memory(layout, world.dtype, np.nan)
    host[inside].reshape(layout.shape)[layout.slices(outer)] = np.where(needed, world, np.nan)
    source, target = device.array(host), device.array(in_memory(layout, world.dtype, UNTOUCHED)[0])
    views = [memory[inside].reshape(layout.shape) for memory in (source, target)]
    stencil = Stencil(device, layout, world.dtype, courant, steps, tile)
    device.run(stencil.advance(*views, boxes))
    assert device.to_host(source).tobytes() == host.tobytes()
    memory = device.to_host(target).copy()
    result = np.full(outer.shape, np.nan, world.dtype)
    for box in boxes:
        places = memory[inside].reshape(layout.shape)[layout.slices(box)]
        result[box.slices(outer)] = places
        places[...] = UNTOUCHED
    assert (memory == UNTOUCHED).all()
    return result[layout.box.slices(outer)]


def assert_steps(layout, boxes, world, courant, steps, result):
    outer, expected = layout.box.grown(layout.halo), world
    for _ in range(steps):
        expected = by_rolling(expected, courant)
    expected = expected[layout.box.slices(outer)]
    missing = np.ones(layout.box.shape, bool)
    for box in boxes:
        missing[box.slices(layout.box)] = False
    np.testing.assert_array_equal(np.isnan(result), missing)
    error = np.abs(result - expected)[~missing].max()
    assert error <= tolerance(world, steps)


@pytest.mark.slow
@settings(max_examples=200)
@given(problems())
def test_every_kernel_gives_the_same_bits_within_rounding_of_27_products(devices, problem):
    layout, boxes, dtype, courant, steps = problem
    world = random_world(layout, dtype)
    results = [advanced(one, layout, boxes, world, courant, steps) for one in devices.values()]
    assert_steps(layout, boxes, world, courant, steps, results[0])
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()


@pytest.mark.slow
@given(problems())
def test_steps_of_a_pass_have_the_bits_of_one_after_the_other(devices, problem):
    """In a box around the points; each step leaves the points that have their neighbours."""
    layout, _, dtype, courant, steps = problem
    world = random_world(layout, dtype)
    together = advanced(devices["given"], layout, [layout.box], world, courant, steps)
    wide = [(steps, steps) if width == 0 else (0, 0) for width in layout.halo]
    kept = [
        slice(width - steps, -(width - steps) or None) if width else slice(None)
        for width in layout.halo
    ]
    values = np.pad(world[tuple(kept)], wide, mode="wrap")
    for _ in range(steps):
        box = Box((0, 0, 0), tuple(size - 2 for size in values.shape))
        values = advanced(ROWS, PaddedBox(box, (1, 1, 1), 16), [box], values, courant)
    assert together.tobytes() == values.tobytes()


@pytest.mark.slow
@given(problems())
def test_points_have_the_same_bits_however_they_are_divided(device, problem):
    layout, boxes, dtype, courant, steps = problem
    world = random_world(layout, dtype)
    parts = advanced(device, layout, boxes, world, courant, steps)
    complete = advanced(device, layout, [layout.box], world, courant, steps)
    written = ~np.isnan(parts)
    assert parts[written].tobytes() == complete[written].tobytes()


class NotingDevice(HostDevice):
    """Notes the kernels that it is asked for, with their constants."""

    def __init__(self, tiled=False):
        super().__init__(tiled)
        self.noted = []

    def kernel(self, header, name, **constants):
        self.noted.append((header, name, constants))
        return super().kernel(header, name, **constants)


@pytest.mark.slow
@given(problems())
def test_stores_past_the_caches_give_the_same_bits(problem):
    layout, boxes, dtype, courant, steps = problem
    world, results = random_world(layout, dtype), []
    for size in (0, 1 << 40):  # of a cache that nothing fits in, or everything
        device = NotingDevice()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stencil, "cache_bytes", lambda *_, size=size: size)
            results.append(advanced(device, layout, boxes, world, courant, steps).tobytes())
        assert [bool(constants["STREAMS"]) for _, _, constants in device.noted] == [size == 0]
    assert results[0] == results[1]


@pytest.mark.parametrize("alignment", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_not_aligned_are_not_streamed_but_right(alignment, dtype, monkeypatch):
    monkeypatch.setattr(stencil, "cache_bytes", lambda *_: 0)
    layout = PaddedBox(Box((0, 0, 0), (3, 9, 45)), (1, 1, 1), alignment)
    world, aligned = random_world(layout, dtype), PaddedBox(layout.box, layout.halo, 64)
    results = [advanced(ROWS, one, [layout.box], world, COURANTS[1]) for one in (layout, aligned)]
    assert results[0].tobytes() == results[1].tobytes()


TILES_OF_OTHER_SIZES = [
    TileSize(rows=1),
    TileSize(rows=2, columns=2, strips=3),
]


@pytest.mark.parametrize("tile", TILES_OF_OTHER_SIZES, ids=str)
@pytest.mark.parametrize("halo", [(0, 0, 0), (1, 1, 1), (1, 0, 1)])
def test_tiles_of_any_size_give_the_same_bits(device, device_kind, tile, halo):
    tested = device if device_kind == "cuda" else TILES
    layout = PaddedBox(Box((0, 0, 0), (7, 13, 67)), halo, 16)
    for dtype in ("float32", "float64"):
        world = random_world(layout, dtype)
        results = [
            advanced(tested, layout, [layout.box], world, COURANTS[1], 1, size).tobytes()
            for size in (tile, TileSize())
        ]
        assert results[0] == results[1]


@pytest.mark.parametrize("name", ["rows", "tiles", "given"])
@pytest.mark.parametrize("courant", COURANTS)
def test_an_impulse_spreads_by_the_27_coefficients(devices, name, courant):
    layout = PaddedBox(Box((0, 0, 0), (4, 5, 19)), (0, 0, 0), 16)
    for point in ((0, 0, 0), (3, 4, 18), (2, 0, 9)):
        world = np.zeros(layout.box.shape)
        world[point] = 1
        result = advanced(devices[name], layout, [layout.box], world, courant)
        expected = np.zeros(layout.box.shape)
        for offset, coefficient in coefficients(courant).items():
            expected[tuple((np.array(point) - offset) % layout.box.shape)] = coefficient
        # A product of three, two of whose factors have been rounded a few times.
        np.testing.assert_allclose(result, expected, rtol=0, atol=4 * np.finfo(float).eps)


@pytest.mark.parametrize("tiled", [False, True])
def test_courant_numbers_are_no_constants_of_the_kernel(tiled):
    """A compiler that knew them could leave out products by zero, and time would say nothing."""
    device, layout = NotingDevice(tiled), PaddedBox(Box((0, 0, 0), (4, 5, 19)), (0, 0, 0), 16)
    made = [Stencil(device, layout, "float64", courant) for courant in COURANTS]
    assert len(made) == len(device.noted)
    assert all(noted == device.noted[0] for noted in device.noted)
