"""The pictures of the landing page that no shipped case draws: flow through rock, and a transform.

python docs/figures/landing.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from style import BLUE, GREEN, GREY, ORANGE, RED, plt

from slipstream.lattice import make_sample, permeability

VOXEL = 2e-6


def rock(folder: Path) -> None:
    """Draw the speed and streamlines of water in a plane through a sandstone."""
    sample = make_sample("sandstone", (64, 64, 96), porosity=0.45, radius=9, seed=3)
    water = {"viscosity": 1e-3, "density": 1000.0, "pressure_gradient": 1e4}
    result = permeability(np.asarray(sample), voxel_size=VOXEL, axis="x", tolerance=1e-2, **water)
    flow = {name: np.asarray(result.fields[name].data) for name in ("velocity_x", "velocity_y")}
    pore = np.asarray(result.fields["pore"].data) > 0
    plane = int(np.argmax(np.abs(flow["velocity_x"]).mean((1, 2))))
    across, along = flow["velocity_y"][plane], flow["velocity_x"][plane]
    speed = np.ma.masked_where(~pore[plane], 1e6 * np.hypot(across, along))
    ny, nx = along.shape
    x, y = (1e6 * VOXEL * (np.arange(count) + 0.5) for count in (nx, ny))
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.set_facecolor("#d8cdbb")
    largest = float(np.quantile(speed.compressed(), 0.995))
    extent = (0, 1e6 * VOXEL * nx, 0, 1e6 * VOXEL * ny)
    image = axes.imshow(speed, origin="lower", extent=extent, cmap="viridis", vmax=largest)
    width = 1.6 * np.sqrt(np.minimum(speed.filled(0) / largest, 1))
    axes.streamplot(x, y, along, across, color="white", linewidth=width, density=1.6, arrowsize=0.7)
    figure.colorbar(image, label="speed (µm/s)", shrink=0.8)
    axes.set(xlabel="x (µm)", ylabel="y (µm)", xlim=extent[:2], ylim=extent[2:])
    axes.set_title(f"Water through sandstone: {result.k_millidarcy / 1000:.2g} darcy along x")
    figure.savefig(folder / "rock-flow.png")
    plt.close(figure)


def transform(folder: Path) -> None:
    """Draw which rank has what before and after the exchange of a slab transform."""
    figure, both = plt.subplots(1, 2, figsize=(6, 3.1), subplot_kw={"projection": "3d"})
    colours = (BLUE, ORANGE, GREEN, RED)
    for axes, axis, title in zip(
        both, (2, 1), ("points: z divided", "modes: y divided"), strict=True
    ):
        for rank, colour in enumerate(colours):
            filled = np.zeros((4, 4, 4), bool)
            part = [slice(None)] * 3
            part[axis] = rank
            filled[tuple(part)] = True
            axes.voxels(filled, facecolors=colour, edgecolor="white", linewidth=0.3, alpha=0.95)
        axes.set_title(title)
        axes.set_axis_off()
        axes.view_init(22, -55)
        axes.set_box_aspect((1, 1, 1), zoom=1.1)
    figure.text(0.5, 0.9, "exchange ⟶", ha="center", va="center", color=GREY, fontsize=12)
    figure.text(0.5, 0.03, "four ranks; x and y are transformed left, z right", ha="center")
    figure.savefig(folder / "transform.png")
    plt.close(figure)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    transform(target)
    rock(target)
