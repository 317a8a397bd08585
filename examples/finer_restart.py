"""A state continues at its own and at twice the resolution.

python examples/finer_restart.py 64
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 32
settings = {"viscosity": 0.2 / points, "cfl": 0.5}
coarse = ss.Turbulence(points=points, initial="taylor-green", **settings)
coarse.run(until=3)
states = f"finer_restart-{points}"
coarse.checkpoint(states)
fine = ss.Turbulence(points=2 * points, initial={"restart": states}, **settings)
differences = []


def difference():
    """Return the relative distance of both velocities, at the points that they share."""
    one, other = coarse.fields["velocity"].gather(), fine.fields["velocity"].gather()
    return np.linalg.norm(other[:, ::2, ::2, ::2] - one) / np.linalg.norm(one)


for time in np.arange(3, 7.01, 0.25):
    for sim in (coarse, fine):
        if time > sim.time:
            sim.run(until=time)
    differences.append((time, difference()))
print(f"relative difference: {differences[0][1]:.1e} at first, {differences[-1][1]:.1e} at last")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.semilogy(*np.transpose(differences)[:, 1:])
left.set(xlabel="time", ylabel="relative difference of velocities")
for sim in (coarse, fine):
    k, energy = sim.spectrum("velocity")
    is_kept = energy > 1e-14
    right.semilogy(k[is_kept], energy[is_kept], label=f"{sim.fields['velocity'].shape[-1]}³ points")
right.set(xlabel="wavenumber", ylabel="energy in the shell", title=f"t = {coarse.time:g}")
right.legend()
figure.savefig("finer_restart.png")
