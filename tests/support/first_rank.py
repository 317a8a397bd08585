"""References made by one rank for all; the other ranks wait without computing."""

import time

from slipstream.engine.collective import own, together

# A communicator of the ranks that run the tests, made when it is first needed.
_of_all = []
# To look more often, as exchanges do, would take a good part of a core.
_PAUSE = 2e-3


def wait_for_all(comm):
    """Wait asleep until all ranks are here: MPI would take a core for as long as it lasts."""
    all_here = comm.Ibarrier()
    while not all_here.Test():
        time.sleep(_PAUSE)


def on_first_rank(comm, make):
    """Return on all ranks what `make` returns on the first one, which the others wait for asleep.

    It is sent, so it is made of arrays and numbers: no simulation.
    """
    if comm is None:
        return make()
    if not _of_all:
        _of_all.append(own(comm, "first rank"))
    with together(_of_all[0]):
        try:
            made = make() if comm.rank == 0 else None
        finally:
            wait_for_all(comm)
    return comm.bcast(made, root=0)
