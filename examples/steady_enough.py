"""The permeability of a rock, until your own extrapolation to the steady flow has settled.

python examples/steady_enough.py 64
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

size = int(sys.argv[1]) if sys.argv[1:] else 48
rock = {"sample": "sandstone", "shape": (size,) * 3, "porosity": 0.6, "radius": size / 4}
sim = ss.PorousFlow(rock, tolerance=0)  # it would continue for ever
seen, limits = [], []


@sim.every(steps=20)
def look(sim):
    """Take the last changes for a geometric series, and sum it; stop when that has settled."""
    seen.append((sim.steps, sim.permeability))
    changes = np.diff([value for _, value in seen[-3:]])
    if len(changes) < 2 or not 0 < changes[1] / changes[0] < 0.95:
        return
    rest = changes[1] ** 2 / (changes[0] - changes[1])
    limits.append((sim.steps, sim.permeability + rest))
    if len(limits) > 2 and np.ptp([value for _, value in limits[-3:]]) < 0.01 * limits[-1][1]:
        sim.stop()


sim.run()
print(f"{limits[-1][1]:.4f} squares of voxels after {sim.steps} steps; reached: {seen[-1][1]:.4f}")
plt.plot(*np.transpose(seen), "o-", label="permeability of the flow so far")
plt.plot(*np.transpose(limits), "x-", label="extrapolated to the steady flow")
plt.xlabel("time steps"), plt.ylabel("squares of voxels"), plt.legend()
plt.savefig("steady_enough.png")
