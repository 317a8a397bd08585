"""Errors of images, samples and domains, worded in the terms of the caller.

A case, `open_image` and `permeability` name the same things differently, and cases give numbers per
axis in the order x, y, z. An `ImageError` therefore keeps its message in parts, which a `Terms`
turns into text; by default keys are named as ``image.path`` and axes are in the order of arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from slipstream.collective import is_on_all_ranks, on_all_ranks
from slipstream.errors import InputError


@dataclass(frozen=True)
class Key:
    """An argument, by the table and the key that cases have for it."""

    table: str
    name: str


@dataclass(frozen=True)
class PerAxis:
    """Values that were given or found for z, y and x."""

    values: Any


@dataclass(frozen=True)
class AxesInOrder:
    """The words "z, y and x", or in another order."""


@dataclass(frozen=True)
class Terms:
    """How a caller names arguments, and whether numbers for x come first."""

    name: Callable[[Key], str]
    x_first: bool = False

    def text(self, part: Any) -> str:
        """Return a part of a message as text."""
        if isinstance(part, Key):
            return self.name(part)
        if isinstance(part, AxesInOrder):
            return "x, y and z" if self.x_first else "z, y and x"
        if not isinstance(part, PerAxis):
            return str(part)
        values = part.values
        if self.x_first and isinstance(values, tuple) and len(values) == 3:
            return str(list(reversed(values)))
        return str(values)


def _key_of_case(key: Key) -> str:
    return f"image.{key.name}"


def _argument(key: Key) -> str:
    return "image" if key == Key("image", "path") else key.name


ARRAYS = Terms(lambda key: f"{key.table}.{key.name}")
CASES = Terms(_key_of_case, x_first=True)
_TERMS = ContextVar("terms", default=ARRAYS)
ARGUMENTS = Terms(_argument)


class ImageError(InputError):
    """An `InputError` whose parts are text, `Key`, `PerAxis` or `AxesInOrder`."""

    def text(self) -> str:
        """Return the message in the terms of the caller."""
        return "".join(map(_TERMS.get().text, self.args))


@contextlib.contextmanager
def in_terms_of(terms: Terms) -> Iterator[None]:
    """Raise an `ImageError` as an `InputError` in the terms of a caller.

    So does any rank that receives the error of another one in between.
    """
    token = _TERMS.set(terms)
    try:
        yield
    except ImageError as error:
        failure = InputError(str(error))
        raise (on_all_ranks(failure) if is_on_all_ranks(error) else failure) from error
    finally:
        _TERMS.reset(token)
