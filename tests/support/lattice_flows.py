"""Small flows through pores for tests: simulations from settings, and their states in files."""

import numpy as np

from slipstream.case import parse_case
from slipstream.files import open_checkpoint
from slipstream.lattice.lattice_simulation import LatticeSimulation

SHAPE = (16, 20, 24)  # z, y, x
SANDSTONE = 'sample = "sandstone"\nshape = [24, 20, 16]\nradius = 4\nporosity = 0.4\n'
# How populations are stored is chosen here: measuring it takes longer than these runs.
CASE = f"""
solver = "lattice"
title = "test"
[image]
{SANDSTONE}voxel_size = 2e-6
[flow]
relaxation_time = 0.8
[time]
end = 40
[convergence]
interval = 10
vectors = 0
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
[run]
device = "cpu"
[output]
pictures = false
"""
# Eight layers of pore between two walls, each a layer too, across x.
CHANNEL = CASE.replace(SANDSTONE, 'sample = "channel"\nshape = [10, 3, 4]\naxis = "x"\n')

STATE = ("voxel", *(f"population_{q:02d}" for q in range(19)))


def make(device, *settings, comm=None, case=CASE):
    """Return a simulation, without allocation."""
    return LatticeSimulation(parse_case(case, settings), comm, device)


def start(*arguments, **options):
    """Return a simulation in its initial state."""
    simulation = make(*arguments, **options)
    simulation.prepare()
    return simulation


def advance(simulation, steps):
    """Do this number of steps, or fewer if the simulation finishes before."""
    for _ in range(steps // 2):
        if not simulation.finished:
            simulation.advance(simulation.step_size())
    return simulation


def state(folder):
    """Return the voxels of all pores in ascending order, and their populations."""
    checkpoint = open_checkpoint(folder)
    return _in_order(checkpoint.read(name) for name in STATE)


def state_of(simulation):
    """Return on all ranks what `state` finds once the simulation is saved, without any files."""
    fields = (field for field in simulation.checkpoint() if field.name in STATE)
    if simulation.comm is None:
        return _in_order(field.data for field in fields)
    parts = simulation.comm.allgather([field.data for field in fields])
    return _in_order(map(np.concatenate, zip(*parts, strict=True)))


def _in_order(arrays):
    voxels, *populations = arrays
    order = np.argsort(voxels)[np.count_nonzero(voxels < 0) :]
    return voxels[order], np.stack([one[order] for one in populations])
