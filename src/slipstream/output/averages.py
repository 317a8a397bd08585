"""Averages over time of fields of some points, with errors: their sums are kept with states."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case.output_tables import AveragesOutput
from slipstream.collective import on_every_rank, sum_over_ranks
from slipstream.errors import InputError, RunError
from slipstream.field import Field
from slipstream.io.checkpoint import AVERAGE, Checkpoint
from slipstream.output.contents import ChosenFields
from slipstream.output.formats import SampledArray
from slipstream.output.regions import (
    ProfileSampling,
)
from slipstream.simulation.point_values import PointValues
from slipstream.simulation.simulation_base import Simulation
from slipstream.time_averages import RunningAverage

# Batches of an average where none are asked for; and samples in each where no end is known.
_BATCHES, _USUAL_BATCH = 16, 50
_NO_END = 1e30


class ChosenAverages(ChosenFields):
    """Averages over time of fields and expressions, to which a sample of the state is added.

    Sums are on the host, in double precision: 32 bytes for each value. A state from which the
    simulation is restored may contain the earlier sums, which are then continued.
    """

    settings: AveragesOutput
    group = "averages"

    def __init__(
        self,
        simulation: Simulation,
        settings: AveragesOutput,
        where: str,
        quantities: Mapping[str, Any] | None = None,
        start: float | None = None,
    ) -> None:
        super().__init__(simulation, settings, where, quantities)
        self.start = simulation.time if start is None else start
        if settings.since is not None:
            self.start = settings.since
        end = simulation.case.time.end
        if settings.since is not None and self.start >= end:
            raise InputError(f"{where}.since: is {self.start:g}; accepted: less than time.end")
        self.batch = settings.batch or self._usual_batch(end)
        shape = self._sampling.points.boxes[simulation.rank].shape
        # By the names of averages, which are those of values but for the phase.
        self._sums: dict[str, RunningAverage] = {}
        self._averaged: dict[str, PointValues] = {}
        for name, one in self._values.items():
            for phase in range(settings.phases):
                own, begin = self._name(name, phase), self._begin(phase)
                self._averaged[own] = one
                sums = RunningAverage((len(one.suffixes), *shape), self.batch, begin)
                self._sums[own] = sums
        # Mean squares within the planes of a profile, about their mean.
        self._spread = {name: np.zeros_like(one.mean) for name, one in self._sums.items()}
        self._is_profile = isinstance(self._sampling, ProfileSampling)

    def _name(self, name: str, phase: int) -> str:
        phases = self.settings.phases
        return name if phases == 1 else f"{name}_phase_{phase:0{len(str(phases - 1))}d}"

    def _begin(self, phase: int) -> float:
        """Return the time from which the first sample of a phase counts: a period before it."""
        settings = self.settings
        return self.start + ((phase or settings.phases) - settings.phases) * settings.interval

    def _usual_batch(self, end: float) -> float:
        interval = self.settings.period
        if end >= _NO_END or end <= self.start:
            return _USUAL_BATCH * interval
        return max(2, math.ceil((end - self.start) / interval / _BATCHES * (1 - 1e-9))) * interval

    def begin_at(self, time: float) -> None:
        """Begin at a time, without any samples."""
        self.start = time
        for place, (name, sums) in enumerate(self._sums.items()):
            begin = self._begin(place % self.settings.phases)
            self._sums[name] = RunningAverage(sums.mean.shape, self.batch, begin)
            self._spread[name][...] = 0

    @property
    def sums(self) -> Mapping[str, RunningAverage]:
        """The averages so far, by name."""
        return self._sums

    @property
    def last(self) -> float:
        """Time of the last sample, or of the start."""
        return max(one.last for one in self._sums.values())

    def statistic(self, name: str, kind: str) -> np.ndarray:
        """Return the mean, the fluctuation or the error of this rank's part, component first."""
        sums = self._sums[name]
        if self.settings.phases > 1 and not sums.samples:
            return np.full(sums.mean.shape, np.nan)
        if kind == "mean":
            return sums.mean
        if kind == "fluctuation":
            variance = sums.variance + self._spread[name]
        else:
            variance = sums.variance_of_mean
        deviation: np.ndarray = np.sqrt(variance)
        return deviation

    def write_now(self, path: Path) -> None:
        """Write the averages so far into a file of this name. Collective."""
        self.settings = self.settings.model_copy(update={"file": path.name})
        self._files = None
        self.open(path.parent)
        self.write()

    @property
    def samples(self) -> int:
        """How many samples there have been."""
        first = itertools.islice(self._sums.values(), self.settings.phases)
        return sum(one.samples for one in first)

    def sample(self) -> None:
        """Add the present state, which counts for the time since the last sample. Collective."""
        time, interval = self._simulation.time, self.settings.interval
        if time - self.last <= 1e-9 * interval:
            return
        phase = round((time - self.start) / interval) % self.settings.phases
        for name, values in self._values.items():
            own = self._name(name, phase)
            sums, spread = self._sums[own], self._spread[own]
            weight, parts = time - sums.last, []
            for low in range(0, len(values.suffixes), 3):
                taken = self._sampling.take(values, slice(low, low + 3), np.dtype(float))
                if self._is_profile:
                    mean, square = np.split(taken, 2)
                    within = np.maximum(square - mean**2, 0.0)
                    spread[low : low + 3] += (within - spread[low : low + 3]) * (
                        weight / (sums.duration + weight)
                    )
                    taken = mean
                parts.append(taken)
            part = np.concatenate(parts) if len(parts) > 1 else parts[0]
            self._check_finite(name, part)
            sums.add(part.reshape(sums.mean.shape), time)

    def _check_finite(self, name: str, part: np.ndarray) -> None:
        def check() -> None:
            if not np.isfinite(part).all():
                raise RunError(
                    f"{self.where}: {name} has values that are no number at t ="
                    f" {self._simulation.time:.6g}, so it has no average"
                )

        on_every_rank(self._simulation.comm, check)

    # -- output --------------------------------------------------------------------------------

    def _arrays(self) -> list[SampledArray]:
        texts = {
            "mean": "time average of {}",
            "fluctuation": "root mean square of the fluctuation of {}",
            "error": "standard error of the time average of {}",
        }
        dtype = np.dtype(self.settings.precision or "float64")
        return [
            SampledArray(f"{name}_{end}", one.suffixes, dtype, text.format(one.long_name), one.unit)
            for name, one in self._averaged.items()
            for end, text in texts.items()
        ]

    def _attributes(self) -> dict[str, Any]:
        found = {"since": self.start, "interval": self.settings.interval, "batch": self.batch}
        return found | ({"phases": self.settings.phases} if self.settings.phases > 1 else {})

    def _part(self, array: SampledArray, components: slice) -> np.ndarray:
        name, _, end = array.name.rpartition("_")
        found = self.statistic(name, end)
        return np.ascontiguousarray(found[components], array.dtype)

    def write(self, step_size: float = 0.0) -> None:
        """Write the averages so far, and warn of errors that are not to be trusted. Collective."""
        super().write()
        for name, sums in self._sums.items():
            if not sums.samples:
                self._simulation.warn([f"{self.where}: {name} has no samples yet"])
                continue
            own = [float(np.nansum(one)) for one in (sums.variance, sums.variance_of_mean)]
            variances = sum_over_ranks(self._simulation.comm, np.array(own))
            doubts = sums.doubts(*map(float, variances))
            self._simulation.warn([f"{self.where}: {name}: {text}" for text in doubts])

    # -- what states keep ----------------------------------------------------------------------

    def checkpoint(self) -> Iterator[Field]:
        """Yield the sums so far, as part of a state. Collective."""
        simulation, points = self._simulation, self._sampling.points
        box = points.boxes[simulation.rank]
        copied = np.copy if simulation.output_is_copied else np.asarray
        for name, sums in self._sums.items():
            numbers = np.array([self._mark(), sums.batch_length, sums.start, *sums.numbers])
            yield self._kept(f"{name}.numbers", numbers.shape, (0,), numbers, simulation.rank == 0)
            parts = {**sums.arrays, **({"spread": self._spread[name]} if self._is_profile else {})}
            for part, values in parts.items():
                for number, suffix in enumerate(self._averaged[name].suffixes):
                    yield self._kept(
                        f"{name}{suffix}.{part}",
                        points.shape,
                        box.start,
                        copied(values[number]),
                        bool(box.size),
                    )

    def _kept(
        self,
        name: str,
        shape: tuple[int, ...],
        offset: tuple[int, ...],
        values: np.ndarray,
        is_mine: bool,
    ) -> Field:
        full = f"{AVERAGE}{self.settings.stem}.{name}"
        dims = tuple(f"{full}.{axis}" for axis in range(len(shape)))
        if not is_mine:
            offset, values = (0,) * len(shape), np.zeros((0,) * len(shape))
        return Field(full, dims, shape, offset, values)

    def _mark(self) -> float:
        """Return a number that identifies the averages and their settings."""
        return float(zlib.crc32(self.settings.identity.encode()))

    def restore(self, state: Checkpoint) -> str:
        """Continue the sums in a state; return the reason if that is impossible. Collective."""

        def read() -> str:
            for name in self._sums:
                problem = self._read(state, name)
                if problem:
                    return problem
            self.start = max(one.start for one in self._sums.values())
            return ""

        found = on_every_rank(self._simulation.comm, read)
        comm = self._simulation.comm
        problems = [found] if comm is None else comm.allgather(found)
        return next(filter(None, problems), "")

    def _read(self, state: Checkpoint, name: str) -> str:
        sums, points = self._sums[name], self._sampling.points
        stem = f"{AVERAGE}{self.settings.stem}.{name}"
        if f"{stem}.numbers" not in state.arrays:
            return "the state has no such average"
        mark, batch, start, *numbers = state.read(f"{stem}.numbers").tolist()
        if mark != self._mark() or len(numbers) != len(sums.numbers):
            return "its settings are not those of before"
        box = points.boxes[self._simulation.rank]
        suffixes = self._averaged[name].suffixes
        parts = {**sums.arrays, **({"spread": self._spread[name]} if self._is_profile else {})}
        for part, values in parts.items():
            for number, suffix in enumerate(suffixes):
                array = f"{stem}{suffix}.{part}"
                if state.shapes.get(array) != points.shape:
                    return "its points are others than before"
                if box.size:
                    values[number] = state.read(array, box.start, box.shape)
        sums.numbers = np.array(numbers)
        sums.batch_length, sums.start = batch, start
        self.batch = batch
        return ""
