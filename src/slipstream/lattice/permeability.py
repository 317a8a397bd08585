"""The permeability of a voxel image, in three lines.

>>> from slipstream.lattice import permeability
>>> result = permeability("rock.tif", voxel_size=2e-6, axis="z")
>>> print(result.k, result.k_millidarcy, result.porosity, result.converged)
"""

from __future__ import annotations

import functools
import math
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from pydantic import ValidationError

from slipstream.case import LatticeCase, validate_case
from slipstream.case.case_loading import explain
from slipstream.case.keyword_options import TYPE_OF_FOLDERS, KeywordOptions, with_options
from slipstream.case.lattice_case import ARRAY, KEYS_OF_SAMPLES, MAX_STEPS
from slipstream.case.table import argument_keys, key_at
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import (
    check_agreement,
    collectively,
    on_all_ranks,
    on_every_rank,
    sum_over_ranks,
)
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device
from slipstream.engine.error_terms import ARGUMENTS, in_terms_of
from slipstream.engine.errors import (
    InputError,
    check_given_once,
    check_positive,
    plain_value,
    whole_number,
)
from slipstream.engine.processes import Interruption
from slipstream.engine.text import shown
from slipstream.files.voxel_images import check_options
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.lattice_report import distance_text, round_off_text, unmatched_text
from slipstream.lattice.lattice_simulation import LatticeSimulation
from slipstream.lattice.permeability_result import (
    CALLBACK,
    CONVERGED,
    INTERRUPTED,
    MOST_STEPS,
    NO_PATH,
    ROUND_OFF,
    AxisFlow,
    Permeability,
    PermeabilityInterrupted,
)
from slipstream.lattice.velocity_set import AXES, TUNED, Storage, axes_of

# The arguments that are keys of cases; samples are chosen by a table `image`.
KEYS = argument_keys(
    LatticeCase,
    [
        *("flow", "image", "convergence", "numerics.precision", "initial.restart"),
        *("run.partition", "run.schedule", "run.transport"),
    ],
    without=[f"image.{key}" for key in ("path", "sample", *KEYS_OF_SAMPLES) if key != "shape"],
)
_ALL_KEYS = {**KEYS, "max_steps": "time.end"}
DEFAULTS = {name: key_at(LatticeCase, key).default for name, key in KEYS.items()}
# Arguments take more than the keys do, and numbers per axis in the order of arrays.
OPTIONS = KeywordOptions(
    LatticeCase,
    KEYS,
    {
        **TYPE_OF_FOLDERS,
        "dtype": ("Any", "dtype"),
        "mirror": ("bool | str | Sequence[str]", "bool, str or sequence of str"),
    },
    {
        "shape": "number of voxels along z, y and x, of raw values",
        "crop": "part to use: first voxel, and last voxel plus one, along z, y and x",
        "mirror": "axes along which the mirror image follows, so that opposite faces match, such as"
        ' "xy"; True for the axis of the flow',
    },
)
# What files may need, and arrays have; and the values that say no more than to leave it out.
_OF_FILES = ("shape", "dtype", "byte_order", "offset", "dataset")
_PLAIN_FILE = {"byte_order": "little", "offset": 0}
_PER_AXIS = {
    "crop": "first and last + 1 along three axes, z, y and x",
    "shape": "three whole numbers for z, y and x, each at least 1",
}


class ImageFlowOptions(TypedDict, total=False):
    """The arguments of `permeability` and `PorousFlow` that are keys of cases."""

    relaxation_time: float | None
    magic: float
    force: float | None
    pressure_drop: float | None
    inertia: bool
    viscosity: float | None
    pressure_gradient: float | None
    density: float | None
    shape: Sequence[int] | None
    pore: int | Sequence[int] | None
    pore_below: float | None
    pore_above: float | None
    dataset: str | None
    dtype: Any
    byte_order: str | None
    offset: int | None
    crop: Sequence[Sequence[int]] | None
    mirror: bool | str | Sequence[str]
    buffer: int
    walls: str | Sequence[str]
    isolated: str
    tolerance: float
    interval: int
    vectors: int
    coarse_start: bool
    precision: str
    partition: str
    schedule: str
    transport: str


class PorousFlowOptions(ImageFlowOptions, total=False):
    """The arguments of `PorousFlow` that are keys of cases."""

    axis: str
    voxel_size: float
    restart: str | Path | None


def case_of_arguments(
    image: Any, arguments: Mapping[str, Any], source: str, tables: Mapping[str, Any] | None = None
) -> tuple[LatticeCase, Any]:
    """Return the case that arguments stand for, and the image unless that is a file.

    The image is None if `tables` have it, whose keys take precedence. `arguments` are some of
    `KEYS`, ``max_steps`` and ``storage``; `source` is the callee, for messages about `tables`.
    """
    given = {key: name for name, key in _ALL_KEYS.items() if name in arguments}
    arguments = {**DEFAULTS, **arguments}
    values = {name: _plain(arguments[name]) for name in _ALL_KEYS}
    for name in ("shape", "crop"):
        if isinstance(values[name], list | tuple):
            values[name] = values[name][::-1]
    along = ("x", "y", "z") if values["axis"] == "all" else (values["axis"],)
    values["mirror"] = None
    if arguments["mirror"] is not DEFAULTS["mirror"]:
        values["mirror"] = mirrored_axes(arguments["mirror"], along) or None
    if isinstance(values["pore"], bool):
        values["pore"] = int(values["pore"])
    if arguments["dtype"] is not None:
        values["dtype"] = _dtype_name(arguments["dtype"])
    values["walls"] = values["walls"] or None
    for name, value in _PLAIN_FILE.items():
        values[name] = None if values[name] == value else values[name]
    keys: defaultdict[str, Any] = defaultdict(dict)
    for name, key in _ALL_KEYS.items():
        table, _, entry = key.partition(".")
        is_default = table in ("image", "run") or DEFAULTS.get(name, ...) is None
        if values[name] is not None or not is_default:
            keys[table][entry] = values[name]
    if arguments["storage"] is not None:
        stored = _storage_keys(arguments["storage"])
        if "numerics.precision" in given and "precision" in stored:
            check_given_once(
                "precision", arguments["precision"], "storage.precision", stored["precision"]
            )
        keys["numerics"] |= stored
        given |= {f"numerics.{name}": "storage" for name in stored}
    in_memory = None
    if isinstance(image, str | os.PathLike):
        keys["image"]["path"] = os.fspath(image)
    elif image is not None:
        in_memory, keys["image"]["path"] = image, ARRAY
        foreign = [name for name in _OF_FILES if name in keys["image"]]
        if foreign:
            with in_terms_of(ARGUMENTS):
                check_options("an array", foreign, ())
    for table, more in (tables or {}).items():
        for entry in more if isinstance(more, Mapping) else ():
            if f"{table}.{entry}" in given:
                name, value = given[f"{table}.{entry}"], keys[table].get(entry)
                check_given_once(name, value, f"{table}[{entry!r}]", more[entry])
        keys[table] = {**keys[table], **more} if isinstance(more, Mapping) else more
    try:
        return validate_case({"solver": "lattice", **keys}, source=source), in_memory  # type: ignore[return-value]
    except InputError as failure:
        if isinstance(failure.__cause__, ValidationError):
            _refuse(failure.__cause__, arguments, tables or {})
        raise


def argument_values(case: LatticeCase) -> dict[str, Any]:
    """Return the values of a case by the arguments that stand for them."""
    return {
        name: functools.reduce(getattr, key.split("."), case) for name, key in _ALL_KEYS.items()
    }


def _plain(value: Any) -> Any:
    """Return numbers of NumPy and other libraries as Python's, and sequences as tuples."""
    if isinstance(value, range | set | frozenset):
        value = tuple(value)
    value = plain_value(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value


def mirrored_axes(mirror: Any, along: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the axes to mirror, where flow is along some."""
    if isinstance(mirror, bool | np.bool_):
        return tuple(along) if mirror else ()
    names = tuple(mirror) if isinstance(mirror, Iterable) else (mirror,)
    if not all(isinstance(name, str) and name in ("x", "y", "z") for name in names):
        raise InputError(
            f"mirror is {shown(mirror)}; accepted: any of x, y and z, True for the axis of the"
            " flow, or False"
        )
    return names


def _dtype_name(dtype: Any) -> str:
    """Return the name of a type of values; the order of its bytes is another argument."""
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise InputError(
            f"dtype is {shown(dtype)}; accepted: a type of numbers, such as 'uint8'"
        ) from None
    if not kind.isnative:
        raise InputError(f"dtype is {shown(dtype)}; byte_order gives the order of bytes")
    name: str = kind.name
    return name


def _storage_keys(storage: Any) -> dict[str, str]:
    """Return the keys of ``numerics`` that a storage stands for."""
    wishes = storage.choices if isinstance(storage, Storage) else storage
    names = (*TUNED, "precision")
    if not isinstance(wishes, Mapping) or not set(wishes) <= set(names):
        raise InputError(
            f"storage is {storage!r}; accepted: a Storage, or a dict of {', '.join(names)}"
        )
    # What is unknown is refused by name.
    Storage(**{name: value for name, value in wishes.items() if value != "auto"})
    return dict(wishes)


def _refuse(
    error: ValidationError, arguments: Mapping[str, Any], tables: Mapping[str, Any]
) -> None:
    """Raise an error in terms of the arguments, unless a key of further tables is at fault."""
    key, message = explain(LatticeCase, error, terms=ARGUMENTS)
    table, _, entry = key.partition("[")[0].partition(".")
    given = tables.get(table)
    if not (isinstance(given, Mapping) and entry in given):
        if entry in _PER_AXIS:  # whose numbers the case has in another order
            message = f"{entry}: {shown(arguments[entry])}; accepted: {_PER_AXIS[entry]}"
        raise InputError(message) from error


@dataclass(frozen=True)
class FlowProgress:
    """The progress of a flow towards its steady state, for callbacks; the same on all ranks.

    Attributes
    ----------
    axis : str
        Direction of the flow.
    step : int
        Number of steps taken.
    permeability : float
        Along the axis, so far: in square metres if the voxel size is known, else in squares of
        voxels.
    residual : float
        Estimated relative distance from the permeability of the steady flow; 1 if it is unknown.
    mach : float
        Largest Mach number.
    seconds : float
        Since the flow began.
    """

    axis: str
    step: int
    permeability: float
    residual: float
    mach: float
    seconds: float


# A flow begins from rest here.
_OPTIONS = replace(
    OPTIONS, keys={name: key for name, key in OPTIONS.keys.items() if name != "restart"}
)


# A callback returns True to stop the flow, and None or False to continue.
Callback = Callable[[FlowProgress], bool | None]


@collectively
@with_options(_OPTIONS)
def permeability(
    image: Any,
    voxel_size: float = DEFAULTS["voxel_size"],
    axis: str = DEFAULTS["axis"],
    *,
    max_steps: int = MAX_STEPS,
    callback: Callback | None = None,
    storage: Storage | Mapping[str, str] | None = None,
    keep_fields: bool = True,
    device: str | Device = "auto",
    comm: Comm = None,
    **options: Unpack[ImageFlowOptions],
) -> Permeability:
    """Compute the permeability of an image from the flow through its pores. Collective.

    Parameters
    ----------
    image : str, pathlib.Path or array
        A file (raw, TIFF, NPY, HDF5, Zarr), a folder of TIFF slices, or an array in the order z, y,
        x (y, x for a single slice); or anything with a ``shape`` and a method ``read(box)``, such
        as a sample of `slipstream.lattice`.
    **options
        Keys of the tables ``[flow]``, ``[image]``, ``[convergence]`` and some others of a case.
    max_steps : int
        Number of steps along each axis after which to stop in any case; even.
    callback : callable, optional
        Called on all ranks at each of these checks with a `slipstream.lattice.FlowProgress`: axis,
        step, permeability, residual, mach, seconds. It returns True to stop the flow along this
        axis, else None or False. An exception on one rank ends the call on all.
    storage : Storage or dict, optional
        How populations are stored, as `Permeability.storage`; or some of the names of `Storage`.
        What is not given is measured. Results differ in the last digits only.
    keep_fields : bool
        Whether to keep velocity and pressure at the pores, in host memory.
    device : {"auto", "cpu", "cuda"} or Device
        Device that computes.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work; all get the same result.

    Returns
    -------
    Permeability
        The permeability, its accuracy, and the flow from which it was computed.

    Raises
    ------
    InputError
        If an argument is not accepted, or the image has no pores.
    RunError
        If flow with inertia becomes unphysically fast, beyond a Mach number of 0.3, or if the
        velocity is not finite.
    PermeabilityInterrupted
        On Ctrl-C, or another signal to end, during the flow: a `KeyboardInterrupt` whose ``result``
        is the result so far. A second Ctrl-C ends it immediately.

    Warns
    -----
    RuntimeWarning
        If no path leads through the pores along an axis, so that k is 0 there; if opposite faces
        do not match, so that pores face solid; if many pores are one or two
        voxels wide, where the flow is not resolved; if flow with inertia is so fast
        that compressibility matters, beyond a Mach number of 0.1; or if the tolerance was not
        reached within the steps allowed.
    """
    if "tolerance" in options:
        check_positive(tolerance=options["tolerance"])
    if callback is not None and not callable(callback):
        raise InputError(f"callback is of type {type(callback).__name__}; accepted: a function")
    if not isinstance(keep_fields, bool | np.bool_):
        raise InputError(f"keep_fields is {shown(keep_fields)}; accepted: True or False")
    most = whole_number("max_steps", max_steps, 1)
    if most % 2:
        raise InputError(f"max_steps is {most}; accepted: even numbers, as steps come in pairs")
    if image is None:
        raise InputError("image is of type NoneType; accepted: a path, or a NumPy array")
    arguments: dict[str, Any] = {
        **options,
        "voxel_size": voxel_size,
        "axis": axis,
        # Those of each axis are limited below.
        "max_steps": (3 if axis == "all" else 1) * most,
        "storage": storage,
    }
    case, in_memory = case_of_arguments(image, arguments, "permeability")
    flow = case.flow
    if comm is not None:
        agreed = {
            "fluid": (flow.relaxation_time, flow.magic, flow.inertia),
            **argument_values(case),
            "max_steps": most,
            "storage": case.numerics,
            "callback": callback is not None,
            "keep_fields": bool(keep_fields),
        }
        check_agreement(comm, agreed)
    simulation = LatticeSimulation(
        case, comm, device, image=in_memory, terms=ARGUMENTS, keeps_fields=bool(keep_fields)
    )
    simulation.prepare()
    if any(simulation.subdomain.unmatched):
        _warn([unmatched_text(simulation.subdomain)])
    looks = _Looks(simulation, callback)
    with Interruption(comm) as interruption:
        while not simulation.finished:
            # On all ranks, so that all stop where warnings are errors.
            if texts := simulation.warnings():
                _warn(texts)
            simulation.end_axis(looks.look(simulation.take_pair(most), interruption))
        if texts := simulation.warnings():
            _warn(texts)
        is_asked = interruption.requested()[0]  # perhaps after the last look
    result = _result(simulation, looks.flows, looks.seconds)
    if is_asked:
        raise on_all_ranks(PermeabilityInterrupted(result))
    endings = [flow.ended for flow in looks.flows]
    if ROUND_OFF in endings:
        tolerance = case.convergence.tolerance
        _warn([round_off_text(result.residual, tolerance, result.storage.precision)])
    if MOST_STEPS in endings:
        distance, left = distance_text(result.residual), looks.left
        _warn(
            [
                f"not converged within max_steps = {max_steps}: the relative distance of k from"
                f" its steady value is {distance}; more steps, or a larger tolerance, help"
                + (
                    f": about {max(2, round(left))} more at its pace by now"
                    if left < math.inf
                    else ""
                )
            ]
        )
    return result


def _warn(texts: Sequence[str]) -> None:
    """Warn the caller of `permeability`, who called through two decorators."""
    for text in texts:
        warnings.warn(text, RuntimeWarning, stacklevel=5)


class _Looks:
    """Calls back at looks at the flows, notices interrupts, and keeps the flows that have ended."""

    def __init__(self, simulation: LatticeSimulation, callback: Callback | None) -> None:
        self._simulation, self._callback = simulation, callback
        self.flows: list[AxisFlow] = []
        # How many steps flows lacked that have come to their last one.
        self.left = 0.0
        self.seconds, self._began = 0.0, time.perf_counter()

    def look(self, ended: str, interruption: Interruption) -> str:
        """Return why the flow along this axis ends now; empty if it continues. Collective."""
        simulation = self._simulation
        is_look = simulation.flow.steps % simulation.case.convergence.interval == 0
        is_look = is_look or ended in (CONVERGED, MOST_STEPS, NO_PATH)
        # Ranks agree on interrupts at looks only, so that no step waits for other ranks.
        if not is_look and (simulation.comm is not None or not interruption.requested()[0]):
            return ""
        is_interrupted = interruption.requested()[0]
        if is_interrupted and ended in ("", MOST_STEPS):
            ended = INTERRUPTED
        if self._callback is not None:
            is_to_stop = self._asks_to_stop(self._callback)
            ended = CALLBACK if is_to_stop and ended not in (CONVERGED, NO_PATH) else ended
        if ended:
            self.seconds += time.perf_counter() - self._began
            if ended == MOST_STEPS:
                self.left = max(self.left, simulation.steadiness.steps_left)
            self.flows.append(simulation.axis_flow(ended, bool(simulation.keeps_fields)))
            self._began = time.perf_counter()
        return INTERRUPTED if is_interrupted else ended

    def _asks_to_stop(self, callback: Callback) -> bool:
        """Return whether the callback returns True on any rank; fail on all if it fails on one."""
        simulation, steadiness = self._simulation, self._simulation.steadiness
        means = steadiness.means()
        progress = FlowProgress(
            AXES[steadiness.axis],
            means.steps,
            means.permeability * simulation.case.image.voxel_size**2,
            steadiness.residual,
            means.sums.mach,
            time.perf_counter() - self._began,
        )

        def ask() -> bool:
            answer = callback(progress)
            if not (answer is None or isinstance(answer, bool | np.bool_)):
                raise InputError(f"callback: returned {answer!r}; accepted: True to stop, or None")
            return bool(answer)

        answer = on_every_rank(simulation.comm, ask)
        return answer if simulation.comm is None else any(simulation.comm.allgather(answer))


def _result(
    simulation: LatticeSimulation, flows: Sequence[AxisFlow], seconds: float
) -> Permeability:
    """Return the result of the flows along all axes. Collective."""
    pores = simulation.found
    size, axes = simulation.case.image.voxel_size, axes_of(simulation.case.flow.axis)
    tensor = None
    if len(axes) == 3:
        columns = [flow.k for flow in flows]
        tensor = np.column_stack(columns + [np.full(3, np.nan)] * (3 - len(columns)))
    missing = [math.nan] * (len(axes) - len(flows))
    lattice = float(np.mean([flow._means.permeability for flow in flows] + missing))
    steps = sum(flow.steps for flow in flows)
    velocities = [flow._means.sums.velocity[AXES.index(flow.axis)] for flow in flows]
    sample = simulation.domain.sample
    return Permeability(
        k=lattice * size**2,
        k_lattice=lattice,
        tensor=tensor,
        porosity=pores.porosity,
        open_porosity=pores.open_porosity,
        pore_values=simulation.domain.pore_text(pores.porosity),
        narrow_pores=simulation.subdomain.narrow,
        porosity_profile=porosity_profile(simulation.subdomain, sample, axes[0], simulation.comm),
        velocity=float(np.mean(velocities)),
        mach=max(flow.mach for flow in flows),
        converged=len(flows) == len(axes) and all(flow.converged for flow in flows),
        residual=max(flow.residual for flow in flows),
        steps=steps,
        seconds=seconds,
        million_updates_per_second=simulation.sites * steps / seconds / 1e6,
        history=[entry for flow in flows for entry in flow.history],
        voxel_size=size,
        storage=simulation.storage,
        flows={flow.axis: flow for flow in flows},
    )


def porosity_profile(subdomain: Subdomain, sample: Box, axis: int, comm: Comm) -> np.ndarray:
    """Return the pore fraction of each plane of a sample normal to an axis. Collective.

    Only pores in which flow is simulated count.
    """
    box, counts = subdomain.box, np.zeros(subdomain.shape[axis])
    pores = subdomain.own[1:-1, 1:-1, 1:-1]
    if axis < 2:  # plane by plane, which is several times as fast where rows are whole
        part = np.array([np.count_nonzero(plane) for plane in np.moveaxis(pores, axis, 0)])
    else:
        part = np.count_nonzero(pores, axis=(0, 1))
    counts[box.start[axis] : box.start[axis] + len(part)] = part
    plane = math.prod(subdomain.shape) // subdomain.shape[axis]
    return sum_over_ranks(comm, counts)[sample.start[axis] : sample.stop[axis]] / plane
