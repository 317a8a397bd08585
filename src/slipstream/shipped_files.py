"""Folders of files that Slipstream ships, such as ``cases``: wheels take them into the package."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = Path(__file__).parent


@functools.cache
def shipped_folder(name: str) -> Path:
    """Return the folder of this name, in the package or in the repository."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parents[1] / name
