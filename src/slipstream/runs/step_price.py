"""The traffic of a step, and its time on a machine: each part at its own rate.

All ranks exchange with all at the same time, so the throughput of a device, a node or the network
limits a part. Parts that run at the same time do not hide each other entirely, since a step must
fill and drain its pipeline and they share memory: half of the shorter part remains. That share fits
the measured steps of two and four H200s, and the published ones of Summit; see docs/scaling.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.lib.array_utils import byte_bounds

from slipstream.case.machine_description import Family, Machine
from slipstream.engine.decomposition import Box
from slipstream.engine.device.noting_device import DEVICE, HOST, NotingDevice, place_of
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import RankPlace
from slipstream.engine.schedule import StepGraph
from slipstream.engine.schedule.step_graph import Node
from slipstream.engine.step_walk import StepTraffic
from slipstream.files.stored_arrays import stored_layout

# The share of the shorter parts of a step that the longest does not hide.
_REMAINS = 0.5


@dataclass(frozen=True)
class OutputSize:
    """The bytes of an output, and its number of files."""

    bytes: int
    files: int


def output_size(
    shape: Sequence[int], boxes: Sequence[Box], item_bytes: Iterable[int]
) -> OutputSize:
    """Return the size of arrays on the same points, by the bytes per point of each."""
    pairs, points = [(box.start, box.shape) for box in boxes], math.prod(shape)
    total = files = 0
    for item, count in Counter(item_bytes).items():
        total += count * points * item
        files += count * stored_layout(shape, pairs, item).files(shape)
    return OutputSize(total, files)


@dataclass(kw_only=True)
class StepCounts(StepTraffic):
    """The traffic of a rank per step, on average over the steps that take turns.

    Cores are the devices of a machine without GPUs: `memory_bytes` and `launches` are theirs.

    Attributes
    ----------
    family : {"spectral", "transform", "lattice", "advection"}
        The family whose passes over memory are counted.
    ranks : int
        Number of ranks.
    ranks_of_node, devices_of_rank : int
        Number of ranks per node, and of devices per rank.
    fields_bytes : float
        Bytes that a rank keeps, on the device or on the host.
    is_overlapped : bool
        Whether passes, copies and messages continue at the same time.
    working_set : float or None
        The bytes of the arrays that its passes access; None where caches of the machine are
        unknown.
    starts : float
        Number of graphs started per step: less than one if a graph has several steps.
    is_issued : bool
        Whether the interpreter starts each operation, since messages of the host come in between.
    division : str
        The division of space in a spectral step: slabs, or pencils and their ranks along y and z.
    remark : str
        A remark for users, if the numbers are not counted from the whole plan.
    outputs : mapping of str to OutputSize
        A snapshot of all fields ("fields"), and a state ("checkpoint"), of all ranks.
    """

    family: Family
    ranks: int
    ranks_of_node: int
    devices_of_rank: int
    fields_bytes: float
    is_overlapped: bool
    working_set: float | None = None
    starts: float = 1.0
    is_issued: bool = False
    division: str = ""
    remark: str = ""
    outputs: Mapping[str, OutputSize] = field(default_factory=dict)


@dataclass(frozen=True)
class NotedSteps:
    """Steps that take turns, recorded for one rank of many where nothing is allocated.

    A graph has `steps_of_graph` steps. `fields_bytes`, `outputs`, `division` and `remark` are as in
    `StepCounts`.
    """

    family: Family
    graphs: Sequence[StepGraph]
    place: RankPlace
    fields_bytes: float
    is_overlapped: bool
    outputs: Mapping[str, OutputSize] = field(default_factory=dict)
    division: str = ""
    remark: str = ""
    steps_of_graph: int = 1

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all steps."""
        return [node for graph in self.graphs for node in graph.nodes]


def counts_of(noted: NotedSteps, machine: Machine) -> StepCounts:
    """Return the counts of noted steps."""
    rank_place, steps = noted.place, len(noted.graphs) * noted.steps_of_graph
    counts = StepCounts(
        family=noted.family,
        ranks=rank_place.ranks,
        ranks_of_node=rank_place.ranks_of_node,
        devices_of_rank=1,
        fields_bytes=noted.fields_bytes,
        is_overlapped=noted.is_overlapped,
        starts=1 / noted.steps_of_graph,
        is_issued=any(node.transfer for node in noted.nodes),
        division=noted.division,
        remark=noted.remark,
        outputs=noted.outputs,
    )
    for node in noted.nodes:
        counts.note(node, rank_place)
    if machine.device.kind == "cpu":
        counts.memory_bytes, counts.host_bytes = counts.memory_bytes + counts.host_bytes, 0.0
        counts.launches = counts.host_calls
    if machine.device.cache_mib:
        counts.working_set = _accessed_bytes(noted.graphs, machine.device.kind)
    for count in fields(StepTraffic):
        if count.name == "sent_in":
            counts.sent_in = {size: sent / steps for size, sent in counts.sent_in.items()}
        elif count.name not in ("is_from_host", "message_bytes"):
            setattr(counts, count.name, getattr(counts, count.name) / steps)
    return counts


def _accessed_bytes(graphs: Sequence[StepGraph], kind: str) -> float:
    """Return the bytes that graphs access in the memory of their device, each counted once.

    A pass over pores names no array that it reads: it reads each of its bytes once.
    """
    wanted = HOST if kind == "cpu" else DEVICE
    ranges = sorted(
        byte_bounds(np.asarray(array))
        for graph in graphs
        for node in graph.nodes
        for array in (*node.reads, *node.writes)
        if array.size and place_of(array) == wanted
    )
    total, reached = 0.0, 0
    for low, high in ranges:
        total += max(0, high - max(low, reached))
        reached = max(reached, high)
    return total + max(
        sum(node.moves[0] for node in graph.nodes if node.moves and not node.reads)
        for graph in graphs
    )


def noting_device(machine: Machine, ranks: int) -> NotingDevice:
    """Return the stand-in for the device of a rank, and for its host."""
    kind = "cpu" if machine.device.kind == "cpu" else "cuda"
    device, host = (room_of_rank(machine, ranks, where) for where in ("device", "host"))
    return NotingDevice(kind, device, host)


def room_of_rank(machine: Machine, ranks: int, where: str, devices_of_rank: int = 1) -> float:
    """Return the bytes of memory that a rank has, on its "device" or the "host"."""
    if where == "device":
        return machine.device.memory_gib * 2**30 * devices_of_rank
    return machine.node.memory_gib * 2**30 / min(ranks, machine.devices_per_node // devices_of_rank)


def check_fit(ranks: int, need: float, room: float, where: str, hint: str = "") -> None:
    """Refuse fields of a rank that are larger than its memory."""
    if need > room:
        raise InputError(
            f"{ranks} ranks: fields take {need / 2**30:.3g} GiB of the {where}'s"
            f" {room / 2**30:.3g} GiB for each; use more nodes{hint}"
        )


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step, and of its parts if each were alone.

    Attributes
    ----------
    memory, launches, host, bus, in_node, network : float
        The passes over the device's memory; the start of each operation, however little it moves;
        passes over the host's memory, by its cores; copies between host and device; exchanges
        within a node; those between nodes, with their latency and the relayed data.
    total : float
        The whole step, with overlap.
    """

    memory: float
    launches: float
    host: float
    bus: float
    in_node: float
    network: float
    total: float


def step_time(counts: StepCounts, machine: Machine) -> StepTime:
    """Return the seconds of a step with this traffic."""
    ranks, devices = counts.ranks_of_node, counts.devices_of_rank
    nodes = -(-counts.ranks // ranks)
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
        # Each exchange at the rate of its messages.
        sent_in = counts.sent_in or {counts.message_bytes: counts.off_node_bytes}
        network = max(
            sum(ranks * sent / machine.network.rate(size) for size, sent in sent_in.items()),
            # Whether all exchange with all, or neighbours lie anywhere: half must cross the middle.
            counts.ranks * counts.off_node_bytes / 2 / machine.network.bisection(nodes),
        )
        network += 1e-6 * machine.network.latency_us * counts.exchanges
        network += 1e-6 * machine.network.message_us * counts.off_node_messages
        if counts.relayed_bytes:
            network += counts.relayed_bytes / (node.host_gb_per_s * 1e9)
            network += 2 * node.latency_us * 1e-6 * counts.exchanges
    device, moved = machine.device, counts.memory_bytes / devices
    memory = device.pass_seconds(counts.family, moved, counts.working_set, moved / counts.starts)
    each = device.launch_us
    if counts.is_issued and device.issue_us is not None:
        each = device.issue_us
    starts = device.start_us(counts.family) * counts.starts
    launches = 1e-6 * (each * counts.launches / devices + starts)
    # The host's memory limits what all devices of a node copy together.
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
