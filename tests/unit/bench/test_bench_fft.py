import json
import math

import numpy as np
import pytest

from bench import fft as bench
from bench import reference_ffts
from bench.__main__ import main
from bench.fft import (
    FixedTransforms,
    TransformRequest,
    make_plan,
    operations,
    parse_truncation,
    print_fft,
)
from bench.harness import OnFirstRank, parse_shape
from bench.reference_ffts import plain_bytes, plain_transforms
from refusals import status_of
from slipstream.api.forecast.measured_rates import copy_bandwidth
from slipstream.engine.errors import InputError


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    """Measure bandwidth with little memory: its value does not matter here."""
    monkeypatch.setattr(bench, "copy_bandwidth", lambda device: copy_bandwidth(device, 1 << 20))


@pytest.fixture
def without_mpi4py_fft(monkeypatch):
    monkeypatch.setattr(reference_ffts.importlib.util, "find_spec", lambda name: None)


def command(*arguments):
    return status_of("fft", *arguments, main=main)


def test_operations_by_hand():
    # 512 points, log2 of it is 9.
    assert operations((8, 8, 8), "complex128") == 5 * 512 * 9
    assert operations((8, 8, 8), "float32") == 5 * 512 * 9 / 2
    assert operations((1, 1, 1), "float64") == 0
    n = 1024
    customary = 5 * n**3 * math.log2(n**3)
    assert operations((n, n, n), "complex64") == pytest.approx(customary)


def test_shapes_and_truncations_as_text():
    assert parse_shape("64") == (64, 64, 64)
    assert parse_shape("64, 96,128") == (64, 96, 128)
    assert parse_truncation("none") is None
    assert parse_truncation("2/3") == "2/3"
    assert parse_truncation("3,4,5") == (3, 4, 5)


@pytest.mark.parametrize("text", ["", "0", "-8", "8,8", "8,8,8,8", "8x8x8", "8,8,0", "1e3"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(InputError, match="is no shape"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--n", "8,8"], "--n '8,8'"),
        (["--truncation", "half"], "--truncation 'half'"),
        (["--dtype", "int32"], "int32"),
        (["--layout", "brick"], "brick"),
        (["--tune", "much"], "much"),
        (["--wire", "float8"], "float8"),
        (["--transport", "pigeon"], "pigeon"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_wrong_input_is_one_line(arguments, expected, capsys):
    assert command("--n", "8", "--device", "cpu", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: ")
    assert expected in error
    assert error.count("\n") == 1


def assert_consistent(result, request):
    """Check that the figures of a result follow from each other."""
    count = operations(request.shape, request.dtype)
    for way, seconds in result["seconds"].items():
        assert result["GFLOP/s"][way] * seconds * 1e9 == pytest.approx(count)
        assert result["host (s per call)"][way] > 0
        timers = result[f"timers of {way} (s)"]
        assert "fft" in timers
        assert min(timers.values()) >= 0
    compared = result["comparison"]
    assert {way: compared[bench.OURS][way] for way in bench.DIRECTIONS} == result["seconds"]
    for one in compared.values():
        for key, other in (("pair / unpruned pair", bench.UNPRUNED),):
            if key in one:
                pair = compared[other]["forward"] + compared[other]["backward"]
                assert one[key] * pair == pytest.approx(one["forward"] + one["backward"])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("truncation", [None, "2/3"])
def test_figures_of_one_rank_are_consistent(device, without_mpi4py_fft, dtype, truncation):
    request = TransformRequest(shape=(8, 6, 10), dtype=dtype, truncation=truncation, repetitions=2)
    result = bench.measure_fft(request, device, None)
    assert_consistent(result, request)
    assert result["shape"] == [8, 6, 10]
    assert result["ranks"] == 1
    assert isinstance(result["plan"], str)
    assert result["relative error, there and back"] < 100 * np.finfo(dtype).eps
    assert not any(name.startswith("wire") for name in result if name != "wire")
    plain = [name for name in result["comparison"] if name.startswith(("FFTW", "cuFFT"))]
    assert len(plain) == 1
    assert result["comparison"][plain[0]]["pair / plain pair"] == pytest.approx(1.0)
    assert (bench.UNPRUNED in result["comparison"]) == (truncation is not None)
    if device.kind == "cpu":
        assert result["notes"] == [reference_ffts.INSTALL_MPI4PY_FFT]


def test_without_plain_there_is_nothing_to_compare_with(device):
    request = TransformRequest(shape=(4, 4, 4), repetitions=1, plain=False)
    result = bench.measure_fft(request, device, None)
    assert list(result["comparison"]) == [bench.OURS]
    assert set(result["comparison"][bench.OURS]) == set(bench.DIRECTIONS)
    assert result["notes"] == []


def test_what_is_transformed_does_not_depend_on_the_plan(device):
    requests = (TransformRequest(shape=(6, 5, 4), layout=layout) for layout in ("slab", "pencil"))
    fixed = [FixedTransforms(make_plan(request, device, None)) for request in requests]
    one, two = (device.to_host(each.points) for each in fixed)
    np.testing.assert_array_equal(two, one)
    expected = np.fft.rfftn(one)
    np.testing.assert_allclose(device.to_host(fixed[0].modes), expected, atol=1e-12)
    np.testing.assert_allclose(device.to_host(fixed[1].back), two, atol=1e-14)


def test_record_and_table_of_the_command(without_mpi4py_fft, tmp_path, capsys):
    path = tmp_path / "deep" / "fft.json"
    arguments = ("--n", "4,6,8", "--device", "cpu", "--repetitions", "1", "--truncation", "1,2,3")
    assert command(*arguments, "--json", str(path)) == 0
    record = json.loads(path.read_text())
    assert record["benchmark"] == "fft"
    assert {"commit", "date", "device", "machine"} <= set(record)
    assert {"Slipstream", "NumPy", "CPU"} <= set(record["machine"])
    assert record["result"]["truncation"] == [1, 2, 3]
    assert record["result"]["shape"] == [4, 6, 8]
    text = capsys.readouterr().out
    for part in ("4 x 6 x 8", "GFLOP/s", "FFTW", "unpruned", "pip install mpi4py-fft"):
        assert part in text
    print_fft("again", record["result"])
    assert "again" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_plain_transforms_run_in_the_memory_foreseen(device, dtype):
    shape = (4, 6, 8)
    for action in plain_transforms(device, shape, dtype, threads=2):
        action()
    device.synchronize()
    assert plain_bytes(device, shape, dtype) >= 2 * 4 * 6 * 8 * np.dtype(dtype).itemsize


def test_plain_plan_that_does_not_fit_is_left_out(device, monkeypatch):
    monkeypatch.setattr(device, "memory_free", lambda: 1000, raising=False)
    reason = reference_ffts.plain_yardstick((8, 8, 8), np.dtype("float64"), device, None)
    assert isinstance(reason, str)
    assert "GiB" in reason


def test_action_of_the_first_rank_forgets_its_first_call():
    calls = []
    action = OnFirstRank(lambda: calls.append(None), None)
    for _ in range(3):
        action()
    assert len(calls) == 3
    assert action.seconds() >= 0
