"""Arrays in files: transfers of any views, and the memory that they take."""

import errno
import os

import numpy as np
import pytest

from flows import make_case
from slipstream.engine.device import HostDevice
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.errors import InputError
from slipstream.engine.outofcore import file_arrays
from slipstream.engine.outofcore.file_arrays import FileHome, TileHost, file_home, files_of
from slipstream.engine.outofcore.tile_slots import FileTransfer
from slipstream.fft import DistributedFFT
from slipstream.spectral.spectral_simulation import SpectralSimulation

DEVICE = HostDevice(threads=2)


@pytest.fixture
def all_in_files(monkeypatch):
    """Put small arrays in files too, with short stripes."""
    monkeypatch.setattr(file_arrays, "_SMALL", 1)
    monkeypatch.setattr(file_arrays, "_STRIPE", 4 * 4096)


def transferred(home, shape, where, dtype=np.float32):
    """Write some random values to a part of a new array, read them back, and return all three."""
    array = home.zeros(shape, dtype)
    part = array[where]
    values = np.random.default_rng(0).random(part.shape).astype(dtype)
    files = files_of(part)
    FileTransfer(part, values, files, False)(None)
    found = np.empty_like(values)
    FileTransfer(found, part, files, True)(None)
    return array, values, found


@pytest.mark.parametrize("folders", [1, 3])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ((3, 7, 1024), np.s_[:]),
        ((3, 7, 1024), np.s_[1:, 2:5, 128:896]),
        ((5, 11, 333), np.s_[:, 3:9, 5:300]),
        ((5, 4, 700), np.s_[::2, 1, :]),
        ((2, 3, 1 << 18), np.s_[:, 1:, 1:-1]),
        ((64, 64), np.s_[:, ::2]),
    ],
)
def test_any_part_of_an_array_is_written_and_read(
    tmp_path, all_in_files, monkeypatch, folders, direct, shape, where
):
    if not direct:
        monkeypatch.delattr(os, "O_DIRECT")
    paths = [tmp_path / str(number) for number in range(folders)]
    for path in paths:
        path.mkdir()
    home = file_home([str(path) for path in paths], DEVICE)
    array, values, found = transferred(home, shape, where)
    assert found.tobytes() == values.tobytes()
    expected = np.zeros(shape, np.float32)
    expected[where] = values
    assert np.array_equal(array, expected)
    assert not any(os.listdir(path) for path in paths)  # files have no names


def test_a_full_drive_is_one_clear_error_and_leaves_nothing(tmp_path, monkeypatch):
    def full(file, offset, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"scratch: no file of .* in .*: No space left on device"):
        file_home([str(tmp_path)], DEVICE).zeros((1 << 20,), np.float32)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("scratch", ["/nowhere/at/all", [3]])
def test_folders_that_are_none_are_refused(scratch):
    with pytest.raises(InputError, match=r"scratch .*; accepted: a folder, or a list of folders"):
        DistributedFFT((8, 8, 8), residency="disk", scratch=scratch)


@pytest.mark.thorough
def test_memory_of_tiles_keeps_its_limit(tmp_path, all_in_files):
    settings = "run.residency=disk", f"run.scratch={tmp_path}", "run.memory=2 MiB"
    meter = MemoryMeter()
    with meter:
        simulation = SpectralSimulation(make_case("grid.points=48", *settings), None, DEVICE)
        simulation._allocate()
    taken = meter.total()
    assert taken["host"] <= 2 << 20
    assert taken["disk"] > 7 << 20
    assert isinstance(simulation.placement.home, FileHome)
    assert isinstance(simulation.placement.device, TileHost)
