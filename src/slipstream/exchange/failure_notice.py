"""What a rank on which a step has failed tells the others: a message, beside all exchanges."""

from __future__ import annotations

import time

from slipstream.array_types import Comm
from slipstream.collective import described
from slipstream.collective.time_limit import abandoned
from slipstream.errors import RunError

# The standard guarantees tags up to 32767 only; exchanges take those below.
TAG = 32001
# For so many seconds a message may be on its way whose sender is known to have sent it.
_ON_ITS_WAY = 1.0
_PAUSE = 1e-4


class FailureNotice:
    """Whether a step has failed on any rank, and by what."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._text = ""

    def tell(self, failure: BaseException) -> None:
        """Tell all other ranks, unless one of them has told this one before."""
        if self._text:
            return
        self._text = described(failure)[1]
        said = self._text.encode()
        others = (peer for peer in range(self._comm.size) if peer != self._comm.rank)
        kept = [self._comm.Isend(said, peer, TAG) for peer in others]
        # The communicator must not be freed, as messages may be on their way in it for ever.
        abandoned.append((self._comm, said, kept))

    def check(self) -> None:
        """Raise RunError if a failure is known of."""
        if self._text:
            raise RunError(f"an exchange was given up; make the plan anew: {self._text}")

    def look(self) -> None:
        """Raise RunError if a step has failed on any rank whose message is here."""
        if not self._text and self._comm.Iprobe(tag=TAG):
            self._receive()
        self.check()

    def expect(self) -> None:
        """Raise RunError, as another rank is known to have told why."""
        until = time.perf_counter() + _ON_ITS_WAY
        while time.perf_counter() < until:
            self.look()
            time.sleep(_PAUSE)
        self._text = "a step has failed on another rank"
        self.check()

    def _receive(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        self._comm.Probe(tag=TAG, status=status)
        said = bytearray(status.count)
        self._comm.Recv(said, status.source, TAG)
        self._text = f"{said.decode()} (on rank {status.source})"
        abandoned.append(self._comm)
