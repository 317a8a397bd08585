"""The `peer` transport: ranks of a node store straight into each other's memory.

Nobody receives: a block is written to where it belongs, by the copy engines of a GPU, by a copy on
a CPU, or by the very kernel that makes it (`pack_targets`). Flags in shared memory tell when a
target may be written and when it has been. On GPUs they are raised and awaited by kernels, so that
an exchange needs no host and is a part of a CUDA graph; on CPUs the schedule polls them. Ranks that
do not see each other's memory take another transport, within the same plan.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.device import Device, Operation, RowLaunch, Stream, address_of
from slipstream.errors import RunError
from slipstream.exchange.communicators import private, world_ranks
from slipstream.exchange.exchange_plan import ExchangePlan, part_of
from slipstream.exchange.pack_targets import PackTargets
from slipstream.exchange.shared_memory import Segment, allocated_bytes
from slipstream.exchange.transport_base import Exchange, Transport
from slipstream.exchange.transport_registry import make_far_transport
from slipstream.schedule import StepGraph, timeout

# Flags of a rank in one piece of memory; every exchange takes one or two per rank.
_FLAGS = 1 << 18


# By this rank's device and the ranks of MPI's world: other ranks may have this one's memory open
# for as long as they like, so what manages it lives as long as the process.
_transports: dict[tuple[Device, tuple[int, ...]], PeerTransport] = {}


class PeerTransport(Transport):
    """Exchanges through shared memory, and by another transport between ranks that share none.

    That one is made by `make_far` if there are such ranks. Tests exclude ranks by `reachable`, the
    same ones from either side. Making a transport is collective.
    """

    name = "peer"
    needs_own_gpu = True
    within_node = True
    can_store = True

    def __init__(
        self,
        comm: Comm,
        device: Device,
        make_far: Callable[[], Transport],
        reachable: Callable[[int], bool] = lambda rank: True,
    ) -> None:
        super().__init__(device)
        self.comm = comm
        self._segments: dict[int, Segment] = {}
        self._dropped: set[int] = set()
        self._made = 0
        self._all_flags: list[Segment] = []
        self._flags, self._used = self._lowered_flags(), 0
        seen = [
            memory is not None and reachable(r) for r, memory in enumerate(self._flags.memories)
        ]
        seen_by_others = comm.alltoall(seen)
        self.near = [mine and theirs for mine, theirs in zip(seen, seen_by_others, strict=True)]
        everywhere = comm.allreduce(all(self.near)) == comm.size
        self._far = None if everywhere else make_far()
        # In the host's memory, for the host to see even while the device waits.
        self._failed = device.pinned((1,), np.int64)
        self._failed[:] = 0

    @classmethod
    def make(cls, comm: Comm, device: Device) -> PeerTransport:
        """Return the transport of these ranks, made once. Collective."""
        key = device, world_ranks(comm)
        # All ranks must find it, or none: they might have been grouped differently before.
        if comm.allreduce(int(key in _transports)) < comm.size:
            _transports[key] = cls(private(comm), device, lambda: make_far_transport(comm, device))
        return _transports[key]

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return an array that the other ranks see. Collective."""
        self._free_dropped()
        shape, dtype = tuple(shape), np.dtype(dtype)
        segment = Segment(self.comm, self.device, math.prod(shape) * dtype.itemsize)
        number, self._made = self._made, self._made + 1
        self._segments[number] = segment
        array, owner = segment.own_array(shape, dtype)
        weakref.finalize(owner, self._dropped.add, number).atexit = False
        return array

    def allocated_bytes(self, size: int) -> int:
        """Return how many bytes of device memory an array of `size` bytes takes."""
        return allocated_bytes(size)

    def stored_targets(
        self, plan: ExchangePlan, targets: Sequence[Any], alternating: bool
    ) -> StoredTargets | None:
        """Return where blocks belong in the memory of their receivers; see `Transport`."""
        return None if self._far else StoredTargets(self, plan, targets, alternating)

    def pack_buffer(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return memory to pack blocks in, see `Transport`; nothing is packed if all is stored."""
        return self.empty(shape, dtype) if self._far else np.empty(shape, dtype)

    def pack_buffer_bytes(self, size: int) -> int:
        """Return how many bytes of device memory a `pack_buffer` of `size` bytes takes."""
        return self.allocated_bytes(size) if self._far else 0

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        far = None
        if self._far:
            there = [rank for rank, near in enumerate(self.near) if not near]
            far = self._far.prepare(plan.among(there), pairs)
        return PeerExchange(self, plan, pairs, far, whole)

    def check(self) -> None:
        """Raise RunError if a wait on the device has been given up."""
        if self._failed[0]:
            raise RunError(
                f"a rank has not answered for {timeout():g} s: it has died or takes another path; "
                "set SLIPSTREAM_TIMEOUT to wait longer"
            )

    def exchange_places(self, plan: ExchangePlan, targets: list[Any]) -> list[dict[int, Any]]:
        """Tell every sender where its block belongs; return what the receivers told. Collective."""
        told: list[Any] = [None] * self.comm.size
        for block in plan.receives:
            told[block.peer] = [self._locate(part_of(target, block)) for target in targets]
        heard = self.comm.alltoall(told)
        places: list[dict[int, Any]] = [{} for _ in targets]
        for block in plan.sends:
            for target, where, location in zip(targets, places, heard[block.peer], strict=True):
                number, offset = location
                memory = self._segments[number].memories[block.peer]
                length = block.count * target.itemsize
                where[block.peer] = memory[offset : offset + length].view(target.dtype)
        return places

    def _locate(self, array: Any) -> tuple[int, int]:
        """Return the segment that an array is in, and the byte at which it begins."""
        address = address_of(array)
        for number, segment in self._segments.items():
            memory = segment.memories[self.comm.rank]
            if 0 <= address - address_of(memory) < memory.nbytes:
                return number, address - address_of(memory)
        raise ValueError("only arrays made by the transport's empty() can be exchanged by it")

    def _lowered_flags(self) -> Segment:
        """Return flags that nobody has raised. Collective."""
        flags = Segment(self.comm, self.device, 8 * _FLAGS)
        self.device.run(self.device.fill(flags.memories[self.comm.rank], 0))
        self.comm.Barrier()
        # Handshakes know addresses only: what they lead to is kept.
        self._all_flags.append(flags)
        return flags

    def handshake(self, tell: list[int], hear: list[int]) -> Handshake:
        """Return a handshake that tells some ranks, and hears from others. Collective."""
        rank, size = self.comm.rank, self.comm.size
        if self._used + size > _FLAGS:  # on all ranks at the same time
            self._flags, self._used = self._lowered_flags(), 0
        base, self._used = self._used, self._used + size
        addresses = [address_of(self._flags.memories[peer]) + 8 * (base + rank) for peer in tell]
        own = self._flags.memories[rank][8 * base : 8 * (base + size)].view(np.int64)
        return Handshake(self.device, addresses, own, hear, self._failed)

    def _free_dropped(self) -> None:
        """Free the memory that no rank uses any more."""
        if self.device.kind == "cpu":
            for number in list(self._dropped):
                self._dropped.discard(number)
                self._segments.pop(number, None)
            return
        dropped = [set(numbers) for numbers in self.comm.allgather(list(self._dropped))]
        everywhere = set.intersection(*dropped)
        if not everywhere:
            return
        self.device.synchronize()
        segments = [self._segments.pop(number) for number in sorted(everywhere)]
        self._dropped -= everywhere
        for segment in segments:
            segment.close_others()
        self.comm.Barrier()
        for segment in segments:
            segment.free()


class StoredTargets(PackTargets):
    """Blocks are stored in the memory of their receivers, between two handshakes. Collective."""

    stores = True

    def __init__(
        self,
        transport: PeerTransport,
        plan: ExchangePlan,
        targets: Sequence[Any],
        alternating: bool = False,
    ) -> None:
        targets = [target.reshape(-1) for target in targets]
        super().__init__(plan, transport.exchange_places(plan, targets))
        receivers = [block.peer for block in plan.sends if block.peer != plan.rank]
        senders = [block.peer for block in plan.receives if block.peer != plan.rank]
        self._ready = None if alternating else transport.handshake(senders, receivers)
        self._arrived = transport.handshake(receivers, senders)
        self._stored = [place for where in self.blocks for place in where.values()]
        self._arriving = [part_of(target, block) for target in targets for block in plan.receives]

    def shown_as(self, label: str) -> tuple[str, str]:
        return label, "communication"

    def limited_to(self, written: Sequence[Any], arriving: Sequence[Any]) -> StoredTargets:
        limited = copy.copy(self)
        limited._stored, limited._arriving = list(written), list(arriving)
        return limited

    def record_open(self, graph: StepGraph, label: str) -> None:
        """Record that this rank's targets are free, and the wait for those of others."""
        if self._ready:
            lanes = ("ready", "ready")
            self._ready.record(graph, [], self._arriving, self._stored, f"{label}: ready", lanes)

    def record_close(self, graph: StepGraph, label: str) -> None:
        """Record that this rank has stored all, and the wait for what others store."""
        lanes = ("signal", "arrival")
        self._arrived.record(graph, self._stored, [], self._arriving, f"{label}: wait", lanes)


class PeerExchange(Exchange):
    """Packed blocks are copied to their receivers; those out of reach take another transport."""

    def __init__(
        self,
        transport: PeerTransport,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        far: Exchange | None,
        whole: bool,
    ) -> None:
        super().__init__(transport.device, plan, pairs, whole)
        self._far, rank, size = far, transport.comm.rank, transport.comm.size
        near = plan.among([peer for peer in range(size) if transport.near[peer]])
        self._targets = StoredTargets(transport, near, [target for _, target in self.pairs])
        # Everybody begins with another receiver.
        others = [block for block in near.sends if block.peer != rank]
        self._near_sends = sorted(others, key=lambda block: (block.peer - rank) % size)

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        self._targets.record_open(graph, label)
        for (source, _), places in zip(self.pairs, self._targets.blocks, strict=True):
            for block in self._near_sends:
                # In one lane: side by side, all pieces for one rank might go before the others'.
                graph.add_copy(
                    places[block.peer],
                    part_of(source, block),
                    label=label,
                    category="communication",
                    lane="communication",
                    device=self.device,
                )
        self._targets.record_close(graph, label)
        if self._far:
            self._far.record_close(graph, label)


class Handshake:
    """Flags that one rank raises for some ranks, and awaits from others.

    `addresses` are those of the flags of others that are raised, `flags` this rank's own (int64),
    one per rank that may raise it, `hear` the ranks that are waited for; `failed` is set if waiting
    is given up.
    """

    def __init__(
        self, device: Device, addresses: list[int], flags: Array, hear: list[int], failed: Array
    ) -> None:
        self._device, self._tell, self._hear = device, len(addresses), len(hear)
        addresses, ranks = (device.array(np.array(x, np.int64)) for x in (addresses, hear))
        told, heard = (device.zeros((len(x),), np.int64) for x in (addresses, ranks))
        self._raising = addresses, told, self._tell
        self._awaiting = flags, ranks, heard, self._hear
        self._failed = failed

    def record(
        self,
        graph: StepGraph,
        reads: list[Array],
        writes: list[Array],
        guarded: list[Array],
        label: str,
        lanes: tuple[str, str],
    ) -> None:
        """Record raising the flags in one lane and waiting in another.

        Flags are raised when nodes are done with what is read and written here; what is guarded is
        not touched before all flags awaited are raised.
        """
        if not self._tell and not self._hear:
            return
        raise_flags = self._bind("raise_flags", self._tell, *self._raising)
        if self._device.kind == "cpu":
            raised = np.zeros(1, np.int64)
            test = self._bind("test_flags", 1, *self._awaiting, raised)
            graph.add_transfer(
                _Polled(self._device.default_stream, raise_flags, test, raised),
                reads=reads,
                writes=[*writes, *guarded],
                label=label,
            )
            return
        patience = int(timeout() * 1e9)
        wait = self._bind("await_flags", self._hear, *self._awaiting, patience, self._failed)
        for operation, read, written, lane in (
            (raise_flags, reads, writes, lanes[0]),
            (wait, [], guarded, lanes[1]),
        ):
            graph.add(
                operation,
                reads=read,
                writes=written,
                label=label,
                category="communication",
                lane=lane,
                device=self._device,
            )

    def _bind(self, name: str, rows: int, *arguments: Any) -> Operation:
        return self._device.kernel("exchange_flags.hpp", name).bind(RowLaunch(rows, 1), *arguments)


class _Polled:
    """A handshake on a CPU: the host raises the flags, and looks whether the others are up."""

    ordered = False

    def __init__(
        self, stream: Stream, raise_flags: Operation, test: Operation, raised: np.ndarray
    ) -> None:
        self._stream, self._raise_flags, self._test = stream, raise_flags, test
        self._raised = raised

    def start(self) -> None:
        self._raise_flags(self._stream)

    def test(self) -> bool:
        self._test(self._stream)
        return bool(self._raised[0])
