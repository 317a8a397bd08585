"""Slipstream simulates flow on structured grids, on one laptop or on thousands of GPUs.

A time step is written once, as a graph of kernels, transforms and transfers; where it runs
and what overlaps what is a schedule, chosen afterwards.
"""

import os

__version__ = "0.1.0"

# Kernels and FFTW bring an OpenMP runtime each, and each lets its threads spin after their work,
# on the cores that the other needs next: steps took ten times as long on a busy machine. The
# runtimes read this when they are loaded, so it stands before every other import.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
