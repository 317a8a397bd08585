"""What one rank makes for all: a reference, for which the others need not compute."""

from slipstream.collective import own, together

# A communicator of the ranks that run the tests, made when it is first needed.
_of_all = []


def on_first_rank(comm, make):
    """Return on all ranks what `make` returns on the first one, which the others wait for asleep.

    It is sent, so it is made of arrays and numbers: no simulation.
    """
    if comm is None:
        return make()
    if not _of_all:
        _of_all.append(own(comm, "first rank"))
    with together(_of_all[0]):
        made = make() if comm.rank == 0 else None
    return comm.bcast(made, root=0)
