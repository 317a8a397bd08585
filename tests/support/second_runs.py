"""Two runs in one folder, started at the same time: one runs, the other is refused in one line.

    python tests/support/second_runs.py [SEED [PAIRS]]

Each begins again or resumes the run that is there. All pairs of families and ranks, or a number of
them, in an order and with delays that follow from the seed. Exits with 1 if any pair does
otherwise.
"""

import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flows import PATIENCE, RANDOM, environment

CASES = {
    "spectral": RANDOM,
    "advection": 'solver = "advection"\n[grid]\npoints = 16\n[flow]\ncourant = 0.5\n'
    "[time]\nend = 1\n",
    "lattice": 'solver = "lattice"\n[image]\nsample = "channel"\nshape = [8, 8, 8]\naxis = "x"\n'
    "[time]\nend = 20\n[convergence]\ntolerance = 1e-300\ninterval = 10\n",
}
KINDS = list(itertools.product((*CASES, "resume"), (1, 2)))


def start(folder, family, ranks, overwrite):
    """Start a run that does not end by itself."""
    begin = ["run", f"{family}.toml", "--out", "out", *["--overwrite"] * overwrite]
    command = [sys.executable, "-m", "slipstream"]
    command += ["resume", "out"] if family == "resume" else begin
    command += ["--device", "cpu", "--set", "time.end=1e9", "--set", "output.pictures=false"]
    command += ["--ranks", str(ranks)] * (ranks > 1)
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(2), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def fault_of(folder, pair, overwrite, delay):
    """Return the faults of a pair of runs; none if one runs and the other is refused."""
    wall = time.time()
    runs = [start(folder, *pair[0], overwrite)]
    time.sleep(delay)
    runs.append(start(folder, *pair[1], overwrite))
    try:
        began = time.monotonic()
        while all(run.poll() is None for run in runs):
            if time.monotonic() - began > PATIENCE:
                return "both run"
            time.sleep(0.05)
        loser = next(run for run in runs if run.poll() is not None)
        winner = runs[1 - runs.index(loser)]
        said = loser.stderr.read()
        if loser.returncode != 2 or said.count("\n") != 1:
            return f"the loser ended with {loser.returncode}: {said}"
        if "is in use by a run on " not in said:
            return f"the loser said: {said}"
        # Its own rows, not those of the last pair.
        while not any(path.stat().st_mtime > wall for path in folder.glob("out/diagnostics.csv")):
            if winner.poll() is not None or time.monotonic() - began > PATIENCE:
                return f"nobody runs; the winner said: {winner.stderr.read()}"
            time.sleep(0.05)
        winner.send_signal(signal.SIGTERM)
        said = winner.communicate(timeout=PATIENCE)[1]
        if winner.returncode != 75 or said.count("\n") != 1 or "interrupted" not in said:
            return f"the winner ended with {winner.returncode}: {said}"
        left = {path.name for path in (folder / "out").iterdir()}
        if "checkpoints" not in left or left & {"run.lock", ".replaced", ".discarded", "failed"}:
            return f"left over: {sorted(left)}"
        return ""
    finally:
        for run in runs:
            run.kill()
            run.communicate()


def main(seed=0, pairs=None):
    chance = random.Random(seed)
    chosen = list(itertools.product(KINDS, KINDS))
    chance.shuffle(chosen)
    # At first there is nothing to resume.
    first = next(pair for pair in chosen if "resume" not in {family for family, _ in pair})
    chosen = [first, *(pair for pair in chosen if pair is not first)][:pairs]
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for family, text in CASES.items():
            (folder / f"{family}.toml").write_text(text)
        for number, pair in enumerate(chosen):
            delay = chance.choice([0.0, 0.1, 0.5, 2.0])
            fault = fault_of(folder, pair, overwrite=number > 0, delay=delay)
            faults += bool(fault)
            print(*pair, f"{delay} s apart:", fault or "one runs, one is refused", flush=True)
    print(f"{faults} of {len(chosen)} pairs are wrong")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
