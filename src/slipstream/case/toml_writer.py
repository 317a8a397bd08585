"""Writing TOML, which the standard library only reads.

Enough for cases: values, lists, and tables one level deep.
"""

import json
from collections.abc import Mapping
from typing import Any


def to_toml(data: Mapping[str, Any]) -> str:
    """Return data as TOML: bool, int, float, str, lists of these, and tables of all of them."""
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {toml_value(data[key])}" for key in data if key not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


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
