"""Options take what their help lists, and shells complete it."""

from pathlib import Path

import pytest

from refusals import status_of
from slipstream.case import SHIPPED_CASES, load_case
from slipstream.case.command_options import complete_case, complete_run
from slipstream.case.table import is_key
from slipstream.engine.accepted import DEVICES, SOLVERS


def completed(words, monkeypatch, capfd):
    """Return the words that bash is offered for the last of some words."""
    monkeypatch.setenv("_SLIPSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["slipstream", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    status_of()
    return capfd.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "qu"], ["quantum-vortices"]),
        (["run", "taylor-green", "--device", "c"], ["cpu", "cuda"]),
        (
            ["run", "sandstone", "--set", "convergence."],
            [
                *("convergence.tolerance=", "convergence.interval=", "convergence.vectors="),
                "convergence.coarse_start=",
            ],
        ),
        (["run", "advection", "--set", "convergence."], []),
        (["new", "mine", "--solver", "l"], ["lattice"]),
        (["new", "mine", "--from", "or"], ["orszag-tang", "orszag-tang-flux"]),
    ],
)
def test_shells_complete_names_and_keys(words, expected, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert completed(words, monkeypatch, capfd) == expected


def test_files_of_cases_and_folders_of_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/one", "runs/two", "runs/other", "forge"):
        Path(name).mkdir(parents=True)
    for name in ("forward.toml", "forward.txt", "runs/one/case.toml", "runs/two/case.toml"):
        Path(name).touch()
    assert [name for name, _ in complete_case("for")] == ["forced", "forge/", "forward.toml"]
    assert complete_run("") == complete_run("runs/") == ["runs/one", "runs/two"]
    assert complete_run("fo") == ["forge/"]
    assert complete_case("[") == [] == complete_run("*")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["run", "forced", "--device"], [*DEVICES, "auto"]),
        (["new", "mine", "--solver"], list(SOLVERS)),
        (["schema", "--solver"], list(SOLVERS)),
    ],
)
def test_what_an_option_does_not_take_is_told_by_its_name(arguments, names, capfd):
    status = status_of(*arguments, "abacus")
    told = capfd.readouterr().err
    assert status == 2 and told.count("\n") == 1
    assert f"{arguments[-1]}: 'abacus' is not accepted" in told
    assert f"accepted: {', '.join(names)}" in told


@pytest.mark.parametrize("name", SHIPPED_CASES)
def test_keys_that_are_completed_are_keys(name, monkeypatch, capfd):
    keys = completed(["run", name, "--set", ""], monkeypatch, capfd)
    case = load_case(name)
    assert len(keys) > 20
    for key in keys:
        assert is_key(type(case), key.removesuffix("="))
