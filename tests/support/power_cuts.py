"""Cuts the power of a run's device, at moments drawn from a seed, and resumes the run.

    python tests/support/power_cuts.py --cuts 20 --seed 0

The device is a file with an ext4 file system, mounted so that nothing reaches it by itself. A copy
of that file, made while the run is under way, is what a power cut leaves: it is mounted in turn,
and its journal replayed. It needs the right to mount (root).
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import moments
from small_shards import set_if_asked_for

# Hours between commits, and no guesses of the file system about what should be flushed.
_OPTIONS = "loop,data=ordered,commit=3600,noauto_da_alloc"
MEGABYTES = 48


class CannotMount(Exception):
    """This machine does not let us mount anything."""


@contextlib.contextmanager
def mounted(image):
    with tempfile.TemporaryDirectory() as mount_point:
        done = subprocess.run(["mount", "-o", _OPTIONS, image, mount_point], capture_output=True)
        if done.returncode:
            raise CannotMount(done.stderr.decode().strip())
        try:
            yield Path(mount_point)
        finally:
            subprocess.run(["umount", mount_point], check=True)


def new_image(path, megabytes=MEGABYTES):
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True, capture_output=True)
    except OSError as error:
        raise CannotMount(str(error)) from error


def cut_at(last, family, scratch):
    """Cut the power of a run; return the image of its device."""
    image, copy = scratch / "image", scratch / "copy"
    new_image(image)

    def cut():
        shutil.copyfile(image, copy)
        moments.kill()

    with mounted(image) as device:
        arguments = family, device / "run", scratch / "first"
        moments.forked(moments.run_to, *arguments, last=last, act=cut)
    image.unlink()
    return copy


def lost(family, scratch, whole, draw):
    """Cut a run's power, and resume it; return the faults, the moment, and steps lost."""
    last = draw.randint(1, moments.reported(whole)["moments"])
    moment = f"{family}, moment {last}"
    copy = cut_at(last, family, scratch)
    report = moments.reported(scratch / "first")
    with mounted(copy) as device:
        run = device / "run"
        run.mkdir(exist_ok=True)
        fault, state = moments.what_is_left(run, scratch, report, power_cut=True)
        if fault:
            return fault, moment, 0
        if moments.forked(moments.run_to, family, run, scratch / "second", resumes=True):
            return "it does not continue", moment, 0
        if fault := moments.differs(run, whole.with_name(f"{family} run")):
            return fault, moment, 0
    fault, gone = moments.steps_lost(family, report, state)
    return fault, moment, gone


def main(arguments=None):
    """Cut the power of runs, and report each that loses too much; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--without-flushing", action="store_true", help="do as if nothing were ever flushed"
    )
    parser.add_argument("--shards", action="store_true", help="let all arrays have shards")
    options = parser.parse_args(arguments)
    set_if_asked_for(options.shards)
    if options.without_flushing:
        os.fsync = lambda descriptor: None
    moments.warm_up()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for family in moments.CASES:
            whole = Path(folder) / family
            moments.forked(moments.run_to, family, Path(folder) / f"{family} run", whole)

        def trials():
            for number in range(options.cuts):
                family = list(moments.CASES)[number % len(moments.CASES)]
                with tempfile.TemporaryDirectory() as place:
                    yield lost(family, Path(place), Path(folder) / family, draw)

        return moments.summed_up(trials(), "power cuts")


if __name__ == "__main__":
    sys.exit(main())
