"""Arguments that `Advection` rejects, in one line that names the accepted ones."""

import numpy as np
import pytest

from refusals import refusal
from slipstream.advection import STRATEGIES, Advection, gaussian
from slipstream.advection.advection_solver import checked_grid
from slipstream.advection.overlap_strategies import checked_strategy
from slipstream.advection.stencil import check_courant
from slipstream.engine.decomposition import Box
from slipstream.engine.device import HostDevice

NAN, INFINITY = float("nan"), float("inf")


def test_unknown_strategy_names_all_that_fit():
    message = refusal(Advection, (4, 4, 4), strategy="fastest")
    assert message == f"strategy 'fastest' is unknown; accepted: {', '.join(STRATEGIES)}"
    several = [name for name in STRATEGIES if name not in ("single", "gpu")]
    message = refusal(checked_strategy, "fastest", 2)
    assert message == f"strategy 'fastest' is unknown; accepted: {', '.join(several)}"


@pytest.mark.parametrize("name", ["single", "gpu"])
def test_strategies_of_a_single_rank_are_refused_on_two(name):
    told = refusal(checked_strategy, name, 2)
    assert told.startswith(f"strategy {name!r} is for one rank; accepted: mpi, ")
    assert " single" not in told.partition("accepted")[2]


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4, 4), (0, 4, 4), (4, -1, 4), ()])
def test_shapes_that_are_none_are_refused(shape):
    told = refusal(Advection, shape)
    assert told == f"shape is {shape}; accepted: three positive numbers z, y, x"


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex128"])
def test_other_types_of_numbers_are_refused(dtype):
    told = refusal(Advection, (4, 4, 4), dtype=dtype)
    assert told == f"dtype {dtype} is not supported; accepted: float64, float32"


def test_a_shell_has_no_negative_thickness():
    told = refusal(Advection, (4, 4, 4), shell=-1)
    assert told == "shell is -1; accepted: a thickness of 0 points or more"


@pytest.mark.parametrize("grid", [(1, 2, 1), (1, 1), (1, 1, 1, 1), (-1, -1, 1), (0, 1, 1)])
def test_grids_that_are_not_of_all_ranks_are_refused(grid):
    message = refusal(Advection, (4, 4, 4), grid=grid)
    assert message == (
        f"grid is {grid}; accepted: three positive numbers whose product is the number of ranks, 1"
    )
    message = refusal(checked_grid, (1, 1, 1), 2, (4, 4, 4))
    assert message.endswith("the number of ranks, 2")


@pytest.mark.parametrize(
    "courant",
    [(1.001, 0, 0), (0, -1.5, 0), (0, 0, NAN), (INFINITY, 0, 0), (0, 0), (0, 0, 0, 0), ()],
)
def test_courant_numbers_beyond_stability_are_refused(courant):
    for call in (check_courant, lambda numbers: Advection((4, 4, 4), numbers)):
        told = refusal(call, courant)
        expected = f"courant is {courant}; accepted: three numbers from -1 to 1 (stability)"
        assert told == expected


def test_courant_numbers_within_stability_are_returned_as_numbers():
    assert check_courant(np.array([1, -1, 0.5], np.float32)) == (1.0, -1.0, 0.5)
    assert check_courant([0, 1, -1]) == (0.0, 1.0, -1.0)


@pytest.mark.parametrize("shape", [(4, 5), (5, 4, 6), (4, 5, 7), (4, 5, 6, 1), ()])
def test_values_of_another_shape_are_refused_and_change_nothing(shape):
    run = Advection((4, 5, 6), (0.5, 0.5, 0.5))
    values = np.random.default_rng(0).random((4, 5, 6))
    run.set(values)
    run.advance()
    before = run.values()
    told = refusal(run.set, np.zeros(shape))
    assert told == f"values have shape {shape}; accepted: (4, 5, 6)"
    assert run.steps == 1
    assert run.values().tobytes() == before.tobytes()


def test_strategies_open_what_they_need_and_use_what_is_given():
    given = HostDevice()
    assert Advection((4, 4, 4), devices={"cpu": given}).devices == {"cpu": given}
    run = Advection((4, 4, 4), strategy="gpu", devices={"cpu": given, "gpu": given})
    assert run.devices == {"gpu": given}
    assert set(Advection((4, 4, 4)).devices) == {"cpu"}


def test_only_threaded_strategies_spare_a_core(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for name, threads in (("mpi", 3), ("mpi-nonblocking", 3), ("mpi-threaded", 2)):
        assert Advection((4, 4, 4), strategy=name).devices["cpu"].threads == threads
    tiled = {"gpu": HostDevice(tiled=True)}
    for name, threads in (("hybrid", 3), ("hybrid-overlap", 2)):
        run = Advection((4, 4, 4), strategy=name, devices=tiled)
        assert run.devices["cpu"].threads == threads


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shape": 8}, "shape is 8; accepted: three positive numbers z, y, x"),
        ({"shape": (4.7, 4, 4)}, "shape is (4.7, 4, 4); accepted: three positive numbers z, y, x"),
        ({"courant": 0.5}, "courant is 0.5; accepted: three numbers from -1 to 1 (stability)"),
        ({"courant": ("a", 0, 0)}, "courant is ('a', 0, 0); accepted: three numbers from -1 to 1"),
        ({"dtype": "nonsense"}, "dtype 'nonsense' is not supported; accepted: float64, float32"),
        ({"shell": 1.5}, "shell is 1.5; accepted: a thickness of 0 points or more"),
        ({"grid": 1}, "grid is 1; accepted: three positive numbers whose product"),
        ({"courant": (True, 0, 0)}, "courant is (True, 0, 0); accepted: three numbers"),
        ({"strategy": ["mpi"]}, "strategy ['mpi'] is unknown; accepted: single, mpi"),
        ({"dtype": "[("}, "dtype '[(' is not supported; accepted: float64, float32"),
        ({"threads": 0}, "threads is 0; accepted: whole numbers of at least 1"),
        ({"devices": [HostDevice]}, "devices is [<class"),
        ({"devices": {"cpu": 0}}, "devices is {'cpu': 0}; accepted: a mapping of 'cpu' and 'gpu'"),
        ({"comm": 3}, "comm is 3; accepted: None or an intracommunicator"),
        ({"shape": (10**6,) * 3}, "shape: this grid needs 1.49e+10 GiB on"),
    ],
)
def test_arguments_of_another_kind_are_refused(options, told):
    assert refusal(Advection, **{"shape": (4, 4, 4), **options}).startswith(told)


def test_numbers_and_arrays_of_any_kind_are_taken_for_what_they_are():
    values = np.random.default_rng(0).random((4, 5, 6))
    plain = Advection((4, 5, 6), (0.5, 0.25, -0.5))
    plain.set(values), plain.advance(3)
    other = Advection(
        np.array([4, 5, 6], np.int16),
        np.array([0.5, 0.25, -0.5], np.float32),
        dtype=">f8",
        shell=np.uint8(1),
        threads=np.int64(1),
        grid=np.ones(3, int),
    )
    frozen = values.copy()
    frozen.flags.writeable = False
    for given in (values.astype(">f8"), frozen, np.asfortranarray(values), values[::-1][::-1]):
        other.set(given, np.int32(0)), other.advance(np.int64(3))
        assert other.values().tobytes() == plain.values().tobytes()
        assert (other.steps, type(other.steps)) == (3, int)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.ma.masked_less(np.ones((4, 4, 4)), 0), "values are a masked array"),
        (np.ones((4, 4, 4), complex), "values are of type complex128; accepted: real numbers"),
        (np.full((4, 4, 4), "a"), "values are of type <U1"),
        (None, "values are of type object"),
    ],
)
def test_values_that_are_no_real_numbers_are_refused(values, told):
    assert refusal(Advection((4, 4, 4)).set, values).startswith(told)


@pytest.mark.parametrize("steps", [-1, 1.5, "2", True, None])
def test_steps_that_are_no_number_of_them_are_refused_and_change_nothing(steps):
    run = Advection((4, 4, 4))
    run.set(np.ones((4, 4, 4)))
    for call in (run.advance, lambda steps: run.set(np.ones((4, 4, 4)), steps)):
        assert refusal(call, steps).startswith(f"steps is {steps!r}; accepted: whole numbers")
    assert run.steps == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"box": (4, 4, 4)}, "box is (4, 4, 4); accepted: a Box"),
        ({"shape": (4, 4)}, "shape is (4, 4); accepted: three positive numbers"),
        ({"travelled": (0, 0)}, "travelled is (0, 0); accepted: three finite numbers"),
        ({"travelled": (0, 0, NAN)}, "travelled is (0, 0, nan); accepted: three finite numbers"),
        ({"width": 0}, "width is 0; accepted: a number more than 0"),
        ({"width": INFINITY}, "width is inf; accepted: a number more than 0"),
    ],
)
def test_gaussians_that_are_none_are_refused(changes, told):
    box = Box((0, 0, 0), (4, 4, 4))
    given = {"box": box, "shape": (4, 4, 4), "travelled": (0, 0, 0), "width": 0.1}
    assert refusal(gaussian, **{**given, **changes}).startswith(told)
