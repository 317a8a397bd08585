"""Keys of cases in Python, as arguments and settings, and views of what a flow has several of."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, overload

from slipstream.case import Case, SpectralCase
from slipstream.case.table import key_at, sentence
from slipstream.engine.accepted import FORCING_KEYS
from slipstream.engine.errors import (
    InputError,
    KnownAttributes,
    UnknownName,
    nearest,
    plain_value,
    table_of,
)
from slipstream.engine.text import one_line, shown

if TYPE_CHECKING:
    from slipstream.api.interactive_simulation import InteractiveSimulation
    from slipstream.files.run_folder import RunFolder


View = TypeVar("View")
_STORE = ".zarr"


class NamedViews(Mapping[str, View], KnownAttributes):
    """Views by name; which names there are is asked each time."""

    _kind: ClassVar[str]  # what they are
    _absent: ClassVar[str] = "is no"
    # Whether messages name the nearest of them.
    _guesses: ClassVar[bool] = False

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Return the names."""

    @abstractmethod
    def _view(self, name: str) -> View:
        """Return the view of a name."""

    def _where(self) -> str:
        """Return the beginning of messages."""
        return self._kind

    def _check(self, name: Any) -> None:
        """Refuse an unknown name."""
        if name not in self:
            there_are = ", ".join(map(one_line, self._names())) or "none"
            guess = nearest(name, self._names()) if self._guesses and isinstance(name, str) else ""
            raise UnknownName(
                f"{self._where()}: there {self._absent} {shown(name)}{guess};"
                f" there are: {there_are}"
            )

    def __getitem__(self, name: str) -> View:
        self._check(name)
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
        from slipstream.files.stored_arrays import errors_of_store

        path = self._folder.path / f"{self._prefix}{name}{_STORE}"
        with errors_of_store(path):
            return self._open(path)


Value = TypeVar("Value")


def tables_of(
    case: type[Case], keys: Mapping[str, str], arguments: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the tables of a case that arguments and defaults of others stand for.

    None is omitted where it is the default.
    """
    tables: dict[str, dict[str, Any]] = {}
    for name, key in keys.items():
        table, default = tables.setdefault(key.partition(".")[0], {}), key_at(case, key).default
        value = arguments.get(name, default)
        if value is not None or default is not None:
            table[name] = plain_value(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return tables


def common_tables(
    title: str, run: Mapping[str, Any] | None, output: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the tables of a case that all classes take alike."""
    return {"title": title, "run": table_of("run", run), "output": table_of("output", output)}


class HasSettings(Protocol):
    """A simulation, or a part of one, with settings."""

    def _setting(self, key: str) -> Any:
        """Return the present value of a key of the case."""

    def _change(self, name: str, key: str, value: Any) -> None:
        """Change a key of the case from the next step on. Collective."""


class Setting(Generic[Value]):
    """An attribute that is a key of the case; a new value takes effect with the next step.

    Setting it is collective: all ranks must set the same value.
    """

    def __init__(self, case: type[Case], key: str, note: str = "") -> None:
        self.key, self._case, self._note, self._name = key, case, note, key

    # Made when it is read: the keys of `[equation]` are those of a model, which imports SymPy.
    @property
    def __doc__(self) -> str:  # type: ignore[override]
        meaning = key_at(self._case.suited_to({}), self.key).description or ""
        return sentence(f"{meaning}{self._note}; it can be changed between steps. Collective")

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: HasSettings, kind: type) -> Value: ...
    def __get__(self, owner: HasSettings | None, kind: type) -> Any:
        return self if owner is None else owner._setting(self.key)

    def __set__(self, owner: HasSettings, value: Value) -> None:
        owner._change(self._name, self.key, value)


class Parameters(NamedViews[Any]):
    """The parameters of a model, by name: ``sim.parameters["viscosity"] = 0.02``.

    Reading returns the present value. Setting is collective, and takes effect with the next step.
    """

    _kind, _guesses = "parameters", True

    def __init__(self, simulation: InteractiveSimulation, values: Mapping[str, Any]) -> None:
        self._simulation, self._values = simulation, values

    def _names(self) -> list[str]:
        return list(self._values)

    def _view(self, name: str) -> Any:
        return self._simulation._setting(f"equation.{name}")

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name)
        self._simulation._change(name, f"equation.{name}", value)

    def __repr__(self) -> str:
        return f"<parameters: {', '.join(f'{name} = {self[name]!r}' for name in self)}>"


class ForcingSettings(KnownAttributes):
    """The forces on a flow: ``sim.forcing.amplitude = 0.2``.

    Of several forces each is one of a list: ``sim.forcing[1].amplitude = 0.2``.
    """

    amplitude = Setting[float](SpectralCase, "forcing.amplitude", ", unless `injection` is set")
    injection = Setting[float | tuple[float, ...] | None](SpectralCase, "forcing.injection")
    coefficients = Setting[tuple[float, float, float]](SpectralCase, "forcing.coefficients")
    rate = Setting[float | None](SpectralCase, "forcing.rate")

    def __init__(self, simulation: InteractiveSimulation, table: int | None = None) -> None:
        self._simulation, self._table = simulation, table

    def __len__(self) -> int:
        return len(self._simulation._setting("forcing"))

    def __iter__(self) -> Iterator[ForcingSettings]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> ForcingSettings:
        if not (isinstance(number, int) and -len(self) <= number < len(self)):
            raise InputError(
                f"forcing[{shown(number)}]: there are {len(self)} forces; accepted: 0 to"
                f" {len(self) - 1}"
            )
        return ForcingSettings(self._simulation, number % len(self))

    def _number(self, name: str) -> int:
        """Return the number of the force that this stands for."""
        if self._table is None and len(self) > 1:
            raise InputError(
                f"forcing.{name}: there are {len(self)} forces; use one of them, such as"
                f" sim.forcing[0].{name}"
            )
        return self._table or 0

    def _setting(self, key: str) -> Any:
        name = key.partition(".")[2]
        return getattr(self._simulation._setting("forcing")[self._number(name)], name)

    def _change(self, name: str, key: str, value: Any) -> None:
        number = self._number(name)
        table = "forcing" if len(self) == 1 else f"forcing[{number + 1}]"
        kind, injection = (self._setting(f"forcing.{one}") for one in ("kind", "injection"))
        if name not in FORCING_KEYS[kind]:
            raise InputError(f"{table}.{name}: forcing of kind {kind!r} has none")
        if name == "amplitude" and injection is not None:
            raise InputError(
                f"{table}.amplitude: the strength follows from {table}.injection = {injection:g};"
                " set that, or set it to None before"
            )
        self._simulation._change(f"{table}.{name}", f"{table}.{name}", value)

    def __repr__(self) -> str:
        if self._table is None and len(self) > 1:
            return f"<forcing: {', '.join(map(repr, self))}>"
        keys = FORCING_KEYS[self._setting("forcing.kind")]
        names = ["kind", *(one for one in ("amplitude", "rate", "injection") if one in keys)]
        values = {name: self._setting(f"forcing.{name}") for name in names}
        return f"<forcing: {', '.join(f'{name} = {one!r}' for name, one in values.items())}>"


class ScalarSettings(NamedViews["OneScalar"]):
    """The passive scalars of a flow: ``sim.scalars["temperature"].diffusivity = 0.02``."""

    _kind = "scalars"

    def __init__(self, simulation: InteractiveSimulation) -> None:
        self._simulation = simulation

    def _names(self) -> list[str]:
        return [one.name for one in self._simulation._setting("scalars")]

    def _view(self, name: str) -> OneScalar:
        return OneScalar(self._simulation, self._names().index(name))


class OneScalar(KnownAttributes):
    """A passive scalar; some of its numbers may be changed between steps."""

    diffusivity = Setting[float](SpectralCase, "scalars.diffusivity")
    mean_gradient = Setting[tuple[float, float, float]](SpectralCase, "scalars.mean_gradient")

    def __init__(self, simulation: InteractiveSimulation, number: int) -> None:
        self._simulation, self._number = simulation, number

    def _setting(self, key: str) -> Any:
        scalar = self._simulation._setting("scalars")[self._number]
        return getattr(scalar, key.partition(".")[2])

    def _change(self, name: str, key: str, value: Any) -> None:
        several = len(self._simulation._setting("scalars")) > 1
        key_of_scalar = f"scalars[{self._number + 1}].{name}" if several else f"scalars.{name}"
        self._simulation._change(key_of_scalar, key_of_scalar, value)

    def __repr__(self) -> str:
        values = (f"{one} = {getattr(self, one)!r}" for one in ("diffusivity", "mean_gradient"))
        return f"<scalar: {', '.join(values)}>"
