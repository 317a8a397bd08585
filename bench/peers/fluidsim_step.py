"""FluidSim: a fourth-order step of the three-dimensional Navier-Stokes equations, 2/3 rule.

pip install fluidsim==26.10.0 fluidfft pyfftw && python fluidsim_step.py --n 64
"""

import os

os.environ.setdefault("FLUIDSIM_NO_PLOT", "1")

import fluidsim
from fluidsim.solvers.ns3d.solver import Simul
from served import arguments, serve

options = arguments(__doc__, n=64, transform="fft3d.with_pyfftw")
parameters = Simul.create_default_params()
parameters.short_name_type_run = "bench"
parameters.oper.nx = parameters.oper.ny = parameters.oper.nz = options.n
parameters.oper.type_fft = options.transform
parameters.oper.coef_dealiasing = 2 / 3
parameters.nu_2 = 1e-2
parameters.init_fields.type = "noise"
parameters.time_stepping.USE_CFL = False
parameters.time_stepping.deltat0 = 1e-6
parameters.time_stepping.type_time_scheme = "RK4"
parameters.NEW_DIR_RESULTS = True
parameters.output.HAS_TO_SAVE = False
simulation = Simul(parameters)
facts = {"peer": "FluidSim", "version": fluidsim.__version__}
serve(options, simulation.time_stepping.one_time_step_computation, facts)
