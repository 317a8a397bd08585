"""Random histories of runs, and whether their folders tell them as they were.

A history is a run of several segments, between which settings, fields, particles, points and
precisions change, as a program or `resume` changes them, and of which some fail or lose their last
states, as after a kill. Its steps are watched while it runs: the digest of each is the truth with
which what the folder gives later, `OpenedRun.at` and `verify`, is compared. On several ranks, which
all draw the same, some segments are the first rank's alone. Started as a script, this tries many:
``random_histories.py FIRST COUNT``.
"""

import collections
import contextlib
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console

import slipstream
from first_rank import on_first_rank
from slipstream.case import make_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError, SlipstreamError
from slipstream.runs import make_simulation, resuming
from slipstream.runs.recomputing import verify_run
from slipstream.runs.resuming import has_state
from slipstream.runs.run_case import AtItsEnd, RunOptions

QUIET = Console(quiet=True)
# What a refusal may give as its reason.
REASONS = (
    "the run continued with",
    "a program set",
    "set by a program at the start",
    "are not recorded",
    "continues with other bits",
    "no state before it is left",
    "no state before step",
    "has no digests",
)
FORCES = (
    {"kind": "linear", "rate": 0.3},
    {"kind": "taylor-green", "amplitude": 0.1},
    {"kind": "constant-energy", "shells": [1, 1]},
    {"kind": "random", "injection": 0.1, "correlation_time": 0.5, "seed": 5},
    {"kind": "ornstein-uhlenbeck", "amplitude": 0.3, "correlation_time": 0.5},
    {"kind": "formula", "formula": ["0", "0.1*cos(2*x)*sin(t)", "0"]},
)
TRACERS = {"name": "tracers", "number": 9}
HEAVY = {"name": "heavy", "number": 7, "kind": "inertial", "response_time": 0.3}


class StopsHereError(RuntimeError):
    """Ends a run, as an error in a user's function does."""


class Watch:
    """Notes the digest of every step, as an observer of a run; may end it by an error."""

    def __init__(self, solver, truth, last=None):
        self.solver, self._truth, self._last = solver, truth, last
        self._has_begun = False

    def next_time(self, time):
        return np.inf

    def check_hits(self, start, end, step_size):
        pass

    def is_due(self):
        return True

    def record(self, step_size):
        known = self._truth.get(self.solver.step)
        note(self._truth, self.solver)
        if not self._has_begun and known is not None:
            # The state from which it resumes is the earlier segment's, before what changes there.
            self._truth[self.solver.step] = known
        self._has_begun = True
        if self._last is not None and self.solver.step >= self._last:
            raise StopsHereError("the user's function")


def note(truth, solver):
    """Note the digest of the present step; steps after it have not been taken, or not so."""
    for step in [one for one in truth if one > solver.step]:
        del truth[step]
    truth[solver.step] = solver.digest()


class History:
    """One random history in a folder."""

    def __init__(self, seed, folder, comm=None):
        self.comm = comm
        self.random = np.random.default_rng(seed)
        self.folder = Path(folder) / "run"
        self.truth = {}
        self.events = []
        self.refusals = []
        self.family = self.choose("spectral", "spectral", "spectral", "lattice", "advection")
        self.end = 0.0

    def choose(self, *among):
        return among[int(self.random.integers(len(among)))]

    def chance(self, share):
        return bool(self.random.random() < share)

    def between(self, low, high):
        return float(np.round(self.random.uniform(low, high), 4))

    # -- the case --------------------------------------------------------------------------------

    def tables(self):
        output = {
            "pictures": False,
            "report": False,
            "digest_steps": int(self.choose(1, 2, 3, 5)),
            "keep_checkpoints": int(self.choose(1, 2, 3, 9)),
            "checkpoint_interval": {"spectral": 0.2, "advection": 0.2, "lattice": 8}[self.family],
            "diagnostics_interval": {"spectral": 0.1, "advection": 0.1, "lattice": 4}[self.family],
        }
        return {"solver": self.family, "output": output, **getattr(self, f"_{self.family}")()}

    def _spectral(self):
        integrator = self.choose("rk4", "rk2", "rk3", "heun")
        shifts = integrator in ("rk4", "heun") and self.chance(0.3)
        steps = {"step": 0.05} if self.chance(0.6) else {"cfl": 0.4, "max_step": 0.06}
        tables = {
            "grid": {"points": 8},
            "equation": {"viscosity": 0.05},
            "initial": {"flow": "random", "seed": 3, "peak_wavenumber": 2},
            "time": {"end": 0.6, "integrator": integrator, **steps},
            "numerics": {
                "precision": self.choose("float64", "float64", "float32"),
                "dealiasing": "phase-shift" if shifts else "2/3",
            },
        }
        if self.chance(0.4):
            tables["scalars"] = [{"name": "dye", "diffusivity": 0.1}]
        forces = int(self.random.integers(3))
        if forces:
            chosen = self.random.choice(len(FORCES), forces, replace=False)
            tables["forcing"] = [FORCES[number] for number in chosen]
            if any(one["kind"] == "constant-energy" for one in tables["forcing"]):
                tables["numerics"]["dealiasing"] = "2/3"
        particles = self.choose([], [TRACERS], [TRACERS, HEAVY], [HEAVY])
        if particles:
            tables["particles"] = [{"interval": 0.1, **one} for one in particles]
        return tables

    def _lattice(self):
        return {
            "image": {"sample": "spheres", "shape": [8, 8, 8], "solid_fraction": 0.2},
            "flow": {"relaxation_time": 0.9},
            "time": {"end": 48},
            "convergence": {
                "interval": 4,
                "vectors": int(self.choose(0, 0, 4)),
                "tolerance": self.choose(1e-9, 1e-3),
            },
        }

    def _advection(self):
        return {
            "grid": {"points": 12},
            "flow": {"courant": [0.6, -0.4, 0.5]},
            "time": {"end": 0.8},
        }

    # -- what happens ----------------------------------------------------------------------------

    def run(self):
        """Do all segments."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._by_a_program()
            for _ in range(int(self.random.integers(1, 4))):
                if self.chance(0.3):
                    self._lose_states()
                self._resume()

    def _by_a_program(self):
        """The first segments: a program runs, changes something, and runs again."""
        tables = self.tables()
        self.end = tables["time"]["end"]
        case = make_case(tables.pop("solver"), **tables)
        with slipstream.load(case, comm=self.comm, device="cpu") as sim:
            sim.every(steps=sim.case.steps_at_once, call=lambda one: note(self.truth, one.solver))
            if self.chance(0.2):
                self._change(sim)
            for _ in range(int(self.random.integers(1, 4))):
                if self.chance(0.25):
                    time = self._time(sim.time + 0.3 * self.end)
                    sim.every(times=[time], call=self._change)
                if self.chance(0.2):
                    self._interrupt(sim)
                try:
                    sim.run(until=self._time(sim.time + 0.5 * self.end), output=self.folder)
                except StopsHereError:
                    self.events.append(f"a function failed at step {sim.steps}")
                    written = self._on_first(lambda: len(slipstream.open(self.folder).states))
                    assert written, "no state is left"
                except (InputError, RunError) as error:
                    self.events.append(f"run: {error}")
                    self.end = sim.time
                    return
                self.end = sim.time
                self._change(sim)
                if sim.finished:
                    break

    def _interrupt(self, sim):
        def fail(_):
            callback.cancel()
            raise StopsHereError("the user's function")

        callback = sim.every(times=[self._time(sim.time + 0.2 * self.end)], call=fail)

    def _time(self, time):
        """Return a time that steps hit."""
        size = {"spectral": 0.05, "advection": 0.05, "lattice": 2}[self.family]
        return round(time / size) * size

    def _change(self, sim):
        """Change something, as a program does; what is refused has changed nothing."""
        menu = {"spectral": self._change_flow, "lattice": self._change_pores}
        with contextlib.suppress(InputError):
            self.events.append(f"step {sim.steps}: {menu.get(self.family, self._set)(sim)}")

    def _set(self, sim):
        name = {"lattice": None, "advection": "value"}.get(self.family, "velocity")
        name = name if name in sim.fields else next(iter(sim.fields))
        sim.fields[name][...] = 1.1 * np.array(sim.fields[name])
        return f"set {name}"

    def _change_flow(self, sim):
        how = self.choose("viscosity", "step", "fields", "particles", "scalar", "force", "nothing")
        if how == "viscosity":
            sim.viscosity = self.between(0.02, 0.1)
        elif how == "step" and sim.case.time.step is not None:
            sim.time_step = self.choose(0.05, 0.025, 0.1)
        elif how == "particles" and len(sim.particles):
            name = next(iter(sim.particles))
            sim.particles[name].positions = self.random.random(sim.particles[name].positions.shape)
        elif how == "scalar" and len(sim.case.scalars):
            sim.scalars["dye"].diffusivity = self.between(0.05, 0.2)
        elif how == "force" and any(one.kind == "linear" for one in sim.case.forcing):
            sim.forcing.rate = self.between(0.1, 0.4)
        elif how == "fields":
            return self._set(sim)
        return how

    def _change_pores(self, sim):
        how = self.choose("force", "viscosity", "nothing")
        if how == "force":
            sim.force = self.between(1e-6, 1e-5)
        elif how == "viscosity":
            sim.relaxation_time = self.between(0.7, 1.2)
        return how

    def _lose_states(self):
        """Lose the last states, and with them what came after, as after a kill."""
        share = self.random.random()

        def lose():
            states = slipstream.open(self.folder).states
            lost = [state.path for state in states[1 + int(share * len(states)) :]]
            for path in lost:
                shutil.rmtree(path)
            return [path.name for path in lost]

        self.events.append(f"lost states {self._on_first(lose)}")

    def _on_first(self, make):
        return on_first_rank(self.comm, make)

    def _resume(self):
        if not self._on_first(lambda: has_state(self.folder)):
            return
        menu = {
            "spectral": (
                f"equation.viscosity={self.between(0.02, 0.1)}",
                f"time.integrator={self.choose('rk2', 'rk3', 'rk4')!r}",
                f"time.step={self.choose(0.05, 0.025)}",
                f"numerics.dealiasing={self.choose('2/3', 'phase-shift')!r}",
                f"numerics.precision={self.choose('float64', 'float32')!r}",
                f"grid.points={self.choose(8, 10)}",
                "scalars=[{name='dye', diffusivity=0.1}, {name='ink', diffusivity=0.2}]",
                "scalars=[{name='dye', diffusivity=0.2}]",
                "forcing=[{kind='linear', rate=0.2}]",
                "forcing=[{kind='linear', rate=0.1}, {kind='taylor-green', amplitude=0.1}]",
                "forcing=[]",
                "particles=[{name='tracers', number=9, interval=0.1}]",
            ),
            "lattice": (
                f"flow.force={self.between(1e-6, 1e-5)}",
                f"flow.relaxation_time={self.between(0.7, 1.2)}",
                f"convergence.tolerance={self.choose(1e-3, 1e-9)}",
                f"convergence.interval={self.choose(4, 6)}",
                f"convergence.vectors={self.choose(0, 4)}",
                f"numerics.precision={self.choose('float64', 'float32')!r}",
            ),
            "advection": (
                f"numerics.precision={self.choose('float64', 'float32')!r}",
                "flow.courant=[0.5, -0.4, 0.5]",
            ),
        }[self.family]
        around = (
            f"output.digest_steps={self.choose(1, 2, 4)}",
            f"output.keep_checkpoints={self.choose(1, 3, 9)}",
            "run.device='cpu'",
        )
        changes = [self.choose(*menu)] if self.chance(0.7) else []
        changes += [self.choose(*menu)] if self.chance(0.2) else []
        changes += [self.choose(*around)] if self.chance(0.3) else []
        longer = self._time(
            self.end + self.choose(0.2, 0.4) * (48 if self.family == "lattice" else 1)
        )
        changes.append(f"time.end={longer}")
        fails = max(self.truth, default=0) + int(self.choose(2, 4)) if self.chance(0.2) else None
        if self.chance(0.5):
            self._resume_on(self.comm, changes, fails)
        else:
            self._on_first(lambda: self._resume_on(None, changes, fails))
            self.truth, self.events = self._on_first(lambda: (self.truth, self.events))
        self.end = max(self.end, longer)

    def _resume_on(self, comm, changes, fails):
        watch = Watch(None, self.truth, fails)

        def make(*arguments):
            watch.solver = make_simulation(*arguments)
            return watch.solver

        try:
            with mock.patch.object(resuming, "make_simulation", make):
                options = RunOptions(observers=[watch])
                resuming.resume_run(
                    self.folder, changes, comm, HostDevice(), QUIET, options=options
                )
            self.events.append(f"resumed: {', '.join(changes)}")
        except StopsHereError:
            self.events.append(f"resumed: {', '.join(changes)}; failed at step {fails}")
        except (AtItsEnd, InputError, RunError) as error:
            self.events.append(f"resume {changes}: {error}")

    # -- what the folder says --------------------------------------------------------------------

    def problems(self):
        """Return what the folder tells otherwise than it was."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run, found = slipstream.open(self.folder), []
        found += [f"open: {one.message}" for one in told]
        others = self.comm is not None  # whether bits may be those of other ranks
        steps = sorted(self.truth)
        for step in sorted(self.random.choice(steps, min(4, len(steps)), replace=False).tolist()):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    simulation = run.at(step=step, comm=self.comm, device="cpu")
                    exact = not (others and simulation.solver.rank_dependence)
                    if exact and simulation.solver.digest() != self.truth[step]:
                        found.append(f"at({step}) has other bits")
                    simulation.close()
                except SlipstreamError as error:
                    self._take_refusal(f"at({step})", str(error), found)
            found += [f"at({step}): {one.message}" for one in told if "digest" in str(one.message)]
        try:
            verdicts = verify_run(self.folder, 0.0, None, self.comm, "cpu")
        except SlipstreamError as error:
            self._take_refusal("verify", str(error), found)
            return found
        for verdict in verdicts:
            if verdict.deviates is not None:
                found.append(f"verify: {verdict.origin}: {verdict.text}")
            elif verdict.problem:
                self._take_refusal("verify", verdict.problem, found)
        return found

    def _take_refusal(self, what, text, found):
        if any(reason in text for reason in REASONS):
            self.refusals.append(text)
        else:
            found.append(f"{what}: {text}")


def try_history(seed, folder, comm=None):
    """Return the history of a seed, once it has run, and its problems. Collective."""
    history = History(seed, folder, comm)
    history.run()
    return history, history.problems()


def _scratch():
    """Return a folder in memory, if there is one: thousands of files are flushed."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(first, count):
    bad, refused = 0, collections.Counter()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
            history, problems = try_history(seed, folder)
        refused.update(history.refusals and [history.family])
        if problems:
            bad += 1
            print(f"seed {seed}, {history.family}:", *history.events, sep="\n    ")
            print(*(f"  PROBLEM {one}" for one in problems), sep="\n", flush=True)
    print(f"{count} histories, {bad} with problems; with refusals: {dict(refused)}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
