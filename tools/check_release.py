"""Build the wheel and the source distribution, and use each in clean environments.

    python tools/check_release.py --python python3.11 --python python3.12
    python tools/check_release.py --python "chroot /srv/debian python3" --no-compiler

Needs `pip install build` and the network, for the package's dependencies. Each Python is a command;
it makes a virtual environment outside of the checkout. With ``--no-compiler`` no compiler is on the
path: the commands that need none work, and a run prints in one line the package to install.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = "--set grid.points=32 --set equation.viscosity=0.02 --set time.end=0.5"
# Distributions under the GPL; the exception of GCC's runtime libraries allows any licence.
LICENCES = """
import re
from importlib import metadata
exception = r"GPL-3\\.0-or-later WITH GCC-exception-3\\.1"
for one in metadata.distributions():
    of = one.metadata
    said = [of.get("License-Expression") or "", (of.get("License") or "").partition("\\n")[0]]
    said += [c for c in of.get_all("Classifier") or [] if c.startswith("License ::")]
    if re.search("GPL|General Public", re.sub(exception, "", "; ".join(said))):
        raise SystemExit(f"{of['Name']}: {'; '.join(said)}")
"""


class Clean:
    """An environment of one Python in an empty folder, and the commands that run there."""

    def __init__(self, python: list[str], folder: Path, compiler: bool) -> None:
        self.folder = folder
        self._around = python[:-1]
        root = python[1] if python[0] == "chroot" else "/"
        path = "$PWD/clean/bin" + (":/usr/local/bin:/usr/bin:/bin" if compiler else "")
        self._before = (
            f"cd /{folder.relative_to(Path(root).resolve())} && export PATH={path}"
            " && unset PYTHONPATH CXX && exec "
        )
        subprocess.run(
            [*self._around, python[-1], "-m", "venv", f"/{folder.relative_to(root)}/clean"],
            check=True,
        )

    def run(self, command: str, *, fails: bool = False) -> str:
        """Return the output of a command; refuse an unexpected status."""
        shell = [*self._around, "/bin/bash", "-c", self._before + command]
        done = subprocess.run(shell, capture_output=True, text=True)
        if bool(done.returncode) != fails:
            raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def has(self, package: Path) -> None:
        """Install a package, and refuse dependencies under the GPL."""
        shutil.copy(package, self.folder)
        self.run(f"python -m pip install --quiet ./{package.name}")
        (self.folder / "licences.py").write_text(LICENCES, encoding="utf-8")
        self.run("python licences.py")


def use_package(clean: Clean, compiler: bool) -> str:
    """Use an installed package as a newcomer does, and return a line about it."""
    version = clean.run("python --version").strip()
    clean.run("slipstream info")
    cases = len(clean.run("slipstream cases").splitlines())
    run = f"slipstream run taylor-green {SMALL}"
    clean.run("slipstream new vortex")
    if not compiler:
        said = clean.run(run, fails=True).strip().splitlines()[-1]
        if "C++ compiler" not in said:
            raise SystemExit(f"a run without a compiler says: {said}")
        return f"{version} without a compiler: {said}"
    clean.run(run)
    clean.run("slipstream report runs/taylor-green --out report.html")
    page = (clean.folder / "report.html").read_text(encoding="utf-8")
    if "<svg" not in page and "<img" not in page:
        raise SystemExit("the report has no pictures")
    clean.run("slipstream validate fft")
    return f"{version}: {cases} lines of cases, a run, its report, validate fft"


def main() -> None:
    """Build, and check with every Python."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", required=True, help="a command, repeatable")
    parser.add_argument("--no-compiler", action="store_true")
    parser.add_argument("--sdist", action="store_true", help="the source distribution, no wheel")
    parser.add_argument("--packages", type=Path, help="where they are built already")
    arguments = parser.parse_args()
    compiler = not arguments.no_compiler
    with tempfile.TemporaryDirectory(prefix="slipstream-release-") as made:
        packages = arguments.packages or Path(made)
        if not arguments.packages:
            build = [sys.executable, "-m", "build", "--outdir", str(packages), str(ROOT)]
            subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (package,) = packages.glob("*.tar.gz" if arguments.sdist else "*.whl")
        for python in map(shlex.split, arguments.python):
            temporary = Path(python[1] if python[0] == "chroot" else "/", "tmp").resolve()
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                clean = Clean(python, Path(folder), compiler)
                clean.has(package)
                print(f"{package.name}, {use_package(clean, compiler)}", flush=True)


if __name__ == "__main__":
    main()
