"""The permeability of a voxel image, in three lines.

>>> from slipstream.lattice import permeability
>>> result = permeability("rock.tif", voxel_size=2e-6, axis="z")
>>> print(result.k, result.k_millidarcy, result.porosity, result.converged)
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.argument_checks import check_positive, whole_number
from slipstream.array_types import Comm
from slipstream.collective import (
    check_agreement,
    collectively,
    on_all_ranks,
    on_every_rank,
    sum_over_ranks,
)
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.io.image_errors import ARGUMENTS
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.lattice_arguments import argument_values, case_of_arguments
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
from slipstream.lattice.population_layout import Storage
from slipstream.lattice.velocity_set import AXES, axes_of
from slipstream.printable_text import shown
from slipstream.simulation.stop_requests import Interruption


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


# A callback returns True to stop the flow, and None or False to let it go on.
Callback = Callable[[FlowProgress], bool | None]


@collectively
def permeability(
    image: Any,
    voxel_size: float = 1.0,
    axis: str = "z",
    *,
    relaxation_time: float | None = None,
    magic: float = 0.1875,
    force: float | None = None,
    pressure_drop: float | None = None,
    inertia: bool = False,
    viscosity: float | None = None,
    pressure_gradient: float | None = None,
    density: float | None = None,
    shape: Sequence[int] | None = None,
    pore: int | Sequence[int] | None = None,
    pore_below: float | None = None,
    pore_above: float | None = None,
    dataset: str | None = None,
    dtype: Any = None,
    byte_order: str | None = None,
    offset: int | None = None,
    crop: Sequence[Sequence[int]] | None = None,
    mirror: bool | str | Sequence[str] = (),
    buffer: int = 0,
    isolated: str = "remove",
    tolerance: float = 0.001,
    interval: int = 100,
    vectors: int = 10,
    coarse_start: bool = False,
    precision: str = "float64",
    partition: str = "bisection",
    schedule: str = "overlap",
    transport: str = "auto",
    walls: str = "",
    max_steps: int = 200_000,
    callback: Callback | None = None,
    storage: Storage | Mapping[str, str] | None = None,
    keep_fields: bool = True,
    device: str | Device = "auto",
    comm: Comm = None,
) -> Permeability:
    """Compute the permeability of an image from the flow through its pores. Collective.

    Parameters
    ----------
    image : str, pathlib.Path or array
        A file (raw, TIFF, NPY, HDF5, Zarr), a folder of TIFF slices, or an array in the order z, y,
        x; or anything with a ``shape`` and a method ``read(box)``, such as a sample of
        `slipstream.lattice`.
    axis : {"x", "y", "z", "all"}
        Axis along which the fluid flows; "all": along each in turn, for the whole tensor, with a
        share of the steps each.
    relaxation_time : float, optional
        Relaxation time of the even part of the populations, in time steps, which sets the viscosity
        to (relaxation_time - 0.5) / 3. The permeability does not depend on it, the number of steps
        does. Default, or "auto": 1.25 to 1.5 by the width of pores for Stokes flow that is
        extrapolated, else 1; without vectors, 0.6 needs far fewer in narrow pores.
    magic : float
        Magic parameter, (relaxation_time - 0.5) * (odd - 0.5), from which the relaxation time of
        the odd part follows; with 3/16, walls are half way between pore and solid.
    force : float, optional
        Force per volume along the axis, in lattice units (default: 1e-05, without pressure_drop).
    pressure_drop : float, optional
        Instead of a force: difference of pressure between both ends of the axis, in lattice units.
    inertia : bool
        True for Navier-Stokes instead of Stokes flow; the permeability then depends on the drive.
    viscosity : float, optional
        Dynamic viscosity of the fluid in Pa s; with pressure_gradient, output is in SI units, which
        needs voxel_size. Stokes flow is scaled to these units.
    pressure_gradient : float, optional
        Pressure gradient that drives the fluid, in Pa/m.
    density : float, optional
        Density of the fluid in kg/m³, for its Reynolds number; with inertia, density, viscosity and
        pressure_gradient determine the force on the lattice, so give neither force nor
        pressure_drop.
    shape : sequence of 3 int, optional
        Number of voxels along z, y and x, of raw values.
    pore : int or sequence of int, optional
        Of segmented images: value of pores, or several, such as [0, 1] (default: all but 0, if that
        is one value).
    pore_below : float, optional
        Of grey images: voxels darker than this are pore.
    pore_above : float, optional
        Of grey images: voxels brighter than this are pore; with both, those between.
    dataset : str, optional
        Of HDF5 and zarr: name of the array, if there are several.
    dtype : dtype, optional
        Of raw values: their type.
    byte_order : {"little", "big"}, optional
        Of raw values, if they have several bytes.
    offset : int, optional
        Of raw values: bytes before the first one (default: 0).
    voxel_size : float
        Edge of a voxel in metres, such as 2e-6; with 1, lengths stay in voxels.
    crop : sequence of 3 (sequence of 2 int), optional
        Part to use: first voxel, and last voxel plus one, along z, y and x.
    mirror : bool, str or sequence of str
        Axes along which the mirror image follows, so that opposite faces match, such as "xy"; True
        for the axis of the flow.
    buffer : int
        Layers of pore at both ends of the flow's axis.
    isolated : {"remove", "keep"}
        Whether to remove pores through which nothing flows.
    tolerance : float
        Estimated relative distance to the permeability of the steady flow at which the run ends; 0:
        the run takes all its steps.
    interval : int
        Time steps between two rows of the time series, and between two checks of the permeability
        without convergence.vectors; even. With these each extrapolation is a check, at which the
        run can end.
    vectors : int
        Number of changes from which the steady flow is extrapolated, which saves most time steps
        (fewer if memory is short); 0: none, to follow the flow in time.
    coarse_start : bool
        Whether Stokes flow begins from that through voxels twice and four times as large, which
        also shows how well the pores are resolved; a restart begins from its state.
    precision : {"float64", "float32", "mixed", "float16"}
        Precision of populations and arithmetic.
    partition : {"bisection", "cartesian"}
        How ranks share the image.
    schedule : {"serial", "overlap"}
        Whether communication hides behind computation; the bits are the same.
    transport : str
        How ranks exchange data; "auto" chooses by devices and nodes. One of "auto", "peer", "nccl",
        "mpi-p2p", "mpi", "mpi-hierarchical", "mpi-device-p2p" or "mpi-device".
    walls : str
        Axes whose faces are walls, such as "xy"; the others are periodic.
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
    arguments = locals()
    check_positive(tolerance=tolerance)
    if not isinstance(walls, str):
        raise InputError(f"walls: {walls!r} is not accepted; accepted: letters of x, y and z")
    if callback is not None and not callable(callback):
        raise InputError(f"callback is of type {type(callback).__name__}; accepted: a function")
    if not isinstance(keep_fields, bool | np.bool_):
        raise InputError(f"keep_fields is {shown(keep_fields)}; accepted: True or False")
    most = whole_number("max_steps", max_steps, 1)
    if most % 2:
        raise InputError(f"max_steps is {most}; accepted: even numbers, as steps come in pairs")
    # Those of each axis are limited below.
    arguments["max_steps"] = (3 if axis == "all" else 1) * most
    if image is None:
        raise InputError("image is of type NoneType; accepted: a path, or a NumPy array")
    case, given = case_of_arguments(image, arguments, "permeability")
    flow = case.flow
    agreed = {
        "fluid": (flow.relaxation_time, flow.magic, flow.inertia),
        **argument_values(case),
        "max_steps": most,
        "storage": case.numerics,
        "callback": callback is not None,
        "keep_fields": bool(keep_fields),
    }
    check_agreement(comm, agreed)
    simulation = LatticeSimulation(case, comm, device)
    simulation.given_image, simulation.terms, simulation.is_timed = given, ARGUMENTS, False
    simulation.steps_per_axis, simulation.keeps_fields = most, bool(keep_fields)
    simulation.prepare()
    faces = unmatched_text(simulation.subdomain)
    _warn([faces] if faces else [])
    with Interruption(comm) as interruption:
        watch = simulation.watch = _Watch(interruption, callback)
        while not simulation.finished:
            # On all ranks, so that all stop where warnings are errors.
            _warn(simulation.warnings())
            simulation.advance(2)
        _warn(simulation.warnings())
    result = _result(simulation, watch)
    if watch.is_interrupted:
        raise on_all_ranks(PermeabilityInterrupted(result))
    endings = [flow.ended for flow in watch.flows]
    if ROUND_OFF in endings:
        _warn([round_off_text(result.residual, tolerance, result.storage.precision)])
    if MOST_STEPS in endings:
        distance = distance_text(result.residual)
        _warn(
            [
                f"not converged within max_steps = {max_steps}: the relative distance of k from"
                f" that of the steady flow is {distance}; more steps, or a larger tolerance, help"
                f"{_pace(watch.left)}"
            ]
        )
    return result


def _pace(left: float) -> str:
    """Return how many more steps it takes, of a flow that has come to its last one."""
    if math.isinf(left):
        return ""
    return f": about {max(2, round(left))} more at its pace by now"


def _warn(texts: Sequence[str]) -> None:
    """Warn the caller of `permeability`."""
    for text in texts:
        warnings.warn(text, RuntimeWarning, stacklevel=4)


class _Watch:
    """Looks at flows on their way: calls back, takes interrupts, and keeps what they come to.

    Ranks agree on interrupts at looks only, so that no step waits for other ranks.
    """

    def __init__(self, interruption: Interruption, callback: Callback | None) -> None:
        self._interruption, self._callback = interruption, callback
        self.flows: list[AxisFlow] = []
        self.is_interrupted = False
        # How many steps flows lacked that have come to their last one.
        self.left = 0.0
        self.seconds, self._began = 0.0, time.perf_counter()

    def __call__(self, simulation: LatticeSimulation, ended: str) -> str:
        """Return why the flow along an axis ends after the present step; empty if it goes on."""
        steps, comm = simulation.flow.steps, simulation.comm
        is_look = steps % simulation.case.convergence.interval == 0
        is_look = is_look or ended in (CONVERGED, MOST_STEPS, NO_PATH)
        if not is_look and (comm is not None or not self._interruption.requested()[0]):
            return ""
        self.is_interrupted = self._interruption.requested()[0]
        if self.is_interrupted and ended in ("", MOST_STEPS):
            ended = INTERRUPTED
        if self._callback is not None:
            is_to_stop = self._asks_to_stop(simulation)
            ended = CALLBACK if is_to_stop and ended not in (CONVERGED, NO_PATH) else ended
        if ended:
            self.seconds += time.perf_counter() - self._began
            if ended == MOST_STEPS:
                self.left = max(self.left, simulation.steadiness.steps_left)
            flow = simulation.axis_flow(ended, bool(simulation.keeps_fields))
            self.flows.append(flow)
            self._began = time.perf_counter()
        return INTERRUPTED if self.is_interrupted else ended

    def _asks_to_stop(self, simulation: LatticeSimulation) -> bool:
        """Return whether the callback returns True on any rank; fail on all if it fails on one."""
        steadiness, size = simulation.steadiness, simulation.case.image.voxel_size
        means = steadiness.means()
        told = FlowProgress(
            AXES[steadiness.axis],
            means.steps,
            means.permeability * size**2,
            steadiness.residual,
            means.sums.mach,
            time.perf_counter() - self._began,
        )

        def ask() -> bool:
            answer = self._callback(told) if self._callback is not None else None
            if not (answer is None or isinstance(answer, bool | np.bool_)):
                raise InputError(f"callback: returned {answer!r}; accepted: True to stop, or None")
            return bool(answer)

        mine = on_every_rank(simulation.comm, ask)
        return mine if simulation.comm is None else any(simulation.comm.allgather(mine))


def _result(simulation: LatticeSimulation, watch: _Watch) -> Permeability:
    """Return what the flows along all axes have come to. Collective."""
    flows, found = watch.flows, simulation.found
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
        porosity=found.porosity,
        open_porosity=found.open_porosity,
        pore_values=simulation.domain.pore_text(found.porosity),
        narrow_pores=simulation.subdomain.narrow,
        porosity_profile=porosity_profile(simulation.subdomain, sample, axes[0], simulation.comm),
        velocity=float(np.mean(velocities)),
        mach=max(flow.mach for flow in flows),
        converged=len(flows) == len(axes) and all(flow.converged for flow in flows),
        residual=max(flow.residual for flow in flows),
        steps=steps,
        seconds=watch.seconds,
        million_updates_per_second=simulation.sites * steps / watch.seconds / 1e6,
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
