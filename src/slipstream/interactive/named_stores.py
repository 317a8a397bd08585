"""The zarr stores of a run by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from slipstream.interactive.named_views import NamedViews, View
from slipstream.io.run_folder import RunFolder
from slipstream.io.stored_arrays import errors_of_store

_STORE = ".zarr"


class NamedStores(NamedViews[View]):
    """Stores whose file names begin with a prefix, by the rest of their names."""

    _prefix: ClassVar[str]

    def __init__(self, folder: RunFolder) -> None:
        self._folder, prefix = folder, self._prefix
        own = (one for one in folder.outputs(_STORE) if one.startswith(prefix) and "/" not in one)
        self._found = [one.removesuffix(_STORE).removeprefix(prefix) for one in own]

    @abstractmethod
    def _open(self, path: Path) -> View:
        """Return what is shown of a store."""

    def _names(self) -> Sequence[str]:
        return self._found

    def _where(self) -> str:
        return str(self._folder.path)

    def _view(self, name: str) -> View:
        path = self._folder.path / f"{self._prefix}{name}{_STORE}"
        with errors_of_store(path):
            return self._open(path)
