"""Values taken from those of all points: of a region, at places, or means along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.collective import sum_over_ranks
from slipstream.decomposition import Box
from slipstream.io.snapshot_files import SampledPoints
from slipstream.simulation.point_values import AXES, Layout, PointValues, interpolated, on_host
from slipstream.simulation.regions import Region
from slipstream.simulation.simulation_base import Simulation


class _Sampling:
    """Takes the values at some points from all of this rank's."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.layout: Layout = simulation.layout()
        self._box = self.layout.boxes[simulation.rank]

    def chunk_box(self, values: Any, plane: int) -> Box:
        """Return which points a chunk of values is of."""
        low = self._box.start[0] + plane
        return self._box.with_range(0, low, low + values.shape[1])


class RegionSampling(_Sampling):
    """The points of a region, each rank its own."""

    def __init__(self, simulation: Simulation, region: Region) -> None:
        super().__init__(simulation)
        self.region = region
        sections = [region.section(box)[0] for box in self.layout.boxes]
        self._own = sections[simulation.rank]
        kept = [place for place, axis in enumerate(AXES) if axis not in region.fixed]
        self._kept = kept
        lines = region.coordinates

        def of_kept(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(values[place] for place in kept)

        boxes = [
            Box(of_kept(one.start), of_kept(one.stop))
            if one.size
            else Box((0,) * len(kept), (0,) * len(kept))
            for one in sections
        ]
        self.points = SampledPoints(
            dims=tuple(AXES[place] for place in kept),
            shape=of_kept(region.shape),
            boxes=tuple(boxes),
            coordinates={AXES[place]: lines[AXES[place]] for place in kept},
            coordinate_unit=self.layout.unit,
            origin=region.origin,
            spacing=region.spacing,
            are_cells=self.layout.are_cells,
            attributes={axis: float(lines[axis][0]) for axis in region.fixed},
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return this rank's part of some components. Collective."""
        count = len(values.suffixes[components])
        part = np.empty((count, *self._own.shape), dtype)

        def keep(chunk: Any, plane: int) -> None:
            inner, slices = self.region.section(self.chunk_box(chunk, plane))
            if inner.size:
                part[(slice(None), *inner.slices(self._own))] = on_host(
                    chunk[(slice(None), *slices)]
                )

        with np.errstate(over="ignore"):
            values.each_chunk(keep, components)
        shape = [self._own.shape[place] for place in self._kept]
        return (
            part.reshape(count, *shape)
            if self._own.size
            else part[..., :0].reshape(count, *([0] * len(shape)))
        )


class PlaceSampling(_Sampling):
    """Places between the points, by cubic interpolation: the first rank has them all."""

    def __init__(self, simulation: Simulation, places: np.ndarray) -> None:
        super().__init__(simulation)
        self._places = places
        nothing = Box((0,), (0,))
        ranks = len(self.layout.boxes)
        self.points = SampledPoints(
            dims=("point",),
            shape=(len(places),),
            boxes=(Box((0,), (len(places),)), *[nothing] * (ranks - 1)),
            coordinates={
                "point": np.arange(len(places), dtype=float),
                **{axis: places[:, number] for number, axis in enumerate("xyz")},
            },
            coordinate_unit=self.layout.unit,
            attributes={"coordinates": "x y z"},
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return this rank's part of some components. Collective."""
        found: dict[int, np.ndarray] = {}

        def keep(chunk: Any, plane: int) -> None:
            box = self.chunk_box(chunk, plane)
            found[plane] = interpolated(chunk, self._places, self.layout, box)

        values.each_chunk(keep, components)
        own = np.zeros((len(self._places), len(values.suffixes[components])))
        for plane in sorted(found):
            own += found[plane]
        total = sum_over_ranks(self.simulation.comm, own).T
        part = total if self.simulation.rank == 0 else total[:, :0]
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(part, dtype)


class ProfileSampling(_Sampling):
    """Means over planes, along one axis: the first rank has them all."""

    def __init__(self, simulation: Simulation, axis: str) -> None:
        super().__init__(simulation)
        self._axis = AXES.index(axis)
        count, ranks = self.layout.shape[self._axis], len(self.layout.boxes)
        self.points = SampledPoints(
            dims=(axis,),
            shape=(count,),
            boxes=(Box((0,), (count,)), *[Box((0,), (0,))] * (ranks - 1)),
            coordinates={axis: self.layout.coordinates[axis]},
            coordinate_unit=self.layout.unit,
            origin=tuple(float(self.layout.coordinates[one][0]) for one in "xyz"),
            spacing=tuple(self.layout.spacing(one) for one in "xyz"),
            are_cells=self.layout.are_cells,
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return, on the first rank, the means over planes and then their squares. Collective."""
        found: dict[int, tuple[int, np.ndarray]] = {}
        others = tuple(1 + axis for axis in range(3) if axis != self._axis)

        def keep(chunk: Any, plane: int) -> None:
            wide = chunk.astype(np.float64, copy=False)
            sums = [on_host(part.sum(axis=others)) for part in (wide, wide * wide)]
            start = self.chunk_box(chunk, plane).start[self._axis]
            found[plane] = start, np.concatenate(sums)

        values.each_chunk(keep, components)
        count = len(values.suffixes[components])
        own = np.zeros((2 * count, *self.points.shape))
        for _, (start, sums) in sorted(found.items()):
            own[:, start : start + sums.shape[1]] += sums
        total = sum_over_ranks(self.simulation.comm, own)
        means = total * (self.points.shape[0] / float(np.prod(self.layout.shape)))
        return means if self.simulation.rank == 0 else means[:, :0]
