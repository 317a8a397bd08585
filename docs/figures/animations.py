"""The two animations of the landing page, which are kept in docs/images: they take a minute.

python docs/figures/animations.py docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from landing import VOXEL, flow_through_rock
from matplotlib import colors, font_manager
from PIL import Image, ImageDraw, ImageFont
from style import ROCK_COLOUR, plt

import slipstream as ss

SIZE = (280, 210)
FRAMES = 30
FONT = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 11)


def taylor_green(target: Path) -> None:
    """Draw the vorticity of a plane, from large vortices to small ones."""
    sim = ss.Turbulence(points=64, viscosity=1 / 400, initial="taylor-green", cfl=1.2)
    planes, times = [], np.linspace(0.25, 10, FRAMES)
    for time in times:
        sim.run(until=float(time), progress=False)
        plane = np.asarray(sim.fields["vorticity_magnitude"].plane("z", 0.47 * np.pi))
        planes.append(plane[: plane.shape[0] * 3 // 4])
    largest = float(np.quantile(planes[-1], 0.995))
    colours = plt.get_cmap("inferno")
    frames = []
    for plane, time in zip(planes, times, strict=True):
        shade = Image.fromarray(np.uint8(255 * np.sqrt(np.clip(plane / largest, 0, 1))))
        large = np.asarray(shade.resize(SIZE, Image.Resampling.BICUBIC)) / 255
        frame = Image.fromarray(np.uint8(255 * colours(large)[::-1, :, :3]))
        ImageDraw.Draw(frame).text((8, SIZE[1] - 18), f"t = {time:.1f}", fill="white", font=FONT)
        frames.append(frame)
    write(target, frames, still=6)


def rock(target: Path) -> None:
    """Draw how water carries dots through a plane of a sandstone, where it flows and how fast."""
    speed, across, along, pore = flow_through_rock()
    ny, nx = along.shape
    fastest = float(np.quantile(speed[pore], 0.995))
    random = np.random.default_rng(2)
    # Dots begin where there is pore, live for one turn of the film, and fade in and out.
    rows, columns = np.nonzero(pore)
    chosen = random.integers(0, len(rows), 700)
    x, y = columns[chosen] + random.random(700), rows[chosen] + random.random(700)
    phase = random.integers(0, FRAMES, 700)
    paths = np.empty((FRAMES, 2, 700))
    for step in range(FRAMES):
        paths[step] = x, y
        for _ in range(4):
            j, i = np.clip(np.int_(y), 0, ny - 1), np.clip(np.int_(x), 0, nx - 1)
            x, y = x + 0.22 * along[j, i] / fastest, y + 0.22 * across[j, i] / fastest
    colours = plt.get_cmap("viridis")
    shade = np.uint8(255 * colours(np.sqrt(np.clip(speed / fastest, 0, 1)))[..., :3])
    shade[~pore] = np.uint8(255 * np.array(colors.to_rgb(ROCK_COLOUR)))
    ground = Image.fromarray(shade[::-1]).resize(SIZE, Image.Resampling.BICUBIC)
    scale = np.array([SIZE[0] / nx, SIZE[1] / ny])
    frames = []
    for number in range(FRAMES):
        frame = ground.copy()
        pen = ImageDraw.Draw(frame)
        age = (number + phase) % FRAMES
        bright = np.minimum(age, FRAMES - 1 - age) > 2
        at = paths[age, :, np.arange(700)] * scale
        for column, row in at[bright]:
            pen.ellipse((column - 1, SIZE[1] - row - 2, column + 1, SIZE[1] - row), fill="white")
        width = 50e-6 / VOXEL * scale[0]
        pen.rectangle((8, SIZE[1] - 12, 8 + width, SIZE[1] - 9), fill="black")
        pen.text((8, SIZE[1] - 26), "50 µm", fill="black", font=FONT)
        frames.append(frame)
    write(target, frames)


def write(target: Path, frames: list[Image.Image], still: int = 0) -> None:
    """Write frames as a GIF of 40 colours that repeats, the last one for some more."""
    frames += frames[-1:] * still
    every = Image.fromarray(np.concatenate([np.asarray(one) for one in frames[::6]]))
    palette = every.quantize(40)
    made = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    made[0].save(target, save_all=True, append_images=made[1:], duration=110, loop=0)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    rock(folder / "rock.gif")
    taylor_green(folder / "turbulence.gif")
