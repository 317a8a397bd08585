"""Writing a commented case to start from: of a family, of another case, or of a model."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from slipstream.case.case_loading import SOLVERS, read_tables
from slipstream.case.common_tables import Case
from slipstream.case.spectral_case import COURANT_NUMBER, model_in
from slipstream.case.table import (
    accepted_values,
    meaning_of_table,
    meanings_of_names,
    range_of,
    tables_in,
    type_of,
)
from slipstream.case.toml_text import as_tables, toml_value
from slipstream.engine.accepted import MODELS, listed
from slipstream.engine.errors import InputError

if TYPE_CHECKING:
    from slipstream.equations import Lowered


Tables = Mapping[str, Any]

# The column where comments begin.
_COLUMN = 32
# Characters of a comment, at most.
_WIDTH = 76
# Characters of a line; a longer one has its comment below.
_LONGEST = 60
# Values of parameters that have no default, where there is a usual one.
_PARAMETERS = {"viscosity": 0.005, "diffusivity": 0.005, "resistivity": 0.005}
# Parameters of shipped models whose defaults suit no box of length 2 pi.
_PARAMETERS_OF_MODELS = {
    "gpe": {"sound_speed": 2.0, "healing_length": 0.1},
    "argle": {"sound_speed": 2.0, "healing_length": 0.1},
    "lans-alpha": {"width": 0.1},
    "leray-alpha": {"width": 0.1},
    "smagorinsky": {"width": 0.1},
    "dynamic-smagorinsky": {"cutoff": 21.0},
    "chollet-lesieur": {"cutoff": 21.0},
    "isothermal": {"sound_speed": 2.0},
}
# Initial flows of shipped models.
_FLOWS_OF_MODELS = {
    "hd": "taylor-green",
    "boussinesq": "taylor-green",
    "rayleigh-benard": "random",
    "mhd": "orszag-tang-3d",
    "gpe": "quantum-taylor-green",
    "argle": "quantum-taylor-green",
    "lans-alpha": "taylor-green",
    "leray-alpha": "taylor-green",
    "smagorinsky": "taylor-green",
    "dynamic-smagorinsky": "taylor-green",
    "chollet-lesieur": "random",
    "isothermal": "taylor-green",
}


@dataclass(frozen=True)
class _Start:
    """The beginning of a family's template, and the keys that it sets."""

    what: str
    notes: str
    settings: str
    values: Tables
    # Whether cases choose a model, whose parameters and fields are filled in.
    has_models: bool = False


_STARTS = {
    "spectral": _Start(
        "turbulence in a periodic box",
        "All quantities are non-dimensional.",
        "--set grid.points=128 --set equation.viscosity=0.002",
        {},
        has_models=True,
    ),
    "advection": _Start(
        "a Gaussian carried through a periodic box by a constant velocity",
        "It is the test of White and Dongarra for what overlaps what: the exact solution is known,"
        " and every strategy gives the same bits. The edges of the box have length 1.",
        "--set grid.points=256 --set run.strategy=mpi",
        {"grid": {"points": 64}, "flow": {"courant": 0.5}, "time": {"end": 1}},
    ),
    "lattice": _Start(
        "flow through the pores of a voxel image, and its permeability",
        "Numbers per axis are in the order x, y, z. Forces, pressures and times are in lattice"
        " units: voxels, time steps, and the density of the fluid at rest. For an image of yours,"
        " remove the keys of the sample, or leave them to --set image.path=...",
        "--set flow.axis=x --set numerics.precision=mixed",
        {
            "image": {
                "sample": "sandstone",
                "shape": [64, 64, 64],
                "radius": 8.0,
                "porosity": 0.3,
            },
            "time": {"end": 20000},
        },
    ),
}


def write_template(
    name: str,
    overwrite: bool = False,
    solver: str | None = None,
    *,
    source: str | Path | None = None,
    model: str | None = None,
) -> Path:
    """Write ``NAME.toml``, a case with an explanation of every key.

    Parameters
    ----------
    name : str
        Path of the file, with or without ``.toml``.
    overwrite : bool
        Whether a file that exists may be replaced.
    solver : str, optional
        Solver family whose template to write; by default the family of `source`, or "spectral".
    source : str or pathlib.Path, optional
        A case whose values to take: a file, or the name of a shipped one. No code that it names is
        run.
    model : str, optional
        A model of the spectral family, shipped or ``FILE.py:FUNCTION``, whose parameters and fields
        to fill in. A Python file is run.

    Returns
    -------
    pathlib.Path
        The file written.

    Raises
    ------
    InputError
        If there is no such solver family, case or model, the file exists or its folder does not.
    """
    if solver is not None and solver not in SOLVERS:
        raise InputError(f"--solver: {solver!r} is not accepted; accepted: {', '.join(SOLVERS)}")
    path = Path(name) if name.endswith(".toml") else Path(f"{name}.toml")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another name or add --overwrite")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first")
    family = solver or "spectral"
    if source is not None and model is not None:
        raise InputError(
            "--from and --model do not go together: a case has a model already; use one of them"
        )
    if source is not None:
        values, head = _values_and_head(source)
        family = str(values["solver"])
    elif model is not None or _STARTS[family].has_models:
        values, family = _tables_of_model(model or model_in({})), "spectral"
    else:
        values = _STARTS[family].values
    if solver not in (None, family):
        raise InputError(
            f"--solver: {source or model} is of solver {family!r}, not {solver!r}; use {family}"
        )
    if source is None:
        head = [f"# A case for Slipstream: {_STARTS[family].what}."]
    case = SOLVERS[family]
    model = model_in(values.get("equation", {}))
    is_shipped = isinstance(model, str) and model in MODELS
    if source is None or is_shipped:  # no code of a case is run
        case = case.suited_to(dict(values))
    lines = [*head, *_instructions(family), *_lines_of_case(case, family, path.stem, values)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _values_and_head(source: str | Path) -> tuple[Tables, list[str]]:
    """Return the tables of a case, and the comment with which its file begins."""
    tables, text = read_tables(source)
    solver = tables.get("solver")
    if solver not in tuple(SOLVERS):
        raise InputError(f"{source}: solver: accepted: {', '.join(SOLVERS)}")
    for name, table in tables.items():
        if name not in ("solver", "title") and not as_tables(table):
            raise InputError(f"{source}: {name} must be a table; use [{name}]")
    head = []
    for line in text.splitlines():
        # Lines after an empty one are the template's, in a copy of a copy.
        if not line.startswith("# "):
            break
        head.append(line)
    return tables, head


def _instructions(family: str) -> Iterator[str]:
    start = _STARTS[family]
    text = (
        "Every key is listed with its meaning; keys that are commented out show their default or"
        f" an example. {start.notes} Any key can be changed for one run:"
    )
    yield from ["#", "#     slipstream run THIS-FILE", "#"]
    yield from (f"# {line}" for line in textwrap.wrap(text, 98))
    yield from ["#", f"#     slipstream run THIS-FILE {start.settings}", ""]


def _lines_of_case(case: type[Case], family: str, title: str, values: Tables) -> Iterator[str]:
    """Yield the lines of a case: keys set in `values`, and all other keys, commented out."""
    families = listed(f'"{name}"' for name in SOLVERS)
    yield from _line(f"solver = {toml_value(family)}", f"solver family: {families}")
    yield from _line(f"title = {toml_value(title)}", case.model_fields["title"].description or "")
    # The problem comes before time, devices and output.
    last = ("time", "run", "output")
    own = [name for name in case.model_fields if name not in ("solver", "title", *last)]
    for section in (*own, *last):
        yield ""
        yield from _lines_of_table(case, section, values)


def _lines_of_table(case: type[Case], section: str, values: Tables) -> Iterator[str]:
    declared = case.model_fields[section]
    table = next(tables_in(declared.annotation))
    is_left_out = section not in values and declared.default in (None, ())
    first, *more_tables = as_tables(values.get(section, {})) or [{}]
    head = f"[[{section}]]" if more_tables else f"[{section}]"
    yield from _line(f"{'# ' if is_left_out else ''}{head}", meaning_of_table(table))
    yield from _lines_of_keys(case, section, table, dict(first))
    for other in more_tables:
        yield from ["", head]
        yield from (f"{name} = {_value(name, value)}" for name, value in other.items())


def _lines_of_keys(
    case: type[Case], section: str, table: type[BaseModel], set_keys: dict[str, Any]
) -> Iterator[str]:
    """Yield the lines of a table: given keys, and all other keys, commented out."""
    fields = table.model_fields
    for name in sorted(fields, key=lambda name: name not in set_keys):
        field = fields[name]
        text = _comment(case, section, name, field)
        names = _names(field)
        if name in set_keys:
            line = f"{name} = {_value(name, set_keys.pop(name))}"
        else:
            line = f"# {name} = {_value(name, _shown_value(case, section, name, field))}"
        yield from _line(line, f"{text}:" if names else text, names)
    for name, value in set_keys.items():
        text = "parameter of the model" if section == "equation" else ""
        yield from _line(f"{name} = {_value(name, value)}", text)


def _shown_value(case: type[Case], section: str, name: str, field: FieldInfo) -> Any:
    """Return the default of a key that is commented out, or an example."""
    if f"{section}.{name}" in case.examples:
        return case.examples[f"{section}.{name}"]
    if field.is_required() or field.default is None or field.default == ():
        return field.examples[0] if field.examples else _starting_value(name, field)
    return field.default


def _comment(case: type[Case], section: str, name: str, field: FieldInfo) -> str:
    """Return the comment on a key: its meaning, bounds, default and the keys of its tables."""
    parts = [field.description or ""]
    if section == "equation" and name != "model":
        parts.append(f"{accepted_values(field)}{' (required)' if field.is_required() else ''}")
    elif not meanings_of_names(field):
        parts.append(range_of(field))
    if section == "output" and name in case.occasions:
        parts[0] += f" (default: time.end / {case.occasions[name]})"
    for table in tables_in(field.annotation):
        parts.append(f"keys: {', '.join(table.model_fields)}")
        break
    return "; ".join(part for part in parts if part)


def _names(field: FieldInfo) -> list[str]:
    """Return a line for each name that a key accepts, or for those with the same meaning."""
    alike: dict[str, list[str]] = {}
    for name, meaning in meanings_of_names(field).items():
        alike.setdefault(meaning, []).append(f'"{name}"')
    width = max((len(", ".join(group)) for group in alike.values()), default=0)
    return [f"  {', '.join(group):{width}}  {meaning}" for meaning, group in alike.items()]


def _line(line: str, text: str, below: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line with its comment, wrapped, and lines of comment below."""
    is_long = len(line) > _LONGEST
    room = _WIDTH - max(0, len(line) + 4 - _COLUMN)
    first, *rest = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    if is_long:
        first, rest = "", textwrap.wrap(text, _WIDTH, break_on_hyphens=False)
    elif rest:
        rest = textwrap.wrap(" ".join(rest), _WIDTH, break_on_hyphens=False)
    yield f"{line:{_COLUMN - 2}}  # {first}" if first else line
    yield from (f"#{'':{_COLUMN - 1}}# {one}" for one in (*rest, *below))


def _value(key: str, value: Any) -> str:
    try:
        return toml_value(value)
    except TypeError as error:
        raise InputError(f"{key}: {error}") from error


def _starting_value(key: str, field: FieldInfo) -> Any:
    """Return a value for a parameter that has no default."""
    adapter: TypeAdapter[Any] = TypeAdapter(type_of(field))
    schema = adapter.json_schema()
    bounds = [schema[one] for one in ("minimum", "maximum") if one in schema]
    for value in (_PARAMETERS.get(key), 1.0, 1, *bounds):
        try:
            return adapter.validate_python(value, strict=True)
        except ValidationError:
            continue
    return 1.0


def _tables_of_model(name: str) -> dict[str, Any]:
    """Return the tables of a new case of a model, whose Python file is run."""
    # SymPy takes a while to import, for which other families need not wait.
    from slipstream.equations import models

    suited = SOLVERS["spectral"].suited_to({"equation": {"model": name}})
    fields = next(tables_in(suited.model_fields["equation"].annotation)).model_fields
    equation: dict[str, Any] = {"model": name}
    parameters: dict[str, Any] = {}
    for key, field in fields.items():
        if key == "model":
            continue
        parameters[key] = _starting_value(key, field) if field.is_required() else field.default
        if field.is_required():
            equation[key] = parameters[key]
    equation |= _PARAMETERS_OF_MODELS.get(name, {})
    lowered = models.lowered(name, parameters)
    usual = "random" if lowered.plane_vectors else "formula"
    initial: dict[str, Any] = {"flow": _FLOWS_OF_MODELS.get(name, usual)}
    if initial["flow"] == "formula":
        initial["fields"] = _formulas(lowered)
    time = {"end": 10, "cfl": COURANT_NUMBER}
    if not lowered.speeds or any(source != 0 for source in lowered.sources):
        time["max_step"] = 0.01
    numerics = {"numerics": {"dealiasing": "1/2"}} if lowered.degree > 2 else {}
    return {
        "solver": "spectral",
        "grid": {"points": [128, 128, 1] if lowered.plane_vectors else 64},
        "equation": equation,
        "initial": initial,
        "time": time,
        **numerics,
    }


def _formulas(lowered: Lowered) -> dict[str, Any]:
    """Return a formula for each field, or three of a vector without divergence."""
    sizes: dict[str, int] = {}
    for component in lowered.unknowns:
        sizes[component.field] = sizes.get(component.field, 0) + 1
    return {
        name: ["sin(y)", "sin(z)", "sin(x)"] if size == 3 else "0.1*sin(x)*cos(y)"
        for name, size in sizes.items()
    }
