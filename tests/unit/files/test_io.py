import asyncio

import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.files import (
    FieldStore,
    Series,
    open_checkpoint,
    read_field,
    spectrum_fields,
    write_checkpoint,
    zarr_store,
)
from slipstream.files.stored_arrays import aligned_chunks
from slipstream.files.time_series import whole_field

SHAPE = (4, 5, 6)
DIMS = ("z", "y", "x")
PROTOTYPE = default_buffer_prototype()
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def field(name="u", values=None, **attributes):
    values = np.random.default_rng(0).random(SHAPE) if values is None else values
    coordinates = {dim: 0.5 * np.arange(n) for dim, n in zip(DIMS, SHAPE, strict=True)}
    return Field(name, DIMS, SHAPE, (0, 0, 0), values, coordinates, attributes)


def test_snapshots_are_a_labelled_data_set(tmp_path):
    store = FieldStore(tmp_path / "fields.zarr", attributes={"title": "test"})
    first, second = (np.random.default_rng(i).random(SHAPE) for i in (1, 2))
    store.append(0.0, [field("u", first, long_name="velocity"), field("v", -first)])
    store.append(0.5, [field("u", second), field("v", -second)])
    data = xarray.open_zarr(tmp_path / "fields.zarr")
    assert data["u"].dims == ("time", "z", "y", "x")
    assert data.attrs["title"] == "test"
    assert data["u"].attrs["long_name"] == "velocity"
    np.testing.assert_array_equal(data["time"], [0.0, 0.5])
    np.testing.assert_array_equal(data["x"], 0.5 * np.arange(6))
    np.testing.assert_array_equal(data["u"], [first, second])
    np.testing.assert_array_equal(data["v"].sel(time=0.5), -second)


def test_files_are_read_as_zarr_reads_them(tmp_path):
    """Small and large files, a folder, a missing file, and parts of files."""
    (tmp_path / "small").write_bytes(b"0123456789")
    (tmp_path / "large").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / "folder").mkdir()
    keys = ("small", "large", "folder", "nothing", "small/within")
    cases = [(key, part) for key in keys for part in (None, RangeByteRequest(3, 7))]

    async def read(kind):
        store = kind(tmp_path)
        found = [await store.get(*one, byte_range=part) for one, part in asked]
        return [None if one is None else one.to_bytes() for one in found]

    asked = [((key, prototype), part) for key, part in cases for prototype in (PROTOTYPE, None)]
    mine, theirs = asyncio.run(read(zarr_store._WholeFiles)), asyncio.run(read(LocalStore))
    assert mine == theirs
    assert mine[0] == b"0123456789" and mine[2] == b"3456" and mine[-1] is None


def test_a_group_that_has_grown_is_described_as_zarr_would(tmp_path):
    store = FieldStore(tmp_path / "grown.zarr", attributes={"title": "grown"})
    for time in range(3):
        store.append(time, [whole_field("one", "first", np.ones(4), {"place": np.arange(4.0)})])
    path = tmp_path / "grown.zarr" / "zarr.json"
    written = path.read_bytes()
    with pytest.warns(UserWarning, match="[Cc]onsolidated"):
        zarr.consolidate_metadata(path.parent)
    assert path.read_bytes() == written
    assert xarray.open_zarr(path.parent).one.shape == (3, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int64"])
def test_dtypes_survive(tmp_path, dtype):
    values = np.arange(120).reshape(SHAPE).astype(dtype)
    FieldStore(tmp_path / "a.zarr").write([field("a", values)])
    read = read_field(tmp_path / "a.zarr", "a")
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)


def test_boxes_are_read_and_empty_ones_are_legal(tmp_path):
    whole = field()
    FieldStore(tmp_path / "a.zarr").write([whole])
    box = read_field(tmp_path / "a.zarr", "u", (1, 2, 3), (2, 3, 1))
    np.testing.assert_array_equal(box, whole.data[1:3, 2:5, 3:4])
    assert read_field(tmp_path / "a.zarr", "u", (4, 0, 0), (0, 5, 6)).shape == (0, 5, 6)


def test_reading_what_is_not_there_is_an_input_error(tmp_path):
    FieldStore(tmp_path / "a.zarr").write([field()])
    with pytest.raises(InputError, match="no array 'w'"):
        read_field(tmp_path / "a.zarr", "w")
    with pytest.raises(InputError, match="no array"):
        read_field(tmp_path / "absent.zarr", "u")
    with pytest.raises(InputError, match="no box"):
        read_field(tmp_path / "a.zarr", "u", (3, 0, 0), (2, 5, 6))


def test_empty_parts_are_legal(tmp_path):
    empty = Field("e", ("z",), (0,), (0,), np.empty(0))
    FieldStore(tmp_path / "a.zarr").write([empty])
    assert read_field(tmp_path / "a.zarr", "e").shape == (0,)


def test_fields_that_contradict_themselves_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        Field("u", DIMS, SHAPE, (0, 0), np.zeros(SHAPE))
    with pytest.raises(ValueError, match="beyond"):
        Field("u", DIMS, SHAPE, (1, 0, 0), np.zeros(SHAPE))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    across=st.integers(1, 300),
    limit=st.integers(1, 10_000),
)
def test_chunks_never_hold_elements_of_two_ranks(sizes, across, limit):
    offsets = np.cumsum([0, *sizes])
    shape = (int(offsets[-1]), across)
    parts = [((int(o), 0), (n, across)) for o, n in zip(offsets, sizes, strict=False)]
    chunk = aligned_chunks(shape, parts, item_bytes=8, maximum_bytes=limit)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    for first in range(0, shape[0], chunk[0]):
        assert len(set(owners[first : first + chunk[0]])) == 1
    assert min(chunk) >= 1
    assert chunk[0] * chunk[1] * 8 <= max(limit, 8)


def test_chunks_are_whole_parts_when_they_are_small_enough():
    parts = [((start, 0, 0), (16, 64, 64)) for start in range(0, 64, 16)]
    assert aligned_chunks((64, 64, 64), parts, 8) == (16, 64, 64)
    parts = [((start, 0, 0), (128, 512, 512)) for start in range(0, 512, 128)]
    assert aligned_chunks((512, 512, 512), parts, 8) == (8, 512, 512)


def test_checkpoint_can_be_read_back_and_the_one_before_is_kept(tmp_path):
    for step in (3, 4):
        state = Field("state", ("k",), (5,), (0,), step * np.arange(5) * (1 + 2j))
        write_checkpoint(tmp_path, [state], step=step, time=0.1 * step, case="text")
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.step, checkpoint.time, checkpoint.case) == (4, 0.4, "text")
    assert checkpoint.shapes == {"state": (5,)}
    np.testing.assert_array_equal(checkpoint.read("state", (1,), (2,)), [4 + 8j, 8 + 16j])
    states = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert sorted(states) == ["000000003.zarr", "000000004.zarr"]
    assert open_checkpoint(tmp_path / "checkpoints" / "000000003.zarr").step == 3


def test_failed_checkpoint_leaves_the_last_one(tmp_path):
    state = Field("state", ("k",), (5,), (0,), np.arange(5.0))
    write_checkpoint(tmp_path, [state], step=1, time=0.1, case="")

    def failing():
        yield state
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path, failing(), step=2, time=0.2, case="")
    assert open_checkpoint(tmp_path).step == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000001.zarr"]


def test_missing_checkpoint_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no checkpoint"):
        open_checkpoint(tmp_path)


def test_what_is_no_checkpoint_is_named_with_what_was_expected(tmp_path):
    path = tmp_path / "checkpoints" / "000000001.zarr"
    path.mkdir(parents=True)
    for _ in range(2):
        for place in (tmp_path, path.parent, path):
            with pytest.raises(InputError, match=r"^initial.restart: .*manifest.json is missing"):
                open_checkpoint(place)
        zarr.create_group(store=path, overwrite=True)
    with pytest.raises(InputError, match=r"holds no checkpoint; expected"):
        open_checkpoint(tmp_path / "old")


def test_series_is_on_disk_at_every_row_and_labelled(tmp_path):
    series = Series(tmp_path, {"energy": "kinetic energy"})
    series.append(0, 0.0, 0.1, {"energy": np.float64(1.0)})
    rows = (tmp_path / "diagnostics.csv").read_text().splitlines()
    assert "# energy: kinetic energy" in rows
    assert rows[-2:] == ["step,time,step_size,energy", "0,0.0,0.1,1.0"]
    series.append(1, 0.1, 0.1, {"energy": 1 / 3})
    assert (tmp_path / "diagnostics.csv").read_text().endswith(f"1,0.1,0.1,{1 / 3!r}\n")
    series.close()
    series.close()
    data = xarray.open_zarr(tmp_path / "diagnostics.zarr")
    assert data["energy"].attrs["long_name"] == "kinetic energy"
    np.testing.assert_array_equal(data["energy"].sel(time=0.1), 1 / 3)


def test_spectra_share_a_wavenumber_axis_only_if_it_is_the_same(tmp_path):
    short, long = np.arange(3.0), np.arange(5.0)
    shared = {"a": (long, long), "b": (long, 2 * long)}
    assert [one.dims for one in spectrum_fields(shared, {})] == [("wavenumber",)] * 2
    different = {"a": (long, long), "b": (short, short)}
    store = FieldStore(tmp_path / "spectra.zarr")
    store.append(0.0, spectrum_fields(different, {"a": "spectrum a"}))
    data = xarray.open_zarr(tmp_path / "spectra.zarr")
    assert data["b"].dims == ("time", "wavenumber_b")
    assert data["a"].attrs["long_name"] == "spectrum a"
