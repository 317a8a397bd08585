"""Every column that a run writes is what its name says, computed again from its fields."""

import itertools
import math
import random

import numpy as np
import pytest
import zarr
from rich.console import Console

from flows import diagnostics
from slipstream.case import make_case
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case

AXES = (1, 2, 3)
VECTORS = {"hd": ["velocity"], "boussinesq": ["velocity"], "mhd": ["velocity", "magnetic"]}
SCALARS = {"hd": ["scalar"], "boussinesq": ["buoyancy"], "mhd": []}


def random_case(draw, model, precision):
    """Return the tables of a random legal case."""
    points = [draw.choice((8, 9, 12)) for _ in range(3)]
    if draw.random() < 0.3:
        points[draw.randrange(3)] = 1
    equation = {"model": model, "viscosity": draw.choice((0.0, 0.02, 0.1))}
    extra, diffusivity = draw.choice((0.0, 1.5)), draw.choice((0.0, 0.05))
    equation |= {
        "hd": {},
        "boussinesq": {"buoyancy_frequency": extra, "diffusivity": diffusivity},
        "mhd": {"mean_field": extra, "resistivity": diffusivity},
    }[model]
    if draw.random() < 0.3:
        equation |= {"viscosity_power": 2, "rotation": 0.7}
    case = {
        "grid": {"points": points, "length": [draw.choice((3.0, "2 pi", 9.0)) for _ in range(3)]},
        "equation": equation,
        "initial": {"flow": "random", "seed": draw.randrange(99), "peak_wavenumber": 2.0},
        "time": {
            "end": 0.3,
            "integrator": "rk2",
            **draw.choice(({"step": 0.04}, {"cfl": 0.3, "max_step": 0.1})),
        },
        "numerics": {
            "precision": precision,
            "dealiasing": draw.choice(("2/3", "2/3 sphere")),
            "integrating_factor": draw.choice((True, False)),
        },
        "output": {
            "diagnostics_interval": draw.choice((0.05, 0.1)),
            "fields_interval": draw.choice((0.1, 0.15)),
            "spectra_interval": 0.15,
            "pictures": False,
        },
    }
    if model == "hd":
        case["scalars"] = {"diffusivity": diffusivity, "mean_gradient": [0, 0, extra]}
    if draw.random() < 0.5:
        case["forcing"] = {"kind": "random", "shells": [1, 1], "injection": 0.3}
    return case


class Calculus:
    """Fields at the points of one snapshot, and their Fourier coefficients, in NumPy."""

    def __init__(self, fields, shape, lengths_xyz):
        self.points = fields
        waves = [np.fft.fftfreq(n, L / n / 2 / np.pi) for n, L in zip(shape, lengths_xyz[::-1])]  # noqa: B905
        z, y, x = np.meshgrid(*waves, indexing="ij")
        self.k, self.square = np.stack([x, y, z]), x**2 + y**2 + z**2
        self.over = np.divide(1, self.square, out=np.zeros(shape), where=self.square > 0)

    @staticmethod
    def modes(field):
        return np.fft.fftn(field, axes=AXES) / np.prod(field.shape[1:])

    def vector(self, name):
        return np.stack([self.points[f"{name}_{axis}"] for axis in "xyz"]).astype(float)

    def curl(self, modes):
        return 1j * np.cross(self.k, modes, axis=0)


def mean_product(first, second):
    return float((first.conj() * second).sum().real)


def expected_columns(case, calculus):
    """Return the row and the spectrum expected from the fields of its time."""
    model, equation = case.equation.model, case.equation.parameters
    power, nu = equation["viscosity_power"], equation["viscosity"]
    slower = equation.get("resistivity" if model == "mhd" else "diffusivity", 0.0)
    actual, everything = {"energy": 0.0, "dissipation": 0.0}, 0
    for name in (*VECTORS[model], *SCALARS[model]):
        is_vector = name in VECTORS[model]
        values = calculus.vector(name) if is_vector else calculus.points[name].astype(float)[None]
        modes = calculus.modes(values)
        squares = (np.abs(modes) ** 2).sum(axis=0)
        actual[f"{name}_energy"] = squares.sum() / 2
        if name == "scalar":  # passive: no part of the energy
            own = case.scalars[0]
            actual["scalar_dissipation"] = own.diffusivity * (calculus.square * squares).sum()
            along = own.mean_gradient[2] * calculus.points["velocity_z"] * values[0]
            actual["scalar_production"] = -along.mean(dtype=float)
            continue
        everything = everything + squares
        actual["energy"] += squares.sum() / 2
        rate = nu if name == "velocity" else slower
        actual["dissipation"] += rate * (calculus.square**power * squares).sum()
        if not is_vector:
            continue
        prefix, curl = "" if name == "velocity" else f"{name}_", calculus.curl(modes)
        actual[f"{prefix}enstrophy"] = mean_product(curl, curl) / 2
        actual[f"{prefix}divergence"] = np.sqrt(
            mean_product(*[(calculus.k * modes).sum(axis=0)] * 2)
        )
        if name == "magnetic":
            actual["current_helicity"] = mean_product(modes, curl)
            actual["magnetic_helicity"] = mean_product(calculus.curl(modes) * calculus.over, modes)
        else:
            actual["helicity"] = mean_product(modes, curl)
    return actual, everything


def check(case, folder, precision):
    rows, store = diagnostics(folder), zarr.open_group(folder / "fields.zarr")
    spectra = zarr.open_group(folder / "spectra.zarr")
    shape, lengths = case.grid.points_xyz[::-1], case.grid.lengths_xyz
    tolerance = {"float64": 1e-11, "float32": 2e-5}[precision]
    snapshots = [index for index, time in enumerate(store["time"][:]) if time in rows["time"]]
    # The first and the last state at least.
    assert snapshots[0] == 0 and snapshots[-1] == store["time"].size - 1 > 0
    for index in snapshots:
        time = store["time"][index]
        row = {name: column[rows["time"] == time][0] for name, column in rows.items()}
        fields = {n: store[n][index] for n in store.array_keys() if store[n].ndim == 4}
        calculus = Calculus(fields, shape, lengths)
        wanted, squares = expected_columns(case, calculus)
        scale = 2 * math.sqrt(wanted["energy"] * wanted["enstrophy"])
        for name, value in wanted.items():
            if name in row or not name.endswith(("_energy", "_production")):
                assert row[name] == pytest.approx(value, rel=tolerance, abs=tolerance * scale), name
        curl = calculus.curl(calculus.modes(calculus.vector("velocity")))
        check_scales(case, row, calculus, tolerance)
        magnitude = np.sqrt((np.fft.ifftn(curl * squares.size, axes=AXES).real ** 2).sum(axis=0))
        error = np.abs(fields["vorticity_magnitude"] - magnitude).max()
        assert error <= 50 * tolerance * magnitude.max()
        if time in spectra["time"][:]:
            spectrum = spectra["energy_spectrum"][:][spectra["time"][:] == time][0]
            shells = np.rint(np.sqrt(calculus.square) / spectra["wavenumber"][1]).astype(int)
            sums = np.bincount(shells.ravel(), squares.ravel() / 2)[: spectrum.size]
            np.testing.assert_allclose(spectrum, sums, atol=tolerance * wanted["energy"])
    if case.forcing:
        # Before the first step the power asked for, then the work of the force per step.
        asked = case.forcing[0].injection
        np.testing.assert_allclose(rows["injection"][0], asked, rtol=1e-12)
        np.testing.assert_allclose(rows["injection"], asked, rtol=0.1)
    np.testing.assert_allclose(np.diff(rows["time"]) > 0, True)
    check_budget(rows)


def check_scales(case, row, calculus, tolerance):
    """The scales of isotropic turbulence, where viscosity is the viscosity of a fluid."""
    nu, power = (case.equation.parameters[name] for name in ("viscosity", "viscosity_power"))
    assert ("kmax_eta" in row) == ("taylor_reynolds" in row) == (power == 1 or nu == 0)
    modes, flat = calculus.modes(calculus.vector("velocity")), 1 in case.grid.points_xyz
    modes[:, 0, 0, 0] = 0
    if flat:  # the motion in the plane
        modes[case.grid.points_xyz.index(1)] = 0
    squares = (np.abs(modes) ** 2).sum(axis=0)
    square = squares.sum() / (2 if flat else 3)
    over = (squares * np.sqrt(calculus.over)).sum() / 2
    scales = {
        "rms_velocity": math.sqrt(square),
        "integral_scale": (2 if flat else math.pi / 2) * over / square,
    }
    scales["turnover_time"] = scales["integral_scale"] / scales["rms_velocity"]
    if "kmax_eta" in row and nu > 0:
        curl = calculus.curl(modes)
        lost = nu * mean_product(curl, curl)
        taylor = math.sqrt(square * (8 if flat else 15) * nu / lost)
        smallest, time = (nu**3 / lost) ** 0.25, math.sqrt(nu / lost)
        if flat:
            chi = nu * mean_product(calculus.curl(curl), calculus.curl(curl))
            smallest, time = (nu**3 / chi) ** (1 / 6), chi ** (-1 / 3)
        sides = zip(case.grid.points_xyz, case.grid.lengths_xyz, strict=True)
        # Of n points less than n / 3 waves are kept.
        largest = min((-(-n // 3) - 1) * 2 * math.pi / length for n, length in sides if n > 1)
        name = "kraichnan" if flat else "kolmogorov"
        scales |= {"taylor_scale": taylor, "taylor_reynolds": math.sqrt(square) * taylor / nu}
        scales |= {f"{name}_scale": smallest, f"{name}_time": time, "kmax_eta": largest * smallest}
    for name, value in scales.items():
        assert row[name] == pytest.approx(value, rel=tolerance), name


def check_budget(rows):
    """The residual follows from the rows themselves, by the trapezoidal rule."""
    gain = rows.get("injection", 0 * rows["time"])
    for before, after in itertools.pairwise(range(len(rows["time"]))):
        both = [before, after]
        change = np.diff(rows["energy"][both])[0] / np.diff(rows["time"][both])[0]
        lost, mean = (rows["dissipation"] - gain)[both].mean(), rows["dissipation"][both].mean()
        wanted = (change + lost) / mean if mean > 0 else change + lost
        assert rows["budget_residual"][after] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "model", "precision", "other"),
    [
        (0, "hd", "float64", "float32"),
        (1, "boussinesq", "float32", "float32"),
        (2, "mhd", "float64", "float64"),
    ],
)
def test_columns_are_what_their_names_say(device, tmp_path, seed, model, precision, other):
    draw = random.Random(seed)
    tables = random_case(draw, model, precision)
    case = make_case("spectral", **tables)
    run_case(make_simulation(case, None, device), tmp_path / "first", Console(quiet=True))
    check(case, tmp_path / "first", precision)
    # The same after a restart with other points, another viscosity, and perhaps less precision.
    tables["grid"]["points"] = [n if n == 1 else draw.choice((8, 10)) for n in case.grid.points_xyz]
    tables["initial"] = {"restart": str(tmp_path / "first")}
    tables["equation"]["viscosity"] = 0.03
    tables["time"]["end"] = 0.5
    tables["numerics"]["precision"] = other
    later = make_case("spectral", **tables)
    run_case(make_simulation(later, None, device), tmp_path / "later", Console(quiet=True))
    check(later, tmp_path / "later", other)
