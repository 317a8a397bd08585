"""Arrays that ranks share, without a transform: redistributed, with halos, in files."""

import os

import h5py
import numpy as np
import pytest
import zarr

from slipstream.engine.decomposition import grid_boxes, process_grid, slabs, whole
from slipstream.engine.errors import InputError, RunError
from slipstream.fft import DistributedFFT, redistribute, section, with_halo
from slipstream.files import read_array, write_arrays

SHAPE = (7, 6, 5)


def divisions(ranks, shape=SHAPE):
    """Return decompositions of all kinds; in the last one, some ranks have nothing."""
    grid = process_grid(ranks, shape)
    empty = [whole((0,) * len(shape))] * (ranks - 1)
    return [
        *(slabs(shape, axis, ranks) for axis in range(len(shape))),
        grid_boxes(shape, grid),
        [*empty, whole(shape)],
    ]


def values(shape, dtype, seed=0):
    generator = np.random.default_rng(seed)
    noise = 100 * generator.standard_normal((*shape, 2))
    return (noise @ [1, 1j] if np.dtype(dtype).kind == "c" else noise[..., 0]).astype(dtype)


def part(whole_array, boxes, rank):
    return whole_array[(..., *boxes[rank].slices())]


@pytest.fixture
def rank(comm):
    return 0 if comm is None else comm.rank


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int16", "bool"])
def test_any_division_becomes_any_other(comm, device, ranks, rank, dtype):
    for leading in ((), (2, 3)):
        array = values((*leading, *SHAPE), dtype)
        for before in divisions(ranks):
            for after in divisions(ranks)[::2]:
                mine = device.array_module.asarray(part(array, before, rank))
                actual = redistribute(mine, before, after, comm)
                assert isinstance(actual, device.array_module.ndarray)
                np.testing.assert_array_equal(device.to_host(actual), part(array, after, rank))
    pairs = [(box.start, box.stop) for box in divisions(ranks)[0]]
    actual = redistribute(part(array, divisions(ranks)[1], rank), divisions(ranks)[1], pairs, comm)
    np.testing.assert_array_equal(actual, part(array, divisions(ranks)[0], rank))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize(
    ("widths", "periodic"),
    [(1, True), ((2, 0, 5), True), (2, False), ((1, 2, 3), (True, False, True)), (0, True)],
)
def test_halos_are_those_of_the_padded_whole(comm, device, ranks, rank, dtype, widths, periodic):
    array = values((2, *SHAPE), dtype)
    width = np.broadcast_to(widths, 3)
    wraps = np.broadcast_to(periodic, 3)
    padded = array
    for axis in range(3):
        pad = [(0, 0)] * 4
        pad[axis + 1] = (width[axis], width[axis])
        padded = np.pad(padded, pad, mode="wrap" if wraps[axis] else "constant")
    if not all(wraps):
        # Beyond an end that is not periodic nothing is known.
        inside = np.zeros(padded.shape, bool)
        inside[
            (..., *(slice(None) if w else slice(n, -n) for w, n in zip(wraps, width, strict=True)))
        ] = 1
        padded = np.where(inside, padded, -1).astype(dtype)
    for boxes in divisions(ranks):
        local = device.array_module.asarray(part(array, boxes, rank))
        actual = device.to_host(with_halo(local, boxes, widths, comm, periodic, fill=-1))
        box = boxes[rank]
        if not box.size:
            assert not actual.size
            continue
        place = [slice(a, b + 2 * w) for a, b, w in zip(box.start, box.stop, width, strict=True)]
        np.testing.assert_array_equal(actual, padded[(..., *place)])
        np.testing.assert_array_equal(device.to_host(local), part(array, boxes, rank))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": 8}, "widths 8; accepted"),
        ({"widths": -1}, "widths -1"),
        ({"widths": 1.5}, "widths 1.5"),
        ({"widths": (1, 1)}, "one for each of 3 axes"),
        ({"periodic": (True,)}, "periodic"),
        ({"fill": "x"}, "fill is 'x'; accepted: a number of float64"),
        ({"array": np.zeros((1, 1))}, "array has shape"),
        ({"array": [1.0]}, "array is of type list"),
        ({"boxes": [((0,), (3,))] * 99}, "boxes"),
        ({"boxes": 3}, "boxes 3; accepted"),
    ],
)
def test_what_halos_cannot_be_of_is_refused_on_all_ranks(comm, ranks, rank, options, message):
    boxes = slabs(SHAPE, 0, ranks)
    given = {"array": part(np.zeros(SHAPE), boxes, rank), "boxes": boxes, "widths": 1, "comm": comm}
    with pytest.raises(InputError, match=message):
        with_halo(**(given | options))
    with_halo(**given)


@pytest.mark.several_ranks
def test_what_one_rank_has_wrong_all_ranks_hear_of(comm, shared_folder):
    boxes, other = slabs(SHAPE, 0, comm.size), slabs(SHAPE, 1, comm.size)
    local = part(np.zeros(SHAPE), boxes, comm.rank)
    last = comm.rank == comm.size - 1
    wrong, folder = (np.zeros(3) if last else local), shared_folder
    for call, message in (
        (lambda: redistribute(wrong, boxes, other, comm), "array has shape"),
        (lambda: with_halo(wrong, boxes, 1, comm), "array has shape"),
        (lambda: with_halo(local, boxes, 1 + last, comm), "ranks disagree on widths"),
        (lambda: redistribute(local.astype("f4") if last else local, boxes, other, comm), "dtype"),
        (lambda: write_arrays(folder / "u.zarr", {"u": wrong}, boxes, comm), "'u' has shape"),
        (lambda: write_arrays(folder / "u.h5", {"uv"[last]: local}, boxes, comm), "on arrays"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert not os.listdir(shared_folder)
    np.testing.assert_array_equal(redistribute(local, boxes, boxes, comm), local)


@pytest.mark.parametrize("name", ["u.zarr", "u.h5"])
def test_files_hold_arrays_of_any_division_and_give_any_other(
    comm, device, ranks, rank, shared_folder, name
):
    path = shared_folder / name
    for number, boxes in enumerate(divisions(ranks)):
        arrays = {
            "u": values(SHAPE, "float64", number),
            "modes": values((2, *SHAPE), "complex64", number),
            "marks": values(SHAPE, "int8", number),
        }
        local = {
            key: device.array_module.asarray(part(one, boxes, rank)) for key, one in arrays.items()
        }
        # Each time instead of the file before.
        write_arrays(path, local, boxes, comm, {"time": 0.5, "title": "a flow"})
        for key, array in arrays.items():
            for other in divisions(ranks)[::2]:
                found = read_array(path, key, other, comm)
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(found, part(array, other, rank))
    if rank == 0:
        if name.endswith("h5"):
            with h5py.File(path) as file:
                np.testing.assert_array_equal(file["modes"][...], arrays["modes"])
                assert dict(file.attrs) == {"time": 0.5, "title": "a flow"}
            assert os.listdir(shared_folder) == [name]
        else:
            group = zarr.open_group(path, mode="r")
            np.testing.assert_array_equal(group["modes"][...], arrays["modes"])
            assert group.attrs["title"] == "a flow"
    if comm is not None:
        comm.Barrier()


@pytest.mark.parametrize("name", ["u.zarr", "u.h5"])
def test_points_and_modes_of_a_plan_go_to_files_and_another_plan(comm, device, shared_folder, name):
    fft = DistributedFFT(SHAPE, comm=comm, device=device, fields=2)
    u = np.random.default_rng(fft.input_box.start[0]).random(fft.empty_input().shape)
    write_arrays(shared_folder / name, {"u_hat": fft.forward(u)}, fft.output_boxes, comm)
    other = DistributedFFT(
        SHAPE, comm=comm, device=device, fields=2, layout="pencil", order="natural"
    )
    u_hat = read_array(shared_folder / name, "u_hat", other.output_boxes, comm)
    back = redistribute(other.backward(u_hat), other.input_boxes, fft.input_boxes, comm)
    np.testing.assert_allclose(device.to_host(back), u, atol=1e-13)


def test_what_files_cannot_be_is_refused_and_what_is_there_stays(comm, ranks, rank, shared_folder):
    boxes = slabs(SHAPE, 0, ranks)
    local = part(values(SHAPE, "float64"), boxes, rank)
    precious = shared_folder / "precious.zarr"
    if rank == 0:
        precious.mkdir()
        (precious / "thesis.txt").write_text("all of it")
        (shared_folder / "text.h5").write_text("no HDF5")
    if comm is not None:
        comm.Barrier()
    good = {"path": shared_folder / "good.h5", "arrays": {"u": local}, "boxes": boxes}
    for wrong, message in (
        ({"path": shared_folder / "u.txt"}, "ends with .zarr, .h5 or .hdf5"),
        ({"path": 7}, "path is 7; accepted"),
        ({"path": shared_folder / "none" / "u.h5"}, "there is no folder"),
        ({"path": precious}, "is no zarr group"),
        ({"arrays": {}}, "arrays is empty"),
        ({"arrays": {"a/b": local}}, "name 'a/b'"),
        ({"arrays": {"u": [1, 2]}}, "'u' is no array of numbers"),
        ({"arrays": {"u": local[:0, :0]}}, "'u' has shape"),
        ({"attributes": {"x": object}}, "attributes"),
    ):
        with pytest.raises(InputError, match=message):
            write_arrays(**(good | wrong), comm=comm)
    write_arrays(**good, comm=comm)
    for path, name, message in (
        ("good.h5", "v", "holds no array 'v'"),
        ("none.h5", "u", "is no HDF5 file and no zarr group"),
        ("text.h5", "u", "is no HDF5 file"),
        ("precious.zarr", "u", "it has no zarr.json"),
    ):
        with pytest.raises(InputError, match=message):
            read_array(shared_folder / path, name, boxes, comm)
    with pytest.raises(InputError, match="boxes cover"):
        read_array(shared_folder / "good.h5", "u", slabs((7, 6, 6), 0, ranks), comm)
    assert (precious / "thesis.txt").read_text() == "all of it"
    assert not list(shared_folder.glob("*.partial"))


def test_a_full_disk_ends_on_all_ranks_and_leaves_the_file_before(
    comm, ranks, rank, shared_folder, monkeypatch
):
    boxes = slabs(SHAPE, 0, ranks)
    local, path = part(values(SHAPE, "float64"), boxes, rank), shared_folder / "u.h5"
    write_arrays(path, {"u": local}, boxes, comm)

    def fail(*_):
        raise OSError(28, "No space left on device")

    if rank == ranks - 1:
        monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(RunError, match="No space left"):
        write_arrays(path, {"u": local + 1}, boxes, comm)
    monkeypatch.undo()
    np.testing.assert_array_equal(read_array(path, "u", boxes, comm), local)
    assert os.listdir(shared_folder) == ["u.h5"]


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), slice(None), 4),
        (3, slice(None), 2),
        (slice(1, 6, 2), slice(0, 6, 3), slice(None)),
        (-1, slice(None, 2), slice(4, None)),
        (slice(5, None), 5, slice(None, None, 4)),
    ],
)
def test_sections_are_those_of_the_whole_and_can_be_gathered(comm, device, ranks, rank, index):
    array = values((2, *SHAPE), "float32")
    expected = array[(slice(None), *index)]
    for boxes in divisions(ranks):
        mine = device.array_module.asarray(part(array, boxes, rank))
        actual, sections = section(mine, boxes, index, comm)
        np.testing.assert_array_equal(device.to_host(actual), part(expected, sections, rank))
        everything = whole(expected.shape[1:])
        on_first = [everything, *[whole((0,) * (expected.ndim - 1))] * (ranks - 1)]
        gathered = device.to_host(redistribute(actual, sections, on_first, comm))
        np.testing.assert_array_equal(gathered, part(expected, on_first, rank))


@pytest.mark.parametrize(
    "index",
    [(1, 2), (7, slice(None), 0), (slice(None),) * 4, (0, 0, 0), (slice(None, None, -1),) * 3],
)
def test_sections_of_nothing_are_refused(comm, ranks, rank, index):
    boxes = slabs(SHAPE, 0, ranks)
    with pytest.raises(InputError, match="index"):
        section(part(np.zeros(SHAPE), boxes, rank), boxes, index, comm)
