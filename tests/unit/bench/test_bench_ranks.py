"""The benchmark of one rank of many: rows, and the messages of its step."""

import json

import pytest

from bench import harness, one_rank, ranks
from bench.ranks import RanksRequest, counts_of
from slipstream.engine.errors import InputError


def in_this_process(asked, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["-c", json.dumps(asked)])
    one_rank.main()
    return json.loads(capsys.readouterr().out)


@pytest.mark.thorough
def test_each_row_is_one_rank_of_a_step_or_of_a_transform(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        ranks, "_in_fresh_process", lambda asked: in_this_process(asked, monkeypatch, capsys)
    )
    request = RanksRequest(
        device="cpu",
        of=(4, 64, 4096),
        points=64,
        transport="mpi-p2p",
        json=tmp_path / "record.json",
    )
    harness.run_benchmark("ranks", ranks.run, request)
    rows = json.loads(request.json.read_text())["result"]["rows"]
    assert [(row["what"], row["ranks"]) for row in rows] == [
        ("slab step", 4),
        ("transform", 4),
        ("slab step", 64),
        ("pencil step", 64),
        ("transform", 64),
        ("transform", 4096),
    ]
    # A step of four substages exchanges twice in each: three fields, then five, in one message.
    assert rows[0]["exchanges"] == 8
    assert rows[0]["peers"] == 3 and rows[0]["most messages to a peer"] == 8
    # Pencils of 8 x 8 ranks exchange four times in each.
    assert rows[3]["exchanges"] == 16 and rows[3]["peers"] == 2 * 7
    assert rows[-1]["peers"] < 2 * 64
    assert "RK4 step in pencils" in capsys.readouterr().out


def test_numbers_of_ranks_are_numbers():
    assert counts_of("2, 16") == (2, 16)
    with pytest.raises(InputError, match="--of '2,x'; accepted"):
        counts_of("2,x")
