"""Files shared by several ranks, and shards, written and read on any number of ranks."""

import math

import numpy as np
import pytest
import zarr

from slipstream.engine.decomposition import Box, recursive_bisection, slabs
from slipstream.engine.errors import RunError
from slipstream.engine.fields import Field
from slipstream.files import (
    FieldStore,
    durable_files,
    open_checkpoint,
    write_checkpoint,
    zarr_store,
)
from slipstream.files.array_files import read_array
from small_shards import set_small_limits

SHAPE = (23, 19, 26)
DIMS = ("z", "y", "x")


def bisected(ranks, seed=0):
    """Return boxes that begin anywhere."""
    draw = np.random.default_rng(seed)

    def weigh(boxes, axes):
        return [draw.random(box.shape[axis]) + 0.1 for box, axis in zip(boxes, axes, strict=True)]

    return recursive_bisection(SHAPE, ranks, weigh)


DIVISIONS = {
    "planes": lambda ranks: slabs(SHAPE, 0, ranks),
    "rows": lambda ranks: slabs(SHAPE, 1, ranks),
    "bricks": bisected,
    "first": lambda ranks: [Box((0, 0, 0), SHAPE), *[Box((0, 0, 0), (0, 0, 0))] * (ranks - 1)],
}


def whole(seed, dtype="float64"):
    return np.random.default_rng(seed).random(SHAPE).astype(dtype)


def field(values, boxes, rank, name="u"):
    box = boxes[rank]
    return Field(name, DIMS, SHAPE, box.start, np.ascontiguousarray(values[box.slices()]))


def number(comm):
    return 0 if comm is None else comm.rank


@pytest.fixture(params=["small", "as_ever"])
def limits(request, monkeypatch):
    if request.param == "small":
        set_small_limits(monkeypatch.setattr)
    return request.param


@pytest.mark.parametrize("how", DIVISIONS)
def test_any_boxes_are_written_whole(comm, ranks, shared_folder, limits, how):
    boxes, path = DIVISIONS[how](ranks), shared_folder / "f.zarr"
    store = FieldStore(path, comm)
    for time in (0, 1):
        both = [field(whole(time), boxes, number(comm))]
        both.append(field(whole(time + 2, "float32"), boxes, number(comm), "v"))
        store.append(time, both)
    group = zarr.open_group(path, mode="r")
    for name, seeds, dtype in (("u", (0, 1), "float64"), ("v", (2, 3), "float32")):
        np.testing.assert_array_equal(group[name][...], [whole(one, dtype) for one in seeds])
        assert (group[name].shards is not None) == (limits == "small")
        files = sum(one.is_file() for one in (path / name).rglob("c*/**/*"))
        files += sum(one.is_file() for one in (path / name).glob("c.*"))
        assert files <= 2 * max(64, 4 * ranks)


@pytest.mark.several_ranks
@pytest.mark.parametrize("before", ["planes", "bricks", "first"])
@pytest.mark.parametrize("after", ["rows", "bricks"])
def test_a_store_goes_on_on_other_boxes(comm, ranks, shared_folder, limits, before, after):
    path, rank = shared_folder / "f.zarr", number(comm)
    store = FieldStore(path, comm)
    for time in (0, 1):
        store.append(time, [field(whole(time), DIVISIONS[before](ranks), rank)])
    onward = FieldStore(path, comm, until=0.5)
    onward.go_on()
    boxes = bisected(ranks, 7) if after == "bricks" else DIVISIONS[after](ranks)
    for time in (2, 3):
        onward.append(time, [field(whole(time), boxes, rank)])
    array = zarr.open_array(path, path="u", mode="r")
    np.testing.assert_array_equal(array[...], [whole(0), whole(2), whole(3)])


def test_states_are_read_on_other_boxes_and_damage_is_found(
    comm, ranks, shared_folder, monkeypatch
):
    set_small_limits(monkeypatch.setattr)
    rank = number(comm)
    for step, how in ((1, "bricks"), (2, "rows")):
        mine = field(whole(step), DIVISIONS[how](ranks), rank, "u_hat")
        path = write_checkpoint(shared_folder, [mine], comm, step=step, time=0.1, case="")
    actual = open_checkpoint(shared_folder, comm)
    assert actual.arrays["u_hat"].inner is not None
    box = bisected(ranks, 3)[rank]
    np.testing.assert_array_equal(
        actual.read("u_hat", box.start, box.shape), whole(2)[box.slices()]
    )
    np.testing.assert_array_equal(
        read_array(path, "u_hat", bisected(ranks, 3), comm), whole(2)[box.slices()]
    )
    if rank == 0:
        shard = max(path.glob("u_hat/c.*"))
        content = bytearray(shard.read_bytes())
        content[math.prod(actual.arrays["u_hat"].inner)] ^= 1
        shard.write_bytes(content)
    if comm is not None:
        comm.Barrier()
    actual = open_checkpoint(shared_folder, comm)
    assert actual.step == 1
    assert "array u_hat, shard" in actual.warnings[0]


def test_a_shard_that_one_rank_cannot_write_ends_all(comm, ranks, shared_folder, monkeypatch):
    set_small_limits(monkeypatch.setattr)
    rank, replace_file = number(comm), zarr_store.replace_file

    def fail(path, content, **options):
        if rank == ranks - 1 and "u_hat/c." in str(path):
            with durable_files.errors_name(path):
                raise OSError(28, "No space left on device")
        replace_file(path, content, **options)

    local = field(whole(1), bisected(ranks), rank, "u_hat")
    write_checkpoint(shared_folder, [local], comm, step=1, time=0.1, case="")
    with monkeypatch.context() as patch:
        patch.setattr(zarr_store, "replace_file", fail)
        with pytest.raises(RunError, match=r"u_hat/c\.\S+ cannot be written: No space"):
            write_checkpoint(shared_folder, [local], comm, step=2, time=0.2, case="")
    if comm is not None:
        comm.Barrier()
    assert open_checkpoint(shared_folder, comm).step == 1
