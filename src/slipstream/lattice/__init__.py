"""Flow through porous media: lattice Boltzmann methods on voxel images."""

from slipstream.lattice.flow import PoreFlow
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.permeability import Permeability, permeability
from slipstream.lattice.portion import Portion, hand_out
from slipstream.lattice.samples import SAMPLES, make_sample
from slipstream.lattice.storage import Storage

__all__ = [
    "SAMPLES",
    "Fluid",
    "Permeability",
    "PoreFlow",
    "Portion",
    "Storage",
    "hand_out",
    "make_sample",
    "permeability",
]
