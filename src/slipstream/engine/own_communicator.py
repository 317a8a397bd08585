"""Communicators that belong to one plan, simulation or transport each.

Messages of two plans then never mix, in whatever order ranks call them, and no rank waits for ever:
a collective call begins with a *meeting*, where ranks learn whether all are there and whether one
has failed. A rank that fails elsewhere sends the others a *notice*, which they read while they
wait. MPI frees communicators collectively, but plans are dropped at any time: a duplicate is freed
when the next one is made and all ranks have dropped it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import math
import os
import sys
import time
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from mpi4py import MPI

from slipstream.engine.collective import (
    Description,
    RankFailed,
    WaitedTooLong,
    abandoned,
    described,
    failure_of,
    failure_text,
    longer_pause,
    on_all_ranks,
    timeout,
)
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import renew_in_child
from slipstream.engine.stop_signals import signals_held

# Most meetings take less than _BRISK seconds, in which ranks do not sleep.
_BRISK = 1e-3
_PAUSE = 5e-5
# Messages of up to this many bytes are padded, and gathered without waiting inside MPI.
_PADDED = 1 << 12
# More live duplicates are suspicious: reference cycles may keep some of them.
_MANY = 64
# The longest notice, in bytes and in letters: MPI sends it without waiting for its receiver.
_LONGEST_NOTICE = 1 << 12
_MOST_LETTERS = 900
# The number of a family's own communicator; its duplicates count from 0.
_CONTROL = -1


def _wait(
    done: Callable[[], bool],
    patience: float = 1.0,
    look: Callable[[], None] = lambda: None,
    is_interruptible: bool = True,
) -> None:
    """Wait for at most ``SLIPSTREAM_TIMEOUT`` times the patience; `look` may raise."""
    began = time.perf_counter()
    while not done():
        waited = time.perf_counter() - began
        if waited < _BRISK:
            os.sched_yield()
            continue
        if waited > timeout() * patience:
            raise WaitedTooLong("a rank", timeout())
        look()
        if is_interruptible:
            signals_held.check()
        time.sleep(max(_PAUSE, longer_pause(waited)))


class Notice(NamedTuple):
    """A message to all other ranks that this one has failed.

    It concerns a duplicate, or one `topic` of it if that is not 0: a transport. A failure is
    permanent, or belongs to one collective `call`, or ends with the next `meeting`.
    """

    number: int
    topic: int
    rank: int
    text: str
    call: int | None = None
    meeting: int | None = None

    @property
    def is_permanent(self) -> bool:
        return self.call is self.meeting is None


class Door:
    """Counts the collective calls of a duplicate that a rank has begun, and meetings among them.

    By these counts a rank reports its failure to ranks that do not wait for it, even when the
    duplicate is gone. Calls without a meeting are counted by the caller.
    """

    def __init__(self, family: _Family, number: int) -> None:
        self._family, self.number, self.begun, self.met = family, number, 0, 0
        # The call that this rank has refused, until it knows what the other ranks did.
        self._refused: int | None = None

    def notify_ranks(self, failure: BaseException, topic: int = 0, **when: int) -> str:
        """Notify the other ranks of a failure, permanent unless `when` limits it."""
        text, rank = failure_text(failure)[:_MOST_LETTERS], self._family.control.rank
        if not isinstance(failure, RankFailed):
            text = f"{text} (on rank {rank})"
        self._family.send_notice(Notice(self.number, topic, rank, text, **when))
        return text

    def refuse_call(self, failure: BaseException) -> None:
        """Notify ranks that are in the present call, or will be, that this one has refused it."""
        self.notify_ranks(failure, call=self.begun)
        self._refused = self.begun

    def settle_refusal(self, look: Callable[[], None] = lambda: None) -> None:
        """Wait until all ranks have refused the call that this one has refused, if any.

        A rank that has not refused it waits for this one, and fails: `RankFailed` is raised here.
        If this rank continued instead, its next call would answer the other rank's wait.
        """
        if self._refused is None:
            return
        call = self._refused

        def all_have_refused() -> bool:
            notices = self._family.read_notices(self)
            for notice in notices:
                if notice.is_permanent:
                    raise RankFailed(notice.text)
            refusing = {notice.rank for notice in notices if notice.call == call}
            return len(refusing) == self._family.control.size - 1

        _wait(all_have_refused, look=look)
        self._refused = None

    def concerns(self, notice: Notice, topic: int, meets: bool) -> bool:
        """Return whether a notice ends the wait of this rank, perhaps in a meeting."""
        if notice.topic not in (0, topic):
            return False
        if notice.meeting is not None:
            return notice.meeting == self.met and not meets
        return notice.call in (None, self.begun)

    def is_over(self, notice: Notice) -> bool:
        """Return whether a notice is about an earlier call or meeting."""
        past_call = notice.call is not None and notice.call < self.begun
        return past_call or (notice.meeting is not None and notice.meeting < self.met)


class OwnCommunicator(MPI.Intracomm):
    """A communicator whose collective calls begin with a meeting; made by `own`."""

    # The method that the user has called, if it has a name: ranks that meet must be in the same.
    call = ""
    # The communicator that this one is a part of: it lives as long.
    owner: OwnCommunicator | None = None
    door: Door
    _family: _Family
    # The communicators that are freed together with it, itself first.
    _handles: list[MPI.Intracomm]
    # Why ranks cannot do anything together any more.
    _given_up = ""
    # The number of topics of notices in addition to 0.
    _topics = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnCommunicator:
        return self  # copies of a result are on the same ranks

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InputError(
            f"pickle: this is on {self.size} ranks; accepted: what is on one rank, or the arrays"
            " and numbers in it"
        )

    def new_topic(self) -> int:
        """Return the number of something that can fail alone. Collective."""
        self._topics += 1
        return self._topics

    def check(self) -> None:
        """Raise `RunError` if ranks cannot do anything together any more."""
        if self._given_up:
            raise RunError(self._given_up)

    @signals_held
    def notify_ranks(self, failure: BaseException, topic: int = 0) -> None:
        """End all that ranks do together, or one topic; they learn of it while they wait."""
        text = self.door.notify_ranks(failure, topic)
        if topic == 0:
            self._given_up = self._given_up or f"{text}; make it again"

    def look(self, topic: int = 0, meets: bool = False) -> None:
        """Raise `RankFailed` if another rank, for which this one waits, has sent a notice."""
        for notice in self._family.read_notices(self.door):
            if self.door.concerns(notice, topic, meets):
                if notice.is_permanent and notice.topic == 0:
                    self._given_up = self._given_up or f"{notice.text}; make it again"
                raise RankFailed(notice.text)

    def meet(self) -> None:
        """Wait for all ranks. Collective.

        Raises the failure that a rank brings; `RunError` if one does not come in time.
        """
        self._meet()

    def meet_before_blocking(self) -> None:
        """Meet before a call that waits inside MPI, where no notice reaches a rank. Collective."""
        self.meet()
        self.confirm()

    def confirm(self) -> None:
        """Wait until all ranks are through a meeting that this one has left. Collective.

        A rank may leave a meeting in which another one still waits, and fails there. That one does
        not come here; and none that is here is interrupted.
        """
        self._wait_for(self.Ibarrier(), None, is_interruptible=False)

    def greatest(self, value: float) -> float:
        """Return the largest value of any rank, not-a-number if it is one anywhere. Collective."""
        return self._meet(value=value)[0]

    def allgather(self, sendobj: Any) -> list[Any]:
        return self._meet(sendobj)[1]

    @signals_held
    def fail(self, failure: BaseException) -> None:
        """Make the other ranks raise this one's failure at their next meeting. Collective.

        Ranks that wait for this one in an exchange get a notice.
        """
        with contextlib.suppress(RunError):  # the other ranks have died, or have failed too
            self.door.notify_ranks(failure, meeting=self.door.met)
            self._meet(failure=described(failure))

    def _meet(
        self,
        message: Any = None,
        failure: Description | None = None,
        value: float = -math.inf,
    ) -> tuple[float, list[Any]]:
        """Return the largest value, and the message of every rank. Collective.

        Messages are gathered only if there are any: of thousands of ranks they take memory.
        """
        with signals_held:
            return self._exchange_packets(message, failure, value)

    def _exchange_packets(
        self, message: Any, failure: Description | None, value: float
    ) -> tuple[float, list[Any]]:
        self.check()
        self.door.begun += 1
        packet = MPI.pickle.dumps((failure, self.call, message))
        speaks, call = message is not None or failure is not None, zlib.crc32(self.call.encode())
        # MPI's maximum might lose a not-a-number, which compares with nothing.
        value, is_odd = (-math.inf, True) if math.isnan(value) else (value, False)
        sent = np.array([speaks, len(packet), call, -call, is_odd, value], np.float64)
        most = np.empty_like(sent)
        self._wait_for(self.Iallreduce(sent, most, MPI.MAX), failure, sent, most)
        packets = []
        if most[0] or most[2] != -most[3]:
            packets = self._gather_packets(packet, int(most[1]), failure)
        self.door.met += 1
        greatest = math.nan if most[4] else float(most[5])
        if not packets:
            return greatest, [None] * self.size
        failures, calls, messages = zip(*map(MPI.pickle.loads, packets), strict=True)
        if any(failures):
            rank = next(rank for rank, described in enumerate(failures) if described)
            if failure is None:
                raise failure_of(failures[rank], rank)
        elif len(set(calls)) > 1:
            rank = next(rank for rank, call in enumerate(calls) if call != calls[0])
            first, other = (calls[number] or "something else" for number in (0, rank))
            raise on_all_ranks(
                InputError(
                    f"rank 0 calls {first}, rank {rank} calls {other}: all ranks have to make"
                    " collective calls in the same order"
                )
            )
        return greatest, list(messages)

    def _gather_packets(self, packet: bytes, longest: int, failure: Any) -> list[Any]:
        if longest > _PADDED:
            self.confirm()
            return MPI.Intracomm.allgather(self, packet)
        padded = np.zeros(longest, np.uint8)
        padded[: len(packet)] = np.frombuffer(packet, np.uint8)
        packets = np.empty((self.size, longest), np.uint8)
        self._wait_for(self.Iallgather(padded, packets), failure, padded, packets)
        return list(packets)

    def _wait_for(
        self,
        request: MPI.Request,
        failure: Any,
        *arrays: np.ndarray,
        is_interruptible: bool = True,
    ) -> None:
        """Wait for a request of all ranks, which MPI carries out in these arrays."""
        try:
            # A rank that has failed waits longer: the others have to give up first.
            look = functools.partial(self.look, meets=True)
            patience = 1.0 if failure is None else 1.5
            _wait(request.Test, patience, look, is_interruptible)
        except BaseException as error:
            abandoned.append((request, *arrays))
            if not self._given_up:
                self.notify_ranks(error)
                self._given_up = "ranks have lost each other here before; make the plan again"
            raise

    @signals_held
    def duplicate(self) -> MPI.Intracomm:
        """Return a plain duplicate for messages, freed together with this. Collective."""
        self.meet_before_blocking()
        return self._kept(MPI.Intracomm.Dup(self))

    @signals_held
    def part(self, number: int) -> MPI.Intracomm:
        """Return a plain communicator of the ranks with the same number. Collective.

        It is freed together with this.
        """
        self.meet_before_blocking()
        return self._kept(MPI.Intracomm(MPI.Intracomm.Split(self, number)))

    def divided(self, number: int) -> OwnCommunicator:
        """Return a communicator for one owner of the ranks with the same number. Collective.

        It is freed some time after this.
        """
        part = lend(MPI.Intracomm(self.part(number)), f"part of {self.size} ranks")
        part.owner = self
        return part

    def _kept(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        self._handles.append(MPI.Intracomm(comm))
        return _Duplicate(comm, self)

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return an object that all duplicates of a communicator share, made if need be.

        Collective if `make` is. When the user's communicator is freed, it is asked to `close`.
        """
        if key not in self._family.shared:
            self._family.shared[key] = make()
        return self._family.shared[key]

    Barrier = barrier = meet


class _Duplicate(MPI.Intracomm):
    """A plain communicator that keeps another alive, to be freed with it."""

    owner: OwnCommunicator

    def __new__(cls, comm: MPI.Intracomm, owner: OwnCommunicator) -> _Duplicate:
        duplicate = super().__new__(cls, comm)
        duplicate.owner = owner
        return duplicate


def _after_meeting(name: str) -> Callable[..., Any]:
    call = getattr(MPI.Intracomm, name)

    @functools.wraps(call)
    def meet_and_call(self: OwnCommunicator, *arguments: Any, **options: Any) -> Any:
        with signals_held:  # the other ranks wait in MPI
            self.meet_before_blocking()
            return call(self, *arguments, **options)

    return meet_and_call


for _name in (
    *("bcast", "gather", "alltoall", "allreduce"),
    *("Allgatherv", "Allreduce", "Alltoallw", "Split_type"),
):
    setattr(OwnCommunicator, _name, _after_meeting(_name))


class _Family:
    """The duplicates of a communicator, which refers to it by an attribute of MPI."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        _wait(comm.Ibarrier().Test)
        self.control = OwnCommunicator(comm.Dup())
        self.made = 0
        self.lent: dict[int, list[MPI.Intracomm]] = {}
        # This rank's duplicates that nothing uses any more, and those in use, by number.
        self.dropped: set[int] = set()
        self._used: weakref.WeakValueDictionary[int, OwnCommunicator] = (
            weakref.WeakValueDictionary()
        )
        self.shared: dict[Any, Any] = {}
        self._enter(self.control, _CONTROL)
        # Notices may be read late, or never, and nothing else waits for them.
        self._channel, self._is_closed = comm.Dup(), False
        self._sent: list[tuple[MPI.Request, bytes]] = []
        self._notices: dict[int, list[Notice]] = {}
        _families.add(self)
        renew_in_child(self)

    def _enter(self, comm: OwnCommunicator, number: int) -> None:
        comm._family, comm.door = self, Door(self, number)
        self._used[number] = comm

    def send_notice(self, notice: Notice) -> None:
        """Send a notice to all other ranks."""
        if self._is_closed:
            return
        self.read_notices(self.control.door)  # so that unread ones do not pile up
        packet = MPI.pickle.dumps(notice)
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        for peer in range(self._channel.size):
            if peer != notice.rank:
                self._sent.append((self._channel.Isend(packet, peer), packet))

    def read_notices(self, door: Door) -> list[Notice]:
        """Return the notices of other ranks about a duplicate that still apply."""
        while (message := self._channel.Improbe()) is not None:
            packet = bytearray(_LONGEST_NOTICE)
            message.Recv(packet)
            notice = MPI.pickle.loads(packet)
            if notice.number in self._used:
                self._notices.setdefault(notice.number, []).append(notice)
        if door.number not in self._notices:
            return []
        self._notices[door.number] = [
            notice for notice in self._notices[door.number] if not door.is_over(notice)
        ]
        return self._notices[door.number]

    def notify_ranks(self, failure: BaseException) -> None:
        """Notify the other ranks that this process ends by a failure, whatever they wait for."""
        for comm in list(self._used.values()):
            comm.notify_ranks(failure)

    def renew(self) -> None:
        """Separate a forked process from the ranks of its parent."""
        self._is_closed = True
        for comm in list(self._used.values()):
            comm._given_up = (
                "this process was forked from a rank of MPI and is not one itself; make again, "
                "with comm=None, the objects that it uses"
            )

    def close(self) -> None:
        """Free the communicators of the family, as the user's communicator ends. Collective."""
        for shared in self.shared.values():
            shared.close(self.control)
        self.free_dropped(self.control.allgather(self.dropped.copy()))
        self._is_closed = True
        _families.discard(self)
        self.control.Free()
        self._channel.Free()

    def lend(self, owner: str) -> OwnCommunicator:
        """Return a new duplicate; free duplicates that no rank uses any more. Collective."""
        if len(self.lent) % _MANY == _MANY - 1:
            gc.collect()
        owners, dropped = zip(*self.control.allgather((owner, self.dropped.copy())), strict=True)
        for rank, other in enumerate(owners):
            if other != owners[0]:
                text = f"rank 0 makes a {owners[0]}, rank {rank} a {other}: ranks disagree"
                raise on_all_ranks(InputError(text))
        self.control.confirm()
        self.free_dropped(dropped)
        number, self.made = self.made, self.made + 1
        comm = OwnCommunicator(MPI.Intracomm.Dup(self.control))
        self._enter(comm, number)
        self.lent[number] = comm._handles = [MPI.Intracomm(comm)]
        weakref.finalize(comm, self.dropped.add, number).atexit = False
        return comm

    def free_dropped(self, dropped: Sequence[set[int]]) -> None:
        """Free the duplicates that all ranks have dropped. Collective."""
        for number in sorted(set.intersection(*dropped)):
            self.dropped.discard(number)
            self._notices.pop(number, None)
            for handle in self.lent.pop(number):
                handle.Free()


_families: weakref.WeakSet[_Family] = weakref.WeakSet()


@atexit.register
def _notify_at_exit() -> None:
    """Free other ranks from waiting for a process that an exception ends; Python has shown it."""
    failure = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if failure is None or MPI.Is_finalized():
        return
    for family in list(_families):
        with contextlib.suppress(MPI.Exception):
            family.notify_ranks(failure)


@signals_held
def lend(comm: MPI.Intracomm, owner: str) -> OwnCommunicator:
    """Return a duplicate of a communicator for one owner; see `collective.own`."""
    family = cast(_Family | None, comm.Get_attr(_make_attribute_key()))
    if family is None:
        family = _Family(comm)
        comm.Set_attr(_make_attribute_key(), family)
    return family.lend(owner)


@functools.cache
def _make_attribute_key() -> int:
    def close_family(comm: MPI.Comm, key: int, family: _Family) -> None:
        # The user frees a communicator; predefined ones end with MPI itself.
        if not MPI.Is_finalized() and comm not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            family.close()

    return MPI.Comm.Create_keyval(delete_fn=close_family)
