"""Reading a case: a file, found by its name, then overrides, then validation."""

from __future__ import annotations

import functools
import importlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from slipstream.case.common_tables import Case
from slipstream.case.table import choices_at, is_key, key_at, keys_of, table_at
from slipstream.engine import accepted
from slipstream.engine.error_terms import ARRAYS, KeyName, Refusal, Terms, spelled
from slipstream.engine.errors import InputError, nearest
from slipstream.engine.text import shortened, shown

_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list",
    "too_long": "three numbers",
    "missing_argument": "three numbers",
    "model": "a table",
}

# Characters of the message of a check: accepted names take some hundreds.
_LONGEST_MESSAGE = 800
# Letters of a case, at most.
_MOST_LETTERS = 1 << 20
# Bits of a whole number of a case, at most: a float holds no larger one.
_MOST_BITS = 1023
# The names of the kinds of values that a key may have, which are no parts of the key.
_KIND_OF_UNION = re.compile(r"(float|int|str|bool)$|(function-|tuple\[|list\[)")
# The name of one of several tables, such as forcing[2].
_NUMBERED = re.compile(r"(.+)\[([0-9]{1,6})\]")


def explain(
    model: type[BaseModel], error: ValidationError, data: Any = None, terms: Terms = ARRAYS
) -> tuple[str, str]:
    """Return the dotted key that failed first, and one line about it that begins with a key.

    Unknown keys are reported first, since they tend to cause the rest. `data` is the user's input.
    """
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    key = _key(problem, data) or "case"
    text = _describe(model, problem, terms)
    if any(f"tuple[{', '.join(['float'] * 3)}]" in str(one["loc"]) for one in problems[1:]):
        text = text.replace("must be a number,", "must be a number, or three,")
    names_keys = isinstance(problem.get("ctx", {}).get("error"), Refusal)
    message = text if names_keys else f"{_spell_key(key, terms)}: {text}"
    if len(problems) > 1:
        keys = dict.fromkeys(_key(one, data) for one in problems[1:])
        more = [_spell_key(one, terms) for one in keys if one.partition("[")[0] != key]
        if more:
            message += f" (also wrong: {', '.join(more[:3])}{', ...' if len(more) > 3 else ''})"
    return key, " ".join(message.split())


def _key(problem: Any, data: Any) -> str:
    key = ""
    for part in problem["loc"]:
        is_number = isinstance(part, int)
        # A table that stands for a list of one has no number in the input.
        if is_number and isinstance(data, dict):
            continue
        if not is_number and _KIND_OF_UNION.match(part):
            continue
        # Tables of a list are counted as people do.
        key += f"[{part + 1}]" if is_number else f".{shortened(str(part))}"
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
    return key.removeprefix(".")


def _spell_key(key: str, terms: Terms) -> str:
    table, _, name = key.partition(".")
    return spelled([KeyName(table, name)], terms) if name else key


def _guess(
    model: type[BaseModel], location: tuple[Any, ...], value: Any, accepted: list[str]
) -> str:
    """Return a guess at the meaning of an unknown key: a key of a table, or a similar key."""
    near = nearest(str(location[-1]), accepted)
    if len(location) > 1 or isinstance(value, dict):
        return near
    candidates = [key for key in keys_of(model) if key.endswith(f".{location[0]}")]
    if not candidates and near:
        return near
    if not candidates and "equation" in model.model_fields:  # whose keys are the model's parameters
        candidates = [f"equation.{shortened(str(location[0]))}"]
    return f"; did you mean {' or '.join(map(repr, candidates))}?" if candidates else ""


def _describe(model: type[BaseModel], problem: Any, terms: Terms) -> str:
    """Return the fault of one key, and the accepted values."""
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    if kind == "extra_forbidden":
        accepted = sorted(table_at(model, location[:-1]).model_fields)
        guess = _guess(model, location, value, accepted)
        return (f"unknown key{guess} accepted here: {', '.join(accepted)}").replace(
            "key accepted", "key; accepted"
        )
    if kind == "missing":
        choices = choices_at(model, location)
        return f"is required; accepted: {', '.join(choices)}" if choices else "is required"
    if kind == "literal_error":
        choices = choices_at(model, location)
        guess = nearest(value, choices) if isinstance(value, str) else ""
        return f"{shown(value)} is not accepted{guess or ';'} accepted: {', '.join(choices)}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"must be {words} {problem['ctx'][bound]:g}, not {shown(value)}"
    if kind == "value_error":
        fault = problem["ctx"]["error"]
        text = spelled(fault.args, terms) if isinstance(fault, Refusal) else str(fault)
        return shortened(text, _LONGEST_MESSAGE)
    for prefix, words in _KINDS.items():
        if kind.startswith(prefix):
            return f"must be {words}, not {shown(value)}"
    return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, not {shown(value)}"


class _Families(Mapping[str, type[Case]]):
    """The case classes of solver families, imported when they are asked for."""

    def __getitem__(self, name: str) -> type[Case]:
        if name not in accepted.SOLVERS:
            raise KeyError(name)
        module = importlib.import_module(f"slipstream.case.{name}_case")
        found: type[Case] = getattr(module, f"{name.title()}Case")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(accepted.SOLVERS)

    def __len__(self) -> int:
        return len(accepted.SOLVERS)


SOLVERS = _Families()


@dataclass(frozen=True)
class ShippedCase:
    """A shipped case: what happens in it, and about how long it takes on two cores."""

    what: str
    duration: str


SHIPPED_CASES: dict[str, ShippedCase] = {
    "taylor-green": ShippedCase("large vortices stretch and break down into turbulence", "2 min"),
    "forced": ShippedCase("turbulence that random forces keep going", "3 min"),
    "stratified": ShippedCase("vortices that buoyancy flattens into layers", "1 min"),
    "rayleigh-benard": ShippedCase("convection between free-slip walls", "30 s"),
    "mixing": ShippedCase("two scalars with mean gradients in forced turbulence", "30 s"),
    "shear": ShippedCase("a mean shear drives turbulence that grows", "20 s"),
    "orszag-tang": ShippedCase("sheets of current in a plane of magnetised fluid", "1 min"),
    "orszag-tang-flux": ShippedCase("the same by vorticity and flux function", "30 s"),
    "quantum-vortices": ShippedCase("vortex lines of a superfluid that reconnect", "30 s"),
    "relaxed-vortices": ShippedCase("vortex lines of a superfluid, relaxed to one flow", "20 s"),
    "decaying-2d": ShippedCase("vortices of two-dimensional turbulence merge", "40 s"),
    "lamb-dipole": ShippedCase("a pair of vortices crosses the box", "10 s"),
    "cylinder": ShippedCase("steady flow past a cylinder, its drag", "30 s"),
    "inverse-cascade": ShippedCase("energy goes to large scales in two dimensions", "40 s"),
    "surface-fronts": ShippedCase("surface quasi-geostrophic flow makes a front", "20 s"),
    "zonal-flows": ShippedCase("drift waves and zonal flow (Charney-Hasegawa-Mima)", "20 s"),
    "inertia-gravity": ShippedCase("turbulence with fast waves, integrated exactly", "20 s"),
    "lans-alpha": ShippedCase("Taylor-Green vortex by the alpha model, on few points", "20 s"),
    "leray-alpha": ShippedCase("Taylor-Green vortex by the Leray-alpha model", "20 s"),
    "large-eddies": ShippedCase("Taylor-Green vortex by large-eddy simulation", "20 s"),
    "dynamic-eddies": ShippedCase("the same, where the eddy viscosity follows the flow", "20 s"),
    "spectral-eddies": ShippedCase("forced turbulence with a spectral eddy viscosity", "30 s"),
    "hall": ShippedCase("sheets of current with the Hall effect", "20 s"),
    "isothermal": ShippedCase("turbulence as fast as sound, in a plane", "20 s"),
    "sandstone": ShippedCase("flow through a synthetic sandstone, its permeability", "30 s"),
    "advection": ShippedCase(
        "a Gaussian carried once through the box, the exact solution known", "20 s"
    ),
}


def make_case(solver: str, **tables: Any) -> Case:
    """Make a case from its tables.

    >>> case = make_case(
    ...     "spectral",
    ...     grid={"points": 32},
    ...     equation={"viscosity": 0.01},
    ...     initial={"flow": "taylor-green"},
    ...     time={"end": 1.0, "step": 0.01},
    ... )

    Parameters
    ----------
    solver : str
        A name of `slipstream.engine.accepted.SOLVERS`.
    **tables : dict
        The tables of a case file, and its ``title``.

    Raises
    ------
    InputError
        If a key or value is not accepted.
    """
    return validate_case({"solver": solver, **tables})


def load_case(path: str | Path, overrides: Iterable[str] = ()) -> Case:
    """Read and validate a case file.

    Parameters
    ----------
    path : str or pathlib.Path
        The TOML file, or the name of a case that Slipstream ships. A Python file with its model is
        found in the same folder, or from the working directory.
    overrides : iterable of str
        Each ``section.key=value`` in TOML's syntax for values; words may be bare, and without a
        value the key is unset.

    Returns
    -------
    Case
        A case of the class of the solver family that the file names.

    Raises
    ------
    InputError
        If the file cannot be read or is not TOML, or a key or value is not accepted.
    """
    tables, _ = read_tables(path)
    return validate_case(tables, overrides, source=str(case_file(path)))


@functools.cache
def shipped_folder(name: str) -> Path:
    """Return a folder of shipped files, such as ``cases``, in the package or in the repository."""
    package = Path(__file__).parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name


def case_file(name: str | Path) -> Path:
    """Return the file of a case: one of the user's, or a shipped one by its name."""
    path = Path(name)
    if path.suffix == ".toml" or os.path.isfile(path):
        return path
    user_file, shipped = Path(f"{path}.toml"), shipped_folder("cases") / f"{path}.toml"
    if str(path) in SHIPPED_CASES:
        if os.path.isfile(user_file) and user_file.read_bytes() != shipped.read_bytes():
            raise InputError(
                f"{path} is a shipped case, and {user_file}, which differs from it, is here too:"
                f" give {user_file} to run yours, or rename it"
            )
        return shipped
    if os.path.exists(path):
        return path
    accepted = [*SHIPPED_CASES, str(user_file)] if os.path.isfile(user_file) else [*SHIPPED_CASES]
    guess = nearest(str(path), accepted)
    raise InputError(
        f"{shown(str(name))} is no file and no shipped case{guess or ';'} accepted: FILE.toml,"
        f" {', '.join(SHIPPED_CASES)}"
    )


def read_tables(name: str | Path) -> tuple[dict[str, Any], str]:
    """Return the tables and the text of a case file, or of a shipped case, without validation."""
    path = case_file(name)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_LETTERS + 1)
    except FileNotFoundError as error:
        advice = "`slipstream new NAME` writes a case"
        if path.stem in SHIPPED_CASES:
            advice = f"the shipped case is {path.stem!r}, without .toml"
        raise InputError(f"{path}: no such file; {advice}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError(f"{path}: cannot be read as a case: {reason}") from error
    if len(text) > _MOST_LETTERS:
        raise InputError(
            f"{path}: has more than {_MOST_LETTERS} letters, which no case needs; use a case"
        )
    return _with_file_of_model(_tables(text, str(path)), path.parent), text


def _with_file_of_model(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tables of a file that a person has named, with the path to its model's code."""
    equation = tables.get("equation")
    if not isinstance(equation, dict):
        return tables
    model = equation.get("model")
    file, _, function = model.rpartition(":") if isinstance(model, str) else ("", "", "")
    if not file.endswith(".py") or Path(file).is_absolute():
        return tables
    path = folder / file
    if folder == Path() or not os.path.isfile(path):
        return tables
    return {**tables, "equation": {**equation, "model": f"{path}:{function}"}}


def parse_case(text: str, overrides: Iterable[str] = (), source: str = "case") -> Case:
    """Validate the text of a case, which comes from `source`; see `load_case`."""
    return validate_case(_tables(text, source), overrides, source)


def parse_case_of_run(text: str, overrides: Iterable[str], source: str) -> Case:
    """Validate the text of the case of a run, which has all its keys, with changes.

    Parameters that another model does not have are left out. The folder may be somebody else's, so
    a Python file is imported only if the changes name it.
    """
    data, overrides = _tables(text, source), list(overrides)
    changes = dict(parse_override(one) for one in overrides)
    model, equation = changes.get("equation.model"), data.get("equation")
    theirs = equation.get("model") if isinstance(equation, dict) else None
    is_code = isinstance(theirs, str) and theirs.partition(":")[0].endswith(".py")
    if is_code and model is None and "equation" not in changes:
        name = shown(theirs)
        raise InputError(
            f"{source}: the equations are Python code, {name}, which runs only if you name it:"
            f" --set equation.model={name} (resume, verify), slipstream run CASE --resume, or from"
            " Python slipstream.open(folder, model=...)"
        )
    if model is not None and isinstance(equation, dict) and theirs != model:
        suited = SOLVERS["spectral"].suited_to({"equation": {"model": model}})
        known = suited.model_fields["equation"].annotation.model_fields  # type: ignore[union-attr]
        data["equation"] = {key: value for key, value in equation.items() if key in known}
    return validate_case(data, overrides, source)


def parse_stored_case(text: str, case: Case, source: str) -> Case:
    """Validate the text of an earlier run's case; import nothing that `case` does not name."""
    data = _tables(text, source)
    if data.get("solver") != case.solver:
        raise InputError(
            f"{source} is of solver {shown(data.get('solver'))}, this case of {case.solver!r}; "
            "use a case of the same solver"
        )
    return validate_case(case.with_own_code(data, source), source=source)


def _tables(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    # Numbers of thousands of digits, and lists within lists within lists, are no TOML either.
    except (ValueError, RecursionError) as error:
        from slipstream.case.toml_text import explain_toml

        reason = "a value is too long"
        if isinstance(error, tomllib.TOMLDecodeError):
            reason = explain_toml(text, error)
        raise InputError(f"{source}: not valid TOML: {reason}") from error


def validate_case(
    data: dict[str, Any], overrides: Iterable[str] = (), source: str = "case"
) -> Case:
    """Make a case from nested dictionaries, as TOML gives them; see `load_case`."""
    changes = dict(parse_override(override) for override in overrides)
    solver = changes.get("solver", data.get("solver"))
    if not isinstance(solver, str) or solver not in SOLVERS:
        what = "is required" if solver is None else f"{shown(solver)} is not accepted"
        guess = nearest(solver, list(SOLVERS)) if isinstance(solver, str) else ""
        where = "--set" if "solver" in changes else source
        raise InputError(f"{where}: solver: {what}{guess or ';'} accepted: {', '.join(SOLVERS)}")
    merged, family = data, SOLVERS[solver]
    if changes:
        unset = [key for key, value in changes.items() if value is None and is_key(family, key)]
        merged = _merge(data, changes, unset, family)
    _check_sizes(merged, source)
    model = family.suited_to(merged)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        key, message = explain(model, error, merged)
        # The wrong key may be within a table given there, or be the table of a key given there.
        on_command_line = any(
            f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in changes
        )
        raise InputError(f"{'--set' if on_command_line else source}: {message}") from error


def changed_case(case: Case, changes: Mapping[str, Any], source: str = "case") -> Case:
    """Return a case with some keys changed, given as ``section.key``; see `load_case`."""
    # None is a value where a key may have it, and no way to a default that is another.
    unset = [
        key
        for key, value in changes.items()
        if value is None and is_key(type(case), key) and key_at(type(case), key).default is None
    ]
    given = case.as_given(case.model_dump(exclude_unset=True))
    data = _merge(given, dict(changes), unset, type(case))
    return validate_case(data, source=source)


def parse_override(text: str) -> tuple[str, Any]:
    """Return key and value of ``section.key=value``: None without a value, text if not TOML."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (equals and all(part.strip() for part in key.split("."))):
        raise InputError(
            f"--set {shortened(text)}: expected section.key=value, such as grid.points=64, or"
            " section.key= to unset a key"
        )
    if not value:
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError) as error:
        from slipstream.case.toml_text import explain_value, number_in_toml

        right, reason = number_in_toml(value), ""
        if right is not None:
            reason = f"{shown(value)} is no value of TOML; write {right}"
        elif value[0] in "[{\"'":  # no bare words
            reason = explain_value(value, error)
        if reason:
            raise InputError(f"--set {shortened(key)}: {reason}") from None
        return key, value


def _merge(
    data: dict[str, Any], overrides: dict[str, Any], unset: Sequence[str], model: type[Case]
) -> dict[str, Any]:
    """Return `data` with the overrides, without keys that these displace, or that are unset."""
    merged: dict[str, Any] = _copy_tables(data)
    displaced = [
        key_path
        for key, value in overrides.items()
        if value is not None
        for key_path in (*model.displaces.get(key, ()), *model.displaces.get(f"{key}={value}", ()))
    ]
    removed = [key for key in (*unset, *displaced) if _remove_key(merged, key)]
    for key in removed:
        for other in model.goes_with.get(key, ()):
            _remove_key(merged, other)
    for key, value in overrides.items():
        if key in unset:
            continue  # any other is refused as unknown
        *path, name = key.split(".")
        table = merged
        for part in path:
            table = _enter_table(table, part, key)
        table[name] = value
    return merged


def _enter_table(table: dict[str, Any], part: str, key: str) -> dict[str, Any]:
    """Return a table in a table; of a list, the table of a number, as `output.fields[2]`."""
    numbered = _NUMBERED.fullmatch(part)
    entry = table.setdefault(numbered[1] if numbered else part, {})
    if isinstance(entry, dict) and (numbered is None or int(numbered[2]) == 1):
        return entry
    if not isinstance(entry, list) or not all(isinstance(item, dict) for item in entry):
        raise InputError(
            f"--set {key}: {part!r} is no table; use a key of a table, such as grid.points"
        )
    number = int(numbered[2]) if numbered else 1
    if (numbered is None and len(entry) > 1) or not 1 <= number <= len(entry):
        names = ", ".join(f"{part.partition('[')[0]}[{n + 1}]" for n in range(len(entry)))
        raise InputError(f"--set {key}: {part!r} is none of the tables; accepted: {names}")
    inner: dict[str, Any] = entry[number - 1]
    return inner


def _copy_tables(value: Any) -> Any:
    """Return tables, and what they hold, that can be changed without the given ones."""
    if isinstance(value, dict):
        return {key: _copy_tables(one) for key, one in value.items()}
    is_tables = isinstance(value, list | tuple) and any(isinstance(one, dict) for one in value)
    return [_copy_tables(one) for one in value] if is_tables else value


def _check_sizes(value: Any, source: str, key: str = "") -> None:
    """Refuse whole numbers that no float is as large as, which no check of a key can compare."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_sizes(item, source, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for item in value:
            _check_sizes(item, source, key)
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise InputError(f"{source}: {key}: {shown(value)} is too large; accepted: less than 1e308")


def _remove_key(data: dict[str, Any], key: str) -> bool:
    """Remove a dotted key from tables; return whether it was there."""
    table, _, name = key.partition(".")
    if not name:
        return data.pop(table, None) is not None
    inner = data.get(table)
    return isinstance(inner, dict) and _remove_key(inner, name)
