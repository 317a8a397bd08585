"""Views of what a flow or a run has several of, and of the stores of a run, by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from slipstream.errors import InputError
from slipstream.known_attributes import KnownAttributes
from slipstream.printable_text import one_line, shown

if TYPE_CHECKING:
    from slipstream.io.run_folder import RunFolder

View = TypeVar("View")
_STORE = ".zarr"


class NamedViews(Mapping[str, View], KnownAttributes):
    """Views by name; which names there are is asked each time."""

    _kind: ClassVar[str]  # what they are
    _absent: ClassVar[str] = "is no"

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Return the names."""

    @abstractmethod
    def _view(self, name: str) -> View:
        """Return the view of a name."""

    def _where(self) -> str:
        """Return the beginning of messages."""
        return self._kind

    def __getitem__(self, name: str) -> View:
        if name not in self:
            there_are = ", ".join(map(one_line, self._names())) or "none"
            raise InputError(
                f"{self._where()}: there {self._absent} {shown(name)}; there are: {there_are}"
            )
        return self._view(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"<{self._kind}: {', '.join(map(one_line, self._names())) or 'none'}>"


class NamedStores(NamedViews[View]):
    """Stores whose file names begin with a prefix, by the rest of their names."""

    _prefix: ClassVar[str]

    def __init__(self, folder: RunFolder) -> None:
        self._folder, prefix = folder, self._prefix
        own = (one for one in folder.outputs(_STORE) if one.startswith(prefix) and "/" not in one)
        self._found = [one.removesuffix(_STORE).removeprefix(prefix) for one in own]

    @abstractmethod
    def _open(self, path: Path) -> View:
        """Return the view of a store."""

    def _names(self) -> Sequence[str]:
        return self._found

    def _where(self) -> str:
        return str(self._folder.path)

    def _view(self, name: str) -> View:
        # Only now: simulations have views too, and read no stores.
        from slipstream.io.stored_arrays import errors_of_store

        path = self._folder.path / f"{self._prefix}{name}{_STORE}"
        with errors_of_store(path):
            return self._open(path)
