"""Errors that name keys, spelled as their reader knows them.

Cases and functions of Python name the same things differently, and cases give numbers per axis in
the order x, y, z. A `KeyedError` therefore keeps its message in parts, which a `Terms` turns into
text; by default keys are named as ``image.path`` and axes are in the order of arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from slipstream.engine.errors import InputError


@dataclass(frozen=True)
class KeyName:
    """A key of a case, or the argument that stands for it."""

    table: str
    name: str


@dataclass(frozen=True)
class PerAxis:
    """Values that were given or found for z, y and x."""

    values: Any


@dataclass(frozen=True)
class Terms:
    """How a caller names arguments, and whether numbers for x come first."""

    name: Callable[[KeyName], str]
    x_first: bool = False

    def text(self, part: Any) -> str:
        """Return a part of a message as text."""
        if isinstance(part, KeyName):
            return self.name(part)
        if not isinstance(part, PerAxis):
            return str(part)
        values = part.values
        if self.x_first and isinstance(values, tuple) and len(values) == 3:
            return str(list(reversed(values)))
        return str(values)


def _key_of_case(key: KeyName) -> str:
    # Keys of samples are keys of their image.
    return f"{'image' if key.table == 'sample' else key.table}.{key.name}"


# Arguments that are not called like their keys.
_OTHER_NAMES = {KeyName("image", "path"): "image", KeyName("time", "end"): "max_steps"}


def _argument(key: KeyName) -> str:
    return _OTHER_NAMES.get(key, key.name)


ARRAYS = Terms(lambda key: f"{key.table}.{key.name}")
CASES = Terms(_key_of_case, x_first=True)
ARGUMENTS = Terms(_argument)
_TERMS = ContextVar("terms", default=ARRAYS)


def spelled(parts: Iterable[Any], terms: Terms | None = None) -> str:
    """Return the parts of a message as text, in the present terms by default."""
    return "".join(map((terms or _TERMS.get()).text, parts))


def keys_in_order(table: str, names: Iterable[str]) -> list[Any]:
    """Return the keys of a table as parts of a message, with commas between them."""
    return [part for name in names for part in (", ", KeyName(table, name))][1:]


class KeyedError(InputError):
    """An `InputError` whose parts are text, `KeyName` or `PerAxis`."""

    def text(self) -> str:
        """Return the message in the terms of the caller."""
        return spelled(self.args)


class Refusal(ValueError):
    """A fault of several keys together, in such parts; it names all of them."""

    def __str__(self) -> str:
        return spelled(self.args)


@contextlib.contextmanager
def in_terms_of(terms: Terms) -> Iterator[None]:
    """Raise a `KeyedError` as an `InputError` in the terms of a caller.

    So does any rank that receives the error of another one in between.
    """
    token = _TERMS.set(terms)
    try:
        yield
    except KeyedError as error:
        # Only now: the settings models of the command line load no communication.
        from slipstream.engine.collective import is_on_all_ranks, on_all_ranks

        failure = InputError(str(error))
        raise (on_all_ranks(failure) if is_on_all_ranks(error) else failure) from error
    finally:
        _TERMS.reset(token)
