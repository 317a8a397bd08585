"""How arrays lie in files: as few files as their size wants, each of one writer."""

import math

import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import slipstream
from flows import make_case
from slipstream.engine.decomposition import Box, grid_boxes, process_grid, slabs
from slipstream.engine.device import HostDevice
from slipstream.engine.fields import Field
from slipstream.files import FieldStore, open_checkpoint, read_field, write_checkpoint
from slipstream.files.stored_arrays import Aggregation, file_box, file_indices, stored_layout
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case
from slipstream.show.plot_command import plot
from small_shards import set_small_limits

LARGE = (4096,) * 3
# Those that 2/3 of them leave, half of them along x.
MODES = (2731, 2731, 1366)
DIMS = ("z", "y", "x")


def pairs(boxes):
    return [(box.start, box.shape) for box in boxes]


@pytest.mark.parametrize("ranks", [1, 64, 96, 1000, 1024, 8192])
@pytest.mark.parametrize("how", ["slabs", "modes", "bricks"])
def test_4096_cubed_has_at_most_a_thousand_files(ranks, how):
    shape, item = (MODES, 16) if how == "modes" else (LARGE, 8)
    boxes = (
        grid_boxes(shape, process_grid(ranks, shape))
        if how == "bricks"
        else slabs(shape, int(how == "modes"), ranks)
    )
    layout = stored_layout(shape, pairs(boxes), item)
    assert layout.files(shape) <= 1024
    assert math.prod(layout.file) * item <= 512 * 2**20
    # A plane along any axes is read without reading everything.
    assert math.prod(layout.chunk) * item <= 2**20
    assert all(size % part == 0 for size, part in zip(layout.file, layout.chunk, strict=True))
    rounds = Aggregation(shape, boxes, layout.file, item).rounds
    if rounds is not None:
        # Nobody writes much more than others.
        writers = min(layout.files(shape), sum(box.size > 0 for box in boxes))
        assert len(rounds) <= 2 * math.ceil(layout.files(shape) / writers)


@pytest.mark.parametrize("points, ranks", [(12288, 1024), (18432, 3072), (18432, 18432)])
@pytest.mark.parametrize("how", ["slabs", "pencils"])
def test_the_largest_arrays_have_a_file_for_each_writer_and_512_mib(points, ranks, how):
    shape = (points,) * 3
    grid = (ranks, 1, 1) if how == "slabs" else (96, ranks // 96, 1)
    if points % grid[1]:
        grid = (32, 32, 1)
    boxes = grid_boxes(shape, grid)
    layout = stored_layout(shape, pairs(boxes), 4)
    assert math.prod(layout.file) * 4 <= 512 * 2**20
    assert layout.files(shape) <= ranks * math.ceil(points**3 * 4 / ranks / (512 * 2**20))
    # No file has parts of two ranks.
    own = boxes[0].shape
    assert all(n == 1 or own[i] % layout.file[i] == 0 for i, n in enumerate(grid))


@pytest.mark.parametrize("points", [32, 256, 1024])
@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_arrays_of_few_files_have_a_file_for_each_chunk(points, ranks):
    shape = (points,) * 3
    layout = stored_layout(shape, pairs(slabs(shape, 0, ranks)), 8)
    assert not layout.is_sharded
    assert Aggregation(shape, slabs(shape, 0, ranks), layout.file, 8).rounds is None


def test_boxes_that_begin_anywhere_do_not_make_a_file_of_each_element():
    boxes = grid_boxes((100, 100, 100), (3, 7, 3))
    layout = stored_layout((100, 100, 100), pairs(boxes), 8)
    assert layout.files((100, 100, 100)) == 1


cuts = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@given(along=st.tuples(cuts, cuts, cuts), item=st.sampled_from([1, 4, 16]), data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_file_has_one_writer_and_every_element_is_in_one(along, item, data):
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_small_limits(monkeypatch.setattr)
        ends = [np.cumsum([0, *sizes]).tolist() for sizes in along]
        shape = tuple(one[-1] for one in ends)
        boxes = [
            Box((a, b, c), (d, e, f))
            for a, d in zip(ends[0], ends[0][1:], strict=False)
            for b, e in zip(ends[1], ends[1][1:], strict=False)
            for c, f in zip(ends[2], ends[2][1:], strict=False)
        ]
        if not math.prod(shape):
            return
        boxes = data.draw(st.permutations(boxes))
        layout = stored_layout(shape, pairs(boxes), item)
        rounds = Aggregation(shape, boxes, layout.file, item).rounds or [boxes]
    writer = {}
    actual = np.zeros(shape, int)
    for targets in rounds:
        assert len(targets) == len(boxes)
        for rank, target in enumerate(targets):
            actual[target.slices()] += 1
            for index in file_indices(target, layout.file) if target.size else ():
                assert writer.setdefault(index, rank) == rank
                inside = file_box(index, layout.file).intersect(Box((0, 0, 0), shape))
                assert inside.intersect(target) == inside
    assert (actual == 1).all()
    assert len(writer) == layout.files(shape)


def values_of(shape, dtype):
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return (numbers * (1 + 2j) if np.dtype(dtype).kind == "c" else numbers).astype(dtype)


@pytest.mark.parametrize("shape", [(16, 16, 32), (17, 23, 30), (3, 5, 211)])
@pytest.mark.parametrize("dtype", ["float32", "complex128", "int64"])
def test_zarr_and_xarray_read_shards(tmp_path, monkeypatch, shape, dtype):
    set_small_limits(monkeypatch.setattr)
    values = values_of(shape, dtype)
    store = FieldStore(tmp_path / "f.zarr")
    for time in (0.0, 1.0):
        store.append(time, [Field("u", DIMS, shape, (0, 0, 0), values * int(time + 1))])
    array = zarr.open_array(tmp_path / "f.zarr", path="u", mode="r")
    assert array.shards is not None
    np.testing.assert_array_equal(array[1], 2 * values)
    with xarray.open_zarr(tmp_path / "f.zarr") as data:
        np.testing.assert_array_equal(data.u[0, :, 2], values[:, 2])
    box = read_field(tmp_path / "f.zarr", "u", (1, 1, 2, 3), (1, 2, 3, 20))
    np.testing.assert_array_equal(box[0], 2 * values[1:3, 2:5, 3:23])
    files = [path for path in (tmp_path / "f.zarr" / "u").iterdir() if path.name != "zarr.json"]
    assert all(path.is_file() for path in files)
    layout = stored_layout(shape, [((0, 0, 0), shape)], values.itemsize)
    assert len(files) == 2 * layout.files(shape)


def test_a_part_of_a_shard_is_read_without_the_rest(tmp_path, monkeypatch):
    set_small_limits(monkeypatch.setattr)
    values = values_of((32, 32, 32), "float64")
    FieldStore(tmp_path / "f.zarr").write([Field("u", DIMS, values.shape, (0, 0, 0), values)])
    read = []

    class Watched(zarr.storage.LocalStore):
        async def get(self, *arguments, **options):
            found = await super().get(*arguments, **options)
            read.append(0 if found is None else len(found))
            return found

    array = zarr.open_array(Watched(tmp_path / "f.zarr", read_only=True), path="u", mode="r")
    read.clear()
    assert array[3, 4, 5] == values[3, 4, 5]
    chunk = math.prod(array.chunks) * 8
    shard = math.prod(array.shards) * 8
    assert sum(read) <= chunk + 16 * shard // chunk + 4 < shard


def test_states_with_shards_are_checked_as_others(tmp_path, monkeypatch):
    set_small_limits(monkeypatch.setattr)
    values = values_of((17, 23, 30), "complex128")
    state = Field("u_hat", ("kz", "ky", "kx"), values.shape, (0, 0, 0), values)
    for step in (1, 2):
        path = write_checkpoint(tmp_path, [state], step=step, time=0.1, case="")
    np.testing.assert_array_equal(open_checkpoint(tmp_path).read("u_hat"), values)
    shards = sorted(path.glob("u_hat/c.*"))
    assert len(shards) > 1
    whole = shards[-1].read_bytes()
    for changed, fault in (
        (whole[:-1], "bytes, not"),
        (bytes([whole[0] ^ 1]) + whole[1:], "its checksum differs"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "its checksum differs"),
    ):
        shards[-1].write_bytes(changed)
        found = open_checkpoint(tmp_path)
        assert found.step == 1
        assert fault in found.warnings[0]
        assert f"{shards[-1].name} (array u_hat, shard" in found.warnings[0]
    shards[-1].unlink()
    assert "is missing" in open_checkpoint(tmp_path).warnings[0]


def test_a_store_goes_on_with_its_shards(tmp_path, monkeypatch):
    set_small_limits(monkeypatch.setattr)
    values = values_of((20, 24, 30), "float64")
    store = FieldStore(tmp_path / "f.zarr")
    for time in (0.0, 1.0, 2.0):
        store.append(time, [Field("u", DIMS, values.shape, (0, 0, 0), values + time)])
    monkeypatch.undo()
    onward = FieldStore(tmp_path / "f.zarr", until=1.0)
    assert onward.times == [0.0, 1.0]
    onward.go_on()
    assert not list((tmp_path / "f.zarr" / "u").glob("c.2.*"))
    onward.append(3.0, [Field("u", DIMS, values.shape, (0, 0, 0), values + 3)])
    array = zarr.open_array(tmp_path / "f.zarr", path="u", mode="r")
    np.testing.assert_array_equal(array[...], [values, values + 1, values + 3])


@pytest.mark.slow
def test_runs_with_shards_are_opened_drawn_and_go_on(tmp_path, monkeypatch):
    set_small_limits(monkeypatch.setattr)
    settings = ("grid.points=12", "time.end=0.1", "time.step=0.05", "output.fields_interval=0.1")
    device, quiet, folder = HostDevice(threads=1), Console(quiet=True), tmp_path / "run"
    run_case(make_simulation(make_case(*settings), None, device), folder, quiet)
    monkeypatch.undo()
    resume_run(folder, ["time.end=0.2"], None, device, quiet)
    run = slipstream.open(folder)
    np.testing.assert_allclose(run.times, [0, 0.1, 0.2])
    array = zarr.open_array(folder / "fields.zarr", path="velocity_x", mode="r")
    assert array.shards is not None
    np.testing.assert_array_equal(run.fields.velocity_x, array[...])
    assert np.isfinite(array[...]).all()
    assert plot(folder, tmp_path / "plots", field="velocity_x")[0].is_file()
