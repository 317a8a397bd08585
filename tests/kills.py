"""Runs are killed at moments drawn from a seed, and go on: to the bits of a run that was not.

python tests/kills.py --kills 150 --ranks 1 1 1 2 --seed 0
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import moments
from flows import environment
from slipstream.mpi_launch import find_mpiexec

# A kill takes nothing from memory that files are in, so the device need not be waited for.
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None


def start(ranks, family, folder, report, **options):
    """Do a run on so many ranks; return its status."""
    if ranks == 1:
        return moments.forked(moments.run_to, family, folder, report, **options)
    given = (f"--{key}={value}" for key, value in options.items())
    script = [sys.executable, moments.__file__, family, str(folder), str(report), *given]
    return subprocess.run(
        [find_mpiexec(), "-n", str(ranks), *script],
        env={**environment(ranks), "OMP_NUM_THREADS": "1", "SLIPSTREAM_TIMEOUT": "30"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=100,
    ).returncode


def lost(family, ranks, place, whole, draw):
    """Kill a run and go on with it; return what is wrong, the moment, and the steps lost."""
    rank = draw.randrange(ranks)
    last = draw.randint(1, moments.reported(whole, rank)["moments"])
    moment = f"{family}, {ranks} ranks, moment {last} of rank {rank}"
    killed, onward = place / "killed", place / "onward"
    if start(ranks, family, killed, place / "first", last=last, rank=rank) == 0:
        return "it was not killed", moment, 0
    told = moments.reported(place / "first")
    fault, state = moments.what_is_left(killed, place, told)
    if fault:
        return fault, moment, 0
    restart = {} if state is None else {"restart": killed}
    if start(ranks, family, onward, place / "second", **restart):
        return "it does not go on", moment, 0
    for one in range(ranks):
        if (
            moments.reported(place / "second", one)["digest"]
            != moments.reported(whole, one)["digest"]
        ):
            return "its numbers are others", moment, 0
    fault, gone = moments.steps_lost(family, told, state)
    return fault, moment, gone


def main(arguments=None):
    """Kill runs, and tell of each that does not go on as it should; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 1, 1, 2])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tell", action="store_true", help="tell of each, and of the steps lost")
    given = parser.parse_args(arguments)
    moments.warm_up()
    draw, failures, most = random.Random(given.seed), 0, 0
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        kinds = [(family, ranks) for ranks in given.ranks for family in moments.CASES]
        for family, ranks in dict.fromkeys(kinds):
            whole = Path(folder) / f"{family} {ranks}"
            whole.mkdir()  # so that its run has as many folders to make as the others
            if start(ranks, family, whole / "run", f"{whole}"):
                raise SystemExit(f"{family} does not run on {ranks} ranks")
        for number in range(given.kills):
            family, ranks = kinds[number % len(kinds)]
            with tempfile.TemporaryDirectory(dir=QUICK) as place:
                whole = Path(folder) / f"{family} {ranks}"
                fault, moment, gone = lost(family, ranks, Path(place), whole, draw)
            most = max(most, gone)
            failures += bool(fault)
            if fault or given.tell:
                print(f"{moment}: {fault or gone}", flush=True)
    print(
        f"{given.kills} kills: {given.kills - failures} went on to the same bits; "
        f"{most} steps lost at most, with states every 4 (lattice: 8)"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
