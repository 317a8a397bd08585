"""Runs are killed at moments drawn from a seed, and continue: to the bits of a run that was not.

python tests/support/kills.py --resume --kills 150 --ranks 1 1 1 2 --seed 0
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import moments
from flows import PATIENCE, environment
from slipstream.engine.processes import find_mpiexec
from small_shards import set_if_asked_for


def start(ranks, family, folder, report, **options):
    """Do a run on this number of ranks; return its status."""
    if ranks == 1:
        return moments.forked(moments.run_to, family, folder, report, **options)
    given = (f"--{key}={value}" for key, value in options.items())
    script = [sys.executable, moments.__file__, family, str(folder), str(report), *given]
    return subprocess.run(
        [find_mpiexec(), "-n", str(ranks), *script],
        env={**environment(ranks), "OMP_NUM_THREADS": "1", "SLIPSTREAM_TIMEOUT": "300"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE,
    ).returncode


def lost(family, ranks, scratch, whole, draw):
    """Kill a run and resume it; return the faults, the moment, and the steps lost."""
    rank = draw.randrange(ranks)
    last = draw.randint(1, moments.reported(whole, rank)["moments"])
    moment = f"{family}, {ranks} ranks, moment {last} of rank {rank}"
    killed, onward = scratch / "killed", scratch / "onward"
    if start(ranks, family, killed, scratch / "first", last=last, rank=rank) == 0:
        return "it was not killed", moment, 0
    report = moments.reported(scratch / "first")
    fault, state = moments.what_is_left(killed, scratch, report)
    if fault:
        return fault, moment, 0
    restart = {} if state is None else {"restart": killed}
    if start(ranks, family, onward, scratch / "second", **restart):
        return "it does not continue", moment, 0
    for one in range(ranks):
        if (
            moments.reported(scratch / "second", one)["digest"]
            != moments.reported(whole, one)["digest"]
        ):
            return "its numbers are others", moment, 0
    fault, gone = moments.steps_lost(family, report, state)
    return fault, moment, gone


def spoiled(family, ranks, scratch, whole, draw):
    """Kill a run and each segment that resumes it; return the faults at its end.

    Nothing that is there may be lost, or there twice: the files are those of the whole run.
    """
    run, ways = scratch / "run", []
    steps = 0
    for number in range(4):
        rank = draw.randrange(ranks)
        most = moments.reported(whole, rank)["moments"]
        # At the beginning of a segment output later than its state is omitted.
        last = draw.randint(1, most // 4 if number else most)
        ways.append(f"{last} of rank {rank}")
        options = {"last": last, "rank": rank, "resumes": 1}
        ended = start(ranks, family, run, scratch / "report", **options) == 0
        fault, state = moments.what_is_left(run, scratch, {"state": steps or None})
        steps = max(steps, state or 0)
        if fault or ended:
            break
    moment = f"{family}, {ranks} ranks, moments {', '.join(ways)}"
    if not fault and start(ranks, family, run, scratch / "report", resumes=1):
        fault = "it does not continue"
    return fault or moments.differs(run, Path(f"{whole}") / "run"), moment, 0


def replaced(family, ranks, scratch, whole, draw):
    """Kill a run that replaces the output of another; return the faults, and the moment.

    What continues is the other, as it was, or once the new one has left a state that one.
    """
    run, other = scratch / "run", Path(f"{whole} other") / "run"
    shutil.copytree(other, run)
    rank = draw.randrange(ranks)
    last = draw.randint(1, moments.reported(f"{whole} other", rank)["moments"])
    moment = f"{family}, {ranks} ranks, moment {last} of rank {rank}"
    if start(ranks, family, run, scratch / "first", last=last, rank=rank) == 0:
        return "it was not killed", moment, 0
    report = moments.reported(scratch / "first")
    if start(ranks, family, run, scratch / "second", resumes=1):
        return "it does not continue", moment, 0
    if (run / ".replaced").exists():
        return "the replaced output is still there", moment, 0
    faults = [moments.differs(run, one) for one in (Path(f"{whole}") / "run", other)]
    if report.get("state") is not None:
        return faults[0], moment, 0
    return faults[0] and faults[1], moment, 0


def main(arguments=None):
    """Kill runs, and report each that does not continue as it should; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 1, 1, 2])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--resume", action="store_true", help="continue in the same folder, with more kills"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="kill runs that replace the output of others"
    )
    parser.add_argument("--tell", action="store_true", help="tell of each, and of the steps lost")
    parser.add_argument("--shards", action="store_true", help="let all arrays have shards")
    options = parser.parse_args(arguments)
    set_if_asked_for(options.shards)
    moments.warm_up()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=moments.QUICK) as folder:
        kinds = [(family, ranks) for ranks in options.ranks for family in moments.CASES]
        for family, ranks in dict.fromkeys(kinds):
            whole = Path(folder) / f"{family} {ranks}"
            whole.mkdir()  # so that its run has as many folders to make as the others
            if start(ranks, family, whole / "run", f"{whole}"):
                raise SystemExit(f"{family} does not run on {ranks} ranks")
            if options.overwrite:
                shutil.copytree(whole, f"{whole} other")
                other = Path(f"{whole} other")
                # Counted as it replaces the old output.
                if start(ranks, family, other / "run", f"{other}", other=1):
                    raise SystemExit(f"another {family} does not run on {ranks} ranks")

        def trials():
            for number in range(options.kills):
                family, ranks = kinds[number % len(kinds)]
                with tempfile.TemporaryDirectory(dir=moments.QUICK) as place:
                    whole = Path(folder) / f"{family} {ranks}"
                    kill = replaced if options.overwrite else spoiled if options.resume else lost
                    yield kill(family, ranks, Path(place), whole, draw)

        return moments.summed_up(trials(), "kills", options.tell)


if __name__ == "__main__":
    sys.exit(main())
