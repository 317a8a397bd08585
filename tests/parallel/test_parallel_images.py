"""Images and samples: each rank reads its box, compared with the whole array."""

import os

import h5py
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, together
from slipstream.engine.decomposition import Box, slabs, whole
from slipstream.engine.errors import InputError
from slipstream.files import voxel_images
from slipstream.files.voxel_images import open_image
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.samples import make_sample

SHAPE = (7, 5, 6)
DTYPES = ("bool", "uint8", "int16", "uint32", "float64")


@pytest.fixture
def small_blocks(monkeypatch):
    """Make images as small as these be read in several turns."""
    monkeypatch.setattr(voxel_images, "_BATCH_BYTES", 48)


def grey(dtype="uint8", shape=SHAPE):
    return (np.random.default_rng(0).integers(0, 4, shape) % 3).astype(dtype)


def rank_of(comm):
    return 0 if comm is None else comm.rank


def written(comm, path, write):
    """Write a file on one rank that all then read."""
    if rank_of(comm) == 0:
        write(path)
    if comm is not None:
        comm.Barrier()
    return path


def write_raw(values, order="little", offset=0):
    stored = values.astype(values.dtype.newbyteorder(order))
    return lambda path: path.write_bytes(bytes(offset) + stored.tobytes())


def check(comm, source, boxes, mask):
    """Read the boxes of all ranks, and compare this one's."""
    box = boxes[rank_of(comm)]
    actual = source.read(box)
    assert actual.dtype == np.uint8
    assert actual.flags.c_contiguous
    assert actual.shape == box.shape
    np.testing.assert_array_equal(actual, mask[box.slices()])


@alike(examples=40)
@given(data=st.data())
def test_ranks_read_boxes_of_a_raw_file(comm, ranks, shared_folder, small_blocks, data):
    """Boxes that divide the image anyhow, empty ones among them."""
    shape = data.draw(st.tuples(*[st.integers(1, 9)] * 3))
    dtype, offset = data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(0, 5))
    order, pore = (
        data.draw(st.sampled_from(["little", "big"])),
        data.draw(st.sampled_from([None, 1])),
    )
    boxes, values = data.draw(bricks(shape, ranks)), grey(dtype, shape)
    together(comm, lambda: None)  # nobody reads the file of the last example any more
    path = written(comm, shared_folder / "a.raw", write_raw(values, order, offset))
    image = open_image(
        path,
        shape=shape,
        dtype=dtype,
        byte_order=order,
        offset=offset,
        pore=pore,
        comm=comm,
    )
    mask = values != 0 if pore is None else values == pore
    together(comm, check, comm, image, boxes, mask)


def test_ranks_may_read_the_same_or_nothing(comm, ranks, shared_folder, small_blocks):
    values = grey(">u2")
    path = written(comm, shared_folder / "a.raw", lambda path: path.write_bytes(values.tobytes()))
    image = open_image(path, shape=SHAPE, dtype="uint16", byte_order="big", comm=comm)
    nothing = Box((0, 0, 0), (0, 0, 0))
    last = [nothing] * (ranks - 1) + [whole(SHAPE)]
    for boxes in ([whole(SHAPE)] * ranks, last, [nothing] * ranks):
        together(comm, check, comm, image, boxes, values != 0)


def write_h5(path, values):
    with h5py.File(path, "w") as file:
        file["grey"] = values


def write_slices(path, values, **options):
    """Write each plane to a file, which takes the place of one of an earlier test."""
    path.mkdir(exist_ok=True)
    for number, plane in enumerate(values):
        tifffile.imwrite(path / f"{number}.tif", plane, photometric="minisblack", **options)


WRITERS = {
    "scan": write_slices,
    "packed": lambda path, v: write_slices(path, v, compression="zlib"),
    "a.npy": np.save,
    "a.tif": lambda path, v: tifffile.imwrite(path, v, photometric="minisblack"),
    "a.tiff": lambda p, v: tifffile.imwrite(p, v, photometric="minisblack", compression="zlib"),
    "a.h5": write_h5,
}


@pytest.mark.parametrize("name", WRITERS)
def test_ranks_read_other_formats(comm, ranks, shared_folder, name):
    values = grey()
    path = written(comm, shared_folder / name, lambda path: WRITERS[name](path, values))
    image = open_image(path, comm=comm)
    for axis in range(3):
        together(comm, check, comm, image, slabs(SHAPE, axis, ranks), values != 0)


def test_ranks_read_a_domain(comm, ranks, shared_folder, small_blocks):
    """Cropped, mirrored and between layers of pore; some ranks have only these layers."""
    values = grey()
    path = written(comm, shared_folder / "a.raw", write_raw(values))
    image = open_image(path, shape=SHAPE, dtype="uint8", comm=comm)
    domain = Domain(image, crop=((1, 6), (0, 4), (2, 6)), mirror="y", buffer=4)
    mask = values[1:6, 0:4, 2:6] != 0
    mask = np.pad(
        np.concatenate([mask, mask[:, ::-1]], 1), ((4, 4), (0, 0), (0, 0)), constant_values=1
    )
    assert domain.shape == mask.shape
    for axis in range(3):
        together(comm, check, comm, domain, slabs(domain.shape, axis, ranks), mask)
    lowest = [Box((0, 0, 0), (3, 8, 4))] * (ranks - 1) + [whole(domain.shape)]
    together(comm, check, comm, domain, lowest, mask)


def test_ranks_open_the_slices_of_their_own_parts_only(comm, ranks, shared_folder):
    """Without any other file but the first, the part of a rank is still what it was."""
    values = grey(shape=(9, 5, 6))
    whole_ = written(comm, shared_folder / "whole", lambda path: write_slices(path, values))
    box = slabs((6, 4, 3), 0, ranks)[rank_of(comm)]
    for rank in range(ranks):
        image = open_image(whole_, comm=comm)
        domain = Domain(image, crop=((2, 8), (1, 5), (3, 6)))
        first, last = (2 + end for end in (box.start[0], box.stop[0]))
        mine = {f"{number}.tif" for number in (0, *range(first, last))}
        needed = mine if comm is None else comm.bcast(mine, rank)
        if rank_of(comm) == rank:
            for file in whole_.iterdir():
                if file.name not in needed:
                    file.write_bytes(b"")
        together(comm, lambda: None)
        nothing = Box((0, 0, 0), (0, 0, 0))
        found = domain.read(box if rank_of(comm) == rank else nothing)
        if rank_of(comm) == rank:
            np.testing.assert_array_equal(found, values[2:8, 1:5, 3:6][box.slices()] != 0)
        written(comm, whole_, lambda path: write_slices(path, values))


def message_of(comm, function):
    """Return the message of the error that all ranks raise."""
    with pytest.raises(InputError) as caught:
        function()
    messages = [str(caught.value)] if comm is None else comm.allgather(str(caught.value))
    assert len(set(messages)) == 1
    assert "\n" not in messages[0]
    return messages[0]


def test_ranks_fail_together_where_there_is_no_file(comm, shared_folder):
    absent = shared_folder / "a.raw"
    options = {"shape": SHAPE, "dtype": "uint8", "comm": comm}
    assert "does not exist" in message_of(comm, lambda: open_image(absent, **options))


def test_ranks_fail_together_if_one_of_them_does(comm, ranks, shared_folder):
    path = written(comm, shared_folder / "a.raw", write_raw(grey()))
    for source, options in ((path, {"shape": SHAPE, "dtype": "uint8"}), (grey(), {})):
        image = open_image(source, comm=comm, **options)
        last = rank_of(comm) == ranks - 1
        box = Box((0, 0, 0), (8, 5, 6)) if last else whole(SHAPE)
        assert "there is no box" in message_of(comm, lambda: image.read(box))  # noqa: B023


@pytest.mark.parametrize("change", ["shortened", "removed"])
def test_ranks_fail_together_if_the_file_changes(comm, ranks, shared_folder, small_blocks, change):
    """Only the last rank's box is beyond its new end."""
    path = written(comm, shared_folder / "a.raw", write_raw(grey()))
    image = open_image(path, shape=SHAPE, dtype="uint8", comm=comm)
    written(comm, path, lambda p: p.unlink() if change == "removed" else os.truncate(p, 200))
    box = slabs(SHAPE, 0, ranks)[rank_of(comm)]
    assert "cannot be read" in message_of(comm, lambda: image.read(box))


@pytest.mark.parametrize("name", ["a.raw", "a.npy"])
def test_ranks_fail_together_if_one_of_them_finds_no_number(
    comm, ranks, shared_folder, small_blocks, name
):
    values = grey("float64")
    values[-1, -1, -1] = np.nan
    write = np.save if name == "a.npy" else lambda path, _: write_raw(values)(path)
    path = written(comm, shared_folder / name, lambda path: write(path, values))
    options = {} if name == "a.npy" else {"shape": SHAPE, "dtype": "float64"}
    image = open_image(path, comm=comm, **options)
    box = slabs(SHAPE, 0, ranks)[rank_of(comm)]
    assert "not a number (NaN)" in message_of(comm, lambda: image.read(box))


SAMPLES = {
    "channel": {"axis": "y"},
    "duct": {"axis": "x"},
    "spheres": {"lattice": "face-centred", "solid_fraction": 0.7},
    "random-pack": {"radius": 3.0, "solid_fraction": 0.25},
    "sandstone": {"radius": 3.0, "porosity": 0.3},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_do_not_depend_on_who_makes_them(comm, ranks, name):
    shape = (20, 20, 20) if name == "spheres" else (16, 20, 23)

    def parts_of(boxes):
        sample = make_sample(name, shape, **SAMPLES[name])
        part = sample.read(boxes[rank_of(comm)])
        return [part] if comm is None else comm.allgather(part)

    mask = np.zeros(shape, np.uint8)
    for axis in range(3):
        boxes = slabs(shape, axis, ranks)
        for box, part in zip(boxes, parts_of(boxes), strict=True):
            mask[box.slices()] = part
        expected = make_sample(name, shape, **SAMPLES[name]).read(whole(shape))
        np.testing.assert_array_equal(mask, expected)
