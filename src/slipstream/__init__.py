"""Slipstream simulates flow on structured grids, on one laptop or on thousands of GPUs.

A time step is written once, as a graph of kernels, transforms and transfers; where it runs
and what overlaps what is a schedule, chosen afterwards.
"""

__version__ = "0.1.0"
