"""`permeability` reports the same on several ranks as on one."""

import os
import signal

import h5py
import numpy as np
import pytest

from first_rank import on_first_rank
from slipstream.engine.errors import InputError, RunError
from slipstream.lattice import Storage, make_sample, permeability

IMAGE = np.asarray(make_sample("random-pack", (9, 8, 10), radius=3, solid_fraction=0.3))
PLAIN = {"storage": Storage()}
pytestmark = pytest.mark.filterwarnings("ignore:pore faces solid")


def numbers(result):
    """Return the numbers on which ranks must agree, up to the order of sums."""
    flows = result.flows.values()
    ratios = [[flow.tortuosity, flow.reynolds, flow.mach, flow.balance] for flow in flows]
    vectors = [np.array([vars(flow)[name] for flow in flows]) for name in ("k", "wall_force")]
    return [*vectors, *np.array(ratios).T]


@pytest.mark.parametrize(
    "choices",
    [
        {"axis": "all"},
        {"axis": "x", "partition": "cartesian", "schedule": "serial", "pressure_drop": 1e-3},
        {"axis": "y", "inertia": True, "precision": "mixed", "storage": {"order": "raster"}},
    ],
)
def test_every_rank_has_the_result_of_one(comm, device, choices, shared_folder):
    settings = {"device": device, "tolerance": 1e-5, **PLAIN, **choices}
    if isinstance(settings["storage"], dict):
        names = {"propagation": "aa", "layout": "stream", "encoding": "compact"}
        settings["storage"] = {**names, **settings["storage"]}

    def alone():
        result = permeability(IMAGE, **settings)
        flow = result.flows[choices["axis"].replace("all", "z")]
        arrays = [flow.fields[name].data for name in ("velocity", "pressure", "pore")]
        return numbers(result), result.porosity_profile, flow.speed_histogram(7), arrays

    expected, profile, (density, edges), arrays = on_first_rank(comm, alone)
    result = permeability(IMAGE, comm=comm, **settings)
    for value, theirs in zip(numbers(result), expected, strict=True):
        np.testing.assert_allclose(value, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())
    np.testing.assert_array_equal(result.porosity_profile, profile)
    flow = result.flows[choices["axis"].replace("all", "z")]
    found = flow.speed_histogram(7)
    np.testing.assert_allclose(found[0], density, rtol=1e-9, atol=2 / edges[-1] / IMAGE.size)
    np.testing.assert_allclose(found[1], edges, rtol=1e-9)
    for name, array in zip(("velocity", "pressure", "pore"), arrays, strict=True):
        value = flow.fields[name]
        np.testing.assert_array_equal(value.data, array[value.region()])
        root = 0 if comm is None else comm.size - 1
        whole = flow.fields.gather(name, root).data
        if comm is None or comm.rank == root:
            np.testing.assert_array_equal(whole, array)
        else:
            assert not whole.size
    path = flow.fields.write_arrays(shared_folder / "flow.h5")
    if comm is not None:
        comm.Barrier()
    with h5py.File(path) as file:
        np.testing.assert_allclose(file["velocity_x"], arrays[0][0], rtol=1e-6)


def test_any_rank_stops_the_flow_and_any_failure_of_a_callback_ends_all(comm, device):
    rank, last = (0, 0) if comm is None else (comm.rank, comm.size - 1)
    settings = {"device": device, "interval": 10, "tolerance": 1e-12, "comm": comm, **PLAIN}
    result = permeability(
        IMAGE, callback=lambda progress: progress.step >= 20 and rank == last, **settings
    )
    assert (result.steps, result.flow.ended) == (20, "callback")

    def fails(progress):
        if rank == last:
            raise KeyError("mine")

    with pytest.raises((KeyError, RunError), match="mine"):
        permeability(IMAGE, callback=fails, **settings)
    with pytest.raises(InputError, match="callback: returned 1; accepted: True to stop"):
        permeability(IMAGE, callback=lambda progress: 1 if rank == last else None, **settings)
    again = permeability(IMAGE, callback=lambda progress: progress.step >= 20, **settings)
    assert again.k == result.k


def test_an_interrupt_of_one_rank_ends_all_with_what_there_is(comm, device):
    last = comm is None or comm.rank == comm.size - 1

    def interrupt(progress):
        if progress.step == 20 and last:
            os.kill(os.getpid(), signal.SIGINT)

    settings = {"device": device, "interval": 10, "tolerance": 1e-12, "comm": comm, **PLAIN}
    with pytest.raises(KeyboardInterrupt) as caught:
        permeability(IMAGE, callback=interrupt, **settings)
    result = caught.value.result
    assert result.flow.ended == "interrupted"
    assert result.steps == (22 if comm is None else 30)
    # The communicator is as good as before.
    again = permeability(IMAGE, callback=lambda progress: progress.step >= result.steps, **settings)
    assert comm is None or again.k == result.k
    assert result.fields.gather("speed").shape == IMAGE.shape


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pressure_drop", (1e-3, 2e-3)),
        ("isolated", ("keep", "remove")),
        ("schedule", ("serial", "overlap")),
        ("callback", (None, print)),
    ],
)
def test_ranks_that_disagree_are_told_so(comm, device, name, values):
    mine = values[min(comm.rank, 1)]
    with pytest.raises(InputError, match=f"^ranks disagree on {name}: rank 0 has"):
        permeability(IMAGE, device=device, comm=comm, **{**PLAIN, name: mine})


@pytest.mark.several_ranks
def test_a_path_or_a_field_that_fails_on_one_rank_fails_on_all(comm, device, shared_folder):
    result = permeability(IMAGE, device=device, comm=comm, **PLAIN)
    with pytest.raises(InputError, match="ranks disagree on field"):
        result.fields.gather("speed" if comm.rank else "pore")
    with pytest.raises(InputError, match="accepted: a name that ends with .vti"):
        result.write_vtk(shared_folder / ("a.vti" if comm.rank else "a.vtk"))
    with pytest.raises(InputError, match="accepted: .* in a folder that exists"):
        result.write_vtk(shared_folder / "nowhere" / "a.vti")
    assert result.write_vtk(shared_folder / "a.vti") == shared_folder / "a.vti"
