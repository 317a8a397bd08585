"""Errors that a person can do something about, and the checks of what users give."""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
import operator
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.engine.text import printable, shortened, shown

# The most letters of a message: enough for the output of a compiler, not for a file in one line.
_MOST_LETTERS = 4000
# The largest whole number of compiled code and files.
_LARGEST = 2**63 - 1
# Bytes by unit, in capitals.
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("IB", 1024))
}
# Stands for an attribute that does not exist.
_MISSING = object()


class SlipstreamError(Exception):
    """Root of all errors that are reported as one line, without a traceback.

    Attributes
    ----------
    exit_status : int
        Status with which the command line ends.
    """

    exit_status = 1

    def __str__(self) -> str:
        return shortened(printable(self.text()), _MOST_LETTERS)

    def text(self) -> str:
        """Return the message as it was given."""
        return super().__str__()


class InputError(SlipstreamError):
    """A request that cannot be met: a wrong case, option or file, or a missing installation."""

    exit_status = 2

    def __str__(self) -> str:
        # Arrays and objects that it quotes may take several lines.
        return " ".join(part.strip() for part in super().__str__().split("\n"))


class UnknownName(InputError, KeyError):
    """A name that a mapping does not have; its `get` returns the default then."""

    # That of KeyError puts the message into quotes.
    __str__ = Exception.__str__


class RunError(SlipstreamError):
    """A simulation that had started could not be completed."""

    exit_status = 1


class OutOfMemory(RunError):
    """Another rank has raised MemoryError."""


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return a whole number in a range, or raise `InputError`."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or number > (_LARGEST if high is None else high):
        accepted = f"{low} to {high}" if high is not None else f"whole numbers of at least {low}"
        accepted += f", at most {_LARGEST}" if number > _LARGEST else ""
        raise InputError(f"{name} is {shown(value)}; accepted: {accepted}")
    return number


def whole_numbers(name: str, values: Any, low: int) -> tuple[int, ...]:
    """Return a whole number of at least `low` for each axis, or raise `InputError`."""
    several = plain_value(values)
    if not isinstance(several, Sequence) or isinstance(several, str | bytes):
        raise InputError(f"{name} is {shown(values)}; accepted: a whole number for each axis")
    return tuple(whole_number(name, one, low) for one in several)


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite real number, which booleans are not."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # of whole numbers that no float is as large as
        return False


def finite_number(name: str, value: Any) -> float:
    """Return a finite number, which text and booleans are not, or raise `InputError`."""
    number = plain_value(value)
    if not is_finite(number):
        raise InputError(f"{name} is {shown(value)}; accepted: a finite number")
    return float(number)


def check_positive(**values: Any) -> None:
    """Refuse arguments, given by name, that are not finite numbers above 0."""
    for name, value in values.items():
        if not (is_finite(value) and value > 0):
            raise InputError(f"{name} is {shown(value)}; accepted: a number more than 0")


def three_numbers(name: str, values: Any) -> tuple[float, float, float]:
    """Return three finite numbers, for z, y and x, or raise `InputError`."""
    try:
        numbers = tuple(values)
    except TypeError:
        numbers = ()
    if len(numbers) != 3 or isinstance(values, str) or not all(map(is_finite, numbers)):
        raise InputError(f"{name} is {values!r}; accepted: three finite numbers, for z, y and x")
    z, y, x = map(float, numbers)
    return z, y, x


def three_counts(values: Any) -> tuple[int, int, int] | None:
    """Return three positive whole numbers as a tuple; None if they are something else."""
    try:
        items = tuple(values)
        counts = tuple(map(operator.index, items))
    except TypeError:
        return None
    if len(counts) != 3 or min(counts) < 1 or any(isinstance(item, bool) for item in items):
        return None
    z, y, x = counts
    return z, y, x


def table_of(name: str, value: Any) -> dict[str, Any]:
    """Return a table of keys, empty for None, or raise `InputError`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} is {value!r}; accepted: a dict of keys and values")
    return dict(value)


def path_of(name: str, value: Any) -> Path:
    """Return the path that a text or a path object is, or raise `InputError`."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"{name} is {shown(value)}; accepted: the name of a file or folder")
    return Path(value)


def folder_names(scratch: Any) -> tuple[str, ...]:
    """Return the names of one folder for files, or of several; `InputError` of other kinds."""
    several = scratch if isinstance(scratch, list | tuple) else [scratch]
    if not all(isinstance(one, str | os.PathLike) for one in several):
        raise InputError(f"scratch is {shown(scratch)}; accepted: a folder, or a list of folders")
    return tuple(str(os.fspath(one)) for one in several)


def name_among(argument: str, value: Any, accepted: Iterable[str]) -> str:
    """Return one of the accepted names, or raise `InputError`."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(f"{argument} {value!r} is unknown; accepted: {', '.join(accepted)}")
    return value


def check_type(argument: str, value: Any, kind: type) -> None:
    """Refuse a value that is not of a type by an `InputError`."""
    if not isinstance(value, kind):
        raise InputError(f"{argument} is of type {type(value).__name__}; accepted: {kind.__name__}")


def check_given_once(argument: str, value: Any, key: str, other: Any) -> None:
    """Refuse an argument and a key of a table for the same setting, unless they agree."""
    if value is not None and plain_value(value) != plain_value(other):
        raise InputError(f"{argument} is {shown(value)}, {key} is {shown(other)}; use one of them")


def check_folder_of(option: str, path: Path | None) -> None:
    """Refuse a file to be written into a folder that does not exist; None is no file."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(f"{option} {str(path)!r}: there is no folder {path.parent}")


def nearest(word: str, accepted: Iterable[str]) -> str:
    """Return ``"; did you mean ...?"`` with the nearest accepted word, nothing if none is near."""
    close = difflib.get_close_matches(word, accepted, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def plain_value(value: Any) -> Any:
    """Return NumPy's numbers as Python's, and sequences of them as tuples, as cases have them.

    Types, such as `numpy.float32`, become their names.
    """
    if isinstance(value, type) and hasattr(value, "tolist"):
        return value.__name__
    if hasattr(value, "newbyteorder") and hasattr(value, "kind"):  # a dtype
        return value.name
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(plain_value, value)) if isinstance(value, list | tuple) else value


def bytes_of(value: int | str, name: str = "size") -> int:
    """Return a positive number of bytes, which may be written with a unit, such as "8 GiB".

    `name` is the name of the setting, for the message of the InputError.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", str(value))
    exact = float(match[1]) * _UNITS.get(match[2].upper(), 0) if match else 0.0
    size = int(exact) if exact < math.inf else 0
    if size <= 0 or isinstance(value, bool):
        raise InputError(f'{name} {value!r}; accepted: bytes, or text such as "8 GiB" or "500 MB"')
    return size


def bytes_text(size: float) -> str:
    """Return a number of bytes for people, in the largest binary unit that gives at least 1."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit.upper()]:
            return f"{size / _UNITS[unit.upper()]:.4g} {unit}"
    return f"{size:.0f} B"


def enough_text(size: int) -> str:
    """Return a number of bytes, rounded up to whole KiB if it is small, else to whole MiB."""
    unit = "KiB" if size < 10 << 20 else "MiB"
    return f"{-(-size // _UNITS[unit.upper()])} {unit}"


class KnownAttributes:
    """An object with the public attributes that its class declares, and no others.

    Properties with a setter can be set at any time, annotated attributes once, by the constructor.
    Classes that users derive may declare more.
    """

    def _list_settable(self) -> list[str]:
        """Return the names that can be set, for messages."""
        found = {name for one in type(self).__mro__ for name in (*vars(one), *_get_declared(one))}
        known = [name for name in found if name[0] != "_" and _is_setter(self, name)]
        return sorted({*known, *self._further()})

    def _further(self) -> Collection[str]:
        """Return the names that can be set though the class does not declare them."""
        return ()

    def _set_further(self, name: str, value: Any) -> None:
        """Set one of these."""

    # Type checkers find unknown attributes by themselves, where no class seems to take any.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            is_undeclared = not name.startswith("_") and not hasattr(type(self), name)
            if is_undeclared and name in self._further():
                self._set_further(name, value)
            elif name.startswith("_") or _is_setter(self, name) or _is_new(self, name):
                object.__setattr__(self, name, value)
            else:
                raise InputError(_describe_refusal(self, name))

        def __delattr__(self, name: str) -> None:
            if not name.startswith("_"):
                raise InputError(f"{type(self).__name__}.{name} cannot be deleted")
            object.__delattr__(self, name)


def _is_setter(owner: object, name: str) -> bool:
    """Return whether a class does something when an attribute is set, or a user's class has it."""
    attribute = inspect.getattr_static(type(owner), name, _MISSING)
    if isinstance(attribute, property):
        return attribute.fset is not None
    if hasattr(type(attribute), "__set__"):
        return True
    of_users = itertools.takewhile(
        lambda kind: not kind.__module__.startswith("slipstream."), type(owner).__mro__
    )
    return any(name in vars(kind) or name in _get_declared(kind) for kind in of_users)


def _is_new(owner: object, name: str) -> bool:
    """Return whether an attribute is declared, and not yet set."""
    declared = any(name in _get_declared(one) for one in type(owner).__mro__)
    return declared and name not in vars(owner)


def _get_declared(kind: type) -> Mapping[str, Any]:
    declared: Mapping[str, Any] = vars(kind).get("__annotations__", {})
    return declared


def _describe_refusal(owner: KnownAttributes, name: str) -> str:
    kind, accepted = type(owner).__name__, owner._list_settable()
    can = f" can be set: {', '.join(accepted)}" if accepted else " nothing of it can be set"
    if name in dir(owner):
        what = "is a method" if callable(inspect.getattr_static(owner, name)) else "is read-only"
        return f"{kind}.{name} {what} and cannot be set;{can}"
    guess = nearest(name, accepted or [one for one in dir(owner) if one[0] != "_"])
    return f"{kind} has no attribute {shown(name)}{guess or ';'}{can}"
