"""A single rank imports no transport, no MPI, and nothing of exchanges that it does not make."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[2] / "support"
TRANSFORM = """
import numpy
from slipstream.fft import DistributedFFT
fft = DistributedFFT((4, 6, 8), "float64", device="cpu")
fft.backward(fft.forward(numpy.ones((4, 6, 8))))
"""
RUN = """
from flows import advance, start
from slipstream.engine.device import open_device
advance(start(open_device("cpu")), 1)
"""
NAMES = ("nccl_transport", "peer_transport", "mpi_transport", "halo_exchange")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["import slipstream.engine.fft", TRANSFORM, RUN], ids=["import", "fft", "run"]
)
def test_a_single_rank_imports_no_transport(program):
    code = f"{program}\nimport sys\nprint(*sys.modules, sep='\\n')"
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.split()
    assert "slipstream.engine.exchange" in loaded
    assert not [name for name in loaded if name.split(".")[-1] in NAMES]
    assert not [name for name in loaded if name.split(".")[0] == "mpi4py"]


@pytest.mark.slow
def test_a_simulation_loads_no_library_of_views_pictures_or_commands():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import slipstream as ss, sys\n"
            'sim = ss.Turbulence(points=8, viscosity=1, initial="taylor-green", device="cpu")\n'
            "sim.step()\nprint(*sys.modules, sep='\\n')",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "slipstream" in loaded
    assert not loaded & {"xarray", "pandas", "matplotlib", "typer", "h5py"}
