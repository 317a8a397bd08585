"""A closure in PyTorch: an eddy viscosity, set at each step from the strain, where the arrays live.

The viscosity is a field of the equations, so its fluxes are dealiased, and nothing is copied to the
host. Any torch.nn.Module may take the place of Smagorinsky's formula. Without PyTorch it is NumPy.

    python examples/eddy_viscosity.py 32
"""

import sys
import warnings

import matplotlib.pyplot as plt

import slipstream as ss
from slipstream.equations import Model, Scalar, Vector, div, dot, grad, laplacian, outer

try:
    import torch as library
except ImportError:
    import numpy as library  # has the functions that are used below

points = int(sys.argv[1]) if sys.argv[1:] else 32
# A root of squares has modes beyond those of the grid, which are left out.
warnings.filterwarnings("ignore", "fields.'eddy_viscosity'.: .* discards")
u, eddy = Vector("velocity", solenoidal=True), Scalar("eddy_viscosity")
# div(eddy (grad(u) + its transpose)), but for a gradient, which the pressure takes
stress = div(eddy * grad(u)) - dot(u, grad(grad(eddy)))
model = Model({u: -div(outer(u, u)) + 1e-4 * laplacian(u) + stress, eddy: 0})


def smagorinsky(strain):
    """Return (c width)^2 |S| of a tensor of shape (3, 3, z, y, x)."""
    width, square = 6.28 / points, library.einsum("ij...,ij...->...", strain, strain)
    return (0.17 * width) ** 2 * library.sqrt(2 * square)


def close(sim):
    """Set the eddy viscosity of the next step."""
    strain = library.from_dlpack(sim.evaluate("strain"))
    sim.fields["eddy_viscosity"][...] = smagorinsky(strain)


for name, call in (("no closure", lambda sim: None), ("Smagorinsky's closure", close)):
    sim = ss.Flow(model, points=points, initial={"flow": "taylor-green"}, max_step=0.1)
    sim.every(steps=1, call=call)
    sim.run(until=10)
    k, energy = sim.spectrum("velocity")
    plt.semilogy(k[2 : points // 2], energy[2 : points // 2], label=name)
plt.xlabel("wavenumber"), plt.ylabel("energy in the shell"), plt.legend()
plt.savefig("eddy_viscosity.png")
