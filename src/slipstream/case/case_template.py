"""Writing a commented case to start from: of a family, of another case, or of a model.

Templates have placeholders for the names in `slipstream.accepted`: within a line ``{devices}``
becomes ``"cpu" or "cuda"``; alone in a comment it becomes a line for each name. The parameters of
the model take the place of ``{parameters}``. Where a case is given, its values take the
place of the template's, and keys that it does not have are commented out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from slipstream import accepted
from slipstream.case.case_loading import SOLVERS, read_tables
from slipstream.case.toml_writer import toml_value
from slipstream.errors import InputError

Tables = Mapping[str, Any]

_PLACE = re.compile(r"\{([a-z_]+)\}")
_PLACE_FOR_LINES = re.compile(r"(#[ ]+# )\{([a-z_]+)\}")
_SECTION = re.compile(r"(?:# )?\[([a-z_]+)\](.*)")
# Lines of a template: the one that parameters replace, and one behind the last.
_PARAMETERS = "{parameters}"
_END = "{end}"
_STARTING_EQUATION = {"model": "hd", "viscosity": 0.005}
_KEY = re.compile(r"(# )?([a-z_]+) = (.*?)(?:\s+# (.*))?")


def write_template(
    name: str,
    overwrite: bool = False,
    solver: str | None = None,
    *,
    source: str | Path | None = None,
    model: str | None = None,
) -> Path:
    """Write ``NAME.toml``, a case in which every key is explained.

    Parameters
    ----------
    name : str
        Path of the file, with or without ``.toml``.
    overwrite : bool
        Whether a file that exists may be replaced.
    solver : str, optional
        Solver family whose template to write; by default that of `source`, or "spectral".
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
    head: list[str] = []
    values: Tables | None = None
    if source is not None:
        if model is not None:
            raise InputError("--from and --model do not go together: a case has a model already")
        values, head = _values_and_head(source)
    elif model is not None:
        from slipstream.case.case_of_model import tables_of_model

        values = tables_of_model(model)
    family = str(values["solver"]) if values is not None else solver or "spectral"
    if solver not in (None, family):
        raise InputError(f"--solver: {source or model} is of solver {family!r}, not {solver!r}")
    file = resources.files("slipstream.case") / "templates" / f"{family}.toml"
    template = file.read_text(encoding="utf-8")
    lines = list(_filled(template, title=path.stem))
    if values is not None:
        lines = list(_with_values(lines, values))
    equation = _STARTING_EQUATION if values is None else values.get("equation", {})
    lines = list(_with_parameters(lines, equation, imports=source is None))
    if head:
        lines[: lines.index("#")] = head
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _values_and_head(source: str | Path) -> tuple[Tables, list[str]]:
    """Return the tables of a case, and the comment with which its file begins."""
    tables, text = read_tables(source)
    solver = tables.get("solver")
    if solver not in tuple(SOLVERS):
        raise InputError(f"{source}: solver: accepted: {', '.join(SOLVERS)}")
    for name, table in tables.items():
        if name not in ("solver", "title") and not isinstance(table, dict):
            raise InputError(f"{source}: {name} must be a table")
    head = []
    for line in text.splitlines():
        # What follows an empty one is the template's, in a copy of a copy.
        if not line.startswith("# "):
            break
        head.append(line)
    return tables, head


def _filled(template: str, title: str) -> Iterator[str]:
    """Yield the lines of a template with all names in their places."""
    for line in template.splitlines():
        alone = _PLACE_FOR_LINES.fullmatch(line)
        if alone is not None:
            yield from (alone[1] + text for text in _explained(_registry(alone[2])))
        elif "{title}" in line:
            yield line.replace("{title}", toml_value(title).ljust(24))
        elif line == _PARAMETERS:
            yield line
        else:
            yield _PLACE.sub(lambda place: _quoted(_registry(place[1])), line)


def _registry(name: str) -> accepted.Names:
    return getattr(accepted, name.upper())


def _quoted(names: accepted.Names) -> str:
    return accepted.listed(f'"{name}"' for name in names)


def _explained(names: accepted.Names) -> Iterator[str]:
    """Return a line for each name, or for those together that have the same explanation."""
    alike: dict[str, list[str]] = {}
    for name, explanation in names.items():
        alike.setdefault(explanation, []).append(f'"{name}"')
    width = max(len(", ".join(group)) for group in alike.values())
    for explanation, group in alike.items():
        yield f"  {', '.join(group):{width}}  {explanation}"


def _with_parameters(lines: Iterable[str], equation: Tables, imports: bool) -> Iterator[str]:
    """Yield lines with those of the model's parameters; a Python file is run if that is asked."""
    for line in lines:
        if line != _PARAMETERS:
            yield line
            continue
        # SymPy takes a while to import, for which other families need not wait.
        from slipstream.case.case_of_model import explained_parameters

        for key, default, text in explained_parameters(equation, imports):
            yield _line(key, equation.get(key, default), text, is_comment=key not in equation)


def _with_values(lines: Iterable[str], values: Tables) -> Iterator[str]:
    """Yield the lines of a template with the values of a case in the place of its own."""
    section, left, blanks = "", dict[str, Any](), 0
    for line in [*lines, _END]:
        if not line:
            blanks += 1
            continue
        head, key = _SECTION.fullmatch(line), _KEY.fullmatch(line)
        if head is not None or line == _END:
            # What the case has in the section that ends here, and the template has not.
            yield from (_line(name, value, None) for name, value in left.items())
        yield from [""] * blanks
        blanks = 0
        if head is not None:
            section, left = head[1], dict(values.get(head[1], {}))
            yield line.removeprefix("# ") if section in values else line
        elif line == _PARAMETERS:
            left = {}
            yield line
        elif (key is None or not section) and line != _END:
            yield line
        elif key is not None and key[2] in left:
            yield _line(key[2], left.pop(key[2]), key[4])
        elif key is not None:
            yield line if key[1] else f"# {line}"


def _line(key: str, value: Any, text: str | None, is_comment: bool = False) -> str:
    try:
        line = f"{'# ' if is_comment else ''}{key} = {toml_value(value)}"
    except TypeError as error:
        raise InputError(f"{key}: {error}") from error
    return f"{line:30}  # {text}" if text else line
