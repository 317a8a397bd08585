"""A few of the damaged and forged states of ``checkpoint_fuzzing.py``."""

import subprocess
import sys

import pytest

from flows import PATIENCE, REPOSITORY, environment


@pytest.mark.thorough
def test_damaged_and_forged_states_end_in_one_line():
    result = subprocess.run(
        [sys.executable, "tests/support/checkpoint_fuzzing.py", "--states", "25"],
        cwd=REPOSITORY,
        env=environment(1),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 defects" in result.stdout
