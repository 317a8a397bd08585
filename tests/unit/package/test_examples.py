"""The programs of `examples` run, made small, without a warning, and draw; also on GPUs."""

import re
import runpy
import sys
import warnings

import matplotlib
import pytest

from flows import REPOSITORY, output_of

# Size, written files, printed text.
PROGRAMS = {
    "convolution": (12, ["convolution.png"], r"after: (0\.[45]\d{4})\d* \1"),
    "eddy_viscosity": (16, ["eddy_viscosity.png"], ""),
    "finer_restart": (
        16,
        ["finer_restart-16", "finer_restart.png"],
        r"difference: (0\.0e[+]00|\d\.\de-1[5-7]) at first",
    ),
    "inertia": (12, ["inertia.png"], "Pa/m: Re"),
    "mhd_movie": (32, ["mhd.gif", "mhd.png"], "51 frames"),
    "own_forcing": (16, ["own_forcing.png"], r"2: (\d+\.\d+), then \1"),
    "parameter_sweep": (16, ["parameter_sweep.csv", "parameter_sweep.png"], "taylor_reynolds"),
    "particles": (16, ["particles.png"], ""),
    "permeability": (40, ["rock.png", "rock.vti"], "mD"),
    "permeability_of_packings": (16, ["packings.png"], ""),
    "permeability_tensor": (24, [], r"along z: tortuosity 1\."),
    "poisson": (32, [], r"largest error of the solution: \S+e-1\d"),
    "poisson_walls": (12, ["poisson_walls.png"], r"largest error of the solution: \S+e-1\d"),
    "steady_enough": (16, ["steady_enough.png"], r"voxels after \d+ steps"),
    "taylor_green": (24, ["taylor_green.png"], r"at t = [2-6]\.\d"),
}
# They initialise MPI, which is not for the process that runs the tests.
ON_RANKS = ("convolution", "poisson", "poisson_walls")
# Private models, which a case names; and what makes the image next to them.
NOT_PROGRAMS = {"equations", "make_rock"}


def check_result(name, folder, printed):
    _, files, told = PROGRAMS[name]
    assert sorted(one.name for one in folder.iterdir()) == sorted(files)
    assert all(one.stat().st_size > 1000 for one in folder.iterdir() if one.is_file())
    assert re.search(told, printed), printed


def test_every_example_is_tried():
    assert PROGRAMS.keys() | NOT_PROGRAMS == {
        path.stem for path in (REPOSITORY / "examples").glob("*.py")
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_short(name):
    assert len((REPOSITORY / "examples" / f"{name}.py").read_text().splitlines()) <= 50


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ON_RANKS])
def test_an_example_runs_without_a_warning(name, tmp_path, monkeypatch, capsys):
    path = REPOSITORY / "examples" / f"{name}.py"
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), str(PROGRAMS[name][0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The grids here are coarser than the programs' own.
        warnings.filterwarnings("ignore", message="kmax_eta", category=RuntimeWarning)
        warnings.filterwarnings("default", module="cupy")
        runpy.run_path(str(path), run_name="__main__")
    matplotlib.pyplot.close("all")
    check_result(name, tmp_path, capsys.readouterr().out)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ON_RANKS)
def test_an_example_runs_on_ranks_without_a_warning(name, ranks, tmp_path):
    path = REPOSITORY / "examples" / f"{name}.py"
    program = ("-W", "error", path, PROGRAMS[name][0])
    printed = output_of(*program, ranks=ranks, cwd=tmp_path, OMP_NUM_THREADS="1")
    check_result(name, tmp_path, printed)
