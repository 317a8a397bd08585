"""Damaged cases and formulas, through the command line's own entry.

Whatever a file says, the command ends: with status 0, 1 or 2, and never with a traceback; what it
refuses, it refuses soon and in one line. A few examples run with the tests; many of them with

    python tests/support/fuzzing.py --quick --cases 30000 --formulas 10000
"""

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import random
import re
import resource
import select
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from slipstream.case import AdvectionCase, LatticeCase, SpectralCase
from slipstream.case.table import OneOf, Table
from slipstream.show.solver_texts import description
from slipstream.spectral.formula_parser import FUNCTIONS

# What a refusal may take; what a run may take until it is asked to stop, and then: seconds of
# processor time of a process that has all modules, since others may have the processors.
REFUSAL, PATIENCE, STOPPING = 2.0, 6.0, 60.0
# What each may take by the clock, seconds: it is no bound on speed.
IDLE = 400.0
# Address space in bytes: legal input needs far less, and illegal input must allocate nothing.
MEMORY = 6 << 30

SPECTRAL = """
solver = "spectral"
[grid]
points = [8, 12, 8]
[equation]
viscosity = 0.01
[initial]
flow = "random"
seed = 7
peak_wavenumber = 2.0
[time]
end = 0.02
step = 0.01
max_steps = 2
[output]
pictures = false
"""
FORMULA = """
solver = "spectral"
[grid]
points = [8, 12, 8]
[equation]
model = "boussinesq"
viscosity = 0.01
diffusivity = 0.01
buoyancy_frequency = 1.0
[initial]
flow = "formula"
fields = { velocity = ["sin(y)", "0", "cos(x)"], buoyancy = "0.1*cos(z)" }
[forcing]
kind = "formula"
formula = ["sin(z)", "0", "0.1*sin(t)*cos(y)"]
[time]
end = 0.02
cfl = 0.5
max_step = 0.01
max_steps = 2
[output]
pictures = false
fields_interval = 0.01
"""
LATTICE = """
solver = "lattice"
[image]
sample = "sandstone"
shape = [12, 10, 8]
porosity = 0.7
radius = 2
voxel_size = 1e-6
[flow]
axis = "z"
relaxation_time = 0.8
[time]
end = 40
[convergence]
tolerance = 1e-3
[output]
pictures = false
"""
ADVECTION = """
solver = "advection"
[grid]
points = [10, 12, 8]
[flow]
courant = 0.5
[initial]
width = 0.2
[time]
end = 0.2
max_steps = 3
[output]
pictures = false
"""
CASES = (SPECTRAL, FORMULA, LATTICE, ADVECTION)

VALUES = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    100_000,
    2**31,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.5,
    0.5,
    1e-300,
    1e300,
    float("nan"),
    float("inf"),
    True,
    False,
    "",
    "auto",
    "hd",
    "mhd",
    "gpe",
    "2/3",
    "1/2",
    "none",
    "float32",
    "float16",
    "cuda",
    "8 GiB",
    "1 KiB",
    "-3 GiB",
    "2 pi",
    "../x",
    "/dev/null",
    "\x1b[2J",
    "x" * 300,
    "é\u202e",
    [],
    [1],
    [1, 2, 3],
    [0, 0, 0],
    ["a", "b", "c"],
    [[1]],
    {},
    {"a": 1},
)


def keys_of(tables, before=""):
    """Yield (key, the names that it accepts, if any) of tables of a case: ``table.key``."""
    for name, field in tables.model_fields.items():
        names = [one for kind in field.metadata if isinstance(kind, OneOf) for one in kind.names]
        yield before + name, names
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Table):
                yield from keys_of(kind, f"{before}{name}.")


KEYS = {
    name: dict(keys_of(case))
    for name, case in (
        ("spectral", SpectralCase),
        ("lattice", LatticeCase),
        ("advection", AdvectionCase),
    )
}
ATOMS = (
    "x",
    "y",
    "z",
    "t",
    "pi",
    "0",
    "1",
    "2",
    "0.5",
    "1e3",
    "1e-300",
    "1e400",
    "9",
    "30",
    "sin(x)",
    "cos(2*y)",
    "exp(z)",
    "sqrt(x)",
    "log(0)",
    "abs(y)",
    "tanh(x - pi)",
    "w",
    "__import__",
    "'a'",
    "sin",
    "()",
    "",
    "١",
    "x_1",
    "nan",
    "inf",
    "1j",
    "True",
    "[1]",
    "lambda: 0",
    "x.real",
    "x[0]",
)
WAVES = ("sin(x)", "cos(y)", "cos(2*z)", "sin(x + y)", "sin(3*y)", "0.5", "2", "exp(cos(x))", "t")
OPERATORS = ("+", "-", "*", "/", "**", "%", "//", " ", ",", "==", "@", ":=", "^", "\n", "#")


@dataclass
class Outcome:
    """Outcome of one command: its exit status, its output and its processor time in seconds."""

    status: int | None
    output: str
    processor: float
    interrupted: bool

    @property
    def defect(self) -> str:
        """Defect of the outcome; nothing if the command ended as it should."""
        if self.status is None:
            return "did not end"
        if self.interrupted and self.status == -signal.SIGTERM:
            return ""  # before it had begun to step
        if self.status not in (0, 1, 2, 75):
            return f"exit status {self.status}"
        if "Traceback" in self.output:
            return "traceback"
        if self.status == 2 and self.processor > REFUSAL:
            return f"refused after {self.processor:.1f} s"
        errors = [line for line in self.output.splitlines() if line.startswith("slipstream:")]
        if self.status and len(errors) != 1:
            return f"{len(errors)} lines report the failure"
        if self.status == 2 and re.search(r"[\x00-\x08\x0b-\x1f]", errors[0]):
            return "control characters in the message"
        return ""


def literal(value):
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
    return str(value)


def as_toml(tables):
    lines = [f"{key} = {literal(v)}" for key, v in tables.items() if not isinstance(v, dict)]
    for name, table in tables.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{key} = {literal(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def put(tables, key, value):
    *path, last = key.split(".")
    for name in path:
        if not isinstance(tables.get(name), dict):
            tables[name] = {}
        tables = tables[name]
    tables[last] = value


def damaged_case(draw):
    """Return the text of a case with one to four things changed, legal ones among them."""
    text = draw.choice(CASES)
    if draw.random() < 0.1:
        return _damaged_text(draw, text)
    tables = tomllib.loads(text)
    family = tables["solver"]
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        kind = draw.random()
        keys = KEYS[family if draw.random() < 0.95 else draw.choice(sorted(KEYS))]
        present = {
            f"{t}.{k}": v for t, u in tables.items() if isinstance(u, dict) for k, v in u.items()
        }
        key = draw.choice(sorted(present or keys) if kind < 0.5 else sorted(keys))
        if kind > 0.95 and present:
            table, name = draw.choice(sorted(present)).split(".", 1)
            tables[table].pop(name)
        elif kind > 0.92:
            put(tables, key[:-1], draw.choice(VALUES))
        else:
            put(tables, key, _value(draw, present.get(key), keys.get(key)))
    return as_toml(tables)


def _value(draw, value, names):
    """Return another value for a key: one that may be legal, or anything."""
    if draw.random() < 0.3:
        return draw.choice(VALUES)
    if names:
        return draw.choice(names)
    if isinstance(value, list) and value:
        where = draw.randrange(len(value))
        return [_value(draw, v, None) if n == where else v for n, v in enumerate(value)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((value + 1, value - 1, 2 * value, -value, 1000 * value, value + 0.5))
    if isinstance(value, float):
        return value * draw.choice((-1, 0, 0.1, 0.5, 2, 10, 1e-6, 1e6))
    return draw.choice((1, 2, 3, 5, 0.5, 0.01, 0.1, 1e-3, 1.5, 2.0, True, [1, 2], [1, 2, 3], "x"))


def _damaged_text(draw, text):
    letters = list(text)
    for _ in range(draw.choice((1, 2, 5, 20))):
        where = draw.randrange(len(letters))
        kind = draw.random()
        if kind < 0.4:
            letters[where] = chr(draw.choice((0, 10, 34, 61, 91, 93, 123, 255, 0x2028, 0x1F600)))
        elif kind < 0.7:
            del letters[where : where + draw.randrange(1, 8)]
        else:
            letters.insert(where, draw.choice(("[", "]", '"', "=", "\n", ".", "'''", "\\")))
    return "".join(letters)


def formula(draw, sensible, depth=3):
    """Return a formula: of waves, if it is to be a sensible one, or of anything."""
    if depth == 0 or draw.random() < 0.3:
        return draw.choice(WAVES if sensible else ATOMS)
    left, right = (formula(draw, sensible, depth - 1) for _ in range(2))
    kind = draw.random()
    if sensible:
        return f"({left} {draw.choice('+-*')} {right})"
    if kind < 0.6:
        return f"{left}{draw.choice(OPERATORS)}{right}"
    if kind < 0.8:
        return f"({left})*({right})"
    return f"{draw.choice(('sin', 'cos', 'exp', 'sqrt', 'log', 'abs', 'f', '-'))}({left})"


def heavy_formula(draw, depth=0):
    """Return a formula that would take long, or all memory, if nothing bounded it."""
    kind, number = draw.randrange(8), draw.choice((2, 9, 30, 300, 999, 10**9, 10**30))
    inner = draw.choice(WAVES) if depth > 2 else heavy_formula(draw, depth + 1)
    if kind == 0:
        return f"({inner})**{number}"
    if kind == 1:
        return f"{number}**({inner})"
    if kind == 2:
        name, count = draw.choice(FUNCTIONS), draw.choice((1, 2, 10, 39, 50))
        return f"{name}(" * count + inner + ")" * count
    if kind in (3, 4, 5):
        operator, count = draw.choice("+-*/"), draw.choice((2, 5, 20, 80, 400))
        waves = (
            "sin({i}*x)",
            "(x + {i})",
            "cos({i}*y + t)",
            "exp({i})",
            "sqrt({i})",
            "(t - {i}*z)",
        )
        wave = draw.choice((*waves, "log({i}*x)", "({i} + y)**2"))
        return "(" + operator.join(wave.format(i=i) for i in range(1, count + 1)) + ")"
    if kind == 6:
        return f"({inner})*({heavy_formula(draw, depth + 1) if depth < 2 else inner})"
    return f"{draw.choice(('sin', 'exp', 'log', 'Abs', 'sign'))}({number}*{inner})"


def case_with_formula(draw):
    """Return the text of a case one of whose formulas is a random one."""
    tables = tomllib.loads(FORMULA)
    text = formula(draw, sensible=draw.random() < 0.4)
    if draw.random() < 0.2:
        text = heavy_formula(draw)
    where = draw.randrange(4)
    if where == 0:
        tables["initial"]["fields"]["buoyancy"] = text
    elif where == 1:
        tables["initial"]["fields"]["velocity"][draw.randrange(3)] = text
    elif where == 2:
        tables["forcing"]["formula"][draw.randrange(3)] = text
    else:
        tables["equation"]["diffusivity"] = text
    return as_toml(tables)


class Worker:
    """A process, forked from this one and its modules, in which commands run one after the other.

    So a command costs little, and meets what earlier ones have left behind. What runs for long is
    told to stop; if that, or anything else, ends the process, the next command gets a new one.
    """

    def __init__(self, whole_every=1):
        """Run every `whole_every`-th command to the end, the rest for one step only."""
        self._whole_every, self._child = whole_every, None

    def run(self, arguments, folder):
        """Run ``slipstream`` with some arguments in a folder; return its `Outcome`."""
        if self._child is None:
            self._fork()
        Path(folder, "output.txt").write_bytes(b"")
        self._send.write(json.dumps([arguments, str(folder)]) + "\n")
        self._send.flush()
        answer = self._answer(PATIENCE)
        interrupted = answer is None
        if interrupted:
            # A legal case may ask for much: it must stop on request.
            os.kill(self._child, signal.SIGTERM)
            answer = self._answer(STOPPING)
        if answer is None:
            os.kill(self._child, signal.SIGKILL)
            self._end()
            answer = (None, math.inf)
        elif answer[0] == "ended":
            answer = (self._end(), 0.0)
        output = Path(folder, "output.txt").read_text(errors="replace")
        return Outcome(answer[0], output, answer[1], interrupted)

    def _fork(self):
        there, self._send = (
            os.fdopen(one, mode) for one, mode in zip(os.pipe(), "rw", strict=True)
        )
        self._receive, back = (
            os.fdopen(one, mode) for one, mode in zip(os.pipe(), "rw", strict=True)
        )
        self._child = os.fork()
        if self._child == 0:
            self._send.close()
            self._receive.close()
            _serve(there, back, self._whole_every)
        there.close()
        back.close()

    def _answer(self, seconds):
        """Return status and processor time; "ended" if the process did; None if it takes more."""
        until, began = time.monotonic() + IDLE, _processor_time(self._child)
        while time.monotonic() < until:
            if select.select([self._receive], [], [], 0.05)[0]:
                line = self._receive.readline()
                return tuple(json.loads(line)) if line else ("ended", 0.0)
            if _processor_time(self._child) - began > seconds:
                break
        return None

    def _end(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        self._child = None
        self._send.close()
        self._receive.close()
        return status

    def close(self):
        if self._child is not None:
            self._send.close()
            os.waitpid(self._child, 0)
            self._receive.close()
            self._child = None


def _processor_time(process):
    # Fields 14 and 15, counted from behind the name in parentheses.
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _serve(orders, answers, whole_every):
    """Run commands until there are no more; never return."""
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), write_through=True)
        import typer

        from slipstream import cli

        # Typer makes its commands again for each call, which takes longer than most refusals.
        cli.app = typer.main.get_command(cli.app)
        running = importlib.import_module("slipstream.runs.run_case")
        whole = running.run_case
        for number, order in enumerate(orders):
            arguments, folder = json.loads(order)
            is_whole = whole_every and number % whole_every == 0
            running.run_case = whole if is_whole else _begin_case
            os.chdir(folder)
            descriptor = os.open("output.txt", os.O_WRONLY | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.close(descriptor)
            began = time.process_time()
            status = _status_of(arguments)
            answers.write(json.dumps([status, time.process_time() - began]) + "\n")
            answers.flush()
    os._exit(0)


def _status_of(arguments):
    from slipstream import cli

    try:
        cli.main(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 98
    except BaseException:
        traceback.print_exc()
        return 99
    return 0


def _begin_case(simulation, *_, **options):
    """Do what a run does of a case, but for its output: the first step too."""
    description(simulation)
    simulation.prepare()
    simulation.warnings()
    simulation.advance(min(simulation.step_size(), 1.0))
    print(simulation.step, sorted(simulation.diagnostics().items()))


def run_case_text(text, folder, worker):
    """Write a case into a folder, and run it there."""
    # Some texts are no text of TOML: surrogates cannot occur, all else may.
    Path(folder, "case.toml").write_text(text, encoding="utf-8")
    return worker.run(["run", "case.toml", "--device", "cpu", "--out", "out"], folder)


def warm_up():
    """Run each kind of case, so that forked processes have its modules and kernels."""
    from slipstream import cli

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        for number, text in enumerate(CASES):
            path = Path(folder, f"{number}.toml")
            path.write_text(text)
            with contextlib.redirect_stdout(nothing), contextlib.suppress(SystemExit):
                cli.main(["run", str(path), "--device", "cpu", "--out", f"{folder}/{number}"])


def examples(make, count, seed, quick=False, start=0):
    """Yield (example, outcome) for this number of examples."""
    worker = Worker(whole_every=20 if quick else 1)
    for number in range(start, start + count):
        text = make(random.Random(f"{seed}-{number}"))
        with tempfile.TemporaryDirectory() as folder:
            yield text, run_case_text(text, folder, worker)
    worker.close()


def use_one_thread():
    """Begin again with one thread: a process that has used several of OpenMP cannot be forked."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--formulas", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first example")
    parser.add_argument(
        "--quick", action="store_true", help="of most cases that are accepted, one step only"
    )
    parser.add_argument("--show", action="store_true", help="print each message")
    wanted = parser.parse_args()
    use_one_thread()
    warm_up()
    defects = 0
    for name, make, count in (
        ("cases", damaged_case, wanted.cases),
        ("formulas", case_with_formula, wanted.formulas),
    ):
        statuses, slowest = Counter(), 0.0
        found = examples(make, count, f"{name}-{wanted.seed}", wanted.quick, wanted.start)
        for number, (text, outcome) in enumerate(found, wanted.start):
            statuses[outcome.status] += 1
            if outcome.status == 2:
                slowest = max(slowest, outcome.processor)
            if wanted.show:
                print(f"{number}: {outcome.status} {outcome.output.strip()[-200:]}")
            if outcome.defect:
                defects += 1
                print(f"--- {name} {number}: {outcome.defect}\n{text}\n{outcome.output[-1500:]}")
        print(f"{name}: {count}, by status {dict(statuses)}, slowest refusal {slowest:.2f} s")
    print(f"{defects} defects")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
