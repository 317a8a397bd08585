"""The time of FluidSim's Navier-Stokes step, to put beside ``slipstream bench dns``.

Needs FluidSim (``pip install fluidsim pyfftw``, mpi4py for ranks) and nothing of Slipstream:
it runs in an environment of its own.

    python bench/fluidsim_step.py --n 128
    mpiexec -n 2 python bench/fluidsim_step.py --n 128 --transform fft3d.mpi_with_fftw1d
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("FLUIDSIM_NO_PLOT", "1")

import fluidsim
import numpy as np
import pyfftw
from fluiddyn.util import mpi
from fluidsim.solvers.ns3d.solver import Simul


def plain_transform(n: int, threads: int, repetitions: int) -> float:
    """Return the seconds of FFTW's real transform of a cube: the yardstick."""
    points = pyfftw.empty_aligned((n, n, n), "float64")
    modes = pyfftw.empty_aligned((n, n, n // 2 + 1), "complex128")
    plan = pyfftw.FFTW(points, modes, axes=(0, 1, 2), threads=threads, flags=("FFTW_MEASURE",))
    points[...] = np.random.default_rng(0).random(points.shape)
    return median_seconds(plan, repetitions)


def median_seconds(action, repetitions: int) -> float:
    """Return the median time of an action, after one that is not counted."""
    action()
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    """Time a step of fourth order and print it per substage and per plain transform."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=128)
    parser.add_argument("--transform", default="fft3d.with_pyfftw")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    parameters = Simul.create_default_params()
    parameters.short_name_type_run = "bench"
    parameters.oper.nx = parameters.oper.ny = parameters.oper.nz = options.n
    parameters.oper.type_fft = options.transform
    parameters.oper.coef_dealiasing = 2 / 3
    parameters.nu_2 = 1e-3
    parameters.init_fields.type = "noise"
    parameters.time_stepping.USE_CFL = False
    parameters.time_stepping.deltat0 = 1e-6
    parameters.time_stepping.type_time_scheme = "RK4"
    parameters.NEW_DIR_RESULTS = True
    parameters.output.HAS_TO_SAVE = False
    simulation = Simul(parameters)
    step = median_seconds(simulation.time_stepping.one_time_step_computation, options.repetitions)
    plain = plain_transform(options.n, options.threads, options.repetitions)
    if mpi.rank == 0:
        figures = {
            "seconds per substage": step / 4,
            "seconds of a plain real transform": plain,
            "substage / plain transform": step / 4 / plain,
            "ranks": mpi.nb_proc,
            "points": options.n,
            "fluidsim": fluidsim.__version__,
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
