"""The arrays of one zarr store of a run, which may be under way, or somebody else's."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import InputError, SlipstreamError
from slipstream.io.foreign_files import ForeignArray, foreign_arrays, published_shapes
from slipstream.printable_text import one_line, shown

NUMBER_SIGN = "~"  # no name that users give has it


def next_store_name(path: Path) -> str:
    """Return the name of the next store, with other points, such as ``fields~2``."""
    stem, _, number = path.stem.partition(NUMBER_SIGN)
    return f"{stem}{NUMBER_SIGN}{int(number or 1) + 1}{path.suffix}"


def numbered_stores(path: Path) -> list[Path]:
    """Return a store and its continuations with other points, in order."""
    name = re.compile(rf"{re.escape(path.stem)}(?:{NUMBER_SIGN}(\d{{1,6}}))?{path.suffix}")
    folder = path.parent.iterdir() if path.parent.is_dir() else ()
    found = ((name.fullmatch(one.name), one) for one in folder)
    return [one for _, one in sorted((int(match[1] or 1), one) for match, one in found if match)]


# Most bytes of a coordinate, which is read as a whole.
_MOST_COORDINATE = 1 << 28


class StoredArrays:
    """The contents of a zarr group when this is made: a half-written snapshot is not seen.

    Attributes
    ----------
    path : pathlib.Path
        The group.
    shapes : dict of str to tuple of int
        The shapes of the arrays, by name.

    Raises
    ------
    ValueError, OSError or KeyError
        If it is no zarr group, or holds an array that is not supported; `errors_of_store` makes
        `InputError` of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path)
        published = published_shapes(path)
        self._arrays: dict[str, ForeignArray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, array in sorted(foreign_arrays(path).items()):
            shape = array.shape if published is None else published.get(name)
            if shape is not None and "/" not in name:
                if len(shape) != len(array.shape) or any(
                    n > most for n, most in zip(shape, array.shape, strict=True)
                ):
                    raise ValueError(f"{name} is of another shape than its group says")
                self._arrays[name], self.shapes[name] = array, shape
        self._opened: dict[str, Any] = {}

    def dimensions(self, name: str) -> tuple[str, ...]:
        """Return the names of an array's axes."""
        array = self._arrays[name]
        said = array.description.get("dimension_names")
        if isinstance(said, list) and len(said) == len(array.shape):
            return tuple(str(one or f"{name}_{i}") for i, one in enumerate(said))
        return tuple(f"{name}_{i}" for i in range(len(array.shape)))

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the store's description of an array."""
        said = self._arrays[name].description.get("attributes")
        return dict(said) if isinstance(said, dict) else {}

    def dtype(self, name: str) -> np.dtype:
        """Return the type of an array's elements."""
        dtype: np.dtype = self.array(name).dtype
        return dtype

    def read(self, name: str, key: Any = ...) -> np.ndarray:
        """Return a part of an array, as indexed by slices and whole numbers.

        An `InputError` tells if another run has replaced the store since this was made.
        """
        try:
            whole = tuple(slice(0, size) for size in self.shapes[name])
            values = np.asarray(self.array(name)[whole if key is ... else key])
            # Chunks that no longer exist would read as not-a-number.
            if _identity(self.path) == self._identity:
                return values
        except FileNotFoundError:
            pass
        except Exception as error:  # of zarr, and of its codecs
            reason = reason_of(error)
            raise InputError(f"{self.path}: {shown(name)} cannot be read: {reason}") from error
        raise InputError(f"{self.path} has been replaced since it was opened; open it again")

    def coordinate(self, name: str) -> np.ndarray:
        """Return an array that says where the points of an axis are."""
        shape = self.shapes[name]
        if len(shape) != 1 or shape[0] * self.dtype(name).itemsize > _MOST_COORDINATE:
            raise ValueError(f"coordinate {shown(name)} is of shape {shape}")
        return self.read(name)

    @property
    def times(self) -> np.ndarray:
        """The times of the snapshots; none of a store without them."""
        return self.coordinate("time") if "time" in self.shapes else np.zeros(0)

    def array(self, name: str) -> Any:
        """Return zarr's array, which does but compute."""
        if name not in self._opened:
            self._opened[name] = self._arrays[name].open()
        return self._opened[name]


@contextlib.contextmanager
def errors_of_store(path: Path) -> Iterator[None]:
    """Turn whatever keeps a store from being read into an `InputError` with its path."""
    try:
        yield
    except SlipstreamError:
        raise
    except Exception as error:  # of zarr, and of its codecs
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the text of an error, in one line."""
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__)


class StoredSpectra(Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]):
    """The spectra of a store, each read when it is asked for: its time, wavenumbers and values.

    `names` are those to be read, in this order; by default all.
    """

    def __init__(self, stored: StoredArrays, names: Iterable[str] | None = None) -> None:
        self._stored, self._times = stored, stored.times
        self._axes = {}
        for name in stored.shapes if names is None else names:
            dims = stored.dimensions(name)
            if len(dims) == 2 and dims[0] == "time" and dims[1] in stored.shapes:
                self._axes[name] = dims[1]

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index, found, shapes = range(len(self))[index], {}, self._stored.shapes
        for name, axis in self._axes.items():
            if index < shapes[name][0]:
                values = self._stored.read(name, (index, slice(0, shapes[name][1])))
                found[name] = self._stored.coordinate(axis), values
        return float(self._times[index]), found


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
