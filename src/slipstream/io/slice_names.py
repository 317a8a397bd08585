"""Which files of a folder are the slices of a voxel image, and in which order.

They are the TIFF files in it, in the order of the numbers in their names: slice_2 is before
slice_10. Names that do not tell one order, or leave a number out, are refused.
"""

from __future__ import annotations

import itertools
import operator
import os
import re
from collections import Counter
from pathlib import Path

from slipstream.io.image_errors import ImageError, Key
from slipstream.printable_text import shown

SUFFIXES = (".tif", ".tiff")


def slice_files(folder: Path) -> list[Path]:
    """Return the slices in a folder, which are a series without a gap.

    All else in it is ignored: other files, folders, and names that begin with a dot, as macOS makes
    them.

    Raises
    ------
    ImageError
        If there are none, or their names do not tell one order, or a number is missing.
    """
    with os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if Path(entry.name).suffix.lower() in SUFFIXES
            and not entry.name.startswith(".")
            and not entry.is_dir()
        )
    if not names:
        raise _refused(f"{folder} is a folder without slices; accepted: a TIFF file for each")
    numbers = _numbers(folder, names)
    names.sort(key=lambda name: numbers[name])
    pairs = list(itertools.pairwise(names))
    for one, other in pairs:
        if numbers[one] == numbers[other]:
            raise _refused(f"{folder} has {shown(one)} and {shown(other)}, which have one number")
    if pairs:
        _check_gaps(folder, pairs, numbers)
    return [folder / name for name in names]


def _refused(text: str) -> ImageError:
    return ImageError(Key("image", "path"), f": {text}")


def _numbers(folder: Path, names: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers in each name; an `ImageError` if names differ by more than these."""
    parts = {name: re.split("([0-9]+)", Path(name).stem.casefold()) for name in names}
    texts = {name: tuple(found[::2]) for name, found in parts.items()}
    usual, _ = Counter(texts.values()).most_common(1)[0]
    odd = next((name for name in names if texts[name] != usual), None)
    if odd is not None:
        like = next(name for name in names if texts[name] == usual)
        raise _refused(
            f"{folder} has {shown(like)} and {shown(odd)}, whose names differ by more than a "
            "number; accepted: the slices of one image"
        )
    return {name: tuple(map(int, found[1::2])) for name, found in parts.items()}


def _check_gaps(
    folder: Path, pairs: list[tuple[str, str]], numbers: dict[str, tuple[int, ...]]
) -> None:
    """Refuse slices of which none of their numbers counts each.

    Names may have several numbers, such as depths or times: slices are counted by the one that
    grows in the order of all, and the least.
    """
    first, last = numbers[pairs[0][0]], numbers[pairs[-1][1]]
    growing = [
        place
        for place in range(len(first))
        if all(numbers[one][place] < numbers[other][place] for one, other in pairs)
    ]
    if not growing:
        one, other = (shown(name) for name in pairs[0])
        raise _refused(
            f"{folder} has {one}, {other} and so on, in which no number counts the slices;"
            " accepted: names as slice_0001.tif"
        )
    place = min(growing, key=lambda place: last[place] - first[place])
    number = operator.itemgetter(place)
    lacking = number(last) - number(first) - len(pairs)
    for one, other in pairs:
        missing = number(numbers[one]) + 1
        if missing != number(numbers[other]):
            more = f", and {lacking - 1:,} more" if lacking > 1 else ""
            raise _refused(
                f"{folder} has no slice {missing}, between {shown(one)} and {shown(other)}{more};"
                " accepted: slices of which none is missing"
            )
