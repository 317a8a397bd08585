"""The picture of docs/howto/particles.md: pairs of particles separate.

python docs/figures/particles.py docs/images

It takes a minute on two cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from style import BLUE, ORANGE, plt

import slipstream as ss

SEPARATIONS = (0.01, 0.04, 0.16)


def draw(target: Path) -> None:
    """Run the flow with pairs of three distances and two kinds, and draw their dispersion."""
    sets = [
        {"name": f"{kind}-{number}", "number": 4000, "separation": one, "interval": 0.1, **extra}
        for number, one in enumerate(SEPARATIONS)
        for kind, extra in {
            "tracers": {},
            "heavy": {"kind": "inertial", "response_time": 0.5},
        }.items()
    ]
    flow = {"flow": "random", "amplitude": 1.0, "peak_wavenumber": 3}
    sim = ss.Turbulence(
        points=48, viscosity=0.01, initial=flow, max_step=0.05, comm=None, particles=sets
    )
    figure, axes = plt.subplots(figsize=(6, 3.6))
    with tempfile.TemporaryDirectory() as folder:
        sim.run(until=5, output=Path(folder) / "run")
        particles = ss.open(Path(folder) / "run").particles
        for number in range(len(SEPARATIONS)):
            for kind, colour in (("tracers", BLUE), ("heavy", ORANGE)):
                paths = particles[f"{kind}-{number}"]
                distance = paths.pair_dispersion() ** 0.5
                label = kind if number == 0 else None
                axes.semilogy(paths.times, distance, color=colour, label=label)
    axes.set(xlabel="time", ylabel="distance of pairs, root mean square")
    axes.legend(frameon=False)
    figure.savefig(target / "particles.png", dpi=160)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
