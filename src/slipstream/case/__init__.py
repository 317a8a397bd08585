"""Cases: TOML files that become frozen, validated settings.

A case is read once, checked completely, and never changes afterwards. Keys that are unknown
or misspelt fail; the message names the nearest key that is accepted. Each solver family has
its own tables, chosen by the top-level key ``solver``.
"""

from slipstream.case.advection import AdvectionCase
from slipstream.case.lattice import LatticeCase
from slipstream.case.load import SOLVERS, load_case, parse_case, validate_case
from slipstream.case.spectral import SpectralCase
from slipstream.case.tables import Case
from slipstream.case.template import write_template

__all__ = [
    "SOLVERS",
    "AdvectionCase",
    "Case",
    "LatticeCase",
    "SpectralCase",
    "load_case",
    "parse_case",
    "validate_case",
    "write_template",
]
