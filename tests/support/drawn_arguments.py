"""Values that random calls are given, by the names of arguments: right ones, and of any kind."""

import math
from pathlib import Path

import numpy as np

import slipstream as ss

# The most steps of a run: others are legal, and longer.
STEPS = 6
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
