"""The `peer` transport: ranks of a node store directly into each other's memory.

No rank receives: a block is written to its target, by the copy engines of a GPU, by a copy on a
CPU, or by the kernel that computes it (`pack_targets`). Flags in shared memory show when a target
may be written and when it has been. On GPUs kernels raise them and wait for them, so an exchange
needs no host and can be part of a CUDA graph; on CPUs the schedule polls them. Ranks that do not
share memory use another transport, within the same plan.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.collective import WaitedTooLong, timeout
from slipstream.engine.device import Device, Operation, RowLaunch, address_of
from slipstream.engine.exchange.exchange_plan import ExchangeOrder, ExchangePlan, part_of
from slipstream.engine.exchange.peer_memory import FLAGS, SharedArrays, allocated_bytes
from slipstream.engine.exchange.transport_base import (
    Exchange,
    FailureNotice,
    PackTargets,
    Transport,
)
from slipstream.engine.exchange.transport_registry import make_far_transport, node_numbers
from slipstream.engine.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.engine.own_communicator import OwnCommunicator

# The number of polls between a waiting rank's checks for failures on other ranks.
_LOOK = 16
# The lanes of a GPU in which it raises flags, and waits for them.
HANDSHAKE_LANES = ("ready", "signal", "arrival")


class PeerTransport(Transport):
    """Exchanges through shared memory, and by another transport between ranks that share none.

    `make_far` makes that transport if there are such ranks. Making a transport is collective.
    """

    name = "peer"
    needs_own_gpu = True
    within_node = True
    can_store = True

    def __init__(
        self,
        comm: OwnCommunicator,
        device: Device,
        memory: SharedArrays,
        make_far: Callable[[], Transport],
    ) -> None:
        super().__init__(device)
        self.comm, self.memory = comm, memory
        self._far = None if memory.everywhere else make_far()
        # In host memory, so that the host can read it while the device waits.
        self.failed = device.pinned((1,), np.int64)
        self.failed[:] = 0
        # On a CPU, a rank on which a step has failed raises a flag of all others, which then look
        # for its message: reading memory takes less time than probing for a message.
        self._lost = self.flags() if device.kind == "cpu" else []
        self._lost_on = memoryview(self._lost[comm.rank]) if self._lost else (0,)
        self._notice = FailureNotice(comm)

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> PeerTransport:
        nodes = node_numbers(comm)
        reachable = [node == nodes[comm.rank] for node in nodes].__getitem__
        make = partial(SharedArrays, comm, device, reachable)
        # GPU memory may be freed only after all other ranks have closed it.
        memory = make() if device.kind == "cpu" else comm.shared((device, nodes), make)
        return cls(comm, device, memory, lambda: make_far_transport(comm, device))

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return an array that the other ranks can access. Collective."""
        return self.memory.empty(self.comm, shape, dtype)

    def allocated_bytes(self, size: int) -> int:
        return allocated_bytes(size)

    def stored_targets(
        self, plan: ExchangePlan, targets: Sequence[Array], alternating: bool
    ) -> StoredTargets | None:
        return None if self._far else StoredTargets(self, plan, targets, alternating)

    def pack_buffer(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory to pack blocks in, see `Transport`; nothing is packed if all is stored."""
        return self.empty(shape, dtype) if self._far else np.empty(shape, dtype)

    def pack_buffer_bytes(self, size: int) -> int:
        return self.allocated_bytes(size) if self._far else 0

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        far = None
        if self._far:
            there = [rank for rank, near in enumerate(self.memory.near) if not near]
            far = self._far.prepare(plan.among(there), pairs)
        return PeerExchange(self, plan, pairs, far, whole)

    def check(self) -> None:
        """Raise RunError if a wait on the device was aborted."""
        if self.failed[0]:
            raise WaitedTooLong("a rank", timeout())
        if self._lost_on[0]:
            self._notice.expect()

    def look(self) -> None:
        """Raise RunError if another rank has failed, in a step or before it has begun this one."""
        self.check()
        self._notice.look()

    def give_up(self, failure: BaseException) -> None:
        """Refuse further exchanges, on all ranks."""
        if self._lost:
            self._notice.notify_ranks(failure)
        for flags in self._lost:
            if flags is not None:
                flags[0] = 1
        if self._far:
            self._far.give_up(failure)

    def flags(self) -> list[Any]:
        """Return flags of every rank, with one for each rank; None if out of reach. Collective."""
        memory, size = self.memory, self.comm.size
        if memory.flags_used + size > FLAGS:  # on all ranks at the same time
            memory.new_flags(self.comm)
        base, memory.flags_used = memory.flags_used, memory.flags_used + size
        return [
            None if flags is None else flags[8 * base : 8 * (base + size)].view(np.int64)
            for flags in memory.flags.memories
        ]


class StoredTargets(PackTargets):
    """Blocks are stored in the memory of their receivers, between two handshakes. Collective."""

    stores = True

    def __init__(
        self,
        transport: PeerTransport,
        plan: ExchangePlan,
        targets: Sequence[Array],
        alternating: bool = False,
    ) -> None:
        targets = [target.reshape(-1) for target in targets]
        super().__init__(plan, transport.memory.exchange_places(transport.comm, plan, targets))
        receivers = [block.peer for block in plan.sends if block.peer != plan.rank]
        senders = [block.peer for block in plan.receives if block.peer != plan.rank]
        self._ready = None if alternating else Handshake(transport, senders, receivers)
        self._arrived = Handshake(transport, receivers, senders)
        self._stored = [place for where in self.blocks for place in where.values()]
        self._arriving = [part_of(target, block) for target in targets for block in plan.receives]

    def shown_as(self, label: str) -> tuple[str, str]:
        return label, "communication"

    def limited_to(self, written: Sequence[Array], arriving: Sequence[Array]) -> StoredTargets:
        limited = copy.copy(self)
        limited._stored, limited._arriving = list(written), list(arriving)
        return limited

    def record_open(self, graph: StepGraph, label: str) -> None:
        """Record that this rank's targets are free, and the wait for the targets of others."""
        if self._ready:
            lanes = HANDSHAKE_LANES[0], HANDSHAKE_LANES[0]
            self._ready.record(graph, [], self._arriving, self._stored, f"{label}: ready", lanes)

    def record_close(self, graph: StepGraph, label: str) -> None:
        """Record that this rank has stored all blocks, and the wait for blocks from others."""
        lanes = HANDSHAKE_LANES[1], HANDSHAKE_LANES[2]
        self._arrived.record(graph, self._stored, [], self._arriving, f"{label}: wait", lanes)


class PeerExchange(Exchange):
    """Copies packed blocks to their receivers; another transport sends blocks out of reach."""

    def __init__(
        self,
        transport: PeerTransport,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        far: Exchange | None,
        whole: bool,
    ) -> None:
        super().__init__(transport.device, plan, pairs, whole)
        self._far, reached = far, transport.memory.near
        near = plan.among([peer for peer, is_near in enumerate(reached) if is_near])
        self._targets = StoredTargets(transport, near, [target for _, target in self.pairs])
        away = [block for block in near.sends if block.peer != plan.rank]
        order = ExchangeOrder([not is_near for is_near in reached], plan.rank)
        self._near_sends = order.sends(away)

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        self._targets.record_open(graph, label)
        # They take longest: copies overlap with them, in a lane that does not wait for them.
        if self._far:
            self._far.record_close(graph, label)
        lane = "near" if self._far else "communication"
        for (source, _), places in zip(self.pairs, self._targets.blocks, strict=True):
            for block in self._near_sends:
                # In one lane: in parallel, all pieces for one rank might be copied before the
                # others'.
                graph.add_copy(
                    places[block.peer],
                    part_of(source, block),
                    label=label,
                    category="communication",
                    lane=lane,
                    device=self.device,
                )
        self._targets.record_close(graph, label)


class Handshake:
    """Flags that one rank raises for some ranks, and awaits from others. Collective.

    Each rank has a row of flags, one for every rank. This rank raises its flag in the rows of the
    ranks `tell`, and waits for the flags of the ranks `hear` in its row.
    """

    def __init__(self, transport: PeerTransport, tell: list[int], hear: list[int]) -> None:
        flags = transport.flags()
        self.transport, self.device, rank = transport, transport.device, transport.comm.rank
        self._tell, self._hear, device = len(tell), len(hear), self.device
        raised = [address_of(flags[peer]) + 8 * rank for peer in tell]
        addresses, ranks = (device.array(np.array(x, np.int64)) for x in (raised, hear))
        raised_counts, awaited_counts = (
            device.zeros((len(x),), np.int64) for x in (addresses, ranks)
        )
        self._raising = addresses, raised_counts, self._tell
        self._awaiting = flags[rank], ranks, awaited_counts, self._hear
        # Kernels have addresses only: the memory is kept alive here.
        self._flags = flags

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

        Flags are raised when nodes are done with the arrays in `reads` and `writes`; `guarded`
        arrays are not accessed before all awaited flags are raised.
        """
        if not self._tell and not self._hear:
            return
        kernel = partial(self.device.kernel, "exchange_flags.hpp")
        raise_flags = kernel("raise_flags").bind(RowLaunch(self._tell, 1), *self._raising)
        if self.device.kind == "cpu":
            raised = np.zeros(1, np.int64)
            test = kernel("test_flags").bind(RowLaunch(1, 1), *self._awaiting, raised)
            graph.add_transfer(
                _Polled(self, raise_flags, test, raised),
                reads=reads,
                writes=[*writes, *guarded],
                label=label,
            )
            return
        patience = int(timeout() * 1e9)
        launch, failed = RowLaunch(self._hear, 1), self.transport.failed
        wait = kernel("await_flags").bind(launch, *self._awaiting, patience, failed)
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
                device=self.device,
            )


class _Polled:
    """A handshake on a CPU: the host raises the flags, and polls the others."""

    ordered = False

    def __init__(
        self, handshake: Handshake, raise_flags: Operation, test: Operation, raised: np.ndarray
    ) -> None:
        self._transport = handshake.transport
        self._stream = handshake.device.default_stream
        self._raise_flags, self._test, self._raised = raise_flags, test, raised
        self._polls = 0
        self._kept = handshake

    def start(self) -> None:
        self._transport.check()
        self._raise_flags(self._stream)

    def test(self) -> bool:
        self._test(self._stream)
        if self._raised[0]:
            return True
        self._polls += 1
        if self._polls % _LOOK == 0:
            self._transport.look()
        return False

    def give_up(self, failure: BaseException) -> None:
        self._transport.give_up(failure)
