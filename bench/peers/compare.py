"""Time a peer and Slipstream in turn on one machine, and write a record.

    python bench/peers/compare.py fftw              # or: scipy, exponax, ...; --list for all
    python bench/peers/compare.py exponax --python /path/to/its/environment/bin/python

Run it by a Python that has Slipstream. Without ``--python`` the peer is installed into an
separate environment, build/peers/NAME, in the versions listed below. Both programs stay alive
and take turns, so that what else the machine does falls on both; a row has the least time of each.
The record goes into bench/results/peers, from which the site's page of comparisons is made.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.lattice import make_sample
from slipstream.mpi_launch import find_mpiexec, launch_environment

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "peers"
ROCK = {"porosity": 0.3, "radius": 8, "seed": 1}


@dataclass(frozen=True)
class Peer:
    """A program: its script, its packages, its work, and how it differs from Slipstream."""

    script: str
    requirements: tuple[str, ...]
    work: str
    subject: str
    rows: tuple[dict[str, Any], ...]
    differs: str = ""


def _rows(cores: tuple[int, ...], **options: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    ((name, values),) = options.items()
    return tuple({"cores": one, name: value} for value in values for one in cores)


_PAIR = "A forward and a backward real transform in double precision"
_STEP = (
    "A step of the Navier-Stokes equations in three dimensions: four evaluations of the nonlinear"
    " term, double precision, 2/3 rule"
)
_ROCK = "a sandstone of n³ voxels with 30 % pores"
_SIZES = (64, 128, 192)
PEERS = {
    "fftw": Peer(
        "fftw_pair.py",
        ("pyfftw==0.15.1",),
        "pair",
        _PAIR,
        _rows((1,), n=_SIZES),
        "FFTW's plans are measured (`FFTW_MEASURE`), Slipstream's are tuned (`tune=\"quick\"`).",
    ),
    "scipy": Peer(
        "scipy_pair.py",
        ("scipy==1.17.1",),
        "pair",
        _PAIR,
        _rows((1,), n=_SIZES),
        "SciPy makes a new array in each call.",
    ),
    "mpi4py-fft": Peer(
        "mpi4py_fft_pair.py",
        ("mpi4py==4.1.2", "mpi4py-fft==2.0.6"),
        "pair",
        f"{_PAIR}, in slabs on two ranks",
        ({"cores": 2, "ranks": 2, "n": 64}, {"cores": 2, "ranks": 2, "n": 128}),
        "mpi4py-fft uses FFTW and Open MPI of Debian 12, Slipstream the Open MPI wheel.",
    ),
    "cufft": Peer(
        "cufft_pair.py",
        ("cupy-cuda13x",),
        "pair",
        f"{_PAIR}, on one GPU",
        ({"cores": 16, "n": 256, "device": "cuda"}, {"cores": 16, "n": 512, "device": "cuda"}),
        "Both wait for the GPU after twenty pairs.",
    ),
    "exponax": Peer(
        "exponax_step.py",
        ("exponax==0.2.0",),
        "step",
        _STEP,
        _rows((1,), n=(32, 64, 96)),
        "exponax uses ETDRK4, Slipstream RK4 with an integrating factor.",
    ),
    "fluidsim": Peer(
        "fluidsim_step.py",
        ("fluidsim==26.10.0", "fluidfft==0.4.5", "pyfftw==0.15.1"),
        "step",
        _STEP,
        _rows((1,), n=(32, 64, 96)),
        "Both use RK4. FluidSim transforms by FFTW through fluidfft.",
    ),
    "dedalus": Peer(
        "dedalus_step.py",
        ("dedalus==3.0.5",),
        "step",
        _STEP,
        _rows((1,), n=(24, 48, 72)),
        "Dedalus uses RK443: four stages, third order. It solves a linear system for each mode,"
        " the price of its generality.",
    ),
    "lbmpy": Peer(
        "lbmpy_update.py",
        ("lbmpy==2.0", "islpy"),
        "update",
        f"An update of all pores of {_ROCK}: D3Q19, two relaxation times, double precision",
        _rows((1,), n=(64, 128)),
        "lbmpy's sparse kernel reads one array and writes another; Slipstream's works in place.",
    ),
    "poromics": Peer(
        "poromics_permeability.py",
        ("poromics==0.0.8",),
        "permeability",
        f"The permeability of {_ROCK}, from the image to the number, by each program's default"
        " tolerance of 1e-3",
        _rows((1,), n=(32, 48)),
        "poromics stops when the velocity changes by less than 1e-3 between two checks, Slipstream"
        " when the estimated distance from the steady flow is below 1e-3. poromics prescribes"
        " densities at both ends and computes in single precision; Slipstream's flow is periodic."
        " On samples as small as these, k differs for this.",
    ),
}


def main() -> None:
    """Measure one peer, or list all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", nargs="?", choices=PEERS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--python", help="the command that starts the peer's Python")
    parser.add_argument("--mpiexec", help="the command that starts it on two ranks")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each program")
    parser.add_argument("--out", type=Path, help="the record; by default in bench/results/peers")
    given = parser.parse_args()
    if given.list or not given.peer:
        print(*(f"{name:12} {' '.join(one.requirements)}" for name, one in PEERS.items()), sep="\n")
        return
    peer = PEERS[given.peer]
    python = shlex.split(given.python) if given.python else environment(given.peer)
    mpiexec = shlex.split(given.mpiexec) if given.mpiexec else [find_mpiexec(), "-n", "2"]
    rows = [measured(peer, row, python, mpiexec, given.rounds) for row in peer.rows]
    target = given.out or RESULTS / f"{given.peer}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**facts(given.peer, rows), "rows": rows}, indent=1) + "\n")
    print(f"record: {target}")


def environment(name: str) -> list[str]:
    """Return the Python of a peer's own environment, which is made if it is not there."""
    folder = HERE.parents[1] / "build" / "peers" / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *PEERS[name].requirements], check=True
        )
    return [str(python)]


def measured(
    peer: Peer, row: dict[str, Any], python: list[str], mpiexec: list[str], rounds: int
) -> dict[str, Any]:
    """Return one row of a record: the least time of the peer and of Slipstream, and their facts."""
    several = row.get("ranks", 1) > 1
    theirs = [f"--n={row['n']}"]
    ours = [f"--work={peer.work}", *theirs, f"--device={row.get('device', 'cpu')}"]
    with tempfile.NamedTemporaryFile(suffix=".npy") as image:
        if peer.work in ("update", "permeability"):
            rock = make_sample("sandstone", (row["n"],) * 3, **ROCK)
            np.save(image, np.asarray(rock).astype(np.uint8))
            image.flush()
            theirs = [f"--image={image.name}"]
            ours[1:2] = theirs
        commands = [
            [*(mpiexec if several else []), *python, str(HERE / peer.script), *theirs],
            [
                *([find_mpiexec(), "-n", "2"] if several else []),
                sys.executable,
                str(HERE / "slipstream_same.py"),
                *ours,
            ],
        ]
        # Ranks that wait keep their cores busy: programs of several ranks run one after the other.
        turns = _whole_runs if several else _alive
        said, times = turns(commands, row["cores"], rounds)
    found = {**row, "peer seconds": min(times[0]), "slipstream seconds": min(times[1])}
    found["spread"] = [sorted(one)[len(one) // 2] / min(one) - 1 for one in times]
    found["said"] = said
    print(
        f"{row}: {said[0]['peer']} {min(times[0]):.4g} s, Slipstream {min(times[1]):.4g} s",
        flush=True,
    )
    return found


def _alive(
    commands: list[list[str]], cores: int, rounds: int
) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """Start all programs, and let each in turn do its work once."""
    with contextlib.ExitStack() as all_of_them:
        programs = [all_of_them.enter_context(served(one, cores)) for one in commands]
        said = [answer_of(one) for one in programs]
        times: list[list[float]] = [[] for _ in commands]
        for _ in range(rounds):
            for program, mine, answers in zip(programs, times, said, strict=True):
                print(file=program.stdin, flush=True)
                answers.update(answer_of(program))
                mine.append(answers.pop("seconds"))
        return said, times


def _whole_runs(
    commands: list[list[str]], cores: int, rounds: int
) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """Run one program after the other, all three times."""
    said: list[dict[str, Any]] = [{} for _ in commands]
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(3):
        for command, mine, answers in zip(commands, times, said, strict=True):
            with started([*command, f"--repetitions={rounds}"], cores) as program:
                answers.update(answer_of(program))
            answers.pop("seconds")
            mine += answers.pop("times")
    return said, times


def answer_of(program: Any) -> dict[str, Any]:
    """Return the next line of JSON that a program prints, whatever else it prints before."""
    for line in program.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError(f"{program.args}: has ended")


@contextlib.contextmanager
def served(command: list[str], cores: int) -> Iterator[Any]:
    """Start a program on some cores, which answers lines with times."""
    with started([*command, "--served"], cores) as program:
        yield program
        program.stdin.close()


@contextlib.contextmanager
def started(command: list[str], cores: int) -> Iterator[Any]:
    """Start a program on some cores."""
    allowed = sorted(os.sched_getaffinity(0))[-cores:]
    several = "-n" in command
    variables = {**os.environ, "OMP_NUM_THREADS": str(1 if several else cores)}
    if several:
        variables |= launch_environment(2, variables)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    ) as program:
        yield program


def facts(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a record says besides its rows."""
    peer = PEERS[name]
    git = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    found = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    devices = {one["said"][0].get("device", "") for one in rows} - {""}
    return {
        "benchmark": "peers",
        "peer": rows[0]["said"][0]["peer"],
        "version": rows[0]["said"][0]["version"],
        "slipstream": rows[0]["said"][1]["version"],
        "requirements": list(peer.requirements),
        "script": peer.script,
        "work": peer.subject,
        "differs": peer.differs,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip()[:12],
        "machine": found[0].partition(":")[2].strip() if found else platform.processor(),
        "device": ", ".join(sorted(devices)),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
