"""Boxes of voxel images in every format against the array that was written."""

import os

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refusals import refused
from slipstream.engine.decomposition import Box, whole
from slipstream.engine.errors import InputError
from slipstream.files import voxel_images
from slipstream.files.image_formats import readable
from slipstream.files.voxel_images import open_image

SHAPE = (7, 5, 6)
BOXES = [
    whole(SHAPE),
    Box((2, 1, 3), (6, 4, 5)),
    Box((6, 0, 0), (7, 5, 6)),
    Box((3, 2, 1), (4, 3, 2)),
    Box((1, 2, 3), (1, 4, 5)),
    Box((9, 9, 9), (9, 9, 9)),
]
DTYPES = ["bool", "uint8", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Make images as small as these be read in several blocks."""
    monkeypatch.setattr(voxel_images, "_BATCH_BYTES", 64)


def grey(dtype="uint8", shape=SHAPE, seed=0):
    """Return few different values, zero often."""
    values = np.random.default_rng(seed).integers(0, 5, shape)
    return np.where(values == 4, 0, values).astype(dtype)


def assert_boxes(image, mask, boxes=BOXES):
    assert image.shape == mask.shape
    for box in boxes:
        actual = image.read(box)
        assert actual.dtype == np.uint8
        assert actual.flags.c_contiguous
        assert actual.shape == box.shape
        np.testing.assert_array_equal(actual, mask[box.slices()])


def write_h5(path, values, name="entry/data", **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("entry/angles", data=np.zeros(3))
        file.create_dataset(name, data=values, **options)


def write_zarr(path, values, name=None, **options):
    parent = {"store": path} if name is None else {"store": path, "name": name}
    array = zarr.create_array(**parent, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values


def write_tiff(path, values, **options):
    tifffile.imwrite(path, values, photometric="minisblack", **options)


WRITERS = {
    "npy": ("a.npy", np.save),
    "npy of other order": ("a.npy", lambda path, v: np.save(path, np.asfortranarray(v))),
    "npy of other bytes": ("a.npy", lambda path, v: np.save(path, v.astype(">u2"))),
    "stack": ("a.tif", write_tiff),
    "suffix in capitals": ("a.TIFF", write_tiff),
    "plain stack": ("a.tif", lambda p, v: write_tiff(p, v, metadata=None)),
    "big-endian stack": ("a.tif", lambda p, v: write_tiff(p, v, byteorder=">")),
    "compressed stack": ("a.tiff", lambda p, v: write_tiff(p, v, compression="zlib")),
    "ImageJ": ("a.tif", lambda p, v: write_tiff(p, v, imagej=True)),
    "one directory entry": (
        "a.tif",
        lambda p, v: write_tiff(p, v, metadata={"axes": "ZYX"}, truncate=True),
    ),
    "volume": (
        "a.tif",
        lambda p, v: write_tiff(p, v, volumetric=True, tile=(16, 16, 16)),
    ),
    "volume in strips": ("a.tif", lambda p, v: write_tiff(p, v, volumetric=True)),
    "hdf5": ("a.h5", write_h5),
    "compressed hdf5": (
        "a.hdf5",
        lambda p, v: write_h5(p, v, chunks=(3, 2, 4), compression="gzip"),
    ),
    "nexus": ("a.nxs", write_h5),
    "zarr": ("a.zarr", write_zarr),
    "zarr in chunks": ("a.zarr", lambda p, v: write_zarr(p, v, chunks=(3, 2, 4))),
    "zarr in shards": (
        "a.zarr",
        lambda p, v: write_zarr(p, v, chunks=(2, 5, 2), shards=(4, 5, 6)),
    ),
    "zarr group": ("a.zarr", lambda p, v: write_zarr(p, v, "deep/grey")),
    "slices": ("scan", lambda p, v: write_slices(p, v, first=8)),
    "slices with zeros": ("a.v2", lambda p, v: write_slices(p, v, "{:05}_2um.TIFF", metadata=None)),
    "compressed slices": ("a.tif", lambda p, v: write_slices(p, v, compression="zlib")),
    "slices by ImageJ": ("a", lambda p, v: write_slices(p, v, imagej=True)),
    "big-endian slices": ("a", lambda p, v: write_slices(p, v, byteorder=">")),
    "old zarr": ("a.zarr", lambda p, v: write_zarr(p, v, zarr_format=2, chunks=(3, 2, 4))),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
def test_boxes_of_every_format_are_those_of_the_array(tmp_path, name, write):
    values = grey()
    write(tmp_path / name, values)
    assert_boxes(open_image(tmp_path / name), values != 0)
    assert_boxes(open_image(str(tmp_path / name), pore=2), values == 2)


def write_slices(folder, values, name="slice_{}.tif", first=0, **options):
    """Write each plane to a file, as scanners do."""
    folder.mkdir(exist_ok=True)
    for number, plane in enumerate(values, first):
        write_tiff(folder / name.format(number), plane, **options)


STACKS = ["stack", "compressed stack", "plain stack", "ImageJ"]


@pytest.mark.parametrize("shape", [(1, 5, 6), (4, 1, 6), (1, 1, 1)])
@pytest.mark.parametrize("kind", ["npy", *STACKS])
def test_axes_of_one_voxel_are_axes(tmp_path, shape, kind):
    name, write = WRITERS[kind]
    values = grey(shape=shape)
    write(tmp_path / name, values)
    image = open_image(tmp_path / name)
    assert_boxes(image, values != 0, [whole(shape)])
    assert image.is_flat == (kind in STACKS and shape[0] == 1)


@pytest.mark.parametrize(("name", "write"), [("a.npy", np.save), ("a.zarr", write_zarr)])
def test_pictures_are_volumes_of_one_slice(tmp_path, name, write):
    values = grey()[0]
    write(tmp_path / name, values)
    write_h5(tmp_path / "a.h5", values)
    boxes = [whole((1, *values.shape)), Box((0, 1, 2), (1, 4, 3)), Box((0, 2, 2), (0, 2, 2))]
    for image in (
        open_image(values),
        open_image(values.astype(values.dtype.newbyteorder())),
        open_image(tmp_path / name),
        open_image(tmp_path / "a.h5", dataset="entry/data"),
    ):
        assert image.is_flat
        assert_boxes(image, values[None] != 0, boxes)


def test_stack_of_pages_with_one_bit_per_voxel(tmp_path):
    values = grey() > 0
    write_tiff(tmp_path / "a.tif", values)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.pages.first.bitspersample == 1
    assert_boxes(open_image(tmp_path / "a.tif"), values)


@st.composite
def boxes_of(draw, shape):
    pairs = [sorted(draw(st.tuples(*[st.integers(0, n)] * 2))) for n in shape]
    return Box(*zip(*pairs, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_box_of_any_raw_file_is_that_of_the_array(tmp_path, data):
    shape = data.draw(st.tuples(*[st.integers(1, 9)] * 3))
    dtype = data.draw(st.sampled_from(DTYPES))
    order = data.draw(st.sampled_from(["little", "big"]))
    offset = data.draw(st.integers(0, 9))
    pore = data.draw(st.sampled_from([None, 1, (0,), [1, 3], (0, 300, -1)]))
    values = grey(dtype, shape)
    stored = values.astype(values.dtype.newbyteorder(order))
    (tmp_path / "a.raw").write_bytes(bytes(offset) + stored.tobytes())
    image = open_image(
        tmp_path / "a.raw", shape=shape, dtype=dtype, byte_order=order, offset=offset, pore=pore
    )
    expected = values != 0 if pore is None else np.isin(values, pore)
    assert_boxes(image, expected, [data.draw(boxes_of(shape))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_images(dtype):
    values = grey(dtype)
    assert_boxes(open_image(values), values != 0)
    assert_boxes(
        open_image(values[::-1, :, ::-1], pore=(1, 3)), np.isin(values[::-1, :, ::-1], (1, 3))
    )


def test_any_byte_but_zero_is_true(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes([0, 1, 2, 255]))
    image = open_image(tmp_path / "a.bin", shape=(1, 2, 2), dtype="bool")
    assert image.read(whole((1, 2, 2))).tolist() == [[[0, 1], [1, 1]]]


@pytest.mark.parametrize("name", ["a.dat", "a.npy"])
def test_blocks_larger_than_a_plane_are_read(tmp_path, monkeypatch, name):
    monkeypatch.setattr(voxel_images, "_BATCH_BYTES", 2**20)
    values, options = grey("uint16"), {}
    if name == "a.npy":
        np.save(tmp_path / name, values)
    else:
        values.tofile(tmp_path / name)
        options = {"shape": SHAPE, "dtype": "<u2"}
    assert_boxes(open_image(tmp_path / name, **options), values != 0)


@pytest.mark.parametrize("form", ["h5", "zarr"])
def test_data_sets_are_found_by_name(tmp_path, form):
    path = tmp_path / f"a.{form}"
    first, second = grey(seed=1), grey(seed=2)
    if form == "h5":
        write_h5(path, first, "one")
        with h5py.File(path, "a") as file:
            file["group/two"] = second
            file["link"] = h5py.SoftLink("/group/two")
    else:
        write_zarr(path, first, "one")
        write_zarr(path, second, "group/two")
    assert_boxes(open_image(path, dataset="one"), first != 0)
    assert_boxes(open_image(path, dataset="/group/two"), second != 0)
    if form == "h5":
        assert_boxes(open_image(path, dataset="link"), second != 0)
    with pytest.raises(InputError, match="^image.dataset is missing: .* but group/two, one$"):
        open_image(path)
    with pytest.raises(InputError, match="^image.dataset 'three' is not in .*: group/two, one$"):
        open_image(path, dataset="three")
    with pytest.raises(InputError, match="^image.dataset 'group' is not in"):
        open_image(path, dataset="group")


def test_only_the_pages_of_a_box_are_read(tmp_path):
    values = grey()
    write_tiff(tmp_path / "a.tif", values, compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        place, size = file.pages[4].dataoffsets[0], file.pages[4].databytecounts[0]
    content = bytearray((tmp_path / "a.tif").read_bytes())
    content[place : place + size] = b"\xff" * size
    (tmp_path / "a.tif").write_bytes(content)
    image = open_image(tmp_path / "a.tif")
    sound = [Box((0, 0, 0), (4, 5, 6)), Box((5, 0, 0), (7, 5, 6))]
    assert_boxes(image, values != 0, sound)
    with pytest.raises(InputError, match=r"^image.path: .*a.tif cannot be read \(.+\)$"):
        image.read(Box((4, 0, 0), (5, 5, 6)))


def raw(folder, size=210, suffix=".raw"):
    path = folder / f"a{suffix}"
    path.write_bytes(bytes(size))
    return path


def saved(folder, name, write, values):
    write(folder / name, values)
    return folder / name


RAW = {"shape": SHAPE, "dtype": "uint8"}
MISTAKES = {
    "missing": (lambda f: f / "b.raw", RAW, r"image.path: .*b.raw does not exist"),
    "suffix": (raw, {}, "image.shape and image.dtype are missing: a raw file does not tell them"),
    "unknown suffix": (
        lambda f: raw(f, suffix=".png"),
        {},
        r"suffix '.png'; accepted: .raw, .bin, .*zarr",
    ),
    "no suffix": (lambda f: (f / "a").write_bytes(b"") or f / "a", {}, "a .* suffix ''; accept"),
    "missing folder": (lambda f: f / "scan", {}, "scan does not exist"),
    "what a folder tells": (
        lambda f: f,
        RAW,
        "^image.shape, image.dtype: remove them, a folder of slices tells its own sh",
    ),
    "no path": (lambda f: 3, {}, "image.path is of type int; accepted: a path, or a NumPy array"),
    "list": (lambda f: grey().tolist(), {}, "^image.path is of type list; accepted: [a-zA-Z, ]*$"),
    "masked": (lambda f: np.ma.masked_equal(grey(), 2), {}, "is a masked array; accepted: a plain"),
    "folder as file": (lambda f: (f / "a.npy").mkdir() or f / "a.npy", {}, "is a folder"),
    "file as folder": (lambda f: raw(f, suffix=".zarr"), {}, "is no folder"),
    "too short": (
        lambda f: raw(f, 209),
        RAW,
        r"has 209 bytes, but image.shape \(7, 5, 6\) of uint8 .* makes 210",
    ),
    "too long": (lambda f: raw(f, 211), RAW, "has 211 bytes, .* makes 210"),
    "offset": (raw, {**RAW, "offset": 1}, "has 210 bytes, .* image.offset 1 makes 211"),
    "negative offset": (raw, {**RAW, "offset": -1}, "image.offset is -1; accepted"),
    "no shape": (raw, {"dtype": "uint8"}, "image.shape is missing"),
    "two axes": (raw, {**RAW, "shape": (14, 15)}, r"image.shape is \(14, 15\); accepted: three"),
    "no size": (raw, {**RAW, "shape": (0, 5, 6)}, r"image.shape is \(0, 5, 6\); accepted: three"),
    "no dtype": (raw, {"shape": SHAPE}, "image.dtype is missing"),
    "unknown dtype": (raw, {**RAW, "dtype": "grey"}, "image.dtype is 'grey'; accepted"),
    "complex": (raw, {**RAW, "dtype": "complex64"}, "image.dtype is 'complex64'; accepted"),
    "order twice": (raw, {**RAW, "dtype": ">u2"}, "image.byte_order gives"),
    "byte order": (raw, {**RAW, "byte_order": "middle"}, "image.byte_order is 'middle'; accepted"),
    "pore": (raw, {**RAW, "pore": 0.5}, "image.pore is 0.5; accepted"),
    "no pore": (raw, {**RAW, "pore": ()}, r"image.pore is \(\); accepted"),
    "shape of npy": (
        lambda f: saved(f, "a.npy", np.save, grey()),
        {"shape": SHAPE},
        "^image.shape: remove it, a .npy file tells its own shape; accepted: image.p",
    ),
    "what a TIFF tells": (
        lambda f: saved(f, "a.tif", write_tiff, grey()),
        RAW,
        "^image.shape, image.dtype: remove them, a .tif file tells its own sh",
    ),
    "dataset of raw": (
        raw,
        {**RAW, "dataset": "grey"},
        "image.dataset: remove it, not of a .raw file; .*pore_above, image.shape",
    ),
    "array": (lambda f: grey(), {"dtype": "uint8"}, "image.dtype: remove it, an array tells its"),
    "row": (lambda f: grey()[0, 0], {}, r"the array has shape \(6,\); accepted: three axes"),
    "row of npy": (lambda f: saved(f, "a.npy", np.save, grey()[0, 0]), {}, "accepted: three axes"),
    "complex npy": (
        lambda f: saved(f, "a.npy", np.save, grey("complex64")),
        {},
        "values of type complex64",
    ),
    "empty npy": (lambda f: saved(f, "a.npy", np.save, grey()[:0]), {}, "no voxel at all"),
    "colours": (
        lambda f: saved(f, "a.tif", tifffile.imwrite, np.zeros((5, 6, 3), np.uint8)),
        {},
        "accepted: one stack of grey pages",
    ),
    "four axes": (
        lambda f: saved(f, "a.tif", write_tiff, np.zeros((2, 4, 5, 6), "u1")),
        {},
        "accepted: one stack of grey pages",
    ),
    "flat data set": (
        lambda f: saved(f, "a.h5", write_h5, grey()),
        {"dataset": "entry/angles"},
        r"entry/angles has shape \(3,\); accepted: three axes",
    ),
    "flat hdf5": (lambda f: saved(f, "a.h5", write_h5, grey()[0]), {}, "image.dataset .* none"),
    "row of zarr": (
        lambda f: saved(f, "a.zarr", write_zarr, grey()[0, 0]),
        {},
        "accepted: three axes",
    ),
    "data set of array": (
        lambda f: saved(f, "a.zarr", write_zarr, grey()),
        {"dataset": "grey"},
        "image.dataset 'grey' is not in .* none",
    ),
    "no zarr": (lambda f: (f / "a.zarr").mkdir() or f / "a.zarr", {}, "cannot be read"),
}
BROKEN = {
    f"broken {s}": (lambda f, s=s: raw(f, suffix=s), {}, "cannot be read")
    for s in (".tif", ".npy", ".h5")
}


@pytest.mark.parametrize(
    ("make", "options", "message"), [*MISTAKES.values(), *BROKEN.values()], ids=[*MISTAKES, *BROKEN]
)
def test_mistakes_are_told_in_one_line(tmp_path, make, options, message):
    with refused(message) as caught:
        open_image(make(tmp_path), **options)
    assert str(caught.value).startswith("image.")


@pytest.mark.parametrize("name", ["a.raw", "a.npy", "an array"])
def test_voxels_that_are_no_numbers_are_refused(tmp_path, name):
    values, options = grey("float32"), {}
    values[6, 4, 5] = np.nan
    source = values if name == "an array" else tmp_path / name
    if name == "a.npy":
        np.save(source, values)
    elif name == "a.raw":
        values.tofile(source)
        options = {"shape": SHAPE, "dtype": "float32"}
    image = open_image(source, **options)
    # What is not used does not matter.
    assert_boxes(image, values != 0, [Box((0, 0, 0), (6, 5, 6))])
    with pytest.raises(InputError, match=r"image.path: .* not a number \(NaN\); accepted"):
        image.read(whole(SHAPE))


def test_what_decodes_a_compressed_tiff_is_named():
    with (
        pytest.raises(InputError, match="; pip install imagecodecs, or save it uncompressed"),
        readable("a.tif"),
    ):
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")


@pytest.mark.parametrize("kind", ["npy", "stack", "plain stack", "compressed stack", "hdf5"])
def test_truncated_files_are_told_in_one_line(tmp_path, kind):
    name, write = WRITERS[kind]
    write(tmp_path / name, grey("uint16"))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) - 300])
    with refused(r"^image.path: .*a\..* cannot be read"):
        open_image(tmp_path / name).read(whole(SHAPE))


def test_boxes_beyond_the_image_are_refused():
    with pytest.raises(InputError, match="no box from"):
        open_image(grey()).read(Box((0, 0, 0), (7, 5, 7)))


THRESHOLDS = [
    ({"pore_below": 3}, lambda v: v < 3),
    ({"pore_above": 0.5}, lambda v: v > 0.5),
    ({"pore_above": np.int64(1), "pore_below": np.float32(3.0)}, lambda v: (v > 1) & (v < 3)),
]


@pytest.mark.parametrize(("options", "is_pore"), THRESHOLDS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", ">i2"])
def test_grey_values_beyond_a_threshold_are_pore(options, is_pore, dtype):
    values = grey(dtype)
    image = open_image(values, **options)
    assert_boxes(image, is_pore(values))
    image.check_values()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pore_below": "3"}, "image.pore_below is '3'; accepted: a finite number"),
        ({"pore_above": np.nan}, "image.pore_above is nan; accepted: a finite number"),
        ({"pore_above": 3, "pore_below": 2}, "image.pore_above is 3; accepted: less than image.po"),
        ({"pore_above": 3, "pore": 1}, "image.pore, image.pore_above: give values or thresholds"),
    ],
)
def test_thresholds_that_are_none_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        open_image(grey(), **options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1], None),
        ([0, 255], None),
        ([0, -3.5], None),
        ([7], None),
        ([0, 17, 25], "voxels of 17 and of 25, not only of 0"),
        ([1, 2], "voxels of 1 and of 2, not only of 0"),
        ([-1, 1], "voxels of -1 and of 1, not only of 0"),
    ],
)
def test_images_of_several_values_need_to_be_told_which_are_pore(values, message):
    image = np.resize(np.array(values), (5, 6, 7))
    plain, segmented = open_image(image), open_image(image, pore=1)
    for one in (plain, segmented):
        one.read(whole(image.shape))
    segmented.check_values()
    if message is None:
        plain.check_values()
    else:
        with pytest.raises(InputError, match=f"image.path: the array has {message}.*pore_below or"):
            plain.check_values()


@pytest.mark.slow
@given(data=st.data())
def test_any_box_of_slices_is_that_of_the_array(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("scan")
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5)))
    values = grey(data.draw(st.sampled_from(DTYPES)), shape)
    packed = data.draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0]))
    first = data.draw(st.sampled_from([0, 1, 95]))
    for number, (plane, is_packed) in enumerate(zip(values, packed, strict=True), first):
        options = {"compression": "zlib"} if is_packed else {"byteorder": ">"}
        write_tiff(folder / f"rock {number}.tif", plane, **options)
    assert_boxes(open_image(folder), values != 0, [data.draw(boxes_of(shape))])


@pytest.mark.parametrize(
    "names",
    [
        ["s9.tif", "s10.tif", "s11.TIF"],
        ["Slice_1.tif", "slice_02.tiff", "slice_3.tif"],
        ["b_2um_0099.tif", "b_2um_0100.tif", "b_2um_0101.tif"],
        ["001_z=0.90um.tif", "002_z=1.00um.tif", "003_z=1.10um.tif"],
        ["2024-12-31 23.59 7.tif", "2025-01-01 00.05 8.tif", "2025-01-01 00.11 9.tif"],
    ],
)
def test_slices_are_in_the_order_of_their_numbers(tmp_path, names):
    values = grey(shape=(3, 5, 6))
    for name, plane in reversed(list(zip(names, values, strict=True))):
        write_tiff(tmp_path / name, plane)
    for other in ("notes.txt", "._s9.tif", "s12.png", "s12.tif.bak", "s9", "preview.raw"):
        (tmp_path / other).write_text("rock")
    (tmp_path / "s13.tif").mkdir()
    assert_boxes(open_image(tmp_path), values != 0, [whole(values.shape)])


NAMES = {
    "none": (["a.png", "notes.txt"], "is a folder without slices; accepted: a TIFF file for each"),
    "gap": (["s1.tif", "s2.tif", "s4.tif"], "no slice 3, between 's2.tif' and 's4.tif'; accepted"),
    "gaps": (["s08.tif", "s12.tif", "s14.tif"], "no slice 9, between 's08.*' and 's12.*, and 3 mo"),
    "gap of one of two": (["1_z0.1.tif", "3_z0.3.tif", "4_z0.4.tif"], "no slice 2, between"),
    "same number": (["s1.tif", "s01.tif"], "'s01.tif' and 's1.tif', which have one number"),
    "same but for the suffix": (["s1.tif", "s1.tiff"], "'s1.tif' and 's1.tiff', which have one"),
    "two series": (["a1.tif", "a2.tif", "b1.tif"], "'a1.tif' and 'b1.tif', whose names differ by"),
    "a preview": (["all.tif", "a1.tif", "a2.tif"], "'a1.tif' and 'all.tif', whose names differ by"),
    "no counter": (["1_1.tif", "1_2.tif", "2_1.tif"], "'1_1.tif', '1_2.tif' and so on, in which"),
}


@pytest.mark.parametrize(("names", "message"), NAMES.values(), ids=NAMES)
def test_names_that_tell_no_series_are_refused(tmp_path, names, message):
    for name in names:
        write_tiff(tmp_path / name, grey()[0]) if "tif" in name else (tmp_path / name).touch()
    with refused(f"^image.path: {tmp_path} .*{message}"):
        open_image(tmp_path)


UNLIKE = {
    "size": (lambda p: write_tiff(p, grey()[0][:, :4]), "is of 5 x 4 .*, but .*slice_0.tif of 5 x"),
    "type": (
        lambda p: write_tiff(p, grey("int8")[0]),
        "is of .*, int8, but .*slice_0.tif of .*, uint8",
    ),
    "pages": (lambda p: write_tiff(p, grey()), "has 7 pages; accepted: one in each file"),
    "colours": (lambda p: tifffile.imwrite(p, np.zeros((5, 6, 3), "u1")), "holds YXS"),
    "empty": (lambda p: p.write_bytes(b""), "cannot be read"),
    "short": (lambda p: p.write_bytes(p.read_bytes()[:-8]), "cannot be read"),
    "pipe": (lambda p: p.unlink() or os.mkfifo(p), "is no file, but a device"),
    "lost": (lambda p: p.unlink(), "cannot be read .*No such file"),
    "lost link": (lambda p: p.unlink() or p.symlink_to("nowhere"), "cannot be read .*No such file"),
}


@pytest.mark.parametrize(("spoil", "message"), UNLIKE.values(), ids=UNLIKE)
def test_a_slice_unlike_the_others_is_named_where_it_is_read(tmp_path, spoil, message):
    write_slices(tmp_path, grey())
    image = open_image(tmp_path)
    spoil(tmp_path / "slice_4.tif")
    # Files that are not needed are not opened.
    assert_boxes(image, grey() != 0, [Box((0, 0, 0), (4, 5, 6)), Box((5, 0, 0), (7, 5, 6))])
    with refused(f"^image.path: .*slice_4.tif {message}"):
        image.read(whole(SHAPE))
