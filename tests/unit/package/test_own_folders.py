"""Simultaneous runs of the tests do not interfere: each has its own temporary folder."""

import os
import subprocess
import sys

import pytest

import conftest
from flows import PATIENCE, REPOSITORY, environment

BEGIN = """
import os, tempfile, conftest
made = conftest.use_own_folder()
assert conftest.use_own_folder() is None  # processes that a run starts share it
assert tempfile.gettempdir() == made
os.rmdir(made)
print(made)
"""


@pytest.mark.thorough
def test_runs_at_the_same_time_have_folders_of_their_own(tmp_path):
    places = [str(REPOSITORY / name) for name in ("src", "tests", "tests/support")]
    paths = os.pathsep.join([*places, environment()["PYTHONPATH"]])
    outside = {"TMPDIR": str(tmp_path), "PYTHONPATH": paths}
    old = tmp_path / "slipstream-tests-of-last-week"
    old.mkdir()
    os.utime(old, (0, 0))
    variables = {k: v for k, v in environment().items() if k != conftest.FOLDER} | outside
    runs = [
        subprocess.run(
            [sys.executable, "-c", BEGIN],
            env=variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    made = [run.stdout.strip() for run in runs]
    assert made[0] != made[1]
    assert not old.exists()
    assert all(one.startswith(str(tmp_path / "slipstream-tests-")) for one in made)
