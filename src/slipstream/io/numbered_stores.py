"""Names of stores that continue with other points: ``fields.zarr``, ``fields~2.zarr``, ..."""

from __future__ import annotations

import re
from pathlib import Path

NUMBER_SIGN = "~"  # no name that users give has it


def next_store_name(path: Path) -> str:
    """Return the name of the next store, with other points, such as ``fields~2``."""
    stem, _, number = path.stem.partition(NUMBER_SIGN)
    return f"{stem}{NUMBER_SIGN}{int(number or 1) + 1}{path.suffix}"


def numbered_stores(path: Path) -> list[Path]:
    """Return a store and its continuations with other points, in order."""
    name = re.compile(rf"{re.escape(path.stem)}(?:{NUMBER_SIGN}(\d{{1,6}}))?{path.suffix}")
    folder = path.parent.iterdir() if path.parent.is_dir() else ()
    found = ((name.fullmatch(one.name), one) for one in folder)
    return [one for _, one in sorted((int(match[1] or 1), one) for match, one in found if match)]
