"""A few of the damaged cases and formulas of ``fuzzing.py``, which runs thousands when asked."""

import pytest

from flows import output_of
from fuzzing import Outcome


@pytest.mark.thorough
def test_damaged_cases_and_formulas_end_in_one_line():
    options = ("--quick", "--cases", "60", "--formulas", "8")
    assert "0 defects" in output_of("tests/support/fuzzing.py", *options)


def test_what_a_command_must_not_do_is_noticed():
    line = "slipstream: error: time.end: must be positive\n"
    assert not Outcome(2, line, 0.1, interrupted=False).defect
    assert "did not end" in Outcome(None, line, 0.1, interrupted=True).defect
    assert "status" in Outcome(3, line, 0.1, interrupted=False).defect
    assert "status" in Outcome(-11, "", 0.1, interrupted=False).defect
    assert "traceback" in Outcome(1, "Traceback (most ...", 0.1, interrupted=False).defect
    assert "refused after" in Outcome(2, line, 5.0, interrupted=False).defect
    assert "2 lines" in Outcome(2, line + line, 0.1, interrupted=False).defect
    assert "control" in Outcome(2, "slipstream: error: \x1b[2J\n", 0.1, interrupted=False).defect
