"""Writing TOML, and explaining errors in text that is not TOML.

TOML takes ``1e-3`` and ``-0.5``, but neither ``.5`` nor ``5.``, and wants its words quoted.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from slipstream.engine.text import shown

_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_COLUMN = re.compile(r"\((column \d+|at end of document)\)")
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?(?:[eEdD]([+-]?[0-9]{1,4}))?")
_KEY = re.compile(r"\s*([\w.-]+)\s*=(?!=)")
_TABLE = re.compile(r"\s*\[{1,2}\s*([\w.-]+)\s*\]{1,2}\s*(#.*)?")
_ENDS_A_VALUE = r"\s,=\[\]{}#\"'"
_WORDS = {"True": "true", "False": "false"}
# A value that is meant as text: it begins as a word or a path does, or is such as 2/3 and 2 pi.
_TEXT = re.compile(r"[A-Za-z_~/][^\n]*|[0-9]+/[0-9]+|[0-9.]+ *\*? *pi[ /0-9.]*")
# Characters of a line in which a value is corrected.
_LONGEST_LINE = 2000
# Characters of a line that a message shows.
_LONGEST_KEY = 60
# The beginnings of tomllib's messages about a line that gives no key a value.
_NO_VALUES = ("Expected '=' after a key", "Expected ']' at the end of a table")


def to_toml(data: Mapping[str, Any]) -> str:
    """Return data as TOML: bool, int, float, str, lists of these, and tables of all of them."""
    tables = {key: as_tables(value) for key, value in data.items() if as_tables(value)}
    lines = [f"{key} = {toml_value(data[key])}" for key in data if key not in tables]
    for name, several in tables.items():
        head = f"[{name}]" if isinstance(data[name], Mapping) else f"[[{name}]]"
        for table in several:
            lines += ["", head]
            lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def as_tables(value: Any) -> list[Mapping[str, Any]]:
    """Return a table, or each of a list of tables; nothing for other values."""
    if isinstance(value, Mapping):
        return [value]
    is_list = isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value)
    return list(value) if is_list else []


def toml_value(value: Any) -> str:
    """Return one value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's strings are TOML's, except for one control character that JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        items = (f"{key} = {toml_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(items) + " }"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def number_in_toml(text: str) -> str | None:
    """Return the TOML form of a number that TOML does not accept; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    sign, whole, point, fraction, exponent = match.groups()
    written = ("-" if sign == "-" else "") + (whole.lstrip("0") or "0")
    written += f".{fraction or '0'}" if point else ""
    written += f"e{int(exponent)}" if exponent else ""
    return written if written != text and not _is_toml(text) else None


def explain_toml(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the error of a text in one line: its place, key, and what TOML takes instead."""
    position = _PLACE.search(str(error))
    if position is None:
        return str(error)
    lines = text.replace("\r\n", "\n").split("\n")
    number, column = int(position[1]), int(position[2]) - 1
    line = lines[number - 1] if number <= len(lines) else ""
    # Where the key, or the head of a table, is wrong itself, no key has a wrong value.
    is_value = not str(error).startswith(_NO_VALUES)
    key = _key(lines[:number], column) if is_value else shown(line.strip()[:_LONGEST_KEY])
    where = f"line {number}: {key}: " if key else f"line {number}: "
    correction = (
        _correction(line, column) if key and is_value and len(line) < _LONGEST_LINE else None
    )
    if correction is None:
        return where + str(error).replace(position[0], f"(column {column + 1})")
    wrong, right = correction
    return f"{where}{shown(wrong)} is no value of TOML; write {right}"


def explain_value(value: str, error: Exception) -> str:
    """Return the error of one value, as `explain_toml` returns the error of a text."""
    reason = "it is too long"
    if isinstance(error, tomllib.TOMLDecodeError):
        found = explain_toml(f"value = {value}", error).removeprefix("line 1: value")
        reason = _COLUMN.sub("", re.sub(r"^[\w.]*: ", "", found)).strip()
    return reason if "; write " in reason else f"{shown(value)} is no value of TOML: {reason}"


def _key(lines: list[str], column: int) -> str:
    """Return the dotted key whose value is at a column of the last line."""
    names: list[str] = []
    for number, line in enumerate(reversed(lines)):
        table = _TABLE.fullmatch(line)
        # In a list over several lines a row such as [1] looks like the head of a table.
        if table is not None and number and (names or not table[1].isdigit()):
            return ".".join([table[1], *names])
        match = _KEY.match(line)
        if match is not None and not names and (number or match.end() <= column):
            names = [match[1]]
            before = line[match.end() : column] if not number else ""
            inner = re.findall(r"[{,]\s*([\w-]+)\s*=", before)
            names += inner[-1:] if "{" in before else []
    return ".".join(names)


def _correction(line: str, column: int) -> tuple[str, str] | None:
    """Return a value at a column of a line that is not TOML's, and as TOML would have it."""
    start, end = column, column
    while start > 0 and not re.match(f"[{_ENDS_A_VALUE}]", line[start - 1]):
        start -= 1
    while end < len(line) and not re.match(f"[{_ENDS_A_VALUE}]", line[end]):
        end += 1
    word = line[start:end]
    right = number_in_toml(word) or _WORDS.get(word)
    if right is not None:
        return word, right
    # Words, such as a name that is not quoted: all to the end of the line, or of an item.
    whole = re.search(rf"(?:^|[=\[,{{])\s*([^{_ENDS_A_VALUE}][^,=\[\]{{}}#\"']*)$", line[:end])
    rest = re.match(r"[^,=\[\]{}#\"']*", line[end:])
    if whole is None or rest is None or line[end + rest.end() :][:1] in ("=", '"', "'", "["):
        return None
    words = (whole[1] + rest[0]).strip()
    if _TEXT.fullmatch(words) and not _is_toml(words):
        return words, toml_value(words)
    return None


def _is_toml(value: str) -> bool:
    try:
        tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return False
    return True
