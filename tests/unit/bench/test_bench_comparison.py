"""Comparing benchmarks with earlier records, and the figures of fresh processes."""

import json
import shlex
import types
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench import __main__ as command_line
from bench import fft, harness, headlines
from bench.fft import TransformRequest
from bench.harness import Headline, asked_of, changes, headline, read_headlines
from bench.headlines import HeadlinesRequest
from slipstream.api.forecast.measured_rates import copy_bandwidth
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.tuner import Median

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20)


@given(TIMES)
def test_a_median_knows_its_quartiles(samples):
    median = Median.of(samples)
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    assert median == pytest.approx(middle)
    assert median.spread == pytest.approx((high - low) / middle)
    assert (median / 4).spread == median.spread
    assert headline(median / 4).seconds == pytest.approx(middle / 4)


def test_what_takes_longer_than_tolerated_is_worse():
    before = {"faster": 1.0, "same": 1.0, "slower": 1.0, "gone": 1.0}
    now = {"faster": Headline(0.5), "same": Headline(1.04), "slower": Headline(1.06)}
    found = {one["figure"]: one for one in changes(before, now | {"new": Headline(9.0)}, 0.05)}
    assert {name for name, one in found.items() if one["is worse"]} == {"slower", "gone"}
    assert found["faster"]["now"] / found["faster"]["before"] == 0.5


@pytest.fixture
def record(tmp_path):
    """Return a function that writes the record of a transform, with some changes."""
    path = tmp_path / "record.json"

    def write(**changed):
        asked = asked_of(TransformRequest(shape=(8, 8, 8)))
        headlines = {"forward": asdict(Headline(1.0))}
        path.write_text(
            json.dumps(
                {"benchmark": "fft", "device": "a", "asked": asked, "headlines": headlines}
                | changed
            )
        )
        return path

    return write


def test_a_record_of_the_same_is_read(record):
    # What is not measured may differ.
    asked = asked_of(TransformRequest(shape=(8, 8, 8), repetitions=3, against="x", tolerance=0.5))
    assert read_headlines(record(), "fft", "a", asked) == {"forward": 1.0}


@pytest.mark.parametrize(
    ("changed", "asked", "said"),
    [
        ({"benchmark": "dns"}, {}, "benchmark is 'dns'"),
        ({"device": "b"}, {}, "device is 'b'"),
        ({}, {"shape": (8, 8, 16)}, r"measured with shape = \[8, 8, 8\]"),
        ({}, {"dtype": "float32"}, "measured with dtype = 'float64', this run with 'float32'"),
        ({"headlines": 3}, {}, "no record with headlines"),
    ],
)
def test_a_record_of_something_else_is_refused(record, changed, asked, said):
    request = TransformRequest(**({"shape": (8, 8, 8)} | asked))
    with pytest.raises(InputError, match=said):
        read_headlines(record(**changed), "fft", "a", asked_of(request))


def test_files_that_are_no_records_are_refused(tmp_path):
    (tmp_path / "text").write_text("no JSON")
    for path in (tmp_path, tmp_path / "none", tmp_path / "text"):
        with pytest.raises(InputError, match="no record with headlines"):
            read_headlines(path, "fft", "a", {})


def test_a_benchmark_is_compared_and_fails_if_it_is_worse(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fft, "copy_bandwidth", lambda device: copy_bandwidth(device, 1 << 20))
    request = TransformRequest(
        shape=(8, 8, 8), device="cpu", plain=False, repetitions=1, json=tmp_path / "record.json"
    )
    harness.run_benchmark("fft", fft.run, request)
    record = json.loads(request.json.read_text())
    assert set(record["headlines"]) == {"forward", "backward"}

    def compared(factor):
        changed = record["headlines"]["forward"] | {"seconds": factor}
        text = json.dumps(record | {"headlines": {"forward": changed}})
        (tmp_path / "earlier.json").write_text(text)
        again = TransformRequest(
            shape=(8, 8, 8), device="cpu", plain=False, against=tmp_path / "earlier.json"
        )
        harness.run_benchmark("fft", fft.run, again)

    capsys.readouterr()
    compared(1e3)
    assert "now / before" in capsys.readouterr().out
    with pytest.raises(RunError, match="1 of 1 figures take longer .* by more than 5%: forward"):
        compared(1e-12)


@pytest.mark.parametrize(("kind", "ranks"), [("cpu", 2), ("cuda", 1), ("cuda", 4)])
def test_every_figure_is_a_command_that_is_accepted(kind, ranks, monkeypatch):
    asked = []
    monkeypatch.setattr(harness, "run_benchmark", lambda name, run, request: asked.append(request))
    commands = headlines.commands_of(kind, ranks)
    for command in commands.values():
        done = CliRunner().invoke(command_line.app, shlex.split(command))
        assert done.exit_code == 0, done.output
        asked[-1].check()
    assert {one.ranks or 1 for one in asked} == ({1, ranks} if ranks > 1 else {1})


def test_the_large_transform_is_guarded_from_when_it_is_recorded_on():
    name = "FFT 1024³, 1 GPU"
    command = headlines.commands_of("cuda", 1)[name]
    assert shlex.split(command) == ["fft", "--n", "1024", "--no-plain"]
    large = {f"{name}: {way}": 1.0 for way in fft.DIRECTIONS}
    record = {"FFT 512³, 1 GPU: forward": 1.0}
    now = {figure: Headline(seconds) for figure, seconds in (record | large).items()}
    assert not any(one["is worse"] for one in changes(record, now, 0.05))
    later = record | dict.fromkeys(large, 0.9)
    worse = {one["figure"] for one in changes(later, now, 0.05) if one["is worse"]}
    assert worse == large.keys()


def test_a_figure_that_a_gpu_has_no_memory_for_is_said_to_be_left_out(monkeypatch, capsys):
    def measured(command, kind):
        if "1024" in command:
            raise headlines._Failed("A GPU has no memory left for an array")
        return {"forward": asdict(Headline(1.0))}

    monkeypatch.setattr(headlines, "_measured", measured)
    monkeypatch.setattr(headlines, "cuda_device_count", lambda: 1)
    gpu = types.SimpleNamespace(kind="cuda", name="a GPU")
    request = HeadlinesRequest(processes=1, only=("FFT",))
    outcome = headlines.run(request, gpu, None)
    outcome.show(outcome.title, outcome.result)
    said = " ".join(capsys.readouterr().out.split())
    assert "left out: FFT 1024³, 1 GPU: A GPU has no memory left for an array" in said


def test_figures_are_of_all_processes(monkeypatch):
    seconds = iter([3.0, 1.0, 2.0])

    def measured(command, kind):
        if not command.startswith("fft"):
            raise headlines._Failed("no memory")
        return {"forward": asdict(Headline(next(seconds), 0.1, 0.5))}

    monkeypatch.setattr(headlines, "_measured", measured)
    request = HeadlinesRequest(processes=3, only=("FFT 128³, 1", "DNS 128³, 1"))
    outcome = headlines.run(request, HostDevice(), None)
    (figure,) = outcome.result["figures"]
    assert figure["seconds"] == 2.0
    assert figure["seconds of each process"] == [3.0, 1.0, 2.0]
    assert figure["spread of processes"] == 1.0
    assert figure["fraction of the bound"] == 0.25
    assert outcome.headlines == {"FFT 128³, 1 rank: forward": Headline(2.0, 0.1, 0.5)}
    assert outcome.result["left out"] == {"DNS 128³, 1 rank": "no memory"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("--n", "0"), ("--ranks", "0"), ("--repetitions", "0"), ("--ni", "8")],
)
def test_wrong_options_are_one_line_with_status_2(option, value, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(["dns", option, value])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert option in error and error.count("\n") == 1
