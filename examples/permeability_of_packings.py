"""Permeability against porosity of twenty packings, each until a callback finds it good enough."""

import sys

import matplotlib.pyplot as plt
import numpy as np

from slipstream.lattice import make_sample, permeability

size = int(sys.argv[1]) if sys.argv[1:] else 48
radius, looks, packings = size / 6, [0.0], []


def is_still(now):
    """Return whether the permeability changes by less than 1 % between two looks."""
    looks.append(now.permeability)
    return now.step > 50 and abs(looks[-2] / looks[-1] - 1) < 0.01


for seed, solid in enumerate(np.linspace(0.12, 0.35, 20)):
    pack = make_sample("random-pack", (size,) * 3, radius=radius, solid_fraction=solid, seed=seed)
    result = permeability(pack, callback=is_still, interval=50, tolerance=1e-9, keep_fields=False)
    packings.append((result.porosity, result.k / radius**2))
plt.semilogy(*np.transpose(packings), "o")
plt.xlabel("porosity"), plt.ylabel("permeability / radius²"), plt.savefig("packings.png")
