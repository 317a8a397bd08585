"""Another process draws the same pictures as this one would, and leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows import PATIENCE, environment
from slipstream.engine.errors import RunError
from slipstream.engine.fields import PictureChoice
from slipstream.files.output_folder import claim_folder
from slipstream.show import picture_process
from slipstream.show.picture_process import PICTURES, PictureProcess, _attempt, shown_spectra
from slipstream.show.run_pictures import run_pictures

SHELLS = np.arange(1.0, 20)
DATA = {
    "choice": PictureChoice((("energy",),), "energy.png", spectra=("energy",)),
    "title": "A title",
    "series": {"time": np.linspace(0, 1, 5), "energy": np.linspace(2, 1, 5)},
    "labels": {},
    "spectra": [(float(time), {"energy": (SHELLS, SHELLS**-2.0)}) for time in range(9)],
    "planes": (),
}


def is_over(number):
    """Return whether neither a process nor any copy of it is left."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_pictures_are_the_same_to_the_byte(tmp_path):
    with PictureProcess() as artist:
        folders = [tmp_path / "here", tmp_path / "there"]
        for folder in folders:
            folder.mkdir()
        data = DATA | {"spectra": shown_spectra(DATA["spectra"])}
        expected = [one.write(folders[0]) for one in run_pictures(**data)]
        artist.begin(folders[1], [(PICTURES, data)], for_page=True)
        drawn = artist.finish()
    assert [*artist.plots] == ["energy", "spectrum"]
    assert all(svg.startswith("<svg") and "</svg>" in svg for svg in artist.plots.values())
    assert [path.name for path in drawn] == [path.name for path in expected]
    assert len(drawn) == 2
    for one, other in zip(expected, drawn, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert is_over(artist._process.pid)


@pytest.mark.thorough
@pytest.mark.slow
def test_neither_process_reads_a_matplotlibrc(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    sent = DATA | {"spectra": shown_spectra(DATA["spectra"])}
    expected = [one.write(tmp_path / "one") for one in run_pictures(**sent)]
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\naxes.facecolor: red\n")
    monkeypatch.chdir(tmp_path)
    with PictureProcess() as artist:
        artist.begin("other", [(PICTURES, sent)])
        drawn = artist.finish()
    assert drawn == [Path("other") / one.name for one in expected]
    script = "\n".join(
        (
            "import matplotlib",
            "from pathlib import Path",
            "from slipstream.show import figure_style",
            "assert matplotlib.rcParams['text.usetex']",
            "with figure_style.in_our_style():",
            "    figure = figure_style.new_figure((2, 2), 'title')",
            "    figure.subplots().set_ylabel('$k^2$')",
            "    figure_style.save_figure(figure, '.', 'own.png')",
        )
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())
    for one, other in zip(expected, drawn, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_pictures_follow_a_folder_that_is_renamed(tmp_path):
    (tmp_path / "run").mkdir()
    with claim_folder(tmp_path / "run") as held, PictureProcess() as artist:
        (tmp_path / "run").rename(tmp_path / "renamed")
        artist.begin(held.path, [(PICTURES, DATA)])
        drawn = artist.finish()
        assert [one.exists() for one in drawn] == [True, True]
        assert {one.name for one in drawn} < set(os.listdir(tmp_path / "renamed"))
    assert os.listdir(tmp_path) == ["renamed"]


@pytest.mark.slow
def test_what_cannot_be_written_is_told_as_it_would_be_here(tmp_path):
    with (
        PictureProcess() as artist,
        pytest.raises(FileNotFoundError, match="missing/energy.png"),
    ):
        artist.begin(tmp_path / "missing", [(PICTURES, DATA)])
        artist.finish()


def test_what_cannot_be_drawn_is_told_in_a_line(monkeypatch, tmp_path):
    assert _attempt(lambda: 1 / 0) == (None, "ZeroDivisionError: division by zero")
    answer = [], [_attempt(lambda: 1 / 0)[1]]
    with PictureProcess() as artist, pytest.raises(RunError, match="be drawn: ZeroDivisionError"):
        monkeypatch.setattr(picture_process.pickle, "load", lambda file: answer)
        artist.begin(tmp_path, [])
        artist.finish()


def test_its_death_is_an_error(tmp_path):
    with PictureProcess() as artist:
        os.kill(artist._process.pid, signal.SIGKILL)
        artist.begin(tmp_path, [(PICTURES, DATA)])
        with pytest.raises(RunError, match="ended with status -9"):
            artist.finish()


@pytest.mark.slow
def test_it_ends_with_what_started_it():
    with PictureProcess() as artist:
        artist._process.stdin.close()
        assert artist._process.wait(PATIENCE) == 0
    with pytest.raises(KeyError), PictureProcess() as artist:
        raise KeyError
    assert is_over(artist._process.pid)
