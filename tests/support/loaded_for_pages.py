"""Imports of the programs of the pages: a process that has imported this is forked for each.

MPI is not among it, since it starts with its import.
"""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot  # noqa: E402, F401
import sympy  # noqa: E402, F401
import xarray  # noqa: E402, F401

import slipstream  # noqa: E402

LOADED = [getattr(slipstream, name) for name in slipstream.__all__]
