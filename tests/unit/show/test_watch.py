"""`slipstream watch`: what it shows of a run from its files alone, at any moment."""

import math
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from flows import make_case
from refusals import status_of
from slipstream.engine import stop_signals
from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError
from slipstream.files.run_folder import RunRecord, Segment, write_run_record
from slipstream.files.time_series import _MOST_ROWS, SeriesTail
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case
from slipstream.show import run_status
from slipstream.show.run_status import RunWatcher, sparkline, steady_at, watch

HEAD = "# energy: energy of the flow\nstep,time,energy\n"
HERE = socket.gethostname()


def rows(first, last):
    return "".join(f"{n},{n / 10!r},{1 / (1 + n)!r}\n" for n in range(first, last))


def record(folder, began=100.0, **changed):
    """Write a record whose segment began this number of seconds ago."""
    folder.mkdir(exist_ok=True)
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - began))
    segment = Segment(began=date, host="elsewhere", pid=1, to_step=0, end_time=10.0)
    for name, value in changed.items():
        setattr(segment, name, value)
    write_run_record(folder, RunRecord("a flow", "spectral", [segment]))


def old(folder, seconds):
    for path in folder.iterdir():
        os.utime(path, times=(time.time() - seconds,) * 2)


@pytest.fixture
def folder(tmp_path):
    """The folder of a run that is under way elsewhere, for 100 s."""
    path = tmp_path / "run"
    record(path)
    (path / "diagnostics.csv").write_text(HEAD + rows(0, 51))
    return path


# -- the series ------------------------------------------------------------------------------------


def test_a_series_with_a_hole_of_a_terabyte_has_its_rows(tmp_path):
    path = tmp_path / "diagnostics.csv"
    path.write_text("step,time,energy\n0,0.0,1.0\n1,0.1,0.5\n")
    os.truncate(path, 1 << 40)
    tail = SeriesTail(path)
    for _ in range(2):
        tail.read()
        assert tail.values("energy").tolist() == [1.0, 0.5]


def test_rows_are_read_as_they_come_and_never_half(tmp_path):
    path = tmp_path / "diagnostics.csv"
    tail = SeriesTail(path)
    assert not tail.read()
    whole = HEAD + rows(0, 4)
    expected = [0, 0, 1, 2, 3]
    for place in range(len(whole) + 1):
        path.write_text(whole[:place])
        tail.read()
        complete = whole[:place].count("\n")
        assert len(tail.values("time")) == (expected[max(complete - 1, 0)] if complete < 6 else 4)
    assert tail.labels == {"energy": "energy of the flow"}
    np.testing.assert_allclose(tail.values("energy"), [1, 1 / 2, 1 / 3, 1 / 4])
    with path.open("a") as file:
        file.write("4,0.4\nwhat,ever,else\n\0\0\0\n5,0.5,0.25\n")
    assert tail.read()
    assert (tail.last("step"), tail.last("energy")) == (5, 0.25)
    assert len(tail.values("time")) == 5


def test_rows_after_the_state_that_a_run_goes_on_from_are_forgotten(tmp_path):
    path = tmp_path / "diagnostics.csv"
    tail = SeriesTail(path)
    path.write_text(HEAD + rows(0, 40))
    tail.read()
    # As it is when the series is cut, when it is written again, and when it just continues.
    with path.open("r+") as file:
        file.truncate(len(HEAD + rows(0, 20)))
    tail.read()
    assert tail.last("step") == 19
    (tmp_path / "new").write_text(HEAD + rows(0, 10) + rows(10, 80))
    (tmp_path / "new").replace(path)
    tail.read()
    assert tail.last("step") == 79
    with path.open("a") as file:
        file.write(rows(30, 35))
    tail.read()
    assert tail.values("time").tolist() == [n / 10 for n in range(35)]


def test_of_many_rows_some_are_kept_and_the_last(tmp_path):
    path = tmp_path / "diagnostics.csv"
    count = 3 * _MOST_ROWS + 2
    path.write_text("step,time\n" + "".join(f"{n},{n}\n" for n in range(count)))
    tail = SeriesTail(path)
    tail.read()
    times = tail.values("time")
    assert len(times) <= _MOST_ROWS + 1
    assert (times[0], times[-1], tail.last("step")) == (0, count - 1, count - 1)
    assert np.unique(np.diff(times)[:-1]).size == 1


def test_sparklines_rise_where_values_do():
    times = np.linspace(0, 1, 100)
    rising = sparkline(times, times, 8)
    assert rising == "▁▂▃▄▅▆▇█"
    assert sparkline(times, -times, 8) == rising[::-1]
    # Orders of magnitude are as far from each other.
    assert sparkline(times, 10 ** (8 * times), 8) == rising
    assert len(set(sparkline(times, np.full(100, 3.0), 8))) == 1
    assert sparkline(times, np.where(times < 0.5, np.nan, times), 8) == rising
    assert sparkline(times[:0], times[:0], 8) == ""
    gap = np.concatenate([times[:20], times[80:]])
    assert "  " in sparkline(gap, gap, 20)


# -- facts of a run --------------------------------------------------------------------------------


def test_a_run_under_way_tells_how_far_and_how_fast_it_is(folder):
    status = RunWatcher(folder).look()
    assert (status.state, status.is_over) == ("running", False)
    assert (status.step, status.time, status.end) == (50, 5.0, 10.0)
    assert status.fraction == pytest.approx(0.5)
    # 50 steps and half of the time in 100 s.
    assert status.steps_per_second == pytest.approx(0.5, rel=0.05)
    assert status.remaining == pytest.approx(100, rel=0.05)


def test_speed_is_that_of_while_it_is_watched(folder, monkeypatch):
    now = [time.time()]
    monkeypatch.setattr(run_status.clock, "time", lambda: now[0])
    watcher = RunWatcher(folder)
    watcher.look()
    now[0] += 10
    with (folder / "diagnostics.csv").open("a") as file:
        file.write(rows(51, 71))
    status = watcher.look()
    assert status.steps_per_second == pytest.approx(2.0, rel=0.05)
    assert status.remaining == pytest.approx(15, rel=0.05)


@pytest.mark.parametrize(
    ("changed", "silence", "state", "is_over"),
    [
        ({}, 600, "running", False),
        ({}, 3600, "silent", False),
        ({"ended": "x", "ended_by": "end"}, 3600, "ended", True),
        ({"ended": "x", "ended_by": "wall"}, 3600, "stopped by time.wall", True),
        ({"ended": "x", "ended_by": "failed", "error": "it blew up"}, 0, "failed", True),
        ({"host": HERE, "pid": os.getpid()}, 600, "running", False),
    ],
)
def test_what_has_become_of_a_run(folder, changed, silence, state, is_over):
    record(folder, **changed)
    old(folder, silence)
    status = RunWatcher(folder).look()
    assert (status.state, status.is_over) == (state, is_over)
    assert status.error == changed.get("error", "")
    assert status.silence == pytest.approx(silence, abs=30)


def test_a_run_that_was_killed_on_this_machine_is_known_to_be(folder):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    record(folder, host=HERE, pid=process.pid)
    # Not while there are signs of life: another machine may have the same name.
    assert RunWatcher(folder).look().state == "running"
    old(folder, 60)
    status = RunWatcher(folder).look()
    assert (status.state, status.is_over) == ("killed", True)


def test_a_flow_through_pores_ends_when_it_is_steady(folder):
    case = "[convergence]\ntolerance = 1e-3\ninterval = 100\n"
    record(folder, end_time=20000.0, case=case)
    lines = [f"{n},{float(n)!r},{math.exp(-n / 300)!r}\n" for n in range(0, 1001, 100)]
    (folder / "diagnostics.csv").write_text("step,time,residual\n" + "".join(lines))
    status = RunWatcher(folder).look()
    assert status.end == pytest.approx(300 * math.log(1e3), rel=1e-6)
    assert steady_at(np.arange(5.0), np.arange(1.0, 6.0) / 10, 1e-3) is None


def test_half_a_record_is_told_and_the_series_is_shown(folder, capsys):
    whole = (folder / "run.json").read_bytes()
    for place in (0, 1, len(whole) // 2, len(whole) - 2):
        (folder / "run.json").write_bytes(whole[:place])
        status = RunWatcher(folder).look()
        assert status.step == 50
        assert "not the record of a run" in status.error
    (folder / "run.json").unlink()
    assert RunWatcher(folder).look().state == "running"


def test_watching_changes_nothing(folder):
    def state():
        return {path.name: (path.read_bytes(), path.stat().st_mtime) for path in folder.iterdir()}

    before = state()
    watch(folder, Console(quiet=True), once=True)
    assert state() == before


# -- how it is shown -------------------------------------------------------------------------------


def shown(folder, *, terminal=False, **options):
    with open(os.devnull, "w") as nowhere:
        console = Console(
            file=nowhere, record=True, width=80, force_terminal=terminal, legacy_windows=False
        )
        watch(folder, console, **options)
    return console.export_text()


def test_a_picture_fits_into_80_columns(folder):
    long = "x" * 200
    record(folder, warnings=[f"kmax_eta is low {long}", *"abc"], devices=[long], host="somewhere")
    (folder / "checkpoints" / "000000040.zarr").mkdir(parents=True)
    said = shown(folder, once=True)
    assert max(map(len, said.splitlines())) <= 80
    for text in ("a flow", "running", "step 50, t = 5 of 10", "50%", "energy", "▁", " steps/s"):
        assert text in said
    assert "last state: step 40" in said
    assert "4 warnings" in said and "warning: c" in said


def test_lines_tell_what_is_new_until_the_end(tmp_path):
    folder, looks = tmp_path / "run", []

    def proceed(interval):
        looks.append(interval)
        if len(looks) == 2:
            record(folder)
        elif len(looks) == 4:
            (folder / "diagnostics.csv").write_text(HEAD + rows(0, 51))
        elif len(looks) == 6:
            record(folder, ended="x", ended_by="failed", to_step=50, to_time=5.0, error="blew up")

    said = shown(folder, sleep=proceed, interval=0.5).splitlines()
    assert looks == 6 * [0.5]
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in said[:-1])
    assert "waiting for a run in" in said[0]
    assert "step 0, t = 0 of 10, running" in said[1]
    assert "step 50, t = 5 of 10, running" in said[2]
    assert "failed" in said[-2]
    assert said[-1] == "blew up"


def test_a_terminal_shows_one_picture_that_changes(folder):
    def proceed(_interval):
        record(folder, ended="x", ended_by="end", to_step=100, to_time=10.0)

    said = shown(folder, terminal=True, sleep=proceed)
    assert "running" in said and "ended" in said
    assert "100%" in said


def test_a_run_is_watched_as_it_is(tmp_path):
    case = make_case("grid.points=12", "time.end=0.1", "output.pictures=false")
    run_case(make_simulation(case, None, open_device("cpu")), tmp_path / "one", Console(quiet=True))
    said = shown(tmp_path / "one", once=True, names=("dissipation", "helicity"))
    assert "step 10, t = 0.1 of 0.1" in said
    assert "ended" in said and "helicity" in said and "last state: step 10" in said
    assert "enstrophy" not in said
    with pytest.raises(InputError, match=r"--series 'heat' is unknown; accepted: .*energy"):
        shown(tmp_path / "one", once=True, names=("heat",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--once"], "no run is there"),
        (["case.toml", "--once"], "is a file"),
        (["nowhere", "--interval", "0"], "--interval 0"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text("")
    status = status_of("watch", *arguments)
    err = capsys.readouterr().err
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_who_leaves_by_ctrl_c_has_not_failed(folder, monkeypatch, capsys, number, status):
    def leave(*_arguments, **_options):
        raise stop_signals.StopRequest(number)

    monkeypatch.setattr(run_status, "watch", leave)
    assert status_of("watch", str(folder)) == status
