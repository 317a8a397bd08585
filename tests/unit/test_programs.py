"""The programs of `examples` that hold a simulation in their hands run, made small, and draw."""

import ast
import re
import runpy
import sys
import warnings

import matplotlib
import pytest

from flows import REPOSITORY

# Size, what is written, what is printed.
PROGRAMS = {
    "taylor_green": (12, ["taylor_green.png"], r"at t = [2-6]\.\d"),
    "own_forcing": (8, ["own_forcing.png"], r"2: (\d+\.\d+), then \1"),
    "particles": (8, ["particles.png"], ""),
    "eddy_viscosity": (8, ["eddy_viscosity.png"], ""),
    "parameter_sweep": (8, ["parameter_sweep.csv", "parameter_sweep.png"], "taylor_reynolds"),
    "mhd_movie": (16, ["mhd.gif", "mhd.png"], "51 frames"),
    "steady_enough": (12, ["steady_enough.png"], r"voxels after \d+ steps"),
    "finer_restart": (8, ["finer_restart", "finer_restart.png"], r": \d\.\de([+]00|-1[5-7]) at"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_is_short(name, tmp_path, monkeypatch, capsys):
    size, files, told = PROGRAMS[name]
    path = REPOSITORY / "examples" / f"{name}.py"
    text = path.read_text()
    assert len(text.splitlines()) - ast.parse(text).body[0].end_lineno <= 40
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), str(size)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # so few points resolve nothing
        runpy.run_path(str(path), run_name="__main__")
    matplotlib.pyplot.close("all")
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(files)
    assert all(one.stat().st_size > 1000 for one in tmp_path.iterdir() if one.is_file())
    assert re.search(told, capsys.readouterr().out)
