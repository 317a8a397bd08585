"""Run the steps of containers/Dockerfile without Docker, in a folder that has a Debian system.

    debootstrap --variant=minbase --include=ca-certificates bookworm /srv/container
    python tools/check_container.py /srv/container

As root, with the network. The steps change the folder: it is to be a fresh system. Then commands of
the installed Slipstream run there, also on two ranks. A test compares the recipe for Apptainer with
the Dockerfile.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = "--set grid.points=32 --set equation.viscosity=0.02 --set time.end=0.5"
USED = f"""
export PATH=/opt/slipstream/bin:/usr/bin:/bin OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd /root
slipstream info
slipstream run taylor-green {SMALL} --overwrite --ranks 2
slipstream report runs/taylor-green
"""


def docker_steps(text: str) -> list[str]:
    """Return the commands of the steps RUN of a Dockerfile."""
    joined = text.replace("\\\n", " ")
    return [" ".join(one.split()) for one in re.findall(r"^RUN (.*)$", joined, re.M)]


def apptainer_steps(text: str) -> list[str]:
    """Return the commands of the section %post of a recipe for Apptainer."""
    post = text.partition("%post\n")[2].partition("\n%")[0].replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in post.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def main() -> None:
    """Copy the tracked files, and run the steps and the commands in the folder."""
    root = Path(sys.argv[1]).resolve()
    source = root / "usr/local/src/slipstream"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], stdout=-1, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    script = "\n".join(
        ["set -ex", *docker_steps((ROOT / "containers/Dockerfile").read_text()), USED]
    )
    dropped = ("PYTHONPATH", "PIP_FIND_LINKS")
    variables = {name: text for name, text in os.environ.items() if name not in dropped}
    subprocess.run(
        ["chroot", root, "/bin/bash", "-c", script], env={**variables, "EXTRA": ""}, check=True
    )


if __name__ == "__main__":
    main()
