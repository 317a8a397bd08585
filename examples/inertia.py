"""How inertia lowers the permeability of a lattice of spheres, against the Reynolds number."""

import sys

import matplotlib.pyplot as plt
import numpy as np

from slipstream.lattice import make_sample, permeability

size = int(sys.argv[1]) if sys.argv[1:] else 32
spheres = make_sample("spheres", (size,) * 3, lattice="simple", solid_fraction=0.4)
settings = {"voxel_size": 1e-3 / size, "axis": "x", "relaxation_time": 0.55, "tolerance": 1e-4}
stokes = permeability(spheres, **settings)
settings |= {"viscosity": 1e-3, "density": 1000, "inertia": True}  # water
ratios = []
for gradient in np.geomspace(10, 640, 4):  # Pa/m
    result = permeability(spheres, pressure_gradient=gradient, **settings)
    ratios.append((result.flow.reynolds_number(1e-3), stokes.k / result.k))
    print(f"{gradient:6.1f} Pa/m: Re {ratios[-1][0]:.3g}, Stokes k / k {ratios[-1][1]:.4f}")
plt.loglog(*np.transpose(ratios), "o-")
plt.xlabel("Reynolds number by the distance of spheres"), plt.ylabel("Stokes permeability over k")
plt.savefig("inertia.png")
