"""Arrays in files: mapped memory, and where in which file each byte of it is.

Such an array can be used as any other: the system then reads and writes pages of its file. Tiles
take another way, `host_device_copy.py`, which goes to the drive directly. Our files have no names:
the system removes them when the process ends, however it ends.
"""

from __future__ import annotations

import bisect
import errno
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from slipstream.engine.device import Device, HostDevice, address_of
from slipstream.engine.device.memory import MappedBytes, map_file, note_owned, reserve, unmap
from slipstream.engine.errors import InputError, bytes_text
from slipstream.engine.text import shown

Shape: TypeAlias = "tuple[int, ...]"
# Bytes after which the next of several folders has its turn.
_STRIPE = 16 << 20
# Arrays of fewer bytes are in memory.
_SMALL = 1 << 20
# What drives take: offsets, sizes and addresses that are multiples of this.
SECTOR = 512


@dataclass(frozen=True)
class OpenFile:
    """Descriptors of a file: through the system's pages, and around them if the file has that."""

    pages: int
    direct: int | None
    sector: int = SECTOR


class MappedFiles:
    """Bytes of memory from `address` on that lie in files, a stripe in each in turn.

    The first of them is at the offset `first` of the first file.
    """

    def __init__(
        self, address: int, size: int, files: Sequence[OpenFile], stripe: int, first: int = 0
    ) -> None:
        self.address, self.stop = address, address + size
        self.files, self._stripe, self._first = files, stripe, first

    def pieces(self, address: int, size: int) -> list[tuple[OpenFile, int, int]]:
        """Return the pieces of files that hold some bytes: files, offsets in them, and sizes."""
        result, position = [], address - self.address + self._first
        end, count, stripe = position + size, len(self.files), self._stripe
        while position < end:
            number, within = divmod(position, stripe)
            part = min(end - position, stripe - within)
            offset = number // count * stripe + within
            result.append((self.files[number % count], offset, part))
            position += part
        return result


# The files of this process in the order of their addresses.
_addresses: list[int] = []
_mapped: list[weakref.ref[MappedFiles]] = []


def _remember(files: MappedFiles) -> None:
    place = bisect.bisect(_addresses, files.address)
    _addresses.insert(place, files.address)
    _mapped.insert(place, weakref.ref(files))


def files_of(array: Any) -> MappedFiles | None:
    """Return the files in which an array lies: ours, or the file of a `numpy.memmap`."""
    if not isinstance(array, np.ndarray) or not array.size:
        return None
    address = address_of(array)
    index = bisect.bisect(_addresses, address) - 1
    while index >= 0:
        files = _mapped[index]()
        if files is not None:
            if address < files.stop:
                return files
            break
        del _addresses[index], _mapped[index]
        index -= 1
    return _find_file_of_user(array)


def _find_file_of_user(array: np.ndarray) -> MappedFiles | None:
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap) and owner.filename and owner.mode != "c":
            break
        owner = owner.base
    else:
        return None
    memory: Any = owner
    while isinstance(memory, np.ndarray):
        memory = memory.base
    if not isinstance(memory, mmap.mmap):
        return None
    flags = os.O_RDONLY if owner.mode == "r" else os.O_RDWR
    file = _opened(os.open(owner.filename, flags), flags)
    address = address_of(np.frombuffer(memory, np.uint8))
    offset = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    files = MappedFiles(address, len(memory), [file], 1 << 62, offset)
    _remember(files)
    weakref.finalize(memory, _close, files.files)
    return files


def _opened(pages: int, flags: int) -> OpenFile:
    try:
        direct = os.open(f"/proc/self/fd/{pages}", flags | os.O_DIRECT)
    except (OSError, AttributeError):  # what some file systems, and some systems, do not have
        return OpenFile(pages, None)
    for sector in (SECTOR, mmap.PAGESIZE):
        try:
            os.preadv(direct, [memoryview(mmap.mmap(-1, mmap.PAGESIZE))[:sector]], sector)
            return OpenFile(pages, direct, sector)
        except OSError:
            continue
    os.close(direct)
    return OpenFile(pages, None)


def _close(files: Sequence[OpenFile]) -> None:
    for file in files:
        os.close(file.pages)
        if file.direct is not None:
            os.close(file.direct)


class _FileMemory(MappedBytes):
    """Files mapped to memory, which NumPy takes for the memory of an array."""

    def __init__(self, files: Sequence[OpenFile], size: int, shape: Shape, dtype: np.dtype) -> None:
        stripe = _stripe(len(files), size)
        stripes = -(-size // stripe)
        address = reserve(stripes * stripe)
        mapped = MappedFiles(address, stripes * stripe, files, stripe)
        _remember(mapped)
        weakref.finalize(self, _unmap, mapped)
        for number in range(stripes):
            file, offset, _ = mapped.pieces(address + number * stripe, 1)[0]
            map_file(file.pages, stripe, address + number * stripe, offset)
        super().__init__(address, shape, dtype.str)


def _stripe(files: int, size: int) -> int:
    """Return the bytes after which the next of several files has its turn; all of the only one."""
    return _STRIPE if files > 1 else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _make_files(folders: Sequence[str], size: int) -> list[OpenFile]:
    """Return new files in some folders, of `size` bytes together."""
    stripe = _stripe(len(folders), size)
    stripes = -(-size // stripe)
    each = -(-stripes // len(folders)) * stripe
    files: list[OpenFile] = []
    try:
        for folder in folders[:stripes]:
            files.append(_make_file(folder, each))
    except BaseException:
        _close(files)
        raise
    return files


def _make_file(folder: str, size: int) -> OpenFile:
    """Return a new file without a name, of bytes that are 0 and have their places on the drive."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return _opened(os.dup(file.fileno()), os.O_RDWR)
    except OSError as error:
        raise InputError(
            f"scratch: no file of {bytes_text(size)} in {folder}: {os.strerror(error.errno or 0)}"
        ) from error


def _unmap(files: MappedFiles) -> None:
    unmap(files.address, files.stop - files.address)
    _close(files.files)


class FileHome(HostDevice):
    """The host as the home of arrays in files of some folders; small arrays are in its memory.

    `host` is the home of arrays in memory through which a device reaches files.
    """

    # Bytes side by side that drives read and write at about their full speed.
    run_bytes = 128 << 10
    in_place_at_once = True

    memory_kind = "disk"

    def __init__(self, folders: Sequence[str], host: HostDevice) -> None:
        super().__init__(threads=host.threads)
        self.folders, self.host = list(folders), host
        self.name = f"files in {', '.join(folders)}"
        self.identity = f"{self.identity}, {self.name}"

    @property
    def memory_home(self) -> HostDevice:
        return self.host

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array whose elements are 0, in files unless it is small."""
        dtype = np.dtype(dtype)
        shape = tuple(map(int, shape))
        size = math.prod(shape) * dtype.itemsize
        if not size or size < _SMALL:
            return self.host.empty(shape, dtype)
        memory = self._mapped(_make_files(self.folders, size), size, shape, dtype)
        note_owned(memory, self.memory_kind, size)
        return np.asarray(memory)

    pinned = empty

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        array = self.empty(shape, dtype)
        if files_of(array) is None:
            array[...] = 0
        return array

    def shared_files(self, size: int) -> list[int]:
        """Return files in the folders; see `HostDevice.shared_files`."""
        files, numbers = _make_files(self.folders, size), []
        for one in files:
            numbers.append(os.dup(one.pages))
        _close(files)
        return numbers

    def map_shared(self, files: Sequence[int], size: int) -> np.ndarray:
        opened = [_opened(os.dup(file), os.O_RDWR) for file in files]
        return np.asarray(self._mapped(opened, size, (size,), np.dtype(np.uint8)))

    def _mapped(
        self, files: Sequence[OpenFile], size: int, shape: Shape, dtype: np.dtype
    ) -> _FileMemory:
        try:
            return _FileMemory(files, size, shape, dtype)
        except (MemoryError, OSError) as error:
            reason = os.strerror(getattr(error, "errno", None) or errno.ENOMEM)
            raise InputError(
                f"scratch: {bytes_text(size)} of a file cannot be mapped: {reason}"
            ) from error

    def holds(self, array: object) -> bool:
        return files_of(array) is not None

    @cached_property
    def is_direct(self) -> bool:
        """Whether all folders let tiles go around the system's memory."""
        files = [_make_file(folder, SECTOR) for folder in self.folders]
        _close(files)
        return all(one.direct is not None for one in files)

    def memory_total(self) -> int:
        return self._sum_over_drives("f_blocks")

    def memory_free(self) -> int:
        return self._sum_over_drives("f_bavail")

    def _sum_over_drives(self, name: str) -> int:
        sizes_of_drive: dict[int, list[int]] = {}
        for folder in self.folders:
            system = os.statvfs(folder)
            size = int(getattr(system, name)) * system.f_frsize
            sizes_of_drive.setdefault(os.stat(folder).st_dev, []).append(size)
        # Files take turns: each folder holds as much, and the folders of one drive share its room.
        return len(self.folders) * min(sizes[0] // len(sizes) for sizes in sizes_of_drive.values())


class TileHost(HostDevice):
    """The CPU as a device for tiles from files: all threads work on one, while others travel."""

    def __init__(self, device: HostDevice) -> None:
        super().__init__(tiled=device.tiled_transforms(), threads=device.threads, lanes=1)
        self.inline = False  # a thread that waits for a drive takes no core

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialised array that begins where drives may write to."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALL:
            return super().empty(shape, dtype)
        memory = super().empty((size + mmap.PAGESIZE,), np.uint8)
        begin = -address_of(memory) % mmap.PAGESIZE
        array: np.ndarray = memory[begin : begin + size].view(dtype).reshape(shape)
        return array


def file_home(folders: Sequence[str] | None, host: Device) -> FileHome:
    """Return the home of arrays in files; `InputError` if a folder is none. Not collective."""
    paths = folders or [tempfile.gettempdir()]
    for folder in paths:
        if not os.path.isdir(folder):
            raise InputError(f"scratch {shown(folder)}; accepted: a folder, or a list of folders")
    assert isinstance(host, HostDevice)
    return FileHome([os.path.abspath(path) for path in paths], host)
