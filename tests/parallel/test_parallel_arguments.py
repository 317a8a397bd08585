"""Arguments that are wrong, or differ, on one rank only are refused by all ranks."""

import numpy as np
import pytest

from lattice_oracle import Image
from slipstream.advection import Advection
from slipstream.engine.errors import InputError, RunError
from slipstream.lattice import decompose, permeability

CHANNEL = np.ones((8, 6, 3), np.uint8)
CHANNEL[:, [0, -1]] = 0


class Broken(Image):
    """An image that cannot be read."""

    def read(self, box):
        raise OSError("the disk is gone")


def flow(comm, **given):
    return permeability(**{"image": CHANNEL, "device": "cpu", "comm": comm, **given})


def advection(comm, **given):
    strategy = "single" if comm is None else "mpi"
    return Advection(**{"shape": (8, 8, 8), "strategy": strategy, "comm": comm, **given})


def divided(comm, **given):
    given = {"source": Image(CHANNEL), "periodic": (True,) * 3, "axes": (0,), **given}
    return decompose(**given, comm=comm)


WRONG = [
    (flow, {"voxel_size": -1}, "voxel_size: must be greater than 0, not -1"),
    (flow, {"force": "much"}, "force: must be a number, not 'much'"),
    (flow, {"image": CHANNEL[0, 0]}, r"image: the array has shape \(3,\)"),
    (flow, {"image": CHANNEL * 0}, "no pore voxel"),
    (flow, {"crop": 3}, "crop: 3; accepted"),
    (flow, {"device": 0}, "device 0; accepted"),
    (flow, {"precision": None}, "precision: None is not accepted"),
    (advection, {"shape": (8, 8)}, r"shape is \(8, 8\); accepted"),
    (advection, {"courant": None}, "courant is None; accepted"),
    (advection, {"devices": 3}, "devices is 3; accepted"),
    (divided, {"source": 3}, "source is of type int"),
    (divided, {"axes": "z"}, "axes is 'z'; accepted"),
    (divided, {"source": Broken(CHANNEL)}, "the disk is gone"),
]


@pytest.mark.parametrize(("call", "given", "message"), WRONG)
def test_what_is_wrong_on_one_rank_is_refused_by_all(comm, ranks, call, given, message):
    local_options = given if comm is None or comm.rank == ranks - 1 else {}
    is_empty = "pore" in message and ranks > 1
    if is_empty:
        pytest.skip("each rank reads its own part of the image")
    with pytest.raises((InputError, RunError, OSError), match=message):
        call(comm, **local_options)


@pytest.mark.parametrize(
    ("call", "changes", "name"),
    [
        (flow, {"axis": "x"}, "axis"),
        (flow, {"tolerance": 0.5}, "tolerance"),
        (flow, {"relaxation_time": 0.7}, "fluid"),
        (advection, {"courant": (0.5, 0.5, 0.5)}, "courant"),
        (advection, {"dtype": "float32"}, "dtype"),
        (divided, {"partition": "cartesian"}, "partition"),
        (divided, {"periodic": (False,) * 3}, "periodic"),
    ],
)
def test_what_differs_between_ranks_is_refused_by_all(comm, ranks, call, changes, name):
    if ranks == 1:
        pytest.skip("there is one rank")
    with pytest.raises(InputError, match=f"ranks disagree on {name}: rank 0 has"):
        call(comm, **(changes if comm.rank == ranks - 1 else {}))


def test_values_that_do_not_fit_on_one_rank_are_refused_by_all_and_change_nothing(comm, ranks):
    run = advection(comm)
    run.set(np.ones(run.box.shape))
    shape = (1, 1, 1) if comm is None or comm.rank == ranks - 1 else run.box.shape
    with pytest.raises(InputError, match=r"values have shape \(1, 1, 1\)"):
        run.set(np.zeros(shape))
    run.advance(2)
    np.testing.assert_allclose(run.values(), 1, rtol=1e-14)
