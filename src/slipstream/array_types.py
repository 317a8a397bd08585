"""Names for types that optional libraries define, so that signatures tell what is meant."""

from typing import Any, TypeAlias

# numpy.ndarray or cupy.ndarray.
Array: TypeAlias = Any
# mpi4py.MPI.Comm.
Communicator: TypeAlias = Any
# None for a single process without MPI.
Comm: TypeAlias = Any
