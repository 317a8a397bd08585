"""The output of a lattice run: fields on voxels, labels, pictures, and VTK's image data.

Ranks have boxes of any place and size; files are written by slabs of planes. Fields are taken from
the device a few planes at a time, since at low porosity they need more memory than the flow itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from slipstream.array_types import Comm
from slipstream.decomposition import Box, slabs, whole
from slipstream.field import Field
from slipstream.io import write_arrays
from slipstream.io.vtk_files import ImageDataFile
from slipstream.lattice.flow_snapshot import HasFields, plane_ranges
from slipstream.lattice.fluid import Units
from slipstream.redistribution import redistribute
from slipstream.simulation.solver_values import PictureChoice, PlaneChoice

LABELS = {
    "step": "number of time steps done",
    "time": "time (time steps)",
    "step_size": "number of time steps that are done together",
    "permeability_lattice": "permeability along the flow (squares of voxels)",
    "permeability": "permeability along the flow (m^2; squares of voxels if image.voxel_size is 1)",
    "permeability_millidarcy": "permeability along the flow (mD)",
    "velocity_x": "superficial velocity along x, mean over all voxels (voxels per step)",
    "velocity_y": "superficial velocity along y, mean over all voxels (voxels per step)",
    "velocity_z": "superficial velocity along z, mean over all voxels (voxels per step)",
    "mach": "largest Mach number",
    "mass": "mean deviation of the density from that at rest, relative to it",
    **{
        f"permeability_{row}{column}": f"permeability tensor, flow along {row} by a force along"
        f" {column} (m^2; squares of voxels if image.voxel_size is 1); 0 until it is known"
        for row in "xyz"
        for column in "xyz"
    },
    "darcy_velocity": "superficial velocity along the flow (m/s)",
    "reynolds": "Darcy velocity times the root of the permeability over the kinematic viscosity",
    "wall_force": "drag on all walls along the flow (lattice units)",
    "driving_force": "what drives the flow along its axis, on all pores (lattice units)",
    "residual": "estimated relative distance of the permeability from that of the steady flow, as"
    " of the last look; 1 as long as nothing can be said",
}
# Their indices in PoreFlow.fields().
_VELOCITIES, _DENSITY = {"velocity_x": 2, "velocity_y": 1, "velocity_z": 0}, 3
# The fields of a flow, with their long names.
FIELDS = {
    "velocity": "velocity along x, y and z",
    **{name: f"velocity along {name[-1]}" for name in _VELOCITIES},
    "speed": "magnitude of the velocity",
    "density": "density",
    "pressure": "pressure, a third of the density",
    "pore": "1 in pores, 0 in solid",
}


def describe_field(name: str, in_si: bool) -> tuple[str, str]:
    """Return the long name of a field and its unit."""
    if name in ("velocity", "speed", *_VELOCITIES):
        return FIELDS[name], "m/s" if in_si else "voxels per step"
    if name == "pressure":
        less = "pressure, less that at rest, without what drives the flow"
        return (less, "Pa") if in_si else (FIELDS[name], "lattice units")
    return FIELDS[name], {"density": "that at rest", "pore": "1"}[name]


def picture_choice(axes: Sequence[str], in_metres: bool, in_si: bool = False) -> PictureChoice:
    """Return the pictures to draw: the permeability, and the speed in a plane along the last axis.

    Of flows along several axes, each has a curve of its own.
    """
    axis, speed = axes[-1], "m/s" if in_si else "voxels per step"
    curves = ["permeability_millidarcy" if in_metres else "permeability_lattice"]
    unit = "mD" if in_metres else "voxels²"
    if len(axes) > 1:
        curves = [f"permeability_{one}{one}" for one in axes]
        unit = "m²" if in_metres else "voxels²"
    return PictureChoice(
        curves=(tuple(curves),),
        curves_file="permeability.png",
        planes=(
            PlaneChoice(
                "speed",
                "speed.png",
                "the middle",
                # Otherwise a few fast throats would leave everything else black.
                brightest=0.99,
                components=tuple(_VELOCITIES),
                mask="pore",
                normal="y" if axis == "z" else "z",
                is_central=True,
            ),
        ),
        short_labels={**dict.fromkeys(curves, "permeability $k$"), "speed": r"speed $|u|$"},
        units={**dict.fromkeys(curves, unit), "speed": speed},
        group_labels={curves[0]: "permeability $k$"},
        legend={curve: f"along {one}" for curve, one in zip(curves, axes, strict=True)},
        time_label="time step",
    )


class VoxelFields:
    """The fields of a flow, or of its snapshot, at all voxels.

    A `voxel_size` of 1 leaves lengths in voxels, and empty `units` leave the rest in lattice units.
    """

    def __init__(
        self, flow: HasFields, comm: Comm, voxel_size: float, units: Units | None = None
    ) -> None:
        self._flow, self._comm, self._voxel_size = flow, comm, voxel_size
        self._units = units or Units()
        self._subdomain = flow.subdomain
        self._rank = self._subdomain.rank
        self._slabs = slabs(self._subdomain.shape, 0, len(self._subdomain.boxes))

    def fields(self) -> Iterator[Field]:
        """Yield velocity, density, pressure and pores, a slab of planes per rank. Collective."""
        for name in _VELOCITIES:
            yield self._in_slab(name, self._moved(name))
        density = self._moved("density")
        yield self._in_slab("density", density)
        pressure = self._pressure(density)
        yield self._in_slab("pressure", pressure)
        del density, pressure
        yield self._in_slab("pore", self._moved("pore"))

    def _moved(self, name: str) -> np.ndarray:
        return self._move(self._own(name), self._subdomain.boxes, self._slabs)

    def _in_slab(self, name: str, values: np.ndarray) -> Field:
        return self._field(name, values, self._slabs[self._rank].start)

    def in_slab(self, name: str) -> Field:
        """Return one scalar field, each rank a slab of planes. Collective."""
        return self._in_slab(name, self._moved(name))

    def part(self, name: str) -> Field:
        """Return one field in this rank's box, a name of `FIELDS`; does not communicate."""
        if name == "velocity":
            parts = np.stack([self._own(one) for one in _VELOCITIES])
            return self._field(name, parts, (0, *self._subdomain.box.start))
        return self._field(name, self._own(name), self._subdomain.box.start)

    def gathered(self, name: str, root: int) -> Field:
        """Return one whole field on one rank, an empty part of it on the others. Collective."""
        everything, nothing = whole(self._subdomain.shape), Box((0,) * 3, (0,) * 3)
        boxes = self._subdomain.boxes
        targets = [everything if rank == root else nothing for rank in range(len(boxes))]
        names = tuple(_VELOCITIES) if name == "velocity" else (name,)
        moved = [self._move(self._own(one), boxes, targets) for one in names]
        if name == "velocity":
            return self._field(name, np.stack(moved), (0, 0, 0, 0))
        return self._field(name, moved[0], (0, 0, 0))

    def write_vtk(self, path: Path) -> list[Path]:
        """Write velocity, density, pressure and pores as VTK's image data. Collective.

        Rank 0 writes, a few planes at a time, and returns the file.
        """
        scalars = dict.fromkeys(("density", "pressure"), ("f4", 1))
        arrays = {"velocity": ("f4", 3), **scalars, "pore": ("u1", 1)}
        if self._rank:
            for _ in self._gathered_planes():
                pass
            return []
        with ImageDataFile(path, self._subdomain.shape, self._voxel_size, arrays) as file:
            for low, values, pores in self._gathered_planes():
                velocity = np.stack([values[one] for one in _VELOCITIES.values()], axis=-1)
                file.write("velocity", low, velocity * np.float32(self._units.velocity or 1))
                file.write("density", low, values[_DENSITY])
                file.write("pressure", low, self._pressure(values[_DENSITY]))
                file.write("pore", low, pores)
        return [path]

    def write_arrays(self, path: str | Path) -> None:
        """Write the same fields as HDF5 or zarr arrays [z, y, x], in parallel. Collective."""
        names = (*_VELOCITIES, "density", "pressure", "pore")
        units = {f"{name} unit": self._unit(name) for name in ("velocity", "density", "pressure")}
        write_arrays(
            path,
            {name: self._own(name) for name in names},
            self._subdomain.boxes,
            self._comm,
            {"voxel_size": self._voxel_size, **units},
        )

    def _gathered_planes(self) -> Iterator[tuple[int, list[np.ndarray], np.ndarray]]:
        """Yield groups of planes: the first plane, velocity and density in float32, and pores.

        On ranks other than 0 they are empty. Collective.
        """
        shape, box = self._subdomain.shape, self._subdomain.box
        for low, high in plane_ranges(shape, self._flow.storage):
            planes = Box((low, 0, 0), (high, *shape[1:]))
            sources = [one.intersect(planes) for one in self._subdomain.boxes]
            nothing = [Box((0,) * 3, (0,) * 3)] * (len(sources) - 1)
            targets, mine = [planes, *nothing], sources[self._rank]
            own = mine.start[0] - box.start[0]
            values = self._flow.fields((own, own + mine.shape[0]) if mine.size else (0, 0))
            values = values.reshape(4, *mine.shape).astype(np.float32)
            moved = [self._move(one, sources, targets) for one in values]
            yield low, moved, self._move(self._pores(mine), sources, targets)

    def _own(self, name: str) -> np.ndarray:
        """Return one scalar field in this rank's box."""
        box = self._subdomain.box
        if name == "pore":
            return self._pores(box)
        values = np.empty(box.shape, self._flow.storage.real)
        for low, high in plane_ranges(box.shape, self._flow.storage):
            values[low:high] = self._scalar(name, self._flow.fields((low, high)))
        return values

    def _scalar(self, name: str, fields: np.ndarray) -> np.ndarray:
        """Return one of the quantities derived from velocity and density."""
        density: np.ndarray = fields[_DENSITY]
        if name == "density":
            return density
        if name == "pressure":
            return self._pressure(density)
        scale = fields.dtype.type(self._units.velocity or 1)
        if name == "speed":
            values: np.ndarray = np.sqrt(np.einsum("izyx,izyx->zyx", fields[:3], fields[:3]))
        else:
            values = fields[_VELOCITIES[name]]
        scaled: np.ndarray = values * scale
        return scaled

    def _pressure(self, density: np.ndarray) -> np.ndarray:
        real, third = density.dtype.type, self._subdomain.velocity_set.sound_speed_squared
        pressure: np.ndarray
        if self._units.pressure is None:
            pressure = density * real(third)
        else:
            pressure = (density - 1) * real(third * self._units.pressure)
        return pressure

    def _pores(self, box: Box) -> np.ndarray:
        """Return the mask of a box within this rank's box."""
        start = [a - b + 1 for a, b in zip(box.start, self._subdomain.box.start, strict=True)]
        origin = Box(tuple(start), tuple(a + n for a, n in zip(start, box.shape, strict=True)))
        return self._subdomain.own[origin.slices()]

    def _move(
        self, values: np.ndarray, sources: Sequence[Box], targets: Sequence[Box]
    ) -> np.ndarray:
        return redistribute(values, sources, targets, self._comm)

    def _field(self, name: str, values: np.ndarray, start: Sequence[int]) -> Field:
        dims: tuple[str, ...] = ("z", "y", "x")
        shape: tuple[int, ...] = self._subdomain.shape
        coordinates = {
            axis: self._voxel_size * (np.arange(size) + 0.5)
            for axis, size in zip(dims, shape, strict=True)
        }
        if values.ndim == 4:
            dims, shape = ("component", *dims), (3, *shape)
            coordinates["component"] = np.array(["x", "y", "z"])
        described = describe_field(name, self._units.velocity is not None)
        return Field(
            name,
            dims,
            shape,
            tuple(start),
            values,
            coordinates,
            dict(zip(("long_name", "units"), described, strict=True)),
            "voxels" if self._voxel_size == 1 else "m",
        )

    def _unit(self, name: str) -> str:
        return describe_field(name, self._units.velocity is not None)[1]
