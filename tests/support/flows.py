"""Small flows for tests: simulations from settings, their modes, and commands in a process."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from slipstream.case import parse_case
from slipstream.engine import processes as mpi_launch
from slipstream.engine.processes import find_mpiexec
from slipstream.files import open_checkpoint, write_checkpoint
from slipstream.runs import make_simulation
from slipstream.spectral.spectral_simulation import SpectralSimulation

REPOSITORY = Path(__file__).resolve().parents[2]

# A turbulent flow: every mode and every term of the equations takes part.
RANDOM = """
solver = "spectral"
[grid]
points = 16
[equation]
viscosity = 0.01
[initial]
flow = "random"
seed = 7
peak_wavenumber = 3.0
[time]
end = 1.0
step = 0.01
[output]
pictures = false
"""

# Other equations than those of plain flow, with what they need besides a viscosity.
MHD = ("equation.model=mhd", "equation.resistivity=0.01")
BOUSSINESQ = (
    "equation.model=boussinesq",
    "equation.diffusivity=0.01",
    "equation.buoyancy_frequency=4.0",
)

# All axes differ in points and length; the points are x, y, z, two of them with odd factors.
UNEVEN_BOX = ("grid.points=[24, 40, 18]", 'grid.length=["2 pi", "3 pi", 5.0]')


def make_case(*settings):
    """Return the random flow's case with some settings changed, each "section.key=value"."""
    text = RANDOM
    if any(setting.startswith("initial.flow=") for setting in settings):
        # Another flow does not have these.
        text = text.replace("seed = 7\n", "").replace("peak_wavenumber = 3.0\n", "")
    return parse_case(text, settings)


def start(device, *settings, comm=None):
    """Return a simulation in its initial state."""
    simulation = SpectralSimulation(make_case(*settings), comm, device)
    simulation.prepare()
    return simulation


def advance(simulation, steps, step_size=0.01):
    for _ in range(steps):
        simulation.advance(step_size)
    return simulation


def modes_of(simulation):
    """Return this rank's Fourier coefficients of the velocity on the host."""
    flow = simulation.flow
    return np.array(flow.modes_of(simulation.device.to_host(flow.state)))


def save(simulation, folder):
    """Write the checkpoint of a simulation of any family, on all of its ranks."""
    return write_checkpoint(
        folder,
        simulation.checkpoint(),
        simulation.comm,
        step=simulation.step,
        time=simulation.time,
        case=simulation.case.to_toml(),
    )


def resumed_from(simulation, folder, device):
    """Return a simulation of the same case and ranks that resumes from a state in a folder."""
    later = make_simulation(simulation.case, simulation.comm, device)
    later.resumed = open_checkpoint(folder, simulation.comm)
    later.prepare()
    return later


def leave_state(simulation, folder, comm):
    """Write the checkpoint of a simulation in one process, and let all ranks wait for it."""
    if comm is None or comm.rank == 0:
        save(simulation, folder)
    if comm is not None:
        comm.Barrier()


def own_part(simulation, global_modes):
    """Return the part of global coefficients that belongs to this rank."""
    return global_modes[(slice(None), *simulation.problem.geometry.spectral_box.slices())]


def points_of(simulation):
    """Return the velocity (3, z, y, x) of this rank at the grid points."""
    fields = {field.name: field.data for field in simulation.fields()}
    return np.stack([fields[f"velocity_{name}"] for name in "xyz"])


# Seconds after which a process is taken to hang. It is no bound on speed: other runs of the tests,
# and a load of 30, may make what takes one second alone take a hundred.
PATIENCE = 500


def wait_until(condition, what="what is waited for"):
    """Wait for a condition to hold; fail if it does not for so long that something hangs."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not happened in {PATIENCE} s"
        time.sleep(0.01)


def relative_error(actual, expected):
    """Return the largest difference, relative to the largest expected value."""
    scale = np.abs(expected).max(initial=0.0) or 1.0
    return np.abs(np.subtract(actual, expected)).max(initial=0.0) / scale


def environment(ranks=1):
    """Return the environment for processes that tests start: no launcher's, the tree's sources."""
    traces = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")
    # How Open MPI starts its daemons is the machine's affair.
    kept = "OMPI_MCA_plm"
    inherited = {
        k: v for k, v in os.environ.items() if k.startswith(kept) or not k.startswith(traces)
    }
    paths = [str(REPOSITORY / "src"), *inherited.get("PYTHONPATH", "").split(os.pathsep)]
    inherited["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    # Other tests use the cores as well: a waiting rank leaves them to working ones.
    inherited.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    return {**inherited, **mpi_launch.launch_environment(ranks, inherited)}


def slipstream(*arguments, cwd, ranks=1):
    """Run the command line in a separate process and return its output."""
    return python("-m", "slipstream", *arguments, cwd=cwd, environment=environment(ranks))


def python(*arguments, cwd=REPOSITORY, environment, launcher=()):
    """Run Python in a separate process and return its output."""
    return subprocess.run(
        [*launcher, sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def output_of(*arguments, ranks=1, cwd=REPOSITORY, **variables):
    """Return what Python prints on some ranks; it must end without an error."""
    launcher = [find_mpiexec(), "-n", str(ranks)] if ranks > 1 else []
    variables = {**environment(ranks), **variables}
    done = python(*arguments, cwd=cwd, environment=variables, launcher=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def diagnostics(folder):
    """Return the columns of a run's time series, by name."""
    with open(Path(folder) / "diagnostics.csv", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def random_values(shape, dtype, seed=0):
    values = np.random.default_rng(seed).standard_normal((*shape, 2))
    if np.dtype(dtype).kind == "c":
        return (values[..., 0] + 1j * values[..., 1]).astype(dtype)
    return values[..., 0].astype(dtype)
