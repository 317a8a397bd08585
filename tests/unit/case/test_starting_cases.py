"""`slipstream new` writes cases to start from: copies, and cases of a model."""

from pathlib import Path

import pytest

from flows import REPOSITORY
from refusals import status_of
from slipstream.case import SHIPPED_CASES, load_case, write_template
from slipstream.case.table import meanings_of_parameters
from slipstream.engine.accepted import MODELS
from slipstream.engine.errors import InputError
from slipstream.equations.models import find, parameters_of
from slipstream.runs import make_simulation

EXAMPLES = f"{REPOSITORY}/examples/equations.py"
OWN = '''
from typing import Annotated
from pathlib import Path
from pydantic import Field
from slipstream.equations import Model, Scalar, laplacian

Path(__file__).with_suffix(".was-here").touch()


def growth(rate: float, order: Annotated[int, Field(ge=2, le=4)], width: float = 2.0):
    """Grow and spread.

    Parameters
    ----------
    rate : float
        How fast the
        long waves grow.
    width : float
        Of what spreads.
    """
    c = Scalar("c")
    return Model({c: rate * c + width * laplacian(c, order) * (-1) ** (order + 1)})
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_title(case):
    return case.model_dump(exclude={"title"})


@pytest.mark.samples(6)
@pytest.mark.parametrize("name", SHIPPED_CASES)
def test_a_copy_is_the_case_with_every_key_explained(name, here):
    copy = write_template("copy", source=name)
    case = load_case(copy)
    assert case.title == "copy"
    assert without_title(case) == without_title(load_case(name))
    text, original = copy.read_text(), (REPOSITORY / "cases" / f"{name}.toml").read_text()
    assert text.startswith(original.partition("\n")[0])
    for key in ("device", "checkpoint_minutes", "precision", "max_steps"):
        assert f"# {key} = " in text
    # A copy of a copy is the same once more.
    again = write_template("again", source=copy)
    assert without_title(load_case(again)) == without_title(case)
    assert again.read_text() == text.replace('"copy" ', '"again"')


def test_a_copy_keeps_what_templates_have_not(here):
    text = (REPOSITORY / "cases" / "forced.toml").read_text()
    text = text.replace("cfl = 0.8", "step = 0.05").replace("max_step = 0.05", "max_steps = 7")
    text += '[run]\nresidency = "host"\nstreaming = { tiles = 2 }\n'
    text += '[[output.scalars]]\nof = "dot(velocity, vorticity)"\nreduce = "max"\n'
    Path("mine.toml").write_text(text)
    assert without_title(load_case(write_template("copy", source="mine.toml"))) == without_title(
        load_case("mine.toml")
    )


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_case_of_a_shipped_model_is_accepted(model, here):
    case = load_case(write_template("case", model=model))
    assert case.equation.model == model
    required = {key for key, (_, default) in parameters_of(find(model)).items() if default is ...}
    assert required <= case.equation.model_fields_set


@pytest.mark.parametrize("name", ["allen_cahn", "reacting", "kolmogorov"])
def test_a_case_of_a_model_of_ones_own_begins(name, here):
    path = write_template("case", model=f"{EXAMPLES}:{name}")
    make_simulation(load_case(path, ["grid.points=[16, 16, 4]", "run.device=cpu"])).prepare()


def test_parameters_are_explained_by_their_docstring_and_their_type(here):
    Path("own.py").write_text(OWN)
    lines = write_template("case", model="own.py:growth").read_text().splitlines()
    assert (
        "rate = 1.0                      # how fast the long waves grow; a number (required)"
        in lines
    )
    assert any(line.startswith("order = 2 ") and "from 2 to 4 (required)" in line for line in lines)
    assert "# width = 2.0                   # of what spreads; a number" in lines
    assert not any("viscosity = " in line for line in lines)


def test_a_copy_runs_no_code_of_the_case(here):
    Path("copied.py").write_text(OWN)
    write_template("case", model="copied.py:growth")
    mark = Path("copied.was-here")
    mark.unlink()
    text = write_template("copy", source="case.toml").read_text()
    assert not mark.exists()
    assert "rate = 1.0                      # parameter of the model" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "tailor-green"], "did you mean 'taylor-green'"),
        (["--from", "absent.toml"], "absent.toml: no such file"),
        (["--from", "wrong.toml"], "wrong.toml: solver: accepted: spectral, advection, lattice"),
        (["--from", "rubbish.toml"], "rubbish.toml: grid must be a table"),
        (["--from", "sandstone", "--solver", "spectral"], "sandstone is of solver 'lattice'"),
        (["--from", "sandstone", "--model", "hd"], "--from and --model do not go together"),
        (["--model", "lattice"], "accepted: hd, boussinesq, mhd, gpe, argle, hd2d, mhd2d, "),
        (["--model", "absent.py:f"], "absent.py: no such file"),
        (["--solver", "spectre"], "accepted: spectral, advection, lattice"),
    ],
)
def test_what_cannot_be_started_from_is_told_in_one_line(arguments, message, here, capfd):
    Path("wrong.toml").write_text("solver = 'abacus'")
    Path("rubbish.toml").write_text("solver = 'spectral'\ngrid = 5")
    status = status_of("new", "case", *arguments)
    told = capfd.readouterr().err
    assert status == 2 and message in told and told.count("\n") == 1
    assert not Path("case.toml").exists()


def test_cases_are_listed(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert not status_of("cases")
    told = capfd.readouterr().out
    assert all(name in told for name in SHIPPED_CASES)
    assert "512^2" in told and max(map(len, told.splitlines())) <= 80


def test_sections_of_docstrings_are_read():
    def documented():
        """Do it.

        Parameters
        ----------
        a, b : int
            Of both,
            in two lines.
        c
            Without type.

        Returns
        -------
        a : int
            Not this.
        """

    both = "Of both, in two lines."
    assert meanings_of_parameters(documented) == {"a": both, "b": both, "c": "Without type."}
    assert meanings_of_parameters(len) == {} == meanings_of_parameters(lambda: None)


def test_a_model_of_something_else_is_refused(here):
    Path("one.py").write_text("def f(a: float): return 1")
    with pytest.raises(InputError, match="returns int; expected a Model"):
        write_template("case", model="one.py:f")
