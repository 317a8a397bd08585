"""The `nccl` transport: blocks travel from GPU to GPU, in the order of a stream.

Sends and receives of one exchange form one NCCL group, which is an operation like any other: the
host takes no part, and a graph with such exchanges can still be captured and replayed as a whole.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from slipstream.array_types import Array, Communicator
from slipstream.device import Device, Operation, Stream
from slipstream.exchange.communicators import world_ranks
from slipstream.exchange.exchange_plan import ExchangePlan, part_of
from slipstream.exchange.transport_base import Exchange, Transport
from slipstream.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.collective.own_communicator import OwnCommunicator
    from slipstream.device.cuda_device import CudaDevice, CudaStream


# Rank, address and bytes.
_Messages = Sequence[tuple[int, int, int]]


def nccl_is_available() -> bool:
    """Return whether CuPy finds the NCCL library."""
    try:
        from cupy.cuda import nccl

        return bool(nccl.get_version() > 0)
    except Exception:  # whatever is missing or broken, there is no NCCL
        return False


class NcclTransport(Transport):
    """Exchanges over NCCL; every rank must have a GPU of its own."""

    name = "nccl"
    devices = ("cuda", "hip")  # of AMD's GPUs, CuPy calls RCCL by NCCL's name
    needs_own_gpu = True

    def __init__(self, comm: OwnCommunicator, device: Device) -> None:
        super().__init__(device)
        self.comm = _connected(comm, cast("CudaDevice", device))

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return what this rank would need: CuPy and NCCL, on a GPU."""
        missing = kind != "cpu" and not nccl_is_available()
        return "needs CuPy with the NCCL library on every rank" if missing else ""

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> NcclTransport:
        return cls(comm, device)

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        return NcclExchange(self, plan, pairs, whole)


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
        self._comm = transport.comm

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
    """Return the operation that does all messages, given as (peer, pointer, bytes)."""
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


# By this rank's GPU and the ranks of MPI's world that belong to it. Destroying a communicator waits
# for all graphs that captured its messages, and graphs may live as long as the process: so
# communicators do, too.
_communicators: dict[tuple[Device, tuple[int, ...]], Any] = {}


def _connected(comm: Communicator, device: CudaDevice) -> Any:
    """Return the NCCL communicator of these ranks, connected to all of them. Collective."""
    from cupy.cuda import nccl

    key = device, world_ranks(comm)
    # All ranks must find it, or none: they might have been grouped differently before.
    if comm.allreduce(int(key in _communicators)) == comm.size:
        return _communicators[key]
    name = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    with device.context:
        connected = nccl.NcclCommunicator(comm.size, name, comm.rank)
    # Connections are made at the first message, which must not be inside a graph's capture.
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    memory = device.zeros((2 * comm.size,), "uint8")
    messages = [(peer, memory.data.ptr + peer, 1) for peer in peers]
    answers = [(peer, memory.data.ptr + comm.size + peer, 1) for peer in peers]
    device.run(_group(connected, messages, answers, memory))
    _communicators[key] = connected
    atexit.register(_leave, device, connected)
    return connected


def _leave(device: Device, comm: Any) -> None:
    device.synchronize()
    comm.abort()
