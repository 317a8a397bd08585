"""Random calls of the Python interface, right ones and wrong ones, on one rank or several.

Whatever a program calls, in whatever order, it gets a value or an error of Slipstream's own, in one
line; never an error of NumPy, h5py or pydantic, and never none where an argument was ignored. What
can be checked, is: a setting that was taken reads back, a copy equals what it was copied from. On
several ranks all draw the same calls, some with another argument on one rank, and what is called
collective must end alike on all. A few calls run with the tests; many of them with

    python tests/support/interface_fuzzing.py --calls 2000
"""

import argparse
import copy
import faulthandler
import inspect
import io
import math
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import slipstream as ss
from call_checks import (
    continued,
    defect_of,
    foreign_warnings,
    is_collective,
    is_open,
    is_same,
    keys_of,
    reached,
    reads_back,
    reduces,
    same_state,
    shown,
    steps_done,
)
from drawn_arguments import (
    ADVECTION,
    FLOW,
    GOOD,
    MODELS,
    POROUS,
    RICH,
    STEPS,
    TRANSFORM,
    TURBULENCE,
    array,
    field_values,
    has_time,
    index,
    some,
    wrong,
)
from quick_pictures import quick_pictures
from slipstream.api.field_views import FieldView
from slipstream.api.opened_run import OpenedRun
from slipstream.api.spectral_flow import ModesView
from slipstream.case.table import Table
from slipstream.engine.decomposition import GridBoxes
from slipstream.engine.device import host_compiler
from slipstream.engine.errors import SlipstreamError, plain_value
from slipstream.engine.fft.transform_parts import Modes
from slipstream.engine.fields import Field
from slipstream.engine.processes import world_comm
from slipstream.engine.schedule import Timeline
from slipstream.fft import Box, Streaming, grid_boxes, redistribute, section, truncate, with_halo
from slipstream.files import read_array, write_arrays
from slipstream.files.run_folder import read_run_record
from slipstream.lattice import Permeability, make_sample
from slipstream.lattice.permeability import KEYS as POROUS_KEYS
from slipstream.show.series_statistics import time_average

# Address space in bytes: legal calls need far less, and illegal ones must allocate nothing.
MEMORY = 6 << 30
# Seconds after which a call is taken to hang.
PATIENCE = 300
# Calls of objects that are made together, and the most objects that are kept of them.
CALLS, OBJECTS = 25, 14

# What calls do is not asked of these: they are for other programs, or end this one.
APART = {
    "bytes_per_update",
    "check_hits",
    "is_due",
    "next_time",
    "record",
    "solver",
    "device",
    "array_module",
    "comm",
    "home",
    "streamed",
}
# Functions of the public modules.
FUNCTIONS = (
    redistribute,
    section,
    truncate,
    with_halo,
    read_array,
    write_arrays,
    make_sample,
    time_average,
    read_run_record,
    Box,
    grid_boxes,
    Streaming,
)
# What calls are of above all.
MAIN = (ss.InteractiveSimulation, OpenedRun, ss.DistributedFFT, Permeability, FieldView)


class Call:
    """One call: what it is, in words, and the function that makes it."""

    def __init__(self, text, make, check=None, is_collective=False, is_users=False):
        self.text, self.make, self.check = text, make, check
        self.is_collective = is_collective
        # Whether its errors are those of the user's own NumPy expression.
        self.is_users = is_users


class Session:
    """Objects that are made and called one after the other, in one folder."""

    def __init__(self, folder=None, comm=None):
        self.draw, self.folder, self.comm = random.Random(0), folder, comm
        self.rank, self.ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        self.objects, self.calls = [], 0

    # -- drawing -----------------------------------------------------------------------------

    def call(self):
        """Return the next call."""
        draw = self.draw
        self.calls += 1
        if not self.objects or draw.random() < 0.1:
            return self.make_something(is_first=not self.objects)
        if self.calls in (2, 3) and has_time(self.objects[0]) and draw.random() < 0.6:
            return self.into_folder(self.objects[0])
        it = draw.choices(
            self.objects, [6 if isinstance(one, MAIN) else 1 for one in self.objects]
        )[0]
        way = draw.random()
        if way < 0.12:
            return self.protocol(it)
        if way < 0.35 and hasattr(type(it), "__getitem__"):
            return self.item(it)
        return self.member(it)

    def differing(self, value):
        """Return a value that at times is another one on one of the ranks."""
        draw = self.draw
        is_odd, rank, other = draw.random() < 0.15, draw.randrange(self.ranks), wrong(draw)
        return other if is_odd and self.ranks > 1 and rank == self.rank else value

    def value(self, name, it):
        """Return a value of an argument: a right one where one is known, or any."""
        draw = self.draw
        makes_right, right = GOOD.get(name), draw.random() < 0.75
        value = makes_right(draw, it, self.folder) if makes_right and right else wrong(draw)
        if name == "folder" and not isinstance(value, str | Path):
            return self.differing(value)
        return self.differing(value)

    def arguments(self, function, it):
        """Return arguments of a function, by its signature."""
        draw, given = self.draw, {}
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return given
        for one in parameters:
            if one.kind == one.VAR_POSITIONAL or one.name == "comm":
                continue
            if one.kind == one.VAR_KEYWORD:
                if draw.random() < 0.05:
                    given["no_such_key"] = 1
                continue
            is_required = one.default is one.empty
            if draw.random() < (0.98 if is_required else 0.35):
                given[one.name] = self.value(one.name, it)
        return given

    def into_folder(self, sim):
        """Return a run with output, or the opening of its folder."""
        folder = self.folder / "run"
        if self.calls == 3:
            return Call(f"open({folder})", lambda: ss.open(folder))
        end = 20 if isinstance(sim, ss.PorousFlow) else 0.05
        return Call(
            f"{type(sim).__name__}.run(until={end}, output='run')",
            lambda: sim.run(until=end, steps=STEPS, output=folder, progress=False),
            is_collective=True,
        )

    def make_something(self, is_first=False):
        draw, where = self.draw, {} if self.comm is None else {"comm": self.comm}
        kinds = ("turbulence", "turbulence", "flow", "pores", "tracer", "fft", "permeability")
        kind = draw.choice(kinds if is_first else (*kinds, "open", "load", "function", "function"))
        rng = np.random.default_rng(draw.randrange(2**32))
        check = None
        if kind == "turbulence":
            points = draw.choice((8, 8, (8, 12, 8), (8, 8, 1), np.int64(8)))
            further = draw.choice(RICH) if draw.random() < 0.5 else some(draw, 4, TURBULENCE)
            given = {"points": points, "viscosity": 0.1, **further}
            make, check = ss.Turbulence, self.recorded
        elif kind == "flow":
            model = draw.choice(sorted(MODELS))
            points = (8, 8, 1) if model == "hd2d" else 8
            given = {"model": model, "points": points, **MODELS[model], **some(draw, 3, FLOW)}
            make, check = ss.Flow, self.recorded
        elif kind in ("pores", "permeability"):
            given = {
                "image": rng.random((8, 8, 8)) > 0.25,
                "max_steps": 40,
                **some(draw, 4, POROUS),
            }
            given["image"] = given["image"].astype(
                draw.choice(("?", "u1", ">u2", "f4", "f8", "i8"))
            )
            make, check = (
                (ss.PorousFlow, self.recorded) if kind == "pores" else (ss.permeability, None)
            )
        elif kind == "tracer":
            given = {
                "points": draw.choice((8, (8, 10, 12))),
                "width": 0.2,
                **some(draw, 3, ADVECTION),
            }
            make, check = ss.Advection, self.recorded
        elif kind == "fft":
            given = {"shape": draw.choice(((8, 8, 8), (6, 8, 10), (8, 8), 16, np.int64(12)))}
            given |= some(draw, 4, TRANSFORM)
            make = ss.DistributedFFT
        elif kind == "open":
            make, given, where = ss.open, {"folder": self.folder / "run"}, {}
        elif kind == "function":
            make = draw.choice(FUNCTIONS)
            given, where = self.arguments(make, None), {}
            if "comm" in inspect.signature(make).parameters and self.comm is not None:
                where = {"comm": self.comm}
            return Call(
                f"{make.__name__}({shown(given)})",
                lambda: make(**given, **where),
                None,
                is_collective(make),
            )
        else:
            make, given = ss.load, {"case": self.folder / "run" / "case.toml"}
            sims = [one for one in self.objects if has_time(one) and is_open(one)]
            if sims and draw.random() < 0.6:
                given["case"] = draw.choice(sims).case
            if draw.random() < 0.6:
                given["settings"] = draw.choice(({"title": "other"}, ["title=other"]))
                check = continued
        if not is_first and draw.random() < 0.3:
            name = draw.choice(
                sorted({*given, *inspect.signature(make).parameters} - {"comm", "self"})
            )
            given[name] = self.differing(wrong(draw))
        if kind != "open":
            given.setdefault("device", "cpu")
        text = f"{make.__name__}({shown(given)})"
        return Call(
            text,
            lambda: make(**given, **where),
            None if check is None else lambda made: check(made, given),
            is_collective=kind != "open",
        )

    def member(self, it):
        """Return the call of a method, or the reading or setting of an attribute."""
        draw, kind = self.draw, type(it)
        names = [one for one in dir(it) if not one.startswith("_") and one not in APART]
        if not names:
            return self.protocol(it)
        name = draw.choice(names)
        if draw.random() < 0.02:
            name = draw.choice(("no_such_name", "viscosty", "Fields"))
        static = inspect.getattr_static(kind, name, None)
        text = f"{kind.__name__}.{name}"
        is_method = inspect.isroutine(static) or isinstance(static, staticmethod)
        if not is_method:
            if draw.random() < 0.45:
                value = self.set_value(it, name)
                check = (lambda _: reads_back(it, name, value)) if self.ranks == 1 else None
                return Call(
                    f"{text} = {shown(value)}",
                    lambda: setattr(it, name, value),
                    check,
                    is_collective(static),
                )
            return Call(text, lambda: getattr(it, name), None, is_collective(static))
        if name == "close" and draw.random() < 0.5:
            return self.protocol(it)
        given = self.arguments(getattr(it, name, static), it)
        if isinstance(it, OpenedRun) and name == "resume" and draw.random() < 0.7:
            given.pop("comm", None)
        before = self.guard(it, name)
        positional = name in ("forward", "backward", "at") and draw.random() < 0.3

        def make():
            before()
            if positional:
                return getattr(it, name)(*given.values())
            return getattr(it, name)(**given)

        steps = getattr(it, "steps", None) if name == "step" and is_open(it) else None
        check = None
        if name == "step" and steps is not None:
            check = lambda _: steps_done(it, steps, given)  # noqa: E731
        elif name == "run" and has_time(it):
            check = lambda _: reached(it, given)  # noqa: E731
        elif name in ("at", "restart", "resume") and isinstance(it, OpenedRun) and not positional:
            check = lambda made: continued(it if made is None else made, given)  # noqa: E731
        elif name == "copy" and has_time(it):
            check = lambda made: same_state(it, made)  # noqa: E731
        elif isinstance(it, FieldView) and name in ("plane", "max", "min", "mean", "rms"):
            check = lambda found: reduces(it, name, given, found)  # noqa: E731
        # A transform that has begun fails when it is waited for.
        together = is_collective(static) and not name.endswith("_async")
        return Call(f"{text}({shown(given)})", make, check, together)

    def set_value(self, it, name):
        try:
            now = getattr(it, name)
        except Exception:
            now = None
        if isinstance(now, int | float) and self.draw.random() < 0.6:
            return self.differing(self.draw.choice((0.05, 0.2, 1, 2, np.float32(0.3), now)))
        if isinstance(now, np.ndarray) and self.draw.random() < 0.6:
            return self.differing(array(self.draw, now.shape))
        return self.differing(wrong(self.draw))

    def guard(self, it, name):
        """Return what to do before a call, so that no run is long."""
        if not has_time(it) or name not in ("run", "step"):
            return lambda: None

        def before():
            began = it.steps

            def stop(sim):
                if sim.steps - began >= STEPS:
                    sim.stop()

            it.every(steps=2, call=stop)

        return before

    def item(self, it):
        """Return the reading or setting of an item."""
        draw, text = self.draw, type(it).__name__
        if isinstance(it, FieldView | ModesView):
            where = index(draw)
            if draw.random() < 0.5:
                value = self.differing(field_values(draw, it))
                return Call(
                    f"{text}[{where!r}] = {shown(value)}",
                    lambda: it.__setitem__(where, value),
                    None,
                    is_collective=True,
                )
            where = self.differing(where)
            return Call(f"{text}[{where!r}]", lambda: it[where])
        keys = [*it] if isinstance(it, Mapping) and is_open(it) else [0, 1]
        key = self.differing(draw.choice(keys) if keys and draw.random() < 0.8 else wrong(draw))
        if hasattr(it, "__setitem__") and draw.random() < 0.3:
            value = self.differing(
                draw.choice((0.05, 1, 2)) if draw.random() < 0.6 else wrong(draw)
            )
            return Call(
                f"{text}[{shown(key)}] = {shown(value)}", lambda: it.__setitem__(key, value)
            )
        if isinstance(it, Mapping) and draw.random() < 0.3:
            missing = object()

            def get():
                try:
                    return it.get(key, missing)
                except SlipstreamError as error:
                    if "closed" in str(error):
                        raise
                    return error

            return Call(
                f"{text}.get({shown(key)})",
                get,
                lambda found: "" if (found is missing) != (key in it) else f"get gives {found!r}",
            )
        return Call(f"{text}[{shown(key)}]", lambda: it[key])

    def protocol(self, it):
        """Return the use of an object by Python, or by NumPy."""
        draw, text = self.draw, type(it).__name__
        value = wrong(draw)
        ways = {
            "repr": lambda: repr(it),
            "str": lambda: str(it),
            "html": lambda: getattr(it, "_repr_html_", lambda: None)(),
            "bool": lambda: bool(it),
            "len": lambda: len(it) if hasattr(type(it), "__len__") else None,
            "iter": lambda: [*it] if hasattr(type(it), "__iter__") else None,
            "in": lambda: value in it if hasattr(type(it), "__contains__") else None,
            "hash": lambda: hash(it) if type(it).__hash__ else None,
            "dir": lambda: dir(it),
            "format": lambda: f"{it}",
            "delete": lambda: delattr(it, draw.choice(("time", "shape", "path"))),
        }
        ways["copy"] = lambda: copy.copy(it)
        ways["deepcopy"] = lambda: copy.deepcopy(it)
        ways["pickle"] = lambda: pickle.loads(pickle.dumps(it))
        if isinstance(it, FieldView | ModesView | Field):
            ways["asarray"] = lambda: np.asarray(it)
            ways["asarray of another type"] = lambda: np.asarray(it, dtype="f4")
            if isinstance(it, FieldView):
                ways["arithmetic"] = lambda: it * 2 + it
                ways["function"] = lambda: np.sum(np.stack([it, it]), axis=0)
        name = draw.choice(sorted(ways))
        is_users = False
        if isinstance(it, FieldView) and draw.random() < 0.1:
            name, is_users = f"+ {shown(value)}", True
            ways[name] = lambda: it + value
        check = None
        if name in ("copy", "deepcopy", "pickle") and has_time(it):
            check = lambda made: same_state(it, made)  # noqa: E731
        # Of Python's own words, not of ours: an object without a length has none.
        collective = is_collective(type(it)) or name in ("copy", "deepcopy")
        return Call(f"{name} of {text}", ways[name], check, collective, is_users)

    # -- checking ----------------------------------------------------------------------------

    def recorded(self, made, given):
        """Return what is wrong with the settings that a simulation was made with."""
        keys = (
            POROUS_KEYS | {"max_steps": "time.end"}
            if isinstance(made, ss.PorousFlow)
            else keys_of(type(made))
        )
        for name, value in given.items():
            if name in ("mirror", "pore", "crop", "shape", "walls") or name not in keys:
                continue
            if plain_value(value) is None:
                continue  # the default
            now = made.case
            for word in keys[name].split("."):
                now = getattr(now, word)
            if not is_same(now, value):
                return f"{name} = {shown(value)} was given, the case has {now!r}"
        for name in ("time", "run", "output", "numerics"):
            table = given.get(name)
            for key, value in (table or {}).items() if isinstance(table, Mapping) else ():
                now = getattr(getattr(made.case, name), key)
                if not is_same(now, value):
                    return f"{name}.{key} = {value!r} was given, the case has {now!r}"
        return ""

    def add(self, made):
        """Keep what a call has returned, if it is of the interface."""
        several = made if isinstance(made, tuple | list) else [made]
        if isinstance(made, dict):
            several = list(made.values())[:2]
        for one in several[:3]:
            own = type(one).__module__.startswith("slipstream.") and not callable(one)
            if own and not isinstance(one, Table | Box | GridBoxes | Modes | Timeline):
                self.objects.append(one)
        while len(self.objects) > OBJECTS:
            self.objects.pop(self.draw.randrange(len(self.objects)))


class Fuzz:
    """Calls, counted, with the defects that were found."""

    def __init__(self, comm, show):
        self.comm, self.show = comm, show
        self.endings, self.defects = Counter(), Counter()
        self.messages = Counter()

    def everyone(self, value):
        return [value] if self.comm is None else self.comm.allgather(value)

    def session(self, seed, calls):
        folder = (
            tempfile.mkdtemp(prefix="calls-") if self.comm is None or self.comm.rank == 0 else None
        )
        folder = Path(folder if self.comm is None else self.comm.bcast(folder))
        before = Path.cwd()
        os.chdir(folder)
        session = Session(folder, self.comm)
        lines = []
        try:
            for number in range(calls):
                self.one(session, f"{seed}.{number}", lines)
        finally:
            session.objects.clear()
            os.chdir(before)
            if self.comm is not None:
                self.comm.Barrier()
            shutil.rmtree(folder, ignore_errors=True)

    def one(self, session, label, lines):
        defect, made, failure = "", None, None
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        call = Call("drawing", lambda: None)
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            try:
                # Ranks go on alike, even if what one of them has drawn from differs from theirs.
                session.draw = random.Random(label)
                call = session.call()
                if self.show:
                    print(f"{label}: {call.text}", file=sys.stderr, flush=True)
                made = call.make()
                if call.check is not None:
                    defect = call.check(made)
            except Exception as error:
                failure = error
                defect = defect_of(error, call)
        defect = defect or "; ".join(foreign_warnings(records))
        ending = "value" if failure is None else type(failure).__name__
        lines.append(f"{label}: {call.text} -> {ending} {failure or ''}")
        if self.show:
            print(f"    -> {ending} {failure or ''}", file=sys.stderr, flush=True)
        if isinstance(failure, SlipstreamError):
            self.messages[str(failure)] += 1
        self.endings[ending] += 1
        kinds = self.everyone((failure is None, type(made).__name__ if failure is None else ending))
        if call.is_collective and len({is_value for is_value, _ in kinds}) > 1:
            defect = defect or f"ends differently on the ranks: {kinds}"
        everyone = [one for one in self.everyone(defect) if one]
        if everyone:
            self.report(everyone[0], label, call, lines, failure)
        if failure is None and len(set(kinds)) == 1:
            session.draw = random.Random(f"{label} kept")
            session.add(made)
        faulthandler.cancel_dump_traceback_later()

    def report(self, defect, label, call, lines, failure):
        self.defects[defect[:90]] += 1
        if self.defects[defect[:90]] > 2:
            return
        text = io.StringIO()
        print(f"--- {label}: {call.text}\n{defect}", file=text)
        print("\n".join(f"    {line[:200]}" for line in lines[-6:]), file=text)
        if failure is not None and not isinstance(failure, SlipstreamError):
            traceback.print_exception(failure, file=text, limit=-8)
        rank = 0 if self.comm is None else self.comm.rank
        print(f"[rank {rank}] {text.getvalue()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--start", type=int, default=0, help="number of the first session")
    parser.add_argument("--show", action="store_true", help="print each call")
    parser.add_argument("--messages", action="store_true", help="print the messages")
    wanted = parser.parse_args()
    os.environ.setdefault(host_compiler.OPTIMISATION, "1")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    comm = world_comm()
    comm = None if comm is None or comm.size == 1 else comm
    fuzz = Fuzz(comm, wanted.show)
    with quick_pictures():
        for number in range(wanted.start, wanted.start + math.ceil(wanted.calls / CALLS)):
            fuzz.session(f"{wanted.seed}-{number}", min(CALLS, wanted.calls))
    if comm is None or comm.rank == 0:
        if wanted.messages:
            for text, count in sorted(fuzz.messages.items()):
                print(f"{count:5} {text[:250]}")
        print(f"calls: {sum(fuzz.endings.values())}, by ending {dict(fuzz.endings)}")
        for text, count in fuzz.defects.most_common():
            print(f"{count:5} {text}")
        print(f"{sum(fuzz.defects.values())} defects")
    sys.exit(bool(fuzz.defects))


if __name__ == "__main__":
    main()
