"""Errors that name keys, spelled as their reader knows them.

Cases and functions of Python name the same things differently, and cases give numbers per axis in
the order x, y, z. So a `KeyedError` keeps its message in parts, from rank to rank, and
`in_terms_of` spells it where the reader is known; by default keys are named as ``image.path`` and
axes are in the order of arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.engine.errors import InputError


@dataclass(frozen=True)
class KeyName:
    """A key of a case, or the argument that stands for it."""

    table: str
    name: str


@dataclass(init=False)
class PerAxis:
    """Values for z, y and x, as texts in both orders."""

    text: str
    x_first: str

    def __init__(self, values: Any) -> None:
        is_triple = isinstance(values, tuple) and len(values) == 3
        self.text = str(values)
        self.x_first = str(list(reversed(values))) if is_triple else self.text


@dataclass(frozen=True)
class Terms:
    """How a caller names arguments, and whether numbers for x come first."""

    name: Callable[[KeyName], str]
    x_first: bool = False

    def text(self, part: Any) -> str:
        """Return a part of a message as text."""
        if isinstance(part, KeyName):
            return self.name(part)
        if isinstance(part, PerAxis):
            return part.x_first if self.x_first else part.text
        return str(part)


# Arguments that are not called like their keys.
_OTHER_NAMES = {KeyName("image", "path"): "image", KeyName("time", "end"): "max_steps"}


# Functions with names, since simulations that keep their terms are pickled.
def _name_of_array(key: KeyName) -> str:
    return f"{key.table}.{key.name}"


def _name_in_case(key: KeyName) -> str:
    # Keys of samples are keys of their image.
    return f"{'image' if key.table == 'sample' else key.table}.{key.name}"


def _name_of_argument(key: KeyName) -> str:
    return _OTHER_NAMES.get(key, key.name)


ARRAYS = Terms(_name_of_array)
CASES = Terms(_name_in_case, x_first=True)
ARGUMENTS = Terms(_name_of_argument)


def spelled(parts: Iterable[Any], terms: Terms = ARRAYS) -> str:
    """Return the parts of a message as text."""
    return "".join(map(terms.text, parts))


def keys_in_order(table: str, names: Iterable[str]) -> list[Any]:
    """Return the keys of a table as parts of a message, with commas between them."""
    return [part for name in names for part in (", ", KeyName(table, name))][1:]


class KeyedError(InputError):
    """An `InputError` whose parts are text, `KeyName` or `PerAxis`."""

    def text(self) -> str:
        return spelled(self.args)

    def plain_parts(self) -> tuple[Any, ...]:
        """Return the parts, with text for whatever is not of this module."""
        of_module = KeyName | PerAxis
        return tuple(part if isinstance(part, of_module) else str(part) for part in self.args)


class Refusal(ValueError):
    """A fault of several keys together, in such parts; it names all of them."""

    def __str__(self) -> str:
        return spelled(self.args)


@contextlib.contextmanager
def in_terms_of(terms: Terms) -> Iterator[None]:
    """Raise a `KeyedError` as an `InputError` in the terms of a caller."""
    try:
        yield
    except KeyedError as error:
        failure = InputError(spelled(error.args, terms))
        failure.__dict__.update(vars(error))  # such as that all ranks raise it
        raise failure from error
