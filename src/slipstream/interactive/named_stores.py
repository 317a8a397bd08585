"""The zarr stores of a run by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

from slipstream.errors import InputError
from slipstream.io.run_folder import RunFolder
from slipstream.io.stored_arrays import errors_of_store
from slipstream.known_attributes import KnownAttributes
from slipstream.printable_text import one_line, shown

_STORE = ".zarr"
View = TypeVar("View")


class NamedStores(Mapping[str, View], KnownAttributes):
    """Stores whose file names begin with a prefix, by the rest of their names."""

    _prefix: ClassVar[str]
    _lacking: ClassVar[str]  # the noun of "there is no ..."

    def __init__(self, folder: RunFolder) -> None:
        self._folder, prefix = folder, self._prefix
        own = (one for one in folder.outputs(_STORE) if one.startswith(prefix) and "/" not in one)
        self._names = [one.removesuffix(_STORE).removeprefix(prefix) for one in own]

    @abstractmethod
    def _open(self, path: Path) -> View:
        """Return the view of a store."""

    def __getitem__(self, name: str) -> View:
        if name not in self._names:
            there = ", ".join(map(one_line, self._names)) or "none"
            raise InputError(
                f"{self._folder.path}: there {self._lacking} {shown(name)}; there are: {there}"
            )
        path = self._folder.path / f"{self._prefix}{name}{_STORE}"
        with errors_of_store(path):
            return self._open(path)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
