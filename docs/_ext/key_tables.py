"""Tables of keys in pages, made from the declarations in `slipstream/case`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slipstream.case import SOLVERS, Case, SpectralCase
from slipstream.case.output_tables import AveragesOutput, FieldsOutput
from slipstream.case.table import accepted_values, table_at, tables_in
from slipstream.case.toml_text import toml_value

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def with_tables(text: str) -> str:
    """Return a page with a table where it says ``<!-- keys of NAME -->``."""
    return re.sub("<!-- keys of (.*) -->", lambda found: table_of_keys(found[1]), text)


def table_of_keys(name: str) -> str:
    """Return a table of the keys of a family, of all families, or of an inner table."""
    rows = ["| key | default | accepted | meaning |", "|---|---|---|---|"]
    if name in SOLVERS:
        case = SOLVERS[name]
        for section, table in _sections(case):
            rows += [
                _row(f"{section}.{key}", one)
                for key, one in _own(table, _shared(section))
                if key not in case.occasions
            ]
            rows += [
                _row(f"{section}.{key}", table.model_fields[key], f"`time.end` / {count}")
                for key, count in case.occasions.items()
                if key in table.model_fields
            ]
    elif name == "all solvers":
        rows.append(_row("title", Case.model_fields["title"]))
        for section, table in _sections(Case):
            # Defaults of intervals depend on the family.
            rows += [
                _row(f"{section}.{key}", one)
                for key, one in table.model_fields.items()
                if key not in Case.occasions
            ]
    else:
        table = table_at(SpectralCase, tuple(name.split(".")))
        base = FieldsOutput if table is AveragesOutput else None
        rows += [_row(key, one) for key, one in _own(table, base)]
    return "\n".join(rows)


def _own(table: type[BaseModel], base: type[BaseModel] | None) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys of a table that its base lacks, or has with another meaning."""
    known = {} if base is None else base.model_fields
    for key, one in table.model_fields.items():
        if key not in known or one.description != known[key].description:
            yield key, one


def _sections(case: type[Case]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the tables of a case: the problem first, then times, the machine and output."""
    last = ("time", "run", "output")
    order = [name for name in case.model_fields if name not in ("solver", "title", *last)]
    for name in (*order, *last):
        yield name, next(tables_in(case.model_fields[name].annotation))


def _shared(section: str) -> type[BaseModel] | None:
    """Return the table of that name that all families have, or None."""
    return dict(_sections(Case)).get(section)


def _row(key: str, declared: FieldInfo, default: str = "") -> str:
    meaning = declared.description or ""
    if declared.is_required() and not default:
        default = "" if "(default:" in meaning else "required"
    elif not default and declared.default not in (None, ()):
        default = f"`{toml_value(declared.default)}`"
    return f"| `{key}` | {default} | {accepted_values(declared)} | {meaning} |"


def insert_tables(app: Sphinx, page: str, source: list[str]) -> None:
    """Insert the tables into the source of a page."""
    source[0] = with_tables(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Insert the tables when pages are read."""
    app.connect("source-read", insert_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
