"""Memory of transforms of arrays on the host: limits are kept, and nothing is left behind."""

import contextlib
import ctypes
import gc
import os
import weakref

import numpy as np
import pytest

from fft_cases import plan_on_host, usual_transports
from fft_oracle import Oracle
from slipstream.engine.errors import InputError, bytes_of
from slipstream.engine.exchange import chosen_transport
from slipstream.engine.fft import slab_tiles
from slipstream.engine.fft.streamed_slabs import StreamedPasses
from slipstream.engine.outofcore.tile_slots import COPIES
from slipstream.engine.schedule import POLICIES

pytestmark = pytest.mark.usefixtures("quick_collector")


@pytest.mark.thorough
def test_memory_is_obeyed_and_more_tiles_are_cut_for_less(comm, device):
    shape = (32, 24, 40)
    sizes, tiles = [], []
    for memory in (1 << 22, 1 << 17, 100_000):
        fft = plan_on_host(comm, device, shape, memory=memory)
        assert fft._plan.device_bytes <= memory
        sizes.append(fft._plan.device_bytes)
        tiles.append(fft._plan.tiles)
        oracle = Oracle(shape, "float64")
        oracle.assert_modes(fft, fft.forward(oracle.input(fft)))
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert tiles[0] <= tiles[1] <= tiles[2]


def test_too_little_memory_is_refused_with_the_smallest_that_would_do(comm, device):
    shape = (48, 64, 512)
    with pytest.raises(
        InputError, match=r"memory .* on each device is too little .* at least \d+ [KM]iB"
    ) as caught:
        plan_on_host(comm, device, shape, memory="10 kB")
    least = str(caught.value).split("at least ")[1]
    fft = plan_on_host(comm, device, shape, memory=least)
    assert fft._plan.device_bytes <= bytes_of(least)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1024, 1024, 1024), {"tune": "quick"}),
        ((100_000, 64, 64), {}),
        ((1 << 27,), {}),
        ((1 << 20, 1 << 20), {}),
        ((512, 512, 512), {"streaming": {"exchange": "device", "tiles_per_exchange": 4}}),
    ],
)
def test_too_little_memory_is_told_without_planning(comm, device, monkeypatch, shape, options):
    """Planning these transforms for every possible number of tiles would take minutes."""
    if device.kind != "cpu":
        pytest.skip("libraries of GPUs say what memory they need when they plan")
    monkeypatch.setattr(slab_tiles, "SlabWorker", None)
    # Arrays that the host has no memory for are refused before.
    with pytest.raises(
        InputError, match="memory 1000 B on each device is too little|GiB (are )?free"
    ):
        plan_on_host(comm, device, shape, memory="1 kB", **options)


def test_a_rank_whose_device_has_less_than_it_said_stops_all(comm, device, monkeypatch):
    """Where the array between two passes is to stay there; a rank that continues would hang."""
    first = comm is None or comm.rank == 0
    keep = StreamedPasses._keep

    def short_of_memory(passes, left):
        if first:
            raise InputError("less than it said")
        return keep(passes, left)

    monkeypatch.setattr(StreamedPasses, "_keep", short_of_memory)
    for tune in ("off", "quick"):
        with pytest.raises(InputError, match="less than it said"):
            plan_on_host(comm, device, layout="root", memory="1 GiB", tune=tune)


@pytest.mark.parametrize("memory", ["8 parsecs", "-1 GiB", "", 0, True, "GiB"])
def test_memory_that_is_none_is_refused(comm, device, memory):
    with pytest.raises(InputError, match=r'memory .*; accepted: bytes, or text such as "8 GiB"'):
        plan_on_host(comm, device, memory=memory)


def test_exchanges_between_devices_take_the_memory_that_they_say(comm, device, monkeypatch):
    sizes = []
    empty, kind = type(device).empty, type(device)

    def noted(self, shape, dtype):
        array = empty(self, shape, dtype)
        sizes.append(array.nbytes if self is device else 0)
        return array

    shape = (40, 36, 50)
    for transport in ("auto", "mpi-p2p"):
        for order in ("transposed", "natural"):
            monkeypatch.setattr(kind, "empty", noted)
            fft = plan_on_host(
                comm,
                device,
                shape,
                streaming={"exchange": "device", "tiles": 4},
                order=order,
                transport=transport,
                memory="24 MiB",
            )
            monkeypatch.undo()
            said = fft.streamed.device_bytes
            exchanges = fft.streamed.slabs.by_device
            if exchanges:
                assert said > sum(
                    one.nbytes for pairs in exchanges.buffers for pair in pairs for one in pair
                )
            if device.kind == "cuda" and fft.transport != "peer":
                assert sum(sizes) <= said
            assert said <= 24 << 20
            sizes.clear()
            oracle = Oracle(shape, "float64")
            oracle.assert_modes(fft, fft.forward(oracle.input(fft)))


def transform_often(comm, device, transports, count, seed=0):
    """Transform with random options, each time with a new plan, under a memory limit."""
    generator = np.random.default_rng(seed)
    shape = (80, 72, 64)
    oracle = Oracle(shape, "float64")
    for _ in range(count):
        how = {
            "tiles": int(generator.integers(2, 7)),
            "tiles_per_exchange": int(generator.integers(1, 7)),
            "streams": int(generator.choice([0, 0, 1, 2, 5])),
            "copies": str(generator.choice(COPIES)),
            "exchange": str(generator.choice(["host", "device"])),
        }
        usual = usual_transports(transports, device, how["exchange"])
        fft = plan_on_host(
            comm,
            device,
            shape,
            streaming=how,
            memory="24 MiB",
            schedule=str(generator.choice(POLICIES)),
            transport=str(generator.choice(["auto", *usual])),
        )
        assert fft.streamed.device_bytes <= 24 << 20
        if generator.random() < 0.5:
            points, modes = fft.empty_in_place()
        else:
            points, modes = fft.empty_input(), fft.empty_output()
        points[...] = oracle.input(fft)
        oracle.assert_modes(fft, fft.forward(points, modes))
        oracle.assert_points(fft, fft.backward(modes, points))


def held(comm, device):
    """Return the resources of this process: bytes here and on the device, threads, files."""
    gc.collect()
    plan_on_host(comm, device)  # which frees what plans before it have shared
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # where there is no such allocator
        ctypes.CDLL(None).malloc_trim(0)
    there = 0
    if device.kind == "cuda":
        import cupy

        with device.context:
            cupy.get_default_pinned_memory_pool().free_all_blocks()
            there = cupy.get_default_memory_pool().used_bytes()
    if comm is not None:
        comm.Barrier()
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "here": 1024 * int(status["VmRSS"].split()[0]),
        "there": there,
        "threads": int(status["Threads"]),
        "files": len(os.listdir("/proc/self/fd")),
    }


@pytest.mark.thorough
def test_many_plans_leave_nothing_behind(comm, device, transports):
    # The same transforms: compilers of kernels, and loaded kernels, stay a while.
    transform_often(comm, device, transports, 8, seed=1)
    before = held(comm, device)
    transform_often(comm, device, transports, 8, seed=1)
    after = held(comm, device)
    # The arrays of one of these plans take 6 MiB and more among all ranks.
    assert after["here"] - before["here"] < 4 << 20
    assert after["there"] <= before["there"]
    # The threads of the last plans may not have ended yet.
    assert after["threads"] <= before["threads"] + 8
    assert after["files"] <= before["files"]


@pytest.mark.parametrize("transport", ["auto", "mpi-p2p"])
def test_one_rank_without_memory_for_exchanges_stops_all(
    comm, device, ranks, transport, monkeypatch
):
    """The memory that is shared is asked for last."""
    if ranks == 1:
        return  # nothing is exchanged

    def scarce(*_):
        if comm.rank == ranks - 1:
            raise InputError("no memory left for exchanges")

    # Ranks that share a GPU have no memory in common.
    if chosen_transport(transport, comm, device) == "peer":
        on_gpus = device.kind == "cuda"
        memory = "cuda_ipc_memory.CudaMemory" if on_gpus else "peer_memory.HostMemory"
        monkeypatch.setattr(f"slipstream.engine.exchange.{memory}.__init__", scarce)
    else:
        monkeypatch.setattr("slipstream.engine.fft.device_exchange.DeviceExchanges._empty", scarce)
    with pytest.raises(InputError, match="no memory left for exchanges"):
        plan_on_host(
            comm, device, memory="64 MiB", transport=transport, streaming={"exchange": "device"}
        )


def test_one_rank_without_memory_stops_all(comm, device, ranks, monkeypatch):
    empty = type(device).empty

    def scarce(self, shape, dtype):
        if comm is None or comm.rank == ranks - 1:
            raise InputError("no memory left for an array")
        return empty(self, shape, dtype)

    monkeypatch.setattr(type(device), "empty", scarce)
    with pytest.raises(InputError, match="no memory left for an array"):
        plan_on_host(comm, device, memory="24 MiB")


@pytest.mark.thorough
def test_many_transforms_with_random_options_leave_no_array_behind(
    comm, device, transports, monkeypatch
):
    alive, empty = [], type(device).empty

    def noted(self, shape, dtype):
        array = empty(self, shape, dtype)
        alive.append(weakref.ref(array))
        return array

    monkeypatch.setattr(type(device), "empty", noted)
    transform_often(comm, device, transports, 8)
    assert len(alive) > 8 * 5
    gc.collect()
    assert not [array for array in alive if array() is not None]
