"""Statistics of a state, by the names of the files that they go to."""

from collections.abc import Callable, Iterator

from slipstream.array_types import Comm
from slipstream.field import Field
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.statistics.anisotropic_spectrum import anisotropic
from slipstream.spectral.statistics.energy_transfer import transfer
from slipstream.spectral.statistics.probability_density import pdf
from slipstream.spectral.statistics.structure_functions import structure
from slipstream.spectral.time_step import SpectralStep

# Each is called with the step, the parts of its state and the ranks, and yields small fields.
STATISTICS: dict[str, Callable[[SpectralStep, list[FieldParts], Comm], Iterator[Field]]] = {
    "transfer": transfer,
    "anisotropic": anisotropic,
    "structure": structure,
    "pdf": pdf,
}
