"""The benchmark of steps of fields on the host: what it says agrees with itself."""

import json

import pytest

from bench.__main__ import main
from bench.dns import step_variants
from refusals import status_of
from slipstream.api.forecast import measured_rates
from slipstream.fft import Streaming


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    """Measure bandwidth with little memory: its value does not matter here."""
    monkeypatch.setattr(measured_rates, "_BUFFER", 1 << 16)


def command(*arguments):
    return status_of("dns", "--device", "cpu", "--n", "12", *arguments, main=main)


def result_of(folder, *arguments):
    """Return the result in the record of a command that ends well."""
    record = folder / "record.json"
    assert command(*arguments, "--json", str(record)) == 0
    return json.loads(record.read_text())["result"]


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["hd", "gpe"])
def test_a_step_stands_beside_the_bus_and_the_synchronous_one(tmp_path, capsys, model):
    options = ("--residency", "host", "--model", model, "--repetitions", "2", "--memory", "2 MiB")
    result = result_of(tmp_path, *options)
    asked, synchronous = result["rows"]
    for row in (asked, synchronous):
        assert row["device memory (bytes)"] <= 2 << 20
        assert 0 < row["ky whose columns stay"] <= row["ky"]
        assert row["of the bound"] == pytest.approx(row["bound (s)"] / row["seconds per step"])
        most = max(row["bytes over the bus, in and out"])
        assert row["bound (s)"] == pytest.approx(most / result["bus (GB/s)"]["both"] / 1e9)
        timers = row["timers (s)"]
        assert {"copy in", "copy out", "fft", "compute", "total"} <= timers.keys()
        assert all(timers["exposed"][name] <= timers["total"] for name in timers["exposed"])
    assert (asked["schedule"], synchronous["schedule"]) == ("overlap", "serial")
    assert synchronous["synchronous / this"] == 1
    assert "pipelined, as asked" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_step_from_disk_stands_beside_the_drive_and_all_else(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measured_rates, "_LEAST_ON_DRIVE", 8 << 20)
    options = ("--residency", "disk", "--scratch", str(tmp_path), "--repetitions", "1")
    result = result_of(tmp_path, *options)
    assert result["bus (GB/s)"].keys() == {"in", "out", "mixed"}
    for row in result["rows"]:
        moved = sum(row["bytes over the bus, in and out"])
        drive, alone = row["bound by the drive (s)"], row["seconds without the drive"]
        assert drive >= moved / result["bus (GB/s)"]["mixed"] / 1e9 * (1 - 1e-9)
        assert row["bound (s)"] == max(drive, alone)
        assert row["of the bound"] == pytest.approx(row["bound (s)"] / row["seconds per step"])
    assert "takes longer" in capsys.readouterr().out


@pytest.mark.parametrize("shares", [(1, 1), (3, 1), (0, 1), (1, 0)])
def test_requests_of_a_drive_are_mixed_in_their_shares(shares):
    reads, writes = (range(first, first + 100) for first in (0, 100))
    actual = measured_rates._mixed(reads, writes, shares)
    ways = [way for way, _ in actual]
    assert len(actual) >= 100 and len(set(actual)) == len(actual)
    assert ways.count("in") == pytest.approx(len(actual) * shares[0] / sum(shares), abs=1)
    for number in range(0, len(actual), 4):  # and at any time
        part = ways[:number]
        assert part.count("in") == pytest.approx(number * shares[0] / sum(shares), abs=1)


def test_the_synchronous_step_is_measured_alone_where_it_is_asked_for(tmp_path):
    options = ("--residency", "host", "--schedule", "serial", "--repetitions", "1")
    (row,) = result_of(tmp_path, *options)["rows"]
    assert (row["name"], row["synchronous / this"]) == ("synchronous, as asked", 1)


@pytest.mark.thorough
def test_ways_that_memory_does_not_allow_are_left_out_and_said(tmp_path, capsys):
    options = ("--residency", "host", "--repetitions", "1", "--n", "16", "--sweep")
    result = result_of(tmp_path, *options, "--memory", "192 KiB")
    names = [row["name"] for row in result["rows"]]
    assert "2 streams" in names
    assert "is too little" in result["left out"]["16 streams"]
    assert not result["left out"].keys() & set(names)
    assert "left out: 16 streams: run.memory" in capsys.readouterr().out
    assert command(*options, "--memory", "2 kB") == 2


def test_sweep_has_the_streams_of_ghost():
    variants = step_variants(Streaming(), sweep=True)
    assert {one.streaming.streams for one in variants} == {0, 1, 2, 4, 8, 16}
    assert {one.streaming.update for one in variants} == {"device", "host"}
    assert len({one.name for one in variants}) == len(variants) == 10


@pytest.mark.parametrize(
    "asked", [{}, {"resident": False}, {"devices": 2}, {"update": "host"}, {"copies": "zero-copy"}]
)
def test_sweep_measures_nothing_twice(asked):
    variants = step_variants(Streaming(**asked), sweep=True)
    assert len({(one.streaming, one.schedule) for one in variants}) == len(variants)


@pytest.mark.parametrize("option", [{"devices": 2}, {"update": "host"}])
def test_no_columns_are_said_to_stay_where_none_can(option):
    assert Streaming().resident
    assert not Streaming(**option, resident=True).resident


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sweep",), "--sweep is for --residency host"),
        (("--devices", "2"), "--devices is for --residency host"),
        (("--residency", "cloud"), "--residency 'cloud'; accepted: device, host"),
        (("--residency", "host", "--memory", "8 parsecs"), "8 parsecs"),
    ],
)
def test_what_cannot_be_is_one_line_with_status_2(capsys, options, message):
    assert command(*options) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
