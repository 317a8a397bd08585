"""Solve Poisson's equation in a periodic box, on the CPUs or GPUs of any number of ranks.

    python examples/poisson.py
    mpiexec -n 4 python examples/poisson.py

The right-hand side belongs to a known solution, and the largest error is printed. Ranks take a GPU
each if there are any.
"""

import sys

import numpy as np
from mpi4py import MPI

from slipstream.fft import DistributedFFT

n = int(sys.argv[1]) if sys.argv[1:] else 128  # points along each side of length 2 pi
fft = DistributedFFT((n, n, n), comm=MPI.COMM_WORLD)
xp = fft.device.array_module  # NumPy, or CuPy on GPUs

# This rank's part of the box, the solution sought there, and its Laplacian.
z, y, x = (2 * np.pi / n * index for index in xp.ogrid[fft.input_box.slices()])
exact = xp.sin(x) * xp.exp(xp.cos(y) + xp.cos(z))
rhs = fft.empty_input()
rhs[...] = exact * (xp.sin(y) ** 2 - xp.cos(y) + xp.sin(z) ** 2 - xp.cos(z) - 1)

# Divide by minus the square of the wavenumber; the mean of the solution is free, and zero here.
k_squared = sum(xp.asarray(k) ** 2 for k in fft.wavenumbers())
modes = fft.forward(rhs, out=fft.empty_output())
modes /= -xp.where(k_squared > 0, k_squared, 1)
solution = fft.backward(modes, out=fft.empty_input())

error = MPI.COMM_WORLD.allreduce(float(abs(solution - exact).max()), MPI.MAX)
if MPI.COMM_WORLD.rank == 0:
    print(fft.describe())
    print(f"largest error of the solution: {error:.1e}")
