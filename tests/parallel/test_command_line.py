"""Commands on several ranks: what they write, say and end with."""

import numpy as np
import pytest

from first_rank import on_first_rank, wait_for_all
from flows import RANDOM, diagnostics
from refusals import status_of
from slipstream.files import open_checkpoint

pytestmark = pytest.mark.several_ranks

ADVECTION = (
    'solver = "advection"\n[grid]\npoints = 16\n[flow]\ncourant = 0.5\n[time]\nend = 0.5\n'
    "[output]\npictures = false\n"
)


@pytest.fixture
def run(comm, shared_folder, monkeypatch, capfd):
    """Return a function that runs a case by the command line; it returns status and output."""
    monkeypatch.chdir(shared_folder)

    def run(case, *settings, out="out"):
        on_first_rank(comm, lambda: (shared_folder / "case.toml").write_text(case))
        overrides = [word for setting in settings for word in ("--set", setting)]
        status = status_of("run", "case.toml", "--device", "cpu", "--out", out, *overrides)
        wait_for_all(comm)
        return (status, *capfd.readouterr())

    return run


def assert_said_by_first(comm, text, *parts):
    """The first rank says something, which is returned; the others are silent."""
    assert (text != "") == (comm.rank == 0)
    assert comm.rank or all(part in text for part in parts), text
    return text


def test_advection_gives_the_bits_of_one_rank(comm, ranks, shared_folder, run):
    status, said, _ = run(ADVECTION, f"run.grid=[{ranks}, 1, 1]")
    assert status == 0
    assert_said_by_first(comm, said, f"{ranks}, as {ranks} x 1 x 1")
    found = open_checkpoint(shared_folder / "out").read("tracer")
    one = on_first_rank(comm, lambda: alone(shared_folder / "one"))
    assert found.tobytes() == one.tobytes()


def alone(folder):
    from rich.console import Console

    from slipstream.case import parse_case
    from slipstream.runs import make_simulation
    from slipstream.runs.run_case import run_case

    run_case(make_simulation(parse_case(ADVECTION), None), folder, Console(quiet=True))
    return open_checkpoint(folder).read("tracer")


@pytest.mark.parametrize(
    ("case", "setting", "message"),
    [
        (RANDOM, "equation.viscosity=-1", "equation.viscosity"),
        (RANDOM, "initial.restart=nowhere", "nowhere: holds no checkpoint"),
        (ADVECTION, "run.strategy=single", "run.strategy 'single' is for one rank;"),
    ],
)
def test_bad_input_is_one_line_with_status_2(comm, run, case, setting, message):
    status, _, errors = run(case, setting)
    assert status == 2
    text = assert_said_by_first(comm, errors, "slipstream: error: ", message)
    assert text.count("\n") == (comm.rank == 0), text


def test_blow_up_has_status_1_and_keeps_the_rows(comm, shared_folder, run):
    status, _, errors = run(RANDOM, "equation.viscosity=0", "time.step=10", "time.end=1000")
    assert status == 1
    assert_said_by_first(comm, errors, "blown up", "step ", "t = ")
    assert "Traceback" not in errors
    rows = diagnostics(shared_folder / "out")
    assert rows["step"][0] == 0
    assert np.isfinite(rows["energy"]).all()
