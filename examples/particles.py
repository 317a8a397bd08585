"""Particles that the flow carries: tracers in pairs, which separate.

python examples/particles.py 64
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 32
sim = ss.Turbulence(
    points=points,
    viscosity=0.01,
    step=0.05,
    initial={"flow": "random", "amplitude": 0.5, "peak_wavenumber": 2},
    particles={"number": 600, "separation": 1e-3},
)
track, distance = [], []


@sim.every(steps=2)
def look(sim):
    """Keep the path of a particle, and the mean distance of pairs."""
    places = sim.particles["tracers"].positions
    track.append(places[0])
    apart = np.linalg.norm(places[1::2] - places[::2], axis=1)
    distance.append((sim.time, np.exp(np.log(apart).mean())))


sim.run(until=10)
places = sim.particles["tracers"].positions[::2] % (2 * np.pi)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.scatter(*places[:, :2].T, s=4)
left.plot(*(np.array(track)[:, :2] % (2 * np.pi)).T, "k,")
left.set(xlabel="x", ylabel="y", title=f"t = {sim.time:g}")
right.semilogy(*np.transpose(distance))
right.set(xlabel="time", ylabel="mean distance of pairs (geometric)")
figure.savefig("particles.png")
