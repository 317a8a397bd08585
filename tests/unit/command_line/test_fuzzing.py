"""A few of the damaged cases and formulas of ``fuzzing.py``, which runs thousands when asked."""

import subprocess
import sys

import pytest

from flows import PATIENCE, REPOSITORY, environment
from fuzzing import Outcome


@pytest.mark.thorough
def test_damaged_cases_and_formulas_end_in_one_line():
    program = [sys.executable, "tests/support/fuzzing.py"]
    command = [*program, "--quick", "--cases", "60", "--formulas", "8"]
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(1),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 defects" in result.stdout


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
