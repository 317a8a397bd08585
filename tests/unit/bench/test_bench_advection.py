"""The advection benchmark: its table, a count of lines, its pictures and its command line."""

import json

import matplotlib.image
import pytest

from advection_lines import lines_of
from bench import advection as advection_bench
from bench.__main__ import main
from bench.advection import (
    SHELLS,
    AdvectionRequest,
    fitting,
    measure_advection,
    print_advection,
)
from bench.harness import read_results
from bench.pictures import best_of, plot_advection, plot_timelines, shared_ends
from refusals import status_of
from slipstream.advection import STRATEGIES, advection_solver
from slipstream.engine.device import HostDevice, cuda_device_count
from slipstream.engine.device.array_kernels import large_copy
from slipstream.engine.errors import InputError

SHAPE = (12, 10, 20)


@pytest.fixture(scope="module", autouse=True)
def small_copies():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            advection_bench,
            "large_copy",
            lambda device, **options: large_copy(device, 1 << 20, **options),
        )
        yield


@pytest.fixture(scope="module")
def measured():
    request = AdvectionRequest(shape=SHAPE, strategies=("single", "mpi"), steps=2, repetitions=2)
    return measure_advection(request, None, False)


def test_all_strategies_are_one_and_a_half_times_the_lines_of_the_first_two():
    first_two = lines_of(tuple(STRATEGIES)[:2])
    assert first_two < lines_of(STRATEGIES) <= 1.5 * first_two


def test_overlap_costs_few_lines():
    """Each strategy needs more than nothing, none needs much more than a single task."""
    single = lines_of(["single"])
    assert single > 20
    for name in STRATEGIES:
        assert single <= lines_of([name]) <= 1.25 * single


def test_lines_of_several_strategies_are_those_of_each():
    both = lines_of(["single", "hybrid-overlap"])
    assert max(lines_of(["single"]), lines_of(["hybrid-overlap"])) < both
    assert both < lines_of(["single"]) + lines_of(["hybrid-overlap"])
    assert lines_of(["gpu", "gpu"]) == lines_of(["gpu"])


def test_figures_of_a_row_agree_with_each_other(measured):
    result, timelines = measured
    points = 12 * 10 * 20
    assert result["same bits"]
    assert [row["strategy"] for row in result["rows"]] == ["single", "mpi"] == list(timelines)
    for row in result["rows"]:
        rate = points / row["seconds per step"]
        assert row["Gpoint/s"] * 1e9 == pytest.approx(rate)
        assert row["GF"] * 1e9 == pytest.approx(53 * rate)
        assert row["bytes per second"] == pytest.approx(16 * rate)
        bound = result["copy bandwidth (B/s)"]["cpu"]
        assert row["fraction of copy"] == pytest.approx(16 * rate / bound)
        assert 0 < row["error"] < 1
    assert result["rows"][0]["digest"] == result["rows"][1]["digest"]


def test_strategies_fit_ranks_and_devices():
    assert fitting(1, gpu=False) == ("single",)
    assert fitting(2, gpu=False) == ("mpi", "mpi-nonblocking", "mpi-threaded")
    assert set(fitting(1, gpu=True)) | set(fitting(4, gpu=True)) == set(STRATEGIES)
    assert not {"single", "gpu"} & set(fitting(4, gpu=True))


def test_what_cannot_run_is_left_out_unless_it_was_named():
    settings = {"steps": 1, "repetitions": 1}
    if not cuda_device_count():
        result, _ = measure_advection(AdvectionRequest(shape=SHAPE, **settings), None, gpu=True)
        assert [row["strategy"] for row in result["rows"]] == ["single"]
        assert result["left out"].keys() == {"gpu", "hybrid", "hybrid-overlap"}
        with pytest.raises(InputError, match="finds no GPU"):
            measure_advection(
                AdvectionRequest(shape=SHAPE, strategies=("single", "gpu")), None, True
            )


def test_hybrid_strategies_take_the_fastest_shell(monkeypatch):
    """The GPU is a CPU with a GPU's kernels here: the tuned values do not matter."""
    monkeypatch.setattr(advection_solver, "open_device", lambda *_: HostDevice(tiled=True))
    request = AdvectionRequest(shape=SHAPE, steps=1, repetitions=1)
    result, _ = measure_advection(request, None, gpu=True)
    assert [row["strategy"] for row in result["rows"]] == list(fitting(1, gpu=True))
    assert result["same bits"]
    for row in result["rows"]:
        if row["strategy"].startswith("hybrid"):
            trials = row["seconds by shell and threads"]
            fastest = min(trials, key=trials.get)
            assert int(fastest.partition(",")[0]) == row["shell"]
            assert len(trials) == 2 * len(SHELLS)


def test_the_table_names_strategies_and_bounds(measured, capsys):
    print_advection("advection", measured[0])
    told = capsys.readouterr().out
    for text in ("single", "mpi", "of copy", "exposed", "same bits: True", "bypassing caches"):
        assert text in told


def test_the_best_of_several_records_counts():
    rows = [{"strategy": "mpi", "Gpoint/s": rate} for rate in (1.0, 3.0, 2.0)]
    results = [{"ranks": 2, "rows": [row]} for row in rows] + [{"ranks": 4, "rows": rows[:1]}]
    assert best_of(results) == {"mpi": {2: 3.0, 4: 1.0}}


@pytest.mark.thorough
def test_pictures_are_written_and_not_empty(measured, tmp_path):
    result, timelines = measured
    plot_advection(tmp_path / "speed.png", "title", [result, {**result, "ranks": 2}])
    plot_timelines(tmp_path / "steps.png", "title", timelines)
    for name in ("speed.png", "steps.png"):
        pixels = matplotlib.image.imread(tmp_path / name)
        assert pixels.shape[0] > 300
        assert pixels[..., :3].std() > 0.02


def test_timelines_of_about_as_long_share_their_axis():
    """Beside one of more than three times its length a step would be a dot."""
    assert shared_ends([7.2, 0.34, 30.0, 28.0, 4.5, 0.93]) == [7.2, 0.93, 30.0, 30.0, 7.2, 0.93]
    assert shared_ends([1.8, 1.82]) == [1.82, 1.82]
    assert shared_ends([0.0]) == [0.0]


@pytest.mark.parametrize("content", ["", "[]", '{"benchmark": "fft", "result": {}}'])
def test_other_files_are_no_records(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match="no record of the benchmark advection"):
        read_results("advection", [path], "--beside")


def run(*arguments):
    return status_of("advection", *arguments, main=main) or 0


@pytest.mark.thorough
def test_the_command_writes_a_record_and_pictures(tmp_path, capsys):
    record, speed, steps = (tmp_path / name for name in ("r.json", "speed.png", "steps.png"))
    options = ["--n", "10,12,16", "--device", "cpu", "--steps", "1", "--repetitions", "1"]
    outputs = ["--json", str(record), "--plot", str(speed), "--timelines", str(steps)]
    assert run("--all", *options, *outputs) == 0
    assert json.loads(record.read_text())["result"]["points (z, y, x)"] == [10, 12, 16]
    assert speed.stat().st_size and steps.stat().st_size
    assert run(*options, "--beside", str(record)) == 0
    assert "single" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--all", "--strategies", "mpi"), "--all and --strategies exclude each other"),
        (("--strategies", "fastest", "--device", "cpu"), "accepted: single, mpi"),
        (("--n", "8", "--dtype", "float16", "--device", "cpu"), "accepted: float64, float32"),
        (("--plot", "speed.txt"), "accepted: such as FILE.png"),
        (("--beside", "nothing.json"), "no record"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(capsys, arguments, told):
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert told in " ".join(error.split())
    assert error.startswith("slipstream: error: ")
