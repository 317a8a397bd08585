"""Solve Poisson's equation between walls by cosines and sines, on any number of ranks.

    mpiexec -n 4 python examples/poisson_walls.py

The solution is zero at the ends of z, has no slope at those of y, and is periodic along x.
"""

import sys

import numpy as np
from mpi4py import MPI

from slipstream.fft import DistributedFFT, redistribute, section, whole

n = int(sys.argv[1]) if sys.argv[1:] else 96
lengths, comm = (1.0, 2.0, 3.0), MPI.COMM_WORLD
fft = DistributedFFT((n, n, n), comm=comm, kinds=("dst2", "dct2", "fft"))
xp = fft.device.array_module  # NumPy, or CuPy on GPUs

# A solution that keeps to the walls, and the right-hand side that belongs to it.
z, y, x = map(xp.asarray, fft.points(lengths))
a, b, c = 2 * np.pi, np.pi, 2 * np.pi / 3
exact = xp.sin(a * z) * (1 + xp.cos(b * y)) * xp.cos(c * x)
rhs = -xp.sin(a * z) * xp.cos(c * x) * ((a**2 + c**2) * (1 + xp.cos(b * y)) + b**2 * xp.cos(b * y))

# No mode has wavenumber zero: the sines along z begin with one half wave.
modes = fft.forward(rhs)
modes /= -sum(xp.asarray(k) ** 2 for k in fft.wavenumbers(lengths))
solution = fft.backward(modes)
error = comm.allreduce(float(abs(solution - exact).max()) if exact.size else 0.0, MPI.MAX)

plane, boxes = section(solution, fft.input_boxes, (slice(None), slice(None), 0), comm)
on_first = [whole((n, n)), *[whole((0, 0))] * (comm.size - 1)]
picture = fft.device.to_host(redistribute(plane, boxes, on_first, comm))
if comm.rank == 0:
    import matplotlib.pyplot as plt

    print(fft.describe())
    print(f"largest error of the solution: {error:.2g}")
    plt.imshow(picture, origin="lower", extent=(0, lengths[1], 0, lengths[0]))
    plt.gca().set(xlabel="y (no slope at its ends)", ylabel="z (zero at its ends)")
    plt.savefig("poisson_walls.png")
