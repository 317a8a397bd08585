"""Initial flows: by formula, by name, at random, or from a file; the same on any number of ranks.

`beginning` sets the state; the other modules each have one kind of flow.
"""

from slipstream.spectral.initial_conditions.initial_condition import set_initial_flow

__all__ = ["set_initial_flow"]
