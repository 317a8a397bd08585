"""The `mpi` transports: plans executed by MPI, rank by rank or node by node."""

from __future__ import annotations

import ctypes
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.collective import abandoned
from slipstream.engine.device import Device, address_of
from slipstream.engine.exchange.exchange_plan import (
    Block,
    ExchangeOrder,
    ExchangePlan,
    members_of,
    part_of,
    ranges_of,
    views_of_ranges,
)
from slipstream.engine.exchange.transport_base import Exchange, FailureNotice, Transport
from slipstream.engine.exchange.transport_registry import node_numbers
from slipstream.engine.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.engine.own_communicator import OwnCommunicator


# The standard guarantees tags up to 32767 only.
_TAGS = 32000
# The number of polls between a waiting rank's checks for failures on other ranks.
_LOOK = 16
# The most messages of an exchange that are persistent requests.
PERSISTENT = 512
# The most other messages in flight in each direction.
FLYING = 64
# Smaller blocks of an exchange join those of its other arrays, in one message to a peer. MPI
# packs what its datatypes join: on two ranks of one node, five blocks of 15 KB took 21 us apart and
# 40 us joined, and of 236 KB 110 and 653 us.
JOINED_BYTES = 1 << 13
# MPI counts the bytes of a collective's buffer in 32 bits.
_MOST_BYTES = 2**31 - 1
# The stages of a hierarchical exchange.
STAGES = ("gather", "between", "scatter", "direct")


class MpiTransport(Transport):
    """Exchanges over MPI, in a communicator that only this transport's messages use."""

    # Persistent messages, or collectives; and whether GPU data are staged on the host.
    exchange: type[MpiExchange]
    staged = True

    def __init__(self, comm: OwnCommunicator, device: Device) -> None:
        super().__init__(device)
        self.nodes = node_numbers(comm)
        self.order = ExchangeOrder(self.nodes, comm.rank)
        self.owner, self.comm = comm, comm.duplicate()
        self._staged = device.kind != "cpu" and self.staged
        self.in_host_memory = device.kind == "cpu" or self.staged
        self._next_tag = 0
        self._notice = FailureNotice(comm)
        self._staging_arrays: dict[tuple[Any, ...], tuple[Any, np.ndarray]] = {}

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> MpiTransport:
        return cls(comm, device)

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        return self.exchange(self, plan, pairs, whole)

    def take_tags(self, count: int) -> int:
        """Return the first of a range of tags that no exchange in flight is likely to use."""
        tag = self._next_tag if self._next_tag + count <= _TAGS else 0
        self._next_tag = tag + count
        return tag

    def give_up(self, failure: BaseException) -> None:
        """Refuse further exchanges, on all ranks."""
        self._notice.notify_ranks(failure)

    def check(self) -> None:
        self._notice.check()

    def look(self) -> None:
        """Raise RunError if a step with an exchange of this transport has failed on any rank."""
        self._notice.look()

    def staging(self, array: Array) -> Array:
        """Return the array for MPI: the array itself, or host memory, always the same."""
        if not self._staged:
            return array
        if not array.size:
            # Empty arrays may share an address, and Open MPI treats a collective whose buffers have
            # the same address as in-place, unlike the other ranks.
            return self.device.pinned(array.shape, array.dtype)
        key = array.data.ptr, array.nbytes, array.dtype
        if key not in self._staging_arrays:
            # The array is kept too: while it is alive, no other one can have its address.
            pinned = self.device.pinned(array.shape, array.dtype)
            self._staging_arrays[key] = array, pinned
        return self._staging_arrays[key][1]


class MessageExchange(Exchange):
    """An exchange that the host starts and polls, and the copies for its messages.

    `staged` are the pairs between which messages are sent: host arrays for data on a device.
    """

    # Whether all ranks must start their transfers in the same order.
    ordered = False
    # Whether messages are in host memory, where MPI collects parts of several arrays.
    in_host_memory = True
    # Whether all blocks, the largest of this many elements, are sent in one operation.
    is_collective = False
    largest = 0

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        whole: bool,
        staging: Callable[[Array], Array],
    ) -> None:
        super().__init__(device, plan, pairs, whole)
        self._staged = [(staging(source), staging(target)) for source, target in self.pairs]
        # Its own arrays for its messages.
        self._scratch: list[Array] = []
        self._ranges = ranges_of(self.sends), ranges_of(self.receives)
        self.largest = max((block.count for block in (*self.sends, *self.receives)), default=0)

    def arrays_by_message(self, elements: int) -> list[range]:
        """Return the arrays that share a message, with `elements` of each; both ends agree."""
        count, itemsize = len(self._staged), self._staged[0][0].itemsize
        size = itemsize * (self.largest if self.is_collective else elements)
        if self.in_host_memory and size < JOINED_BYTES:
            return [range(count)]
        return [range(number, number + 1) for number in range(count)]

    def messages(self) -> list[tuple[int, int]]:
        return self._messages_of((block.peer, block.count) for block in self.sends)

    def _messages_of(self, parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return receiver and bytes of the messages, given the elements of each array."""
        itemsize = self.pairs[0][0].itemsize
        sizes: dict[int, list[int]] = {}  # of thousands of ranks, which get blocks of few sizes
        messages = []
        for peer, elements in parts:
            if elements not in sizes:
                shared = self.arrays_by_message(elements)
                sizes[elements] = [len(numbers) * elements * itemsize for numbers in shared]
            messages += [(peer, size) for size in sizes[elements]]
        return messages

    def start(self) -> None:
        """Start sending and receiving."""
        raise NotImplementedError

    def test(self) -> bool:
        """Return whether all has been sent and received."""
        raise NotImplementedError

    def give_up(self, failure: BaseException) -> None:
        """Note that a step with this exchange has failed, and notify the other ranks."""
        raise NotImplementedError

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        self._record_copies(graph, f"{label}: copy out", 0)
        graph.add_transfer(
            self,
            reads=[part for source, _ in self._staged for part in self._parts(source, 0)],
            writes=[
                *(part for _, target in self._staged for part in self._parts(target, 1)),
                *(array for array in self._scratch if array.size),
            ],
            label=label,
        )
        self._record_copies(graph, f"{label}: copy in", 1)

    def _parts(self, array: Array, side: int) -> list[Array]:
        """Return the parts of a source (side 0), or target, for messages."""
        return views_of_ranges(array, self._ranges[side])

    def _record_copies(self, graph: StepGraph, label: str, side: int) -> None:
        """Record copies of the sources to the host (side 0), or of the targets back (side 1)."""
        for arrays, staged in zip(self.pairs, self._staged, strict=True):
            if arrays[side] is staged[side]:
                continue
            pairs = (self._parts(each[side], side) for each in (arrays, staged))
            for on_device, on_host in zip(*pairs, strict=True):
                parts = on_device, on_host
                source, target = parts if side == 0 else parts[::-1]
                graph.add_copy(
                    target,
                    source,
                    label=label,
                    category="copy",
                    lane=label.split(": ")[1],
                    device=self.device,
                )


class MpiExchange(MessageExchange):
    """The messages of an exchange, as requests of MPI."""

    # The number of tags for each array.
    tags = 1

    def __init__(
        self,
        transport: MpiTransport,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        whole: bool,
    ) -> None:
        from mpi4py import MPI

        super().__init__(transport.device, plan, pairs, whole, transport.staging)
        self._transport, self._comm = transport, transport.comm
        self.in_host_memory = transport.in_host_memory
        self._polls, self._flying = 0, False
        blocks = (*self.sends, *self.receives)
        # Counting in the largest common unit keeps all counts and offsets far below 2^31.
        self._unit = max(1, math.gcd(*(n for block in blocks for n in (block.offset, block.count))))
        itemsize = self._staged[0][0].itemsize
        self._byte = MPI.BYTE
        self._type = MPI.BYTE.Create_contiguous(self._unit * itemsize).Commit()
        self._types: list[Any] = [self._type]
        self._requests: list[Any] = []
        self._prequest, self._request = MPI.Prequest, MPI.Request
        self._prepare(transport.take_tags(self.tags * len(self.pairs)))
        # Local objects of MPI are freed with this one; at exit MPI does so itself.
        weakref.finalize(self, _free, [*self._requests, *self._types]).atexit = False

    def _prepare(self, tag: int) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._transport.look()
        self._flying = True
        self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _joined(self, elements: Any, arrays: Sequence[Array]) -> Any:
        """Return the datatype of the same elements of several arrays, relative to the first one."""
        first = address_of(arrays[0])
        places = [address_of(array) - first for array in arrays]
        self._types.append(elements.Create_hindexed_block(1, places).Commit())
        return self._types[-1]

    def _kinds(self, arrays: Sequence[Array], blocks: list[Block]) -> dict[int, Any]:
        """Return the datatypes of blocks of several arrays; blocks have few different sizes."""
        kinds = {}
        for count in {block.count for block in blocks}:
            if len(arrays) > len(self.arrays_by_message(count)):
                part = self._type.Create_contiguous(count // self._unit)
                kinds[count] = self._joined(part, arrays)
                part.Free()
        return kinds

    def test(self) -> bool:
        if self._is_over():
            self._flying = False
            return True
        self._polls += 1
        if self._polls % _LOOK == 0:
            self._transport.look()
        return False

    def _is_over(self) -> bool:
        return self._request.Testall(self._requests)

    def give_up(self, failure: BaseException) -> None:
        if self._flying:
            abandoned.append(self)  # MPI may still write to its arrays
        self._transport.give_up(failure)


def _free(handles: list[Any]) -> None:
    for handle in handles:
        handle.Free()


class _PointToPoint(MpiExchange):
    """One message per peer if its blocks are small, else one per peer and array.

    Few messages have persistent requests. Of many, a limited number are in flight, in an order that
    matches both ends: each request takes a kilobyte, and MPI checks all of them.
    """

    def _prepare(self, tag: int) -> None:
        order, comm = self._transport.order, self._comm
        sources, targets = zip(*self._staged, strict=True)
        # Receives first: then no received message needs a temporary buffer.
        ways = (
            (comm.Recv_init, comm.Irecv, targets, order.receives(self.receives)),
            (comm.Send_init, comm.Isend, sources, order.sends(self.sends)),
        )
        self._persists = len(self.sends) + len(self.receives) <= PERSISTENT
        # The messages of each direction that have not been started, and requests of started ones.
        self._left: list[Iterator[Any]] = []
        self._begun: list[list[Any]] = [[], []]
        self._ways = []
        for init, begin, arrays, blocks in ways:
            kinds = self._kinds(arrays, blocks)
            if self._persists:
                self._requests += self._messages(init, arrays, blocks, kinds, tag)
            else:
                self._ways.append(partial(self._messages, begin, arrays, blocks, kinds, tag))

    def _messages(
        self,
        begin: Any,
        arrays: Sequence[Array],
        blocks: list[Block],
        kinds: dict[int, Any],
        tag: int,
    ) -> Iterator[Any]:
        """Yield the requests of all messages, in order."""
        for block in blocks:
            for numbers in self.arrays_by_message(block.count):
                count, kind = block.count // self._unit, self._type
                if len(numbers) > 1:
                    count, kind = 1, kinds[block.count]
                values = part_of(arrays[numbers.start], block).view(np.uint8)
                yield begin([values, count, kind], block.peer, tag + numbers.start)

    def _start(self) -> None:
        if self._persists:
            self._prequest.Startall(self._requests)
            return
        self._left = [way() for way in self._ways]
        self._is_over()

    def _is_over(self) -> bool:
        if self._persists:
            return super()._is_over()
        for left, begun in zip(self._left, self._begun, strict=True):
            done = set(self._request.Testsome(begun) or ()) if begun else ()
            begun[:] = [one for number, one in enumerate(begun) if number not in done]
            begun += itertools.islice(left, FLYING - len(begun))
        return not any(self._begun)


class _AllToAll(MpiExchange):
    """One collective if all blocks are small, else one per array."""

    ordered = is_collective = True

    def _prepare(self, tag: int) -> None:
        if len(self._staged) > 1:
            # Either all ranks join arrays, or none.
            fits = max(array.nbytes for pair in self._staged for array in pair) <= _MOST_BYTES
            most = self.largest if fits else _MOST_BYTES
            self.largest = self._transport.owner.allreduce(most, op=max)
        self._joins = len(self._staged) > len(self.arrays_by_message(0))
        prepared = self._make_joined_message if self._joins else self._list_messages_by_array
        arrays = zip(*self._staged, strict=True)
        sources, targets = (
            prepared(some, blocks)
            for some, blocks in zip(arrays, (self.sends, self.receives), strict=True)
        )
        self._messages = list(zip(sources, targets, strict=True))

    def _list_messages_by_array(self, arrays: Sequence[Array], blocks: list[Block]) -> list[Any]:
        counts, offsets = [0] * self._comm.size, [0] * self._comm.size
        for block in blocks:
            counts[block.peer] = block.count // self._unit
            offsets[block.peer] = block.offset // self._unit
        return [[array.view(np.uint8), (counts, offsets), self._type] for array in arrays]

    def _make_joined_message(self, arrays: Sequence[Array], blocks: list[Block]) -> list[Any]:
        size, itemsize = self._comm.size, arrays[0].itemsize
        counts, offsets, kinds = [0] * size, [0] * size, [self._byte] * size
        joined = self._kinds(arrays, blocks)
        for block in blocks:
            counts[block.peer], offsets[block.peer] = 1, block.offset * itemsize
            kinds[block.peer] = joined[block.count]
        return [[arrays[0].view(np.uint8), (counts, offsets), kinds]]

    def _start(self) -> None:
        exchange = self._comm.Ialltoallw if self._joins else self._comm.Ialltoallv
        self._requests = [exchange(source, target) for source, target in self._messages]


class MpiPointToPoint(MpiTransport):
    """Messages from rank to rank."""

    name = "mpi-p2p"
    exchange = _PointToPoint


class MpiAllToAll(MpiTransport):
    """Collectives of all ranks."""

    name = "mpi"
    exchange = _AllToAll


class _FromDevice(MpiTransport):
    staged = False

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return the missing requirement of this rank: an MPI library that accepts GPU memory."""
        if kind == "cpu" or mpi_takes_gpus():
            return ""
        return "needs an MPI library that accepts GPU memory (CUDA-aware), and this one does not"


class MpiDevicePointToPoint(_FromDevice):
    """Messages whose data stay on the GPU."""

    name = "mpi-device-p2p"
    exchange = _PointToPoint
    without_gpu = "mpi-p2p"


class MpiDeviceAllToAll(_FromDevice):
    """Collectives whose data stay on the GPU."""

    name = "mpi-device"
    exchange = _AllToAll
    without_gpu = "mpi"


def mpi_takes_gpus() -> bool:
    """Return whether the MPI library accepts messages in GPU memory."""
    try:
        from mpi4py import MPI

        # The module's file gives access to the symbols of its MPI library.
        library = ctypes.CDLL(MPI.__file__)
    except (ImportError, OSError):
        return False
    if hasattr(library, "MPIX_Query_cuda_support"):  # Open MPI
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):  # MPICH; 0 stands for CUDA
        supported = ctypes.c_int(0)
        failed = library.MPIX_GPU_query_support(0, ctypes.byref(supported))
        return not failed and bool(supported.value)
    return False


# The elements that a rank sends to each rank of other nodes, and receives from them.
Counts = tuple[dict[int, int], dict[int, int]]


class Carriers:
    """The ranks of a node that carry the messages to, and from, other nodes."""

    def __init__(self, nodes: Sequence[int], rank: int) -> None:
        self.nodes, self.rank, self.here = nodes, rank, nodes[rank]
        self.members = members_of(nodes)

    def of(self, node: int, other: int) -> int:
        """Return the carrier of a node for another node."""
        distance, there = (other - node) % len(self.members), self.members[node]
        return there[(distance - 1) % len(there)]

    def carried_by(self, rank: int) -> list[int]:
        """Return the nodes for which a rank of this node is the carrier, the next one first."""
        count = len(self.members)
        later_nodes = ((self.here + distance) % count for distance in range(1, count))
        return [other for other in later_nodes if self.of(self.here, other) == rank]

    def in_turn(self) -> list[int]:
        """Return the ranks of this node, beginning with this one, so that all begin differently."""
        ranks = self.members[self.here]
        position = ranks.index(self.rank)
        return ranks[position:] + ranks[:position]


class Leg(NamedTuple):
    """A message of a stage to, or from, a rank: ranges of the packed array, or of the relay."""

    stage: str
    peer: int
    is_relayed: bool
    # Offsets and lengths.
    ranges: list[tuple[int, int]]

    def elements(self) -> int:
        """Return the number of its elements."""
        return sum(length for _, length in self.ranges)


class Legs:
    """All messages that one rank sends and receives in an exchange.

    `counts` has the counts of every rank of this node. The relay has the elements that a carrier
    gathers, then the ones that it scatters: `relay_size` elements, by node, sender and receiver.
    """

    def __init__(
        self,
        carriers: Carriers,
        sends: Sequence[Block],
        receives: Sequence[Block],
        counts: dict[int, Counts],
    ) -> None:
        self.sends: list[Leg] = []
        self.receives: list[Leg] = []
        self.relay_size = 0
        self._carriers = carriers
        here, members, turn = carriers.here, carriers.members, carriers.in_turn()
        carried = carriers.carried_by(carriers.rank)
        out = {(rank, peer): n for rank, (to, _) in counts.items() for peer, n in to.items()}
        back = {(peer, rank): n for rank, (_, by) in counts.items() for peer, n in by.items()}
        outgoing = [self._place_in_relay(members[here], members[node], out) for node in carried]
        incoming = [self._place_in_relay(members[node], members[here], back) for node in carried]
        for other in turn:
            nodes = carriers.carried_by(other)
            self._add(self.sends, "gather", other, False, self._packed(sends, nodes))
            self._add(self.receives, "scatter", other, False, self._packed(receives, nodes))
            gathered = [
                span for places in outgoing for (by, _), span in places.items() if by == other
            ]
            scattered = [
                span for places in incoming for (_, to), span in places.items() if to == other
            ]
            self._add(self.receives, "gather", other, True, gathered)
            self._add(self.sends, "scatter", other, True, scattered)
        for node, leaving, coming in zip(carried, outgoing, incoming, strict=True):
            carrier = carriers.of(node, here)
            self._add(self.sends, "between", carrier, True, list(leaving.values()))
            self._add(self.receives, "between", carrier, True, list(coming.values()))
        for legs, blocks in ((self.sends, sends), (self.receives, receives)):
            near = (block for block in blocks if carriers.nodes[block.peer] == here)
            for block in near:
                self._add(legs, "direct", block.peer, False, [(block.offset, block.count)])

    def _place_in_relay(
        self, senders: Iterable[int], receivers: list[int], counts: dict[tuple[int, int], int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the places in the relay of elements from one node to another, by ranks."""
        places = {}
        for pair in ((sender, receiver) for sender in senders for receiver in receivers):
            if count := counts.get(pair, 0):
                places[pair] = self.relay_size, count
                self.relay_size += count
        return places

    def _packed(self, blocks: Sequence[Block], nodes: Iterable[int]) -> list[tuple[int, int]]:
        """Return the places in the packed array of blocks for ranks of some nodes, in order."""
        places = {block.peer: (block.offset, block.count) for block in blocks}
        peers = (peer for node in nodes for peer in self._carriers.members[node])
        return [places[peer] for peer in peers if peer in places]

    @staticmethod
    def _add(
        legs: list[Leg], stage: str, peer: int, is_relayed: bool, ranges: list[tuple[int, int]]
    ) -> None:
        if ranges:
            legs.append(Leg(stage, peer, is_relayed, _merge_adjacent(ranges)))


def _merge_adjacent(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges with adjacent ones joined."""
    merged = ranges[:1]
    for offset, length in ranges[1:]:
        start, before = merged[-1]
        if start + before == offset:
            merged[-1] = start, before + length
        else:
            merged.append((offset, length))
    return merged


def counts_of(carriers: Carriers, sends: Iterable[Block], receives: Iterable[Block]) -> Counts:
    """Return the elements that a rank sends to ranks of other nodes, and receives."""
    to, by = (
        {block.peer: block.count for block in blocks if carriers.nodes[block.peer] != carriers.here}
        for blocks in (sends, receives)
    )
    return to, by


class _Aggregated(MpiExchange):
    """Gathering on the node, messages between nodes, scattering on the node.

    Each stage begins when this rank has all data of the previous one. Receives are posted at the
    beginning; ranks of a node exchange their own messages while nodes exchange theirs.
    """

    _transport: MpiHierarchical
    tags = len(STAGES)

    def _prepare(self, tag: int) -> None:
        carriers, order = self._transport.carriers, self._transport.order
        sends, receives = order.sends(self.sends), order.receives(self.receives)
        counts = self._transport.gather_counts(counts_of(carriers, sends, receives))
        self._legs = legs = Legs(carriers, sends, receives, counts)
        dtype = self._staged[0][0].dtype
        # Ranks that only carry have no other array from which dependencies follow.
        self._scratch = [np.empty(legs.relay_size, dtype) for _ in self.pairs]
        ranges = (span for leg in (*legs.sends, *legs.receives) for span in leg.ranges)
        unit = max(1, math.gcd(*(number for span in ranges for number in span)))
        element = self._byte.Create_contiguous(unit * dtype.itemsize)
        made: dict[tuple[str, bool], list[Any]] = {}
        for is_sent, some in ((False, legs.receives), (True, legs.sends)):
            for leg in some:
                lengths, offsets = ([span[i] // unit for span in leg.ranges] for i in (1, 0))
                self._types.append(element.Create_indexed(lengths, offsets).Commit())
                first = tag + STAGES.index(leg.stage) * len(self.pairs)
                requests = self._make_persistent(leg, is_sent, self._types[-1], first)
                made.setdefault((leg.stage, is_sent), []).extend(requests)
        element.Free()
        self._requests = [request for requests in made.values() for request in requests]
        expected = [made.get((stage, False), []) for stage in STAGES]
        gather, between, scatter, direct = (made.get((stage, True), []) for stage in STAGES)
        self._first = [request for requests in expected for request in requests] + gather
        # The requests to wait for, and the functions that then begin.
        self._stages = [(expected[0], between + direct), (expected[1], scatter)]
        self._begun = len(self._stages)

    def _make_persistent(self, leg: Leg, is_sent: bool, kind: Any, tag: int) -> Iterator[Any]:
        init = self._comm.Send_init if is_sent else self._comm.Recv_init
        packed = [pair[not is_sent] for pair in self._staged]
        arrays = self._scratch if leg.is_relayed else packed
        for numbers in self.arrays_by_message(leg.elements()):
            some = kind if len(numbers) == 1 else self._joined(kind, arrays)
            message = [arrays[numbers.start].view(np.uint8), 1, some]
            yield init(message, leg.peer, tag + numbers.start)

    def _start(self) -> None:
        self._prequest.Startall(self._first)
        self._begun = 0
        self._is_over()

    def _is_over(self) -> bool:
        for awaited, following in self._stages[self._begun :]:
            if not self._request.Testall(awaited):
                return False
            self._prequest.Startall(following)
            self._begun += 1
        return super()._is_over()

    def messages(self) -> list[tuple[int, int]]:
        to_others = [leg for leg in self._legs.sends if leg.peer != self.plan.rank]
        return self._messages_of((leg.peer, leg.elements()) for leg in to_others)


class MpiHierarchical(MpiTransport):
    """Messages between nodes are aggregated on each of them."""

    name = "mpi-hierarchical"
    exchange = _Aggregated
    aggregates = True

    def __init__(self, comm: OwnCommunicator, device: Device) -> None:
        super().__init__(comm, device)
        self.carriers = Carriers(self.nodes, comm.rank)
        self._owner, self._node = comm, comm.part(self.carriers.here)

    def gather_counts(self, counts: Counts) -> dict[int, Counts]:
        """Return the counts of all ranks of this node. Collective."""
        self._owner.meet()
        ranks = self.carriers.members[self.carriers.here]
        return dict(zip(ranks, self._node.allgather(counts), strict=True))
