"""The permeability tensor of layered rock: its principal axes, and how flow winds along each axis.

python examples/permeability_tensor.py 48
"""

import sys

import numpy as np

from slipstream.lattice import make_sample, permeability

size = int(sys.argv[1]) if sys.argv[1:] else 48
pack = np.asarray(make_sample("random-pack", (size,) * 3, radius=size / 8, solid_fraction=0.3))
z, y, _ = np.indices(pack.shape)
pack[((z + y) % size) < max(2, size // 16)] = 0  # a solid layer, inclined by 45 degrees ...
pack[:, :, size // 4 : size // 2] = 1  # ... with a gap
result = permeability(pack, voxel_size=5e-6, axis="all", tolerance=1e-4, relaxation_time=1.5)
values, directions = np.linalg.eigh((result.tensor + result.tensor.T) / 2)
for value, direction in zip(values, directions.T, strict=True):
    print(f"{value:.4g} m² along ({', '.join(f'{one:.2f}' for one in direction)})")
for name, flow in result.flows.items():
    print(f"along {name}: tortuosity {flow.tortuosity:.3f}, drag / drive {flow.balance:.4f}")
