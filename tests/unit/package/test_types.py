"""What type checkers understand of the public interface."""

import os
import subprocess
import sys

from flows import PATIENCE, REPOSITORY


def test_a_typed_program_is_understood_and_its_mistakes_are_found():
    """By mypy as `make lint` runs it, of whose cache this makes use."""
    command = [sys.executable, "-m", "mypy", "tests/support/typed_use.py"]
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "MYPYPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no issues found" in result.stdout
