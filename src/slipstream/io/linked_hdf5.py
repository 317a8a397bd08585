"""Data sets of HDF5 files that are in the file itself.

HDF5 files may lead to others: by links, by virtual data sets, and by values that lie elsewhere.
What is asked for by name is looked up link by link, so that no other file is even opened.
"""

from __future__ import annotations

from typing import Any

_MOST_LINKS = 100


def own_dataset(file: Any, name: str) -> Any:
    """Return a data set of an open file, None if it has none of that name.

    Raises
    ------
    ValueError
        If the way to it, or its values, lead to another file.
    """
    import h5py

    here, rest, links = file["/"], name.split("/")[::-1], 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            raise ValueError(f"{name} is a link to another file, which is not followed")
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > _MOST_LINKS:
                return None
            rest += link.path.split("/")[::-1]
            here = file["/"] if link.path.startswith("/") else here
        elif link is None:
            return None
        else:
            here = here[part]
    if not isinstance(here, h5py.Dataset):
        return None
    if here.is_virtual or here.external:
        raise ValueError(f"{name} has its values in other files, which are not read")
    return here
