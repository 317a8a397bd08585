"""Runs are stopped at random, in every way, and continue in their folders until they are over.

    python tests/support/stopped_runs.py --runs 40 --seed 0

They continue by `slipstream resume`, or by the command that began them, with `--resume`.

In the end the series has no gap and no row twice, exactly the snapshots asked for exist, and the
numbers have the bits of a run that was never stopped; where the number of ranks has changed they
are the same but for rounding.
"""

import argparse
import contextlib
import csv
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray

import moments
from slipstream import cli
from slipstream.files import open_checkpoint
from slipstream.files.folder_lock import is_locked
from slipstream.files.run_folder import read_run_record
from slipstream.runs.resuming import has_state

# Of about the same time each.
_STEPS = {"spectral": 600, "advection": 2400, "lattice": 900}
# Of none of these is another a multiple: what recurs does so at different steps.
_OUTPUT = """
[output]
pictures = false
diagnostics_interval = {diagnostics}
checkpoint_interval = {checkpoint}
fields_interval = {fields}
"""
_INTERVALS = {"diagnostics": 7, "checkpoint": 60, "fields": 50}
WAYS = ("Ctrl-C", "SIGTERM", "SIGUSR1", "SIGKILL", "wall limit")
_SIGNALS = {
    "Ctrl-C": signal.SIGINT,
    "SIGTERM": signal.SIGTERM,
    "SIGUSR1": signal.SIGUSR1,
    "SIGKILL": signal.SIGKILL,
}
_MOST_STOPS = 4
# By which numbers of runs on other numbers of ranks may differ.
_ROUNDING = 1e-8


def case_of(family):
    """Return a case of many steps, made of one of `moments.CASES`."""
    head = moments.CASES[family].split("[output]")[0]
    step = {"spectral": 0.005, "advection": 0.6 / 12, "lattice": 2}[family]
    end = f"end = {'24' if family == 'lattice' else '0.6'}"
    head = head.replace(end, f"end = {_STEPS[family] * step:g}").replace(
        "step = 0.05", f"step = {step}"
    )
    return head + _OUTPUT.format(**{kind: count * step for kind, count in _INTERVALS.items()})


def start(folder, family, ranks, wall=None, by_resume=False):
    """Start a run, or continue with it where there is a state."""
    command = ["run", str(folder / f"{family}.toml"), "--resume", "--out", str(folder / "out")]
    if by_resume and has_state(folder / "out"):
        command = ["resume", str(folder / "out")]
    command += ["--device", "cpu", "--ranks", str(ranks), "--quiet"]
    command += [] if wall is None else ["--set", f"time.wall={wall}"]
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(BaseException):
        said = os.open(folder / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        sys.argv = ["slipstream", *command]
        try:
            cli.main(command)
        except SystemExit as end:
            os._exit(int(end.code or 0))
    os._exit(99)


def wait(child, seconds):
    """Return the status of a process, or None if it lives on for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def steps_of(folder):
    """Return the steps in the series; raise if one is twice or out of order."""
    path = folder / "out" / "diagnostics.csv"
    text = path.read_text() if path.exists() else ""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps)), f"steps {steps}"
    return steps


def stop(folder, family, child, way, draw):
    """Stop a run at a step drawn at random, or in its set-up; return its status."""
    status, begun = None, steps_of(folder)
    target = draw.choice([None, *[draw.randrange(_STEPS[family])] * 5])
    setup = draw.uniform(0, 2)
    began = time.monotonic()
    while status is None and way != "wall limit" and time.monotonic() - began < 300:
        if target is None:
            is_time = time.monotonic() - began > setup
        else:
            done = steps_of(folder)
            is_time = done != begun and done[-1:] >= [target]
        if is_time:
            break
        status = wait(child, 0.02)
    time.sleep(draw.uniform(0, 0.03))
    status = wait(child, 300 if way == "wall limit" else 0.001) if status is None else status
    if status is None:
        victim = child
        if way == "SIGKILL":
            with contextlib.suppress(Exception):
                # Of ranks that were started, the first: the starter alone is not the run.
                victim = read_run_record(folder / "out").segments[-1].pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim if is_locked(folder / "out") else child, _SIGNALS[way])
        status = wait(child, 300)
    assert status is not None, f"it does not end after {way}"
    deadline = time.monotonic() + 90
    while is_locked(folder / "out") and time.monotonic() < deadline:
        time.sleep(0.02)
    return status


def run_with_stops(folder, family, ranks, draw, seconds):
    """Do a run that is stopped some times; return in which ways, and how many ranks it had.

    A run that is never stopped takes `seconds`.
    """
    (folder / f"{family}.toml").write_text(case_of(family))
    ways, used = [], []
    expected = {"SIGKILL": (-9, 1, 137), "wall limit": (75, 1)}
    for _ in range(40):
        rank_count = ranks if draw.random() < 0.85 else 3 - ranks
        way = draw.choice(WAYS) if len(ways) < _MOST_STOPS else None
        wall = round(seconds * draw.uniform(0.3, 0.8), 2) if way == "wall limit" else None
        child = start(folder, family, rank_count, wall, by_resume=draw.random() < 0.5)
        status = wait(child, 600) if way is None else stop(folder, family, child, way, draw)
        said = (folder / "said").read_text()
        assert "Traceback" not in said, said
        if steps_of(folder):
            used.append(rank_count)
        if status == 0:
            return ways, set(used)
        assert way is not None, f"it ends with {status}: {said}"
        # In set-up a signal ends the command immediately; before that Python handles it.
        accepted = expected[way] if way in expected else (75, 1, 130, -_SIGNALS[way])
        assert status in accepted, f"{way}: it ends with {status}: {said}"
        ways.append(way)
    raise AssertionError("it does not come to its end")


def compare(actual, expected, is_exact):
    """Raise if output of a run differs from the output of a run that was never stopped."""
    ours, theirs = (xarray.open_zarr(one / "fields.zarr").load() for one in (actual, expected))
    rows = [(one / "diagnostics.csv").read_text() for one in (actual, expected)]
    states = [open_checkpoint(one) for one in (actual, expected)]
    np.testing.assert_array_equal(ours.time, theirs.time)
    for name in theirs.data_vars:
        _compare(ours[name].values, theirs[name].values, is_exact)
    if is_exact:
        assert rows[0] == rows[1]
        for name in states[1].arrays:
            _compare(states[0].read(name), states[1].read(name), True)
    else:
        ours, theirs = (_table(text) for text in rows)
        np.testing.assert_array_equal(ours[:, :3], theirs[:, :3])


def _table(text):
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))
    return np.array(rows[1:], float)


def _compare(actual, expected, is_exact):
    if is_exact:
        np.testing.assert_array_equal(actual, expected)
    else:
        scale = np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=_ROUNDING * scale)


def main(arguments=None):
    """Stop runs, and report each that is not as it should be; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 1, 1, 2])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    moments.warm_up()
    draw, failures, stops = random.Random(options.seed), 0, dict.fromkeys(WAYS, 0)
    exact = 0
    kinds = [(family, ranks) for ranks in options.ranks for family in moments.CASES]
    with tempfile.TemporaryDirectory(dir=moments.QUICK) as place:
        whole, seconds = {}, {}
        for kind in dict.fromkeys(kinds):
            whole[kind] = Path(place) / f"{kind[0]} {kind[1]}"
            whole[kind].mkdir()
            (whole[kind] / f"{kind[0]}.toml").write_text(case_of(kind[0]))
            for _ in range(2):  # the second needs to compile nothing
                began = time.monotonic()
                shutil.rmtree(whole[kind] / "out", ignore_errors=True)
                status = wait(start(whole[kind], *kind), 600)
                assert status == 0, (whole[kind] / "said").read_text()
                seconds[kind] = time.monotonic() - began
        for number in range(options.runs):
            family, ranks = kind = kinds[number % len(kinds)]
            with tempfile.TemporaryDirectory(dir=moments.QUICK) as folder:
                fault, ways, used = "", [], set()
                try:
                    ways, used = run_with_stops(Path(folder), *kind, draw, seconds[kind])
                    is_exact = used == {ranks}
                    compare(Path(folder) / "out", whole[kind] / "out", is_exact)
                    exact += is_exact
                except AssertionError as error:
                    fault = " ".join(str(error).split())[:600]
            for way in ways:
                stops[way] += 1
            failures += bool(fault)
            said = fault or "as one run"
            print(f"{number}: {family}, {ranks} ranks, {', '.join(ways)}: {said}", flush=True)
    print(
        f"{options.runs - failures} of {options.runs} runs, stopped {sum(stops.values())} times "
        f"({', '.join(f'{count} by {way}' for way, count in stops.items())}), have the output of "
        f"one that was never stopped; {exact} bit by bit, the others to rounding"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
