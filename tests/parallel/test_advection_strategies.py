"""All strategies give the bits of `single`, on any grid of any number of ranks.

What is compared with is made by each rank for itself. Tests of the kernels, on one rank, compare
that with NumPy.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, together, usable_transports
from pairwise import every_value
from slipstream.advection import STRATEGIES, Advection
from slipstream.engine.decomposition import factorisations
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError

# Uneven divisions and primes; a vector's rest; the last ones have fewer points than ranks.
SHAPES = [(7, 9, 21), (5, 4, 67), (4, 11, 3), (2, 1, 9), (1, 1, 1)]
COURANT = (0.7, -0.4, 0.9)
# Many tests begin with the same field.
_alone = {}
HYBRID = [name for name, strategy in STRATEGIES.items() if len(strategy.devices) == 2]


@pytest.fixture(scope="module")
def gpu(device):
    """Device of the tests if that is a GPU, else a CPU with the kernels of GPUs."""
    return HostDevice(tiled=True) if device.kind == "cpu" else device


@pytest.fixture(scope="module")
def usable(comm, ranks, gpu):
    """The names of the strategies that can be used here."""
    transports = usable_transports(comm, gpu) + (("none",) if ranks == 1 else ())
    return [name for name, strategy in STRATEGIES.items() if strategy.transport in transports]


@pytest.fixture(params=STRATEGIES)
def strategy(request, usable):
    """The name of each strategy that can be used here."""
    if request.param not in usable:
        pytest.skip("for a single rank, or a GPU of its own for each")
    return request.param


def field(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def alone(values, steps, courant=COURANT):
    """Return the field of `single` after some steps, without any other rank."""
    key = (values.tobytes(), values.shape, values.dtype, steps, courant)
    if key not in _alone:
        here = Advection(values.shape, courant, "single", values.dtype, steps_per_pass=1)
        here.set(values)
        here.advance(steps)
        _alone[key] = here.values()
    return _alone[key]


def assert_bits(run, expected, here=None):
    """Compare this rank's points, now or before, bit by bit."""
    here, mine = run.values() if here is None else here, expected[run.box.slices()]
    assert (here.shape, here.dtype) == (mine.shape, mine.dtype)
    if here.tobytes() != mine.tobytes():
        places = np.argwhere(here != mine) + run.box.start
        raise AssertionError(
            f"{len(places)} of {here.size} points differ, as {places[:5].tolist()}"
        )


def check(comm, gpu, name, shape, dtype, *, steps=3, threads=1, profile=False, **options):
    """Advance a field by a strategy, and compare."""
    spare_core = STRATEGIES[name].spare_core
    devices = {"cpu": HostDevice(threads=threads, spare_core=spare_core), "gpu": gpu}
    courant, values = options.pop("courant", COURANT), field(shape, dtype)
    run = Advection(shape, courant, name, dtype, comm, devices=devices, **options)
    run.set(values[run.box.slices()])
    first = run.values()
    for number in range(steps):
        # Two steps fill a pass; a single one is taken at the end, or where values are read.
        run.advance(profile=profile, complete=number % 4 == 3)
        assert run.steps == number + 1
    # Who found a mistake earlier would leave the others waiting.
    assert_bits(run, values, first)
    assert_bits(run, alone(values, steps, courant))


def test_every_strategy_on_every_grid_gives_the_bits_of_single(comm, ranks, gpu, strategy):
    shells = (0, 1, 2, 3) if strategy in HYBRID else (1,)
    choices = itertools.product(
        factorisations(ranks, 3), shells, ("float64", "float32"), (1, 2, None)
    )
    fitting = [one for one in choices if one[3] in (None, 1) or fits(strategy, one[1], one[3])]
    for grid, shell, dtype, per_pass in every_value(fitting):
        options = {"grid": grid, "shell": shell, "steps_per_pass": per_pass, "steps": 5}
        together(comm, check, comm, gpu, strategy, SHAPES[0], dtype, **options)


def fits(strategy, shell, steps):
    """Return whether the CPU's shell, if there is one, covers the reads of a pass of `steps`."""
    return strategy not in HYBRID or shell in (0, *range(steps, shell + 1))


@pytest.mark.parametrize(
    ("shape", "grid", "options", "message"),
    [
        (
            (1, 9, 9),
            (-1, 1, 1),
            {"steps_per_pass": 2},
            r"accepted: 1, as an axis that ranks divide",
        ),
        ((9, 9, 9), (1, -1, 1), {"steps_per_pass": 3}, r"is 3; accepted: 1 or 2$"),
        ((9, 9, 9), (1, 1, -1), {"steps_per_pass": 0}, r"is 0; accepted: 1 or 2$"),
        ((9, 9, 9), (1, 1, -1), {"steps_per_pass": 2.5}, r"is 2\.5; accepted: 1 or 2$"),
        (
            (9, 9, 9),
            (-1, 1, 1),
            {"steps_per_pass": 2, "strategy": "hybrid"},
            r"accepted: 1, as the CPU's shell has 1 point",
        ),
    ],
)
def test_steps_of_a_pass_that_do_not_fit_are_refused(comm, ranks, shape, grid, options, message):
    if ranks == 1 and shape[0] == 1:
        pytest.skip("no axis is divided")
    grid = tuple(ranks if one < 0 else one for one in grid)
    strategy = {"strategy": "mpi", **options}
    with pytest.raises(InputError, match=message):
        Advection(shape, comm=comm, grid=grid, **strategy)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_strategy_takes_arrays_of_few_points(comm, gpu, strategy, shape):
    together(comm, check, comm, gpu, strategy, shape, "float64", threads=2)


@st.composite
def cases(draw, ranks, usable):
    name = draw(st.sampled_from(usable))
    numbers = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1, 1, width=16))
    shape = tuple(draw(st.integers(1, most)) for most in (9, 9, 40))
    shell = draw(st.integers(0, 5)) if name in HYBRID else 1
    least = min(shape) if name not in HYBRID else min(*shape, shell or 3)
    return {
        "name": name,
        "shape": shape,
        "steps_per_pass": draw(st.sampled_from([None, *range(1, min(2, least) + 1)])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "grid": draw(st.sampled_from([None, *factorisations(ranks, 3)])),
        "shell": shell,
        "threads": draw(st.integers(1, 4)),
        "steps": draw(st.integers(0, 5)),
        "profile": draw(st.booleans()),
        "courant": tuple(draw(st.tuples(numbers, numbers, numbers))),
    }


@alike(examples=25)
@given(data=st.data())
def test_any_strategy_gives_the_bits_of_single(comm, ranks, gpu, usable, data):
    together(comm, check, comm, gpu, **data.draw(cases(ranks, usable)))


def opened(comm, gpu, name, shape=SHAPES[0], threads=2, **options):
    devices = {"cpu": HostDevice(threads=threads), "gpu": gpu}
    return Advection(shape, COURANT, name, comm=comm, devices=devices, **options)


def test_values_may_be_set_again_after_any_number_of_steps(comm, gpu, strategy):
    run = opened(comm, gpu, strategy)
    for number, steps in enumerate((1, 3, 2, 0, 1)):
        values = field(SHAPES[0], "float64", number)
        run.set(values[run.box.slices()])
        assert run.steps == 0
        run.advance(steps)
        assert run.steps == steps
        together(comm, assert_bits, run, alone(values, steps))


def test_values_are_those_of_the_caller_no_longer_once_they_are_set(comm, gpu, strategy):
    values = field(SHAPES[0], "float32")
    run = opened(comm, gpu, strategy)
    mine = np.asfortranarray(values[run.box.slices()])  # of another type, and in another order
    run.set(mine)
    mine[...] = np.nan
    run.values()[...] = np.nan
    run.advance()
    together(comm, assert_bits, run, alone(values.astype("float64"), 1))


def test_many_steps_and_profiled_ones_between_them_give_the_same_bits(comm, gpu, strategy):
    values = field((17, 24, 70), "float64")
    run = opened(comm, gpu, strategy, values.shape, shell=2)
    run.set(values[run.box.slices()])
    for steps, profile in ((20, False), (3, True), (1, False), (2, True), (14, False)):
        run.advance(steps, profile)
    together(comm, assert_bits, run, alone(values, 40))
    entries = run.timeline().entries
    per_pass = run.problem.steps_per_pass
    passes = sum(sum(divmod(steps, per_pass)) for steps in (3, 2))
    assert sum(entry.category == "compute" for entry in entries) >= passes
    assert all(entry.start <= entry.stop for entry in entries)
    assert [entry.start for entry in entries] == sorted(entry.start for entry in entries)


def test_fields_of_several_strategies_do_not_disturb_each_other(comm, gpu, usable):
    """They are advanced in turn, and share devices and transports."""
    runs = [opened(comm, gpu, name, shell=2) for name in usable]
    runs += [opened(comm, gpu, name) for name in usable[:2]]
    fields = [field(SHAPES[0], "float64", number) for number in range(len(runs))]
    for run, values in zip(runs, fields, strict=True):
        run.set(values[run.box.slices()])
    for _ in range(3):
        for run in runs:
            run.advance()
    for run, values in zip(runs, fields, strict=True):
        together(comm, assert_bits, run, alone(values, 3))


def test_boxes_of_all_ranks_cover_the_array_once(comm, ranks, gpu, usable):
    for grid in (None, *factorisations(ranks, 3)):
        run = opened(comm, gpu, usable[0], grid=grid)
        count = np.zeros(SHAPES[0], int)
        for box in run.boxes:
            count[box.slices()] += 1
        assert (count == 1).all()
        assert run.box == run.boxes[0 if comm is None else comm.rank]
        assert math.prod(run.problem.grid) == ranks
        assert grid in (None, run.problem.grid)


@pytest.mark.parametrize("name", HYBRID)
@pytest.mark.parametrize(("shell", "expected"), [(0, {"gpu"}), (2, {"cpu", "gpu"}), (9, {"cpu"})])
def test_thickness_of_the_shell_decides_who_computes(comm, ranks, gpu, name, shell, expected):
    shape = (8, 9, 12 * ranks)
    run = opened(comm, gpu, name, shape, shell=shell, grid=(1, 1, ranks))
    run.set(field(shape, "float64")[run.box.slices()])
    run.advance(2, profile=True)
    lanes = {entry.lane for entry in run.timeline().entries if entry.category == "compute"}
    copies = [
        entry
        for entry in run.timeline().entries
        if entry.category == "copy" and "halo" not in entry.label
    ]
    assert bool(copies) == (len(expected) == 2)
    if gpu.kind == "cuda" and len(expected) == 2:
        assert {lane.split(":")[0] for lane in lanes} == {"cpu", "cuda"}
    together(comm, assert_bits, run, alone(field(shape, "float64"), 2))
