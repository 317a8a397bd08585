"""Fields of a flow through pores on all voxels of the image: snapshots, and their output."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box, GridBoxes, redistribute, slabs, whole
from slipstream.engine.fields import Field, PictureChoice, PlaneChoice
from slipstream.files import write_arrays
from slipstream.files.array_files import ImageDataFile
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.fluid import Units
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import SEGMENT, Storage

# Bytes of fields in one copy from the device.
BYTES_AT_ONCE = 1 << 28
# The columns of a run's series and of its results, with their labels.
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
    "residual": "estimated relative distance of the permeability from its steady value, as of the"
    " last look; 1 as long as nothing can be said",
}
# Their indices in PoreFlow.fields().
_VELOCITIES = {"velocity_x": 2, "velocity_y": 1, "velocity_z": 0}
_DENSITY = 3
# The fields of a flow, with their long names.
FIELDS = {
    "velocity": "velocity along x, y and z",
    **{name: f"velocity along {name[-1]}" for name in _VELOCITIES},
    "speed": "magnitude of the velocity",
    "density": "density",
    "pressure": "pressure, a third of the density",
    "pore": "1 in pores, 0 in solid",
}


class HasFields(Protocol):
    """A flow, or its snapshot."""

    subdomain: Subdomain
    storage: Storage

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box."""


class FlowSnapshot:
    """Velocity and density of a flow at the pores of this rank's box, at the present step.

    Attributes
    ----------
    sums : array of 4
        Sums of the speed and of the velocity (z, y, x) at those of these pores that are in the
        sample.
    """

    def __init__(self, flow: PoreFlow, sample: Box | None = None, keep: bool = True) -> None:
        """Copy the fields of a flow; without `keep`, only their sums.

        The sample is a box of the domain, by default all of it.
        """
        self.subdomain, self.storage, self.is_kept = flow.subdomain, flow.storage, keep
        box, device = self.subdomain.box, flow.device
        part = box if sample is None else sample.intersect(box)
        self.sums = flow.speed_sums(part.shifted(tuple(-start for start in box.start)))
        count = flow.sites.count if keep else 0
        self._values = np.empty((4, count), self.storage.real)
        self._first = device.to_host(flow.sites.first) if keep else np.zeros(0, np.int64)
        step = max(1, BYTES_AT_ONCE // (4 * self.storage.real.itemsize * SEGMENT)) * SEGMENT
        for low in range(0, count, step):
            high = min(low + step, count)
            values = flow.site_values(low // SEGMENT, -(-high // SEGMENT))
            for own, one in zip(self._values, values, strict=True):
                device.run(device.copy(own[low:high], one[: high - low]))

    def speeds(self) -> np.ndarray:
        """Return the speeds at this rank's pores."""
        speeds: np.ndarray = np.sqrt(np.einsum("is,is->s", self._values[:3], self._values[:3]))
        return speeds

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box, or of some planes."""
        low, high = (0, self.subdomain.box.shape[0]) if planes is None else planes
        pores = self.subdomain.own[1 + low : 1 + high, 1:-1, 1:-1] != 0
        result = np.zeros((4, *pores.shape), self.storage.real)
        result[3] = 1
        # Sites are numbered along rows; the order of rows is the storage's.
        _, height, _ = self.subdomain.box.shape
        planes_of, rows = np.arange(low, high)[:, None] + 1, np.arange(height) + 1
        first = self._first[planes_of * (height + 2) + rows].reshape(-1)
        counts = np.count_nonzero(pores.reshape(-1, pores.shape[2]), axis=1)
        before = np.cumsum(counts) - counts
        numbers = np.repeat(first - before, counts) + np.arange(counts.sum())
        result[:, pores] = self._values[:, numbers]
        return result


def snapshot_size(pores: int, storage: Storage) -> int:
    """Return the bytes of a snapshot."""
    return 4 * storage.real.itemsize * pores


def plane_ranges(shape: Sequence[int], storage: Storage) -> Iterator[tuple[int, int]]:
    """Yield ranges of planes of a box whose fields fit `BYTES_AT_ONCE`."""
    # Twice, since the pores are then selected from them.
    plane = 2 * 4 * storage.real.itemsize * math.prod(shape[1:])
    step = max(1, BYTES_AT_ONCE // max(1, plane))
    for low in range(0, shape[0] if plane else 0, step):
        yield low, min(low + step, shape[0])


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

    Each of several axes has its curve.
    """
    axis, speed = axes[-1], "m/s" if in_si else "voxels per step"
    curves = ["permeability_millidarcy" if in_metres else "permeability_lattice"]
    unit = "mD" if in_metres else "voxels²"
    if len(axes) > 1:
        curves = [f"permeability_{along}{along}" for along in axes]
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
        legend={curve: f"along {along}" for curve, along in zip(curves, axes, strict=True)},
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

    @functools.cached_property
    def _slabs(self) -> GridBoxes:
        return slabs(self._subdomain.shape, 0, len(self._subdomain.boxes))

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
        return self._move(self._rank_values(name), self._subdomain.boxes, self._slabs)

    def _in_slab(self, name: str, values: np.ndarray) -> Field:
        return self._field(name, values, self._slabs[self._rank].start)

    def in_slab(self, name: str) -> Field:
        """Return one scalar field, each rank a slab of planes. Collective."""
        return self._in_slab(name, self._moved(name))

    def part(self, name: str) -> Field:
        """Return one field in this rank's box, a name of `FIELDS`; does not communicate."""
        if name == "velocity":
            parts = np.stack([self._rank_values(one) for one in _VELOCITIES])
            return self._field(name, parts, (0, *self._subdomain.box.start))
        return self._field(name, self._rank_values(name), self._subdomain.box.start)

    def gathered(self, name: str, root: int) -> Field:
        """Return one whole field on one rank, an empty part of it on the others. Collective."""
        everything, nothing = whole(self._subdomain.shape), Box((0,) * 3, (0,) * 3)
        boxes = self._subdomain.boxes
        targets = [everything if rank == root else nothing for rank in range(len(boxes))]
        names = tuple(_VELOCITIES) if name == "velocity" else (name,)
        moved = [self._move(self._rank_values(one), boxes, targets) for one in names]
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
        in_si = self._units.velocity is not None
        units = {
            f"{name} unit": describe_field(name, in_si)[1]
            for name in ("velocity", "density", "pressure")
        }
        write_arrays(
            path,
            {name: self._rank_values(name) for name in names},
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
            sources = [rank_box.intersect(planes) for rank_box in self._subdomain.boxes]
            nothing = [Box((0,) * 3, (0,) * 3)] * (len(sources) - 1)
            targets, part = [planes, *nothing], sources[self._rank]
            first = part.start[0] - box.start[0]
            values = self._flow.fields((first, first + part.shape[0]) if part.size else (0, 0))
            values = values.reshape(4, *part.shape).astype(np.float32)
            moved = [self._move(array, sources, targets) for array in values]
            yield low, moved, self._move(self._pores(part), sources, targets)

    def _rank_values(self, name: str) -> np.ndarray:
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
