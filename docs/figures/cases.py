"""The picture of each shipped case: it runs the case as it is, and keeps its summary.

python docs/figures/cases.py docs/images [CASE ...]

All take ten minutes on two cores. `sandstone` and `advection` are drawn by other scripts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = ("taylor-green", "forced", "stratified", "orszag-tang", "quantum-vortices")


def draw(case: str, target: Path) -> None:
    """Run a case in an empty folder and copy its summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "slipstream", "run", case, "--quiet", "--out", "run"]
        subprocess.run(command, cwd=folder, check=True)
        shutil.copy(Path(folder) / "run" / "summary.png", target)


if __name__ == "__main__":
    images, *chosen = sys.argv[1:]
    for name in chosen or CASES:
        draw(name, Path(images) / f"{name}.png")
