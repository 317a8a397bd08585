"""A wrong request of one rank concerns all: every rank reports it, and no rank waits."""

import numpy as np
import pytest

from fft_oracle import check
from slipstream.api.spectral_flow import Turbulence
from slipstream.engine.decomposition import Box, slabs
from slipstream.engine.errors import InputError
from slipstream.fft import DistributedFFT

SHAPE = (8, 6, 10)

# What the last rank asks for, other than the rest, and the argument that messages name.
DIFFERENT = [
    ({"shape": (8, 6, 12)}, "shape"),
    ({"shape": (8, 6)}, "shape"),
    ({"dtype": "float32"}, "dtype"),
    ({"fields": 2}, "fields"),
    ({"truncation": "2/3"}, "truncation"),
    ({"layout": "root"}, "layout"),
    ({"layout": "pencil"}, "layout"),
    ({"order": "natural"}, "order"),
    ({"transport": "mpi"}, "transport"),
    ({"workers": 1}, "workers"),
    ({"wire": "float32"}, "wire"),
    ({"schedule": "serial"}, "schedule"),
    ({"tune": "quick"}, "tune"),
]

# What no rank may ask for: refused on all, whoever asks.
INVALID = [
    ({"shape": (8, 0, 10)}, "shape"),
    ({"shape": (2,) * 9}, "shape"),
    ({"shape": ("eight", 6, 10)}, "shape"),
    ({"shape": (8.5, 6, 10)}, "shape"),
    ({"shape": 8.0}, "shape"),
    ({"shape": np.array(8)}, "shape"),
    ({"shape": b"abc"}, "shape"),
    ({"shape": {8, 6, 10}}, "shape"),
    ({"shape": (True, 6, 10)}, "shape"),
    ({"shape": np.array([8.0, 6.0, 10.0])}, "shape"),
    ({"shape": (1 << 40, 1 << 40, 1 << 40)}, "shape"),
    ({"shape": (1 << 22, 1 << 22), "layout": "root"}, "shape"),
    ({"shape": (1 << 20, 1 << 20, 1), "residency": "host"}, "shape"),
    ({"fields": 1 << 60}, "fields"),
    ({"fields": True}, "fields"),
    ({"fields": np.True_}, "fields"),
    ({"fields": 2.0}, "fields"),
    ({"dtype": "float16"}, "dtype"),
    ({"dtype": np.dtype("U8")}, "dtype"),
    ({"dtype": [("a", "f8")]}, "dtype"),
    ({"truncation": np.array([1.0, 1.0, 1.0])}, "truncation"),
    ({"layout": None}, "layout"),
    ({"layout": ["slab"]}, "layout"),
    ({"order": 1}, "order"),
    ({"transport": None}, "transport"),
    ({"transport": np.array(["mpi"])}, "transport"),
    ({"schedule": None}, "schedule"),
    ({"tune": True}, "tune"),
    ({"wire": ["float32"]}, "wire"),
    ({"device": 0}, "device"),
    ({"device": None}, "device"),
    ({"device": np}, "device"),
    ({"residency": "moon"}, "residency"),
    ({"residency": "host", "memory": -1}, "memory"),
    ({"residency": "host", "streaming": {"streams": 2.5}}, "streams"),
    ({"residency": "host", "streaming": {"copies": 3}}, "copies"),
    ({"residency": "host", "streaming": 3}, "streaming"),
    ({"input_boxes": "everything"}, "input_boxes"),
    ({"output_boxes": np.zeros((2, 3))}, "output_boxes"),
    ({"dtype": "float16"}, "dtype"),
    ({"dtype": "words"}, "dtype"),
    ({"fields": 0}, "fields"),
    ({"fields": "2"}, "fields"),
    ({"truncation": "3/2"}, "truncation"),
    ({"truncation": 3}, "truncation"),
    ({"truncation": (1, "one", 1)}, "truncation"),
    ({"truncation": (1, -1, 1)}, "truncation"),
    ({"layout": "cube"}, "layout"),
    ({"order": "random"}, "order"),
    ({"process_grid": (2, 3)}, "process_grid"),
    ({"layout": "pencil", "process_grid": (1000, 1)}, "process_grid"),
    ({"layout": "pencil", "process_grid": 5}, "process_grid"),
    ({"workers": 0}, "workers"),
    ({"workers": 1000}, "workers"),
    ({"workers": "2"}, "workers"),
    ({"wire": "float16"}, "wire"),
    ({"wire": "float32", "dtype": "float32"}, "wire"),
    ({"tune": "slowly"}, "tune"),
    ({"schedule": "eager"}, "schedule"),
    ({"transport": "pigeon"}, "transport"),
    ({"device": "abacus"}, "device"),
    ({"input_boxes": 5}, "input_boxes"),
]


def several(ranks):
    if ranks == 1:
        pytest.skip("needs several ranks")


def ask(comm, device, special, chosen):
    arguments = {"shape": SHAPE, "device": device, **(special if chosen else {})}
    return DistributedFFT(comm=comm, **arguments)


def assert_all_refuse(comm, device, special, chosen, name):
    with pytest.raises(InputError, match=name):
        ask(comm, device, special, chosen)
    if comm is not None:
        comm.Barrier()  # nobody is left behind


def case_name(value):
    return str(value) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("different", "name"), DIFFERENT, ids=case_name)
def test_ranks_that_disagree_are_all_told_what_about(comm, device, ranks, different, name):
    several(ranks)
    for odd in (0, ranks - 1):
        chosen = comm.rank == odd
        assert_all_refuse(comm, device, different, chosen, f"(?s)disagree.*({name})")


@pytest.mark.parametrize(("invalid", "name"), INVALID, ids=case_name)
def test_what_is_invalid_on_one_rank_is_refused_on_all(comm, device, ranks, invalid, name):
    for odd in {0, ranks - 1}:
        assert_all_refuse(comm, device, invalid, comm is None or comm.rank == odd, name)


@pytest.mark.parametrize(("invalid", "name"), INVALID, ids=case_name)
def test_what_is_invalid_on_all_ranks_is_refused_on_all(comm, device, invalid, name):
    assert_all_refuse(comm, device, invalid, True, name)


def test_ranks_may_give_devices_and_names_of_devices(comm, device, device_kind, ranks):
    if device_kind == "tiled":
        pytest.skip("has no name")
    last = comm is None or comm.rank == ranks - 1
    check(comm, device_kind if last else device, SHAPE, "float64")


def test_ranks_that_disagree_on_boxes_are_all_told(comm, device, ranks):
    several(ranks)
    last = comm.rank == ranks - 1
    for name, shape in (("input_boxes", SHAPE), ("output_boxes", (8, 6, 6))):
        boxes = slabs(shape, 1, ranks)
        shifted = [*boxes[1:], boxes[0]] if last else boxes
        with pytest.raises(InputError, match=f"disagree on {name}"):
            DistributedFFT(SHAPE, comm=comm, device=device, **{name: shifted})
        comm.Barrier()


def bad_boxes(ranks, shape=SHAPE):
    """Return lists of boxes that are no decomposition, and the fault of each."""
    good = slabs(shape, 2, ranks)
    first, last = good[0], good[-1]
    rest = good[1:]
    beyond = Box(last.start, (*last.stop[:2], last.stop[2] + 1))
    smaller = Box(first.start, (first.stop[0] - 1, *first.stop[1:]))
    yield [Box((0, 0), (8, 6)), *rest], "axes"
    yield [*good, Box((0, 0, 0), (0, 0, 0))], "one for each"
    yield good[:-1], "one for each"
    yield [smaller, *rest], "do not cover"
    yield [*good[:-1], beyond], "not inside"
    yield [((0, 0, 5), (0, 0, 3)), *rest], "behind its stop"
    yield [((0, 0, -1), first.stop), *rest], "not inside"
    if ranks > 1:
        yield [good[0], *good[:-1]], "overlap"
        yield [Box((0, 0, 0), SHAPE), *rest], "overlap"


def test_boxes_that_are_no_decomposition_are_refused_on_all_ranks(comm, device, ranks):
    for boxes, message in bad_boxes(ranks):
        with pytest.raises(InputError, match=f"input_boxes.*{message}"):
            DistributedFFT(SHAPE, comm=comm, device=device, input_boxes=boxes)
        with pytest.raises(InputError, match=f"output_boxes.*{message}"):
            DistributedFFT(SHAPE, "complex128", comm=comm, device=device, output_boxes=boxes)


def test_boxes_are_of_whole_numbers(comm, device, ranks):
    boxes = slabs(SHAPE, 2, ranks)
    corners = np.array([(box.start, box.stop) for box in boxes])
    check(comm, device, SHAPE, "float64", input_boxes=corners)
    numpy = [Box(tuple(a), tuple(b)) for a, b in corners]
    fft = DistributedFFT(SHAPE, comm=comm, device=device, input_boxes=numpy)
    assert fft.arguments.input_boxes == tuple(boxes)
    assert {type(n) for box in fft.arguments.input_boxes for n in (*box.start, *box.stop)} == {int}
    floats = corners.astype(float)
    for wrong in (floats, [Box(tuple(a), tuple(b)) for a, b in floats.tolist()]):
        assert_all_refuse(comm, device, {"input_boxes": wrong}, True, "input_boxes")
        last = comm is None or comm.rank == ranks - 1
        if last or ranks == 1:
            assert_all_refuse(comm, device, {"input_boxes": wrong}, last, "input_boxes")
        else:
            assert_all_refuse(comm, device, {"input_boxes": boxes}, True, "input_boxes")


def test_a_single_size_is_a_shape_of_one_axis(comm, device):
    for size in (12, np.int32(12)):
        fft = DistributedFFT(size, comm=comm, device=device)
        assert fft.shape == (12,)
        assert repr(fft).startswith("<DistributedFFT((12,), 'float64') on ")
    with pytest.raises(InputError, match="shape True; accepted: one to 8 sizes"):
        DistributedFFT(True, comm=comm, device=device)


def test_numbers_of_numpy_are_taken_for_what_they_are(comm, device, ranks):
    plain = {
        "shape": SHAPE,
        "fields": 2,
        "workers": ranks,
        "truncation": (2, 1, 3),
        "residency": "host",
        "memory": 1 << 20,
        "streaming": {"streams": 2, "tiles": 3},
    }
    odd = comm is not None and comm.rank == ranks - 1
    numpy = plain | {
        "shape": np.array(SHAPE, np.int32),
        "fields": np.int64(2),
        "workers": np.uint8(ranks),
        "truncation": np.array([2, 1, 3]),
        "memory": np.int64(1 << 20),
        "streaming": {"streams": np.int64(2), "tiles": np.int16(3)},
    }
    expected = DistributedFFT(comm=comm, device=device, **plain).arguments
    for options in (numpy, numpy if odd else plain):
        assert DistributedFFT(comm=comm, device=device, **options).arguments == expected
    grid = {"layout": "pencil", "process_grid": np.array([ranks, 1])}
    check(comm, device, SHAPE, "float64", **grid)


def test_communicators_that_are_none_are_refused(comm, device, ranks):
    wrong = [3, "world"]
    if ranks > 1:  # a single process starts no MPI
        from mpi4py import MPI

        freed = MPI.COMM_SELF.Dup()
        freed.Free()
        half = comm.Split(comm.rank == 0)
        wrong += [MPI.COMM_NULL, freed, MPI.COMM_WORLD.Get_group()]
        wrong.append(half.Create_intercomm(0, comm, int(comm.rank == 0)))
    for wrong_comm in wrong:
        with pytest.raises(InputError, match="comm is .*; accepted: None or an intracommunicator"):
            DistributedFFT(SHAPE, comm=wrong_comm, device=device)
        if not isinstance(wrong_comm, str):
            with pytest.raises(InputError, match="comm is .*; accepted: None or an intracomm"):
                Turbulence(points=8, viscosity=1.0, comm=wrong_comm, device=device)


def test_all_ranks_can_go_on_after_an_error(comm, device, ranks):
    last = comm is None or comm.rank == ranks - 1
    for _ in range(3):
        assert_all_refuse(comm, device, {"shape": (0, 1)}, last, "shape")
        result, _ = check(comm, device, SHAPE, "float64")
        assert np.isfinite(result).all()
