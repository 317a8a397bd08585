"""Writing a commented case to start from.

Templates have placeholders for the names in `slipstream.accepted`: within a line ``{devices}``
becomes ``"cpu" or "cuda"``; alone in a comment it becomes a line for each name.
"""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from slipstream import accepted
from slipstream.case.case_loading import SOLVERS
from slipstream.case.toml_writer import toml_value
from slipstream.errors import InputError

_PLACE = re.compile(r"\{([a-z_]+)\}")
_PLACE_FOR_LINES = re.compile(r"(#[ ]+# )\{([a-z_]+)\}")


def write_template(name: str, overwrite: bool = False, solver: str = "spectral") -> Path:
    """Write ``NAME.toml``, a case in which every key is explained.

    Parameters
    ----------
    name : str
        Path of the file, with or without ``.toml``.
    overwrite : bool
        Whether a file that exists may be replaced.
    solver : str
        Solver family whose template to write.

    Returns
    -------
    pathlib.Path
        The file written.

    Raises
    ------
    InputError
        If there is no such solver family, the file exists or its folder does not.
    """
    if solver not in SOLVERS:
        raise InputError(f"--solver: {solver!r} is not accepted; accepted: {', '.join(SOLVERS)}")
    path = Path(name) if name.endswith(".toml") else Path(f"{name}.toml")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another name or add --overwrite")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first")
    template = resources.files("slipstream.case") / "templates" / f"{solver}.toml"
    lines = _filled(template.read_text(encoding="utf-8"), title=path.stem)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _filled(template: str, title: str) -> Iterator[str]:
    for line in template.splitlines():
        alone = _PLACE_FOR_LINES.fullmatch(line)
        if alone is not None:
            yield from (alone[1] + text for text in _explained(_registry(alone[2])))
        elif "{title}" in line:
            yield line.replace("{title}", toml_value(title).ljust(24))
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
