"""Few cases instead of all combinations: every two values still meet somewhere."""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Sequence[Hashable])


def every_pair(rows: Iterable[Row]) -> list[Row]:
    """Return few of the rows, such that values which share any of the rows share one of these.

    A row has a value in each of its columns. Rows are given as ``itertools.product`` makes them, or
    fewer where not everything goes together; the order is kept, and the choice is always the same.
    """
    rows = list(rows)
    pairs = [set(itertools.combinations(enumerate(row), min(2, len(row)))) for row in rows]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(rows)), key=lambda number: len(pairs[number] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return [rows[number] for number in sorted(chosen)]
