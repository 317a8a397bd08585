"""Cases: TOML files that become frozen, validated settings.

A case is read once, checked completely, and never changes afterwards. Keys that are unknown
or misspelt fail; the message names the nearest key that is accepted. Each solver family has
its own tables, chosen by the top-level key ``solver``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from slipstream.case.case_loading import (
    SHIPPED_CASES,
    SOLVERS,
    case_file,
    changed_case,
    load_case,
    make_case,
    parse_case,
    parse_stored_case,
    validate_case,
)
from slipstream.case.common_tables import Case

if TYPE_CHECKING:
    from slipstream.case.advection_case import AdvectionCase
    from slipstream.case.case_template import write_template
    from slipstream.case.lattice_case import LatticeCase
    from slipstream.case.spectral_case import SpectralCase

__all__ = [
    "SHIPPED_CASES",
    "SOLVERS",
    "AdvectionCase",
    "Case",
    "LatticeCase",
    "SpectralCase",
    "case_file",
    "changed_case",
    "load_case",
    "make_case",
    "parse_case",
    "parse_stored_case",
    "validate_case",
    "write_template",
]

# What is imported when it is asked for: a run has one family.
_MODULES = {
    "AdvectionCase": "advection_case",
    "LatticeCase": "lattice_case",
    "SpectralCase": "spectral_case",
    "write_template": "case_template",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'slipstream.case' has no attribute {name!r}")
    return getattr(importlib.import_module(f"slipstream.case.{_MODULES[name]}"), name)
