"""Which device is opened, and how many threads and lanes a CPU has."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from slipstream.engine.device import (
    HostDevice,
    RowLaunch,
    choose_gpus,
    device_choice,
    open_device,
    open_devices,
)
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.exchange import transport_registry as communicators
from slipstream.engine.processes import thread_count


@pytest.mark.parametrize(("setting", "count"), [("3", 3), ("5,2", 5), ("1", 1)])
def test_thread_count_respects_the_environment(monkeypatch, setting, count):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert thread_count() == HostDevice().threads == count


@pytest.mark.parametrize(("threads", "lanes", "each"), [(1, 1, 1), (3, 3, 1), (16, 8, 2)])
def test_lanes_share_the_threads(monkeypatch, tmp_path, threads, lanes, each):
    """Kernels on a stream have the threads of one lane."""
    (tmp_path / "count.hpp").write_text(
        '#include "portability.hpp"\n#include <omp.h>\n'
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
    assert log == []  # work after a failure is skipped
    with pytest.raises(ZeroDivisionError):
        stream.record().synchronize()
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
    stream.submit(log.append)
    assert len(log) == 1


@pytest.mark.parametrize("setting", ["many", "0", "-1", "1.5", "2,", "100000"])
def test_a_number_of_threads_that_cannot_be_is_refused(monkeypatch, setting):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    message = f"OMP_NUM_THREADS is {setting!r}; accepted: a whole number, 1 to 384"
    for call in (thread_count, lambda: open_device("cpu")):
        with pytest.raises(InputError) as refused:
            call()
        assert str(refused.value) == message


@pytest.mark.parametrize("setting", [None, "", " "])
def test_without_a_setting_all_cores_of_the_process_are_used(monkeypatch, setting):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {2, 5, 7})
    assert thread_count() == 3


def test_open_device(monkeypatch):
    monkeypatch.setattr(device_choice, "cuda_device_count", lambda: 0)
    assert open_device("cpu").kind == open_device("auto").kind == open_device().kind == "cpu"
    with pytest.raises(InputError, match="'cuda' was asked for.*cupy-cuda13x.*'cpu'"):
        open_device("cuda")
    with pytest.raises(InputError, match="'gpu' is unknown; accepted: auto, cpu, cuda"):
        open_device("gpu")


def test_the_cpu_is_the_same_device_every_time(monkeypatch):
    assert open_device("cpu") is open_device("cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert open_device("cpu").threads == 7


@pytest.mark.parametrize(
    ("threads", "alone", "shared"), [(6, 6, 6), (12, 12, 6), (16, 16, 8), (96, 48, 8)]
)
def test_a_rank_that_is_alone_has_a_lane_for_each_thread(monkeypatch, threads, alone, shared):
    """Lanes of several ranks need the interpreter, so there are fewer of them."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    assert open_device("cpu").lanes == alone
    assert open_device("cpu", 1, 2).lanes == shared


@pytest.mark.parametrize("tiled", [False, True])
def test_a_cpu_stands_for_several_gpus_that_differ_but_stay_the_same(tiled):
    first = HostDevice(tiled=tiled)
    devices, again = (open_devices(first, 0, 3) for _ in range(2))
    assert devices[0] is first
    assert len(set(devices)) == 3
    assert all(one is other for one, other in zip(devices, again, strict=True))
    assert all(one.tiled_transforms() is tiled for one in devices)


def test_a_gpu_is_one_device_and_the_first_of_several_is_current(monkeypatch):
    current = []

    class Gpu:
        kind = "cuda"

        def __init__(self, ordinal):
            self.ordinal = ordinal

        def make_current(self):
            current.append(self.ordinal)

    module = SimpleNamespace(CudaDevice=Gpu)
    monkeypatch.setitem(sys.modules, "slipstream.engine.device.cuda_device", module)
    monkeypatch.setattr(device_choice, "cuda_device_count", lambda: 4)
    device_choice._opened_gpu.cache_clear()
    try:
        first = open_device("cuda", 6)
        assert first.ordinal == 2
        assert open_device("auto", 2) is first
        assert open_devices(first, 1, 2) == [first, open_device("cuda", 3)]
    finally:
        device_choice._opened_gpu.cache_clear()
    assert current == [2, 2, 3, 2, 3]


@pytest.mark.parametrize(
    ("seen", "chosen"),
    [
        ([[], []], [0, 0]),
        (["ABCD"] * 4, [0, 1, 2, 3]),  # mpiexec, srun --gpu-bind=none
        (["AB"] * 4, [0, 1, 0, 1]),  # more ranks than GPUs: in turn
        (["A", "B", "C"], [0, 0, 0]),  # one GPU for each (Slurm: --gpus-per-task=1)
        (["AB", "BA"], [0, 0]),  # as a script may rotate CUDA_VISIBLE_DEVICES
        (["AB", "CD", "AB", "CD"], [0, 0, 1, 1]),  # by socket, with ranks dealt out in turn
        (["ABC", "A"], [1, 0]),
        (["A", "A"], [0, 0]),  # nothing else is seen by anyone
    ],
)
def test_ranks_of_a_node_take_gpus_that_no_other_has(seen, chosen):
    assert choose_gpus(seen) == chosen


def test_ranks_that_share_a_gpu_beside_an_idle_one_are_an_error():
    with pytest.raises(InputError, match=r"ranks 1 and 2 .* the same GPU \(A\) while C is idle"):
        choose_gpus(["ABC", "A", "A"])


def test_each_rank_opens_the_gpu_that_is_its_own(monkeypatch):
    opened, gpu = [], SimpleNamespace(kind="cuda")
    monkeypatch.setattr(communicators, "visible_gpus", lambda: list("AB"))
    monkeypatch.setattr(
        communicators, "open_device", lambda kind, place, ranks: opened.append(place) or gpu
    )
    there = [list(gpus) for gpus in ("AB", "BA", "AB")]
    for rank, seen in enumerate(there):
        monkeypatch.setattr(communicators, "on_node", lambda *_, rank=rank: (rank, there))
        comm = SimpleNamespace(size=3, allgather=lambda one: ["cuda"] if one else [None])
        assert open_matching_device("auto", comm) is gpu
        opened[-1] = seen[opened[-1]]
    assert opened == ["A", "B", "A"]


@pytest.mark.parametrize("kinds", [("cpu", "cpu"), ("cpu", "cuda"), ("cuda", "cuda", "cpu")])
def test_ranks_open_the_same_kind_of_device_or_none(monkeypatch, kinds):
    told = []

    def opened(kind, local_rank, ranks):
        told.append((kind, local_rank, ranks))
        return SimpleNamespace(kind=kinds[local_rank])

    monkeypatch.setattr(communicators, "open_device", opened)
    seen = [[] for _ in kinds]
    for rank, kind in enumerate(kinds):
        monkeypatch.setattr(communicators, "on_node", lambda *_, rank=rank: (rank, seen))
        # Errors are gathered first: there are none.
        comm = SimpleNamespace(size=len(kinds), allgather=lambda one: kinds if one else [None])
        if len(set(kinds)) == 1:
            assert open_matching_device("auto", comm).kind == kind
        else:
            with pytest.raises(InputError, match=f"on rank 0, but {kinds[-1]!r} on rank"):
                open_matching_device("auto", comm)
    assert told == [("auto", rank, len(kinds)) for rank in range(len(kinds))]


def test_one_process_opens_its_device_without_ranks():
    assert open_matching_device("cpu", None).kind == "cpu"
