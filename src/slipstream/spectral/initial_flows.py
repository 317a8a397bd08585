"""The state at the start of a run, for each ``initial.flow``; the same on any number of ranks.

Rare flows are imported when a case names them. Flows of the literature are formulas of x, y and z.
Boxes need not be cubes: components of a Taylor-Green vortex are scaled so that it is solenoidal in
any box. `waves` are 2 pi over the lengths along x, y and z.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from pathlib import Path
from typing import Any

import numpy as np
import sympy

from slipstream.case.named_tables import PassiveScalar
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.errors import InputError
from slipstream.engine.text import shortened
from slipstream.files.foreign_files import foreign_arrays, own_dataset
from slipstream.files.image_formats import readable
from slipstream.spectral.cfl import LinearOperator, projector
from slipstream.spectral.fields_at_points import fit, set_formulas, set_points, set_values
from slipstream.spectral.formula_parser import (
    check_mirrored,
    check_periodic,
    check_resolution,
    check_resolved,
    check_waves,
    evaluator,
    parsed_components,
)
from slipstream.spectral.kept_modes import unit_wavenumbers
from slipstream.spectral.quantum_fluids import coefficients, is_quantum_fluid
from slipstream.spectral.restart_state import is_other_resolution, resampled, text_of
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, field_of_name, key_of

_FIELDS = "fields.zarr"
# The table `slipstream.case.spectral_case.Initial`; the keys of its flow are not None.
Settings = Any
# By component: functions of x, y, z and a module, NumPy or CuPy.
Formulas = dict[str, Callable[..., Any]]
# Rates that differ by less than this fraction of the largest are equal; smaller rates are 0.
_ROUNDING = 1e-9
# The first zero of Bessel's function J1.
_ZERO = 3.831705970207512
# J0 at that zero.
_J0 = -0.402759395702553
# The number of points of the integral for J1, exact to round-off up to its first zero.
_POINTS = 32


# -- fields from files -----------------------------------------------------------------------------


def read_points(
    path: str, time: int | None, problem: SpectralProblem, comm: Comm
) -> tuple[np.ndarray, list[str]]:
    """Read this rank's points of the state, 0 where the file lacks them, and warnings. Collective.

    `time` is the number of a snapshot, from 0; None is the last, or an array without snapshots.
    """
    return on_every_rank(comm, lambda: _read(Path(path), time, problem))


def _read(path: Path, time: int | None, problem: SpectralProblem) -> tuple[np.ndarray, list[str]]:
    warnings: list[str] = []
    if not os.path.exists(path):  # which accepts names of any length
        raise InputError(f"initial.path: {path}: no such file or folder")
    result = np.zeros((problem.size, *problem.geometry.physical_box.shape), problem.real_dtype)
    with readable(f"initial.path: {path}"), _arrays(path) as arrays:
        names = [str(value) for value in problem.model.unknowns]
        if not set(names) & set(arrays):
            raise InputError(
                f"initial.path: {path} holds no array of the model ({', '.join(names)}); it holds: "
                f"{shortened(', '.join(sorted(arrays)), 400) or 'none'}"
            )
        for name, target in zip(names, result, strict=False):
            if name in arrays:
                what = f"{name} in {path}"
                warnings += _read_component(what, arrays[name], time, problem, target)
    return result, warnings


def _read_component(
    name: str, array: Any, time: int | None, problem: SpectralProblem, target: np.ndarray
) -> list[str]:
    """Read this rank's points of an array into `target`; return warnings."""
    expected, shape = problem.geometry.shape, tuple(array.shape)
    is_other = problem.mirror is None and is_other_resolution(shape[-3:], expected)
    if len(shape) not in (3, 4) or not (is_other or shape[-3:] == expected):
        raise InputError(
            f"initial.path: {name} has shape {shape}; accepted: {expected}, the points of the grid "
            "along z, y and x, another resolution in the same proportions, or with a time axis "
            "before these"
        )
    if np.dtype(array.dtype).kind not in "iuf":
        raise InputError(f"initial.path: {name} is of type {array.dtype}; accepted: real numbers")
    snapshot = _snapshot(name, shape, time)
    planes, rows, _ = problem.geometry.physical_box.slices()
    if is_other and target.size:
        with np.errstate(over="ignore"):
            target[...] = resampled(
                lambda low, high: array[(*snapshot, slice(low, high))],
                shape[-3:],
                expected,
                problem.geometry.physical_box,
            )
    elif target.size:
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            target[...] = array[(*snapshot, planes)][:, rows]
    if not np.isfinite(target).all():
        raise InputError(
            f"initial.path: {name} has values that are infinite or not a number (NaN); accepted: "
            f"numbers within the range of {target.dtype}"
        )
    return [f"initial.path: {text_of(name, shape[-3:], expected)}"] if is_other else []


def _snapshot(name: str, shape: tuple[int, ...], time: int | None) -> tuple[int, ...]:
    """Return the index along the time axis; empty for an array without one."""
    if len(shape) == 3:
        if time is not None:
            raise InputError(f"initial.time: {name} has no time axis; leave the key out")
        return ()
    if shape[0] == 0:
        raise InputError(f"initial.path: {name} has no snapshot yet")
    if time is not None and time >= shape[0]:
        raise InputError(
            f"initial.time: {time} is beyond the snapshots of {name}; accepted: 0 to {shape[0] - 1}"
        )
    return (shape[0] - 1 if time is None else time,)


@contextlib.contextmanager
def _arrays(path: Path) -> Iterator[Mapping[str, Any]]:
    """Open a file: its arrays by name, read when they are indexed."""
    import h5py  # imported here, since it takes a while and other flows do not need it

    if path.is_dir():
        inner = path / _FIELDS
        arrays = foreign_arrays(inner if inner.is_dir() else path)
        yield _Arrays({name: array.open for name, array in arrays.items()})
    elif not path.is_file():
        raise InputError(f"initial.path: {path} is not a regular file")
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            members = {name: functools.partial(_Member, archive, name) for name in names}
            yield _Arrays({name.removesuffix(".npy"): member for name, member in members.items()})
    elif h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            yield _Arrays({name: functools.partial(_dataset, file, name) for name in file})
    else:
        raise InputError(
            f"initial.path: {path} is of no known format; accepted: the output folder of a run, a "
            "zarr folder, an HDF5 file, or NumPy's .npz"
        )


class _Arrays(Mapping[str, Any]):
    """Arrays by name, opened on access: others are not inspected."""

    def __init__(self, openers: Mapping[str, Callable[[], Any]]) -> None:
        self._openers = openers

    def __getitem__(self, name: str) -> Any:
        return self._openers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._openers)

    def __len__(self) -> int:
        return len(self._openers)


def _dataset(file: Any, name: str) -> Any:
    dataset = own_dataset(file, name)
    if dataset is None:
        raise ValueError(f"{name} is not a data set")
    return dataset


class _Member:
    """An array of a NumPy archive; its shape is known before it is unpacked."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            self.shape, self._is_transposed, self.dtype = read(file)
            self._start = file.tell()

    def __getitem__(self, index: tuple[Any, ...]) -> np.ndarray:
        """Return some planes, (plane) or (snapshot, plane)."""
        *snapshot, planes = index
        rest = math.prod(self.shape[-2:]) * self.dtype.itemsize
        first = snapshot[0] * self.shape[1] if snapshot else 0
        low, high, _ = planes.indices(self.shape[-3])
        with self._archive.open(self._name) as file:
            if self._is_transposed:
                if snapshot:
                    raise ValueError(f"{self._name} is in Fortran order; accepted: C order")
                whole: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
                wanted: np.ndarray = whole[planes]
                return wanted
            file.seek(self._start + (first + low) * rest)
            content = file.read((high - low) * rest)
        return np.frombuffer(content, self.dtype).reshape(high - low, *self.shape[-2:])


# -- waves of the linear part ----------------------------------------------------------------------


@dataclass(frozen=True)
class Wave:
    """A plane wave."""

    frequency: (
        float  # omega; a positive one travels along its wavevector, a negative one against it
    )
    mode: np.ndarray  # the vector a: complex, by component, of length 1


def waves_of(problem: SpectralProblem, wavevector: tuple[int, int, int]) -> list[Wave]:
    """Return the waves of a wavevector, from the highest frequency to the lowest (negative) one.

    The waves of `gpe` are Bogoliubov waves about psi = 1; waves of other models are about rest.
    """
    k = physical(problem, wavevector)
    matrix, allowed = _linear_part(problem, k), _without_divergence(problem, k)
    rates, modes = np.linalg.eig(allowed.T @ matrix @ allowed)
    modes = allowed @ modes
    rounding = _ROUNDING * np.abs(rates).max(initial=0.0)
    waves, left = [], np.abs(rates.imag) > rounding
    while left.any():
        same = left & (np.abs(rates - rates[left.argmax()]) <= rounding)
        frequency = -float(rates[same].imag.mean())
        waves += [Wave(frequency, mode) for mode in _standard(modes[:, same])]
        left &= ~same
    return sorted(waves, key=lambda wave: -wave.frequency)


def _linear_part(problem: SpectralProblem, k: tuple[float, ...]) -> np.ndarray:
    """Return the matrix that gives the rate of change of a mode."""
    if is_quantum_fluid(problem):
        # For psi = 1 + a + i b: the linear part of the product.
        (alpha, beta), square = coefficients(problem), float(np.dot(k, k))
        return np.array([[0, alpha * square], [-alpha * square - 2 * beta, 0]])
    return LinearOperator(problem).matrix(k)


def _without_divergence(problem: SpectralProblem, k: tuple[float, ...]) -> np.ndarray:
    """Return an orthonormal basis of the solenoidal states, as columns."""
    sizes, columns = np.linalg.eigh(projector(k, problem.size, problem.model.vectors))
    return columns[:, sizes > 0.5]


def _standard(modes: np.ndarray) -> list[np.ndarray]:
    """Return orthonormal modes that depend only on the space that the given columns span.

    Libraries return arbitrary modes, with arbitrary phases, for equal frequencies.
    """
    columns, sizes, _ = np.linalg.svd(modes, full_matrices=False)
    columns = columns[:, sizes > 1e-6]
    result: list[np.ndarray] = []
    for column in (columns @ columns.conj().T).T:
        own = column - sum((np.vdot(other, column) * other for other in result), 0)
        if len(result) < columns.shape[1] and np.linalg.norm(own) > 1e-6:
            result.append(own / np.linalg.norm(own))
    return result


def _wave(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> Formulas:
    """Return the formulas of a wave, by component; `branch` counts as `waves_of` does, from 0.

    The amplitude is the root mean square of all components together (for `gpe` of psi - 1): the
    energy is half its square.
    """
    if problem.model.coefficients:
        raise InputError(
            "initial.flow: 'wave' is for homogeneous models; in this one functions of x, y "
            "and z multiply fields"
        )
    wavevector, branch = settings.wavevector, settings.branch
    text = list(wavevector)
    if not any(wavevector):
        raise InputError(f"initial.wavevector: {text} is not a wave; accepted: a nonzero one")
    check_waves(problem, wavevector, "initial.wavevector")
    if not any(problem.model.linear):
        raise InputError(
            "initial.flow: 'wave' needs a model with waves, and this one has no linear terms but "
            "decay; accepted: rotation, stratification, a mean field, gpe, or another flow"
        )
    waves = waves_of(problem, wavevector)
    if not waves:
        raise InputError(
            f"initial.wavevector: no wave of this model has {text}: every frequency is 0; accepted:"
            " another direction"
        )
    if branch >= len(waves):
        frequencies = ", ".join(f"{wave.frequency:.6g}" for wave in waves)
        raise InputError(
            f"initial.branch: {branch} is beyond the {len(waves)} waves of {text}, which have the "
            f"frequencies {frequencies}; accepted: 0 to {len(waves) - 1}"
        )
    k, strength = physical(problem, wavevector), math.sqrt(2) * settings.amplitude
    result: dict[str, Callable[..., Any]] = {}
    for value, factor in zip(problem.model.components, waves[branch].mode, strict=True):
        rest = 1.0 if is_quantum_fluid(problem) and str(value) == "psi_real" else 0.0
        parts = strength * float(factor.real), strength * float(factor.imag)
        result[str(value)] = functools.partial(_plane_wave, k, *parts, rest)
    return result


def physical(problem: SpectralProblem, wavevector: tuple[int, int, int]) -> tuple[float, ...]:
    """Return a wavevector in radians per unit of length, along x, y and z."""
    lengths = reversed(problem.lengths)
    return tuple(2 * math.pi * n / length for n, length in zip(wavevector, lengths, strict=True))


def _plane_wave(
    k: tuple[float, ...],
    real: float,
    imaginary: float,
    rest: float,
    x: Any,
    y: Any,
    z: Any,
    module: Any,
) -> Any:
    phase = k[0] * x + k[1] * y + k[2] * z
    return rest + real * module.cos(phase) - imaginary * module.sin(phase)


# -- flows by name ---------------------------------------------------------------------------------


def _lamb_dipole(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    """Return the vorticity of a dipole in the middle of the box that moves along x.

    Within the radius it is -2 U k J1(k r) sin(theta) / J0(k R), k R = 3.8317; outside it is 0
    (Meleshko and van Heijst, J. Fluid Mech. 272, 157 (1994)). The speed is that in an unbounded
    plane; the images in a periodic square of side L reduce it by the fraction pi (R / L)^2.
    """
    field_of_name(fields, "vorticity", "initial.flow")
    _, length_y, length_x = problem.lengths
    shorter = min(length_x, length_y)
    size = shorter / 8 if settings.radius is None else settings.radius
    if size > shorter / 2:
        raise InputError(f"initial.radius: {size:g}; accepted: at most {shorter / 2:g}, to fit in")
    k, strength = _ZERO / size, -2 * settings.amplitude * _ZERO / size / _J0

    def vorticity(x: Any, y: Any, z: Any, module: Any) -> Any:
        x, y = x - length_x / 2, y - length_y / 2
        r = module.sqrt(x * x + y * y)
        inside = module.minimum(k * r, _ZERO)
        angles = [2 * math.pi * n / _POINTS for n in range(_POINTS)]
        bessel = sum(module.cos(one - inside * math.sin(one)) for one in angles) / _POINTS
        # Where r is 0 so is J1.
        sine = y / module.maximum(r, 1e-300)
        return strength * module.where(r < size, bessel, 0.0) * sine + 0 * z

    return {"vorticity": vorticity}


@dataclass(frozen=True)
class InitialFlow:
    """A flow for a problem: what sets the state (collective), and warnings of what it loses."""

    set: Callable[[SpectralStep, Comm], list[str]]
    warnings: list[str] = attribute(default_factory=list)


# Returns a flow; refuses one that does not fit the model or the grid.
FlowOf = Callable[[SpectralProblem, Settings, list[FieldParts]], InitialFlow]


def _random(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
    # For scalars in a plane, the vectors that follow from them are random.
    vectors = {
        field.name: slice(field.first, field.first + 3) for field in fields if field.is_vector
    }
    of_plane = {name: first for name, (first, _) in problem.model.plane_vectors.items()}
    if not vectors and not of_plane:
        raise InputError(
            "initial.flow: 'random' is for vectors, and the model has none; accepted "
            "for scalars: formula"
        )

    def set_state(flow: SpectralStep, comm: Comm) -> list[str]:
        from slipstream.spectral.random_field import random_flow

        waves = flow.wavenumbers
        axes = np.ix_(waves.z, waves.y, waves.x)
        for number, name in enumerate([*vectors, *of_plane]):
            part: Any = vectors.get(name)
            signs = problem.signs[part] if part else problem.signs_of_plane(of_plane[name])
            modes = random_flow(
                waves,
                settings.peak_wavenumber,
                settings.amplitude,
                settings.seed + number,
                problem.complex_dtype,
                signs,
            )
            if part is None:
                part = of_plane[name]
                modes = problem.scalar_of_vector(name, modes, axes).astype(modes.dtype)
            target = flow.modes_of(flow.state[part])
            flow.device.run(flow.device.copy(target, modes))
        kept = waves.largest / waves.unit
        if settings.peak_wavenumber <= kept:
            return []
        return [
            f"initial.peak_wavenumber: {settings.peak_wavenumber:g} is beyond the {kept:.3g} that "
            "the grid keeps along every axis: the spectrum ends before its peak; use more points"
        ]

    return InitialFlow(set_state)


def _from_file(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> InitialFlow:
    def set_state(flow: SpectralStep, comm: Comm) -> list[str]:

        values, warnings = read_points(settings.path, settings.time, problem, comm)
        return warnings + set_values(flow, values, "initial.path", comm)

    return InitialFlow(set_state)


def _of_case(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
    expressions = _expressions(settings.fields, fields, "initial.fields", problem)
    warnings: list[str] = []
    for expression, key in expressions.values():
        check_periodic(expression, problem.periods, key)
        warnings += check_resolved(expression, problem, key)
    functions = {name: evaluator(expression) for name, (expression, _) in expressions.items()}
    return InitialFlow(
        lambda flow, comm: set_formulas(flow, functions, "initial.fields", comm), warnings
    )


def taylor_green(amplitude: float, wavenumber: int, waves: Sequence[float]) -> list[str]:
    """Taylor-Green vortex (Taylor and Green, Proc. R. Soc. A 158, 499 (1937)).

    Its energy is ``amplitude^2 (1 + aspect^2) / 16``, where all axes have more than one point; the
    aspect is the length of the box along y over that along x.
    """
    kx, ky, kz = (wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    u, v = amplitude, -amplitude * kx / ky
    return [f"{u!r}*sin({x})*cos({y})*cos({z})", f"{v!r}*cos({x})*sin({y})*cos({z})", "0"]


# By kind of magnetic field: its wavenumber over the flow's; for each component the product of
# sines and cosines along x, y and z; and the contributions to the divergence, which sum to 0.
MAGNETIC_FIELDS = {
    "insulating": (1, ("css", "scs", "ssc"), (1, 1, -2)),
    "conducting": (2, ("scc", "csc", "ccs"), (1, 1, -2)),
    "alternative": (2, ("css", "scs", "ccc"), (1, -1, 0)),
}


def taylor_green_magnetic(
    amplitude: float, wavenumber: int, kind: str, waves: Sequence[float]
) -> list[str]:
    """Magnetic field for a Taylor-Green vortex, of the same energy and symmetries.

    Lee, Brachet, Pouquet, Mininni and Rosenberg, Phys. Rev. E 81, 016318 (2010): the walls between
    the cells of the vortex are insulating or conducting, or the field is the alternative one. All
    axes need more than one point.
    """
    multiple, products, shares = MAGNETIC_FIELDS[kind]
    names = {"s": "sin", "c": "cos"}
    phases = [
        f"{multiple * wavenumber * wave!r}*{axis}" for axis, wave in zip("xyz", waves, strict=True)
    ]
    # Products of three sines or cosines have equal mean squares, so sums of squares are compared.
    strengths = [share / wave for share, wave in zip(shares, waves, strict=True)]
    scale = amplitude * math.hypot(1, waves[0] / waves[1]) / math.hypot(*strengths)
    return [
        "*".join(
            [
                repr(scale * strength),
                *(f"{names[one]}({phase})" for one, phase in zip(product, phases, strict=True)),
            ]
        )
        for strength, product in zip(strengths, products, strict=True)
    ]


def abc(
    amplitude: float, wavenumber: int, coefficients: Sequence[float], waves: Sequence[float]
) -> list[str]:
    """Arnold-Beltrami-Childress flow, ``curl u = m u``; energy amplitude^2 (A^2+B^2+C^2)/2."""
    kx, ky, kz = (wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    a, b, c = (amplitude * value for value in coefficients)
    return [
        f"{a!r}*sin({z}) + {c!r}*cos({y})",
        f"{b!r}*sin({x}) + {a!r}*cos({z})",
        f"{c!r}*sin({y}) + {b!r}*cos({x})",
    ]


def orszag_tang(amplitude: float, waves: Sequence[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang, J. Fluid Mech. 90, 129 (1979), in two dimensions."""
    (kx, ky, _), a = waves, amplitude
    velocity = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({kx!r}*x)", "0"]
    magnetic = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({2 * kx!r}*x)", "0"]
    return velocity, magnetic


# The largest numbers of waves along x, y and z of the flow below.
ORSZAG_TANG_3D_WAVES = (1, 2, 1)


def orszag_tang_3d(amplitude: float, waves: Sequence[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang in three dimensions.

    Mininni, Pouquet and Montgomery, Phys. Rev. Lett. 97, 244503 (2006). Its kinetic energy is
    ``2 amplitude^2``, its magnetic energy ``1.92 amplitude^2``.
    """
    (kx, ky, kz), a = waves, 2 * amplitude
    b, c = 0.8 * a, 0.4 * a
    x, y, z = f"sin({kx!r}*x)", f"sin({ky!r}*y)", f"sin({kz!r}*z)"
    velocity = [f"{-a!r}*{y}", f"{a!r}*{x}", "0"]
    magnetic = [
        f"{-b!r}*sin({2 * ky!r}*y) + {c!r}*{z}",
        f"{b!r}*{x} + {c!r}*{z}",
        f"{c!r}*{x} + {c!r}*{y}",
    ]
    return velocity, magnetic


def _named(
    formulas_of: Callable[[SpectralProblem, Settings, list[FieldParts]], Formulas],
) -> FlowOf:
    """Return a function that makes a flow from the formulas of `formulas_of`."""

    def make(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
        functions = formulas_of(problem, settings, fields)
        return InitialFlow(lambda flow, comm: set_formulas(flow, functions, "initial.flow", comm))

    return make


def _taylor_green(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    check_resolution(problem, settings.wavenumber, settings.flow, "initial")
    waves, sizes = unit_wavenumbers(problem.periods), (settings.amplitude, settings.wavenumber)
    texts = {"velocity": taylor_green(*sizes, waves)}
    if settings.magnetic not in (None, "none"):
        count = MAGNETIC_FIELDS[settings.magnetic][0] * settings.wavenumber
        check_waves(problem, (count,) * 3, "initial.magnetic")
        texts["magnetic"] = taylor_green_magnetic(*sizes, settings.magnetic, waves)
    return _parsed(texts, fields, "initial.flow", problem)


def _abc(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> Formulas:
    check_resolution(problem, settings.wavenumber, settings.flow, "initial")
    sizes, waves = (settings.amplitude, settings.wavenumber), unit_wavenumbers(problem.periods)
    texts = abc(*sizes, settings.coefficients, waves)
    return _parsed({"velocity": texts}, fields, "initial.flow", problem)


def _orszag_tang(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    flow = orszag_tang
    if settings.flow == "orszag-tang-3d":
        check_waves(problem, ORSZAG_TANG_3D_WAVES, "initial.flow")
        flow = orszag_tang_3d
    velocity, magnetic = flow(settings.amplitude, unit_wavenumbers(problem.periods))
    texts = {"velocity": velocity, "magnetic": magnetic}
    return _parsed(texts, fields, "initial.flow", problem)


def _quantum_fluid(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    from slipstream.spectral.quantum_fluids import (
        CURVES,
        quantum_abc,
        quantum_taylor_green,
        solitons,
        vortex_line,
    )

    if settings.flow in CURVES:
        return vortex_line(problem, settings.flow, settings.radius)
    if settings.flow == "solitons":
        return solitons(problem, settings.speed)
    if settings.flow == "quantum-abc":
        check_resolution(problem, settings.wavenumber, settings.flow, "initial")
        strengths = [settings.amplitude * one for one in settings.coefficients]
        has_velocity = any(one.name == "velocity" for one in fields)
        velocity = _abc(problem, settings, fields) if has_velocity else {}
        return quantum_abc(problem, settings.wavenumber, strengths, velocity)
    return quantum_taylor_green(problem, settings.amplitude)


def _parsed(
    texts: dict[str, Any], fields: list[FieldParts], key: str, problem: SpectralProblem
) -> Formulas:
    found = _expressions(texts, fields, key, problem)
    return {name: evaluator(expression) for name, (expression, _) in found.items()}


def _expressions(
    texts: dict[str, Any], fields: list[FieldParts], key: str, problem: SpectralProblem
) -> dict[str, tuple[sympy.Expr, str]]:
    """Return for each component its expression and its key."""
    result: dict[str, tuple[sympy.Expr, str]] = {}
    for name, own in texts.items():
        field = field_of_name(fields, name, key)
        expressions = parsed_components(own, field, key)
        for place, expression in enumerate(expressions):
            check_mirrored(expression, problem, field.first + place, f"{key}.{name}")
            result[field.components[place]] = expression, f"{key}.{name}"
    return result


# -- scalars ---------------------------------------------------------------------------------------


class InitialScalars:
    """The initial formulas of passive scalars."""

    def __init__(
        self, problem: SpectralProblem, scalars: Sequence[PassiveScalar], fields: list[FieldParts]
    ) -> None:
        self.warnings: list[str] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        for number, scalar in enumerate(scalars):
            if scalar.initial is None:
                continue
            key = f"{key_of('scalars', scalars, number)}.initial"
            field = field_of_name(fields, scalar.name, key)
            (expression,) = parsed_components(scalar.initial, field, key)
            check_periodic(expression, problem.periods, key)
            check_mirrored(expression, problem, field.first, key)
            self.warnings += check_resolved(expression, problem, key)
            self._functions[scalar.name] = evaluator(expression)

    def among(self, fields: Sequence[FieldParts]) -> list[FieldParts]:
        """Return the fields among `fields` that have a formula."""
        return [field for field in fields if field.name in self._functions]

    def set(self, flow: SpectralStep, comm: Comm, fields: Sequence[FieldParts]) -> list[str]:
        """Set the fields among `fields` that have a formula; return warnings. Collective."""
        warnings = []
        for field in self.among(fields):
            target = flow.state[field.first : field.first + 1]
            signs = flow.problem.signs[field.first : field.first + 1]
            set_points(flow, target, [self._functions[field.name]], signs)
            warnings += fit(flow, target, field.first, "scalars.initial", comm)
        return warnings


# By the name in a case; a line for people on each is in `slipstream.engine.accepted`.
INITIAL_FLOWS: dict[str, FlowOf] = {
    "taylor-green": _named(_taylor_green),
    "abc": _named(_abc),
    "random": _random,
    "orszag-tang": _named(_orszag_tang),
    "orszag-tang-3d": _named(_orszag_tang),
    "lamb-dipole": _named(_lamb_dipole),
    "quantum-taylor-green": _named(_quantum_fluid),
    "quantum-abc": _named(_quantum_fluid),
    "solitons": _named(_quantum_fluid),
    "vortex-ring": _named(_quantum_fluid),
    "trefoil": _named(_quantum_fluid),
    "cinquefoil": _named(_quantum_fluid),
    "wave": _named(_wave),
    "file": _from_file,
    "formula": _of_case,
}
