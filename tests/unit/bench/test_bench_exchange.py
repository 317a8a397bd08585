import json

import matplotlib.image
import pytest

from bench.__main__ import main
from bench.exchange import (
    LIMITS,
    ExchangeRequest,
    measure_exchange,
    message_sizes,
    print_exchange,
)
from bench.harness import names_of, write_record
from bench.pictures import check_format, plot_exchange
from refusals import status_of
from slipstream.api.forecast.measured_rates import (
    ELEMENT,
    PATTERNS,
    pattern_plan,
    senders_and_receivers,
)
from slipstream.engine.errors import InputError, bytes_of, bytes_text

SIZES = message_sizes(1 << 12, 1 << 20)


def result_of(transports=("peer", "mpi-p2p", "mpi"), nodes=1):
    """Return a made-up result: 1, 2, ... GB/s, the limit is 10."""
    rows = [
        {
            "pattern": pattern,
            "transport": name,
            "bytes": size,
            "seconds": size / (rate * 1e9),
            "GB/s per rank": float(rate),
            "fraction of the limit": rate / 10,
            "messages to other nodes": 2,
            "bytes to other nodes": 2 * size,
            "messages within the node": 1,
            "bytes within the node": size,
        }
        for pattern in PATTERNS
        for rate, name in enumerate(transports, 1)
        for size in SIZES
    ]
    return {
        "ranks": 4,
        "nodes": nodes,
        "repetitions": 3,
        "limit": LIMITS["cpu"],
        "limits (GB/s per rank)": dict.fromkeys(PATTERNS, 10.0),
        "left out": {"nccl": "transport 'nccl' needs a GPU"},
        "rows": rows,
    }


def command(*arguments):
    return status_of("exchange", *arguments, main=main)


def test_default_messages_go_from_4_kib_to_256_mib():
    assert message_sizes() == [4096 * 4**power for power in range(9)]
    assert message_sizes()[-1] == 256 * 2**20
    assert message_sizes(8, 8) == [8]
    assert message_sizes(8, 127) == [8, 32]


def test_patterns_by_hand():
    assert senders_and_receivers("uni-directional", 3) == [(0, 1)]
    assert senders_and_receivers("bi-directional", 3) == [(0, 1), (1, 0)]
    assert len(senders_and_receivers("all-to-all", 4)) == 12


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_ends_of_a_message_agree_and_nobody_sends_to_itself(pattern, ranks):
    plans = [pattern_plan(pattern, rank, ranks, 7) for rank in range(ranks)]
    sent = {(plan.rank, block.peer): block.box for plan in plans for block in plan.sends}
    received = {(block.peer, plan.rank): block.box for plan in plans for block in plan.receives}
    assert sent == received
    assert sorted(sent) == sorted(senders_and_receivers(pattern, ranks))
    assert all(sender != receiver for sender, receiver in sent)
    for plan in plans:
        assert plan.send_size == plan.off_rank_elements() == 7 * len(plan.sends)
        assert [block.offset for block in plan.sends] == [7 * n for n in range(len(plan.sends))]


def test_bytes_that_leave_a_rank_in_an_all_to_all_by_hand():
    plan = pattern_plan("all-to-all", 1, 4, 1024 // ELEMENT.itemsize)
    assert plan.off_rank_elements() * ELEMENT.itemsize == 3 * 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4KiB", 4096), ("1 mib", 1 << 20), ("2GiB", 2 << 30), ("1.5 kB", 1500)],
)
def test_sizes_can_be_written_with_units(text, size):
    assert bytes_of(text) == size


def test_sizes_and_lists_as_text():
    assert [bytes_text(n) for n in (8, 4096, 3 << 19)] == ["8 B", "4 KiB", "1.5 MiB"]
    assert names_of(" mpi, peer,") == ("mpi", "peer")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--smallest", "3 apples"], "size '3 apples'"),
        (["--smallest", "12"], "multiple of 8"),
        (["--smallest", "0"], "size '0'"),
        (["--largest", "1KiB"], "smaller than the smallest"),
        (["--transport", "mpi,pigeon"], "transport 'pigeon'"),
        (["--plot", "picture.doc"], "--plot 'picture.doc'"),
        (["--device", "cpu"], "--ranks 2"),
        (["--ranks-per-node", "0"], "--ranks-per-node"),
        (["--device", "abacus"], "device 'abacus'"),
    ],
)
def test_wrong_input_is_one_line(arguments, expected, capsys):
    assert command(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: ")
    assert expected in error
    assert error.count("\n") == 1


def test_one_rank_has_nobody_to_exchange_with(device):
    with pytest.raises(InputError, match="--ranks 2"):
        measure_exchange(ExchangeRequest(), device, None)


def test_record_says_what_is_needed_to_understand_it(device, tmp_path):
    write_record(tmp_path / "deep" / "exchange.json", "exchange", device, result_of())
    record = json.loads((tmp_path / "deep" / "exchange.json").read_text())
    assert record["benchmark"] == "exchange"
    assert record["device"] == device.name
    assert {"commit", "date", "machine", "result"} <= set(record)
    assert {"Slipstream", "NumPy", "MPI", "CPU"} <= set(record["machine"])
    assert record["result"] == result_of()


def test_table_shows_every_row_and_what_was_left_out(capsys):
    print_exchange("title", result_of())
    text = capsys.readouterr().out
    assert "title" in text
    for pattern in PATTERNS:
        assert pattern in text
    assert text.count("1 MiB") == 9
    assert "left out: nccl: transport 'nccl' needs a GPU" in text
    assert "other nodes" not in text


def test_table_of_several_nodes_has_what_is_sent_between_them(capsys):
    print_exchange("title", result_of(nodes=2))
    text = capsys.readouterr().out
    assert text.count("2, 2 MiB") == 9


@pytest.mark.thorough
@pytest.mark.parametrize("transports", [("mpi",), tuple("abcdefgh")])
def test_picture_is_written(transports, tmp_path):
    path = tmp_path / "deep" / "exchange.png"
    check_format(path)
    plot_exchange(path, "exchange between 4 ranks", result_of(transports))
    height, width, _ = matplotlib.image.imread(path).shape
    assert width > height > 100
