"""The programs of `examples` about flow through rock run, made small, and draw their pictures."""

import runpy
import sys

import matplotlib
import pytest

from flows import REPOSITORY

PROGRAMS = {
    "permeability": (16, ["rock.png", "rock.vti"], "mD"),
    "permeability_tensor": (12, [], "along z: tortuosity 1."),
    "permeability_of_packings": (9, ["packings.png"], ""),
    "inertia": (9, ["inertia.png"], "Pa/m: Re"),
}


@pytest.mark.filterwarnings("ignore:pore faces solid")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_is_short(name, tmp_path, monkeypatch, capsys):
    size, files, told = PROGRAMS[name]
    path = REPOSITORY / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 25
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), str(size)])
    runpy.run_path(str(path), run_name="__main__")
    matplotlib.pyplot.close("all")
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(files)
    assert all(one.stat().st_size > 1000 for one in tmp_path.iterdir())
    assert told in capsys.readouterr().out
