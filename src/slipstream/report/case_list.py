"""The list of the cases that come with Slipstream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from slipstream.case import SHIPPED_CASES
from slipstream.case.case_loading import read_tables


def list_of_cases() -> Group:
    """Return a table of the shipped cases, and how to run and copy one."""
    table = Table(box=box.HORIZONTALS)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("family", no_wrap=True)
    table.add_column("size", no_wrap=True)
    table.add_column("2 cores", no_wrap=True)
    for name, told in SHIPPED_CASES.items():
        tables, _ = read_tables(name)
        table.add_row(name, told.what, tables["solver"], _size_of(tables), told.duration)
    return Group(
        table,
        "run one:        slipstream run taylor-green",
        "copy one:       slipstream new mine --from taylor-green",
        "make it small:  slipstream run taylor-green --set grid.points=64",
    )


def _size_of(tables: Mapping[str, Any]) -> str:
    """Return the number of points, or voxels, along the axes."""
    size = tables["image"]["shape"] if "image" in tables else tables["grid"]["points"]
    sizes = size if isinstance(size, list) else [size] * 3
    sizes = [one for one in sizes if one > 1]
    if len(set(sizes)) == 1:
        return f"{sizes[0]}^{len(sizes)}"
    return " x ".join(map(str, sizes))
