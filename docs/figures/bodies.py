"""Drag of arrays of cylinders and spheres in Stokes flow, by penalisation, against exact numbers.

python docs/figures/bodies.py docs/images

It takes a minute on two cores.

Square arrays of cylinders: Sangani and Acrivos, Int. J. Multiphase Flow 8, 193 (1982), table 1.
Simple cubic arrays of spheres: Zick and Homsy, J. Fluid Mech. 115, 13 (1982), table 2. Both are as
the tests of Basilisk quote them (cylinders.c, spheres.c). Where bodies are sparse they agree with
series: 4 pi / (ln(1/c)/2 - 0.738 + c - 0.887 c^2 + 2.038 c^3) for cylinders, to 0.1 % up to c = 0.1
and 1 / (1 - 1.7601 c^(1/3) + c - 1.5593 c^2 + 3.9799 c^(8/3) - 3.0734 c^(10/3)) for spheres, which
begins as Hasimoto's (J. Fluid Mech. 5, 317, 1959), to 0.1 % up to c = 0.125.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from style import plt

import slipstream as ss

CYLINDERS = {0.05: 15.56, 0.1: 24.83, 0.2: 51.53, 0.3: 102.90}
SPHERES = {0.027: 2.008, 0.064: 2.810, 0.125: 4.292, 0.216: 7.442}
# The width of a body's boundary, in grid spacings.
WIDTH = 1.5
# The step over eta.
STEP = 0.5


def measure_drag(shape: str, fraction: float, points: int) -> float:
    """Return the force on one body of a box of length 1, over viscosity and mean velocity."""
    is_sphere = shape == "sphere"
    radius = (fraction * 3 / (4 * np.pi)) ** (1 / 3) if is_sphere else (fraction / np.pi) ** 0.5
    dt = STEP * (WIDTH / points / 2.648) ** 2
    sim = ss.Turbulence(
        points=[points, points, points if is_sphere else 1],
        length=1.0,
        viscosity=1.0,
        step=dt,
        integrator="rk2",
        forcing={"kind": "mean-flow", "velocity": [0.01, 0, 0]},
        bodies={"shape": shape, "radius": radius, "width": WIDTH / points},
    )
    sim.step(round(0.1 / dt))
    return sim.diagnostics["body_force_x"] / 0.01 / (6 * np.pi * radius if is_sphere else 1)


def measure_errors(
    shape: str, fraction: float, exact: float, sizes: tuple[int, ...]
) -> list[float]:
    """Return relative errors, printed too."""
    computed = []
    for n in sizes:
        computed.append(measure_drag(shape, fraction, n) / exact - 1)
        print(f"{shape} {fraction} {n}: {computed[-1]:+.4f}", flush=True)
    return computed


def main(folder: Path) -> None:
    """Draw the figure."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained", sharey=True)
    for ax, shape, table, sizes, title in (
        (axes[0], "cylinder", CYLINDERS, (16, 24, 32, 48), "cylinders, square array"),
        (axes[1], "sphere", SPHERES, (12, 16, 24, 32), "spheres, cubic array"),
    ):
        for fraction, exact in table.items():
            ax.loglog(
                sizes, np.abs(measure_errors(shape, fraction, exact, sizes)), "o-", label=fraction
            )
        ax.loglog(sizes, 60 / np.array(sizes) ** 2.0, "--", color="0.5", label="second order")
        ax.set(title=title, xlabel="points along the box")
        ax.set_xticks(sizes, sizes)
        ax.minorticks_off()
        ax.legend(title="solid fraction", fontsize=7)
    axes[0].set_yticks([0.03, 0.1, 0.3], ["0.03", "0.1", "0.3"])
    axes[0].set_ylabel("relative error of the drag")
    figure.savefig(folder / "bodies.png", dpi=130)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
