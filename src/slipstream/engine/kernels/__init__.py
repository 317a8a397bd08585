"""C++17 kernel headers, one body for CPU and GPU, compiled at run time.

A header is plain C++ that any editor understands. `portability.hpp` alone knows which machine it is
compiled for. `source` turns a header and its constants into one self-contained text, which is what
all compilers and both caches see: nothing is reached through an include path.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources

# An include names a header, or a constant whose value is the quoted name of one.
_INCLUDE = re.compile(r'^\s*#include\s+(?:"([^"]+)"|([A-Z_]+))\s*$')

_SYSTEM_INCLUDE = re.compile(r"^\s*(#include\s+<[^>]+>)", re.M)

# What a kernel begins with.
_KERNEL = re.compile(r"^KERNEL\b", re.M)

# Headers that were written at run time, by name.
_written: dict[str, str] = {}


def write(text: str) -> str:
    """Keep a header that is written at run time; return its name, the same for the same text."""
    name = f"written-{hashlib.sha256(text.encode()).hexdigest()[:16]}.hpp"
    _written[name] = text
    return name


def headers() -> list[str]:
    """Return the names of all kernel headers, sorted."""
    folder = resources.files(__package__)
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".hpp"))


def source(header: str, constants: dict[str, object]) -> str:
    """Return the full text of `header`: constants as macros, then all includes embedded once.

    Values of constants are inserted by `str`, tuples as comma-separated lists. Of the kernels only
    those of `header` itself are compiled: headers are included for their functions.
    """
    return _source(header, tuple(sorted(constants.items())))


def source_of_variants(header: str, name: str, variants: Sequence[dict[str, object]]) -> str:
    """Return the text of a kernel with each of some sets of constants: number i is `name`_i.

    For CPUs, whose compilers take half as long for a few kernels in one text as one by one.
    """
    return _variants(header, name, tuple(tuple(sorted(one.items())) for one in variants))


@functools.cache
def _variants(header: str, name: str, variants: tuple[tuple[tuple[str, object], ...], ...]) -> str:
    texts = [_source(header, constants) for constants in variants]
    # The system's headers, which are embedded once, do not belong in a namespace.
    lines = sorted({line for text in texts for line in _SYSTEM_INCLUDE.findall(text)})
    for number, (text, constants) in enumerate(zip(texts, variants, strict=True)):
        lines += [f"#define {name} {name}_{number}", f"namespace variant_{number} {{", text, "}"]
        lines += [f"#undef {one}" for one in (name, *(constant for constant, _ in constants))]
    return "\n".join(lines) + "\n"


@functools.cache
def _source(header: str, constants: tuple[tuple[str, object], ...]) -> str:
    lines = [f"#define {name} {_write_literal(value)}" for name, value in constants]
    _embed(header, lines, set(), dict(constants))
    return "\n".join(lines) + "\n"


def _write_literal(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _embed(header: str, lines: list[str], seen: set[str], constants: dict[str, object]) -> None:
    if header in seen:
        return
    seen.add(header)
    is_included = len(seen) > 1
    for text, name, constant in _split_at_includes(header):
        lines.append(_KERNEL.sub("INCLUDED_KERNEL", text) if is_included else text)
        included = name or str(constants.get(constant, "")).strip('"')
        if included:
            _embed(included, lines, seen, constants)


@functools.cache
def _split_at_includes(header: str) -> list[tuple[str, str, str]]:
    """Return a header's text up to each include, and the included name or constant."""
    text = _written.get(header) or resources.files(__package__).joinpath(header).read_text()
    lines, pieces = [f'#line 1 "{header}"'], []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match:
            pieces.append(("\n".join(lines), match.group(1) or "", match.group(2) or ""))
            lines = [f'#line {number + 1} "{header}"']
        elif line.strip() != "#pragma once":
            lines.append(line)
    return [*pieces, ("\n".join(lines), "", "")]
