"""What can be known of AMD's GPUs without any: by stand-ins for CuPy's build for ROCm, and for HIP.

Memory of the device is the host's. The library of HIP is `hip_stand_in.cpp`, which checks what it
is given; whoever has HIP's header has its signatures compared with those of AMD.
"""

import ctypes
import ctypes.util
import functools
import gc
import hashlib
import itertools
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import nvrtc
import slipstream.device
from slipstream.advection.overlap_strategies import automatic_strategy
from slipstream.device import BlockLaunch, RowLaunch, device_choice, open_device, open_devices
from slipstream.errors import InputError, RunError
from slipstream.exchange.transport_registry import names_on, transport_class
from slipstream.private_cache import find_or_make
from slipstream.schedule import StepGraph, commit
from slipstream.schedule.committed_steps import CapturedStep

MODULES = ("pool_limit", "cufft", "cuda_kernel", "cuda_device", "hip_device")
GRIDS = []


class CUDARuntimeError(Exception):
    status = 1


class Array(np.ndarray):
    """An array of the device."""


class Context:
    compute_capability = "90"

    def __init__(self, ordinal):
        self.id = ordinal

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        pass

    use = __enter__


class Queue(Context):
    """A stream or an event, at the end of which everything always is, unless it is captured."""

    numbers = itertools.count(1)

    def __init__(self, *_, **__):
        self.ptr = next(self.numbers)

    def record(self, stream=None):
        if stream is not None:
            succeed(hip().hipEventRecord(ctypes.c_void_p(self.ptr), ctypes.c_void_p(stream.ptr)))

    def wait_event(self, event):
        handles = ctypes.c_void_p(self.ptr), ctypes.c_void_p(event.ptr)
        succeed(hip().hipStreamWaitEvent(*handles, 0))

    def synchronize(self):
        pass


def succeed(status):
    if status:
        raise CUDARuntimeError(status)


@functools.cache
def hip():
    """Return the stand-in for HIP, loaded."""
    source = Path(__file__).parents[2] / "support" / "hip_stand_in.cpp"
    text = source.read_text()

    def make(folder):
        target = folder / "libamdhip64.so"
        command = ["g++", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Werror", str(source)]
        subprocess.run([*command, "-o", str(target)], check=True)
        return target.read_bytes()

    name = f"libamdhip64.so-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    return ctypes.CDLL(str(find_or_make(name, make)[0]))


def copied(target, source, size, kind, stream):
    places = ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size)
    succeed(hip().hipMemcpyAsync(*places, kind, ctypes.c_void_p(stream)))


def unknown(*_):
    raise CUDARuntimeError


def rocm_cupy():
    """Return a module that has what CuPy's build for ROCm has, of what devices ask for."""
    runtime = SimpleNamespace(
        is_hip=True,
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: 2,
        getDevice=lambda: 0,
        getDeviceProperties=lambda ordinal: {
            "name": b"AMD Instinct MI250X",
            "gcnArchName": b"gfx90a:sramecc+:xnack-",
            "multiProcessorCount": 104,
            "sharedMemPerBlock": 64 * 1024,
            "sharedMemPerBlockOptin": 227 * 1024,  # of NVIDIA's only
        },
        deviceGetPCIBusId=lambda ordinal: f"0000:0{ordinal}:00.0",
        memcpyDefault=4,
        memcpyAsync=copied,
        memcpy2DAsync=unknown,
        hostRegister=unknown,
        pointerGetAttributes=unknown,
        eventQuery=lambda event: 0,
    )

    class Function:
        ptr = 0

        def __call__(self, grid, block, values, shared_mem):
            GRIDS.append((grid, block, shared_mem))

    module = SimpleNamespace(load=lambda binary: None, get_function=lambda name: Function())
    cuda = ModuleType("cupy.cuda")
    Queue.null = Queue()
    cuda.runtime, cuda.Device, cuda.Stream, cuda.Event = runtime, Context, Queue, Queue
    cuda.function = SimpleNamespace(Module=lambda: module)
    cuda.memory = SimpleNamespace(OutOfMemoryError=MemoryError)
    cuda.get_elapsed_time = lambda start, stop: 0.0
    cuda.nvrtc = SimpleNamespace(getVersion=lambda: (7, 0))
    cuda.driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, funcSetAttribute=lambda *_: None
    )
    kinds = ("R2C", "C2R", "C2C", "D2Z", "Z2D", "Z2Z")
    cuda.cufft = SimpleNamespace(PlanNd=None, **{f"CUFFT_{kind}": kind for kind in kinds})
    cupy = ModuleType("cupy")
    cupy.cuda, cupy.ndarray = cuda, Array
    cupy.empty = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
    pool = SimpleNamespace(get_limit=lambda: 0)
    cupy.get_default_memory_pool = lambda: pool
    return cupy


@pytest.fixture
def rocm(monkeypatch):
    """A machine with two AMD GPUs, until the end of the test."""
    cupy = rocm_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    for module in MODULES:
        name = f"slipstream.device.{module}"
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        monkeypatch.setattr(slipstream.device, module, None, raising=False)
    device_choice._opened_gpu.cache_clear()
    GRIDS.clear()
    hip()
    yield cupy
    device_choice._opened_gpu.cache_clear()


@pytest.mark.slow
def test_a_gpu_of_amd_is_opened_only_if_it_is_asked_for(rocm):
    assert open_device("auto").kind == "cpu"
    with pytest.raises(InputError, match="'cuda' was asked for"):
        open_device("cuda")
    device = open_device("hip", 3)
    assert (device.kind, device.processor, device.ordinal) == ("hip", "gpu", 1)
    assert device.name.endswith("(untested)")
    assert open_device("hip", 1) is device
    assert [one.ordinal for one in open_devices(device, 0, 2)] == [0, 1]
    rocm.cuda.runtime.is_hip = False
    with pytest.raises(InputError, match="'hip' was asked for, but CuPy finds no AMD GPU"):
        open_device("hip")


@pytest.mark.parametrize("inward", [True, False], ids=["to the device", "from the device"])
def test_rectangles_are_copied_by_one_call_each(rocm, inward):
    device = open_device("hip")
    whole = np.arange(5 * 7 * 9, dtype=np.float64).reshape(5, 7, 9)
    parts = ((np.s_[1:4, 2:, 3:8], 3), (np.s_[::2, :, ::3], None), (np.s_[2:3, :, 4], 1))
    for index, calls in parts:
        values = whole[index]
        other = device.empty(values.shape, values.dtype)
        before = hip().stand_in_calls()
        if inward:
            device.run(device.copy(other, values))
            np.testing.assert_array_equal(other, values)
        else:
            target = np.zeros_like(whole)
            other[...] = values
            device.run(device.copy(target[index], other))
            np.testing.assert_array_equal(target[index], values)
            assert np.count_nonzero(target) == np.count_nonzero(values)
        assert calls is None or hip().stand_in_calls() == before + calls
    empty = device.empty((5, 0, 9), np.float64)
    device.run(device.copy(empty, whole[:, 1:1]))


def test_what_hip_refuses_is_an_error_that_names_the_call(rocm):
    copy = open_device("hip")._copy_rectangle
    memory = np.zeros(64)
    with pytest.raises(RunError, match=r"hipMemcpy2DAsync: invalid pitch argument \(12\)"):
        copy(memory.ctypes.data, 8, memory.ctypes.data + 256, 8, 16, 2, 4, 1)


def test_memory_of_the_host_is_pinned_for_as_long_as_it_lives(rocm):
    device, memory = open_device("hip"), np.zeros(64)
    assert not device.is_pinned(memory)
    device.pin(memory)
    assert device.is_pinned(memory) and device.is_pinned(memory[5:])
    with pytest.raises(RunError, match="hipHostRegister: .* already mapped"):
        device.pin(memory)
    assert hip().stand_in_registered() == 1
    del memory
    gc.collect()
    assert hip().stand_in_registered() == 0


def test_memory_that_gpus_reach_under_another_address_is_not_pinned(rocm):
    device, memory = open_device("hip"), np.zeros(64)
    hip().stand_in_place(ctypes.c_ssize_t(4096))
    try:
        with pytest.raises(InputError, match="accepted with device 'hip': transport 'mpi-p2p'"):
            device.pin(memory)
    finally:
        hip().stand_in_place(ctypes.c_ssize_t(0))
    assert hip().stand_in_registered() == 0 and not device.is_pinned(memory)


def test_a_step_is_one_graph(rocm):
    """Lanes fork from the main lane and join it, and nothing runs while it is captured."""
    device = open_device("hip")
    source, target = np.arange(60.0).reshape(6, 10), np.zeros((6, 10))
    first, second = (device.empty((6, 10), np.float64) for _ in range(2))
    graph = StepGraph(device)
    for to, of, lane in ((first, source, "copy in"), (second, first, ""), (target, second, "out")):
        for part in (np.s_[:3], np.s_[3:]):
            more = {"lane": lane} if lane else {}
            graph.add_copy(to[part], of[part], label="copy", category="copy", **more)
    graph.add_copy(target[:, 2:5], source[:, 4:7], label="copy", category="copy")
    step = commit(graph, "overlap")
    assert isinstance(step, CapturedStep) and not target.any()
    for value in (0.0, 1.0):
        source[...] = np.arange(60.0).reshape(6, 10) + value
        launches = hip().stand_in_launches()
        step.run()
        step.synchronize()
        assert hip().stand_in_launches() == launches + 1
        expected = source.copy()
        expected[:, 2:5] = source[:, 4:7]
        np.testing.assert_array_equal(target, expected)
    target[...] = 0
    step.run(profile=True)
    np.testing.assert_array_equal(target, expected)
    del step
    gc.collect()
    assert hip().stand_in_graphs() == 0


def test_a_capture_that_fails_leaves_nothing_behind(rocm):
    stream = open_device("hip").stream()

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        stream.capture(fail)
    assert hip().stand_in_graphs() == 0
    stream.capture(lambda: None)(stream)


def test_ranks_do_not_see_each_others_memory():
    assert "peer" in names_on("cpu")
    assert transport_class("peer").lacks("hip")
    assert not transport_class("peer").lacks("cuda")
    two = SimpleNamespace(size=2, allgather=lambda value: [f"{value} 0", f"{value} 1"])
    expected = {"hip": "gpu-mpi-streams", "cuda": "gpu-peer"}
    for kind, strategy in expected.items():
        device = SimpleNamespace(kind=kind, identity="a GPU")
        assert automatic_strategy(two, device) == strategy


def hiprtc():
    """Return the path of AMD's run-time compiler, if it is installed."""
    found = next(filter(None, map(ctypes.util.find_library, ("hiprtc", "amdhip64"))), None)
    return found or pytest.skip("hiprtc is not installed")


@pytest.mark.parametrize(
    ("kind", "library", "symbol", "most_threads"),
    [
        ("hip", hiprtc, b"scatter_rows.kd\0", (1 << 32) - 1),
        ("cuda", nvrtc.library, b".text.scatter_rows\0", 1 << 40),
    ],
    ids=["hip", "cuda"],
)
def test_kernels_are_compiled_for_the_gpu_at_hand_and_grids_are_no_larger_than_it_allows(
    rocm, kind, library, symbol, most_threads
):
    """As in a run: in another process."""
    ctypes.CDLL(library())
    rocm.cuda.runtime.is_hip = kind == "hip"
    device = open_device(kind)
    assert device.shared_memory_limit == {"hip": 64, "cuda": 227}[kind] * 1024
    kernel = device.kernel("gather_scatter.hpp", "scatter_rows", REAL="double")
    for launch, threads in (
        (RowLaunch(1 << 40, 100), 256),
        (RowLaunch(3, 3, reduces=True), 256),
        (BlockLaunch(1 << 30, 1024, 60000), 1024),
    ):
        device.run(kernel.bind(launch))
        (blocks, *_), block, _ = GRIDS[-1]
        assert np.prod(block) == threads
        assert 1 <= blocks * threads <= most_threads
    assert symbol in kernel._program._binary.result()


def test_a_kernel_that_cannot_be_compiled_fails_for_its_own_users_alone(rocm):
    ctypes.CDLL(nvrtc.library())
    rocm.cuda.runtime.is_hip = False
    device = open_device("cuda")
    wrong, right = (
        device.kernel("gather_scatter.hpp", "scatter_rows", REAL=real).bind(RowLaunch(3, 3))
        for real in ("no_such_type", "double")
    )
    for _ in range(2):
        with pytest.raises(RunError, match="no_such_type"):
            device.run(wrong)
    device.load_kernels()
    device.run(right)
    assert len(GRIDS) == 1
