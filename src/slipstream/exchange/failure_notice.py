"""Whether a step has failed on any rank: the others hear of it beside all exchanges."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slipstream.collective import RankFailed, described
from slipstream.errors import RunError

if TYPE_CHECKING:
    from slipstream.collective.own_communicator import OwnCommunicator

# For so many seconds a message may be on its way whose sender is known to have sent it.
_ON_ITS_WAY = 1.0
_PAUSE = 1e-4


class FailureNotice:
    """What the ranks of a transport tell each other. Collective."""

    def __init__(self, comm: OwnCommunicator) -> None:
        self._comm, self._topic = comm, comm.new_topic()
        self._text = ""

    def tell(self, failure: BaseException) -> None:
        """Tell all other ranks, unless one of them has told this one before."""
        if not self._text:
            self._text = described(failure)[1]
            self._comm.tell(failure, self._topic)

    def check(self) -> None:
        """Raise RunError if a failure is known of."""
        if self._text:
            raise RunError(f"an exchange was given up; make the plan anew: {self._text}")

    def look(self) -> None:
        """Raise RunError if a rank whose message is here has failed, in a step or at its door."""
        if self._text:
            self.check()
        self._comm.look(self._topic)

    def expect(self) -> None:
        """Raise RunError, as another rank is known to have told why."""
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
