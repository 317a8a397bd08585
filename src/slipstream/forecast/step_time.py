"""How long a step takes on a machine: each of its parts at its own rate, and what of them hides.

All ranks exchange with all at once, so a part is limited by what a device, a node or the network
lets through. Parts that go on at the same time do not hide each other entirely, since a step must
fill and drain its pipeline and they share memory: half of what is shorter remains. That share fits
the measured steps of two and four H200s, and the published ones of Summit; see docs/scaling.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import InputError
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.step_counts import StepCounts

_REMAINS = 0.5


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step, and of its parts if each were alone.

    Attributes
    ----------
    memory, launches, host, bus, in_node, network : float
        The passes over the device's memory; what each operation takes however little it moves;
        passes over the host's memory, by its cores; copies between host and device; exchanges
        within a node; those between nodes, with their latency and what is relayed for them.
    total : float
        All, with what hides.
    """

    memory: float
    launches: float
    host: float
    bus: float
    in_node: float
    network: float
    total: float


def step_time(counts: StepCounts, machine: Machine) -> StepTime:
    """Return how long a step takes that moves so much."""
    ranks, devices = counts.ranks_of_node, counts.devices_of_rank
    nodes = -(-counts.ranks // ranks)
    passes = machine.device.copy_gb_per_s * 1e9 * machine.device.share(counts.family) * devices
    one_way = max(counts.bus_in_bytes, counts.bus_out_bytes)
    both_ways = counts.bus_in_bytes + counts.bus_out_bytes
    bus = max(
        one_way / (machine.bus.device_gb_per_s * 1e9 * devices),
        ranks * both_ways / (machine.bus.node_gb_per_s * 1e9),
    )
    node, network = machine.node, 0.0
    if counts.off_node_bytes:
        if machine.network is None:
            raise InputError(f"{machine.title} is described as one node; add a table [network]")
        network = max(
            ranks * counts.off_node_bytes / machine.network.rate(counts.message_bytes),
            # Whether all exchange with all, or neighbours lie anywhere: half must cross the middle.
            counts.ranks * counts.off_node_bytes / 2 / machine.network.bisection(nodes),
        )
        network += 1e-6 * machine.network.latency_us * counts.exchanges
        network += 1e-6 * machine.network.message_us * counts.off_node_messages
        if counts.relayed_bytes:
            network += counts.relayed_bytes / (node.host_gb_per_s * 1e9)
            network += 2 * node.latency_us * 1e-6 * counts.exchanges
    memory = counts.memory_bytes / passes
    launches = 1e-6 * machine.device.launch_us * counts.launches / devices
    # What all devices of a node copy at once is what the host's memory allows.
    host = ranks * counts.host_bytes / (machine.bus.node_gb_per_s * 1e9)
    reach = node.host_gb_per_s if counts.is_from_host else node.gb_per_s * devices
    in_node = 0.0
    if sent := counts.in_node_bytes - counts.relayed_bytes:
        in_node = sent / (reach * 1e9) + 1e-6 * node.latency_us * counts.exchanges
        if counts.is_from_host:
            in_node += 1e-6 * node.message_us * counts.in_node_messages
    # Within a node and between nodes, messages travel at the same time.
    parts = memory + launches, host, bus, max(in_node, network)
    hidden = (1 - _REMAINS) * (sum(parts) - max(parts)) if counts.is_overlapped else 0.0
    return StepTime(memory, launches, host, bus, in_node, network, sum(parts) - hidden)
