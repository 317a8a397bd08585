"""Flow through porous media: lattice Boltzmann methods on voxel images."""

from slipstream.lattice.domain_decomposition import Subdomain, decompose
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.permeability import FlowProgress, permeability
from slipstream.lattice.permeability_result import (
    AxisFlow,
    FlowFields,
    Permeability,
    PermeabilityInterrupted,
)
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.samples import SAMPLES, make_sample
from slipstream.lattice.velocity_set import Storage

__all__ = [
    "SAMPLES",
    "AxisFlow",
    "FlowFields",
    "FlowProgress",
    "Fluid",
    "Permeability",
    "PermeabilityInterrupted",
    "PoreFlow",
    "Storage",
    "Subdomain",
    "decompose",
    "make_sample",
    "permeability",
]
