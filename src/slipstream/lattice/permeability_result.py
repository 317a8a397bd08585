"""The results of a flow through an image: permeability, fields, forces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import check_agreement, sum_over_ranks, together
from slipstream.engine.errors import (
    InputError,
    UnknownName,
    check_positive,
    name_among,
    path_of,
    whole_number,
)
from slipstream.engine.fields import Field
from slipstream.engine.text import html_table, shown
from slipstream.lattice.convergence import DARCY, Means
from slipstream.lattice.fluid import Units
from slipstream.lattice.lattice_report import UNKNOWN, distance_text
from slipstream.lattice.velocity_set import TUNED, Storage
from slipstream.lattice.voxel_fields import FIELDS, FlowSnapshot, VoxelFields

# Why a flow ended. Round-off leaves more than the tolerance.
CONVERGED = "converged"
MOST_STEPS = "max_steps"
CALLBACK = "callback"
INTERRUPTED = "interrupted"
ROUND_OFF = "round-off"
# Nothing can flow along the axis.
NO_PATH = "no path"


class FlowFields(Mapping[str, Field]):
    """The fields of a flow, by name; arrays are made when a field is accessed.

    Names are velocity (components x, y, z), velocity_x, velocity_y, velocity_z, speed, density,
    pressure and pore. Each is a `engine.fields.Field` with this rank's part of the array,
    [z, y, x], in m/s and Pa if the fluid is known, else in lattice units.
    """

    def __init__(self, snapshot: FlowSnapshot, comm: Comm, voxel_size: float, units: Units) -> None:
        self._snapshot, self._comm = snapshot, comm
        self._fields = VoxelFields(snapshot, comm, voxel_size, units)

    def __getitem__(self, name: str) -> Field:
        self._check_kept()
        if name not in self:
            raise UnknownName(f"field {shown(name)} is unknown; accepted: {', '.join(FIELDS)}")
        return self._fields.part(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in FIELDS

    def __iter__(self) -> Iterator[str]:
        return iter(FIELDS)

    def __len__(self) -> int:
        return len(FIELDS)

    def __repr__(self) -> str:
        return f"<fields of a flow: {', '.join(FIELDS)}>"

    def gather(self, name: str, root: int = 0) -> Field:
        """Return a field whose whole array is on one rank, empty on the others. Collective."""
        ranks = 1 if self._comm is None else self._comm.size
        with together(self._comm):
            root = whole_number("root", root, 0, ranks - 1)
            check_agreement(self._comm, {"field": name, "root": root})
            self._check_kept()
            return self._fields.gathered(name_among("field", name, FIELDS), root)

    def to_xarray(self) -> Any:
        """Return this rank's part of all fields as an ``xarray.Dataset``, with units and places."""
        found = [self[name].to_xarray() for name in self]
        return found[0].to_dataset().assign({one.name: one for one in found[1:]})

    def write_vtk(self, path: str | Path) -> Path:
        """Write velocity, density, pressure and pores as VTK's image data (.vti). Collective.

        ParaView reads these files; rank 0 writes.
        """
        with together(self._comm):
            self._check_kept()
            target = path_of("path", path)
            if target.suffix != ".vti" or not target.parent.is_dir():
                raise InputError(
                    f"path is {str(path)!r}; accepted: a name that ends with .vti, in a folder that"
                    " exists"
                )
            check_agreement(self._comm, {"path": str(target)})
            self._fields.write_vtk(target)
            return target

    def write_arrays(self, path: str | Path) -> Path:
        """Write the same as arrays [z, y, x] of HDF5 (.h5, .hdf5) or .zarr. Collective.

        The voxel size and the units are attributes of the file: ``file.attrs["velocity unit"]``.
        Ranks write side by side; see `slipstream.files.write_arrays`.
        """
        with together(self._comm):
            self._check_kept()
            self._fields.write_arrays(target := path_of("path", path))
            return target

    def _check_kept(self) -> None:
        if not self._snapshot.is_kept:
            raise InputError(
                "fields: none were kept; accepted with permeability(..., keep_fields=True)"
            )


@dataclass(frozen=True, repr=False, eq=False)
class AxisFlow:
    """The final flow along one axis.

    Velocities are in m/s, forces in N and fields in m/s and Pa if the fluid was given by
    `viscosity` and `pressure_gradient`; else they are in lattice units: voxels, steps, and the
    density at rest. Vectors are in the order x, y, z.

    Attributes
    ----------
    axis : str
        The axis along which the flow was driven.
    k : numpy.ndarray
        The axis's column of the permeability tensor: superficial velocity along x, y and z times
        the viscosity over the driving force, in the unit of `Permeability.k`.
    velocity : numpy.ndarray
        Superficial velocity: the mean over all voxels, solid ones included (Darcy's).
    tortuosity : float
        Mean speed over mean velocity along the axis, over the pores: the hydraulic tortuosity of
        Duda, Koza and Matyka, Phys. Rev. E 84, 036319 (2011). 1 for straight ducts.
    wall_force : numpy.ndarray
        Drag of the fluid on all walls, by momentum exchange (Ladd, J. Fluid Mech. 271, 1994).
    driving_force : numpy.ndarray
        Driving force on all pores: in a steady flow it equals `wall_force`.
    mach : float
        Largest Mach number of the lattice.
    reynolds : float
        Superficial velocity along the axis times `reynolds_length` over the kinematic viscosity.
        For Stokes flow in physical units it is the fluid's, NaN without a density; otherwise it is
        the lattice's.
    reynolds_length : float
        The square root of the permeability (Ward 1964), in the unit of lengths.
    converged : bool
        Whether the tolerance was reached, or k is 0 for want of a path.
    ended : {"converged", "max_steps", "callback", "interrupted", "round-off", "no path"}
        Why the flow ended; round-off keeps it from coming nearer to the steady flow. If no path
        leads along the axis, the fluid is at rest.
    residual : float
        Estimated relative distance of k from the steady value; 1 if it is unknown. For accelerated
        flows it exceeded the true error in 96 to 100 % of the media that were tested.
    resolution_error : float
        Estimated relative error of k that the size of the voxels causes, at most 1. It exceeded the
        true error in 90 % and more of the media that were tested. NaN with inertia, if k is 0, or
        if `residual` is unknown.
    steps : int
        Number of steps done.
    history : list of (int, float)
        Number of steps, and the permeability after them in squares of voxels.
    fields : FlowFields
        The fields, by name.
    """

    axis: str
    k: np.ndarray
    velocity: np.ndarray
    tortuosity: float
    wall_force: np.ndarray
    driving_force: np.ndarray
    mach: float
    reynolds: float
    reynolds_length: float
    converged: bool
    ended: str
    residual: float
    resolution_error: float
    steps: int
    history: list[tuple[int, float]]
    fields: FlowFields
    _means: Means
    _units: Units
    _comm: Comm

    def reynolds_number(self, length: float) -> float:
        """Return the Reynolds number with another length, such as the grain diameter."""
        check_positive(length=length)
        if not self.reynolds_length:
            return self.reynolds
        return self.reynolds * length / self.reynolds_length

    def speed_histogram(self, bins: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability density of the speed in pores, and the bin edges. Collective.

        Speeds are in the unit of `velocity`, from 0 to the largest.
        """
        with together(self._comm):
            bins = whole_number("bins", bins, 1, 1_000_000)
            check_agreement(self._comm, {"bins": bins})
            self.fields._check_kept()
            scale = self._units.velocity or 1.0
            # Slightly above the largest, which may be rounded to fewer digits.
            largest = self.mach / 3**0.5 * (1 + 1e-6) or 1.0
            edges = np.linspace(0, largest, bins + 1)
            counts = np.histogram(self.fields._snapshot.speeds(), edges)[0].astype(float)
            counts = sum_over_ranks(self._comm, counts)
            return counts / (counts.sum() * np.diff(edges) * scale), edges * scale

    def __repr__(self) -> str:
        return _text(self._rows())

    def _repr_html_(self) -> str:
        return html_table("", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        along = "xyz".index(self.axis)
        speed = "voxels per step" if self._units.velocity is None else "m/s"
        force = "lattice units" if self._units.force is None else "N"
        unit = "voxels" if self._units.length is None else "m"
        reynolds = f"{self.reynolds:.2g}, by √k = {self.reynolds_length:.3g} {unit}"
        if math.isnan(self.reynolds):
            reynolds = "not known without a density"
        rows = [
            ("flow along", self.axis),
            ("superficial velocity", f"{self.velocity[along]:.5g} {speed}"),
            ("tortuosity", f"{self.tortuosity:.4g}"),
            ("drag on walls", f"{self.wall_force[along]:.5g} {force}, {self.balance:.4%} of drive"),
            ("Mach number", f"{self.mach:.2g}, largest, of the lattice"),
            ("Reynolds number", reynolds),
        ]
        return [*rows, ("ended", _ending(self.ended, self.residual, self.steps))]

    @property
    def balance(self) -> float:
        """Drag on the walls over the driving force, along the axis: 1 in a steady flow."""
        along = "xyz".index(self.axis)
        return float(self.wall_force[along] / self.driving_force[along])


def _ending(ended: str, residual: float, steps: int) -> str:
    distance = distance_text(residual)
    away = "at an unknown distance" if distance == UNKNOWN else f"{distance} (relative, estimated)"
    return f"{ended}, after {steps} steps, {away} from the steady flow"


@dataclass(frozen=True, repr=False, eq=False)
class Permeability:
    """The permeability of an image, its accuracy, and the flow from which it was computed.

    Attributes
    ----------
    k : float
        Permeability in square metres, or in squares of voxels if their size is not known: along the
        requested axis, or, for all, the mean of the diagonal of the tensor. With inertia it is the
        apparent permeability, which decreases with the force.
    k_lattice : float
        The same in squares of voxels.
    tensor : numpy.ndarray or None
        For ``axis="all"`` shape (3, 3), in units of `k`, rows and columns in the order x, y, z:
        the flow along the row's axis that a force along the column's drives. Columns of axes that
        an interrupted call did not reach are NaN.
    porosity, open_porosity : float
        Pores as a fraction of the sample's voxels; and pores that percolate along the axis.
    pore_values : str
        Which values of the image count as pore, and their share: "value 1 (49.5 %)".
    narrow_pores : float
        Fraction of the pore voxels in pores of one or two voxels from wall to wall, in which the
        flow is not resolved.
    porosity_profile : numpy.ndarray
        Fraction of each plane of the sample, normal to the axis, that is pore in which fluid is
        simulated; for all axes the planes are normal to x.
    velocity : float
        Superficial velocity along the axis, in voxels per step; for all, the mean.
    mach : float
        Largest Mach number of the flow.
    converged : bool
        Whether the tolerance was reached.
    residual : float
        Estimated relative distance of k from the steady value; 1 if it is unknown. For accelerated
        flows it exceeded the true error in 96 to 100 % of the media that were tested.
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
        How populations were stored; this can affect the last digits.
    flows : dict of str to AxisFlow
        The flow along each requested axis: fields, tortuosity, drag, Reynolds number and more.
    """

    k: float
    k_lattice: float
    tensor: np.ndarray | None
    porosity: float
    open_porosity: float
    pore_values: str
    narrow_pores: float
    porosity_profile: np.ndarray
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
    flows: dict[str, AxisFlow]

    @property
    def iteration_error(self) -> float:
        """The relative error of k that the iteration leaves: the same as `residual`."""
        return self.residual

    @property
    def resolution_error(self) -> float:
        """The largest of `AxisFlow.resolution_error`; NaN if one is not known."""
        return float(np.max([flow.resolution_error for flow in self.flows.values()]))

    @property
    def k_millidarcy(self) -> float:
        """Permeability in thousandths of a darcy; NaN if the voxel size is unknown."""
        return math.nan if self.voxel_size == 1 else 1e3 * self.k / DARCY

    @property
    def flow(self) -> AxisFlow:
        """The flow along the requested axis; for all axes, use `flows`."""
        if len(self.flows) != 1:
            raise InputError(
                f"flow: there are those along {', '.join(self.flows)}; accepted: flows['x'] ..."
            )
        return next(iter(self.flows.values()))

    @property
    def tortuosity(self) -> float:
        """Tortuosity of the flow; for all axes, the mean. See `AxisFlow.tortuosity`."""
        return float(np.mean([flow.tortuosity for flow in self.flows.values()]))

    @property
    def reynolds(self) -> float:
        """Reynolds number of the flow; for all axes, the largest. See `AxisFlow.reynolds`."""
        return max(flow.reynolds for flow in self.flows.values())

    @property
    def wall_force(self) -> np.ndarray:
        """Drag on all walls along x, y and z. See `AxisFlow.wall_force`."""
        return self.flow.wall_force

    @property
    def driving_force(self) -> np.ndarray:
        """Driving force along x, y and z. See `AxisFlow.driving_force`."""
        return self.flow.driving_force

    @property
    def fields(self) -> FlowFields:
        """The fields of the flow, by name."""
        return self.flow.fields

    def speed_histogram(self, bins: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as `AxisFlow.speed_histogram`. Collective."""
        return self.flow.speed_histogram(bins)

    def write_vtk(self, path: str | Path) -> Path:
        """Write the fields for ParaView; see `FlowFields.write_vtk`. Collective."""
        return self.fields.write_vtk(path)

    def write_arrays(self, path: str | Path) -> Path:
        """Write the fields as HDF5 or zarr; see `FlowFields.write_arrays`. Collective."""
        return self.fields.write_arrays(path)

    def __repr__(self) -> str:
        return _text(self._rows())

    def _repr_html_(self) -> str:
        return html_table("", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        """Return the main results, each with a name."""
        in_metres = self.voxel_size != 1
        value = f"{self.k_millidarcy:.5g} mD, {self.k:.5g} m², " if in_metres else ""
        rows = [("permeability", value + f"{self.k_lattice:.5g} voxels²")]
        if self.tensor is not None:
            unit = "m²" if in_metres else "voxels²"
            for axis, row in zip("xyz", self.tensor, strict=True):
                numbers = "  ".join(f"{number: .4e}" for number in row)
                rows.append((f"tensor, {axis}", f"{numbers} {unit}"))
        rows.append(("porosity", f"{self.porosity:.4f}, {self.open_porosity:.4f} open"))
        rows.append(("pore", self.pore_values))
        if not math.isnan(self.resolution_error):
            text = f"puts k off by {self.resolution_error:.1%} at most, by estimate"
            rows.append(("resolution", text))
        rows.append(("narrow pores", f"{self.narrow_pores:.1%} are one or two voxels wide"))
        for flow in self.flows.values():
            rows += flow._rows()
        names = ", ".join(getattr(self.storage, name) for name in (*TUNED, "precision"))
        speed = f"{self.seconds:.3g} s, {self.million_updates_per_second:.4g} million updates/s"
        return [*rows, ("steps", f"{self.steps} in {speed}"), ("storage", names)]


class PermeabilityInterrupted(KeyboardInterrupt):
    """A signal such as Ctrl-C ended `permeability`; `result` is the estimate so far."""

    def __init__(self, result: Permeability) -> None:
        steps = f"after {result.steps} steps"
        super().__init__(f"interrupted {steps}; the estimate so far is this exception's result")
        self.result = result


def _text(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
