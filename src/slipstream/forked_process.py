"""What a process that was forked makes anew, as threads do not come with it."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """What has threads, locks or other things of a process."""

    def renew(self) -> None:
        """Take the place of what the parent process had."""


_things: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(thing: Renewable) -> None:
    """Let a thing be renewed in processes that are forked while it is alive."""
    _things.add(thing)


def _renew() -> None:
    for thing in list(_things):
        thing.renew()


os.register_at_fork(after_in_child=_renew)
