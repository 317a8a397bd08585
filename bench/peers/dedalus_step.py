"""Dedalus: a step of the three-dimensional Navier-Stokes equations by RK443, of four stages.

    CC=mpicc pip install dedalus==3.0.5     # compiles: needs FFTW with MPI, and an MPI compiler
    OMP_NUM_THREADS=1 python dedalus_step.py --n 96

Dedalus counts modes and pads by 3/2, so that n points along an axis keep 2/3 n modes, as the 2/3
rule does. The pressure is solved for with the velocity. RK443 is of third order.
"""

import dedalus
import dedalus.public as d3
import numpy as np
from served import arguments, serve

options = arguments(__doc__, n=96)
modes = options.n * 2 // 3
coordinates = d3.CartesianCoordinates("x", "y", "z")
distributor = d3.Distributor(coordinates, dtype=np.float64)
bases = [
    d3.RealFourier(c, size=modes, bounds=(0, 2 * np.pi), dealias=3 / 2) for c in coordinates.coords
]
u = distributor.VectorField(coordinates, name="u", bases=bases)
p = distributor.Field(name="p", bases=bases)
tau = distributor.Field(name="tau")
problem = d3.IVP([u, p, tau], namespace={"u": u, "p": p, "tau": tau, **vars(d3)})
problem.add_equation("dt(u) + grad(p) - 1e-2 * lap(u) = - u @ grad(u)")
problem.add_equation("div(u) + tau = 0")
problem.add_equation("integ(p) = 0")
solver = problem.build_solver(d3.RK443)
x, y, z = (distributor.local_grid(one) for one in bases)
u["g"][0] = np.sin(x) * np.cos(y) * np.cos(z)
u["g"][1] = -np.cos(x) * np.sin(y) * np.cos(z)
facts = {"peer": "Dedalus", "version": dedalus.__version__}
serve(options, lambda: solver.step(1e-3), facts)
