"""The sum that ``make gpu-check`` ends with, on a machine that need not have a GPU."""

import types
from pathlib import Path

import pytest

import gpu_check
from flows import REPOSITORY

GOOD = [(["passed"], 0)] * (sum(map(len, gpu_check.GROUPS)) - 1)


def outcomes(monkeypatch, runs):
    """Let each part of the check write some outcomes and end with a status."""
    parts = [part for group in gpu_check.GROUPS for part in group]
    assert len(runs) == len(parts)
    waiting = {(ranks, tests): run for (ranks, tests, _), run in zip(parts, runs, strict=True)}

    def launch(ranks, tests, record, seconds, log):
        lines, status = waiting[ranks, tests]
        Path(record).write_text("".join(f"{line} test\n" for line in lines))
        return status

    monkeypatch.setattr(gpu_check, "cuda_device_count", lambda: 2)
    monkeypatch.setattr(gpu_check, "_launch", launch)


@pytest.mark.parametrize(
    ("runs", "last_line", "status"),
    [
        ([(["passed"] * 3, 0), *GOOD], f"{len(GOOD) + 3} passed, 0 failed", 0),
        ([(["passed", "failed"], 1), *GOOD], f"{len(GOOD) + 1} passed, 1 failed", 1),
        # A crash that no test reported, and a launch in which nothing ran.
        ([(["passed"], 139), *GOOD], f"{len(GOOD) + 1} passed, 1 failed", 1),
        ([*GOOD, ([], 0)], f"{len(GOOD)} passed, 1 failed", 1),
    ],
)
def test_last_line_is_the_sum_of_all_parts(monkeypatch, capsys, runs, last_line, status):
    outcomes(monkeypatch, runs)
    assert gpu_check.main([]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_machine_without_a_gpu_fails_the_check(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "cuda_device_count", lambda: 0)
    assert gpu_check.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


def test_groups_end_within_ten_minutes():
    longest = [max(seconds for _, _, seconds in group) for group in gpu_check.GROUPS]
    assert sum(longest) < 600
    assert {ranks for group in gpu_check.GROUPS for ranks, _, _ in group} == {1, 2, 4}


@pytest.mark.parametrize(
    ("folder", "shares"),
    [("physics", gpu_check.PHYSICS), ("parallel", gpu_check.PARALLEL)],
)
def test_every_file_is_in_one_share(folder, shares):
    files = REPOSITORY.glob(f"tests/{folder}/test_*.py")
    names = sorted(str(path.relative_to(REPOSITORY)) for path in files)
    assert names == sorted(name for share in shares for name in share)


def test_a_folder_without_tests_has_empty_shares():
    assert gpu_check.shares("tests/no-such-folder", 2) == [(), ()]


def test_tally_notes_failures_of_all_ranks_and_successes_of_one(tmp_path):
    record = tmp_path / "record"
    for is_first in (True, False):
        tally = gpu_check.Tally(record, is_first)
        for when, outcome in (("setup", "passed"), ("call", "passed"), ("call", "failed")):
            report = types.SimpleNamespace(
                nodeid="t",
                when=when,
                passed=outcome == "passed",
                failed=outcome == "failed",
                longreprtext="why",
            )
            tally.pytest_runtest_logreport(report)
    assert record.read_text().split("\n")[:-1] == ["passed t", "failed t", "failed t"]


def test_launch_that_takes_too_long_is_stopped_and_tells_what_failed_before(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check.mpi_launch, "launch_environment", lambda ranks: {})
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 30\n")
    script.chmod(0o755)
    monkeypatch.setattr(gpu_check.sys, "executable", str(script))
    log, record = tmp_path / "log", tmp_path / "record"
    gpu_check._failures(record).write_text("test_of_something\nE  because")
    assert gpu_check._launch(1, ["tests"], record, 0.2, log) == 1
    assert "test_of_something\nE  because" in log.read_text()
    assert "not done after 0.2 s" in log.read_text()
