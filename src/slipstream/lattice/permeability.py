"""The permeability of a voxel image, in three lines.

>>> from slipstream.lattice import permeability
>>> result = permeability("rock.tif", voxel_size=2e-6, axis="z")
>>> print(result.k, result.k_millidarcy, result.porosity, result.converged)
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.accepted import FORCES, LARGEST_VOXEL, SCHEDULES
from slipstream.argument_checks import check_positive, name_among, plain_value, whole_number
from slipstream.array_types import Comm
from slipstream.case.lattice_case import LEAST_TOLERANCES, MOST_VECTORS
from slipstream.collective import check_agreement, collectively, on_all_ranks, sum_over_ranks
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.exchange import make_transport, open_matching_device
from slipstream.io.image_errors import ARGUMENTS, in_terms_of
from slipstream.io.voxel_images import open_image
from slipstream.lattice.acceleration import vectors_that_fit
from slipstream.lattice.convergence import distance_text, round_off_text
from slipstream.lattice.darcy import resisted_force
from slipstream.lattice.domain_decomposition import PARTITIONS, Subdomain
from slipstream.lattice.flow_domain import (
    Domain,
    mirrored_tensor_text,
    narrow_doubt,
    read_pores,
    unmatched_text,
)
from slipstream.lattice.flow_snapshot import snapshot_size
from slipstream.lattice.flow_units import PhysicalFluid, Units, physical_fluid
from slipstream.lattice.lattice_memory import memory_needed
from slipstream.lattice.permeability_result import (
    Permeability,
    PermeabilityInterrupted,
    axis_flow,
)
from slipstream.lattice.population_layout import PRECISIONS, TUNED, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid, driven_along
from slipstream.lattice.steady_flow import (
    MOST_STEPS,
    ROUND_OFF,
    Callback,
    SteadyFlow,
    run_to_steady,
)
from slipstream.lattice.storage_tuning import choose_storage
from slipstream.lattice.velocity_set import AXES, axes_of
from slipstream.printable_text import shown


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
    isolated: str = "remove",
    relaxation_time: float = 1.0,
    magic: float = 3 / 16,
    inertia: bool = False,
    force: float | None = None,
    pressure_drop: float | None = None,
    viscosity: float | None = None,
    pressure_gradient: float | None = None,
    density: float | None = None,
    tolerance: float = 1e-3,
    max_steps: int = 200_000,
    interval: int = 100,
    vectors: int = 10,
    callback: Callback | None = None,
    precision: str = "float64",
    storage: Storage | Mapping[str, str] | None = None,
    partition: str = "bisection",
    schedule: str = "overlap",
    keep_fields: bool = True,
    device: str | Device = "auto",
    transport: str = "auto",
    comm: Comm = None,
) -> Permeability:
    """Compute the permeability of an image from the flow through its pores. Collective.

    Parameters
    ----------
    image : str, pathlib.Path or array
        A file (raw, TIFF, NPY, HDF5, Zarr), a folder of TIFF slices, or an array in the order z, y,
        x; or anything with a ``shape`` and a method ``read(box)``, such as a sample of
        `slipstream.lattice`.
    voxel_size : float
        Edge length of a voxel in metres, such as 2e-6; with 1, lengths are in voxels.
    axis : {"x", "y", "z", "all"}
        Direction of the flow; "all" for the whole tensor.
    pore : int or sequence of int, optional
        Which values are pore, in segmented images. By default all that are not zero, in images that
        have just one other value.
    pore_below, pore_above : float, optional
        Thresholds for grey images: values below the former, or above the latter, are pore; if both
        are given, those between them.
    shape, dtype, byte_order, offset, dataset
        What the file itself does not say; see `slipstream.io.voxel_images.open_image`.
    crop : sequence of (start, stop), optional
        Part of the image to use, along z, y, x.
    mirror : bool, str or sequence of str
        Axes along which a mirror image is appended, so that opposite faces match, such as "z",
        "xy" or ["x", "y"]; True for the axis of the flow.
    buffer : int
        Layers of pore to add at both ends of the axis.
    walls : str
        Axes whose faces are walls, such as "xy"; the others are periodic.
    isolated : {"remove", "keep"}
        What to do with pores through which nothing flows.
    relaxation_time, magic : float
        See `slipstream.lattice.Fluid`; the permeability does not depend on the relaxation time.
    inertia : bool
        Navier-Stokes instead of Stokes flow. Then the permeability depends on the force, or on the
        fluid in physical units.
    force : float, optional
        Driving force per volume, in lattice units; Stokes flow is proportional to it. By default
        1e-5, unless something else drives the flow.
    pressure_drop : float, optional
        Instead of a force: how much the pressure falls from one face to the other, in lattice
        units.
    viscosity, pressure_gradient, density : float, optional
        The fluid's dynamic viscosity in Pa s, the pressure gradient that drives it in Pa/m, and its
        density in kg/m³: velocities, pressures and forces of the result are then in SI units.
        Stokes flow is scaled to them, whatever the force on the lattice, and needs a density only
        for its Reynolds number. With inertia all three are needed and set the force on the lattice.
    tolerance : float
        Stop when the permeability is estimated to be this close, relatively, to the steady flow's.
    max_steps : int
        Number of steps after which to stop in any case.
    interval : int
        Steps between two checks of the permeability, for the callback and the history.
    vectors : int
        From how many of its last changes the steady flow is extrapolated, which takes a fraction of
        the steps; 0 for none. Where memory is short there are fewer.
    callback : callable, optional
        Called on all ranks at each of these checks with a `slipstream.lattice.FlowProgress`: axis,
        step, permeability, residual, mach, seconds. It returns True to stop the flow along this
        axis, else None or False. An exception on one rank ends the call on all.
    precision : {"float64", "float32", "mixed"}
        Of storage and arithmetic; mixed stores float32 and computes with float64.
    storage : Storage or dict, optional
        How populations are stored, as `Permeability.storage`; or some of the names of `Storage`.
        What is not given is measured. Results differ in the last digits only.
    partition : {"bisection", "cartesian"}
        Whether ranks have boxes with about the same number of pores, or of about the same size.
    schedule : {"overlap", "serial"}
        Whether communication overlaps with computation.
    keep_fields : bool
        Whether to keep velocity and pressure at the pores, in host memory.
    device : {"auto", "cpu", "cuda", "hip"} or Device
        Device that computes.
    transport : str
        How ranks exchange; see `slipstream.exchange.TRANSPORTS`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work; all get the same result.

    Returns
    -------
    Permeability
        The permeability, its accuracy, and the flow from which it was computed.

    Raises
    ------
    InputError
        If an argument is not accepted, the image has no pores or no path through them.
    RunError
        If flow with inertia becomes unphysically fast, beyond a Mach number of 0.3, or if the
        velocity is not finite.
    PermeabilityInterrupted
        On Ctrl-C, or another signal to end, during the flow: a `KeyboardInterrupt` whose ``result``
        is what is known so far. A second Ctrl-C ends it at once.

    Warns
    -----
    RuntimeWarning
        If opposite faces do not match, so that pores face solid; if many pores are one or two
        voxels wide, where the flow is not resolved; if flow with inertia is so fast
        that compressibility matters, beyond a Mach number of 0.1; or if the tolerance was not
        reached within the steps allowed.
    """
    name_among("axis", axis, ("x", "y", "z", "all"))
    axes = axes_of(axis)
    check_positive(voxel_size=voxel_size, tolerance=tolerance)
    # Numbers of NumPy's would make all that is computed with them as short as they are.
    voxel_size, tolerance = float(voxel_size), float(tolerance)
    if tolerance >= 1:
        raise InputError(f"tolerance is {tolerance!r}; accepted: less than 1, which is 100 %")
    if not (voxel_size <= LARGEST_VOXEL or voxel_size == 1):
        raise InputError(
            f"voxel_size is {voxel_size!r}; accepted: metres, at most {LARGEST_VOXEL}, such as"
            " 2e-6, or 1 for voxels"
        )
    _check_steps(max_steps, interval)
    vectors = whole_number("vectors", vectors, 0, MOST_VECTORS)
    max_steps, interval = int(max_steps), int(interval)
    fluid, mirrored = Fluid(relaxation_time, magic, inertia=inertia), mirrored_axes(mirror, axes)
    real_fluid = physical_fluid(voxel_size, viscosity, pressure_gradient, density)
    force, pressure_drop = _drive(force, pressure_drop, fluid, real_fluid)
    _check_walls(walls, axes)
    name_among("precision", precision, PRECISIONS)
    name_among("partition", partition, PARTITIONS)
    name_among("isolated", isolated, ("remove", "keep"))
    name_among("schedule", schedule, SCHEDULES)
    wishes = _storage_wishes(storage, precision)
    floor = LEAST_TOLERANCES[wishes["precision"]]
    if tolerance < floor:
        raise InputError(
            f"tolerance is {tolerance!r}, below the floor of round-off; accepted with precision ="
            f" {wishes['precision']!r}: at least {floor:g}"
        )
    if callback is not None and not callable(callback):
        raise InputError(f"callback is of type {type(callback).__name__}; accepted: a function")
    if not isinstance(keep_fields, bool | np.bool_):
        raise InputError(f"keep_fields is {shown(keep_fields)}; accepted: True or False")
    given = {
        "axis": axis,
        "voxel_size": voxel_size,
        "fluid": fluid,
        "mirror": mirrored,
        "walls": walls,
        "isolated": isolated,
        "force": force,
        "pressure_drop": pressure_drop,
        "viscosity, pressure_gradient and density": real_fluid,
        "tolerance": tolerance,
        "max_steps": max_steps,
        "interval": interval,
        "vectors": vectors,
        "callback": callback is not None,
        "storage": wishes,
        "partition": partition,
        "schedule": schedule,
        "keep_fields": bool(keep_fields),
        "transport": transport,
    }
    check_agreement(comm, given)
    if axis == "all" and plain_value(buffer) != 0:
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
        subdomain = read_pores(domain, walls, axes, opened, comm, partition, isolated)
    for text in _doubts(subdomain, axes, mirrored):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    sites = int(np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1]))

    def need(storage: Storage) -> int:
        kept = snapshot_size(sites, storage) if keep_fields and opened.kind == "cpu" else 0
        return memory_needed(sites, subdomain.box.size, storage) + kept

    chosen, _ = choose_storage(wishes, subdomain, opened, comm, need)
    if real_fluid is not None and inertia:
        force = real_fluid.force(fluid.viscosity) * domain.sample_fraction
    made_with = driven_along(fluid, axes, force, pressure_drop)
    carrier = make_transport(transport, comm, opened)
    flow = PoreFlow(subdomain, made_with, chosen, opened, carrier, schedule)
    vectors = vectors_that_fit(vectors, flow, comm)
    runs: list[SteadyFlow] = []
    for one in axes:  # no comprehension, as warnings name the caller
        run = run_to_steady(
            flow,
            one,
            fluid.along(one, force, pressure_drop),
            resisted_force(force, pressure_drop, one, domain),
            tolerance,
            max_steps,
            interval,
            comm,
            callback=callback,
            area=voxel_size**2,
            keep_fields=bool(keep_fields),
            sample=domain.sample,
            vectors=vectors,
            stacklevel=4,
        )
        runs.append(run)
        if run.was_interrupted:
            break
    result = _result(runs, axes, subdomain, domain, real_fluid, voxel_size, chosen, comm)
    if any(run.was_interrupted for run in runs):
        raise on_all_ranks(PermeabilityInterrupted(result))
    if any(run.ended == ROUND_OFF for run in runs):
        text = round_off_text(result.residual, tolerance, chosen.precision)
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    if any(run.ended == MOST_STEPS for run in runs):
        warnings.warn(
            f"not converged within max_steps = {max_steps}: the relative distance of k from that of"
            f" the steady flow is {distance_text(result.residual)}; more steps, or a larger"
            " tolerance, help",
            RuntimeWarning,
            stacklevel=3,
        )
    return result


def _drive(
    force: float | None, pressure_drop: float | None, fluid: Fluid, real: PhysicalFluid | None
) -> tuple[float | None, float | None]:
    """Return the force per volume and the pressure drop, one of which is None, or refuse them."""
    given = {"force": force, "pressure_drop": pressure_drop}
    given = {name: value for name, value in given.items() if value is not None}
    check_positive(**given)
    low, high = FORCES
    for name, value in given.items():
        if not low <= float(value or 0) <= high:
            raise InputError(
                f"{name} is {value!r}; accepted: {low:g} to {high:g}, in lattice units"
            )
    if len(given) > 1:
        raise InputError("force and pressure_drop: both are given; accepted: one of them")
    if real is not None and fluid.inertia:
        if given:
            raise InputError(
                f"{', '.join(given)}: with inertia the fluid's viscosity, density and"
                " pressure_gradient tell what drives the flow; accepted with them: none"
            )
        return real.force(fluid.viscosity), None
    if pressure_drop is not None:
        return None, float(pressure_drop)
    return float(1e-5 if force is None else force), None


def _storage_wishes(storage: Any, precision: str) -> dict[str, str]:
    """Return the requested arguments of `Storage`, "auto" for those to be measured."""
    given = {} if storage is None else storage
    given = dataclasses.asdict(given) if isinstance(given, Storage) else given
    names = (*TUNED, "precision")
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InputError(
            f"storage is {storage!r}; accepted: a Storage, or a dict of {', '.join(names)}"
        )
    wishes = {**dict.fromkeys(TUNED, "auto"), "precision": precision, **given}
    # What is unknown is refused by name.
    Storage(**{name: value for name, value in wishes.items() if value != "auto"})
    return wishes


def _result(
    runs: list[SteadyFlow],
    axes: list[int],
    subdomain: Subdomain,
    domain: Domain,
    fluid: PhysicalFluid | None,
    voxel_size: float,
    storage: Storage,
    comm: Comm,
) -> Permeability:
    area, found = voxel_size**2, subdomain.connectivity.without_layers(domain.added)
    flows = {}
    for run in runs:
        units = Units() if voxel_size == 1 else Units(length=voxel_size)
        if fluid is not None:
            units = fluid.units(run.viscosity, run.force)
        flows[AXES[run.axis]] = axis_flow(run, comm, voxel_size, units)
    tensor = None
    if len(axes) == 3:
        columns = [flow.k for flow in flows.values()]
        tensor = np.column_stack(columns + [np.full(3, np.nan)] * (3 - len(columns)))
    missing = [math.nan] * (len(axes) - len(runs))
    lattice = float(np.mean([run.means.permeability for run in runs] + missing))
    seconds = sum(run.seconds for run in runs)
    return Permeability(
        k=lattice * area,
        k_lattice=lattice,
        tensor=tensor,
        porosity=found.porosity,
        open_porosity=found.open_porosity,
        pore_values=domain.pore_text(found.porosity),
        narrow_pores=subdomain.narrow,
        porosity_profile=porosity_profile(subdomain, domain.sample, axes[0], comm),
        velocity=float(np.mean([run.means.sums.velocity[run.axis] for run in runs])),
        mach=max(run.means.sums.mach for run in runs),
        converged=len(runs) == len(axes) and all(run.converged for run in runs),
        residual=max(run.residual for run in runs),
        steps=sum(run.means.steps for run in runs),
        seconds=seconds,
        million_updates_per_second=sum(run.updates for run in runs) / seconds / 1e6,
        history=[entry for run in runs for entry in run.history],
        voxel_size=voxel_size,
        storage=storage,
        flows=flows,
    )


def porosity_profile(subdomain: Subdomain, sample: Box, axis: int, comm: Comm) -> np.ndarray:
    """Return the pore fraction of each plane of a sample normal to an axis. Collective.

    Only pores in which flow is simulated count.
    """
    box, counts = subdomain.box, np.zeros(subdomain.shape[axis])
    along = tuple(other for other in range(3) if other != axis)
    part = np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1], axis=along)
    counts[box.start[axis] : box.start[axis] + len(part)] = part
    plane = math.prod(subdomain.shape) // subdomain.shape[axis]
    return sum_over_ranks(comm, counts)[sample.start[axis] : sample.stop[axis]] / plane


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


def _doubts(subdomain: Subdomain, axes: Sequence[int], mirrored: Sequence[str]) -> list[str]:
    """Return what is accepted, but may not be meant."""
    told = [unmatched_text(subdomain)] if any(subdomain.unmatched) else []
    told += [narrow_doubt(subdomain)] if narrow_doubt(subdomain) else []
    return told + ([mirrored_tensor_text(mirrored)] if len(axes) > 1 and mirrored else [])


def _check_walls(walls: Any, axes: Sequence[int]) -> None:
    """Refuse walls that are no names of axes, or close the axis of the flow."""
    if not isinstance(walls, str) or not set(walls) <= set(AXES):
        raise InputError(f"walls: {walls!r} is not accepted; accepted: letters of x, y and z")
    if any(AXES[one] in walls for one in axes):
        raise InputError(f"walls: {walls!r} closes the axis of the flow; accepted: the others")


def _check_steps(max_steps: Any, interval: Any) -> None:
    """Refuse numbers of steps that are not whole, and intervals that are odd."""
    check_positive(max_steps=max_steps, interval=interval)
    if not isinstance(max_steps, numbers.Integral):
        raise InputError(f"max_steps is {max_steps!r}; accepted: whole numbers")
    if not isinstance(interval, numbers.Integral) or interval % 2:
        raise InputError(f"interval is {interval}; accepted: even numbers, as steps come in pairs")
