"""Flow through the pores of a rank's subdomain: populations, and the pair of steps that moves them.

A step advances the sites whose populations other ranks need, and exchanges these while it advances
the others. Steps come in pairs, the two kinds of the AA pattern, or to and fro between two
lattices; after a pair every population is stored with the site at which it has arrived. A pressure
drop changes the populations that cross the faces of a periodic axis.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.engine.accepted import SCHEDULES
from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, RowLaunch
from slipstream.engine.device.array_kernels import empty_sums, sum_of_rows, total_of
from slipstream.engine.errors import InputError, check_type, name_among, whole_number
from slipstream.engine.exchange import Transport
from slipstream.engine.schedule import StepGraph, Timeline, commit
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.pore_step import MAKERS_OF_LINKS, PoreStep, Sites, SwappedSites
from slipstream.lattice.velocity_set import PROPAGATIONS, SEGMENT, Storage

# Sites that one row of threads sums over.
_SUM_COLUMNS = 4096
# The exponent of how large pressures may be in their unit.
_LARGE = 6


def inlets(subdomain: Subdomain, axes: Iterable[int] = range(3)) -> tuple[np.ndarray, np.ndarray]:
    """Return the populations that enter a subdomain through faces, and what a pressure drop adds.

    `axes` restricts the faces, as tables of all of them may take more memory than a small flow.
    Populations are rows of plane, row and column within the box, and direction; the changes, for a
    pressure drop of one along z, y and x, have shape (count, 3).
    """
    lattice = subdomain.velocity_set
    ends, changes = [np.empty((0, 4), np.int64)], [np.empty((0, 3))]
    for axis in axes:
        for direction in range(1, lattice.directions):
            step = lattice.velocities[direction][axis]
            plane = 0 if step > 0 else subdomain.shape[axis] - 1
            if not step or not subdomain.box.start[axis] <= plane < subdomain.box.stop[axis]:
                continue
            sites = _pores_of_plane(subdomain, axis, plane - subdomain.box.start[axis])
            sites = sites[_is_open(subdomain, sites, direction)]
            ends.append(np.column_stack([sites, np.full(len(sites), direction)]))
            change = np.zeros((len(sites), 3))
            # Populations at rest are proportional to the density, and so to the pressure.
            change[:, axis] = step * lattice.weights[direction] / lattice.sound_speed_squared
            changes.append(change)
    # Diagonal populations may enter through two faces.
    found, sizes = np.concatenate(ends), (*subdomain.box.shape, lattice.directions)
    names, place = np.unique(np.ravel_multi_index(tuple(found.T), sizes), return_inverse=True)
    total = np.zeros((len(names), 3))
    np.add.at(total, place, np.concatenate(changes))
    return np.column_stack(np.unravel_index(names, sizes)), total


def face_pores(subdomain: Subdomain) -> np.ndarray:
    """Return the number of a subdomain's pores at the two faces of the domain along each axis."""
    inner, box, counts = subdomain.own[1:-1, 1:-1, 1:-1], subdomain.box, np.zeros(3)
    for axis in range(3 if box.size else 0):
        for plane in (0, subdomain.shape[axis] - 1):
            if box.start[axis] <= plane < box.stop[axis]:
                counts[axis] += np.count_nonzero(inner.take(plane - box.start[axis], axis))
    return counts


def _pores_of_plane(subdomain: Subdomain, axis: int, plane: int) -> np.ndarray:
    where = [slice(1, -1)] * 3
    where[axis] = slice(plane + 1, plane + 2)
    found = np.stack(np.nonzero(subdomain.own[tuple(where)]), axis=1)
    found[:, axis] += plane
    return found


def _is_open(subdomain: Subdomain, sites: np.ndarray, direction: int) -> np.ndarray:
    """Return whether populations arrive at sites along a direction, from this or another rank."""
    velocity = subdomain.velocity_set.velocities[direction]
    from_here: np.ndarray = subdomain.own[tuple((sites - velocity + 1).T)] != 0
    crossing = [ends[ends[:, 3] == direction, :3] for ends in subdomain.neighbours.values()]
    theirs = np.concatenate([np.empty((0, 3), np.int64), *crossing])
    if not len(theirs) or not len(sites):
        return from_here
    names, known = (
        np.ravel_multi_index(tuple(one.T), subdomain.box.shape) for one in (sites, theirs)
    )
    arrives: np.ndarray = from_here | np.isin(names, known)
    return arrives


class PoreFlow:
    """Flow through the pores of an image. Collective.

    Parameters
    ----------
    subdomain : Subdomain
        This rank's subdomain of the image.
    fluid : Fluid
        The fluid and what drives it.
    storage : Storage
        How populations are stored.
    device : Device
        What computes.
    transport : Transport or None
        What swaps populations with other ranks; None for a single rank.
    policy : {"overlap", "serial"}
        Whether the swap continues while most sites are advanced.

    Attributes
    ----------
    sites : Sites
        The sites.
    links : Links
        Their links.
    walls : array of uint32
        For each site the directions along which populations bounce back, as bits.
    pair : list of CommittedStep
        The first and the second step of a pair.
    constants : dict
        Constants of the kernels that take its populations.
    steps : int
        Number of steps done.
    policy : str
        As given.
    unit : float
        What a stored 1 stands for, a power of two: 1 but in half precision, where it suits the
        drive.
    populations_on_device : array
        The populations between two pairs of steps, each with its site; see `Storage`.
    """

    def __init__(
        self,
        subdomain: Subdomain,
        fluid: Fluid,
        storage: Storage,
        device: Device,
        transport: Transport | None = None,
        policy: str = "overlap",
    ) -> None:
        check_type("subdomain", subdomain, Subdomain)
        check_type("fluid", fluid, Fluid)
        check_type("storage", storage, Storage)
        check_type("device", device, Device)
        name_among("policy", policy, SCHEDULES)
        if subdomain.neighbours and transport is None:
            raise InputError(
                "transport is None, but other ranks have pores next to these; accepted: one of "
                "slipstream.engine.exchange.make_transport"
            )
        if storage.encoding == "strips" and device.kind != "cpu":
            raise InputError(
                "encoding 'strips' is for CPUs; accepted on a GPU: auto, compact, wide"
            )
        self.subdomain, self.storage, self.device = subdomain, storage, device
        self.policy, self._transport = policy, transport
        self._propagation = PROPAGATIONS[storage.propagation]
        self._directions = subdomain.velocity_set.directions
        self.constants = {**storage.constants, **subdomain.velocity_set.constants}
        self.sites = Sites(
            device,
            subdomain.own,
            subdomain.images,
            storage.order,
            subdomain.velocity_set,
            storage.group,
        )
        wide = self.sites.wide_links()
        self.links = MAKERS_OF_LINKS[storage.encoding](self.sites, storage, wide)
        slots = [self._slots(ends) for ends in subdomain.neighbours.values()]
        every = np.concatenate([np.empty(0, np.int64), *slots])
        self._edges = np.unique(every // self._directions)
        self.walls = self._marked_walls(every, wide)
        self._falling = np.flatnonzero(fluid.pressure_drop)
        self._face_pores, self._inlet_weights = np.zeros(3), np.zeros((0, 3))
        self._inlet_directions = np.zeros(0, np.int64)
        self._inlet_places: tuple[Array, ...] = ()
        if len(self._falling):
            self._face_pores = face_pores(subdomain)
            ends, self._inlet_weights = inlets(subdomain, self._falling)
            self._inlet_directions = ends[:, 3]
            self._inlet_places = self._located(self._slots(ends), wide)
        swapped = None
        if transport is not None:
            places, _ = self._located(every, wide)
            counts = {peer: len(one) for peer, one in zip(subdomain.neighbours, slots, strict=True)}
            swapped = SwappedSites(self._edges, places, counts)
        del wide
        self.sites.release()
        populations = [self._empty() for _ in range(self._propagation.arrays)]
        self._arrays = [populations[0], populations[-1]]
        self.populations_on_device = populations[0]
        self._step = PoreStep(
            self.links,
            self._arrays,
            storage,
            device,
            swapped,
            subdomain.rank,
            transport,
            policy,
        )
        self.steps = 0
        self.unit = 1.0
        # Whether the populations are what a step under the present drive has left.
        self._has_stepped = False
        self._set_drive(fluid)
        self.rest()

    # -- setting up --------------------------------------------------------------------------

    def _empty(self) -> Array:
        """Return memory for populations, which a benchmark lets begin elsewhere."""
        return self.device.empty((self._directions, self.sites.stored), self.storage.dtype)

    def _slots(self, ends: np.ndarray) -> np.ndarray:
        numbers = self.sites.numbers(list(ends[:, :3].T))
        slots: np.ndarray = numbers * self._directions + ends[:, 3]
        return slots

    def _located(self, slots: np.ndarray, wide: Array) -> tuple[Array, Array]:
        """Return the addresses of slots' populations, after pairs and after first steps of AA.

        A slot is ``site * directions + direction``.
        """
        device = self.device
        at_site, at_link = (device.zeros((len(slots),), np.int64) for _ in range(2))
        rows = RowLaunch(-(-len(slots) // SEGMENT), SEGMENT)
        if len(slots):
            arguments = wide, device.array(slots), len(slots), self.sites.stored, at_site, at_link
            self._run("population_access.hpp", "locate_slots", rows, *arguments)
        return at_site, at_link

    def _marked_walls(self, crossing: np.ndarray, wide: Array) -> Array:
        """Return for each site the directions along which populations bounce back, as bits.

        What is `crossing` comes from other ranks: links say the same of it.
        """
        walls = self.device.zeros((self.sites.stored,), np.uint32)
        segments = self.sites.stored // SEGMENT
        if segments:
            launch = RowLaunch(segments, SEGMENT)
            arguments = wide, segments, self.sites.stored, walls
            self._run("population_access.hpp", "mark_walls", launch, *arguments)
        if len(crossing):
            edge = np.searchsorted(self._edges, crossing // self._directions)
            comes = np.zeros(len(self._edges), np.uint32)
            bits = np.left_shift(np.uint32(1), (crossing % self._directions - 1).astype(np.uint32))
            np.bitwise_or.at(comes, edge, bits)
            walls[self.device.array(self._edges)] &= self.device.array(~comes)
        return walls

    def drive(self, fluid: Fluid) -> None:
        """Change the fluid, or what drives it, but not the velocity. Collective.

        Half of the force is a part of the velocity, so the momentum changes by the other half. If
        it did not, momentum between walls that nothing damps would alternate from step to step.

        Raises
        ------
        InputError
            If the pressure falls along an axis along which it did not when the flow was made.
        """
        check_type("fluid", fluid, Fluid)
        if not set(np.flatnonzero(fluid.pressure_drop)) <= set(self._falling):
            raise InputError(
                f"pressure_drop {fluid.pressure_drop} falls along other axes than when the flow was"
                " made; accepted: along the same ones, or none"
            )
        before, unit = self.fluid, self.unit
        self._set_drive(fluid)
        self._convert_from(unit)
        self._keep_velocity(before)

    def continue_from(self, steps: int, earlier: Fluid) -> None:
        """Continue after the steps of an earlier flow, whose populations have been set."""
        self.steps, self._has_stepped = steps, steps > 0
        self._keep_velocity(earlier)

    def _keep_velocity(self, before: Fluid) -> None:
        """Change populations such that the velocity is what it was with the fluid `before`."""
        if (before.force, before.pressure_drop) == (self.fluid.force, self.fluid.pressure_drop):
            return
        self._has_stepped = False
        self.synchronize()
        change = np.subtract(self.fluid.force, before.force)
        self._set_momentum(-change[::-1] / 2, share=1.0)

    def _convert_from(self, unit: float) -> None:
        """Convert stored populations from another unit to the unit of this flow."""
        if self.unit != unit:
            self.synchronize()
            self._set_momentum(np.zeros(3), share=unit / self.unit)

    def _set_drive(self, fluid: Fluid) -> None:
        self.fluid = fluid
        if self.storage.has_unit:
            self.unit = _unit(fluid, self.subdomain.shape) or self.unit
        change = self._inlet_weights @ np.array(fluid.pressure_drop, float)
        has_jump = np.any(fluid.pressure_drop)
        self._jump = self.device.array(change / self.unit) if has_jump else None
        # The momentum that the pressure drop adds to all sites per step.
        velocities = self.subdomain.velocity_set.velocities
        self._jump_momentum = change @ velocities[self._inlet_directions]
        graphs = [self._step.record(number, fluid, self.unit) for number in (0, 1)]
        for number, graph in enumerate(graphs if has_jump else ()):
            self._add_jump(graph, number)
        self.pair = [commit(graph, self.policy) for graph in graphs]

    # -- steps -------------------------------------------------------------------------------

    def _add_jump(self, graph: StepGraph, number: int) -> None:
        """Add the pressure drop to the first or the second step of a pair."""
        # A step without links leaves populations where the links of the next step lead.
        places = self._inlet_places[0 if self._propagation.steps[number].needs_links else 1]
        if not len(places):
            return
        header = "add_to_populations.hpp"
        kernel = self.device.kernel(header, "add_to_populations", **self.constants)
        rows = RowLaunch(-(-len(places) // SEGMENT), SEGMENT)
        graph.add(
            kernel.bind(rows, self._arrays[1 - number], places, self._jump, len(places)),
            writes=self._step.tokens,
            label="pressure drop",
            category="compute",
            device=self.device,
        )

    def advance(self, steps: int, profile: bool = False) -> None:
        """Advance the flow. Collective.

        Work on a GPU may still be under way when this returns; see `synchronize`.

        Parameters
        ----------
        steps : int
            How many; an even number.
        profile : bool
            Whether to record when everything ran, for `timeline`.

        Raises
        ------
        InputError
            If the number is odd, or negative.
        RunError
            If something fails, or another rank does not answer.
        """
        steps = whole_number("steps", steps, 0)
        if steps % 2:
            raise InputError(f"steps come in pairs; accepted: even numbers, not {steps}")
        for _ in range(steps // 2):
            for step in self.pair:
                step.run(profile)
        self.steps += steps
        self._has_stepped = self._has_stepped or steps > 0

    def synchronize(self) -> None:
        """Wait until all steps are done; a RunError if another rank has not answered."""
        for step in self.pair:
            step.synchronize()
        self.device.synchronize()
        if self._transport is not None:
            self._transport.check()

    def timeline(self, forget: bool = False) -> Timeline:
        """Return the timeline of the profiled steps; `forget` clears the record."""
        return Timeline.merged([step.timeline for step in self.pair], forget)

    # -- state -------------------------------------------------------------------------------

    def kept(self) -> dict[str, Any]:
        """Return the populations, and how many steps have led to them, until the next step."""
        self.synchronize()
        return {
            "populations": self._arrays[0],
            "unit": self.unit,
            "steps": self.steps,
            "stepped": self._has_stepped,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take over what a flow with the same subdomain, fluid and storage has kept."""
        self.synchronize()
        self.device.run(self.device.copy(self._arrays[0], kept["populations"]))
        self._convert_from(kept["unit"])
        self.synchronize()
        self.steps, self._has_stepped = kept["steps"], kept["stepped"]

    def _run(self, header: str, name: str, launch: RowLaunch, *arguments: Any) -> None:
        kernel = self.device.kernel(header, name, **self.constants)
        self.device.run(kernel.bind(launch, *arguments))

    def rest(self) -> None:
        """Set a fluid at rest with density one.

        The velocity includes half of the force, so the populations' momentum is minus that.
        """
        self.synchronize()
        self._set_momentum(-np.array(self.fluid.force[::-1], float) / 2, share=0.0)
        self.steps, self._has_stepped = 0, False

    def _set_momentum(self, momentum: np.ndarray, share: float) -> None:
        """Give all sites the equilibrium of a momentum (x, y, z), and a share of what they have."""
        segments = self.sites.stored // SEGMENT
        if segments:
            self._run(
                "population_access.hpp",
                "set_momentum",
                RowLaunch(segments, SEGMENT),
                self._arrays[0],
                segments,
                self.sites.stored,
                share,
                *(float(along) / self.unit for along in momentum),
            )

    def sums(self) -> tuple[np.ndarray, float]:
        """Return sums over this rank's sites, and the largest velocity.

        Returns
        -------
        numpy.ndarray
            Sums of the velocity along z, y and x, of the density's deviation from one, and of the
            mean of this velocity and that one step before. Momentum that nothing damps, between
            walls, alternates from step to step; it is no part of this mean.
        float
            The largest velocity.
        """
        self.synchronize()
        rows = -(-self.sites.count // _SUM_COLUMNS)
        if not rows:
            return np.zeros(7), 0.0
        by_row = self.device.zeros((rows, 7), np.float64)
        fastest = self.device.zeros((rows,), np.int64)
        self._run(
            "macroscopic_fields.hpp",
            "sum_sites",
            RowLaunch(rows, _SUM_COLUMNS, reduces=True),
            self._arrays[0],
            self.walls,
            by_row,
            fastest,
            rows,
            _SUM_COLUMNS,
            self.sites.count,
            self.sites.stored,
            *self.fluid.numbers(self.unit)[2:],
        )
        square = self.device.to_host(fastest).max().view(np.float64)
        sums = self.device.to_host(by_row).sum(axis=0)
        if self._has_stepped:
            sums[4:] -= self._jump_momentum / 2
        else:
            sums[4:] = sums[:3]
        return sums, float(np.sqrt(square)) * self.unit

    def digest_sum(self) -> np.ndarray:
        """Return this rank's part of the digest of all populations (see `array_kernels`)."""
        self.synchronize()
        sums, (_, rows, columns) = empty_sums(self.device), self.subdomain.shape
        z, y, x = self.subdomain.box.start
        if len(self.sites.rows):
            first = (z * rows + y) * columns + x
            self._run_over_rows("digest_of_sites", first, columns, rows * columns, self.unit, sums)
        return total_of(self.device, sums)

    def driving_force(self) -> np.ndarray:
        """Return the force along z, y and x on this rank's pores.

        A pressure drop acts on the pores of both faces, half on each.
        """
        pushed = self._face_pores * np.array(self.fluid.pressure_drop) / 2
        force: np.ndarray = self.sites.count * np.array(self.fluid.force) + pushed
        return force

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box, shape (4, *box.shape).

        The velocity of solid voxels is 0, their density 1.

        Parameters
        ----------
        planes : (int, int), optional
            First plane of the box, and the plane after its last; all by default.
        """
        sites, (depth, height, width) = self.sites, self.sites.box_shape
        low, high = _checked_planes(planes, depth)
        self.synchronize()
        result = self.device.zeros((4, high - low, height, width), self.storage.real)
        if result.size:
            rows = sites.rows[low * height : high * height]
            self._run(
                "macroscopic_fields.hpp",
                "write_fields",
                RowLaunch(len(rows), width, reduces=True),
                self._arrays[0],
                sites.voxels,
                sites.first,
                rows,
                len(rows),
                width,
                sites.stored,
                *self.fluid.numbers(self.unit)[2:],
                result,
            )
        return self.device.to_host(result)

    def site_values(self, low: int, high: int) -> Array:
        """Return velocity (z, y, x) and density of sites of some segments, on the device."""
        self.synchronize()
        segments, sites = high - low, self.sites.stored
        result = self.device.empty((4, segments * SEGMENT), self.storage.real)
        numbers = self.fluid.numbers(self.unit)[2:]
        launch = RowLaunch(segments, SEGMENT)
        given = self._arrays[0], low, segments, sites, *numbers, result
        self._run("macroscopic_fields.hpp", "write_sites", launch, *given)
        return result

    def speed_sums(self, part: Box) -> np.ndarray:
        """Return sums of the speed and the velocity (z, y, x) at pores of a part of the box."""
        self.synchronize()
        by_row = self.device.zeros((len(self.sites.rows), 4), np.float64)
        if not by_row.size:
            return np.zeros(4)
        ends = (end for pair in zip(part.start, part.stop, strict=True) for end in pair)
        self._run_over_rows("sum_speeds", *ends, *self.fluid.numbers(self.unit)[2:], by_row)
        return sum_of_rows(self.device, by_row)

    def _run_over_rows(self, name: str, *arguments: Any) -> None:
        """Run a kernel that takes the populations of all rows of the box."""
        sites, (_, height, width) = self.sites, self.sites.box_shape
        self._run(
            "macroscopic_fields.hpp",
            name,
            RowLaunch(len(sites.rows), width, reduces=True),
            self._arrays[0],
            sites.voxels,
            sites.first,
            sites.rows,
            len(sites.rows),
            width,
            height,
            sites.stored,
            *arguments,
        )

    def _copy(self, name: str, order: np.ndarray, direction: int, values: Array) -> None:
        count = len(order)
        if not count:
            return
        rows = -(-count // _SUM_COLUMNS)
        self._run(
            "population_access.hpp",
            name,
            RowLaunch(rows, _SUM_COLUMNS),
            self._arrays[0],
            self.device.array(order),
            rows,
            _SUM_COLUMNS,
            count,
            self.sites.stored,
            direction,
            self.unit,
            values,
        )

    def populations(self, order: np.ndarray, direction: int) -> np.ndarray:
        """Return the populations of one direction at some sites, given by number."""
        order, direction = self._checked_order(order, direction)
        self.synchronize()
        values = self.device.zeros((len(order),), self.storage.values)
        self._copy("take_populations", order, direction, values)
        return self.device.to_host(values)

    def set_populations(self, order: np.ndarray, direction: int, values: np.ndarray) -> None:
        """Set the populations of one direction at some sites, given by number."""
        order, direction = self._checked_order(order, direction)
        values = np.asarray(values)
        if values.shape != order.shape or values.dtype.kind not in "biuf":
            raise InputError(
                f"values are {values.dtype} of shape {values.shape}; accepted: real numbers of "
                f"shape {order.shape}"
            )
        self.synchronize()
        given = self.device.array(values.astype(self.storage.values))
        self._copy("put_populations", order, direction, given)

    def _checked_order(self, order: Any, direction: Any) -> tuple[np.ndarray, int]:
        """Return numbers of sites, and a direction, or refuse indices beyond the arrays."""
        numbers, count = np.asarray(order), self.sites.count
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" and numbers.size:
            raise InputError(
                f"order is {numbers.dtype} of shape {numbers.shape}; accepted: numbers of sites"
            )
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
            raise InputError(
                f"order has {numbers.min()} to {numbers.max()}; accepted: numbers of sites, 0 to "
                f"{count - 1}"
            )
        return numbers.astype(np.int64), whole_number(
            "direction", direction, 0, self._directions - 1
        )


def _unit(fluid: Fluid, shape: Sequence[int]) -> float:
    """Return a unit in which half precision holds what a drive does; 0 if nothing drives.

    The most that pressure can vary is near 2^6 in it: velocities may be a thousand times as large,
    or a million times smaller with all digits.
    """
    forces, drops = map(np.abs, (fluid.force, fluid.pressure_drop))
    most = float(np.max(forces * shape + drops))
    return 2.0 ** (math.frexp(most)[1] - 1 - _LARGE) if most else 0.0


def _checked_planes(planes: Any, depth: int) -> tuple[int, int]:
    """Return the first plane and the plane after the last, of all planes if they are None."""
    try:
        low, high = (0, depth) if planes is None else map(operator.index, planes)
    except (TypeError, ValueError):
        low, high = -1, -1
    if not 0 <= low <= high <= depth:
        raise InputError(
            f"planes is {planes!r}; accepted: the first plane and the last plus one, 0 to {depth}"
        )
    return low, high
