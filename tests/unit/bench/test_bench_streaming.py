"""The benchmark of arrays on the host: what it measures is right, and it says so."""

import json
from pathlib import Path

import pytest

from bench import benchmarks
from bench.fft_bench import print_streaming, transform_variants
from bench.harness import quietest, timers_of
from bench.step_bench import print_streamed_step
from slipstream.cli import run_app
from slipstream.fft import Streaming
from slipstream.forecast import measured_rates
from slipstream.schedule import Timeline
from slipstream.schedule.timeline import Entry


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    """Let bandwidth be measured with little memory: its value does not matter here."""
    monkeypatch.setattr(measured_rates, "_BUFFER", 1 << 16)


def command(*arguments):
    with pytest.raises(SystemExit) as caught:
        run_app(
            benchmarks.app, "bench", ["fft", "--residency", "host", "--device", "cpu", *arguments]
        )
    return caught.value.code


def test_timers_are_those_of_the_run_that_was_disturbed_least():
    """Also where each run adds to the timeline of the step."""
    line, ends = Timeline(), iter((5.0, 3.0, 4.0))

    def profile():
        line.entries.append(Entry("copy in", "copy", "copy in", 1.0, next(ends)))
        return line

    timers = timers_of(quietest(profile))
    assert (timers["total"], timers["copy in"], timers["exposed"]["copy"]) == (2.0, 2.0, 2.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--in-place",),
        ("--dtype", "complex64", "--fields", "2"),
        ("--truncation", "2/3"),
        ("--layout", "pencil"),
    ],
)
def test_transforms_are_right_and_stand_beside_the_bus(tmp_path, capsys, options):
    record, picture = tmp_path / "record.json", tmp_path / "timelines.png"
    code = command(
        "--n",
        "12,10,9",
        "--repetitions",
        "2",
        "--memory",
        "1 MiB",
        *options,
        "--json",
        str(record),
        "--timelines",
        str(picture),
    )
    assert code == 0
    assert picture.stat().st_size > 0
    result = json.loads(record.read_text())["result"]
    asked, synchronous = result["rows"]
    epsilon = 1e-6 if "complex64" in options else 1e-14
    for row in (asked, synchronous):
        # Sums of a thousand terms err by some tens of roundings.
        assert row["error of sampled modes"] <= 30 * epsilon
        squares = row["error of the sum of squares"]
        assert squares is None if "2/3" in options else squares <= 30 * epsilon
        assert row["device memory (bytes)"] <= 1 << 20
        assert min(row["seconds"].values()) > 0
        assert row["of the bound"]["forward"] == pytest.approx(
            row["bound (s)"] / row["seconds"]["forward"]
        )
    assert synchronous["schedule"] == "serial"
    assert synchronous["synchronous / this"] == 1
    printed = capsys.readouterr().out
    assert "pipelined, as asked" in printed
    assert "on the host" in printed


def test_sweep_has_all_ways_to_stream():
    for ranks, expected in ((1, 8), (2, 12)):
        names = [one.name for one in transform_variants(Streaming(streams=2), True, ranks)]
        assert names[:2] == ["2 streams, as asked", "synchronous"]
        assert len(names) == len(set(names)) == expected
        assert len(transform_variants(Streaming(), False, ranks)) == 2


@pytest.mark.thorough
def test_the_synchronous_transform_streams_as_the_tuned_one(tmp_path, monkeypatch):
    """Also if memory does not allow the defaults."""
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    record = tmp_path / "record.json"
    options = ("--n", "48", "--memory", "122000", "--tune", "quick", "--repetitions", "1")
    assert command(*options, "--json", str(record)) == 0
    result = json.loads(record.read_text())["result"]
    tuned, synchronous = result["rows"]
    assert tuned["streaming"] == synchronous["streaming"]
    assert (synchronous["schedule"], result["tune"]) == ("serial", "quick")


@pytest.mark.thorough
def test_ways_that_memory_does_not_allow_are_left_out(tmp_path):
    record = tmp_path / "record.json"
    options = ("--n", "16", "--sweep", "--memory", "12 KiB", "--repetitions", "1")
    assert command(*options, "--json", str(record)) == 0
    result = json.loads(record.read_text())["result"]
    assert "is too little" in result["left out"]["16 streams"]
    assert "16 streams" not in [row["name"] for row in result["rows"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "8 parsecs"), "memory '8 parsecs'"),
        (("--memory", "1 kB", "--n", "64"), "takes at least"),
        (("--copies", "pigeon"), "copies 'pigeon'; accepted: memcpy2D, zero-copy, packed"),
        (("--streams", "99"), "streams is 99; accepted: 0 to 16"),
        (("--residency", "device", "--memory", "1 GiB"), "--memory is for --residency host"),
        (("--residency", "device", "--timelines", "a.png"), "--timelines is for --residency host"),
        (("--timelines", "a.foo"), "--timelines 'a.foo' is no picture; accepted:"),
        (("--residency", "moon"), "--residency 'moon'; accepted: device, host"),
    ],
)
def test_bad_options_end_with_one_line(capsys, options, message):
    assert command(*options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


RECORDS = Path(__file__).resolve().parents[3] / "bench" / "results"
PRINTED = {"fft": print_streaming, "dns": print_streamed_step}


@pytest.mark.parametrize("kind", PRINTED)
def test_every_record_can_be_printed_again(capsys, kind):
    """Those of earlier versions too, which have other keys."""
    records = sorted(RECORDS.glob(f"{kind}-host-*.json"))
    assert records
    for path in records:
        result = json.loads(path.read_text())["result"]
        PRINTED[kind](path.name, result)
        printed = capsys.readouterr().out
        assert all(row["name"] in printed for row in result["rows"])
