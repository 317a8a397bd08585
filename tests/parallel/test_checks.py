"""Checks before a run, and of an installation, on several ranks."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from flows import make_case
from slipstream.api.validation import validate_command
from slipstream.api.validation.reference_cases import Finding, ReferenceCase
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.errors import RunError
from slipstream.runs import make_simulation, trial_run

ONES = np.ones(1)


@pytest.mark.slow
def test_a_check_tells_all_ranks_the_same_and_leaves_nothing(
    comm, device, shared_folder, monkeypatch
):
    monkeypatch.setattr(trial_run, "_STEPPING", 0.02)
    monkeypatch.setattr(trial_run, "_PILOT", math.inf)
    case = make_case("grid.points=12", "time.end=0.1", "output.fields_interval=0.05")
    before = sorted(Path(shared_folder).iterdir())
    forecast = trial_run.check_run(
        lambda: make_simulation(case, comm, device),
        case,
        Path(shared_folder) / "one",
        comm,
        Console(quiet=True),
    )
    assert forecast.steps == 10
    assert forecast.counts["fields"] == 3
    if comm is not None:
        comm.Barrier()
        disks = comm.allgather((forecast.disk, forecast.counts))
        assert disks == comm.size * [disks[0]]
    assert sorted(Path(shared_folder).iterdir()) == before
    if comm is not None:
        comm.Barrier()  # before the folder goes


def test_a_case_that_fails_on_one_rank_does_not_stop_the_others(
    comm, device, shared_folder, monkeypatch
):
    ranks, rank = (1, 0) if comm is None else (comm.size, comm.rank)

    def fails_alone(device, comm):
        if rank == ranks - 1:
            raise RunError("here alone")
        yield Finding("ranks", "counted", ranks, float(sum_over_ranks(comm, ONES)[0]), 0.0)

    def counts(device, comm):
        yield Finding("ranks", "counted", ranks, float(sum_over_ranks(comm, ONES)[0]), 0.0)

    cases = [ReferenceCase(run.__name__, run) for run in (fails_alone, counts)]
    monkeypatch.setitem(validate_command.CASES, "advection", cases)
    file = Path(shared_folder) / "validation.json"
    with pytest.raises(RunError, match="1 of 2 reference cases"):
        validate_command.validate("advection", device, comm, file, Console(quiet=True))
    if comm is not None:
        comm.Barrier()
    record = json.loads(file.read_text())
    assert [one["verdict"] for one in record["cases"]] == ["failed", "passed"]
    assert "here alone" in record["cases"][0]["failure"]
    assert record["ranks"] == ranks
    if comm is not None:
        comm.Barrier()
