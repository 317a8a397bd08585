"""The benchmark of arrays on the host: what it measures is right, and it says so."""

import json

import pytest

from bench.__main__ import main
from bench.fft import transform_variants
from bench.harness import quietest, timers_of
from refusals import status_of
from slipstream.api.forecast import measured_rates
from slipstream.engine.schedule import Timeline
from slipstream.engine.schedule.committed_steps import Entry
from slipstream.fft import Streaming


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    """Measure bandwidth with little memory: its value does not matter here."""
    monkeypatch.setattr(measured_rates, "_BUFFER", 1 << 16)


def command(*arguments):
    return status_of("fft", "--residency", "host", "--device", "cpu", *arguments, main=main)


def result_of(folder, *arguments):
    """Return the result in the record of a command that ends well."""
    record = folder / "record.json"
    assert command(*arguments, "--json", str(record)) == 0
    return json.loads(record.read_text())["result"]


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
        ("--dtype", "complex64"),
        ("--truncation", "2/3"),
        ("--layout", "pencil"),
    ],
)
def test_transforms_are_right_and_stand_beside_the_bus(tmp_path, capsys, options):
    picture = tmp_path / "timelines.png"
    small = ("--n", "12,10,9", "--repetitions", "2", "--memory", "1 MiB")
    result = result_of(tmp_path, *small, *options, "--timelines", str(picture))
    assert picture.stat().st_size > 0
    asked, synchronous = result["rows"]
    epsilon = 1e-6 if "complex64" in options else 1e-14
    for row in (asked, synchronous):
        # Sums of a thousand terms err by some tens of roundings.
        assert row["error of sampled modes"] <= 30 * epsilon
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
    options = ("--n", "48", "--memory", "122000", "--tune", "quick", "--repetitions", "1")
    result = result_of(tmp_path, *options)
    tuned, synchronous = result["rows"]
    assert tuned["streaming"] == synchronous["streaming"]
    assert (synchronous["schedule"], result["tune"]) == ("serial", "quick")


@pytest.mark.thorough
def test_ways_that_memory_does_not_allow_are_left_out(tmp_path):
    options = ("--n", "16", "--sweep", "--memory", "12 KiB", "--repetitions", "1")
    result = result_of(tmp_path, *options)
    assert "is too little" in result["left out"]["16 streams"]
    assert "16 streams" not in [row["name"] for row in result["rows"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "8 parsecs"), "memory '8 parsecs'"),
        (("--memory", "1 kB", "--n", "64"), "takes at least"),
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
