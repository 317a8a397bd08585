"""The base of all transports: exchanges are prepared collectively, and recorded by each rank.

All ranks together prepare an exchange of certain arrays by a plan. Each rank then records it in
step graphs, any number of times and without communication. If ranks share memory, the operation
that computes the data may store them at their destination directly: `pack_targets` decides that.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slipstream.accepted import DEVICES
from slipstream.array_types import Array, Comm
from slipstream.collective import RankFailed, described
from slipstream.device import Device
from slipstream.errors import RunError
from slipstream.exchange.exchange_plan import ExchangePlan, part_of
from slipstream.exchange.pack_targets import PackTargets, packed_blocks
from slipstream.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.collective.own_communicator import OwnCommunicator


class Exchange(PackTargets, ABC):
    """An exchange whose blocks are packed in the source, from where a transport sends them.

    Pairs are (source, target). A `whole` source also has this rank's own block, which is copied.
    All ranks must run the same exchanges in the same order.
    """

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        whole: bool = False,
    ) -> None:
        super().__init__(plan, [] if whole else packed_blocks(plan, pairs))
        self.device, self._whole = device, whole
        self.pairs = [(source.reshape(-1), target.reshape(-1)) for source, target in pairs]
        self.sends = [block for block in plan.sends if block.peer != plan.rank]
        self.receives = [block for block in plan.receives if block.peer != plan.rank]

    def shown_as(self, label: str) -> tuple[str, str]:
        return f"{label}: pack", "pack"

    def record_close(self, graph: StepGraph, label: str) -> None:
        if self._whole:
            self._record_own(graph, label)
        self._record_messages(graph, label)

    def _record_own(self, graph: StepGraph, label: str) -> None:
        rank = self.plan.rank
        sends = [block for block in self.plan.sends if block.peer == rank]
        receives = [block for block in self.plan.receives if block.peer == rank]
        for source, target in self.pairs:
            for send, receive in zip(sends, receives, strict=True):
                part, place = part_of(source, send), part_of(target, receive)
                graph.add_copy(place, part, label=f"{label}: own", device=self.device)

    def messages(self) -> list[tuple[int, int]]:
        """Return receiver and bytes of each message that this rank sends in one exchange."""
        return [
            (block.peer, block.count * source.itemsize)
            for source, _ in self.pairs
            for block in self.sends
        ]

    @abstractmethod
    def _record_messages(self, graph: StepGraph, label: str) -> None:
        """Record the messages to and from other ranks."""


class Transport(ABC):
    """Prepares exchanges between the ranks of a communicator, from and to memory of a device."""

    # The name in a case file.
    name: str
    # For the registry: the kinds of devices that it supports, whether ranks cannot share a GPU,
    # whether "auto" selects it for ranks of one node only, and the transport that it equals without
    # a GPU.
    devices: tuple[str, ...] = tuple(DEVICES)
    needs_own_gpu = False
    within_node = False
    without_gpu: str | None = None
    # Whether ranks store into the memory of others that they can access.
    can_store = False
    # Whether it aggregates many small messages between nodes into few large ones.
    aggregates = False

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return the missing requirements of this rank for a kind of device; "" if none."""
        return ""

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> Transport:
        """Return a transport between these ranks, new or existing. Collective."""
        raise NotImplementedError

    def __init__(self, device: Device) -> None:
        self.device = device

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return an uninitialised array for this transport to exchange from and to. Collective."""
        return self.device.empty(tuple(shape), dtype)

    def allocated_bytes(self, size: int) -> int:
        """Return the device memory of an array of `size` bytes from `empty`, in bytes."""
        return size

    @abstractmethod
    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        """Prepare the exchange of several pairs (source, target) by one plan. Collective.

        Arrays are packed and contiguous, of at least ``plan.send_size`` and ``plan.receive_size``
        elements and any shape, and made by `empty`; for `whole` see `Exchange`.
        """

    def stored_targets(
        self, plan: ExchangePlan, targets: Sequence[Array], alternating: bool
    ) -> PackTargets | None:
        """Return the targets of blocks in the memory of all receivers, None if out of reach.

        Collective; called by `pack_targets`. All ranks get an object, or none.
        """
        return None

    def pack_buffer(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory to pack blocks in. Collective.

        If blocks are stored at receivers, it is never used, and takes no device memory.
        """
        return self.empty(shape, dtype)

    def pack_buffer_bytes(self, size: int) -> int:
        """Return the device memory of a `pack_buffer` of `size` bytes, in bytes."""
        return self.allocated_bytes(size)

    def relative_error(self, comm: Comm = None) -> float:
        """Return the error of exchanged data, relative to their size. Collective."""
        return 0.0

    def check(self) -> None:
        """Raise `RunError` if a rank or its device has aborted an exchange."""
        return

    def give_up(self, failure: BaseException) -> None:
        """Note that a step with an exchange of this transport has failed; notify the others."""
        return


# The seconds to wait for a message that another rank is known to have sent.
_ON_ITS_WAY = 1.0
_PAUSE = 1e-4


class FailureNotice:
    """Messages among the ranks of a transport about failed steps. Collective."""

    def __init__(self, comm: OwnCommunicator) -> None:
        self._comm, self._topic = comm, comm.new_topic()
        self._text = ""

    def tell(self, failure: BaseException) -> None:
        """Send the failure to all other ranks, unless one of them has already sent one."""
        if not self._text:
            self._text = described(failure)[1]
            self._comm.tell(failure, self._topic)

    def check(self) -> None:
        """Raise RunError if this rank knows of a failure."""
        if self._text:
            raise RunError(f"an exchange was aborted; make a new plan: {self._text}")

    def look(self) -> None:
        """Raise RunError if a message of failure has arrived, from within a step or before one."""
        if self._text:
            self.check()
        self._comm.look(self._topic)

    def expect(self) -> None:
        """Wait for the message of a rank that is known to have failed, and raise RunError."""
        until = time.perf_counter() + _ON_ITS_WAY
        while time.perf_counter() < until:
            try:
                self.look()
            except RankFailed as failure:
                self._text = failure.text()
                self.check()
            time.sleep(_PAUSE)
        self._text = "a step has failed on another rank"
        self.check()
