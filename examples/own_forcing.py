"""Your own forcing: the two largest shells keep the energy that they begin with.

python examples/own_forcing.py 64
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 48
viscosity = 3.6 / points ** (4 / 3)  # the smallest whose eddies have several points
start = {"flow": "random", "amplitude": 0.5, "peak_wavenumber": 2, "seed": 1}
sim = ss.Turbulence(points=points, viscosity=viscosity, initial=start)
xp = sim.array_module  # NumPy, or CuPy on GPUs
kz, ky, kx = map(xp.asarray, sim.wavenumbers)
is_large = kz**2 + ky**2 + kx**2 < 2.5**2  # shells 1 and 2
target = sim.spectrum("velocity")[1][1:3].sum()
energy = []


@sim.every(steps=1)
def force(sim):
    """Scale the modes of the first two shells; on several ranks all have the same spectrum."""
    factor = np.sqrt(target / sim.spectrum("velocity")[1][1:3].sum())
    sim.modes["velocity"][...] = sim.modes["velocity"][...] * xp.where(is_large, factor, 1)
    energy.append((sim.time, sim.diagnostics["energy"]))


sim.run(until=20)
print(f"energy of shells 1 and 2: {target:.6f}, then {sim.spectrum('velocity')[1][1:3].sum():.6f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(*np.transpose(energy))
left.axhline(target, color="k", linestyle=":", label="shells 1 and 2")
left.set(xlabel="time", ylabel="energy", ylim=0)
left.legend()
k, spectrum = sim.spectrum("velocity")
right.loglog(k[1 : points // 3], spectrum[1 : points // 3])
right.set(xlabel="wavenumber", ylabel="energy in the shell")
figure.savefig("own_forcing.png")
