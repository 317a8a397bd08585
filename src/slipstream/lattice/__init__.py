"""Flow through porous media: lattice Boltzmann methods on voxel images."""

from slipstream.lattice.domain_decomposition import Subdomain, decompose
from slipstream.lattice.permeability import Permeability, permeability
from slipstream.lattice.population_layout import Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid
from slipstream.lattice.samples import SAMPLES, make_sample

__all__ = [
    "SAMPLES",
    "Fluid",
    "Permeability",
    "PoreFlow",
    "Storage",
    "Subdomain",
    "decompose",
    "make_sample",
    "permeability",
]
