"""The products of incompressible flow at a point, as they are written for its equations."""

from slipstream.engine import kernels
from slipstream.equations import code_generation, models

# (uu - ww, uv, uw, vv - ww, vw) of three velocities; the rate is |u|/dx + |v|/dy + |w|/dz.
NAVIER_STOKES = kernels.write(
    code_generation.product_header(models.lowered("hd", {"viscosity": 0.01}))
)
