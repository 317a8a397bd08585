"""Particles that the flow carries: the velocity is interpolated to where they are, after each step.

python examples/particles.py 64
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

points, step = int(sys.argv[1]) if sys.argv[1:] else 32, 0.05
eddies = {"flow": "random", "amplitude": 0.5, "peak_wavenumber": 2}
sim = ss.Turbulence(points=points, viscosity=0.01, step=step, initial=eddies)
random = np.random.default_rng(0)  # the same particles on all ranks
start = random.uniform(0, 2 * np.pi, (300, 3))
twins = start + 1e-3 * random.standard_normal(start.shape)
places = np.concatenate([start, twins])
velocities, track, distance = [], [], []


@sim.every(steps=1)
def move(sim):
    """Do a step of Adams and Bashforth's for each particle."""
    velocities.append(sim.fields["velocity"].at(places))
    track.append(places[0].copy())
    apart = np.linalg.norm(places[:300] - places[300:], axis=1)
    distance.append((sim.time, np.exp(np.log(apart).mean())))
    places[...] += step * (1.5 * velocities[-1] - 0.5 * velocities[max(-2, -len(velocities))])


sim.run(until=10)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.scatter(*(places % (2 * np.pi))[:, :2].T, s=4)
left.plot(*(np.array(track)[:, :2] % (2 * np.pi)).T, "k,")
left.set(xlabel="x", ylabel="y", title=f"t = {sim.time:g}")
right.semilogy(*np.transpose(distance))
right.set(xlabel="time", ylabel="mean distance of twins (geometric)")
figure.savefig("particles.png")
