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
from quick_pictures import quick_pictures
from slipstream.api.field_views import FieldView
from slipstream.api.opened_run import OpenedRun
from slipstream.api.settings import NamedViews
from slipstream.api.spectral_flow import ModesView
from slipstream.engine.decomposition import GridBoxes
from slipstream.engine.device import host_compiler
from slipstream.case.table import Table
from slipstream.engine.errors import SlipstreamError, plain_value
from slipstream.engine.fields import Field
from slipstream.engine.processes import world_comm
from slipstream.engine.schedule import Timeline
from slipstream.engine.fft.transform_parts import Modes
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
# The most steps of a run: others are legal, and longer.
STEPS = 6
PACKAGE = str(Path(ss.__file__).parent)

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
EXPRESSIONS = (
    "velocity",
    "velocity_x",
    "vorticity",
    "dot(velocity, velocity)",
    "velocity_x*velocity_z",
    "curl(velocity)",
    "pressure",
    "tracer",
    "buoyancy",
    "density",
    "x",
    "1",
)


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


def wrong(draw):
    """Return a value of some kind."""
    return draw.choice(
        (
            lambda: None,
            lambda: draw.choice((-1, 0, 1, 2, 3, 7, 2**31, 2**63, -(2**70), 10**30)),
            lambda: draw.choice((0.0, -0.5, 0.5, 1e-300, 1e300, 1e308, math.nan, math.inf)),
            lambda: draw.choice((True, False, 1j, b"y", max, int, object(), Ellipsis, slice(1))),
            lambda: draw.choice(
                ("", "x", "velocity", "../x", "a\0b", "é\u202e", "\x1b[2J", "9" * 300)
            ),
            lambda: draw.choice(([], [1], [1, "a"], (1, 2, 3), [[1], [1, 2]], {1, 2}, range(3))),
            lambda: draw.choice(({}, {"a": 1}, {1: 2}, {"kind": "x"}, {"flow": []})),
            lambda: draw.choice((np.float32(0.5), np.int64(2), np.bool_(True), np.float64("nan"))),
            lambda: array(draw, (3,)),
            lambda: array(draw, draw.choice(((), (0,), (8, 8, 8), (3, 8, 8, 8), (2, 3), (4, 0)))),
            lambda: draw.choice((Path("x"), np.dtype("f4"), np.array(["a"]), np.array(None))),
        )
    )()


def array(draw, shape):
    """Return an array of a shape, of any type, byte order and place in memory."""
    values = np.random.default_rng(draw.randrange(2**32)).standard_normal(shape)
    kind = draw.random()
    if kind < 0.45:
        return values
    if kind < 0.55:
        values = values.copy()
        values.flags.writeable = False
        return values
    if kind < 0.65 and values.size:
        values = values.copy()
        values.flat[draw.randrange(values.size)] = draw.choice((math.nan, math.inf, 1e300))
        return values
    if kind < 0.75:
        return np.asfortranarray(values)
    if kind < 0.8:
        return np.repeat(values[..., None], 2, -1)[..., 0]
    return values.astype(
        draw.choice(
            (">f8", ">f4", "<f4", "f2", "i1", ">i4", "u8", "?", "c16", ">c8", "O", "g", "U8")
        )
    )


def field_values(draw, view):
    """Return values for a field, most of them of its shape."""
    shape = getattr(view, "shape", (3,))
    return draw.choice(
        (
            lambda: 0.1,
            lambda: array(draw, shape),
            lambda: array(draw, shape),
            lambda: array(draw, shape[1:]),
            lambda: array(draw, (*shape[:-3], 4, 4, 4)),
            lambda: array(draw, shape).tolist(),
            lambda: wrong(draw),
        )
    )()


def index(draw):
    return draw.choice(
        (
            ...,
            ...,
            0,
            -1,
            slice(None),
            slice(1, 3),
            slice(None, None, -2),
            (0, 1),
            (..., 1),
            (slice(None), 0),
            np.array([0, 1]),
            None,
            99,
            -99,
            "a",
            1.5,
            (0,) * 6,
            [0, 1],
            True,
            {},
        )
    )


# Right values of arguments, by their names, of an object of a session.
GOOD = {
    "steps": lambda draw, it, _: draw.choice((1, 2, 2, 3, np.int64(2), STEPS)),
    "until": lambda draw, it, _: it.time + draw.choice((0.01, 0.02, 0.5)) if has_time(it) else 0.05,
    "wall": lambda draw, *_: draw.choice((0.5, 1, np.float32(0.2))),
    "progress": lambda draw, *_: draw.choice((False, False, None)),
    "output": lambda draw, it, folder: str(folder / draw.choice(("run", "run-2", "run-3"))),
    "overwrite": lambda draw, *_: draw.random() < 0.7,
    "interval": lambda draw, *_: draw.choice((0.01, 0.05, 1, 2)),
    "every": lambda draw, *_: draw.choice((0.01, 0.02, 2)),
    "call": lambda draw, *_: draw.choice((lambda sim: None, lambda sim: sim.time, print_nothing)),
    "field": lambda draw, it, _: draw.choice(names_of(it)),
    "plane": lambda draw, *_: (draw.choice("xyz"), draw.choice((0, 0.5, None, np.float32(1)))),
    "line": lambda draw, *_: (draw.choice("xyz"), (0.1, 0.2)),
    "box": lambda draw, *_: {draw.choice("xyz"): (0, 1)},
    "stride": lambda draw, *_: draw.choice((1, 2, (1, 2, 2))),
    "profile": lambda draw, *_: draw.choice("xyz"),
    "phases": lambda draw, *_: draw.choice((1, 2)),
    "batch": lambda draw, *_: draw.choice((0.05, 0.1, 4)),
    "precision": lambda draw, *_: draw.choice(("float32", "float64")),
    "format": lambda draw, *_: draw.choice(("zarr", "hdf5", "vtk")),
    "size": lambda draw, *_: 64,
    "frames_per_second": lambda draw, *_: 5,
    "file": lambda draw, it, folder: draw.choice(
        ("a.zarr", "b.h5", "c.vti", "d.png", str(folder / "e.zarr"), folder / "f.gif", "no/g.h5")
    ),
    "folder": lambda draw, it, folder: draw.choice((folder / "states", str(folder / "run"))),
    "path": lambda draw, it, folder: folder / draw.choice(("a.vti", "b.h5", "c.zarr", "d.hdf5")),
    "expression": lambda draw, *_: draw.choice(EXPRESSIONS),
    "other": lambda draw, *_: draw.choice(EXPRESSIONS),
    "of": lambda draw, it, _: draw.choice(
        (*EXPRESSIONS, list(EXPRESSIONS[1:3]), {"h": "velocity_x"})
    ),
    "kind": lambda draw, *_: draw.choice(
        ("transfer", "structure", "pdf", "correlation", "anisotropic")
    ),
    "range": lambda draw, *_: draw.choice((None, (-1, 1), [(-1, 1), (0, 2)])),
    "bins": lambda draw, *_: draw.choice((5, 10, (4, 5), np.int32(3))),
    "means": lambda draw, *_: draw.choice(((), "velocity_x", ["velocity_x", "velocity_y"])),
    "axis": lambda draw, *_: draw.choice(("x", "y", "z", 0, 1, 2, -1)),
    "position": lambda draw, *_: draw.choice((0, 0.3, 7.0, -1.0, np.float32(0.5))),
    "points": lambda draw, *_: draw.choice(([[0.1, 0.2, 0.3]], np.zeros((2, 3)), np.ones((0, 3)))),
    "root": lambda draw, *_: draw.choice((0, None, np.int8(0))),
    "gather": lambda draw, *_: draw.random() < 0.5,
    "name": lambda draw, it, _: draw.choice(
        ("energy", "energy_spectrum", "velocity_x", "time", "pore")
    ),
    "since": lambda draw, *_: draw.choice((0, 0.01, np.float32(0.01))),
    "time": lambda draw, *_: draw.choice((0, 0.01, 0.015, 2)),
    "step": lambda draw, *_: draw.choice((0, 1, 2, 3)),
    "settings": lambda draw, *_: draw.choice(
        ({"time.end": 0.08}, ["time.max_steps=8"], {"equation.viscosity": 0.2}, (), {"title": "x"})
    ),
    "state": lambda draw, it, _: draw.choice((*getattr(it, "states", ()), None)),
    "from_state": lambda draw, *_: draw.random() < 0.5,
    "device": lambda draw, *_: draw.choice(("cpu", "auto")),
    "u": lambda draw, it, _: part(draw, it, "input"),
    "v": lambda draw, it, _: part(draw, it, "input"),
    "u_hat": lambda draw, it, _: part(draw, it, "output"),
    "out": lambda draw, it, _: None,
    "stream": lambda draw, *_: None,
    "lengths": lambda draw, *_: draw.choice((None, 1, 2.5, (1, 2, 3), [1.0, 1, 1])),
    "order": lambda draw, *_: draw.choice((1, 2, 0)),
    "padding": lambda draw, *_: draw.choice(("3/2", 2, (2, 2, 2))),
    "length": lambda draw, *_: 2.5,
    "array": lambda draw, *_: array(draw, draw.choice(((8, 8, 8), (2, 8, 8, 8), (8, 8)))),
    "arrays": lambda draw, *_: {"a": array(draw, (8, 8, 8))},
    "boxes": lambda draw, *_: [((0, 0, 0), (8, 8, 8))],
    "source": lambda draw, *_: [((0, 0, 0), (8, 8, 8))],
    "target": lambda draw, *_: [((0, 0, 0), (8, 8, 8))],
    "widths": lambda draw, *_: draw.choice((1, (1, 0, 2))),
    "periodic": lambda draw, *_: draw.choice((True, (True, False, True))),
    "fill": lambda draw, *_: draw.choice((0, 1.5)),
    "values": lambda draw, *_: array(draw, (12,)),
    "times": lambda draw, *_: draw.choice(([0.02, 0.04], np.linspace(0, 1, 12), (2,), range(1, 3))),
    "shape": lambda draw, *_: draw.choice(((8, 8, 8), (8, 6, 10))),
    "grid": lambda draw, *_: draw.choice(((1, 1, 1), (2, 1, 1))),
    "start": lambda draw, *_: (0, 0, 0),
    "stop": lambda draw, *_: (8, 8, 8),
    "ranks": lambda draw, *_: draw.choice((1, 2, None)),
    "truncation": lambda draw, *_: draw.choice((None, "2/3", "nyquist", (2, 2, 2))),
    "real": lambda draw, *_: draw.random() < 0.5,
    "number": lambda draw, *_: draw.choice((0, 1, -1)),
}


def print_nothing(*_):
    """A function of any arguments."""


def has_time(it):
    return isinstance(it, ss.InteractiveSimulation)


def names_of(it):
    try:
        return [*it.fields, "vorticity"]
    except Exception:
        return ["velocity"]


def part(draw, it, side):
    """Return an array of a plan's shape."""
    try:
        like = it.empty_input() if side == "input" else it.empty_output()
    except Exception:
        return array(draw, (8, 8, 8))
    values = array(draw, like.shape)
    return (
        values.astype(like.dtype) if draw.random() < 0.8 and values.dtype.kind in "fiub" else values
    )


# -- what is made --------------------------------------------------------------------------------


def some(draw, most, options):
    """Draw some of the options, each a function of the draw or a tuple of values."""
    names = draw.sample(sorted(options), draw.randint(0, min(most, len(options))))
    return {name: draw.choice(options[name]) for name in names}


FLOW = {
    "step": (0.01, np.float32(0.01)),
    "cfl": (0.5, 1),
    "max_step": (0.02,),
    "integrator": ("rk2", "rk3", "rk4"),
    "precision": ("float32", "float64"),
    "dealiasing": ("2/3", "phase-shift", "none"),
    "integrating_factor": (True, False),
    "length": (1, "2 pi", (1, 2, 3), ["pi", "2 pi", 1.0]),
    "scalars": (1, 2, {"name": "temperature", "diffusivity": 0.1}),
    "particles": (10, {"number": 6, "name": "dust", "kind": "inertial", "response_time": 0.1}),
    "title": ("a title",),
    "time": ({"end": 0.05}, {"max_steps": 4}, {"end": 0.05, "wall": "60s"}, {"step": 0.02}),
    "run": ({"decomposition": "slab"}, {"memory": "1 GiB"}, {}),
    "output": ({"diagnostics_interval": 0.02}, {"pictures": False}, {"spectra_interval": 0.02}),
    "forcing": ({"kind": "abc", "amplitude": 0.1}, {"kind": "random", "injection": 0.1}, "abc"),
    "initial": (
        "taylor-green",
        "abc",
        {"flow": "random", "seed": 2},
        {"velocity": ["sin(z)", "0", "cos(x)"]},
        {"velocity": lambda x, y, z: (0 * x + np.sin(z), 0, 0)},
        {"velocity": np.zeros((3, 4, 4, 4))},
    ),
    "bodies": ({"shape": "sphere", "radius": 0.5},),
}
TURBULENCE = FLOW | {
    "viscosity_power": (1, 2),
    "rotation": (0.5, (0, 0, 1.0)),
    "drag": (0.1,),
    "hypoviscosity": (0.1,),
    "shear": (0.0,),
}
MODELS = {
    "hd": {"viscosity": 0.1},
    "mhd": {"viscosity": 0.1, "resistivity": 0.1},
    "boussinesq": {"viscosity": 0.1, "diffusivity": 0.1, "buoyancy_frequency": 1.0},
    "gpe": {},
    "hd2d": {"viscosity": 0.1},
}
POROUS = {
    "relaxation_time": (0.8, np.float32(0.9)),
    "magic": (0.25,),
    "force": (1e-6,),
    "pressure_drop": (1e-4,),
    "inertia": (True, False),
    "viscosity": (1e-6,),
    "pressure_gradient": (1.0,),
    "density": (1000.0,),
    "pore": (1, (1, 2), True),
    "crop": (((0, 8), (0, 6), (2, 8)),),
    "mirror": (True, "x", ("x", "y")),
    "buffer": (2,),
    "walls": ("x", "xy"),
    "isolated": ("keep", "remove"),
    "tolerance": (1e-2, 1e-3),
    "interval": (10, 20),
    "vectors": (0, 4),
    "coarse_start": (True, False),
    "precision": ("float32", "float64"),
    "axis": ("x", "z", "all"),
    "voxel_size": (1e-6, np.float64(2e-6)),
    "max_steps": (40, 60, np.int64(20)),
    "storage": (
        {"layout": "stream"},
        {"precision": "float32"},
        {"propagation": "aa", "order": "raster"},
    ),
    "schedule": ("serial", "overlap"),
    "numerics": ({"precision": "float32"}, {"layout": "stream"}),
    "run": ({"schedule": "serial"}, {"schedule": "overlap"}),
}
ADVECTION = {
    "courant": (0.5, (0.5, 0.25, 1.0)),
    "width": (0.2,),
    "precision": ("float32", "float64"),
    "title": ("a title",),
    "run": ({"strategy": "auto"}, {}),
    "output": ({"diagnostics_interval": 0.02},),
}
# Flows with all that a flow can have.
RICH = (
    {"step": 0.01, "initial": "taylor-green", "particles": 10, "scalars": 1},
    {
        "step": 0.01,
        "initial": {"flow": "random", "seed": 2},
        "forcing": "abc",
        "particles": (
            {"number": 6, "name": "dust", "kind": "inertial", "response_time": 0.1},
            {"number": 4, "name": "tracers"},
        ),
    },
    {
        "max_step": 0.02,
        "initial": "abc",
        "rotation": 0.5,
        "forcing": [{"kind": "abc", "amplitude": 0.1}, {"kind": "random", "injection": 0.1}],
    },
    {
        "max_step": 0.02,
        "scalars": {"name": "temperature", "diffusivity": 0.1, "mean_gradient": (0, 0, 1)},
        "initial": "taylor-green",
        "bodies": {"shape": "sphere", "radius": 0.5},
    },
    {
        "cfl": 0.5,
        "initial": "abc",
        "precision": "float32",
        "output": {"spectra_interval": 0.02, "fields_interval": 0.02, "transfer_interval": 0.05},
    },
)
TRANSFORM = {
    "dtype": ("float32", "float64", "complex64", np.complex128, np.dtype(">f8")),
    "axes": (None, (0, 1), (1, 2), 0, (-1,), (2, 0, 1)),
    "kinds": ("fft", "dct2", "dst1", ("dct1", "fft", "fft")),
    "norm": ("backward", "ortho", "forward"),
    "fields": (1, 2, np.int64(3)),
    "layout": ("slab", "pencil", "root"),
    "order": ("transposed", "natural"),
    "truncation": ("2/3", "nyquist", (3, 3, 3)),
    "padding": ("3/2", 2.0),
    "wire": (None, "float32"),
    "schedule": ("serial", "overlap"),
    "residency": ("device", "host", "auto"),
    "workers": (1,),
    "memory": ("1 GiB",),
    "process_grid": ((1, 1), (2, 1)),
    "tune": ("off",),
}


class Session:
    """Objects that are made and called one after the other, in one folder."""

    def __init__(self, draw, folder, comm):
        self.draw, self.folder, self.comm = draw, folder, comm
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


def keys_of(kind):
    from slipstream.api import spectral_flow, tracer_advection

    if kind is ss.Advection:
        return tracer_advection._KEYS
    equation = {
        name: f"equation.{name}"
        for name in (
            "viscosity",
            "viscosity_power",
            "rotation",
            "drag",
            "hypoviscosity",
            "shear",
            "resistivity",
            "diffusivity",
            "buoyancy_frequency",
        )
    }
    return spectral_flow._KEYS | equation


def is_collective(what):
    text = (inspect.getdoc(what) or "").split("Parameters\n")[0]
    return (
        "Collective" in text
        and "Collective at first" not in text
        and "Collective where" not in text
    )


def is_open(it):
    try:
        return not (has_time(it) and it.solver is None)
    except SlipstreamError:
        return False


def is_same(now, given):
    """Return whether a value is what was given, as far as can be told."""
    if isinstance(given, np.dtype | type):
        return str(now) == np.dtype(given).name
    if isinstance(given, str | bytes | Path) or isinstance(now, str | Path):
        return True if "pi" in str(given) else str(now) == str(given)
    try:
        a, b = np.asarray(now, float), np.asarray(given, float)
    except (TypeError, ValueError):
        return True
    if a.shape != b.shape and a.size and b.size and (a.ndim == 0 or b.ndim == 0):
        return bool(np.isclose(a, b).all()) or bool(
            np.isclose(np.linalg.norm(a), np.linalg.norm(b))
        )
    return a.shape == b.shape and bool(np.allclose(a, b, equal_nan=True, rtol=1e-6))


def reads_back(it, name, value):
    try:
        now = getattr(it, name)
    except SlipstreamError as error:
        return f"{name} was set, and cannot be read: {error}"
    value = plain_value(value)
    if value is None or now is None:
        return "" if now is value else f"{name} was set to {shown(value)} and is {shown(now)}"
    return "" if is_same(now, value) else f"{name} was set to {shown(value)} and is {shown(now)}"


def steps_done(it, before, given):
    wanted = int(given.get("steps", 1))
    at_once = it.case.steps_at_once
    done = it.steps - before
    if (
        done == wanted
        or (wanted > STEPS and done >= STEPS - at_once)
        or done < wanted
        and it.finished
    ):
        return ""
    # Other functions may stop it.
    return "" if 0 < done < wanted else f"{wanted} steps were asked for, {done} done"


def reached(it, given):
    """Return what is wrong with the end of a run, which nothing else may have ended."""
    until, steps = given.get("until"), given.get("steps")
    is_at_end = until is None or it.time <= float(until) * (1 + 1e-9)
    return "" if is_at_end else f"the time is {it.time}, until was {until}"


def continued(it, given):
    """Return what is wrong with a state, or a case, that was asked of a run's folder."""
    if given.get("step") is not None and it.steps != given["step"]:
        return f"step {given['step']} was asked for, and is {it.steps}"
    if isinstance(given.get("time"), int | float) and not math.isclose(
        it.time, given["time"], abs_tol=1e-9
    ):
        return f"time {given['time']} was asked for, and is {it.time}"
    settings = given.get("settings", ()) or ()
    if not isinstance(settings, Mapping):
        settings = dict(one.split("=") for one in settings)
    for key, value in settings.items():
        now = it.case
        for word in key.split("."):
            now = getattr(now, word)
        if not is_same(now, value):
            return f"{key} = {value!r} was given, the case has {now!r}"
    return ""


def same_state(it, made):
    if type(made) is not type(it):
        return f"the copy is a {type(made).__name__}"
    if (made.time, made.steps) != (it.time, it.steps):
        return f"the copy is at {made.time}, step {made.steps}; it was at {it.time}, {it.steps}"
    for name in it.fields:
        if not np.array_equal(it.fields[name][...], made.fields[name][...], equal_nan=True):
            return f"the copy has another {name}"
    return ""


def reduces(view, how, given, found):
    """Return what is wrong with a reduction of a field, or a plane of it."""
    if isinstance(view.unit, str) and not np.size(found):
        return ""
    values = view.gather()
    if how == "plane":
        axis = "zyx".index(given["axis"]) - 3
        planes = np.moveaxis(values, axis, 0)
        ok = any(np.array_equal(one, found, equal_nan=True) for one in planes)
        return "" if ok else "the plane is none of the field's"
    flat = values.reshape(*values.shape[:-3], -1).astype(float)
    expected = {"max": flat.max, "min": flat.min, "mean": flat.mean}.get(how)
    with np.errstate(all="ignore"):
        right = np.sqrt((flat**2).mean(-1)) if expected is None else expected(-1)
        return (
            ""
            if np.allclose(
                found, right, rtol=1e-4, atol=1e-6 * np.abs(flat).max(initial=0), equal_nan=True
            )
            else f"{how} is {found}, not {right}"
        )


def shown(value):
    """Return a value in few words."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={shown(one)}" for name, one in value.items())
    if isinstance(value, np.ndarray) and value.size > 3:
        return f"<{value.dtype.str} array of {value.shape}>"
    text = repr(value)
    return text if len(text) < 70 else f"{text[:60]}..."


# -- judging ---------------------------------------------------------------------------------------


def defect_of(error, call):
    """Return what is wrong with an exception; nothing if it is one that users are to get."""
    text = str(error)
    if isinstance(error, SlipstreamError):
        if not text or "\n" in text or not text.isprintable():
            return f"message in several lines, or none: {text!r}"
        if not is_informative(text):
            return f"message without a name: {text!r}"
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    where = f"{last.filename}:{last.lineno} {last.name}"
    is_own = last.filename.startswith(PACKAGE)
    if isinstance(error, TypeError | AttributeError) and last.filename in (__file__, "<string>"):
        return ""  # Python's own: unknown or missing arguments, no such attribute, or a frozen one
    if isinstance(error, TypeError) and " argument" in text and last.name in ("call", "__call__"):
        return ""  # of decorated methods
    if call.is_users and any(f.name in ("__array_ufunc__", "__array_function__") for f in frames):
        return ""
    builtin = TypeError | ValueError | KeyError | AttributeError | IndexError | ImportError
    if is_own and isinstance(error, builtin) and (last.line or "").startswith("raise"):
        return "" if text and "\n" not in text else f"message in several lines: {text!r}"
    return f"{type(error).__name__} at {where}: {text[:200]}"


def is_informative(text):
    return len(text) >= 12


def foreign_warnings(records):
    """Return warnings that NumPy or others issue within the package."""
    return [
        f"{one.category.__name__} at {one.filename}:{one.lineno}: {one.message}"
        for one in records
        if one.filename.startswith(PACKAGE)
        and issubclass(one.category, RuntimeWarning | DeprecationWarning)
    ]


class Fuzz:
    """Calls, counted, with the defects that were found."""

    def __init__(self, comm, show):
        self.comm, self.show = comm, show
        self.endings, self.defects = Counter(), Counter()
        self.messages = Counter()

    def everyone(self, value):
        return [value] if self.comm is None else self.comm.allgather(value)

    def session(self, seed, calls):
        draw = random.Random(seed)
        folder = (
            tempfile.mkdtemp(prefix="calls-") if self.comm is None or self.comm.rank == 0 else None
        )
        folder = Path(folder if self.comm is None else self.comm.bcast(folder))
        before = Path.cwd()
        os.chdir(folder)
        session = Session(draw, folder, self.comm)
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
