"""Time peers and Slipstream in turn on one machine, and write a record for each peer.

    python bench/peers/compare.py fftw scipy        # or: exponax, ...; --list
    python bench/peers/compare.py all               # all of CPUs: five minutes on two idle cores
    python bench/peers/compare.py exponax --python /path/to/its/environment/bin/python

Run it by a Python that has Slipstream. Without ``--python`` a peer is installed into a separate
environment, build/peers/NAME, in the versions listed below. Programs stay alive and take turns, so
that other load of the machine affects all alike. Peers with the same work are measured together, so
that Slipstream has one time for it. A row has the least time of each, and the median: processor
time on one core, wall time on several or on a GPU. The records go into bench/results/peers, from
which the site's page of comparisons is made.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.processes import find_mpiexec, launch_environment
from slipstream.lattice import make_sample
from slipstream.runs.run_recorder import commit_name

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "peers"
ROCK = {"porosity": 0.3, "radius": 8, "seed": 1}
# A straight duct in solid, DUCT voxels wide and twice as long: its permeability is known.
DUCT = 12
EXACT_DUCT = 0.0351443 * DUCT**2 * (DUCT / (DUCT + 4)) ** 2


@dataclass(frozen=True)
class Peer:
    """A program: its script, its packages, its work, and how it differs from Slipstream."""

    script: str
    requirements: tuple[str, ...]
    work: str
    subject: str
    rows: tuple[dict[str, Any], ...]
    differs: str = ""
    rounds: int | None = None


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
_STEP_SIZES = (48, 96)
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
        "mpi4py-fft uses FFTW of Debian 12; both use the wheel of Open MPI.",
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
        _rows((1,), n=_STEP_SIZES),
        "exponax uses ETDRK4, Slipstream RK4 with an integrating factor.",
    ),
    "fluidsim": Peer(
        "fluidsim_step.py",
        ("fluidsim==26.10.0", "fluidfft==0.4.5", "pyfftw==0.15.1"),
        "step",
        _STEP,
        _rows((1,), n=_STEP_SIZES),
        "Both use RK4. FluidSim transforms by FFTW through fluidfft, with its default plans.",
    ),
    "dedalus": Peer(
        "dedalus_step.py",
        ("dedalus==3.0.5",),
        "step",
        _STEP,
        _rows((1,), n=_STEP_SIZES),
        "Dedalus uses RK443: four stages, third order. It solves a linear system for each mode,"
        " the price of its generality. n is the number of points at which products are formed, 3/2"
        " times the number of modes.",
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
        ({"cores": 1, "n": 32}, {"cores": 1, "n": 24, "sample": "duct"}),
        "poromics stops when the velocity changes by less than 1e-3 between two checks, Slipstream"
        " when the estimated distance from the steady flow is below 1e-3. poromics computes in"
        " single precision and prescribes densities at both ends, where its populations are set to"
        " an equilibrium at rest: in its results the velocity of the first and the last plane is"
        " zero, and much of the drop in pressure is lost there. So its k is too small, by a factor"
        " of four in a duct of 12 x 12 x 24 voxels, whose permeability is known. If the velocity at"
        " the ends is copied from the neighbouring plane, one line of its source, it finds 0.166 in"
        " the sandstone, as Slipstream does (0.162). It also redefines its kernels in each call, so"
        " its time includes their compilation. The ratio does not compare equal results.",
        rounds=1,
    ),
}


def main() -> None:
    """Measure one peer, or list all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", metavar="PEER")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--python", help="the command that starts the peer's Python")
    parser.add_argument("--mpiexec", help="the command that starts it on two ranks")
    parser.add_argument("--n", type=int, nargs="*", help="only rows of these sizes")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each program")
    parser.add_argument("--out", type=Path, help="folder of records (bench/results/peers)")
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - {"all", *PEERS}:
        parser.error(
            f"no peer is named {', '.join(sorted(unknown))}; there are: all, {', '.join(PEERS)}"
        )
    if arguments.list or not arguments.peers:
        print(*(f"{name:12} {' '.join(one.requirements)}" for name, one in PEERS.items()), sep="\n")
        return
    chosen = [
        name
        for name, peer in PEERS.items()
        if name in arguments.peers or ("all" in arguments.peers and "device" not in peer.rows[0])
    ]
    mpiexec = shlex.split(arguments.mpiexec) if arguments.mpiexec else [find_mpiexec(), "-n", "2"]
    pythons = {
        name: shlex.split(arguments.python) if arguments.python else make_environment(name)
        for name in chosen
    }
    load = os.getloadavg()[0]  # before it makes its own
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for row, names in _group_by_work(chosen):
        if arguments.n and row["n"] not in arguments.n:
            continue
        results = measure_row(names, row, pythons, mpiexec, arguments.rounds)
        for name, result in results.items():
            rows[name].append(result)
    folder = arguments.out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        record = {**describe_peer(name, rows[name]), "load": load, "rows": rows[name]}
        (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"record: {folder / name}.json")


def _group_by_work(names: list[str]) -> list[tuple[dict[str, Any], list[str]]]:
    """Return each row to measure, with the peers that have it."""
    shared: list[tuple[str, dict[str, Any], list[str]]] = []
    for name in names:
        for row in PEERS[name].rows:
            for work, other, together in shared:
                if work == PEERS[name].work and other == row:
                    together.append(name)
                    break
            else:
                shared.append((PEERS[name].work, row, [name]))
    return [(row, together) for _, row, together in shared]


def make_environment(name: str) -> list[str]:
    """Return the Python of a peer's own environment, which is made if it is not there."""
    folder = HERE.parents[1] / "build" / "peers" / name
    python = folder / "bin" / "python"
    if not python.exists():
        # Dedalus compiles with MPI's headers, which mpicc finds.
        compiler = {"CC": "mpicc"} if shutil.which("mpicc") else {}
        install = [python, "-m", "pip", "install", "--quiet", *PEERS[name].requirements]
        try:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run(install, check=True, env={**compiler, **os.environ})
        except subprocess.CalledProcessError:
            shutil.rmtree(folder)  # the next call would take it for a complete environment
            sys.exit(f"{name} could not be installed: see what it needs in {HERE / 'README.md'}")
    return [str(python)]


def measure_row(
    names: list[str],
    row: dict[str, Any],
    pythons: dict[str, list[str]],
    mpiexec: list[str],
    rounds: int,
) -> dict[str, dict[str, Any]]:
    """Return one row of each peer's record: least and median times, and the programs' answers."""
    several, work = row.get("ranks", 1) > 1, PEERS[names[0]].work
    rounds = min([rounds, *(PEERS[name].rounds or rounds for name in names)])
    theirs = [f"--n={row['n']}"]
    ours = [f"--work={work}", *theirs, f"--device={row.get('device', 'cpu')}"]
    with tempfile.NamedTemporaryFile(suffix=".npy") as image:
        if work in ("update", "permeability"):
            np.save(image, _make_image(row))
            image.flush()
            theirs = [f"--image={image.name}"]
            ours[1:2] = theirs
        start = mpiexec if several else []
        our_start = [find_mpiexec(), "-n", "2"] if several else []
        commands = [
            *([*start, *pythons[one], str(HERE / PEERS[one].script), *theirs] for one in names),
            [*our_start, sys.executable, str(HERE / "slipstream_same.py"), *ours],
        ]
        # Ranks that wait keep their cores busy: programs of several ranks run one after the other.
        turns = _time_runs if several else _time_served
        said, times = turns(commands, row["cores"], rounds)
    exact = {"exact permeability": EXACT_DUCT} if row.get("sample") == "duct" else {}
    median = [sorted(one)[len(one) // 2] for one in times]
    results = {}
    for name, facts_of_peer, peer_times, middle in zip(names, said, times, median, strict=False):
        results[name] = {
            **row,
            **exact,
            "peer seconds": min(peer_times),
            "slipstream seconds": min(times[-1]),
            "medians": [middle, median[-1]],
            "said": [facts_of_peer, said[-1]],
        }
        print(
            f"{row}: {name} {min(peer_times):.4g} s, Slipstream {min(times[-1]):.4g} s", flush=True
        )
    return results


def _make_image(row: dict[str, Any]) -> np.ndarray:
    """Return the voxels of a row: 1 in pores."""
    if row.get("sample") != "duct":
        rock = make_sample("sandstone", (row["n"],) * 3, **ROCK)  # type: ignore[arg-type]
        return np.asarray(rock).astype(np.uint8)
    duct = np.zeros((row["n"], DUCT + 4, DUCT + 4), np.uint8)
    duct[:, 2:-2, 2:-2] = 1
    return duct


def _time_served(
    commands: list[list[str]], cores: int, rounds: int
) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """Start all programs, which take turns to do their work once."""
    with contextlib.ExitStack() as all_of_them:
        programs = [all_of_them.enter_context(serve_program(one, cores)) for one in commands]
        said = [read_answer(one) for one in programs]
        times: list[list[float]] = [[] for _ in commands]
        for _ in range(rounds):
            for program, program_times, answers in zip(programs, times, said, strict=True):
                print(file=program.stdin, flush=True)
                answers.update(read_answer(program))
                seconds, processor = answers.pop("seconds"), answers.pop("processor")
                # Other programs on a core take time, but hardly any of this processor time.
                program_times.append(processor if cores == 1 else seconds)
        return said, times


def _time_runs(
    commands: list[list[str]], cores: int, rounds: int
) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """Run one program after the other, all three times, with many repetitions of short work."""
    said: list[dict[str, Any]] = [{} for _ in commands]
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(3):
        for command, program_times, answers in zip(commands, times, said, strict=True):
            with start_program([*command, f"--repetitions={10 * rounds}"], cores) as program:
                answers.update(read_answer(program))
            answers.pop("seconds")
            program_times += answers.pop("times")
    return said, times


def read_answer(program: Any) -> dict[str, Any]:
    """Return the next line of JSON that a program prints, whatever else it prints before."""
    for line in program.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError(f"{program.args}: has ended")


@contextlib.contextmanager
def serve_program(command: list[str], cores: int) -> Iterator[Any]:
    """Start a program on some cores, which answers lines with times."""
    with start_program([*command, "--served"], cores) as program:
        yield program
        program.stdin.close()


@contextlib.contextmanager
def start_program(command: list[str], cores: int) -> Iterator[Any]:
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


def describe_peer(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the texts of a record besides its rows."""
    peer = PEERS[name]
    processors = [
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
        "commit": commit_name(),
        "machine": processors[0].partition(":")[2].strip() if processors else platform.processor(),
        "device": ", ".join(sorted(devices)),
        "cores": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    main()
