"""What all transports share: exchanges that are prepared together and recorded by each rank alone.

All ranks together prepare an exchange of certain arrays by a plan. Each rank then records it in
step graphs, any number of times and without communication. Where ranks see each other's memory, the
operation that makes the data may store them at their destination directly: `pack_targets`, which
makes exchanges, decides that.
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
    """Blocks for others are packed in the source, from which a transport takes them.

    Pairs are (source, target). A `whole` source also has what this rank sends to itself, which is
    copied. All ranks must run the same exchanges in the same order.
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
        """Record what goes to, and comes from, other ranks."""


class Transport(ABC):
    """Prepares exchanges between the ranks of a communicator, from and to memory of a device."""

    # As in a case file.
    name: str
    # What the registry asks: kinds of devices that it serves, whether ranks cannot share a GPU,
    # whether "auto" takes it for ranks of one node only, and what it is the same as without a GPU.
    devices: tuple[str, ...] = tuple(DEVICES)
    needs_own_gpu = False
    within_node = False
    without_gpu: str | None = None
    # Whether ranks store into the memory of others, as far as they see it.
    can_store = False
    # Whether it makes few large messages between nodes of many small ones.
    aggregates = False

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return what this rank would need for devices of a kind; "" if it lacks nothing."""
        return ""

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> Transport:
        """Return a transport between these ranks, a new one or one that they have. Collective."""
        raise NotImplementedError

    def __init__(self, device: Device) -> None:
        self.device = device

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return an uninitialised array for this transport to exchange from and to. Collective."""
        return self.device.empty(tuple(shape), dtype)

    def allocated_bytes(self, size: int) -> int:
        """Return how many bytes of device memory an array of `size` bytes from `empty` takes."""
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
        """Return where blocks belong in the memory of all receivers, None if out of reach.

        Collective; what `pack_targets` asks for. All ranks get an object, or none.
        """
        return None

    def pack_buffer(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory to pack blocks in. Collective.

        It is never touched, and takes none of the device, where blocks are stored at receivers.
        """
        return self.empty(shape, dtype)

    def pack_buffer_bytes(self, size: int) -> int:
        """Return how many bytes of device memory a `pack_buffer` of `size` bytes takes."""
        return self.allocated_bytes(size)

    def relative_error(self, comm: Comm = None) -> float:
        """Return how much data lose on their way, relative to their size. Collective."""
        return 0.0

    def check(self) -> None:
        """Raise `RunError` if a rank or its device has given up an exchange."""
        return

    def give_up(self, failure: BaseException) -> None:
        """Note that a step with an exchange of this transport has failed; tell the others."""
        return


# Seconds to wait for a message that another rank is known to have sent.
_ON_ITS_WAY = 1.0
_PAUSE = 1e-4


class FailureNotice:
    """Messages among the ranks of a transport that a step has failed. Collective."""

    def __init__(self, comm: OwnCommunicator) -> None:
        self._comm, self._topic = comm, comm.new_topic()
        self._text = ""

    def tell(self, failure: BaseException) -> None:
        """Send the failure to all other ranks, unless this rank already has one from them."""
        if not self._text:
            self._text = described(failure)[1]
            self._comm.tell(failure, self._topic)

    def check(self) -> None:
        """Raise RunError if this rank knows of a failure."""
        if self._text:
            raise RunError(f"an exchange was given up; make the plan anew: {self._text}")

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
