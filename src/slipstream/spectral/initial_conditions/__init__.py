"""Initial flows: formulas, named flows, random fields, files; the same on any number of ranks."""

from slipstream.spectral.initial_conditions.initial_flows import (
    INITIAL_FLOWS,
    InitialFlow,
    InitialScalars,
)

__all__ = ["INITIAL_FLOWS", "InitialFlow", "InitialScalars"]
