"""Runs that end by the clock, in time to write, and continue: ``time.wall``, and the log."""

import re

import pytest
from rich.console import Console

import moments
from fake_simulation import CASE, fake_simulation
from slipstream.case import parse_case
from slipstream.case.common_tables import seconds_of
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import own_age, process_age
from slipstream.files import open_checkpoint
from slipstream.files.run_folder import read_run_record
from slipstream.lattice.convergence import Convergence
from slipstream.runs import Interrupted
from slipstream.runs.run_case import RunOptions, run_case
from slipstream.runs.run_recorder import RunLog

QUIET = Console(quiet=True)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("20s", 20),
        ("90m", 5400),
        ("23h30m", 84600),
        ("1d2h", 93600),
        ("1.5h", 5400),
        ("1d2h3m4.5s", 93784.5),
        (7200, 7200),
        (0.5, 0.5),
    ],
)
def test_durations(given, seconds):
    assert seconds_of(given) == seconds
    case = parse_case(moments.CASES["advection"], [f"time.wall={given!r}"])
    assert case.time.wall_seconds == seconds
    assert parse_case(case.to_toml()) == case


@pytest.mark.parametrize(
    "given",
    ["''", "'1'", "'h'", "'30m1h'", "'1h 30m'", "'-1h'", "'23:30:00'", 0, -1, "inf", "true"],
)
def test_what_is_no_duration_is_refused(given):
    with pytest.raises(InputError, match=r"time\.wall: .*'23h30m'"):
        parse_case(CASE, [f"time.wall={given}"])


def test_a_run_ends_in_time_to_write(tmp_path, monkeypatch):
    """By a clock on which each step takes 100 seconds, and each writing 10."""
    now = [0.0]
    for module in (
        "engine.processes.time",
        "runs.time_loop.clock",
        "runs.output_writer.clock",
    ):
        for name in ("monotonic", "perf_counter"):
            monkeypatch.setattr(f"slipstream.{module}.{name}", lambda: now[0])

    def step(_):
        now[0] += 100

    fake = fake_simulation("time.wall='20m'", "output.checkpoint_interval=0.1", on_step=step)
    checkpoint = fake.checkpoint

    def slowly():
        now[0] += 10
        return checkpoint()

    fake.checkpoint = slowly
    with pytest.raises(
        Interrupted, match=r"time\.wall = 20m is over at step 9, .*resume"
    ) as caught:
        run_case(fake, tmp_path, QUIET, options=RunOptions(elapsed=50))
    # With those before, 1050 s are over: two steps more, and writing, would take too long.
    assert now[0] == 1000
    assert caught.value.exit_status == 75
    assert open_checkpoint(tmp_path).step == 9
    (segment,) = read_run_record(tmp_path).segments
    assert (segment.ended_by, segment.to_step) == ("wall", 9)
    log = (tmp_path / "run.log").read_text().splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\dT[\d:]{8}Z info    ", line) for line in log)
    said = [line[29:] for line in log]
    assert said[0].startswith("begins at step 0, t = 0, on 1 rank of ")
    assert "state of step 7, t = 0.7, written" in said
    assert said[-1].startswith("time.wall = 20m is over at step 9")
    assert not (tmp_path / "energy.png").exists()


def test_a_limit_that_setting_up_uses_up_is_an_error(tmp_path):
    """A job that resubmits itself would otherwise do so for ever."""
    with pytest.raises(RunError, match="over before the first step") as caught:
        run_case(fake_simulation("time.wall=10"), tmp_path, QUIET, options=RunOptions(elapsed=11))
    assert caught.value.exit_status == 1


def test_the_age_of_a_command_is_that_of_its_starter(monkeypatch):
    monkeypatch.delenv("SLIPSTREAM_STARTED", raising=False)
    assert 0 < own_age() <= process_age() <= own_age() < 30 * 86400
    monkeypatch.setenv("SLIPSTREAM_STARTED", "1")
    assert process_age() > 1e9


def test_the_log_goes_on_and_keeps_to_its_level(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("slipstream.runs.run_recorder.time.monotonic", lambda: now[0])
    log, messages = RunLog(tmp_path), []
    log.warning("early\nand long")
    log.begin("begins")
    log.debug("hidden")
    for second in range(20000):
        now[0] = float(second)
        log.progress(lambda: messages.append(now[0]) or "on its way")
    intervals = [b - a for a, b in zip([0, *messages], messages, strict=False)]
    assert intervals[0] == 30
    assert intervals == sorted(intervals)
    assert intervals[-1] == 600
    RunLog(tmp_path, "error").begin("not told")
    again = RunLog(tmp_path, "debug")
    again.begin("continues")
    again.debug("shown")
    lines = [line.split(maxsplit=1)[1] for line in (tmp_path / "run.log").read_text().splitlines()]
    assert lines[:2] == ["info    begins", "warning early and long"]
    assert lines[-2:] == ["info    continues", "debug   shown"]
    assert not any("not told" in line or "hidden" in line for line in lines)
    RunLog(tmp_path / "nowhere").begin("no run ends by its log")


def test_what_remains_until_a_flow_is_steady_is_foreseen():
    for factor in (0.5, 0.9):
        convergence, foreseen = Convergence(1e-4), {}
        while not convergence.converged:
            convergence.add(1 - factor ** len(convergence.values))
            foreseen[len(convergence.values)] = convergence.looks_left()
        for number, left in foreseen.items():
            if number > 6:
                assert left == pytest.approx(len(foreseen) - number, rel=0.15, abs=4)
    assert Convergence(1e-4).looks_left() == float("inf")
