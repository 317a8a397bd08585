"""The benchmark of one rank of many: rows, and the messages of its step."""

import json

import pytest

from slipstream.bench import benchmarks, harness, ranks_bench
from slipstream.bench.requests import RanksRequest, counts_of
from slipstream.errors import InputError


def in_this_process(asked, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["-c", json.dumps(asked)])
    ranks_bench.main()
    return json.loads(capsys.readouterr().out)


def test_each_row_is_one_rank_of_a_step_or_of_a_transform(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        ranks_bench, "_in_fresh_process", lambda asked: in_this_process(asked, monkeypatch, capsys)
    )
    request = RanksRequest(
        device="cpu", of=(4, 4096), points=64, transport="mpi-p2p", json=tmp_path / "record.json"
    )
    harness.run_benchmark("ranks", benchmarks.BENCHMARKS["ranks"].run, request)
    rows = json.loads(request.json.read_text())["result"]["rows"]
    assert [(row["what"], row["ranks"]) for row in rows] == [
        ("step", 4),
        ("transform", 4),
        ("transform", 4096),
    ]
    # A step of four substages exchanges twice in each: three fields, then five.
    assert rows[0]["exchanges"] == 8
    assert rows[0]["peers"] == 3 and rows[0]["most messages to a peer"] == 4 * (3 + 5)
    assert rows[2]["peers"] < 2 * 64
    assert "RK4 step" in capsys.readouterr().out


def test_numbers_of_ranks_are_numbers():
    assert counts_of("2, 16") == (2, 16)
    with pytest.raises(InputError, match="--of '2,x'; accepted"):
        counts_of("2,x")
