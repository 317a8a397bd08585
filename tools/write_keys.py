"""Write what repeats the declarations of keys: signatures and docstrings, and tables of docs.

    python tools/write_keys.py           # writes what is not as the tables of cases say
    python tools/write_keys.py --check   # only names the files, with status 1

Keys are declared in `slipstream/case`. Arguments of Python classes that are keys have to be in the
source as text, since editors and type checkers run no code: here their lines in signatures, and
their entries in docstrings, are written. In docs/cases.md it is what lies between markers.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slipstream.accepted import listed
from slipstream.case import SOLVERS, AdvectionCase, Case, LatticeCase, SpectralCase
from slipstream.case.declared_keys import (
    accepted_values,
    key_at,
    sentence,
    table_at,
    tables_in,
    type_of,
)
from slipstream.case.output_tables import AveragesOutput, FieldsOutput, MovieOutput
from slipstream.case.table import OneOf
from slipstream.case.toml_text import toml_value
from slipstream.interactive import spectral_flow, tracer_advection
from slipstream.lattice import lattice_arguments

ROOT = Path(__file__).resolve().parents[1]
_INTERACTIVE = ROOT / "src" / "slipstream" / "interactive"
_DOCUMENT = ROOT / "docs" / "cases.md"
_WIDTH = 100


@dataclass(frozen=True)
class Callee:
    """A class, a function or a method (``Class.method``) whose arguments are keys of a table."""

    file: Path
    name: str
    table: type[BaseModel]
    keys: Mapping[str, str]
    # Arguments that take more than the key does, or mean it in another order.
    annotations: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)


_NAVIER_STOKES = SpectralCase.suited_to({})
_PARAMETERS = [
    key for key in table_at(_NAVIER_STOKES, ("equation",)).model_fields if key != "model"
]
_FOLDER = {"restart": ("str | Path", "str or pathlib.Path")}
# Arguments on images take more than the keys do, or mean it in another order.
_OF_IMAGES = {
    "dtype": ("Any", "dtype"),
    "mirror": ("bool | str | Sequence[str]", "bool, str or sequence of str"),
}
_MEANINGS_OF_IMAGES = {
    "shape": "number of voxels along z, y and x, of raw values",
    "crop": "part to use: first voxel, and last voxel plus one, along z, y and x",
    "mirror": "axes along which the mirror image follows, so that opposite faces match, such as"
    ' "xy"; True for the axis of the flow',
}
# Which points are written: arrays and pairs do as well as tables.
_POINTS = {
    "plane": ("Place", "(axis, position)"),
    "line": ("Place", "(axis, (a, b))"),
    "points": ("Any", "array of shape (n, 3)"),
    "box": ("Mapping[str, Sequence[float]]", 'mapping such as ``{"x": (0, 1)}``'),
    "stride": ("int | Sequence[int]", "int or sequence of 3 int"),
}


def _same(*names: str) -> dict[str, str]:
    """Return keys by the names of arguments that are called like them."""
    return {name: name for name in names}


CALLEES = (
    Callee(_INTERACTIVE / "spectral_flow.py", "Flow", SpectralCase, spectral_flow._KEYS),
    Callee(
        _INTERACTIVE / "spectral_flow.py",
        "Turbulence",
        _NAVIER_STOKES,
        {
            "points": "grid.points",
            **{key: f"equation.{key}" for key in _PARAMETERS},
            **spectral_flow._KEYS,
        },
    ),
    Callee(
        _INTERACTIVE / "tracer_advection.py",
        "Advection",
        AdvectionCase,
        tracer_advection._KEYS,
        _FOLDER,
    ),
    Callee(
        _INTERACTIVE / "porous_flow.py",
        "PorousFlow",
        LatticeCase,
        lattice_arguments.KEYS,
        {**_FOLDER, **_OF_IMAGES},
        _MEANINGS_OF_IMAGES,
    ),
    Callee(
        ROOT / "src" / "slipstream" / "lattice" / "permeability.py",
        "permeability",
        LatticeCase,
        # It begins from rest, and takes walls as letters only.
        {
            key: one
            for key, one in lattice_arguments.KEYS.items()
            if key not in ("restart", "walls")
        },
        _OF_IMAGES,
        _MEANINGS_OF_IMAGES,
    ),
    Callee(
        _INTERACTIVE / "output_methods.py",
        "OutputMethods.output",
        FieldsOutput,
        _same(*_POINTS, "precision", "format"),
        _POINTS,
    ),
    Callee(
        _INTERACTIVE / "output_methods.py",
        "OutputMethods.average",
        AveragesOutput,
        _same("batch", "profile", "phases", *_POINTS),
        _POINTS,
    ),
    Callee(
        _INTERACTIVE / "output_methods.py",
        "OutputMethods.movie",
        MovieOutput,
        _same("plane", "range", "frames_per_second", "size", "format"),
        {"plane": _POINTS["plane"]},
    ),
)


def types_of(annotation: Any) -> tuple[list[str], list[str]]:
    """Return the types of a key as annotations of Python have them, and as docstrings do."""
    if annotation is NoneType:
        return ["None"], []
    if get_origin(annotation) in (Union, UnionType):
        found = [types_of(part) for part in get_args(annotation)]
        annotations = [one for each, _ in found for one in each]
        texts = [one for _, each in found for one in each]
        return list(dict.fromkeys(annotations)), list(dict.fromkeys(texts))
    if get_origin(annotation) is Annotated:
        kind, *constraints = get_args(annotation)
        names = [name for one in constraints if isinstance(one, OneOf) for name in one.names]
        return types_of(Literal[tuple(names)] if names else kind)
    if get_origin(annotation) is Literal:
        return ["str"], [f"{{{', '.join(toml_value(name) for name in get_args(annotation))}}}"]
    if get_origin(annotation) is tuple:
        item, *others = get_args(annotation)
        annotations, texts = types_of(item)
        # "xy" is as good as ["x", "y"].
        letters = ["str"] if get_origin(item) is Literal else []
        count = "" if others == [...] else f"{1 + len(others)} "
        text = listed(letters or texts)
        return [*letters, f"Sequence[{' | '.join(annotations)}]"], [
            *letters,
            f"sequence of {count}{f'({text})' if ' ' in text else text}",
        ]
    return [annotation.__name__], [annotation.__name__]


def argument_of(callee: Callee, name: str) -> tuple[str, str, str]:
    """Return the line of an argument in a signature, its type for docstrings, and its meaning."""
    declared = key_at(callee.table, callee.keys[name])
    kind = type_of(declared)
    annotations, texts = types_of(kind)
    meaning = callee.meanings.get(name) or declared.description or ""
    is_optional = "None" in annotations
    if name in callee.annotations:
        annotation, text = callee.annotations[name]
        annotations = [annotation, *(["None"] if is_optional and annotation != "Any" else [])]
        texts = [text]
    line = f"{name}: {' | '.join(annotations)}"
    if not declared.is_required():
        line += f" = {_literal(declared.default)}"
    type_text = listed(texts)
    if len(name) + len(type_text) > _WIDTH - 20:
        names = [toml_value(one) for one in _names(kind)]
        type_text, meaning = "str", f"{meaning}. One of {listed(names)}"
    return line, f"{type_text}{', optional' if is_optional else ''}", meaning


def _names(kind: Any) -> list[str]:
    return [name for one in get_args(kind) if isinstance(one, OneOf) for name in one.names]


def _literal(default: Any) -> str:
    return toml_value(default) if isinstance(default, str) else repr(default)


def with_arguments(text: str, callee: Callee) -> str:
    """Return a source with the arguments of a callee that are keys written again."""
    lines = text.split("\n")
    owner, _, name = callee.name.rpartition(".")
    body = ast.parse(text).body
    made = _named(_named(body, owner).body if owner else body, name)
    constructor = made if isinstance(made, ast.FunctionDef) else _named(made.body, "__init__")
    function = cast(ast.FunctionDef, constructor)
    arguments = {name: argument_of(callee, name) for name in callee.keys}
    given, positional = function.args, function.args.args
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    indent = " " * (function.col_offset + 4)
    # What each line, counted from 0, is replaced by.
    changes: dict[int, list[str]] = {}
    block = {name: f"{indent}{line}," for name, (line, _, _) in arguments.items()}
    for one, default in zip(positional, defaults, strict=True):
        if one.arg in arguments:
            changes |= _replaced(one, default, [block.pop(one.arg)])
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if one.arg in arguments:
            changes |= _replaced(one, default, list(block.values()))
            block = {}
    docstring = made.body[0]
    start, stop = docstring.lineno, docstring.end_lineno or docstring.lineno
    changes |= dict.fromkeys(range(start, stop), [])
    changes[start] = _documented(lines[start:stop], arguments, " " * docstring.col_offset)
    return "\n".join(new for n, line in enumerate(lines) for new in changes.get(n, [line]))


def _named(body: list[ast.stmt], name: str) -> ast.ClassDef | ast.FunctionDef:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return next(one for one in body if isinstance(one, kinds) and one.name == name)


def _replaced(argument: ast.arg, default: ast.expr | None, new: list[str]) -> dict[int, list[str]]:
    """Return what the lines of an argument are replaced by."""
    last = (default or argument).end_lineno or argument.lineno
    return {argument.lineno - 1: new, **dict.fromkeys(range(argument.lineno, last), [])}


def _documented(
    lines: list[str], arguments: Mapping[str, tuple[str, str, str]], indent: str
) -> list[str]:
    """Return the lines of a docstring with its entries of arguments written again."""
    start = lines.index(f"{indent}Parameters") + 2
    stop = next(n for n in range(start, len(lines)) if lines[n].startswith(f"{indent}---")) - 2
    entries: list[tuple[str, list[str]]] = []
    for line in lines[start:stop]:
        if line.startswith(f"{indent} "):
            entries[-1][1].append(line)
        else:
            entries.append((line.partition(" : ")[0].strip(), [line]))
    written = []
    for name, (_, kind, meaning) in arguments.items():
        text = textwrap.fill(
            sentence(meaning),
            _WIDTH,
            initial_indent=f"{indent}    ",
            subsequent_indent=f"{indent}    ",
            break_on_hyphens=False,
        )
        written += [f"{indent}{name} : {kind}", *text.split("\n")]
    first = next(n for n, (name, _) in enumerate(entries) if name in arguments)
    before = [line for _, each in entries[:first] for line in each]
    after = [line for name, each in entries[first:] if name not in arguments for line in each]
    return [*lines[:start], *before, *written, *after, *lines[stop:]]


def with_tables(text: str) -> str:
    """Return docs/cases.md with its tables of keys written again."""
    for name in re.findall(r"<!-- keys of (.*) -->", text):
        head, _, rest = text.partition(f"<!-- keys of {name} -->\n")
        _, end, tail = rest.partition("<!-- end of keys -->")
        text = f"{head}<!-- keys of {name} -->\n{_table(name)}\n{end}{tail}"
    return text


def _table(name: str) -> str:
    """Return a table of the keys of a family, of those of all families, or of an inner table."""
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
            # Families have defaults of their own for what is filled in.
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
    """Yield the keys of a table that another one has not, or with another meaning."""
    others = {} if base is None else base.model_fields
    for key, one in table.model_fields.items():
        if key not in others or one.description != others[key].description:
            yield key, one


def _sections(case: type[Case]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the tables of a case, what is solved before how far, where and what is written."""
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


def outdated() -> dict[Path, str]:
    """Return what files should have, of those that have something else."""
    made: dict[Path, str] = {}
    for callee in CALLEES:
        made[callee.file] = with_arguments(_text(callee.file, made), callee)
    made[_DOCUMENT] = with_tables(_text(_DOCUMENT, made))
    return {path: text for path, text in made.items() if text != path.read_text()}


def _text(path: Path, made: Mapping[Path, str]) -> str:
    return made.get(path) or path.read_text()


def main(arguments: list[str]) -> int:
    """Write the files, or name those that are not current."""
    for path, text in outdated().items():
        print(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.write_text(text)
    return int("--check" in arguments and bool(outdated()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
