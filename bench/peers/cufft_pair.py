"""cuFFT: a forward and a backward real transform of a cube on one NVIDIA GPU, by its own 3-D plan.

pip install cupy-cuda13x && python cufft_pair.py --n 512
"""

import cupy
import numpy as np
from cupy.cuda import cufft
from served import arguments, serve

options = arguments(__doc__, n=512)
n = options.n
points = cupy.asarray(np.random.default_rng(0).random((n, n, n)))
modes = cupy.empty((n, n, n // 2 + 1), complex)
forward = cufft.PlanNd((n, n, n), None, 1, 0, None, 1, 0, cufft.CUFFT_D2Z, 1, "C", 2, None)
backward = cufft.PlanNd((n, n, n), None, 1, 0, None, 1, 0, cufft.CUFFT_Z2D, 1, "C", 2, None)
PAIRS = 20


def pairs() -> None:
    """Transform twenty times."""
    for _ in range(PAIRS):
        forward.fft(points, modes, cufft.CUFFT_FORWARD)
        backward.fft(modes, points, cufft.CUFFT_INVERSE)
    cupy.cuda.Device().synchronize()
    points[:] = 1.0  # unscaled, they grow


properties = cupy.cuda.runtime.getDeviceProperties(0)
facts = {
    "peer": "cuFFT",
    "version": f"{cufft.getVersion() / 1000:.1f} (CuPy {cupy.__version__})",
    "device": properties["name"].decode(),
}
serve(options, pairs, facts, per_call=PAIRS)
