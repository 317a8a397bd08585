"""The record of a run, ``run.json``: what each segment was, however it ended."""

import json

import pytest
from rich.console import Console

from fake_simulation import fake_simulation
from refusals import refused
from slipstream.case import parse_case
from slipstream.engine.errors import InputError, RunError
from slipstream.files.run_folder import read_run_record
from slipstream.runs.run_case import RunOptions, run_case

QUIET = Console(quiet=True)


def test_a_run_is_recorded_from_its_start_to_its_end(tmp_path):
    seen = []

    def look(fake):
        seen.append(read_run_record(tmp_path))
        fake.warn([f"warning {fake.step}"])

    options = RunOptions(settings=["output.pictures=false"])
    run_case(fake_simulation(on_step=look), tmp_path, QUIET, options=options)
    (early,), record = seen[0].segments, read_run_record(tmp_path)
    assert (early.ended, early.ended_by, early.to_step) == (None, None, 0)
    (segment,) = record.segments
    assert (record.title, record.family, segment.ended_by) == ("test", "spectral", "end")
    assert (segment.from_step, segment.to_step, segment.end_time) == (0, 10, 1.0)
    assert segment.to_time == pytest.approx(1.0)
    assert segment.settings == ["output.pictures=false"]
    assert segment.description["points"] == "4 x 6 x 8"
    assert segment.began <= segment.updated == segment.ended
    assert parse_case(segment.case) == fake_simulation().case
    assert segment.warnings == [f"warning {step}" for step in range(1, 11)]
    assert {"time steps", "start"} <= segment.parts.keys()
    assert segment.timers == {"fft": 0.25, "compute": 0.5}


def test_a_failed_run_says_what_has_failed(tmp_path):
    with pytest.raises(RunError):
        run_case(fake_simulation(blow_up_at=0.5), tmp_path, QUIET)
    (segment,) = read_run_record(tmp_path).segments
    assert segment.ended_by == "failed" and "blown up" in segment.error


def test_a_record_may_lack_everything_but_not_be_rubbish(tmp_path):
    assert read_run_record(tmp_path).segments == []
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"format": 1, "segments": [{"pid": 3, "later": 1}], "new": []}))
    assert read_run_record(tmp_path).segments[0].pid == 3
    for text in ("", "[]", '{"segments": 3}', '{"format": 7}', '{"segments": [{"pid": "x"}]}'):
        path.write_text(text)
        with refused(r"run\.json"):
            read_run_record(tmp_path)
    # A run that continues in the folder is not kept from it.
    run_case(fake_simulation(), tmp_path / "other", QUIET)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        read_run_record(tmp_path)
