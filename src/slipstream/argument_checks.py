"""Checks of arguments that users give."""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from slipstream.errors import InputError
from slipstream.printable_text import shown

# What compiled code and files have for whole numbers.
_LARGEST = 2**63 - 1


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
        given = tuple(values)
        counts = tuple(map(operator.index, given))
    except TypeError:
        return None
    if len(counts) != 3 or min(counts) < 1 or any(isinstance(one, bool) for one in given):
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


def name_among(argument: str, value: Any, accepted: Iterable[str]) -> str:
    """Return one of the accepted names, or raise `InputError`."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(f"{argument} {value!r} is unknown; accepted: {', '.join(accepted)}")
    return value


def check_type(argument: str, value: Any, kind: type) -> None:
    """Refuse a value that is not of a type by an `InputError`."""
    if not isinstance(value, kind):
        raise InputError(f"{argument} is of type {type(value).__name__}; accepted: {kind.__name__}")


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
