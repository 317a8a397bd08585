"""Files of others: what they lead to is not followed, and what they hold is not run.

Each of these files does something as soon as it is trusted: it creates a marker, lets values of
another file in, waits for ever, or fills the memory.
"""

import gzip
import io
import json
import os
import pickle
import zipfile
import zlib

import h5py
import numcodecs
import numpy as np
import pytest
import tifffile
import zarr

from flows import make_case, start
from launched_runs import enter
from own_models import own_models
from refusals import status_of
from slipstream.engine.decomposition import whole
from slipstream.engine.errors import InputError
from slipstream.files import write_checkpoint
from slipstream.files.foreign_files import foreign_arrays
from slipstream.files.voxel_images import open_image

SHAPE = (16, 16, 16)
SECRET = np.full(SHAPE, 7, np.uint8)
MODEL = """
from pathlib import Path
from slipstream.equations.models import hd
Path({marker!r}).write_text("was here")
flow = hd
"""


class Creates:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture
def marker(tmp_path):
    """The path of a file that nothing may create."""
    path = tmp_path / "marker"
    yield path
    assert not path.exists()


@pytest.fixture(scope="module")
def state(tmp_path_factory, device):
    """Return the state of a flow, and its case."""
    simulation = start(device)
    return list(simulation.checkpoint()), simulation.case


def image_of(path, **options):
    image = open_image(path, **options)
    return image.read(whole(image.shape))


def initial_of(device, path):
    return start(device, f"initial={{ flow = 'file', path = '{path}' }}")


def old_zarr(path, shape, chunk, **description):
    """Write an array of zarr's format 2 of one chunk, by hand."""
    path.mkdir(parents=True)
    described = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": shape,
        "dtype": "|u1",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    (path / ".zarray").write_text(json.dumps({**described, **description}))
    (path / ".".join("0" * len(shape))).write_bytes(chunk)
    return path


def new_zarr(path, values, **options):
    array = zarr.create_array(store=path, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
    return path


def test_model_of_a_folder_is_not_imported(device, marker, tmp_path, state):
    fields, case = state
    (tmp_path / "theirs.py").write_text(MODEL.format(marker=str(marker)))
    text = case.to_toml().replace('"hd"', f'"{tmp_path}/theirs.py:flow"')
    write_checkpoint(tmp_path, fields, step=1, time=0.01, case=text)
    restart = f"initial={{ restart = '{tmp_path}' }}"
    with pytest.raises(InputError, match=r"model '.*theirs.py:flow', this case of 'hd'; .* names"):
        start(device, restart)
    model_of_test = own_models(MODEL.format(marker=str(marker) + "-of-mine"), tmp_path)("flow")
    with pytest.raises(
        InputError, match="is imported only if equation.model of this case names it"
    ):
        start(
            device,
            restart,
            "equation.viscosity=0.01",
            model_of_test[0].replace(" }", ", viscosity=0.01 }"),
        )


def test_model_that_the_case_names_goes_on_from_where_the_file_was_before(device, tmp_path, state):
    fields, case = state
    path = tmp_path / "theirs.py"
    path.write_text(MODEL.format(marker=str(tmp_path / "mine")))
    text = case.to_toml().replace('"hd"', '"elsewhere/theirs.py:flow"')
    write_checkpoint(tmp_path, fields, step=1, time=0.01, case=text)
    again = start(
        device,
        f"initial={{ restart = '{tmp_path}' }}",
        f"equation={{ model = '{path}:flow', viscosity = 0.01 }}",
    )
    assert again.step == 1


@pytest.mark.parametrize(
    "wrong", ["[[[" * 5000, "a = " + "9" * 5000, "solver = 'spectral'", "\x1b]0;title\x07"]
)
def test_case_of_a_folder_that_is_none_is_refused(device, tmp_path, state, wrong):
    write_checkpoint(tmp_path, state[0], step=1, time=0.01, case=wrong)
    with pytest.raises(InputError, match="^initial.restart: ") as caught:
        start(device, f"initial={{ restart = '{tmp_path}' }}")
    assert str(caught.value).isprintable()


PICKLED = {
    "filter": {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 4}]},
    "compressor": {"dtype": "|O", "compressor": {"id": "pickle", "protocol": 4}},
    "numbers": {"filters": [{"id": "pickle", "protocol": 4}]},
    # Zarr takes these for texts, and then decodes them.
    "texts": {
        "dtype": "|O",
        "fill_value": "",
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}],
    },
    "packed texts": {
        "dtype": "|O",
        "fill_value": "",
        "filters": [{"id": "vlen-utf8"}],
        "compressor": {"id": "pickle", "protocol": 4},
    },
}


@pytest.mark.parametrize("description", PICKLED.values(), ids=PICKLED)
def test_zarr_with_pickles_is_refused(device, marker, tmp_path, monkeypatch, description):
    # As in versions before 0.16.6, and for whoever has to read such data elsewhere.
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    chunk = pickle.dumps(Creates(marker))
    image = old_zarr(tmp_path / "image.zarr", SHAPE, chunk, **description)
    with pytest.raises(ValueError, match="accepted: "):
        foreign_arrays(image)[""].open()[...]
    with pytest.raises(InputError, match="cannot be read .*accepted: "):
        image_of(image)
    fields = tmp_path / "fields"
    old_zarr(fields / "velocity_x", SHAPE, chunk, **description)
    (fields / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(InputError, match=r"^initial.path: .*accepted: "):
        initial_of(device, fields)


def whole_chunk(shape):
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}}}


def test_zarr_of_a_codec_or_type_that_is_not_listed_is_refused(tmp_path):
    path = new_zarr(tmp_path / "a.zarr", SECRET)
    described = json.loads((path / "zarr.json").read_text())
    for change in (
        {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
        {"codecs": [{"name": "vlen-utf8"}]},
        {"codecs": [{"name": "gzip"}, {"name": "zstd"}]},
        {"data_type": "string"},
        {"data_type": {"name": "struct", "configuration": {"fields": []}}},
        {"storage_transformers": [{"name": "other"}]},
        whole_chunk([1 << 20] * 3),
    ):
        (path / "zarr.json").write_text(json.dumps({**described, **change}))
        with pytest.raises(InputError, match=r"accepted: "):
            open_image(path)
    for change in ({}, {"shape": [3000] * 3, **whole_chunk([3000] * 3)}, whole_chunk([512] * 3)):
        (path / "zarr.json").write_text(json.dumps({**described, **change}))
        open_image(path)
    (path / "zarr.json").write_text(json.dumps(described))
    assert image_of(path).all()


def test_numpy_files_with_pickles_are_refused(device, marker, tmp_path):
    objects = np.full(SHAPE, Creates(marker), dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        image_of(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", velocity_x=objects)
    with pytest.raises(InputError, match="real numbers"):
        initial_of(device, tmp_path / "a.npz")


@pytest.fixture
def leading_elsewhere(tmp_path):
    """HDF5 files whose data set is in another one, each by another way."""
    other, raw = tmp_path / "other.h5", tmp_path / "secret"
    for name, values in (("data", SECRET), ("velocity_x", SECRET.astype(float))):
        with h5py.File(other, "a") as file:
            file[name] = values
        raw.write_bytes(SECRET.astype(float).tobytes())
        for way in ("link", "group", "soft", "virtual", "external"):
            with h5py.File(tmp_path / f"{way}.h5", "a") as file:
                if way == "link":
                    file[name] = h5py.ExternalLink(str(other), name)
                elif way == "group":
                    file.require_group("x").attrs["a"] = 1
                    file[f"x/of_{name}"] = h5py.ExternalLink(str(other), "/")
                    file[name] = h5py.SoftLink(f"/x/of_{name}/{name}")
                elif way == "soft":
                    file[f"far_{name}"] = h5py.ExternalLink(str(other), name)
                    file[name] = h5py.SoftLink(f"far_{name}")
                elif way == "virtual":
                    layout = h5py.VirtualLayout(shape=SHAPE, dtype=values.dtype)
                    layout[...] = h5py.VirtualSource(str(other), name, shape=SHAPE)
                    file.create_virtual_dataset(name, layout)
                else:
                    places = [(str(raw), 0, h5py.h5f.UNLIMITED)]
                    file.create_dataset(name, SHAPE, values.dtype, external=places)
    return [tmp_path / f"{way}.h5" for way in ("link", "group", "soft", "virtual", "external")]


def test_hdf5_that_leads_to_other_files_is_refused(device, leading_elsewhere):
    for path in leading_elsewhere:
        with pytest.raises(InputError, match="(not followed|not read)"):
            image_of(path, dataset="data")
        with pytest.raises(InputError, match=r"^initial.path: .*(not followed|not read)"):
            initial_of(device, path)


def test_hdf5_with_links_of_its_own_is_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/down"] = SECRET
        file["soft"] = h5py.SoftLink("/deep/down")
        file["round"] = h5py.SoftLink("round")
    assert image_of(tmp_path / "a.h5", dataset="/soft").all()
    with pytest.raises(InputError, match="'round' is not in"):
        image_of(tmp_path / "a.h5", dataset="round")


def test_tiff_that_describes_a_series_of_files_is_read_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("other.ome.tif", np.full((2, 8, 8), 9, np.uint8), ome=False)
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        '<Image ID="Image:0"><Pixels BigEndian="false" DimensionOrder="XYZCT" ID="Pixels:0" '
        'SizeC="1" SizeT="1" SizeX="8" SizeY="8" SizeZ="4" Type="uint8"><Channel ID="Channel:0:0"/>'
        '<TiffData IFD="0" FirstZ="0" PlaneCount="2"/><TiffData IFD="0" FirstZ="2" PlaneCount="2">'
        '<UUID FileName="other.ome.tif">urn:uuid:1</UUID></TiffData></Pixels></Image></OME>'
    )
    tifffile.imwrite(
        "a.ome.tif", np.ones((2, 8, 8), np.uint8), description=text, metadata=None, ome=False
    )
    assert open_image(tmp_path / "a.ome.tif").shape == (2, 8, 8)


@pytest.mark.parametrize(
    "name", ["a.raw", "a.npy", "a.tif", "a.h5", "a.npz", "a.zarr/c/0", "b.zarr/zarr.json"]
)
def test_pipes_are_not_waited_for(device, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "a.zarr/c/0":
        new_zarr(tmp_path / "a.zarr", SECRET)
        path = path.with_name("pipe")
    os.mkfifo(path)
    top = tmp_path / name.split("/")[0]
    if top.suffix != ".npz":
        options = {"shape": SHAPE, "dtype": "uint8"} if top.suffix == ".raw" else {}
        with pytest.raises(
            InputError, match="(a device or the like|link or a device|not a regular file)"
        ):
            image_of(top, **options)
    with pytest.raises(
        InputError, match="(a device or the like|link or a device|not a regular file)"
    ):
        initial_of(device, top)


def test_links_in_zarr_are_not_followed(tmp_path):
    path = new_zarr(tmp_path / "a.zarr", SECRET, compressors=None)
    chunk = next(one for one in (path / "c").rglob("*") if one.is_file())
    chunk.rename(tmp_path / "secret")
    chunk.symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="is a link or a device"):
        image_of(path)


HUGE = 40 << 20


def bombs():
    """Yield a name, and what writes an image of a few bytes that is huge when it is decoded."""

    def of_zarr(codec, content):
        def write(folder):
            path = new_zarr(folder / "a.zarr", SECRET, compressors=codec)
            chunk = next(one for one in (path / "c").rglob("*") if one.is_file())
            chunk.write_bytes(content())
            return path

        return write

    noise = np.random.default_rng(0).bytes(2 << 20)
    long_zip = gzip.compress(noise + bytes(HUGE))
    yield "gzip", of_zarr(zarr.codecs.GzipCodec(), lambda: long_zip)
    for name in ("zstd", "blosc"):
        codec = {"zstd": zarr.codecs.ZstdCodec, "blosc": zarr.codecs.BloscCodec}[name]()
        packed = {"zstd": numcodecs.Zstd, "blosc": numcodecs.Blosc}[name]().encode(bytes(HUGE))
        yield name, of_zarr(codec, lambda packed=packed: packed)

    def tiff(folder):
        path = folder / "a.tif"
        tifffile.imwrite(path, SECRET, photometric="minisblack", compression="zlib")
        with tifffile.TiffFile(path) as file:
            tag = file.pages.first.tags["StripByteCounts"]
            offset, counts = tag.valueoffset, file.pages.first.tags["StripOffsets"].valueoffset
        content = bytearray(path.read_bytes())
        packed = zlib.compress(noise + bytes(HUGE))
        size = tag.dtype.name == "LONG"
        content[offset : offset + 4] = len(packed).to_bytes(4, "little")
        content[counts : counts + 4] = len(content).to_bytes(4, "little")
        assert size or tag.dtype.name == "SHORT"
        path.write_bytes(bytes(content) + packed)
        return path

    yield "tiff", tiff


@pytest.mark.parametrize(
    ("name", "write"), list(bombs()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_more_bytes_than_voxels_are_not_decoded(tmp_path, name, write):
    with pytest.raises(InputError, match="more bytes than"):
        image_of(write(tmp_path))


def test_archive_is_read_only_where_the_shape_fits(device, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        head = io.BytesIO()
        description = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6, 10**5)}
        np.lib.format.write_array_header_1_0(head, description)
        archive.writestr("velocity_x.npy", head.getvalue() + bytes(99))
    with pytest.raises(InputError, match=r"has shape \(1000000, "):
        initial_of(device, tmp_path / "a.npz")
    shape = make_case().grid.points_xyz
    values = np.random.default_rng(1).standard_normal((3, *shape))
    for name, order in (("c", "C"), ("f", "F")):
        arrays = {"velocity_x": np.asarray(values[1], order=order)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    np.savez(tmp_path / "t.npz", velocity_x=values)
    alone, other = (initial_of(device, tmp_path / f"{name}.npz") for name in "cf")
    third = start(device, f"initial={{ flow = 'file', path = '{tmp_path}/t.npz', time = 1 }}")
    bits = [
        np.asarray(one.flow.device.to_host(one.flow.state)).tobytes()
        for one in (alone, other, third)
    ]
    assert bits[0] == bits[1] == bits[2]


def test_links_that_lead_round_are_refused(tmp_path, monkeypatch):
    for name in ("a.npy", "out"):
        (tmp_path / name).symlink_to(tmp_path / name)
    case = 'solver = "lattice"\n[image]\npath = "a.npy"\n[time]\nend = 2\n'
    folder = enter(tmp_path, monkeypatch)
    (folder / "case.toml").write_text(case)
    for out in ("fine", "out", "a.npy/out"):
        assert status_of("run", "case.toml", "--out", out) == 2
