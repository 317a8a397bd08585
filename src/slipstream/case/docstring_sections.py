"""What docstrings say of attributes and parameters, for templates and the schema of cases."""

from __future__ import annotations

import inspect
import re
from typing import Any

_HEADING = re.compile(r"-{3,}")
_NAMES = re.compile(r"(\w+(?:, \w+)*)(?: : (.*))?")


def explained_in(documented: Any, section: str) -> dict[str, str]:
    """Return the text on each name in a section of a NumPy docstring; nothing if there is none."""
    return {name: text for name, (_, text) in _section(documented, section).items()}


def types_in(documented: Any, section: str) -> dict[str, str]:
    """Return the type of each name in a section, as it is written there."""
    return {name: kind for name, (kind, _) in _section(documented, section).items() if kind}


def _section(documented: Any, section: str) -> dict[str, tuple[str, str]]:
    """Return type and text of each name."""
    # Not that of a class from which it is derived.
    lines = inspect.cleandoc(getattr(documented, "__doc__", None) or "").split("\n")
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    is_inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = _NAMES.fullmatch(line)
        if _HEADING.fullmatch(following):
            is_inside, names = line == section, []
        elif is_inside and line.startswith("    "):
            for name in names:
                kind, text = found[name]
                found[name] = kind, f"{text} {line.strip()}".strip()
        elif is_inside and match is not None and not _HEADING.fullmatch(line):
            names = match[1].split(", ")
            found |= dict.fromkeys(names, (match[2] or "", ""))
    return found


def summary_of(documented: Any) -> str:
    """Return the first paragraph of a docstring, in one line."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.partition("\n\n")[0].split())
