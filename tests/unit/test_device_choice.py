"""Which device is opened, and how many threads and lanes a CPU has."""

import numpy as np
import pytest

import slipstream.device
from slipstream.device import HostDevice, RowLaunch, open_device
from slipstream.device.host import thread_count
from slipstream.errors import InputError


@pytest.mark.parametrize(("setting", "count"), [("3", 3), ("5,2", 5), ("1", 1)])
def test_thread_count_respects_the_environment(monkeypatch, setting, count):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert thread_count() == HostDevice().threads == count


@pytest.mark.parametrize(("threads", "lanes", "each"), [(1, 1, 1), (3, 3, 1), (16, 8, 2)])
def test_lanes_share_the_threads(monkeypatch, tmp_path, threads, lanes, each):
    """Kernels on a stream have the threads of one lane."""
    (tmp_path / "count.hpp").write_text(
        '#include "core.hpp"\n#include <omp.h>\n'
        "KERNEL count(Index* out) { *out = omp_get_max_threads(); }"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    device, out = HostDevice(), np.zeros(1, np.int64)
    assert device.lanes == lanes
    stream = device.stream()
    stream.submit(device.kernel(str(tmp_path / "count.hpp"), "count").bind(RowLaunch(1, 1), out))
    stream.synchronize()
    assert out[0] == each


def test_the_streams_of_a_single_thread_run_operations_at_once():
    device, log = HostDevice(threads=1), []
    stream = device.stream()
    stream.submit(log.append)
    assert device.inline and len(log) == 1
    assert stream.record().done()


def test_a_failure_at_once_is_raised_when_the_stream_is_waited_for():
    stream, log = HostDevice(threads=1).stream(), []
    stream.submit(lambda stream: 1 / 0)
    stream.submit(log.append)
    assert log == []  # what comes behind a failure is skipped
    with pytest.raises(ZeroDivisionError):
        stream.record().synchronize()
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
    stream.submit(log.append)
    assert len(log) == 1


@pytest.mark.parametrize("setting", [None, "", "0", "many"])
def test_without_a_setting_all_cores_of_the_process_are_used(monkeypatch, setting):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {2, 5, 7})
    assert thread_count() == 3


def test_open_device(monkeypatch):
    monkeypatch.setattr(slipstream.device, "cuda_device_count", lambda: 0)
    assert open_device("cpu").kind == open_device("auto").kind == open_device().kind == "cpu"
    with pytest.raises(InputError, match="'cuda' was asked for.*slipstream\\[cuda13\\].*'cpu'"):
        open_device("cuda")
    with pytest.raises(InputError, match="'gpu' is unknown; accepted: auto, cpu, cuda"):
        open_device("gpu")
