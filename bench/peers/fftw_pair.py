"""FFTW: a forward and a backward real transform of a cube, by measured plans.

pip install pyfftw==0.15.1 && python fftw_pair.py --n 128
"""

import os

import numpy as np
import pyfftw
from served import arguments, serve

options = arguments(__doc__, n=128)
n, threads = options.n, len(os.sched_getaffinity(0))
points = pyfftw.empty_aligned((n, n, n), "float64")
modes = pyfftw.empty_aligned((n, n, n // 2 + 1), "complex128")
settings = {"axes": (0, 1, 2), "threads": threads, "flags": ("FFTW_MEASURE",)}
forward = pyfftw.FFTW(points, modes, **settings)
backward = pyfftw.FFTW(modes, points, direction="FFTW_BACKWARD", **settings)
points[...] = np.random.default_rng(0).random(points.shape)


def pair() -> None:
    """Transform forth and back."""
    forward.execute()
    backward.execute()


serve(
    options,
    pair,
    {"peer": "FFTW", "version": f"{pyfftw.fftw_version} (pyFFTW {pyfftw.__version__})"},
)
