"""The `nccl` transport: blocks are sent from GPU to GPU, in the order of a stream.

Sends and receives of one exchange form one NCCL group, which is an operation like any other: the
host takes no part, and a graph with such exchanges can be captured and replayed as a whole. NCCL
connects two ranks at their first message, which must not be captured: so preparing an exchange
connects its ranks, and no others.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from slipstream.engine.array_types import Array, Communicator
from slipstream.engine.device import Device, Operation, Stream, address_of
from slipstream.engine.exchange.exchange_plan import ExchangePlan, part_of
from slipstream.engine.exchange.transport_base import Exchange, Transport
from slipstream.engine.exchange.transport_registry import world_ranks
from slipstream.engine.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.engine.device.cuda_device import CudaDevice, CudaStream
    from slipstream.engine.own_communicator import OwnCommunicator


# Rank, address and bytes.
_Messages = Sequence[tuple[int, int, int]]


def nccl_is_available() -> bool:
    """Return whether CuPy finds the NCCL library."""
    try:
        from cupy.cuda import nccl

        return bool(nccl.get_version() > 0)
    except Exception:  # any missing or broken part means no NCCL
        return False


class NcclTransport(Transport):
    """Exchanges over NCCL; every rank must have its own GPU."""

    name = "nccl"
    devices = ("cuda",)
    needs_own_gpu = True

    def __init__(self, comm: OwnCommunicator, device: Device) -> None:
        super().__init__(device)
        self.ranks = _make_communicator(comm, cast("CudaDevice", device))

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return the missing requirements of this rank: CuPy and NCCL, on a GPU."""
        missing = kind != "cpu" and not nccl_is_available()
        return "needs CuPy with the NCCL library on every rank" if missing else ""

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> NcclTransport:
        return cls(comm, device)

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        self.ranks.connect({one.peer for one in (*plan.sends, *plan.receives)} - {plan.rank})
        return NcclExchange(self, plan, pairs, whole)


def _make_communicator(comm: Communicator, device: CudaDevice) -> ConnectedRanks:
    """Return the NCCL communicator of these ranks. Collective."""
    from cupy.cuda import nccl

    key = device, world_ranks(comm)
    # All ranks must find it, or none: they may have been grouped differently before.
    if comm.allreduce(int(key in _communicators)) == comm.size:
        return _communicators[key]
    name = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    with device.context:
        made = nccl.NcclCommunicator(comm.size, name, comm.rank)
    _communicators[key] = ConnectedRanks(made, comm.size, device)
    atexit.register(_abort_communicator, device, made)
    return _communicators[key]


def _abort_communicator(device: Device, comm: Any) -> None:
    device.synchronize()
    comm.abort()


class NcclExchange(Exchange):
    """One group of messages."""

    def __init__(
        self,
        transport: NcclTransport,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        whole: bool,
    ) -> None:
        super().__init__(transport.device, plan, pairs, whole)
        self._comm = transport.ranks.comm

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        sources = [(b.peer, part_of(source, b)) for source, _ in self.pairs for b in self.sends]
        targets = [(b.peer, part_of(target, b)) for _, target in self.pairs for b in self.receives]
        if not sources and not targets:
            return
        messages, answers = (
            [(peer, part.data.ptr, part.nbytes) for peer, part in parts]
            for parts in (sources, targets)
        )
        graph.add(
            _group(self._comm, messages, answers, self.pairs),
            reads=[part for _, part in sources],
            writes=[part for _, part in targets],
            label=label,
            category="communication",
            lane="communication",
            device=self.device,
        )


def _group(comm: Any, sends: _Messages, receives: _Messages, keep_alive: Any) -> Operation:
    """Return the operation of all messages, given as (peer, pointer, bytes)."""
    from cupy.cuda import nccl

    def operation(stream: Stream, keep_alive: Any = keep_alive) -> None:
        handle = cast("CudaStream", stream).handle.ptr
        nccl.groupStart()
        try:
            for peer, pointer, size in sends:
                comm.send(pointer, size, nccl.NCCL_UINT8, peer, handle)
            for peer, pointer, size in receives:
                comm.recv(pointer, size, nccl.NCCL_UINT8, peer, handle)
        finally:
            nccl.groupEnd()

    return operation


class ConnectedRanks:
    """An NCCL communicator, and the ranks to which this one is connected."""

    def __init__(self, comm: Any, ranks: int, device: Device) -> None:
        self.comm, self._device = comm, device
        self._connected: set[int] = set()
        # A byte to send to each rank, and one to receive.
        self._bytes = device.zeros((2, ranks), "uint8")

    def connect(self, peers: set[int]) -> None:
        """Exchange a byte with ranks that are not connected yet; these must call this too."""
        new = sorted(peers - self._connected)
        if not new:
            return
        outgoing, incoming = self._bytes
        sends, receives = (
            [(peer, address_of(part) + peer, 1) for peer in new] for part in (outgoing, incoming)
        )
        self._device.run(_group(self.comm, sends, receives, self._bytes))
        self._connected.update(new)


# By this rank's GPU and the communicator's ranks in MPI's world. Destroying a communicator waits
# for all graphs that captured its messages, and graphs may live as long as the process: so
# communicators are never destroyed.
_communicators: dict[tuple[Device, tuple[int, ...]], ConnectedRanks] = {}
