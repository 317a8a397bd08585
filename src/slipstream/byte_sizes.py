"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import math
import re

from slipstream.errors import InputError

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("IB", 1024))
}


def bytes_of(value: int | str, name: str = "size") -> int:
    """Return a positive number of bytes, which may be written with a unit, such as "8 GiB".

    `name` is the name of the setting, for the message of the InputError.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", str(value))
    exact = float(match[1]) * _UNITS.get(match[2].upper(), 0) if match else 0.0
    size = int(exact) if exact < math.inf else 0
    if size <= 0 or isinstance(value, bool):
        raise InputError(f'{name} {value!r}; accepted: bytes, or text such as "8 GiB" or "500 MB"')
    return size


def bytes_text(size: float) -> str:
    """Return a number of bytes for people, in the largest binary unit that gives at least 1."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit.upper()]:
            return f"{size / _UNITS[unit.upper()]:.4g} {unit}"
    return f"{size:.0f} B"
