"""Lattice runs on any number of ranks against the same run in one process."""

import numpy as np
import pytest
import tifffile
import zarr
from rich.console import Console

from first_rank import on_first_rank
from flows import save
from lattice_flows import CASE, CHANNEL, SANDSTONE, advance, make, start, state, state_of
from lattice_oracle import tight_pores
from slipstream.engine.collective import on_every_rank
from slipstream.engine.errors import InputError, RunError
from slipstream.files import open_checkpoint
from slipstream.lattice.velocity_set import TUNED
from slipstream.runs.run_case import run_case
from slipstream.show.solver_texts import description, result_texts

pytestmark = pytest.mark.several_ranks


def assert_same_bits(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].dtype == expected[1].dtype
    assert found[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("precision", ["float64", "mixed", "float16"])
@pytest.mark.parametrize("partition", ["bisection", "cartesian"])
def test_populations_do_not_depend_on_the_number_of_ranks(comm, device, precision, partition):
    settings = [f"numerics.precision={precision}", f"run.partition={partition}"]
    # By time steps alone half precision is for flows that are followed in time.
    settings += ["convergence.tolerance=0"] if precision == "float16" else []

    def alone():
        simulation = advance(start(device, *settings), 10)
        return state_of(simulation), simulation.diagnostics()

    expected, one = on_first_rank(comm, alone)
    shared = advance(start(device, *settings, comm=comm), 10)
    assert_same_bits(state_of(shared), expected)
    many = shared.diagnostics()
    # Sums are made in another order.
    for name, value in one.items():
        assert many[name] == pytest.approx(value, rel=1e-11, abs=1e-18), name
    if comm is not None:
        assert comm.allgather(many) == [many] * comm.size


def test_storage_and_schedule_do_not_change_a_bit(comm, device):
    expected = on_first_rank(comm, lambda: state_of(advance(start(device), 6)))
    settings = ("numerics.order=row-tiles", "run.schedule=serial", "run.transport=mpi")
    found = state_of(advance(start(device, *settings, comm=comm), 6))
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-18)


def test_run_is_finished_on_all_ranks_at_the_same_step(comm, device):

    def alone():
        simulation = advance(start(device, case=CHANNEL), 4000)
        return simulation.step, result_texts(simulation, 1.0, simulation.step)["permeability"]

    expected = on_first_rank(comm, alone)
    shared = advance(start(device, comm=comm, case=CHANNEL), 4000)
    assert "converged" in shared.finished
    assert (shared.step, result_texts(shared, 1.0, shared.step)["permeability"]) == expected


def test_description_tells_how_even_the_shares_are(comm, device, ranks):
    text = description(make(device, comm=comm))["ranks"]
    if ranks == 1:
        assert text == "1"
        return
    assert text.startswith(f"{ranks}, bisection: most pores 1.")
    assert f"at most {ranks - 1} neighbour" in text
    if comm is not None:
        assert set(comm.allgather(text)) == {text}


def test_output_does_not_depend_on_the_number_of_ranks(comm, device, shared_folder, tmp_path):
    alone, many = tmp_path / "one", shared_folder / "many"
    settings = ("time.end=20", "output.vtk=true", "output.fields_interval=10")
    for simulation, folder in (
        (make(device, *settings), alone),
        (make(device, *settings, comm=comm), many),
    ):
        run_case(simulation, folder, Console(quiet=True))
    stored = [zarr.open_group(folder / "fields.zarr", mode="r") for folder in (alone, many)]
    assert sorted(stored[0].array_keys()) == sorted(stored[1].array_keys())
    for name, array in stored[0].arrays():
        assert stored[1][name][...].tobytes() == array[...].tobytes(), name
    assert (many / "flow.vti").read_bytes() == (alone / "flow.vti").read_bytes()
    assert_same_bits(state(many), state(alone))
    assert open_checkpoint(many).step == 20


def test_pieces_that_are_small_make_the_same_files(comm, device, shared_folder, monkeypatch):
    shared = advance(start(device, comm=comm), 4)
    expected = {field.name: field.data.tobytes() for field in shared.fields()}
    whole = [path.read_bytes() for path in shared._fields.write_vtk(shared_folder / "whole.vti")]
    # A few rows and sites at a time.
    monkeypatch.setattr("slipstream.lattice.voxel_fields.BYTES_AT_ONCE", 1)
    monkeypatch.setattr("slipstream.lattice.lattice_checkpoint._SITES_AT_ONCE", 100)
    assert {field.name: field.data.tobytes() for field in shared.fields()} == expected
    assert [
        path.read_bytes() for path in shared._fields.write_vtk(shared_folder / "pieces.vti")
    ] == whole
    save(shared, shared_folder)
    later = start(device, f"initial.restart={shared_folder}", comm=comm)
    assert_same_bits(state_of(later), state(shared_folder))


@pytest.mark.parametrize("partition", ["bisection", "cartesian"])
def test_run_of_several_ranks_is_gone_on_with_by_one(comm, device, partition, shared_folder):
    setting = f"run.partition={partition}"
    save(advance(start(device, setting, comm=comm), 6), shared_folder)

    def alone():
        later = start(device, f"initial.restart={shared_folder}")
        begun = later.step
        return begun, state_of(advance(later, 4)), state_of(advance(start(device), 10))

    begun, found, whole = on_first_rank(comm, alone)
    assert begun == 6
    assert_same_bits(found, whole)


def test_run_of_one_rank_is_gone_on_with_by_several(comm, device, shared_folder):
    def alone():
        simulation = advance(start(device), 6)
        save(simulation, shared_folder)
        return state_of(advance(simulation, 4))

    expected = on_first_rank(comm, alone)
    shared = start(device, f"initial.restart={shared_folder}", comm=comm)
    advance(shared, 4)
    assert shared.step == 10
    assert_same_bits(state_of(shared), expected)


@pytest.mark.parametrize(
    "change",
    # What each change does is the same for one process, in which tests of lattice physics try it.
    [
        ("flow.axis=y", "flow.force=2e-5", "flow.relaxation_time=1.2"),
        ("flow.pressure_drop=1e-4", "numerics.propagation=two-lattice"),
    ],
)
def test_run_that_is_gone_on_with_otherwise_gives_the_permeability_from_rest(
    comm, device, change, shared_folder
):
    """In narrow pores, where nothing damps momentum that a change of the force would excite."""
    if comm is None or comm.rank == 0:
        np.save(shared_folder / "tight.npy", tight_pores())
    if comm is not None:
        comm.Barrier()
    case = CASE.replace(SANDSTONE, f'path = "{shared_folder}/tight.npy"\n')
    settings = ("time.end=4000", "convergence.tolerance=1e-4", "convergence.interval=100")
    save(advance(start(device, *settings, comm=comm, case=case), 1000), shared_folder / "first")
    again = (*settings, *change, f"initial.restart={shared_folder / 'first'}")
    later = advance(start(device, *again, comm=comm, case=case), 4000)

    def alone():
        simulation = advance(start(device, *settings, *change, case=case), 4000)
        return simulation.finished, simulation.diagnostics()["permeability_lattice"]

    finished, expected = on_first_rank(comm, alone)
    assert "converged" in later.finished
    assert "converged" in finished
    assert later.diagnostics()["permeability_lattice"] == pytest.approx(expected, rel=2e-4)
    # The pores are narrow, which is warned of.
    assert not [one for one in later.warnings() if "not resolved" not in one]


def test_slices_are_the_rock_that_an_array_is(comm, device, shared_folder):
    """A part of the image, mirrored: the same bits, and the state belongs to the same image."""
    pores, scan = tight_pores(), shared_folder / "scan"
    if comm is None or comm.rank == 0:
        np.save(shared_folder / "tight.npy", pores)
        scan.mkdir()
        for number, plane in enumerate(pores, 7):
            tifffile.imwrite(scan / f"tight {number}.tif", plane, compression="zlib")
    if comm is not None:
        comm.Barrier()
    z, y, x = pores.shape
    part = f"crop = [[0, {x}], [0, {y}], [1, {z - 1}]]\nmirror = ['z']\nbuffer = 1\n"
    npy = CASE.replace(SANDSTONE, f'path = "{shared_folder}/tight.npy"\n{part}')
    slices = CASE.replace(SANDSTONE, f'path = "{scan}/"\n{part}')
    expected = on_first_rank(comm, lambda: state_of(advance(start(device, case=npy), 6)))
    first = advance(start(device, comm=comm, case=slices), 6)
    assert_same_bits(state_of(first), expected)
    save(first, shared_folder / "first")
    restart = f"initial.restart={shared_folder / 'first'}"
    later = start(device, restart, comm=comm, case=npy)
    assert later.step == 6
    assert_same_bits(state_of(later), expected)


@pytest.mark.parametrize("partition", ["bisection", "cartesian"])
def test_few_pores_for_many_ranks(comm, device, partition, shared_folder, tmp_path):
    small = CHANNEL.replace("[10, 3, 4]", "[4, 2, 1]")
    settings = (f"run.partition={partition}", "flow.axis=y", "output.vtk=true")
    alone, shared = (
        start(device, *settings, case=small),
        start(device, *settings, comm=comm, case=small),
    )
    advance(alone, 4), advance(shared, 4)
    assert_same_bits(state_of(shared), state_of(alone))
    shared.write_at_end(shared_folder), alone.write_at_end(tmp_path)
    if comm is not None:
        comm.Barrier()
    files = [folder / "flow.vti" for folder in (shared_folder, tmp_path)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(list(shared.fields())) == 6


def test_walls_mirrors_and_buffers_on_any_number_of_ranks(comm, device):
    settings = (
        "image.walls=['x']",
        "image.mirror=['z', 'y']",
        "image.buffer=2",
        "flow.pressure_drop=1e-4",
        "flow.inertia=true",
    )
    expected = on_first_rank(comm, lambda: state_of(advance(start(device, *settings), 6)))
    shared = advance(start(device, *settings, comm=comm), 6)
    assert_same_bits(state_of(shared), expected)


def test_flow_that_is_too_fast_is_refused_by_all(comm, device):
    shared = start(device, "flow.force=1", "flow.inertia=true", comm=comm)
    with pytest.raises(RunError, match="the Mach number reached"):
        advance(shared, 10)


def test_memory_lacking_on_one_rank_is_refused_by_all(comm, device, ranks, monkeypatch):
    simulation = make(device, comm=comm)
    description(simulation)
    if comm is None or comm.rank == ranks - 1:
        monkeypatch.setattr(device, "memory_free", lambda: 1000)
    with pytest.raises(InputError, match=r"image: this image needs .* 9\.31e-07 GiB free"):
        on_every_rank(comm, simulation._allocate)


def test_memory_lacking_on_one_rank_is_found_before_anything_is_tried(
    comm, device, ranks, monkeypatch
):
    settings = [f"numerics.{name}=auto" for name in TUNED]
    simulation = make(device, *settings, comm=comm)
    if comm is None or comm.rank == ranks - 1:
        # Enough to read the image.
        monkeypatch.setattr(device, "memory_free", lambda: 100_000)
    monkeypatch.setattr("slipstream.lattice.storage_tuning.PoreFlow", None)
    with pytest.raises(InputError, match=r"image: this image needs .* 9\.31e-05 GiB free"):
        description(simulation)


def test_image_that_is_too_large_to_be_read_is_refused_by_all(comm, device):
    with pytest.raises(InputError, match=r"image: reading this image, .* free; use a part of it"):
        description(make(device, "image.shape=[20000, 20000, 20000]", comm=comm))


def test_image_that_is_not_there_is_refused_by_all(comm, device):
    case = CASE.replace(SANDSTONE, 'path = "absent.tif"\n')
    with pytest.raises(InputError, match=r"image\.path: absent\.tif does not exist"):
        description(make(device, comm=comm, case=case))


def test_earlier_run_that_does_not_suit_is_refused_by_all(comm, device, shared_folder):
    simulation = make(device, "initial.restart=nowhere", comm=comm)
    simulation._allocate()
    with pytest.raises(InputError, match="nowhere: holds no checkpoint"):
        simulation._initialise()
    save(start(device, comm=comm), shared_folder)
    other = make(device, f"initial.restart={shared_folder}", "image.seed=1", comm=comm)
    other._allocate()
    with pytest.raises(InputError, match="pore voxels; both must be the same|pore voxels, this"):
        other._initialise()
