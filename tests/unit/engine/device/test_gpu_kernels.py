"""Kernels of GPUs on a machine without any, with a stand-in for CuPy. NVRTC needs no GPU."""

import ctypes
import itertools
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import nvrtc
import slipstream.engine.device
from slipstream.engine.device import BlockLaunch, RowLaunch, device_choice, open_device
from slipstream.engine.errors import RunError

MODULES = ("pool_limit", "cufft", "cuda_kernel", "cuda_device")
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
    """A stream or an event, which is always complete."""

    numbers = itertools.count(1)

    def __init__(self, *_, **__):
        self.ptr = next(self.numbers)

    def record(self, stream=None):
        pass

    def synchronize(self):
        pass


def unknown(*_):
    raise CUDARuntimeError


def stand_in_cupy():
    """Return a module that has what devices ask CuPy for."""
    runtime = SimpleNamespace(
        is_hip=False,
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: 2,
        getDevice=lambda: 0,
        getDeviceProperties=lambda ordinal: {
            "name": b"a GPU",
            "multiProcessorCount": 132,
            "maxBlocksPerMultiProcessor": 32,
            "sharedMemPerBlockOptin": 227 * 1024,
        },
        deviceGetPCIBusId=lambda ordinal: f"0000:0{ordinal}:00.0",
        memcpyDefault=4,
        memcpyAsync=unknown,
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
def gpus(monkeypatch):
    """A machine with two GPUs, until the end of the test."""
    cupy = stand_in_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    for module in MODULES:
        name = f"slipstream.engine.device.{module}"
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        monkeypatch.setattr(slipstream.engine.device, module, None, raising=False)
    device_choice._opened_gpu.cache_clear()
    GRIDS.clear()
    yield cupy
    device_choice._opened_gpu.cache_clear()


def test_kernels_are_compiled_and_grids_are_no_larger_than_a_gpu_allows(gpus):
    """As in a run: in another process."""
    ctypes.CDLL(nvrtc.library())
    device = open_device("cuda")
    assert device.shared_memory_limit == 227 * 1024
    kernel = device.kernel("gather_scatter.hpp", "scatter_rows", REAL="double")
    for launch, threads in (
        (RowLaunch(1 << 40, 100), 256),
        (RowLaunch(3, 3, reduces=True), 256),
        (BlockLaunch(1 << 30, 1024, 60000), 1024),
    ):
        device.run(kernel.bind(launch))
        (blocks, *_), block, _ = GRIDS[-1]
        assert np.prod(block) == threads
        assert 1 <= blocks <= 1 << 30
    assert b".text.scatter_rows\0" in kernel._program._binary.result()


def test_a_kernel_that_cannot_be_compiled_fails_for_its_own_users_alone(gpus):
    ctypes.CDLL(nvrtc.library())
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
