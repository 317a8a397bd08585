"""Permeability of an image in physical units, and its flow for ParaView and as a picture.

python examples/permeability.py 96
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from slipstream.lattice import make_sample, permeability

size = int(sys.argv[1]) if sys.argv[1:] else 96
rock = np.asarray(make_sample("sandstone", (size,) * 3, porosity=0.4, radius=size / 10))
water = {"viscosity": 1e-3, "density": 1000, "pressure_gradient": 1e4}  # Pa s, kg/m³, Pa/m
result = permeability(rock, voxel_size=2e-6, mirror=True, **water)
print(result)
result.write_vtk("rock.vti")
speed = result.fields["speed"]
plt.imshow(speed.data[:, size // 2], vmax=np.quantile(speed.data, 0.99))
plt.colorbar(label=f"{speed.attributes['long_name']} ({speed.attributes['units']})")
plt.title(f"{result.k_millidarcy:.4g} mD, porosity {result.porosity:.2f}")
plt.savefig("rock.png")
