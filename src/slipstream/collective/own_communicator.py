"""Communicators of which each belongs to one plan, simulation or transport.

What two plans send can then never be taken for each other's, whatever the order in which ranks
call them, and no rank waits for ever: collective calls begin with a *meeting*, in which ranks learn
whether all are there, and whether one of them has failed. `own` makes such a duplicate of a user's
communicator. MPI frees communicators collectively, but plans are dropped whenever nobody uses them
any more: a duplicate is freed when the next one is made and all ranks have dropped it.
"""

from __future__ import annotations

import functools
import gc
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from slipstream.collective import described, failure_of, on_all_ranks
from slipstream.collective.time_limit import WaitedTooLong, abandoned, longer_pause, timeout
from slipstream.errors import InputError, RunError

# Bytes that every rank brings to a meeting: how many it has to say, and those if they are few.
_SLOT, _HEADER = 128, 8
# Most meetings are over within so many seconds, in which ranks do not sleep.
_BRISK, _PAUSE = 1e-3, 5e-5
# So many live duplicates are suspicious: reference cycles might keep some of them.
_MANY = 64


def _wait(done: Callable[[], bool], patience: float = 1.0) -> None:
    """Wait until something is done, for ``SLIPSTREAM_TIMEOUT`` times the patience at most."""
    began = time.perf_counter()
    while not done():
        waited = time.perf_counter() - began
        if waited < _BRISK:
            os.sched_yield()
            continue
        if waited > timeout() * patience:
            raise WaitedTooLong("a rank", timeout())
        time.sleep(max(_PAUSE, longer_pause(waited)))


class OwnCommunicator(MPI.Intracomm):
    """A communicator whose collective calls begin with a meeting.

    Python's own are given back when this object is dropped: use `own`.
    """

    # Whether ranks have waited in vain: then they are at different points for good.
    _given_up = False
    # Everything that is freed together with it, itself first.
    _handles: list[MPI.Intracomm]
    # What the communicator that this is a duplicate of has, see `shared`.
    _family: _Family

    def meet(self, said: bytes = b"", failed: bool = False) -> list[bytes]:
        """Wait for all ranks, and return what each of them says. Collective.

        Raises what a rank has `failed` by, unless it is this one; `RunError` if one does not come
        within ``SLIPSTREAM_TIMEOUT``.
        """
        if self._given_up:
            raise RunError("ranks have lost each other here before; make the plan anew")
        mine, everyone = np.zeros(_SLOT, np.uint8), np.empty((self.size, _SLOT), np.uint8)
        mine[:_HEADER].view(np.int64)[0] = 2 * len(said) + failed
        if len(said) <= _SLOT - _HEADER:
            mine[_HEADER : _HEADER + len(said)] = np.frombuffer(said, np.uint8)
        request = self.Iallgather(mine, everyone)
        try:
            # Who waits for others that have to give up first, each by itself, waits longer.
            _wait(request.Test, patience=1.5 if failed else 1.0)
        except WaitedTooLong:
            self._given_up = True
            abandoned.append((request, mine, everyone))
            raise
        headers = everyone[:, :_HEADER].copy().view(np.int64)[:, 0]
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
        return heard

    def fail(self, failure: BaseException) -> None:
        """Let the other ranks fail by this one's failure, wherever they meet next. Collective."""
        try:
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

    def _kept(self, made: MPI.Intracomm) -> MPI.Intracomm:
        self._handles.append(MPI.Intracomm(made))
        return _Duplicate(made, self)

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what all duplicates of a communicator share by a name, made if need be.

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
        # What is short travels in the meeting, to all; of what is long, each gets its own.
        heard = self.meet(said if len(said) <= _SLOT - _HEADER else b"")
        if all(heard):
            return [MPI.pickle.loads(one)[self.rank] for one in heard]
        return super().alltoall(sendobj)

    def Barrier(self) -> None:
        self.meet()

    barrier = Barrier


class _Duplicate(MPI.Intracomm):
    """A plain communicator that keeps the one with which it will be freed."""

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
        # Of this rank's duplicates, those that nothing uses any more.
        self.dropped: set[int] = set()
        self.shared: dict[Any, Any] = {}

    def lend(self, what: str) -> OwnCommunicator:
        """Return a new duplicate; free those that no rank uses any more. Collective."""
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
        made._family = self
        self.lent[number] = made._handles = [MPI.Intracomm(made)]
        weakref.finalize(made, self.dropped.add, number).atexit = False
        return made

    def free(self, numbers: set[int]) -> None:
        """Free duplicates that no rank uses any more. Collective."""
        for number in sorted(numbers):
            self.dropped.discard(number)
            for handle in self.lent.pop(number):
                handle.Free()


def lend(comm: MPI.Intracomm, what: str) -> OwnCommunicator:
    """Return a duplicate of a communicator for one owner; see `slipstream.collective.own`."""
    family: Any = comm.Get_attr(_key())
    if family is None:
        family = _Family(comm)
        comm.Set_attr(_key(), family)
    return family.lend(what)


@functools.cache
def _key() -> int:
    """Return the key under which communicators remember their duplicates."""

    def forget(comm: MPI.Comm, key: int, family: _Family) -> None:
        # The user frees a communicator; those that are always there end with MPI itself.
        if MPI.Is_finalized() or comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
            return
        for shared in family.shared.values():
            shared.close(family.control)
        everyone = family.control.allgather(family.dropped.copy())
        family.free(set.intersection(*everyone))
        family.control.Free()

    return MPI.Comm.Create_keyval(delete_fn=forget)
