"""What docstrings say of attributes and parameters, for templates and the schema of cases."""

from __future__ import annotations

import inspect
import re
from typing import Any

_HEADING = re.compile(r"^-{3,}$")
_NAMES = re.compile(r"^(\w+(?:, \w+)*)(?: : .*)?$")


def explained_in(documented: Any, section: str) -> dict[str, str]:
    """Return the text on each name in a section of a NumPy docstring; nothing if there is none."""
    lines = (inspect.getdoc(documented) or "").splitlines()
    texts: dict[str, str] = {}
    names: list[str] = []
    is_inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _HEADING.match(following):
            is_inside, names = line == section, []
        elif is_inside and (match := _NAMES.match(line)):
            names = match[1].split(", ")
        elif is_inside and line.startswith("    "):
            for name in names:
                texts[name] = f"{texts.get(name, '')} {line.strip()}".strip()
    return texts


def summary_of(documented: Any) -> str:
    """Return the first paragraph of a docstring, in one line."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.partition("\n\n")[0].split())
