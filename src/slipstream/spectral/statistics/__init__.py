"""Statistics of a state, by the names of their kinds."""

from collections.abc import Callable, Iterator

from slipstream.array_types import Comm
from slipstream.field import Field
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.statistics.anisotropic_spectrum import anisotropic
from slipstream.spectral.statistics.energy_transfer import transfer
from slipstream.spectral.statistics.probability_density import pdf
from slipstream.spectral.statistics.structure_functions import structure

# By the name in `slipstream.accepted`: functions of the step, its fields and the ranks, which yield
# small fields.
STATISTICS: dict[str, Callable[[SpectralStep, list[FieldParts], Comm], Iterator[Field]]] = {
    "transfer": transfer,
    "anisotropic": anisotropic,
    "structure": structure,
    "pdf": pdf,
}
