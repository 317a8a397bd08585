"""Particles that a flow carries: tracers, and heavy ones with Stokes drag and gravity.

A step interpolates the velocity of its start at each particle. Polynomials of Lagrange take it
from the points that the first product of the step has anyway, and stores; what splines take is
transformed before the step (`interpolation.py`). One kernel interpolates and moves the particles.
These are nodes of the recorded step, as those of the flow are.

A rank has the particles between its points. They may leave these for as long as the halo suffices;
then all that are outside go to the ranks that have their places. Each
particle is computed alone, so their order in memory changes no bit. Positions are in double
precision and not taken back into the periodic box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from slipstream.case.named_tables import ParticleSet, array_of
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import largest, on_every_rank, sum_over_ranks
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device
from slipstream.engine.device.array_kernels import add_particles
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.exchange import Transport
from slipstream.engine.fields import Field
from slipstream.engine.schedule import StepGraph
from slipstream.files.checkpoint import PARTICLES, Checkpoint
from slipstream.spectral.evaluation import Evaluation
from slipstream.spectral.expressions import quantity_of
from slipstream.spectral.interpolation import HALO, TOGETHER, Interpolant, halo_widths
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem, velocity_of

# Bytes that a rank sends in one round: messages of MPI count them in 32 bits.
_MOST_BYTES = 1 << 28
# How many cells a block has along each axis, in whose order particles are sorted for the cache.
_BLOCK = 4
# Particles whose first places are drawn together.
_DRAWN_TOGETHER = 1 << 16
# Steps after which particles are put into the order of blocks of cells, for the cache.
_SORT_INTERVAL = 32


# -- particles of one rank, and of all -------------------------------------------------------------


class ParticleRanks:
    """Who has which places, and which identities."""

    def __init__(self, problem: SpectralProblem, comm: Comm) -> None:
        geometry = problem.geometry
        self._comm = comm
        self.rank, self.count = geometry.rank, len(geometry.physical_boxes)
        sizes = zip(geometry.shape, problem.lengths, strict=True)
        # Numbers of points along z and y, and points per length.
        self._axes = [(n, n / length) for n, length in sizes][:2]
        # The ranks that have points, by plane and row.
        self._owner: Array = np.zeros(geometry.shape[:2], np.int64)
        for rank, box in enumerate(geometry.physical_boxes):
            self._owner[box.start[0] : box.stop[0], box.start[1] : box.stop[1]] = rank

    def of_places(self, places: Array, module: Any = np) -> Array:
        """Return the ranks that have the points at places [x, y, z] in an array of this module."""
        if not module.isfinite(places).all():
            raise RunError(
                "particles: positions are not finite any more; use a smaller time.step, if the flow"
                " has blown up"
            )
        indices = []
        for (n, per_length), own in zip(self._axes, (places[2], places[1]), strict=True):
            point = (module.floor(own * per_length) % n).astype(np.int64)
            indices.append(module.minimum(point, n - 1))
        if module is not np and isinstance(self._owner, np.ndarray):
            self._owner = module.asarray(self._owner)
        return self._owner[indices[0], indices[1]]

    def range_of(self, number: int, rank: int | None = None) -> tuple[int, int]:
        """Return the identities of `number` particles that a rank writes, and reads."""
        return split(number, self.count)[self.rank if rank is None else rank]

    def of_identities(self, identity: np.ndarray, number: int) -> np.ndarray:
        """Return the ranks that write identities."""
        starts = np.array([low for low, _ in split(number, self.count)])
        return np.searchsorted(starts, identity, side="right") - 1

    def exchange(
        self, destination: np.ndarray, identity: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send particles of the host to ranks; return the arriving ones, by rank. Collective."""
        comm = self._comm
        if comm is None:
            return identity, values
        order = np.argsort(destination, kind="stable")
        sent_bytes = len(order) * (len(values) * values.itemsize + identity.itemsize)
        rounds = comm.allreduce(max(1, math.ceil(sent_bytes / _MOST_BYTES)), op=max)
        came: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.count)]
        for low, high in split(len(order), rounds):
            sent = self._parts(order[low:high], destination, identity, values)
            for rank, part in enumerate(comm.alltoall(sent)):
                if part is not None:
                    came[rank].append(part)
        parts = [part for of_rank in came for part in of_rank]
        if not parts:
            return identity[:0], values[:, :0]
        return (
            np.concatenate([part for part, _ in parts]),
            np.concatenate([part for _, part in parts], axis=1),
        )

    def _parts(
        self, order: np.ndarray, destination: np.ndarray, identity: np.ndarray, values: np.ndarray
    ) -> Sequence[Any]:
        """Return each rank's share of some particles in the order of ranks, None for nothing."""
        ends = np.searchsorted(destination[order], np.arange(self.count + 1))
        parts: list[Any] = [None] * self.count
        for rank, (low, high) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
            if low < high:
                own = order[low:high]
                parts[rank] = identity[own], np.ascontiguousarray(values[:, own])
        return parts


class ParticleState:
    """The particles of one set on this rank.

    Attributes
    ----------
    state : array, shape (6 or 9, capacity)
        Position, driving velocity of the step before and, of inertial ones, velocity; x first.
    identity : array of int64
        The number of each particle.
    count : int
        How many there are here.
    """

    def __init__(self, settings: ParticleSet, device: Device) -> None:
        self.settings, self._device = settings, device
        self.is_inertial = settings.kind == "inertial"
        self.rows = 9 if self.is_inertial else 6
        self.count, self.capacity = 0, 0
        self.state: Array = device.empty((self.rows, 0), np.float64)
        self.identity: Array = device.empty((0,), np.int64)
        # How many there are; how many are so far outside that they have to go to other ranks.
        self.counts = device.zeros((2,), np.int64)
        self.numbers = device.zeros((9,), np.float64)
        # The size of the last step; none before the first, and where the flow has been set.
        self.last_step: float | None = None
        self._numbers_of: tuple[float, float | None] | None = None

    def fill(self, identity: Array, state: Array, spare: float) -> bool:
        """Have these particles, here or on the host; return whether memory is new."""
        device, count = self._device, len(identity)
        grows = count > self.capacity or not self.capacity
        if grows:
            self.capacity = max(TOGETHER, math.ceil(count * (1 + spare)))
            self.state = device.zeros((self.rows, self.capacity), np.float64)
            self.identity = device.zeros((self.capacity,), np.int64)
        if count:
            for target, source in zip(self.state, state, strict=True):
                device.run(device.copy(target[:count], source))
            device.run(device.copy(self.identity[:count], identity))
        self.count = count
        device.run(device.copy(self.counts, np.array([count, 0])))
        device.synchronize()
        return grows

    def set_step(self, step: float) -> None:
        """Set what the next step, of this size, multiplies by."""
        if self._numbers_of != (step, self.last_step):
            one = self.settings
            numbers = step_numbers(step, self.last_step, one.response_time)
            drift = [(one.response_time or 0.0) * g for g in one.gravity]
            self._device.synchronize()
            self._device.run(self._device.copy(self.numbers, np.array([*numbers, *drift])))
            self._device.synchronize()
            self._numbers_of = step, self.last_step
        self.last_step = step

    def sort(self, shape: Sequence[int], lengths: Sequence[float]) -> None:
        """Put particles into the order of Morton of the blocks of cells that they are in."""
        module = self._device.array_module
        self._device.synchronize()
        key: Any = 0
        for n, length, row in zip(shape, lengths, (2, 1, 0), strict=True):
            cell = module.floor(self.state[row, : self.count] * (n / length)) % n
            key = key + (_spread((cell / _BLOCK).astype(np.int64)) << row)
        order = module.argsort(key)
        for row in (*self.state, self.identity):
            row[: self.count] = row[: self.count][order]
        self._device.synchronize()


def _spread(numbers: Any) -> Any:
    """Return numbers of up to 21 bits with two zeros after each bit."""
    for shift, mask in (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ):
        numbers = (numbers | numbers << shift) & mask
    return numbers


# -- numbers of the step, and first places ---------------------------------------------------------


def step_numbers(
    step: float, before: float | None, response_time: float | None
) -> tuple[float, float, float, float, float, float]:
    """Return a step's factors of velocity, driving velocity and earlier driving velocity.

    The first three are for the position, the others for the velocity. The driving velocity N is
    linear in time: N + (t / before) (N - N'), and dv/dt = (N - v) / response_time is exact.
    """
    ratio = step / before if before else 0.0
    if response_time is None:
        return 0.0, step * (1 + ratio / 2), -step * ratio / 2, 0.0, 1.0, 0.0
    z = step / response_time
    decay = math.exp(-z)
    # Integrals of the exponential: (1 - exp(-z)) / z, and its remainders of higher order.
    first, second, third = (_tail(z, order) for order in (1, 2, 3))
    present, slope = z * second, ratio * z * third
    return (
        step * first,
        step * (present + slope),
        -step * slope,
        decay,
        z * first + ratio * z * second,
        -ratio * z * second,
    )


def _tail(z: float, order: int) -> float:
    """Return sum_n (-z)^n / (n + order)!: of order 1 that is (1 - exp(-z)) / z."""
    if z < 1:
        return math.fsum((-z) ** n / math.factorial(n + order) for n in range(20))
    tail = math.exp(-z)
    for lower in range(order):
        tail = (1 / math.factorial(lower) - tail) / z
    return tail


def first_places(settings: ParticleSet, low: int, high: int, lengths: np.ndarray) -> np.ndarray:
    """Return where particles of some identities begin: uniform in the box, or in pairs."""
    pairs = settings.separation is not None
    first, last = (low // 2, -(-high // 2)) if pairs else (low, high)
    places = np.empty((3, last - first))
    directions = np.empty((3, last - first))
    for block in range(first // _DRAWN_TOGETHER, -(-last // _DRAWN_TOGETHER)):
        start = block * _DRAWN_TOGETHER
        random = np.random.default_rng([settings.seed, block])
        drawn = slice(max(start, first) - start, min(start + _DRAWN_TOGETHER, last) - start)
        part = slice(start + drawn.start - first, start + drawn.stop - first)
        places[:, part] = random.random((3, _DRAWN_TOGETHER))[:, drawn]
        if pairs:
            directions[:, part] = random.standard_normal((3, _DRAWN_TOGETHER))[:, drawn]
    places *= lengths[:, None]
    if not pairs:
        return places
    directions *= (settings.separation or 0.0) / np.linalg.norm(directions, axis=0)
    both = np.stack([places, places + directions], axis=2).reshape(3, -1)
    return both[:, low - 2 * first : high - 2 * first]


# -- particles in a simulation ---------------------------------------------------------------------


def check_particles(sets: Sequence[ParticleSet], problem: SpectralProblem) -> None:
    """Refuse what cannot be computed, or recorded."""
    if not sets:
        return
    velocity_of(problem.model)
    shape = problem.geometry.shape
    for axis, width in enumerate(halo_widths(problem.geometry)):
        if shape[axis] < width:
            raise InputError(
                f"particles: {shape[axis]} points along {'zy'[axis]}, which ranks divide; accepted:"
                f" {HALO} or more, or one rank"
            )
    for number, one in enumerate(sets, 1):
        for text in one.record:
            where = f"particles[{number}].record"
            if quantity_of(text, problem, where).is_complex:
                raise InputError(f"{where}: {text!r} is complex; accepted: its real or imag")


def bytes_of_particles(sets: Sequence[ParticleSet], problem: SpectralProblem) -> int:
    """Return the bytes of fields to interpolate, and of particles if all ranks have as many."""
    geometry = problem.geometry
    (planes, ny, nx), (along_z, along_y) = geometry.physical_box.shape, halo_widths(geometry)
    points = (planes + 2 * along_z) * (ny + 2 * along_y) * nx
    points += planes * ny * nx if along_y else 0
    fields = 3 * points * problem.real_dtype.itemsize * len({swarm.interpolation for swarm in sets})
    # With values that are sampled.
    rows = (13 if swarm.kind == "inertial" else 10 for swarm in sets)
    return fields + sum(
        8 * row * math.ceil(1.3 * swarm.number / geometry.ranks)
        for row, swarm in zip(rows, sets, strict=True)
    )


class Particles:
    """All sets of particles of a simulation, on this rank. Methods are collective."""

    def __init__(
        self,
        sets: Sequence[ParticleSet],
        flow: SpectralStep,
        transport: Transport | None,
        comm: Comm,
    ) -> None:
        self._comm = comm
        self.sets = [ParticleState(one, flow.device) for one in sets]
        self._evaluations: dict[str, Evaluation] = {}
        self.attach(flow, transport)
        self._steps = 0

    def attach(self, flow: SpectralStep, transport: Transport | None) -> None:
        """Be carried by a step from now on, of the same fields as before."""
        self._flow = flow
        kinds = dict.fromkeys(swarm.settings.interpolation for swarm in self.sets)
        self._interpolants = {kind: Interpolant(kind, flow, transport) for kind in kinds}
        self._ranks = ParticleRanks(flow.problem, self._comm)
        flow.before = []
        for kind, interpolant in self._interpolants.items():
            record = partial(self._record_kind, kind)
            if interpolant.is_stored:
                flow.stored_points, flow.with_points = interpolant.points, record
            else:
                flow.before.append(record)

    @property
    def _spare(self) -> float:
        """How much more memory there is than for the particles that are here."""
        return 0.3 if self._ranks.count > 1 else 0.0

    # -- in a step ---------------------------------------------------------------------------

    def _record_kind(self, kind: str, graph: StepGraph) -> None:
        """Record the step of particles of one interpolation: before, or with, the flow."""
        flow, interpolant = self._flow, self._interpolants[kind]
        if interpolant.is_stored:
            interpolant.record_halo(graph)
        else:
            velocity = flow.read_state()[velocity_of(flow.problem.model)]
            interpolant.record_transform(graph, velocity)
        for one in self.sets:
            if one.settings.interpolation == kind:
                self._record_set(graph.on(self._flow.device), one)

    def _interpolant(self, swarm: ParticleState) -> Interpolant:
        return self._interpolants[swarm.settings.interpolation]

    def _record_set(self, graph: StepGraph, swarm: ParticleState) -> None:
        device, interpolant = self._flow.device, self._interpolant(swarm)
        kernel = device.kernel(
            "particles.hpp",
            "advance_particles",
            INERTIAL=int(swarm.is_inertial),
            **interpolant.constants,
        )
        blocks = -(-swarm.capacity // TOGETHER)
        field = math.prod(self._flow.problem.geometry.physical_box.shape)
        for number, (low, high) in enumerate(split(blocks, device.lanes)):
            if low == high:
                continue
            first, last = low * TOGETHER, min(high * TOGETHER, swarm.capacity)
            operation = kernel.bind(
                interpolant.launch(last - first),
                swarm.state,
                swarm.capacity,
                first,
                high - low,
                last,
                swarm.numbers,
                swarm.counts,
                *interpolant.arguments,
            )
            item = interpolant.array.itemsize
            per_field = min(64 * (last - first), field)
            graph.add(
                operation,
                reads=[interpolant.array, swarm.numbers],
                writes=[swarm.state[:, first:last]],
                label="particles",
                category="compute",
                lane=graph.lane_of_batch(number, device)[1],
                moves=(
                    3 * per_field * item + 8 * swarm.rows * (last - first),
                    8 * swarm.rows * (last - first),
                ),
            )

    def set_step_size(self, step: float) -> None:
        """Set the size of the next step. Does not communicate."""
        for one in self.sets:
            one.set_step(step)

    def after_step(self) -> bool:
        """Send particles to other ranks if the halo requires it; return whether to record again."""
        self._steps += 1
        grows = False
        if self._ranks.count > 1:
            device = self._flow.device
            far = np.array([float(device.to_host(swarm.counts)[1]) for swarm in self.sets])
            counts = sum_over_ranks(self._comm, far)
            for swarm, count in zip(self.sets, counts, strict=True):
                if count:
                    grows |= self._send_home(swarm)
            grows = bool(counts.any()) and largest(self._comm, int(grows)) > 0
        if self._steps % _SORT_INTERVAL == 0:
            for swarm in self.sets:
                self._sort(swarm)
        return grows

    def forget_steps(self) -> None:
        """Begin again with a step of Euler, since the flow has become another one."""
        for one in self.sets:
            one.last_step = None

    def _sort(self, swarm: ParticleState) -> None:
        problem = self._flow.problem
        swarm.sort(problem.geometry.shape, problem.lengths)

    # -- between ranks -----------------------------------------------------------------------

    def _send_home(self, swarm: ParticleState) -> bool:
        """Send particles to the ranks that have their places; return whether memory has grown."""
        device, module = self._flow.device, self._flow.device.array_module
        device.synchronize()
        identity, state = (
            swarm.identity[: swarm.count],
            swarm.state[:, : swarm.count],
        )
        homes: Any = on_every_rank(self._comm, lambda: self._ranks.of_places(state[:3], module))
        leaving = module.flatnonzero(homes != self._ranks.rank)
        arriving = self._ranks.exchange(
            device.to_host(homes[leaving]),
            device.to_host(identity[leaving]),
            device.to_host(state[:, leaving]),
        )
        new_identity, new_state = map(module.asarray, arriving)
        stay = module.flatnonzero(homes == self._ranks.rank)
        return swarm.fill(
            module.concatenate([identity[stay], new_identity]),
            module.concatenate([state[:, stay], new_state], axis=1),
            self._spare,
        )

    def _store_particles(
        self, swarm: ParticleState, identity: np.ndarray, state: np.ndarray
    ) -> bool:
        """Take particles of the host, which go to the ranks that have their places."""
        homes: Any = on_every_rank(self._comm, lambda: self._ranks.of_places(state[:3]))
        grows = swarm.fill(*self._ranks.exchange(homes, identity, state), self._spare)
        self._sort(swarm)
        return grows

    def _range(self, swarm: ParticleState) -> tuple[int, int]:
        """Return the identities that this rank writes, and reads."""
        return self._ranks.range_of(swarm.settings.number)

    def by_identity(self, swarm: ParticleState, values: Array) -> np.ndarray:
        """Return values [row, particle here] of the identities of `_range`, in their order."""
        device, number = self._flow.device, swarm.settings.number
        identity = device.to_host(swarm.identity[: swarm.count])
        owner = self._ranks.of_identities(identity, number)
        identity, values = self._ranks.exchange(owner, identity, device.to_host(values))
        low, high = self._range(swarm)
        result = np.empty((len(values), high - low), values.dtype)
        result[:, identity - low] = values
        return result

    # -- states ------------------------------------------------------------------------------

    def begin(self, sets: Sequence[ParticleState] | None = None) -> None:
        """Place particles as the case says; the step is to be recorded after that."""
        for swarm in self.sets if sets is None else sets:
            low, high = self._range(swarm)
            lengths = np.array(self._flow.problem.lengths[::-1])
            self._set_places(swarm, first_places(swarm.settings, low, high, lengths))

    def set_places(self, swarm: ParticleState, places: np.ndarray) -> bool:
        """Start particles at positions, with the fluid's velocity; return whether to record."""
        low, high = self._range(swarm)
        return self._set_places(swarm, places[low:high].T)

    def _set_places(self, swarm: ParticleState, places: np.ndarray) -> bool:
        low, high = self._range(swarm)
        state = np.zeros((swarm.rows, high - low))
        state[:3] = places
        grows = self._store_particles(swarm, np.arange(low, high), state)
        swarm.last_step = None
        self.take_velocities([swarm])
        return largest(self._comm, int(grows)) > 0

    def take_velocities(self, sets: Sequence[ParticleState] | None = None) -> None:
        """Give inertial particles the velocity of the fluid."""
        device = self._flow.device
        for particles in self.sets if sets is None else sets:
            if particles.is_inertial:
                for row, source in zip(particles.state[6:], self._of_fluid(particles), strict=True):
                    device.run(device.copy(row[: particles.count], source))
                device.synchronize()

    def read(self, checkpoint: Checkpoint) -> list[str]:
        """Take particles from a state; return warnings of sets that it lacks. Record again."""
        warnings = []
        for swarm in self.sets:
            stem = f"{PARTICLES}{swarm.settings.name}"
            name = f"{stem}.state"
            if name not in checkpoint.arrays:
                warnings.append(
                    f"{checkpoint.path} has no particles {swarm.settings.name!r}: they begin at the"
                    " places that the case gives"
                )
                self.begin([swarm])
                continue

            def stored(swarm: ParticleState = swarm, name: str = name, stem: str = stem) -> Any:
                shape = swarm.settings.number, swarm.rows
                if checkpoint.shapes[name] != shape:
                    raise InputError(
                        f"particles: {checkpoint.path} has {checkpoint.shapes[name][0]} particles"
                        f" {swarm.settings.name!r} with {checkpoint.shapes[name][1]} numbers each,"
                        f" the case {shape[0]} with {shape[1]}; accepted: the same number and kind,"
                        " or another name"
                    )
                low, high = self._range(swarm)
                values = checkpoint.read(name, (low, 0), (high - low, swarm.rows))
                return np.ascontiguousarray(values.T), float(checkpoint.read(f"{stem}.step")[0])

            state, last = on_every_rank(self._comm, stored)
            low, high = self._range(swarm)
            self._store_particles(swarm, np.arange(low, high), state)
            swarm.last_step = last if last > 0 else None
        return warnings

    def checkpoint(self) -> Iterator[Field]:
        """Yield the particles by identity, as part of a state."""
        for swarm in self.sets:
            stem = f"{PARTICLES}{swarm.settings.name}"
            values = self.by_identity(swarm, swarm.state[:, : swarm.count])
            shape = swarm.settings.number, swarm.rows
            yield _field(f"{stem}.state", values.T, self._range(swarm)[0], shape)
            step = np.array([swarm.last_step or 0.0]) if self._ranks.rank == 0 else np.zeros(0)
            yield _field(f"{stem}.step", step, 0, (1,))

    def add_to_digest(self, sums: Array, start: int) -> None:
        """Add all numbers of the particles that are here; places begin at `start`."""
        for particles in self.sets:
            arrays = particles.state[:, : particles.count], particles.identity[: particles.count]
            add_particles(self._flow.device, *arrays, sums, start)
            start += particles.rows * particles.settings.number

    def kept(self) -> list[Any]:
        """Return all particles of a single rank, to be pickled."""
        device = self._flow.device
        device.synchronize()
        return [
            (
                np.array(device.to_host(swarm.identity[: swarm.count])),
                np.array(device.to_host(swarm.state[:, : swarm.count])),
                swarm.last_step,
            )
            for swarm in self.sets
        ]

    def restore(self, kept: Sequence[Any]) -> bool:
        """Take over what others have kept on the same ranks; return whether memory has grown."""
        grows = False
        for one, (identity, state, last_step) in zip(self.sets, kept, strict=True):
            grows |= one.fill(identity, state, self._spare)
            one.last_step = last_step
        return largest(self._comm, int(grows)) > 0

    # -- results -----------------------------------------------------------------------------

    def set_of(self, name: str) -> ParticleState:
        """Return the particles of a name."""
        for particles in self.sets:
            if particles.settings.name == name:
                return particles
        names = ", ".join(particles.settings.name for particles in self.sets) or "none"
        raise InputError(f"particles: there are no {name!r}; there are: {names}")

    def whole(self, name: str, of: str, time: float) -> np.ndarray:
        """Return something at all particles by identity, on all ranks: [particle, ...]."""
        own = next(iter(self._recorded(self.set_of(name), [of], time)))[1]
        return own if self._comm is None else np.concatenate(self._comm.allgather(own))

    def _recorded(
        self, swarm: ParticleState, wanted: Sequence[str], time: float
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield positions, velocities and expressions at the particles of `_range`."""
        for text in wanted:
            shape: tuple[int, ...] = (3,)
            if text == "position":
                values = swarm.state[:3, : swarm.count]
            elif text == "velocity":
                values = (
                    swarm.state[6:, : swarm.count] if swarm.is_inertial else self._of_fluid(swarm)
                )
            else:
                values = self._evaluated(swarm, text, time)
                shape = self._evaluation(text).shape
            yield text, self.by_identity(swarm, values).T.reshape(-1, *shape)

    def _evaluated(self, swarm: ParticleState, expression: str, time: float) -> Array:
        """Return an expression at the particles that are here: [component, particle]."""
        evaluation = self._evaluation(expression)
        device, values = self._flow.device, []
        total = len(evaluation.quantity.forms)
        for low in range(0, total, 3):
            fields = evaluation.stored_modes(slice(low, low + 3), time)
            self._interpolant(swarm).set(fields)
            del fields
            values.append(self._interpolated(swarm)[: min(3, total - low)])
        device.synchronize()
        whole: Array = device.array_module.concatenate(values)
        return whole

    def _of_fluid(self, swarm: ParticleState) -> Array:
        """Return the velocity of the fluid at the particles that are here."""
        fields = self._flow.read_state()[velocity_of(self._flow.problem.model)]
        self._interpolant(swarm).set(fields)
        return self._interpolated(swarm)

    def _interpolated(self, swarm: ParticleState) -> Array:
        return self._interpolant(swarm).values_at(swarm.state, swarm.count)

    def _evaluation(self, expression: str) -> Evaluation:
        if expression not in self._evaluations:
            evaluation = Evaluation(self._flow, expression, "particles")
            if evaluation.is_complex:
                raise InputError(f"particles: {expression} is complex; accepted: its real or imag")
            self._evaluations[expression] = evaluation
        return self._evaluations[expression]

    def sample(self, name: str, time: float) -> Iterator[Field]:
        """Yield the recorded quantities of a set, by identity."""
        swarm = self.set_of(name)
        low, number = self._range(swarm)[0], swarm.settings.number
        texts = {"position": "position, not taken back into the box", "velocity": "own velocity"}
        wanted = [*texts, *(f"({text})" for text in swarm.settings.record)]
        for text, values in self._recorded(swarm, wanted, time):
            name = text if text in texts else array_of(text)
            long_name = texts.get(text, f"{text[1:-1]} at the particles")
            yield _field(name, values, low, (number, *values.shape[1:]), long_name)


def _field(
    name: str, data: np.ndarray, low: int, shape: tuple[int, ...], long_name: str = ""
) -> Field:
    dims: tuple[str, ...] = ("particle", "component")
    if len(shape) == 3:
        dims = "particle", "row", "column"
    if name.startswith(PARTICLES):
        dims = tuple(f"{name}.{axis}" for axis in range(len(shape)))
    attributes: Mapping[str, object] = {"long_name": long_name or name, "units": "1"}
    offset = (low if data.size else 0, *(0,) * (len(shape) - 1))
    return Field(
        name, dims[: len(shape)], shape, offset, np.ascontiguousarray(data), {}, attributes
    )
