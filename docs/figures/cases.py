"""The picture of each shipped case: it runs the case as it is, and keeps its summary.

python docs/figures/cases.py docs/images [CASE ...]

All take ten minutes on two cores. `sandstone` and `advection` are drawn by other scripts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

CASES = ("taylor-green", "forced", "stratified", "orszag-tang", "quantum-vortices")


def draw(case: str, target: Path) -> None:
    """Run a case in an empty folder and copy its summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "slipstream", "run", case, "--quiet", "--out", "run"]
        subprocess.run(command, cwd=folder, check=True)
        keep(Path(folder) / "run" / "summary.png", target)


def keep(picture: Path, target: Path) -> None:
    """Write a picture 1600 dots wide, twice what the site shows."""
    image = Image.open(picture).convert("RGB")
    height = image.height * 1600 // image.width
    image.resize((1600, height), Image.Resampling.LANCZOS).save(target, optimize=True)


if __name__ == "__main__":
    images, *chosen = sys.argv[1:]
    for name in chosen or CASES:
        draw(name, Path(images) / f"{name}.png")
