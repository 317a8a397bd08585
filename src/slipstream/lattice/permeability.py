"""The permeability of a voxel image, in three lines.

>>> from slipstream.lattice import permeability
>>> result = permeability("rock.tif", voxel_size=2e-6, axis="z")
>>> print(result.k, result.k_millidarcy, result.porosity, result.converged)
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import make_transport, open_matching_device
from slipstream.io.voxel_images import open_image
from slipstream.lattice.d3q19 import AXES
from slipstream.lattice.domain_decomposition import Connectivity, hand_out
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.permeability_arguments import (
    check_positive,
    check_steps,
    flow_axes,
    in_argument_names,
    mirrored_axes,
    periodic_axes,
)
from slipstream.lattice.population_layout import TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid
from slipstream.lattice.steady_state import Steadiness, distance_text
from slipstream.lattice.storage_tuning import choose_storage

# One darcy in square metres.
DARCY = 9.869233e-13


@dataclass(frozen=True)
class Permeability:
    """What was found.

    Attributes
    ----------
    k : float
        Permeability in square metres, or in squares of voxels if their size is not known: along the
        axis asked for, or, for all, the mean of the diagonal of the tensor.
    k_lattice : float
        The same in squares of voxels.
    tensor : numpy.ndarray or None
        For ``axis="all"`` shape (3, 3), in units of `k`, rows and columns in the order x, y, z:
        the flow along the row's axis that a force along the column's drives.
    porosity, open_porosity : float
        Pores as a fraction of all voxels; and those that percolate along the axis.
    velocity : float
        Superficial velocity along the axis, in voxels per step.
    mach : float
        Largest Mach number of the flow.
    converged : bool
        Whether the tolerance was reached.
    residual : float
        Estimated relative distance of k from that of the steady flow; 1 if nothing can be said.
    steps : int
        Number of steps done.
    seconds : float
        How long they took.
    million_updates_per_second : float
        Pores times steps per time.
    history : list of (int, float)
        Steps, and k_lattice then.
    voxel_size : float
        Edge of a voxel in metres; 1 if it is not known.
    storage : Storage
        How populations were stored; another storage may change the last digits.
    """

    k: float
    k_lattice: float
    tensor: np.ndarray | None
    porosity: float
    open_porosity: float
    velocity: float
    mach: float
    converged: bool
    residual: float
    steps: int
    seconds: float
    million_updates_per_second: float
    history: list[tuple[int, float]]
    voxel_size: float
    storage: Storage

    @property
    def k_millidarcy(self) -> float:
        """Permeability in thousandths of a darcy; not a number if voxels have no size."""
        return math.nan if self.voxel_size == 1 else 1e3 * self.k / DARCY


def permeability(
    image: Any,
    voxel_size: float = 1.0,
    axis: str = "z",
    *,
    pore: int | Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_order: str = "little",
    offset: int = 0,
    dataset: str | None = None,
    crop: Sequence[Sequence[int]] | None = None,
    mirror: bool | str | Sequence[str] = False,
    buffer: int = 0,
    walls: str = "",
    relaxation_time: float = 1.0,
    magic: float = 3 / 16,
    force: float = 1e-5,
    tolerance: float = 1e-3,
    max_steps: int = 200_000,
    interval: int = 100,
    precision: str = "float64",
    device: str | Device = "auto",
    transport: str = "auto",
    comm: Any = None,
) -> Permeability:
    """Return the permeability of an image, by the flow through its pores. Collective.

    Parameters
    ----------
    image : str, pathlib.Path or array
        A file (raw, TIFF, NPY, HDF5, Zarr) or an array in the order z, y, x; or anything with a
        ``shape`` and a method ``read(box)``, such as a sample of `slipstream.lattice`.
    voxel_size : float
        Edge of a voxel in metres; with 1, lengths stay in voxels.
    axis : {"x", "y", "z", "all"}
        Along which the fluid flows; "all" for the whole tensor.
    pore : int or sequence of int, optional
        Which values are pore; by default all that are not zero.
    shape, dtype, byte_order, offset, dataset
        What the file itself does not tell; see `slipstream.io.voxel_images.open_image`.
    crop : sequence of (start, stop), optional
        Part of the image to use, along z, y, x.
    mirror : bool, str or sequence of str
        Axes along which the mirror image follows the image, so that its faces match, such as "z",
        "xy" or ["x", "y"]; True for the axis of the flow.
    buffer : int
        Layers of pore to add at both ends of the axis.
    walls : str
        Axes whose faces are walls, such as "xy"; the others are periodic.
    relaxation_time, magic : float
        See `slipstream.lattice.Fluid`; the permeability does not depend on the former.
    force : float
        Driving force per volume, in lattice units; Stokes flow is proportional to it.
    tolerance : float
        Estimated relative distance to the permeability of the steady flow at which to stop.
    max_steps : int
        Steps after which to stop anyway.
    interval : int
        Steps between two looks at the permeability.
    precision : {"float64", "float32", "mixed"}
        Of storage and arithmetic; mixed stores float32 and computes with float64.
    device : {"auto", "cpu", "cuda"} or Device
        What computes.
    transport : str
        How ranks exchange; see `slipstream.exchange.TRANSPORTS`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work; all get the same result.

    Raises
    ------
    InputError
        If an argument is not accepted, the image has no pores or no path through them.
    RunError
        If the flow becomes faster than is physical, beyond a Mach number of 0.3.

    Warns
    -----
    RuntimeWarning
        If it is so fast that compressibility matters, beyond 0.1; or if the steps were too few to
        reach the tolerance.
    """
    axes = flow_axes(axis)
    check_positive(voxel_size=voxel_size, force=force, tolerance=tolerance)
    check_steps(max_steps, interval)
    fluid, mirrored = Fluid(relaxation_time, magic), mirrored_axes(mirror, axes)
    periodic = periodic_axes(walls, axes)
    if buffer and axis == "all":
        raise InputError("buffer: layers are for one axis; accepted with axis = 'all': 0")
    with in_argument_names():
        source = image
        if isinstance(image, str | Path) or not hasattr(image, "read"):
            source = open_image(
                image,
                pore=pore,
                shape=shape,
                dtype=dtype,
                byte_order=byte_order,
                offset=offset,
                dataset=dataset,
                comm=comm,
            )
        domain = Domain(source, crop, mirrored, buffer, buffer_axis=AXES[axes[0]])
    if isinstance(device, str):
        device = open_matching_device(device, comm)
    with in_argument_names():
        portion = hand_out(domain, periodic, axes, comm=comm)
    wishes = dict.fromkeys(TUNED, "auto")
    storage, _ = choose_storage({**wishes, "precision": precision}, portion, device, comm)
    flow = PoreFlow(portion, fluid, storage, device, make_transport(transport, comm, device))
    length, runs = domain.sample_fraction, []
    for one in axes:
        runs.append(run_to_steady(flow, one, force, length, tolerance, max_steps, interval, comm))
    result = _result(runs, axes, portion.connectivity, voxel_size, storage)
    if not result.converged:
        warnings.warn(_not_converged(result, max_steps), RuntimeWarning, stacklevel=2)
    return result


def _not_converged(result: Permeability, max_steps: int) -> str:
    return (
        f"not converged within max_steps = {max_steps}: the relative distance of k from that of the"
        f" steady flow is {distance_text(result.residual)}; more steps, or a larger tolerance, help"
    )


@dataclass(frozen=True)
class SteadyFlow:
    """How a flow along one axis ended; numbers in lattice units.

    Attributes
    ----------
    column : numpy.ndarray
        Permeabilities along z, y and x that a force along this axis shows.
    velocity, mach, residual : float
        Superficial velocity along the axis, largest Mach number, and distance from the steady flow.
    converged : bool
        Whether the tolerance was reached.
    steps : int
        Number of steps.
    updates : int
        Number of sites updated.
    seconds : float
        How long it took.
    history : list of (int, float)
        Steps, and the permeability along the axis then.
    """

    column: np.ndarray
    velocity: float
    mach: float
    residual: float
    converged: bool
    steps: int
    updates: int
    seconds: float
    history: list[tuple[int, float]]


def run_to_steady(
    flow: PoreFlow,
    axis: int,
    force: float,
    sample_fraction: float,
    tolerance: float,
    max_steps: int,
    interval: int,
    comm: Any,
) -> SteadyFlow:
    """Drive a flow along an axis until its permeability is steady. Collective.

    Parameters as of `permeability`; `sample_fraction` is how much of the domain's length is sample.
    """
    fluid = flow.fluid
    drive = tuple(force if one == axis else 0.0 for one in range(3))
    flow.drive(Fluid(fluid.relaxation_time, fluid.magic, drive, inertia=fluid.inertia))
    flow.rest()
    # Only the sample resists: all of the force is lost there.
    resisted = force / sample_fraction
    steadiness = Steadiness(flow, axis, resisted, tolerance, interval, comm)
    history, began = [], time.perf_counter()
    while flow.steps < max_steps and not steadiness.is_steady:
        left = max_steps - flow.steps
        flow.advance(min(interval, left + left % 2))
        steadiness.look()
        means = steadiness.means()
        history.append((flow.steps, means.permeability))
        # On all ranks: where warnings are errors, none may go on alone.
        for text in steadiness.warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=3)
    seconds = time.perf_counter() - began
    sites = flow.sites.count if comm is None else comm.allreduce(flow.sites.count)
    return SteadyFlow(
        means.column,
        float(means.velocity[axis]),
        means.mach,
        steadiness.residual,
        steadiness.is_steady,
        flow.steps,
        sites * flow.steps,
        seconds,
        history,
    )


def _result(
    runs: list[SteadyFlow],
    axes: list[int],
    connectivity: Connectivity,
    voxel_size: float,
    storage: Storage,
) -> Permeability:
    area = voxel_size**2
    tensor = None
    if len(runs) == 3:
        tensor = np.column_stack([run.column[::-1] for run in runs]) * area
    lattice = float(np.mean([run.column[axis] for run, axis in zip(runs, axes, strict=True)]))
    seconds = sum(run.seconds for run in runs)
    return Permeability(
        k=lattice * area,
        k_lattice=lattice,
        tensor=tensor,
        porosity=connectivity.porosity,
        open_porosity=connectivity.open_porosity,
        velocity=float(np.mean([run.velocity for run in runs])),
        mach=max(run.mach for run in runs),
        converged=all(run.converged for run in runs),
        residual=max(run.residual for run in runs),
        steps=sum(run.steps for run in runs),
        seconds=seconds,
        million_updates_per_second=sum(run.updates for run in runs) / seconds / 1e6,
        history=[entry for run in runs for entry in run.history],
        voxel_size=voxel_size,
        storage=storage,
    )
