"""Few cases instead of all combinations: every value, or every two of them, still come."""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Sequence[Hashable])


def every_pair(rows: Iterable[Row]) -> list[Row]:
    """Return few of the rows, such that values which share any of the rows share one of these.

    A row has a value in each of its columns. Rows are given as ``itertools.product`` makes them, or
    fewer where not everything goes together; the order is kept, and the choice is always the same.
    """
    return _covering(rows, 2)


def every_value(rows: Iterable[Row]) -> list[Row]:
    """Return fewer of the rows still, in which every value of a column comes; see `every_pair`."""
    return _covering(rows, 1)


def _covering(rows: Iterable[Row], together: int) -> list[Row]:
    rows = list(rows)
    groups = [set(itertools.combinations(enumerate(row), min(together, len(row)))) for row in rows]
    missing, chosen = set().union(*groups), []
    while missing:
        best = max(range(len(rows)), key=lambda number: len(groups[number] & missing))
        chosen.append(best)
        missing -= groups[best]
    return [rows[number] for number in sorted(chosen)]
