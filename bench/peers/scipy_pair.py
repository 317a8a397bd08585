"""SciPy: a forward and a backward real transform of a cube.

pip install scipy==1.17.1 && python scipy_pair.py --n 128
"""

import os

import numpy as np
import scipy
from scipy import fft
from served import arguments, serve

options = arguments(__doc__, n=128)
points = np.random.default_rng(0).random((options.n,) * 3)
workers = len(os.sched_getaffinity(0))


def pair() -> None:
    """Transform forth and back."""
    fft.irfftn(
        fft.rfftn(points, workers=workers), s=points.shape, workers=workers, overwrite_x=True
    )


serve(options, pair, {"peer": "SciPy", "version": scipy.__version__})
