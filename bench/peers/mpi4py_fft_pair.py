"""mpi4py-fft: a forward and a backward real transform of a cube in slabs, on all ranks.

pip install mpi4py==4.1.2 mpi4py-fft==2.0.6     # compiles: needs FFTW and an MPI compiler
mpiexec -n 2 python mpi4py_fft_pair.py --n 128
"""

import mpi4py_fft
import numpy as np
from mpi4py import MPI
from served import arguments, serve

options = arguments(__doc__, n=128)
fft = mpi4py_fft.PFFT(MPI.COMM_WORLD, (options.n,) * 3, dtype=float, slab=True)
points = mpi4py_fft.newDistArray(fft, False)
modes = mpi4py_fft.newDistArray(fft, True)
points[...] = np.random.default_rng(0).random(points.shape)


def pair() -> None:
    """Transform forth and back."""
    fft.forward(points, modes)
    fft.backward(modes, points)


facts = {"peer": "mpi4py-fft", "version": mpi4py_fft.__version__, "ranks": MPI.COMM_WORLD.size}
serve(options, pair, facts, comm=MPI.COMM_WORLD)
