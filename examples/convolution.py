"""Smooth a random field by a Gaussian, a convolution, on any number of ranks.

    mpiexec -n 4 python examples/convolution.py

The mean is kept, and printed before and after; a plane is drawn: convolution.png.
"""

import sys

import numpy as np
from mpi4py import MPI

from slipstream.fft import DistributedFFT, redistribute, section, whole

n = int(sys.argv[1]) if sys.argv[1:] else 96  # points along each side
width, comm = n / 32, MPI.COMM_WORLD  # of the Gaussian, in points
fft = DistributedFFT((n, n, n), "float32", comm=comm)

noise = np.random.default_rng(comm.rank).random(fft.input_box.shape, "float32")
z, y, x = np.ogrid[fft.input_box.slices()]
distances = [np.minimum(i, n - i) ** 2 for i in (z, y, x)]  # to the origin of a periodic box
kernel = np.exp(-sum(distances) / (2 * width**2)).astype("float32")
kernel /= comm.allreduce(kernel.sum(dtype=float))
smooth = fft.device.to_host(fft.convolve(noise, kernel))

plane, boxes = section(smooth, fft.input_boxes, (slice(None), slice(None), 0), comm)
on_first = [whole((n, n)), *[whole((0, 0))] * (comm.size - 1)]
picture = redistribute(plane, boxes, on_first, comm)  # all of it on the first rank
means = [comm.allreduce(float(u.sum(dtype=float))) / n**3 for u in (noise, smooth)]
if comm.rank == 0:
    import matplotlib.pyplot as plt

    print(f"mean before and after: {means[0]:.7f} {means[1]:.7f}")
    plt.imshow(picture)
    plt.colorbar()
    plt.savefig("convolution.png")
