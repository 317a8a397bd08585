"""Pictures that no shipped case draws: flow through rock, and a transform.

python docs/figures/landing.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from style import BLUE, GREEN, GREY, ORANGE, PAPER, PINK, ROCK_COLOUR, plt

from slipstream.lattice import make_sample, permeability

VOXEL = 2e-6


def card() -> tuple[plt.Figure, plt.Axes]:
    """Return a figure without decoration, four to three, for a card."""
    figure = plt.figure(figsize=(4, 3), layout="none")
    return figure, figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])


def flow_through_rock() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return speed, velocity across and along, and pores of a plane of a sandstone (µm/s)."""
    sample = make_sample("sandstone", (64, 64, 96), porosity=0.45, radius=9, seed=3)
    water = {"viscosity": 1e-3, "density": 1000.0, "pressure_gradient": 1e4}
    result = permeability(np.asarray(sample), voxel_size=VOXEL, axis="x", tolerance=1e-2, **water)
    flow = {name: np.asarray(result.fields[name].data) for name in ("velocity_x", "velocity_y")}
    pore = np.asarray(result.fields["pore"].data) > 0
    plane = int(np.argmax(np.abs(flow["velocity_x"]).mean((1, 2))))
    across, along = 1e6 * flow["velocity_y"][plane], 1e6 * flow["velocity_x"][plane]
    return np.hypot(across, along), across, along, pore[plane]


def rock(folder: Path) -> None:
    """Draw the speed and streamlines of water in a plane through a sandstone."""
    speed, across, along, pore = flow_through_rock()
    ny, nx = along.shape
    x, y = (1e6 * VOXEL * (np.arange(count) + 0.5) for count in (nx, ny))
    largest = float(np.quantile(speed[pore], 0.995))
    extent = (0, 1e6 * VOXEL * nx, 0, 1e6 * VOXEL * ny)
    figure, axes = plt.subplots(figsize=(PAPER, 0.62 * PAPER))
    axes.set_facecolor(ROCK_COLOUR)
    shown = np.ma.masked_where(~pore, speed)
    image = axes.imshow(shown, origin="lower", extent=extent, cmap="viridis", vmax=largest)
    width = 1.6 * np.sqrt(np.minimum(np.where(pore, speed, 0) / largest, 1))
    lines = {"color": "white", "linewidth": width, "density": 1.6, "arrowsize": 0.7}
    axes.streamplot(x, y, along, across, **lines)
    axes.set(xlim=extent[:2], ylim=extent[2:], xlabel="x (µm)", ylabel="y (µm)")
    figure.colorbar(image, label="speed (µm/s)", shrink=0.85)
    axes.annotate(
        "pressure falls",
        (0.98, 1.03),
        (0.6, 1.03),
        xycoords="axes fraction",
        va="center",
        arrowprops={"arrowstyle": "->"},
        annotation_clip=False,
    )
    figure.savefig(folder / "rock-flow.png")
    plt.close(figure)


def transform(folder: Path) -> None:
    """Draw which rank has what before and after the exchange of a slab transform."""
    figure = plt.figure(figsize=(4, 3), layout="none")
    colours = (BLUE, ORANGE, GREEN, PINK)
    for number, axis in enumerate((2, 1)):
        axes = figure.add_axes((0.5 * number - 0.01, 0.08, 0.52, 0.86), projection="3d")
        for rank, colour in enumerate(colours):
            filled = np.zeros((4, 4, 4), bool)
            part = [slice(None)] * 3
            part[axis] = rank
            filled[tuple(part)] = True
            axes.voxels(filled, facecolors=colour, edgecolor="white", linewidth=0.3)
        axes.set_axis_off()
        axes.view_init(22, -55)
        axes.set_box_aspect((1, 1, 1), zoom=1.25)
    figure.text(0.5, 0.88, "exchange ⟶", ha="center", color=GREY, fontsize=11)
    figure.text(0.25, 0.06, "points", ha="center", color=GREY, fontsize=11)
    figure.text(0.75, 0.06, "modes", ha="center", color=GREY, fontsize=11)
    figure.savefig(folder / "transform-card.png")
    plt.close(figure)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    transform(target)
    rock(target)
