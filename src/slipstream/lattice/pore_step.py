"""The pair of steps of a rank's pore sites, recorded: sites are advanced, and populations swapped.

A step advances the sites whose populations other ranks need, exchanges these, and meanwhile
advances the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.exchange import SparseExchange, Transport, swap_plan
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.neighbour_tables import Links, Units
from slipstream.lattice.population_layout import PROPAGATIONS, Storage
from slipstream.schedule import StepGraph

# Units that a rank with one core advances before it checks for messages.
_CHUNK = 1 << 15


@dataclass(frozen=True)
class SwappedSites:
    """A rank's exchange with others: `edges` are the sites whose populations they need, by number.

    `places` are the addresses of populations, for all neighbours one after the other, and `counts`
    how many each neighbour gets.
    """

    edges: np.ndarray
    places: Array
    counts: Mapping[int, int]


class PoreStep:
    """The steps of a pair, ready to be recorded. Making it is collective.

    `arrays` are the array that the first step of a pair reads, and the one that it writes; they may
    be the same. `tokens` represent edge sites and inner sites as dependencies of the step graph.
    """

    def __init__(
        self,
        links: Links,
        arrays: Sequence[Array],
        storage: Storage,
        device: Device,
        swapped: SwappedSites,
        rank: int,
        transport: Transport | None,
        policy: str,
    ) -> None:
        self._links, self._arrays, self._storage = links, arrays, storage
        self._device, self._policy, self._edges = device, policy, swapped.edges
        self._kinds = PROPAGATIONS[storage.propagation].steps
        self._swap = None
        if transport is not None:
            plan = swap_plan(swapped.counts, rank)
            targets = [arrays[1], arrays[0]]
            self._swap = SparseExchange(device, plan, swapped.places, targets, transport)
        self.tokens = [device.zeros((device.lanes,), np.float64) for _ in range(2)]

    def record(self, number: int, fluid: Fluid, unit: float = 1.0) -> StepGraph:
        """Record the first or the second step of a pair, of populations in a unit."""
        drive = fluid.inertia, fluid.numbers(unit)
        graph = StepGraph(self._device)
        if self._swap is None or self._policy == "serial":
            self._advance(graph, number, drive, None, "all sites", self.tokens)
            if self._swap is not None:
                self._swap.record(graph, number, self.tokens[0], "populations")
        else:
            units = self._links.units(self._kinds[number])
            edge = units.of_sites(self._edges)
            is_inner = np.ones(units.count, bool)
            is_inner[edge] = False
            inner = np.flatnonzero(is_inner)
            self._advance(graph, number, drive, edge, "edge sites", self.tokens[:1])
            self._swap.record(graph, number, self.tokens[0], "populations")
            self._advance(graph, number, drive, inner, "inner sites", self.tokens[1:])
        return graph

    def _advance(
        self,
        graph: StepGraph,
        number: int,
        drive: tuple[bool, tuple[float, ...]],
        chosen: np.ndarray | None,
        label: str,
        tokens: Sequence[Array],
    ) -> None:
        kind, (inertia, numbers) = self._kinds[number], drive
        units = self._links.units(kind)
        count = units.count if chosen is None else len(chosen)
        listed = None if chosen is None else self._device.array(chosen, np.uint32)
        source, target = self._arrays[number], self._arrays[1 - number]
        for lane in range(self._device.lanes):
            low, high = split(count, self._device.lanes)[lane]
            step = _CHUNK if self._device.inline else max(1, high - low)
            for first in range(low, high, step):
                some = min(step, high - first)
                graph.add(
                    units.advance(kind, inertia, source, target, listed, first, some, numbers),
                    writes=[token[lane : lane + 1] for token in tokens],
                    label=label,
                    category="compute",
                    device=self._device,
                    lane=graph.lane_of_batch(lane)[1],
                    moves=self._moves(units, number, some),
                )

    def _moves(self, units: Units, number: int, count: int) -> tuple[float, float]:
        """Return the bytes that so many units read and write: populations, and links."""
        sites = count * units.sites_per_unit
        every = self._storage.bytes_per_update(self._links.bytes_per_site)[number]
        written = self._storage.bytes_per_update(0.0)[number] / 2
        return sites * (every - written), sites * written
