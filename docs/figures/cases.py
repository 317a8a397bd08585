"""The picture of each case of the gallery: it runs the case as it is, and keeps its summary.

python docs/figures/cases.py docs/images [CASE ...]

All take a quarter of an hour on two cores. `sandstone` and `advection` are drawn by other scripts;
of `solitons`, whose fields are lines, the picture shows all times.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from style import ROOT, plt

import slipstream as ss

CASES = (
    "taylor-green",
    "forced",
    "mixing",
    "shear",
    "stratified",
    "rayleigh-benard",
    "orszag-tang",
    "orszag-tang-flux",
    "quantum-vortices",
    "relaxed-vortices",
    "decaying-2d",
    "lamb-dipole",
    "cylinder",
    "inverse-cascade",
    "surface-fronts",
    "zonal-flows",
    "inertia-gravity",
    "lans-alpha",
    "leray-alpha",
    "large-eddies",
    "dynamic-eddies",
    "spectral-eddies",
    "hall",
    "isothermal",
    "solitons",
)


def draw(case: str, target: Path) -> None:
    """Run a case in an empty folder and copy its summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "slipstream", "run", case, "--quiet", "--out", "run"]
        subprocess.run(command, cwd=folder, check=True)
        keep(Path(folder) / "run" / "summary.png", target)


def draw_solitons(target: Path) -> None:
    """Run the example, and draw its only line against time, with the first and the last one."""
    sim = ss.load(ROOT / "examples" / "solitons.toml")
    times, lines = [], []

    @sim.every(0.01)
    def note(sim: ss.Flow) -> None:
        times.append(sim.time)
        lines.append(np.array(sim.fields["height"])[0, 0])

    sim.run()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 1.2))
    x = 2 * np.arange(lines[0].size) / lines[0].size
    for when in (0, 0.32, 1.15):
        number = int(np.argmin(np.abs(np.array(times) - when)))
        left.plot(x, lines[number], label=f"$t$ = {times[number]:.2f}")
    left.set(xlabel="$x$", ylabel="height", xlim=(0, 2))
    left.legend(frameon=False)
    image = right.imshow(lines, origin="lower", aspect="auto", extent=(0, 2, 0, times[-1]))
    right.set(xlabel="$x$", ylabel="time $t$")
    figure.colorbar(image, ax=right, label="height")
    figure.savefig(target)
    keep(target, target)


def draw_relaxed(target: Path) -> None:
    """Run the case, and draw the density in a plane before and after, and the free energy."""
    sim = ss.load(ROOT / "cases" / "relaxed-vortices.toml")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    times, energies = [], []
    for panel, end in zip(axes, (0, 4), strict=False):
        while sim.time < end - 1e-9:
            times.append(sim.time)
            energies.append(sim.diagnostics["free_energy"])
            sim.run(steps=10)
        density = np.array(sim.evaluate("psi_density"))[0]
        image = panel.imshow(density, origin="lower", extent=(0, 2, 0, 2), vmin=0, vmax=1.2)
        panel.set(xlabel=r"$x/\pi$", ylabel=r"$y/\pi$", title=f"$z = 0$, $t$ = {sim.time:.0f}")
    figure.colorbar(image, ax=axes[1], label="density")
    axes[2].plot(times, energies)
    axes[2].set(xlabel="time $t$", ylabel="free energy", ylim=(0, None))
    figure.savefig(target)
    keep(target, target)


# Cases whose summary does not show what they are about.
DRAWN = {"solitons": draw_solitons, "relaxed-vortices": draw_relaxed}


def keep(picture: Path, target: Path) -> None:
    """Write a picture 1200 dots wide, half again as wide as the site shows it."""
    image = Image.open(picture).convert("RGB")
    height = image.height * 1200 // image.width
    image.resize((1200, height), Image.Resampling.LANCZOS).save(target, optimize=True)


if __name__ == "__main__":
    images, *chosen = sys.argv[1:]
    for name in chosen or CASES:
        target = Path(images) / f"{name}.png"
        if name in DRAWN:
            DRAWN[name](target)
        else:
            draw(name, target)
