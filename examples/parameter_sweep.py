"""Decaying turbulence for several viscosities and seeds, as a table of pandas and a picture of it.

python examples/parameter_sweep.py 48
"""

import itertools
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 32
rows = []


def note(sim):
    """Add a row: the parameters, and all diagnostics of the state."""
    rows.append({"viscosity": viscosity, "seed": seed, "time": sim.time, **sim.diagnostics})


for viscosity, seed in itertools.product(np.geomspace(3.4, 13.6, 4) / points ** (4 / 3), (1, 2, 3)):
    start = {"flow": "random", "seed": seed, "peak_wavenumber": 2, "amplitude": 0.5}
    with ss.Turbulence(points=points, viscosity=viscosity, initial=start) as sim:
        sim.every(0.5, note)
        sim.run(until=4)
table = pd.DataFrame(rows)
table.to_csv("parameter_sweep.csv", index=False)
last = table[table.time == table.time.max()]
print(last.groupby("viscosity")[["energy", "dissipation", "taylor_reynolds"]].mean())

decay = table.pivot_table("energy", index="time", columns="viscosity")  # the mean over seeds
spread = table.pivot_table("energy", index="time", columns="viscosity", aggfunc="std")
decay.columns = spread.columns = [f"viscosity {one:.4f}" for one in decay.columns]
decay.plot(yerr=spread, capsize=2, ylabel="energy", title="mean and scatter of three seeds")
plt.savefig("parameter_sweep.png")
