"""The output of a lattice run: fields on voxels, labels, pictures, and VTK's image data.

Ranks have boxes of any place and size; files are written by slabs of planes. Fields are taken from
the device a few planes at a time, since at low porosity they need more memory than the flow itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from slipstream.array_types import Comm
from slipstream.decomposition import Box, slabs, whole
from slipstream.exchange import redistribute
from slipstream.field import Field
from slipstream.io.vtk_files import ImageDataFile
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.report.picture_choice import PictureChoice

LABELS = {
    "step": "number of time steps done",
    "time": "time (time steps)",
    "step_size": "number of time steps that are done at once",
    "permeability_lattice": "permeability along the flow (squares of voxels)",
    "permeability": "permeability along the flow (m^2; squares of voxels if image.voxel_size is 1)",
    "permeability_millidarcy": "permeability along the flow (mD)",
    "velocity_x": "superficial velocity along x, mean over all voxels (voxels per step)",
    "velocity_y": "superficial velocity along y, mean over all voxels (voxels per step)",
    "velocity_z": "superficial velocity along z, mean over all voxels (voxels per step)",
    "mach": "largest Mach number",
    "mass": "mean deviation of the density from that at rest, relative to it",
    "residual": "estimated relative distance of the permeability from that of the steady flow, as"
    " of the last look; 1 as long as nothing can be said",
}
# Their indices in PoreFlow.fields().
_VELOCITIES, _DENSITY = {"velocity_x": 2, "velocity_y": 1, "velocity_z": 0}, 3
# Bytes of fields that are taken from the device at once.
BYTES_AT_ONCE = 1 << 28


def picture_choice(axis: str, in_metres: bool) -> PictureChoice:
    """Return what to draw: the permeability, and the speed in a plane along the flow's axis."""
    curve = "permeability_millidarcy" if in_metres else "permeability_lattice"
    return PictureChoice(
        curves=(curve,),
        curves_file="permeability.png",
        field="speed",
        field_file="speed.png",
        plane="the middle",
        # Otherwise a few fast throats would leave everything else black.
        brightest=0.99,
        short_labels={curve: "permeability $k$", "speed": r"speed $|u|$"},
        units={curve: "mD" if in_metres else "voxels²", "speed": "voxels per step"},
        time_label="time step",
        components=tuple(_VELOCITIES),
        mask="pore",
        normal="y" if axis == "z" else "z",
        is_central=True,
    )


class VoxelFields:
    """The fields of a flow at all voxels. Its methods are collective.

    A `voxel_size` of 1 leaves lengths in voxels.
    """

    def __init__(self, flow: PoreFlow, comm: Comm, voxel_size: float) -> None:
        self._flow, self._comm, self._voxel_size = flow, comm, voxel_size
        self._subdomain = flow.subdomain
        self._rank = self._subdomain.rank
        self._pressure_per_density = self._subdomain.velocity_set.sound_speed_squared
        self._slabs = slabs(self._subdomain.shape, 0, len(self._subdomain.boxes))

    def fields(self) -> Iterator[Field]:
        """Yield velocity, density, pressure and pores, each rank a slab of planes."""
        for name, index in _VELOCITIES.items():
            long_name = f"velocity along {name[-1]}"
            yield self._field(name, long_name, "voxels per step", self._slab_of(index))
        density = self._slab_of(_DENSITY)
        yield self._field("density", "density", "that at rest", density)
        pressure = density * density.dtype.type(self._pressure_per_density)
        yield self._field("pressure", "pressure, a third of the density", "lattice units", pressure)
        del density, pressure
        pores = self._move(self._pores(self._subdomain.box), self._subdomain.boxes, self._slabs)
        yield self._field("pore", "1 in pores, 0 in solid", "1", pores)

    def write_vtk(self, path: Path) -> list[Path]:
        """Write velocity, density, pressure and pores as VTK's image data.

        Rank 0 writes, a few planes at a time, and returns the file.
        """
        scalars = dict.fromkeys(("density", "pressure"), ("f4", 1))
        arrays = {"velocity": ("f4", 3), **scalars, "pore": ("u1", 1)}
        if self._rank:
            for low, high in self._plane_ranges(self._subdomain.shape):
                self._gather(low, high)
            return []
        with ImageDataFile(path, self._subdomain.shape, self._voxel_size, arrays) as file:
            for low, high in self._plane_ranges(self._subdomain.shape):
                values, pores = self._gather(low, high)
                velocity = np.stack([values[one] for one in _VELOCITIES.values()], axis=-1)
                file.write("velocity", low, velocity)
                file.write("density", low, values[_DENSITY])
                file.write(
                    "pressure", low, values[_DENSITY] * np.float32(self._pressure_per_density)
                )
                file.write("pore", low, pores)
        return [path]

    def _gather(self, low: int, high: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Gather planes of the domain on rank 0: velocity and density in float32, and pores."""
        planes = Box((low, 0, 0), (high, *self._subdomain.shape[1:]))
        sources = [box.intersect(planes) for box in self._subdomain.boxes]
        targets = [planes if rank == 0 else Box((0,) * 3, (0,) * 3) for rank in range(len(sources))]
        mine, box = sources[self._rank], self._subdomain.box
        own = mine.start[0] - box.start[0]
        values = self._flow.fields((own, own + mine.shape[0]) if mine.size else (0, 0))
        values = values.reshape(4, *mine.shape).astype(np.float32)
        moved = [self._move(one, sources, targets) for one in values]
        return moved, self._move(self._pores(mine), sources, targets)

    def _slab_of(self, index: int) -> np.ndarray:
        """Return one field in this rank's slab."""
        box = self._subdomain.box
        values = np.empty(box.shape, self._flow.storage.real)
        for low, high in self._plane_ranges(box.shape):
            values[low:high] = self._flow.fields((low, high))[index]
        return self._move(values, self._subdomain.boxes, self._slabs)

    def _pores(self, box: Box) -> np.ndarray:
        """Return the mask of a box within this rank's box."""
        start = [a - b + 1 for a, b in zip(box.start, self._subdomain.box.start, strict=True)]
        origin = Box(tuple(start), tuple(a + n for a, n in zip(start, box.shape, strict=True)))
        return self._subdomain.own[origin.slices()]

    def _move(
        self, values: np.ndarray, sources: Sequence[Box], targets: Sequence[Box]
    ) -> np.ndarray:
        return redistribute(values, sources, targets, self._comm)

    def _plane_ranges(self, shape: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield ranges of planes whose fields fit `BYTES_AT_ONCE`."""
        plane = 4 * self._flow.storage.real.itemsize * math.prod(shape[1:])
        step = max(1, BYTES_AT_ONCE // max(1, plane))
        for low in range(0, shape[0] if whole(shape).size else 0, step):
            yield low, min(low + step, shape[0])

    def _field(self, name: str, long_name: str, unit: str, values: np.ndarray) -> Field:
        coordinates = {
            axis: self._voxel_size * (np.arange(size) + 0.5)
            for axis, size in zip("zyx", self._subdomain.shape, strict=True)
        }
        return Field(
            name,
            ("z", "y", "x"),
            self._subdomain.shape,
            self._slabs[self._rank].start,
            values,
            coordinates,
            {"long_name": long_name, "units": unit},
            "voxels" if self._voxel_size == 1 else "m",
        )
