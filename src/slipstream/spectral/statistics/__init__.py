"""Statistics of a state, by the names of the files that they go to."""

from slipstream.spectral.statistics.mode_statistics import anisotropic, transfer
from slipstream.spectral.statistics.point_statistics import pdf, structure

# Each is called with the step, the parts of its state and the ranks, and yields small fields.
STATISTICS = {
    "transfer": transfer,
    "anisotropic": anisotropic,
    "structure": structure,
    "pdf": pdf,
}
