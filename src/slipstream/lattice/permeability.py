"""The permeability of a voxel image, in three lines.

>>> from slipstream.lattice import permeability
>>> result = permeability("rock.tif", voxel_size=2e-6, axis="z")
>>> print(result.k, result.k_millidarcy, result.porosity, result.converged)
"""

from __future__ import annotations

import math
import numbers
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.argument_checks import is_finite, name_among
from slipstream.array_types import Comm
from slipstream.collective import check_agreement, collectively
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import make_transport, open_matching_device
from slipstream.io.image_errors import ARGUMENTS, in_terms_of
from slipstream.io.voxel_images import open_image
from slipstream.lattice.convergence import Steadiness, distance_text
from slipstream.lattice.darcy import DARCY, force_on_sample
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.flow_domain import Domain, read_pores, unmatched_text
from slipstream.lattice.percolation import Connectivity
from slipstream.lattice.population_layout import PRECISIONS, TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.lattice.velocity_set import AXES

# Metres: voxels of images are smaller.
_LARGE_VOXEL = 0.01


@dataclass(frozen=True)
class Permeability:
    """The permeability of an image, how accurate it is, and how it was found.

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
        Pores as a fraction of the sample's voxels; and those that percolate along the axis.
    velocity : float
        Superficial velocity along the axis, in voxels per step.
    mach : float
        Largest Mach number of the flow.
    converged : bool
        Whether the tolerance was reached.
    residual : float
        Estimated relative distance of k from that of the steady flow; 1 if it is unknown.
    steps : int
        Number of steps done.
    seconds : float
        How long they took.
    million_updates_per_second : float
        Sites times steps per second, in millions.
    history : list of (int, float)
        Number of steps, and the value of k_lattice after them.
    voxel_size : float
        Edge of a voxel in metres; 1 if it is unknown.
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
        """Permeability in thousandths of a darcy; NaN if the voxel size is unknown."""
        return math.nan if self.voxel_size == 1 else 1e3 * self.k / DARCY


@collectively
def permeability(
    image: Any,
    voxel_size: float = 1.0,
    axis: str = "z",
    *,
    pore: int | Sequence[int] | None = None,
    pore_below: float | None = None,
    pore_above: float | None = None,
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
    comm: Comm = None,
) -> Permeability:
    """Return the permeability of an image, by the flow through its pores. Collective.

    Parameters
    ----------
    image : str, pathlib.Path or array
        A file (raw, TIFF, NPY, HDF5, Zarr) or an array in the order z, y, x; or anything with a
        ``shape`` and a method ``read(box)``, such as a sample of `slipstream.lattice`.
    voxel_size : float
        Edge of a voxel in metres, such as 2e-6; with 1, lengths stay in voxels.
    axis : {"x", "y", "z", "all"}
        Along which the fluid flows; "all" for the whole tensor.
    pore : int or sequence of int, optional
        Which values are pore, of segmented images. By default what is not zero, of images that have
        just one other value.
    pore_below, pore_above : float, optional
        Thresholds, of grey images: values below the one, or above the other, are pore; if both are
        given, those between.
    shape, dtype, byte_order, offset, dataset
        What the file itself does not say; see `slipstream.io.voxel_images.open_image`.
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

    Returns
    -------
    Permeability
        The permeability, how good it is, and how it was found.

    Raises
    ------
    InputError
        If an argument is not accepted, the image has no pores or no path through them.
    RunError
        If the flow becomes faster than is physical, beyond a Mach number of 0.3.

    Warns
    -----
    RuntimeWarning
        If opposite faces do not match, so that pore faces solid; if the flow is so fast that
        compressibility matters, beyond a Mach number of 0.1; or if the steps were too few to
        reach the tolerance.
    """
    name_among("axis", axis, ("x", "y", "z", "all"))
    axes = [2, 1, 0] if axis == "all" else [AXES.index(axis)]
    _check_positive(voxel_size=voxel_size, force=force, tolerance=tolerance)
    # Numbers of NumPy's would make all that is computed with them as short as they are.
    voxel_size, force, tolerance = float(voxel_size), float(force), float(tolerance)
    if tolerance >= 1:
        raise InputError(f"tolerance is {tolerance!r}; accepted: less than 1, which is 100 %")
    if voxel_size > 1:
        raise InputError(
            f"voxel_size is {voxel_size!r}; accepted: metres, such as 2e-6, or 1 for voxels"
        )
    _check_steps(max_steps, interval)
    max_steps, interval = int(max_steps), int(interval)
    fluid, mirrored = Fluid(relaxation_time, magic), mirrored_axes(mirror, axes)
    _check_walls(walls, axes)
    wishes = {**dict.fromkeys(TUNED, "auto"), "precision": precision}
    name_among("precision", precision, PRECISIONS)
    given = {
        "axis": axis,
        "voxel_size": voxel_size,
        "fluid": fluid,
        "mirror": mirrored,
        "walls": walls,
        "force": force,
        "tolerance": tolerance,
        "max_steps": max_steps,
        "interval": interval,
        "precision": precision,
        "transport": transport,
    }
    check_agreement(comm, given)
    if buffer and axis == "all":
        raise InputError("buffer: layers are for one axis; accepted with axis = 'all': 0")
    with in_terms_of(ARGUMENTS):
        source = image
        if isinstance(image, str | Path) or not hasattr(image, "read"):
            source = open_image(
                image,
                pore=pore,
                pore_below=pore_below,
                pore_above=pore_above,
                shape=shape,
                dtype=dtype,
                byte_order=byte_order,
                offset=offset,
                dataset=dataset,
                comm=comm,
            )
        domain = Domain(source, crop, mirrored, buffer, buffer_axis=AXES[axes[0]])
        check_agreement(comm, {"crop": domain.crop, "buffer": domain.added})
    opened = open_matching_device(device, comm)
    with in_terms_of(ARGUMENTS):
        subdomain = read_pores(domain, walls, axes, opened, comm)
    for text in _doubts(subdomain, voxel_size):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    storage, _ = choose_storage(wishes, subdomain, opened, comm)
    flow = PoreFlow(subdomain, fluid, storage, opened, make_transport(transport, comm, opened))
    length = domain.sample_fraction
    runs = []
    for one in axes:  # no comprehension, as warnings name the caller of this function
        runs.append(run_to_steady(flow, one, force, length, tolerance, max_steps, interval, comm))
    found = subdomain.connectivity.without_layers(domain.added)
    result = _result(runs, axes, found, voxel_size, flow.storage)
    if not result.converged:
        warnings.warn(
            f"not converged within max_steps = {max_steps}: the relative distance of k from that of"
            f" the steady flow is {distance_text(result.residual)}; more steps, or a larger"
            " tolerance, help",
            RuntimeWarning,
            stacklevel=3,
        )
    return result


@dataclass(frozen=True)
class SteadyFlow:
    """The final state of a flow along one axis, in lattice units."""

    column: np.ndarray  # of the permeability tensor, along z, y and x
    velocity: float  # superficial velocity along the axis
    mach: float
    residual: float  # estimated relative distance from the steady flow
    converged: bool
    steps: int
    updates: int  # number of sites updated
    seconds: float
    history: list[tuple[int, float]]  # steps, and the permeability along the axis then


def run_to_steady(
    flow: PoreFlow,
    axis: int,
    force: float,
    sample_fraction: float,
    tolerance: float,
    max_steps: int,
    interval: int,
    comm: Comm,
) -> SteadyFlow:
    """Drive a flow along an axis until its permeability is steady. Collective.

    `sample_fraction` is the fraction of the domain's length that is sample.
    """
    fluid = flow.fluid
    z, y, x = (force if one == axis else 0.0 for one in range(3))
    drive = (z, y, x)
    flow.drive(Fluid(fluid.relaxation_time, fluid.magic, drive, inertia=fluid.inertia))
    flow.rest()
    resisted = force_on_sample(force, sample_fraction)
    steadiness = Steadiness(flow, axis, resisted, tolerance, interval, comm)
    history, began = [], time.perf_counter()
    while flow.steps < max_steps and not steadiness.is_steady:
        left = max_steps - flow.steps
        flow.advance(min(interval, left + left % 2))
        steadiness.look()
        means = steadiness.means()
        history.append((flow.steps, means.permeability))
        # On all ranks, so that all of them stop where warnings are errors.
        for text in steadiness.warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=4)
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


def mirrored_axes(mirror: Any, axes: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the axes to mirror, where flow is along `axes`."""
    if isinstance(mirror, bool | np.bool_):
        return tuple(AXES[one] for one in axes) if mirror else ()
    names = tuple(mirror) if isinstance(mirror, str | Sequence) else (mirror,)
    if not all(isinstance(name, str) and name in AXES for name in names):
        raise InputError(
            f"mirror is {mirror!r}; accepted: any of x, y and z, True for the axis of the flow, or "
            "False"
        )
    return names


def _doubts(subdomain: Subdomain, voxel_size: float) -> list[str]:
    """Return what is accepted, but may not be meant."""
    told = [unmatched_text(subdomain)] if any(subdomain.unmatched) else []
    if _LARGE_VOXEL < voxel_size < 1:
        told.append(f"voxel_size is {voxel_size:g} m: it is the edge of a voxel in metres")
    return told


def _check_walls(walls: Any, axes: Sequence[int]) -> None:
    """Refuse walls that are no names of axes, or close the axis of the flow."""
    if not isinstance(walls, str) or not set(walls) <= set(AXES):
        raise InputError(f"walls: {walls!r} is not accepted; accepted: letters of x, y and z")
    if any(AXES[one] in walls for one in axes):
        raise InputError(f"walls: {walls!r} closes the axis of the flow; accepted: the others")


def _check_positive(**values: Any) -> None:
    """Refuse arguments that are not finite numbers above 0."""
    for name, value in values.items():
        if not (is_finite(value) and value > 0):
            raise InputError(f"{name} is {value!r}; accepted: a number more than 0")


def _check_steps(max_steps: Any, interval: Any) -> None:
    """Refuse numbers of steps that are not whole, and intervals that are odd."""
    _check_positive(max_steps=max_steps, interval=interval)
    if not isinstance(max_steps, numbers.Integral):
        raise InputError(f"max_steps is {max_steps!r}; accepted: whole numbers")
    if not isinstance(interval, numbers.Integral) or interval % 2:
        raise InputError(f"interval is {interval}; accepted: even numbers, as steps come in pairs")
