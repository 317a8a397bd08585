"""Communicators, each of which belongs to one plan, simulation or transport.

What two plans send can then never be taken for each other's, whatever the order in which ranks
call them, and no rank waits for ever: collective calls begin with a *meeting*, in which ranks learn
whether all are there, and whether one of them has failed. `own` makes such a duplicate of a user's
communicator. MPI frees communicators collectively, but plans are dropped whenever nobody uses them
any more: a duplicate is freed when the next one is made and all ranks have dropped it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
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
    RankFailed,
    WaitedTooLong,
    abandoned,
    described,
    failure_of,
    longer_pause,
    on_all_ranks,
    timeout,
)
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import renew_in_child

# Bytes that every rank brings to a meeting: how many it has to say, and those if they are few.
_SLOT, _NAME = 168, 40
# Before that stand its length, and the call in which the rank is.
_HEADER = 8 + _NAME
# More ranks reduce what they bring before they gather it, since a gather takes memory and messages
# for each of them; and how many numbers they bring at most.
_GATHERED, _NUMBERS = 64, 4
# Most meetings are over within so many seconds, in which ranks do not sleep.
_BRISK, _PAUSE = 1e-3, 5e-5
# So many live duplicates are suspicious: reference cycles might keep some of them.
_MANY = 64
# The longest notice, in bytes and in letters: short enough for MPI to send it without waiting.
_LONGEST_NOTICE, _MOST_LETTERS = 1 << 12, 900
# What a family calls its own communicator, where it numbers its duplicates.
_CONTROL = -1


def _wait(
    done: Callable[[], bool], patience: float = 1.0, look: Callable[[], None] = lambda: None
) -> None:
    """Wait until something is done, for ``SLIPSTREAM_TIMEOUT`` times the patience at most.

    A `look` now and then may raise what ends the wait.
    """
    began = time.perf_counter()
    while not done():
        waited = time.perf_counter() - began
        if waited < _BRISK:
            os.sched_yield()
            continue
        if waited > timeout() * patience:
            raise WaitedTooLong("a rank", timeout())
        look()
        time.sleep(max(_PAUSE, longer_pause(waited)))


class Notice(NamedTuple):
    """A rank's message to all others, unasked, that it has failed.

    `number` is that of a duplicate, `topic` what of it is concerned: 0 is all, others are
    transports. A failure is for good, or that of a collective `call`, or ends with the next
    `meeting`, where ranks hear of it if they get there.
    """

    number: int
    topic: int
    rank: int
    text: str
    call: int | None = None
    meeting: int | None = None


class Door:
    """Where a rank is among the collective calls of a duplicate.

    Of these it has `begun` some, and of the meetings among them it has `met` some. Calls without a
    meeting are counted by the caller. With these counts the rank can report its failure to ranks
    that do not wait for it, even when the duplicate is gone.
    """

    def __init__(self, family: _Family, number: int) -> None:
        self._family, self.number, self.begun, self.met = family, number, 0, 0
        # The call that this rank has refused, until it knows what the others made of it.
        self._refused: int | None = None

    def tell(self, failure: BaseException, topic: int = 0, **when: int) -> str:
        """Tell the others of a failure, for good unless a notice says when; return its text."""
        text, rank = described(failure)[1][:_MOST_LETTERS], self._family.control.rank
        if not isinstance(failure, RankFailed):
            text = f"{text} (on rank {rank})"
        self._family.tell(Notice(self.number, topic, rank, text, **when))
        return text

    def refuse(self, failure: BaseException) -> None:
        """Tell ranks that are in the present call, or will be, that this rank has refused it."""
        self.tell(failure, call=self.begun)
        self._refused = self.begun

    def settle(self, look: Callable[[], None] = lambda: None) -> None:
        """Wait until all other ranks have refused the call that this one has refused, if any.

        A rank that has not refused it waits for this one, and fails: `RankFailed` is raised. If
        this rank continued instead, its next call would answer the other's wait. A `look` now and
        then may raise what ends the wait.
        """
        if self._refused is None:
            return
        call, others = self._refused, self._family.control.size - 1

        def all_have_refused() -> bool:
            refused = set()
            for notice in self._family.heard(self):
                if notice.call is notice.meeting is None:
                    raise RankFailed(notice.text)
                if notice.call == call:
                    refused.add(notice.rank)
            return len(refused) == others

        _wait(all_have_refused, look=look)
        self._refused = None

    def concerns(self, notice: Notice, topic: int, meets: bool) -> bool:
        """Return whether a notice ends the wait of a rank, perhaps in a meeting."""
        if notice.topic not in (0, topic):
            return False
        if notice.meeting is not None:
            return notice.meeting == self.met and not meets
        return notice.call in (None, self.begun)

    def is_behind(self, notice: Notice) -> bool:
        """Return whether a notice is about a call or a meeting that is over."""
        past_call = notice.call is not None and notice.call < self.begun
        return past_call or (notice.meeting is not None and notice.meeting < self.met)


def _called(text: np.ndarray) -> str:
    return text.tobytes().rstrip(b"\0").decode(errors="replace") or "something else"


class OwnCommunicator(MPI.Intracomm):
    """A communicator whose collective calls begin with a meeting.

    Python's own are given back when this object is dropped: use `own`.
    """

    # What the user has called, where that has a name: ranks that meet have to be in the same.
    call = ""

    # What `greatest` finds if there are many ranks.
    _greatest: np.ndarray
    # Why ranks cannot do anything together any more, such as that they are at different points.
    _given_up = ""
    # How many topics of notices there are besides 0.
    _topics = 0
    # Everything that is freed together with it, itself first.
    _handles: list[MPI.Intracomm]
    # The communicator that this one is a part of: it lives as long.
    owner: OwnCommunicator | None = None
    # What the communicator that this is a duplicate of has, see `shared`.
    _family: _Family
    # Where this rank is among the collective calls.
    door: Door

    def new_topic(self) -> int:
        """Return the number of something that can fail for itself. Collective."""
        self._topics += 1
        return self._topics

    def check(self) -> None:
        """Raise `RunError` if ranks cannot do anything together any more."""
        if self._given_up:
            raise RunError(self._given_up)

    def tell(self, failure: BaseException, topic: int = 0) -> None:
        """Tell the other ranks, who do not wait, that all that they do together, or a topic, ends.

        They hear it when they look.
        """
        text = self.door.tell(failure, topic)
        if topic == 0:
            self._given_up = self._given_up or f"{text}; make it again"

    def look(self, topic: int = 0, meets: bool = False) -> None:
        """Raise `RankFailed` if another rank has told that it failed, and this one waits for it."""
        for notice in self._family.heard(self.door):
            if self.door.concerns(notice, topic, meets):
                if notice.call is notice.meeting is None and notice.topic == 0:
                    self._given_up = self._given_up or f"{notice.text}; make it again"
                raise RankFailed(notice.text)

    def meet(
        self, said: bytes = b"", failed: bool = False, numbers: np.ndarray | None = None
    ) -> list[bytes]:
        """Wait for all ranks, and return what each of them says. Collective.

        Raises what a rank has `failed` by, unless it is this one; `RunError` if one does not come
        within ``SLIPSTREAM_TIMEOUT``. Many ranks reduce first: most meetings carry nothing more, or
        `numbers` for which `greatest` needs the maximum.
        """
        self.check()
        self.door.begun += 1
        if self.size > _GATHERED and not self._reduce(said, failed, numbers):
            self.door.met += 1
            return [b""] * self.size
        mine, everyone = np.zeros(_SLOT, np.uint8), np.empty((self.size, _SLOT), np.uint8)
        mine[:8].view(np.int64)[0] = 2 * len(said) + failed
        name = self.call.encode()[:_NAME]
        mine[8 : 8 + len(name)] = np.frombuffer(name, np.uint8)
        if len(said) <= _SLOT - _HEADER:
            mine[_HEADER : _HEADER + len(said)] = np.frombuffer(said, np.uint8)
        self._wait_for(self.Iallgather(mine, everyone), failed, mine, everyone)
        self.door.met += 1
        headers = everyone[:, :8].copy().view(np.int64)[:, 0]
        lengths, failures = headers // 2, headers % 2
        if lengths.max() <= _SLOT - _HEADER:
            slots = everyone[:, _HEADER:]
            heard = [slot[:n].tobytes() for slot, n in zip(slots, lengths, strict=True)]
        else:
            offsets = np.cumsum([0, *lengths])
            gathered = np.empty(offsets[-1], np.uint8)
            counts = lengths.tolist(), offsets[:-1].tolist()
            MPI.Intracomm.Allgatherv(
                self, np.frombuffer(said, np.uint8), [gathered, counts, MPI.BYTE]
            )
            heard = [part.tobytes() for part in np.split(gathered, offsets[1:-1])]
        if failures.any() and not failed:
            rank = int(failures.argmax())
            kind, text = MPI.pickle.loads(heard[rank])
            raise failure_of(kind, text, rank)
        others = (everyone[:, 8:_HEADER] != everyone[0, 8:_HEADER]).any(axis=1)
        if others.any() and not failures.any():
            rank = int(others.argmax())
            first, other = (_called(everyone[one, 8:_HEADER]) for one in (0, rank))
            raise on_all_ranks(
                InputError(
                    f"rank 0 calls {first}, rank {rank} calls {other}: all ranks have to make"
                    " collective calls in the same order"
                )
            )
        return heard

    def _wait_for(self, request: MPI.Request, failed: bool, *arrays: np.ndarray) -> None:
        """Wait for what all ranks have begun together, which MPI does in these arrays."""
        try:
            # Who waits for others that have to give up first, each by itself, waits longer.
            look = functools.partial(self.look, meets=True)
            _wait(request.Test, patience=1.5 if failed else 1.0, look=look)
        except (WaitedTooLong, RankFailed) as failure:
            abandoned.append((request, *arrays))
            if not self._given_up:
                self.tell(failure)
                self._given_up = "ranks have lost each other here before; make the plan again"
            raise

    def _reduce(self, said: bytes, failed: bool, numbers: np.ndarray | None) -> bool:
        """Return whether a rank has something to say, after a reduction. Collective."""
        mine, found = np.full(4 + 2 * _NUMBERS, -np.inf), np.empty(4 + 2 * _NUMBERS)
        name = zlib.crc32(self.call.encode()[:_NAME])
        mine[:4] = len(said), failed, name, -name
        if numbers is not None:
            # MPI's maximum might lose a not-a-number, which compares with nothing.
            are_numbers = ~np.isnan(numbers)
            mine[4 : 4 + len(numbers)] = np.where(are_numbers, numbers, -np.inf)
            mine[4 + _NUMBERS :][: len(numbers)] = np.where(are_numbers, 0.0, 1.0)
        self._wait_for(self.Iallreduce(mine, found, MPI.MAX), failed, mine, found)
        is_odd = found[4 + _NUMBERS :] > 0
        self._greatest = np.where(is_odd, np.nan, found[4 : 4 + _NUMBERS])
        return bool(found[:2].any() or found[2] != -found[3])

    def greatest(self, numbers: Sequence[float]) -> np.ndarray:
        """Return the largest of the numbers of all ranks, place by place. Collective.

        There are at most four. One that is not a number is the largest.
        """
        mine = np.array(numbers, np.float64)
        if len(mine) > _NUMBERS:
            raise ValueError(f"{len(mine)} numbers; accepted: at most {_NUMBERS}")
        if self.size > _GATHERED:
            self.meet(numbers=mine)
            return self._greatest[: len(mine)]
        heard = [np.frombuffer(one, np.float64) for one in self.meet(mine.tobytes())]
        found: np.ndarray = np.max(heard, axis=0)
        return found

    def fail(self, failure: BaseException) -> None:
        """Make the other ranks fail by this one's failure, wherever they meet next. Collective.

        Ranks that wait for it in an exchange get a notice.
        """
        try:
            self.door.tell(failure, meeting=self.door.met)
            self.meet(MPI.pickle.dumps(described(failure)), failed=True)
        except RunError:
            return  # the others have died, or have failed too

    def duplicate(self) -> MPI.Intracomm:
        """Return a plain duplicate for messages, freed together with this. Collective."""
        self.meet()
        return self._kept(MPI.Intracomm.Dup(self))

    def part(self, number: int) -> MPI.Intracomm:
        """Return a plain communicator of the ranks that give the same number. Collective.

        It is freed together with this.
        """
        self.meet()
        return self._kept(MPI.Intracomm(MPI.Intracomm.Split(self, number)))

    def divided(self, number: int) -> OwnCommunicator:
        """Return a communicator for one owner of the ranks that give the same number. Collective.

        It is freed some time after this.
        """
        made = lend(MPI.Intracomm(self.part(number)), f"part of {self.size} ranks")
        made.owner = self
        return made

    def _kept(self, made: MPI.Intracomm) -> MPI.Intracomm:
        self._handles.append(MPI.Intracomm(made))
        return _Duplicate(made, self)

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return an object that all duplicates of a communicator share, made if need be.

        Collective if `make` is. When the user's communicator is freed, it is asked to `close`.
        """
        if key not in self._family.shared:
            self._family.shared[key] = make()
        return self._family.shared[key]

    def allgather(self, sendobj: Any) -> list[Any]:
        return [MPI.pickle.loads(said) for said in self.meet(MPI.pickle.dumps(sendobj))]

    def bcast(self, obj: Any, root: int = 0) -> Any:
        said = MPI.pickle.dumps(obj) if self.rank == root else b""
        return MPI.pickle.loads(self.meet(said)[root])

    def alltoall(self, sendobj: Any) -> list[Any]:
        said = MPI.pickle.dumps(sendobj)
        # Short messages travel in the meeting, to all; of long ones each rank gets its own.
        heard = self.meet(said if len(said) <= _SLOT - _HEADER else b"")
        if all(heard):
            return [MPI.pickle.loads(one)[self.rank] for one in heard]
        return super().alltoall(sendobj)

    def Barrier(self) -> None:
        self.meet()

    barrier = Barrier


class _Duplicate(MPI.Intracomm):
    """A plain communicator that keeps another alive, to be freed with it."""

    owner: OwnCommunicator

    def __new__(cls, comm: MPI.Intracomm, owner: OwnCommunicator) -> _Duplicate:
        made = super().__new__(cls, comm)
        made.owner = owner
        return made


def _after_meeting(name: str) -> Callable[..., Any]:
    call = getattr(MPI.Intracomm, name)

    @functools.wraps(call)
    def meet_and_call(self: OwnCommunicator, *arguments: Any, **options: Any) -> Any:
        self.meet()
        return call(self, *arguments, **options)

    return meet_and_call


for _name in ("gather", "allreduce", "Allgatherv", "Allreduce", "Alltoallw", "Split_type"):
    setattr(OwnCommunicator, _name, _after_meeting(_name))


class _Family:
    """The duplicates of one communicator, known to it by an attribute of MPI's."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        _wait(comm.Ibarrier().Test)
        self.control = OwnCommunicator(comm.Dup())
        self.made = 0
        self.lent: dict[int, list[MPI.Intracomm]] = {}
        # This rank's duplicates that nothing uses any more.
        self.dropped: set[int] = set()
        self.shared: dict[Any, Any] = {}
        # Those that are used, by their numbers.
        self._used: weakref.WeakValueDictionary[int, OwnCommunicator] = (
            weakref.WeakValueDictionary()
        )
        self._name(self.control, _CONTROL)
        # Notices travel here: they may be read late, or never, and nothing else waits for them.
        self._channel, self._is_closed = comm.Dup(), False
        self._sent: list[tuple[MPI.Request, bytes]] = []
        self._heard: dict[int, list[Notice]] = {}
        _families.add(self)
        renew_in_child(self)

    def _name(self, comm: OwnCommunicator, number: int) -> None:
        comm._family, comm.door = self, Door(self, number)
        self._used[number] = comm

    def tell(self, notice: Notice) -> None:
        """Send a notice to all other ranks."""
        if self._is_closed:
            return
        self.heard(self.control.door)  # so that what nobody waits for does not pile up
        said = MPI.pickle.dumps(notice)
        self._sent = [one for one in self._sent if not one[0].Test()]
        for peer in range(self._channel.size):
            if peer != notice.rank:
                self._sent.append((self._channel.Isend(said, peer), said))

    def heard(self, door: Door) -> list[Notice]:
        """Return the notices of other ranks about a duplicate that still apply."""
        while (message := self._channel.Improbe()) is not None:
            said = bytearray(_LONGEST_NOTICE)
            message.Recv(said)
            notice = MPI.pickle.loads(said)
            if notice.number in self._used:
                self._heard.setdefault(notice.number, []).append(notice)
        if door.number not in self._heard:
            return []
        found = [one for one in self._heard[door.number] if not door.is_behind(one)]
        self._heard[door.number] = found
        return found

    def tell_of_the_end(self, failure: BaseException) -> None:
        """Tell the other ranks that this one ends by a failure, whatever they wait for."""
        for comm in list(self._used.values()):
            comm.tell(failure)

    def renew(self) -> None:
        """Separate a forked process from the ranks of its parent."""
        self._is_closed = True
        for comm in list(self._used.values()):
            comm._given_up = (
                "this process was forked from a rank of MPI and is not one itself; make again, "
                "with comm=None, the objects that it uses"
            )

    def close(self) -> None:
        """Free the communicators of the family itself, as the user's one ends."""
        self._is_closed = True
        _families.discard(self)
        self.control.Free()
        self._channel.Free()

    def lend(self, what: str) -> OwnCommunicator:
        """Return a new duplicate; free duplicates that no rank uses any more. Collective."""
        if len(self.lent) % _MANY == _MANY - 1:
            gc.collect()
        everyone = self.control.allgather((what, self.dropped.copy()))
        for rank, (other, _) in enumerate(everyone):
            if other != everyone[0][0]:
                text = f"rank 0 makes a {everyone[0][0]}, rank {rank} a {other}: ranks disagree"
                raise on_all_ranks(InputError(text))
        self.free(set.intersection(*(dropped for _, dropped in everyone)))
        number, self.made = self.made, self.made + 1
        made = OwnCommunicator(MPI.Intracomm.Dup(self.control))
        self._name(made, number)
        self.lent[number] = made._handles = [MPI.Intracomm(made)]
        weakref.finalize(made, self.dropped.add, number).atexit = False
        return made

    def free(self, numbers: set[int]) -> None:
        """Free duplicates that no rank uses any more. Collective."""
        for number in sorted(numbers):
            self.dropped.discard(number)
            self._heard.pop(number, None)
            for handle in self.lent.pop(number):
                handle.Free()


_families: weakref.WeakSet[_Family] = weakref.WeakSet()


@atexit.register
def _tell_of_the_end() -> None:
    """Free other ranks from waiting for a process that an exception ends; Python has shown it."""
    failure = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if failure is None or MPI.Is_finalized():
        return
    for family in list(_families):
        with contextlib.suppress(MPI.Exception):
            family.tell_of_the_end(failure)


def lend(comm: MPI.Intracomm, what: str) -> OwnCommunicator:
    """Return a duplicate of a communicator for one owner; see `collective.own`."""
    family = cast(_Family | None, comm.Get_attr(_key()))
    if family is None:
        family = _Family(comm)
        comm.Set_attr(_key(), family)
    return family.lend(what)


@functools.cache
def _key() -> int:
    """Return the key under which communicators remember their duplicates."""

    def forget(comm: MPI.Comm, key: int, family: _Family) -> None:
        # The user frees a communicator; predefined ones end with MPI itself.
        if MPI.Is_finalized() or comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
            return
        for shared in family.shared.values():
            shared.close(family.control)
        everyone = family.control.allgather(family.dropped.copy())
        family.free(set.intersection(*everyone))
        family.close()

    return MPI.Comm.Create_keyval(delete_fn=forget)
