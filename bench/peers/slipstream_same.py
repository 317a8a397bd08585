"""Slipstream: the same work as each script of this folder.

python slipstream_same.py --work pair --n 128       # or step, update, permeability
mpiexec -n 2 python slipstream_same.py --work pair --n 128
"""

import os

import numpy as np
from served import arguments, serve

import slipstream as ss

options = arguments(
    __doc__, work="pair", n=128, image="rock.npy", tolerance=1e-3, device="cpu", tune="quick"
)
n, device = options.n, options.device
facts = {"peer": "Slipstream", "version": ss.__version__}
results = None
comm = None
per_call = 1
if options.work == "pair":
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    fft = ss.DistributedFFT((n, n, n), comm=comm, device=device, tune=options.tune)
    points, modes = fft.empty_input(), fft.empty_output()
    random = np.random.default_rng(0).random(points.shape)
    if device == "cuda":
        import cupy

        random = cupy.asarray(random)
    points[...] = random
    per_call = 20 if device == "cuda" else 1

    def action() -> None:
        """Do the work once, or ``per_call`` times."""
        for _ in range(per_call):
            fft.forward(points, out=modes)
            fft.backward(modes, out=points)
        if device == "cuda":
            cupy.cuda.Device().synchronize()

elif options.work == "step":
    # The integrator is RK4: four evaluations of the nonlinear term, as those of the peers.
    sim = ss.Turbulence(
        points=n, viscosity=1e-2, initial="taylor-green", step=1e-3, device=device, comm=None
    )

    per_call = 4

    def action() -> None:
        """Do the work once, or ``per_call`` times."""
        sim.step(per_call)

elif options.work == "update":
    flow = ss.PorousFlow(np.load(options.image) != 0, device=device, comm=None, vectors=0)
    per_call = 10

    def action() -> None:
        """Do the work once, or ``per_call`` times."""
        flow.step(per_call)

else:
    pores = np.load(options.image) != 0
    latest = {}

    def action() -> None:
        """Do the work once, or ``per_call`` times."""
        result = ss.permeability(pores, axis="z", tolerance=options.tolerance, device=device)
        latest["permeability (voxels²)"] = result.k

    def results() -> dict[str, float]:
        """Return the permeability."""
        return dict(latest)


serve(options, action, facts, per_call=per_call, comm=comm, results=results)
