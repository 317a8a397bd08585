"""The Taylor-Green vortex until its dissipation has passed the peak, and its vorticity then.

python examples/taylor_green.py 96
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import slipstream as ss

points = int(sys.argv[1]) if sys.argv[1:] else 64
viscosity = 1.4 / points ** (4 / 3)  # the smallest whose eddies have several points
sim = ss.Turbulence(points=points, viscosity=viscosity, initial="taylor-green")
history = []


@sim.every(0.1)
def look(sim):
    """Note the dissipation, and stop when it has fallen below its peak."""
    history.append((sim.time, sim.diagnostics["dissipation"]))
    if history[-1][1] < 0.95 * max(value for _, value in history):
        sim.stop()


sim.run(until=20)
times, dissipation = np.transpose(history)
peak = dissipation.argmax()
print(f"peak dissipation {dissipation[peak]:.5f} at t = {times[peak]:.1f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(times, dissipation)
left.set(xlabel="time", ylabel="dissipation", title=f"viscosity 1 / {1 / viscosity:.0f}")
vorticity = sim.evaluate("vorticity_magnitude").plane("x", 0)
image = right.imshow(vorticity, origin="lower", extent=(0, 2 * np.pi) * 2, cmap="magma")
right.set(xlabel="y", ylabel="z", title=f"vorticity at x = 0, t = {sim.time:.1f}")
figure.colorbar(image)
figure.savefig("taylor_green.png")
