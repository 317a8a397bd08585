"""What is wrong with an image, a sample or a domain, told in the words of whoever asked for it.

A case, `open_image` and `permeability` name the same things differently, and cases give numbers per
axis in the order x, y, z. An `ImageError` therefore keeps its message in parts, of which a `Terms`
makes text; where nobody has other terms, `str` names keys as ``image.path`` and has arrays' order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.errors import InputError


@dataclass(frozen=True)
class Key:
    """An argument, by the table and the key that cases have for it."""

    table: str
    name: str


@dataclass(frozen=True)
class PerAxis:
    """What was given or found for z, y and x."""

    values: Any


@dataclass(frozen=True)
class AxesInOrder:
    """The words "z, y and x", or in another order."""


@dataclass(frozen=True)
class Terms:
    """How somebody names arguments, and whether numbers for x come first."""

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


def _name_of_argument(key: Key) -> str:
    return "image" if key == Key("image", "path") else key.name


ARRAYS = Terms(lambda key: f"{key.table}.{key.name}")
CASES = Terms(lambda key: f"image.{key.name}", x_first=True)
ARGUMENTS = Terms(_name_of_argument)


class ImageError(InputError):
    """An `InputError` whose parts are text, `Key`, `PerAxis` or `AxesInOrder`."""

    def __str__(self) -> str:
        return self.told(ARRAYS)

    def told(self, terms: Terms) -> str:
        """Return the message in somebody's terms."""
        return "".join(map(terms.text, self.args))


@contextlib.contextmanager
def in_terms_of(terms: Terms) -> Iterator[None]:
    """Tell what is wrong with images in somebody's terms."""
    try:
        yield
    except ImageError as error:
        raise InputError(error.told(terms)) from error
