"""Names of what a case has several of, such as scalars: they become columns, arrays and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import AfterValidator


def _identifier(name: str) -> str:
    if not name.isidentifier() or len(name) > 100:
        raise ValueError(f"is {name!r}; accepted: letters, digits and '_', not first a digit")
    return name


# A name that expressions can have, too.
Identifier = Annotated[str, AfterValidator(_identifier)]


class Named(Protocol):
    """A table with a name."""

    @property
    def name(self) -> str: ...


def check_distinct(tables: Sequence[Named], what: str) -> None:
    """Refuse two tables of one name."""
    names = [one.name for one in tables]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what} have the name {name!r}; accepted: a name for each")
