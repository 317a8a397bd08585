"""The Orszag-Tang vortex in two dimensions, as a movie of its current density.

python examples/mhd_movie.py 256
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 128
decay = {"viscosity": 0.6 / points, "resistivity": 0.6 / points}
sim = ss.Flow("mhd", points=(points, points, 1), initial="orszag-tang", **decay)
times, currents = [], []


@sim.every(0.04)
def look(sim):
    """Keep the component of the current across the plane."""
    times.append(sim.time)
    currents.append(sim.fields["current_density"].plane("z", 0)[2, ::-1])


sim.run(until=2)
scale = np.quantile(np.abs(currents), 0.999)
frames = [
    Image.fromarray(plt.cm.RdBu_r(0.5 + current / scale / 2, bytes=True)) for current in currents
]
frames[0].save("mhd.gif", save_all=True, append_images=frames[1:], duration=60, loop=0)
print(f"{len(frames)} frames in mhd.gif")

plt.plot(times, np.abs(currents).max(axis=(1, 2)))
plt.xlabel("time"), plt.ylabel("largest current density")
plt.savefig("mhd.png")
