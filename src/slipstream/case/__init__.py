"""Cases: TOML files that become frozen, validated settings.

A case is read once, checked completely, and never changes afterwards. Keys that are unknown
or misspelt fail; the message names the nearest key that is accepted. Each solver family has
its own tables, chosen by the top-level key ``solver``.
"""

from slipstream.case.advection_case import AdvectionCase
from slipstream.case.case_loading import (
    SOLVERS,
    changed_case,
    load_case,
    make_case,
    parse_case,
    parse_stored_case,
    validate_case,
)
from slipstream.case.case_template import write_template
from slipstream.case.common_tables import Case
from slipstream.case.lattice_case import LatticeCase
from slipstream.case.shipped_cases import SHIPPED_CASES, case_file
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
