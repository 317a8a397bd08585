"""`slipstream validate`: what passes, what fails, and what of it is recorded."""

import json
import math

import pytest

from refusals import status_of
from slipstream.api.validation import spectral_cases, validate_command
from slipstream.api.validation.reference_cases import Finding, ReferenceCase
from slipstream.engine.accepted import VALIDATED
from slipstream.engine.device import open_device
from slipstream.engine.errors import RunError


def finding(got=1.0, expected=1.0, tolerance=1e-6):
    return Finding("a figure", "a book", expected, got, tolerance)


@pytest.mark.parametrize(
    ("one", "error", "is_within"),
    [
        (finding(2.0, 4.0, 0.6), 0.5, True),
        (finding(2.0, -4.0, 0.6), 1.5, False),
        (finding(1e-7, 0.0, 1e-6), 1e-7, True),
        (finding(math.nan), math.nan, False),
        (finding(math.inf, tolerance=math.inf), math.inf, False),
    ],
)
def test_errors_are_relative_but_of_zero_and_what_is_no_number_fails(one, error, is_within):
    assert one.error == pytest.approx(error, nan_ok=True)
    assert one.is_within == is_within


def command(capsys, *arguments):
    status = status_of("validate", *arguments)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_what_passes_is_recorded_with_the_machine(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setitem(validate_command.CASES, "fft", validate_command.CASES["fft"][:1])
    file = tmp_path / "new" / "record.json"
    status, out, _ = command(capsys, "fft", "--device", "cpu", "--json", str(file))
    assert status == 0
    assert max(map(len, out.replace(str(file), "").splitlines())) <= 80
    assert out.count("passed  ") == 3
    assert "all 1 reference cases" in out
    record = json.loads(file.read_text())
    assert record["passed"]
    assert {"date", "version", "commit", "device", "ranks", "machine", "cases"} <= set(record)
    assert {"CPU", "Python", "C++ compiler"} <= set(record["machine"])
    # Nothing of a person's folders.
    assert not {"cache folder", "mpiexec"} & set(record["machine"])
    (case,) = record["cases"]
    found = case["findings"]
    assert [one["verdict"] for one in found] == 3 * ["passed"]
    for one in found:
        assert one["source"]
        assert one["error"] <= one["tolerance"]


def test_a_case_that_fails_is_told_and_does_not_stop_the_others(monkeypatch, tmp_path, capsys):
    def defect(device, comm):
        yield finding()
        raise RunError("it blew up")

    def wrong(device, comm):
        yield finding(math.nan)
        yield finding()

    def right(device, comm):
        yield finding()

    cases = [ReferenceCase(run.__name__, run) for run in (defect, wrong, right)]
    monkeypatch.setitem(validate_command.CASES, "advection", cases)
    file = tmp_path / "record.json"
    status, out, err = command(capsys, "advection", "--device", "cpu", "--json", str(file))
    assert status == 1
    assert err.startswith("slipstream: error: 2 of 3 reference cases")
    assert err.count("\n") == 1
    assert "RunError: it blew up" in out
    assert out.count("FAILED") == 2
    assert out.count("passed  ") == 3
    # JSON as others read it has no NaN.
    record = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert [one["verdict"] for one in record["cases"]] == ["failed", "failed", "passed"]
    assert not record["passed"]
    assert record["cases"][1]["findings"][0]["got"] == "nan"


def test_wrong_input_is_one_line(tmp_path, capsys):
    status, _, err = command(capsys, "optics")
    assert (status, err.count("\n")) == (2, 1)
    assert "accepted: spectral, advection, lattice, fft" in err
    status, _, err = command(capsys, "fft", "--json", str(tmp_path))
    assert (status, err.count("\n")) == (2, 1)
    assert "is a folder" in err


def test_every_family_has_cases_whose_titles_tell_them_apart():
    for family in VALIDATED:
        cases = validate_command.CASES[family]
        assert cases
        assert len({one.title for one in cases}) == len(cases)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1 + 1e-9, False)])
def test_a_viscosity_that_is_slightly_wrong_is_found(monkeypatch, factor, passes):
    start = spectral_cases.start

    def start_wrong(device, comm, points, equation, initial, **numerics):
        equation = {**equation, "viscosity": factor * equation["viscosity"]}
        return start(device, comm, points, equation, initial, **numerics)

    monkeypatch.setattr(spectral_cases, "start", start_wrong)
    case = ReferenceCase("vortices", spectral_cases.plane_taylor_green)
    outcome = validate_command.run_case("spectral", case, open_device("cpu"), None)
    assert len(outcome.findings) == 1
    assert not outcome.failure
    assert outcome.passed == passes
