"""Runs that end at a moment, by a kill or a power cut, and their remains.

A *moment* is a step, the middle of a file that is written, or a call to the system that flushes,
renames or removes. They are counted, so that a run can end at any, within the writing of a state
too. Started as a script, this is one such run, on any number of ranks.
"""

import argparse
import contextlib
import csv
import hashlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import xarray
import zarr
from rich.console import Console

from slipstream.case import parse_case
from slipstream.engine import processes as mpi_launch
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.equations.models import lowered
from slipstream.files import open_checkpoint
from slipstream.runs import make_simulation, output_writer, resuming
from slipstream.runs.resuming import has_state, resume_run
from slipstream.runs.run_case import AtItsEnd, run_case
from slipstream.runs.simulation_base import SIMULATIONS, Simulation
from small_shards import set_if_asked_for
from wrapped_file import WrappedFile

_OUTPUT = """
[output]
pictures = false
checkpoint_interval = 0.2
diagnostics_interval = 0.05
fields_interval = 0.1
"""
# Each does 12 steps, or pairs, that are all alike, and writes its state every 4.
CASES = {
    "spectral": f"""
solver = "spectral"
[grid]
points = 12
[equation]
viscosity = 0.05
[initial]
flow = "random"
seed = 3
[time]
end = 0.6
step = 0.05
{_OUTPUT}""",
    "advection": f"""
solver = "advection"
[grid]
points = 12
[flow]
courant = [0.6, -0.4, 0.5]
[time]
end = 0.6
{_OUTPUT}""",
    "lattice": f"""
solver = "lattice"
[image]
sample = "channel"
shape = [10, 3, 4]
axis = "x"
[flow]
relaxation_time = 0.8
[time]
end = 24
[convergence]
interval = 10
vectors = 0
{_OUTPUT.replace("0.2", "8").replace("0.05", "2").replace("0.1", "4")}""",
}
# Of each, what makes another run of it, of other numbers and as many steps.
OTHERS = {
    "spectral": ("seed = 3", "seed = 4"),
    "advection": ("-0.4, 0.5", "0.4, -0.5"),
    "lattice": ("relaxation_time = 0.8", "relaxation_time = 0.9"),
}
STEPS_BETWEEN_STATES = {"spectral": 4, "advection": 4, "lattice": 8}

ALL = -1
# A kill takes nothing from memory that files are in, so the device need not be waited for.
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Moments:
    """Counts the moments of this process, and acts at one of them, or at all."""

    def __init__(self, last, act):
        self.count, self._last, self._act = 0, last, act

    def pass_one(self):
        self.count += 1
        if self._last in (self.count, ALL):
            self._act()

    def watch(self, patch=setattr):
        """Count from now on; for good, unless `patch` knows how to undo it."""
        for name in ("fsync", "rename", "replace", "unlink", "rmdir"):
            patch(os, name, self._counted(getattr(os, name)))
        patch(Simulation, "advance", self._counted(Simulation.advance))
        opened = Path.open

        def open_file(path, mode="r", *arguments, **options):
            file = opened(path, mode, *arguments, **options)
            return _Halves(file, self) if mode == "xb" else file

        patch(Path, "open", open_file)

    def _counted(self, call):
        def counted(*arguments, **options):
            self.pass_one()
            return call(*arguments, **options)

        return counted


class _Halves(WrappedFile):
    """A file with a moment when half of it is written."""

    def __init__(self, file, moments):
        super().__init__(file)
        self._moments = moments

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self._moments.pass_one()
        return self.file.write(content[half:])


def warm_up():
    """Do what each process would otherwise do for itself, before it forks off."""
    for module, _ in SIMULATIONS.values():
        importlib.import_module(module)
    equation = parse_case(CASES["spectral"]).equation
    lowered(equation.model, equation.parameters)


def digest(simulation):
    """Return the step, and a digest of this rank's state, bit by bit."""
    found = hashlib.blake2b(digest_size=16)
    for field in simulation.checkpoint():
        found.update(field.data.tobytes())
    return f"{simulation.step} {found.hexdigest()}"


def _rows(path, may_end_in_zeros):
    """Return the rows of a series; raise if one is not whole.

    What was written since the last state is not flushed: after a power cut zeros may stand for it.
    """
    text = path.read_text() if path.exists() else ""
    if may_end_in_zeros:
        text = text.split("\0")[0]
        text = text[: text.rfind("\n") + 1]
    assert not text or text.endswith("\n"), "half a row"
    rows = list(csv.DictReader(x for x in text.splitlines() if not x.startswith("#")))
    assert all(None not in row.values() and None not in row for row in rows), rows
    return rows


def check_left(folder, power_cut=False):
    """Return the step of the last state, or None; raise if anything cannot be read."""
    rows = _rows(folder / "diagnostics.csv", may_end_in_zeros=power_cut)
    for store in folder.glob("*.zarr"):
        if (store / "zarr.json").exists():
            group = zarr.open_group(store, mode="r")
            # A series may begin with values that are not known yet.
            is_series = store.name == "diagnostics.zarr"
            if group.metadata.consolidated_metadata is not None and not is_series:
                data = xarray.open_zarr(store).load()
                assert all(np.isfinite(one).all() for one in data.values()), store
    try:
        state = open_checkpoint(folder)
    except InputError as error:
        assert "holds no checkpoint" in str(error), error
        return None
    assert not state.warnings, state.warnings
    assert int(rows[-1]["step"]) >= state.step, (rows[-1], state.step)
    return state.step


def run_to(
    family, folder, report, restart=None, last=0, act=None, rank=0, resumes=False, other=False
):
    """Do a run, or continue with one; `rank` acts at its last moment. Tell what came of it.

    With `resumes` it continues in its folder, if that contains a state. An `other` run has other
    numbers. Without either, output in the folder is replaced.

    The report has the steps done so far, the step of the last state promised to stay, and at
    the end the digest of the state, and how many moments there were.
    """
    comm = mpi_launch.world_comm()
    this_rank = 0 if comm is None else comm.rank
    settings = [] if restart is None else [f"initial.restart={restart}"]
    text = CASES[family].replace(*OTHERS[family]) if other else CASES[family]
    case = parse_case(text, settings)
    report_row = {"step": 0, "state": None}
    file = os.open(f"{report}.{this_rank}", os.O_CREAT | os.O_RDWR | os.O_TRUNC)

    def tell(**news):
        report_row.update(news)
        os.pwrite(file, json.dumps(report_row).ljust(400).encode(), 0)

    write = output_writer.write_checkpoint

    def write_and_tell(*arguments, **options):
        path = write(*arguments, **options)
        tell(state=options["step"])
        return path

    moments = Moments(last if this_rank == rank else 0, act or kill)
    moments.watch()
    advance, made = Simulation.advance, []

    def advance_and_tell(simulation, *arguments):
        advance(simulation, *arguments)
        tell(step=simulation.step)

    Simulation.advance, output_writer.write_checkpoint = advance_and_tell, write_and_tell

    def make(case, comm, device):
        made.append(make_simulation(case, comm, device))
        return made[-1]

    tell()
    try:
        if resumes and has_state(folder):
            resuming.make_simulation = make
            resume_run(folder, (), comm, HostDevice(threads=1), Console(quiet=True))
        else:
            run_case(make(case, comm, HostDevice(threads=1)), folder, Console(quiet=True))
    except (InputError, AtItsEnd) as error:
        # The run that was to continue had reached its end.
        assert "time.end" in str(error), error
    tell(moments=moments.count, **({"digest": digest(made[-1])} if made else {}))


def differs(folder, other):
    """Return the differences of a run's output from the output of a run never stopped."""
    for name in ("diagnostics.csv",):
        if (folder / name).read_text() != (other / name).read_text():
            return f"{name} is another"
    for path in sorted(other.glob("*.zarr")):
        found, expected = (xarray.open_zarr(one / path.name).load() for one in (folder, other))
        if not found.equals(expected):
            return f"{path.name} is another"
    states = [open_checkpoint(one) for one in (folder, other)]
    for name in states[1].arrays:
        if not np.array_equal(states[0].read(name), states[1].read(name)):
            return f"{name} of the state is another"
    return ""


def what_is_left(folder, scratch, report, power_cut=False):
    """Return the faults of a run's remains, and the step of its last state, if any."""
    note = scratch / "left"
    if forked(lambda: note.write_text(str(check_left(folder, power_cut)))):
        return "something cannot be read", None
    left = note.read_text()
    state = None if left == "None" else int(left)
    if report.get("state") is not None and (state is None or state < report["state"]):
        return f"the state of step {report['state']} is lost", state
    return "", state


def steps_lost(family, told, state):
    """Return the faults in the number of repeated steps, and that number."""
    # The step in which the run ended had not been told yet.
    gone = told.get("step", 0) + 1 - (state or 0)
    # While a state is written, the steps since the last one can still be lost.
    too_many = gone > STEPS_BETWEEN_STATES[family] + 2
    return f"{gone} steps are lost" if too_many else "", gone


def summed_up(trials, name, tell=False):
    """Do trials, each with faults, the moment, and the steps lost; return 1 if any failed."""
    count = failures = most = 0
    for fault, moment, gone in trials:
        count, failures, most = count + 1, failures + bool(fault), max(most, gone)
        if fault or tell:
            print(f"{moment}: {fault or gone}", flush=True)
    print(
        f"{count} {name}: {count - failures} continued to the same bits; "
        f"{most} steps lost at most, with states every 4 (lattice: 8)"
    )
    return int(failures > 0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def reported(report, rank=0):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(Path(f"{report}.{rank}").read_text())
    return {}


def forked(function, *arguments, **options):
    """Run an action in a forked process, at little cost; return its status."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments, **options)
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    parser = argparse.ArgumentParser()
    for name in ("family", "folder", "report"):
        parser.add_argument(name)
    parser.add_argument("--restart")
    for name in ("--last", "--rank", "--resumes", "--other"):
        parser.add_argument(name, type=int, default=0)
    given = vars(parser.parse_args())
    set_if_asked_for()
    run_to(given.pop("family"), Path(given.pop("folder")), given.pop("report"), **given)


if __name__ == "__main__":
    main()
