"""Shipped cases are found by their names, and models next to the cases that name them."""

import os
from pathlib import Path

import pytest

from flows import REPOSITORY
from refusals import status_of
from slipstream.case import SHIPPED_CASES, case_file, load_case, parse_case
from slipstream.engine.errors import InputError

MODEL = """
from pathlib import Path
from slipstream.equations import Scalar, Model, laplacian

Path(__file__).with_suffix(".was-here").touch()


def decay(rate: float):
    c = Scalar("c")
    return Model({c: rate * laplacian(c)})
"""
CASE = """
solver = "spectral"
grid = { points = 8 }
equation = { model = "decaying.py:decay", rate = 1.0 }
initial = { flow = "formula", fields = { c = "sin(x)" } }
time = { end = 1.0, step = 0.1 }
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_is_that_of_the_folder():
    assert {path.stem for path in (REPOSITORY / "cases").glob("*.toml")} == set(SHIPPED_CASES)


@pytest.mark.parametrize("name", SHIPPED_CASES)
def test_a_name_is_the_file_of_the_repository(name, here):
    assert load_case(name) == load_case(REPOSITORY / "cases" / f"{name}.toml")


def test_a_run_by_name_writes_into_a_folder_of_that_name(here):
    settings = [
        "--set",
        "grid.points=20",
        "--set",
        "time.max_steps=2",
        "--set",
        "output.pictures=false",
    ]
    assert not status_of("run", "advection", *settings)
    assert (here / "runs" / "advection" / "case.toml").is_file()


def test_files_of_ones_own_come_before_shipped_cases(here):
    Path("forced").write_text("solver")
    assert case_file("forced") == Path("forced")
    Path("taylor-green").mkdir()
    assert case_file("taylor-green").parent == REPOSITORY / "cases"
    assert case_file("taylor-green.toml") == Path("taylor-green.toml")


def test_a_name_that_may_mean_two_files_is_refused(here):
    text = case_file("advection").read_text()
    Path("advection.toml").write_text(text)
    assert case_file("advection").read_text() == text
    Path("advection.toml").write_text(text + "# mine\n")
    with pytest.raises(InputError, match=r"give advection.toml to run yours"):
        case_file("advection")


def test_a_wrong_name_gets_the_nearest(here):
    with pytest.raises(InputError, match=r"did you mean 'taylor-green'\? accepted: FILE.toml, tay"):
        load_case("tailor-green")
    Path("vortex.toml").write_text("")
    with pytest.raises(InputError, match=r"did you mean 'vortex.toml'\?"):
        case_file("vortex")
    with pytest.raises(InputError, match="the shipped case is 'forced', without .toml"):
        load_case("forced.toml")
    with pytest.raises(InputError, match="no file and no shipped case"):
        case_file("x" * 5000)


def test_a_model_is_found_beside_its_case_before_the_working_directory(here):
    Path("mine").mkdir()
    Path("mine/case.toml").write_text(CASE)
    Path("mine/decaying.py").write_text(MODEL)
    assert load_case("mine/case.toml").equation.model == os.path.join("mine", "decaying.py:decay")
    Path("decaying.py").write_text(MODEL)
    assert load_case("mine/case.toml").equation.model == os.path.join("mine", "decaying.py:decay")
    assert load_case("mine/case.toml", ["equation.model=decaying.py:decay"]).equation.model == (
        "decaying.py:decay"
    )
    Path("mine/decaying.py").unlink()
    assert load_case("mine/case.toml").equation.model == "decaying.py:decay"
    Path("decaying.py").unlink()
    # Another name, as a file that was imported is remembered.
    Path("mine/case.toml").write_text(CASE.replace("decaying", "absent"))
    with pytest.raises(InputError, match=r"absent.py: no such file; accepted: a path from the c"):
        load_case("mine/case.toml")


def test_text_of_a_case_leads_to_no_file_beside_where_it_came_from(here):
    """A stored case may be somebody else's, and so may be the files next to it."""
    Path("theirs").mkdir()
    Path("theirs/stored.py").write_text(MODEL)
    with pytest.raises(InputError, match="no such file"):
        parse_case(CASE.replace("decaying", "stored"), source="theirs/case.toml")
    assert not Path("theirs/stored.was-here").exists()
