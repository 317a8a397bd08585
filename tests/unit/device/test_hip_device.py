"""What can be known of AMD's GPUs without any: by a CuPy for ROCm whose memory is the host's."""

import ctypes
import ctypes.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import nvrtc
import slipstream.device
from slipstream.advection.overlap_strategies import automatic_strategy
from slipstream.device import BlockLaunch, RowLaunch, device_choice, open_device, open_devices
from slipstream.errors import InputError, RunError
from slipstream.exchange.transport_registry import names_on, transport_class

MODULES = ("cufft", "cuda_kernel", "cuda_device", "hip_device")
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
    """A stream or an event, at the end of which everything always is."""

    ptr = 0

    def __init__(self, *_, **__):
        pass

    def record(self, *_):
        pass

    synchronize = record


def copied(target, source, size, kind, stream):
    ctypes.memmove(target, source, size)


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
    cuda.nvrtc = SimpleNamespace(getVersion=lambda: (7, 0))
    cuda.driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, funcSetAttribute=lambda *_: None
    )
    kinds = ("R2C", "C2R", "C2C", "D2Z", "Z2D", "Z2Z")
    cuda.cufft = SimpleNamespace(PlanNd=None, **{f"CUFFT_{kind}": kind for kind in kinds})
    cupy = ModuleType("cupy")
    cupy.cuda, cupy.ndarray = cuda, Array
    cupy.empty = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
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
    yield cupy
    device_choice._opened_gpu.cache_clear()


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
def test_copies_of_rectangles_go_row_by_row(rocm, inward):
    device = open_device("hip")
    whole = np.arange(5 * 7 * 9, dtype=np.float64).reshape(5, 7, 9)
    for index in (np.s_[1:4, 2:, 3:8], np.s_[::2, :, ::3], np.s_[:, 1:1], np.s_[2:3, :, 4]):
        values = whole[index]
        other = device.empty(values.shape, values.dtype)
        if inward:
            device.run(device.copy(other, values))
            np.testing.assert_array_equal(other, values)
        else:
            target = np.zeros_like(whole)
            other[...] = values
            device.run(device.copy(target[index], other))
            np.testing.assert_array_equal(target[index], values)
            assert np.count_nonzero(target) == np.count_nonzero(values)


def test_memory_of_the_host_that_the_process_has_already_is_not_pinned(rocm):
    device, memory = open_device("hip"), np.zeros(4)
    assert not device.is_pinned(memory)
    with pytest.raises(InputError, match="accepted with device 'hip': transport 'mpi-p2p'"):
        device.pin(memory)


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
    """As a run compiles them: in a process beside it."""
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
