"""Arrays on the host that stream through devices: numpy's numbers, whatever the options."""

import contextlib
import ctypes
import gc
import os
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, together, transforms
from fft_oracle import Oracle, check
from slipstream.device import HostDevice
from slipstream.errors import InputError, RunError
from slipstream.fft import DistributedFFT, Streaming
from slipstream.fft.bus import COPIES
from slipstream.fft.stages import AxisTransform
from slipstream.schedule import POLICIES

SHAPE = (12, 10, 9)


def streaming(kinds=COPIES):
    """Return a strategy for everything that streaming lets one choose."""
    return st.fixed_dictionaries(
        {
            "pencils": st.one_of(st.none(), st.integers(1, 6)),
            "pencils_per_exchange": st.one_of(st.none(), st.integers(1, 6)),
            "streams": st.sampled_from([0, 0, 1, 2, 5]),
            "copies": st.sampled_from(kinds),
            "exchange": st.sampled_from(["host", "device"]),
        }
    )


def usual_transports(transports, device, exchange="host"):
    """Return the names of those that exchange from there."""
    if exchange == "device":
        return list(transports)
    usual = ("mpi", "mpi-p2p") if device.kind == "cuda" else ("mpi", "mpi-p2p", "peer")
    return [name for name in transports if name in usual]


@alike(examples=40)
@given(data=st.data())
def test_any_streaming_of_any_array_equals_numpy(comm, device, ranks, transports, data):
    case = data.draw(transforms(ranks))
    case["streaming"] = data.draw(streaming())
    case["schedule"] = data.draw(st.sampled_from(POLICIES))
    usual = usual_transports(transports, device, case["streaming"]["exchange"])
    case["transport"] = data.draw(st.sampled_from(["auto", *usual]))
    # Memory that ranks share is allocated by 2 MiB.
    least = "1 MiB" if case["streaming"]["exchange"] == "host" else "12 MiB"
    case["memory"] = data.draw(st.sampled_from([None, least, "64 MiB"]))
    together(comm, check, comm, device, residency="host", **case)


@alike(examples=12)
@given(data=st.data())
def test_bits_depend_neither_on_the_policy_nor_on_what_overlaps(
    comm, device, ranks, transports, data
):
    options = {"fields": data.draw(st.integers(1, 2)), "residency": "host",
               "truncation": data.draw(st.sampled_from([None, "2/3"]))}  # fmt: skip
    pencils = data.draw(st.integers(1, 4))
    results = []
    for schedule in POLICIES:
        how = data.draw(streaming()) | {"pencils": pencils}
        if ranks > 1:
            usual = usual_transports(transports, device, how["exchange"])
            options["transport"] = data.draw(st.sampled_from(usual))
        forward, backward = together(
            comm, check, comm, device, SHAPE, "float64", streaming=how, schedule=schedule, **options
        )
        results.append((forward.tobytes(), backward.tobytes()))
    assert results[0] == results[1]


@alike(examples=10)
@given(data=st.data())
def test_bricks_stream_too(comm, device, ranks, transports, data):
    boxes = {"input_boxes": data.draw(bricks(SHAPE, ranks)),
             "output_boxes": data.draw(bricks((12, 10, 5), ranks))}  # fmt: skip
    how = data.draw(streaming())
    if ranks > 1:
        usual = usual_transports(transports, device, how["exchange"])
        boxes["transport"] = data.draw(st.sampled_from(usual))
    together(comm, check, comm, device, SHAPE, residency="host", dtype="float64", streaming=how,
             **boxes)  # fmt: skip


def plan(comm, device, shape=SHAPE, **options):
    return DistributedFFT(shape, "float64", comm=comm, device=device, residency="host", **options)


def test_memory_is_obeyed_and_more_pencils_are_cut_for_less(comm, device):
    shape = (32, 24, 40)
    sizes, pencils = [], []
    for memory in (1 << 22, 1 << 17, 100_000):
        fft = plan(comm, device, shape, memory=memory)
        assert fft._plan.device_bytes <= memory
        sizes.append(fft._plan.device_bytes)
        pencils.append(fft._plan.pencils[0])
        oracle = Oracle(shape, "float64")
        oracle.assert_modes(fft, fft.forward(oracle.input(fft)))
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert pencils[0] <= pencils[1] <= pencils[2]


def test_too_little_memory_is_refused_with_the_smallest_that_would_do(comm, device):
    shape = (48, 64, 512)
    with pytest.raises(InputError, match=r"memory .* on each device is too little .* at least (\d+)"
                       ) as caught:  # fmt: skip
        plan(comm, device, shape, memory="10 kB")
    least = int(str(caught.value).split("at least ")[1].split()[0])
    fft = plan(comm, device, shape, memory=f"{least} MiB")
    assert fft._plan.device_bytes <= least << 20


@pytest.mark.parametrize("memory", ["8 parsecs", "-1 GiB", "", 0, True, "GiB"])
def test_memory_that_is_none_is_refused(comm, device, memory):
    with pytest.raises(InputError, match=r'memory .*; accepted: bytes, or text such as "8 GiB"'):
        plan(comm, device, memory=memory)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pencils": 0}, "streaming: pencils is 0; accepted: whole numbers of at least 1"),
        ({"streams": 17}, "streaming: streams is 17; accepted: 0 to 16"),
        ({"copies": "teleport"}, "copies 'teleport'; accepted: memcpy2D, zero-copy, packed"),
        ({"slabs": 3}, "accepted: a mapping with pencils, pencils_per_exchange, streams"),
        ({"devices": 0}, "streaming: devices is 0"),
        ({"exchange": "moon"}, "exchange 'moon'; accepted: host, device"),
        ({"exchange": "device", "devices": 2}, "exchange 'device' with 2 devices of a rank"),
    ],
)
def test_streaming_that_cannot_be_is_refused(comm, device, options, message):
    with pytest.raises(InputError, match=message):
        plan(comm, device, streaming=options)


def test_narrow_wire_is_for_devices(comm, device):
    with pytest.raises(InputError, match="wire 'float32' with residency 'host'; accepted: None"):
        plan(comm, device, wire="float32")


def test_exchange_between_gpus_is_asked_for(comm, device):
    with pytest.raises(
        InputError, match="transport 'nccl' .* add streaming={'exchange': 'device'}"
    ):
        plan(comm, device, transport="nccl")


def test_residency_is_chosen_by_memory(comm, device):
    for memory, expected in (("1 GiB", "device"), ("40 KiB", "host")):
        fft = DistributedFFT(
            (24, 20, 18),
            comm=comm,
            device=device,
            residency="auto",
            memory=memory,
        )
        assert fft.residency == expected
        assert f"on the {expected}" in fft.describe()


# Of the last one, planes are smaller than those of points, and there are as many.
@pytest.mark.parametrize("truncation", [None, "2/3", (3, 2, 2)])
@pytest.mark.parametrize("fields", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("devices", [1, 2])
def test_arrays_may_share_one_memory(comm, device, dtype, fields, truncation, devices):
    if device.kind == "cuda":
        devices = 1  # tests do not know how many there are
    shape = (7, 10, 9)  # of which ranks have uneven parts
    fft = DistributedFFT(
        shape, dtype, fields=fields, truncation=truncation, comm=comm, device=device,
        residency="host", streaming={"devices": devices},
    )  # fmt: skip
    oracle = Oracle(shape, dtype, fields, truncation)
    points, modes = fft.empty_in_place()
    for _ in range(2):
        points[...] = oracle.input(fft)
        oracle.assert_modes(fft, fft.forward(points, modes))
        oracle.assert_points(fft, fft.backward(modes, points))


def test_padding_is_kept_where_it_is_not_in_the_memory_of_the_modes(comm, device):
    fft = plan(comm, device)
    nz, ny, nx = fft.input_box.shape
    stored, modes = np.full((nz, ny, 2 * (nx // 2 + 1)), 7.0), fft.empty_output()
    points = stored[..., :nx]
    fft.remember(points)  # so that it is taken as it is
    fft.forward(Oracle(SHAPE, "float64").input(fft), modes)
    fft.backward(modes, points)
    assert (stored[..., nx:] == 7.0).all()


def test_source_is_kept_where_the_result_is_another_array(comm, device):
    fft = plan(comm, device)
    oracle = Oracle(SHAPE, "float64")
    points, modes = fft.empty_input(), fft.empty_output()
    points[...] = oracle.input(fft)
    before = points.copy()
    for _ in range(2):
        fft.forward(points, modes)
        kept = modes.copy()
        fft.backward(modes, points)
        assert modes.tobytes() == kept.tobytes()
        np.testing.assert_allclose(points, before, atol=1e-14)


def test_array_between_passes_stays_on_a_device_that_has_room(ranks, device):
    if ranks > 1:
        return  # then it is sent from rank to rank, from the host
    shape = (32, 24, 40)
    field = 32 * 24 * 21 * 16
    roomy, narrow = (plan(None, device, shape, memory=m) for m in (4 * field, field))
    assert "between passes the array is on the device" in roomy.describe()
    assert "between passes the array is on the host" in narrow.describe()
    for fewer, more in zip(roomy.streamed.bus_bytes, narrow.streamed.bus_bytes, strict=True):
        assert fewer < more
    oracle = Oracle(shape, "float64")
    results = [np.array(fft.forward(oracle.input(fft))) for fft in (roomy, narrow)]
    oracle.assert_modes(roomy, results[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-11)


def test_several_devices_of_a_rank_share_the_pencils(comm, device_kind):
    if device_kind == "cuda":
        return  # tests do not know how many there are
    check(comm, HostDevice(), SHAPE, "float64", 2, residency="host",
          streaming={"devices": 3, "pencils": 4})  # fmt: skip


def test_exchanges_between_devices_take_the_memory_that_they_say(comm, device, monkeypatch):
    taken = []
    empty, kind = type(device).empty, type(device)

    def noted(self, shape, dtype):
        array = empty(self, shape, dtype)
        taken.append(array.nbytes if self is device else 0)
        return array

    shape = (40, 36, 50)
    for transport in ("auto", "mpi-p2p"):
        for order in ("transposed", "natural"):
            monkeypatch.setattr(kind, "empty", noted)
            fft = plan(
                comm, device, shape, streaming={"exchange": "device", "pencils": 4}, order=order,
                transport=transport, memory="24 MiB",
            )  # fmt: skip
            monkeypatch.undo()
            said = fft.streamed.device_bytes
            exchanges = fft.streamed._exchanges
            if exchanges.from_device:
                assert said > sum(array.nbytes for pair in exchanges._buffers for array in pair)
            if device.kind == "cuda" and fft.transport != "peer":
                assert sum(taken) <= said
            assert said <= 24 << 20
            taken.clear()
            oracle = Oracle(shape, "float64")
            oracle.assert_modes(fft, fft.forward(oracle.input(fft)))


def transform_often(comm, device, transports, count, seed=0):
    """Transform with random options, each time with a plan of its own, under a memory ceiling."""
    generator = np.random.default_rng(seed)
    shape = (80, 72, 64)
    oracle = Oracle(shape, "float64")
    for _ in range(count):
        how = {
            "pencils": int(generator.integers(2, 7)),
            "pencils_per_exchange": int(generator.integers(1, 7)),
            "streams": int(generator.choice([0, 0, 1, 2, 5])),
            "copies": str(generator.choice(COPIES)),
            "exchange": str(generator.choice(["host", "device"])),
        }
        usual = usual_transports(transports, device, how["exchange"])
        fft = plan(
            comm, device, shape, streaming=how, memory="24 MiB",
            schedule=str(generator.choice(POLICIES)),
            transport=str(generator.choice(["auto", *usual])),
        )  # fmt: skip
        assert fft.streamed.device_bytes <= 24 << 20
        if generator.random() < 0.5:
            points, modes = fft.empty_in_place()
        else:
            points, modes = fft.empty_input(), fft.empty_output()
        points[...] = oracle.input(fft)
        oracle.assert_modes(fft, fft.forward(points, modes))
        oracle.assert_points(fft, fft.backward(modes, points))


def held(comm, device):
    """Return what this process holds: bytes of memory, here and on the device, threads, files."""
    gc.collect()
    plan(comm, device)  # which frees what plans before it have shared
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # where there is no such allocator
        ctypes.CDLL(None).malloc_trim(0)
    if comm is not None:
        comm.Barrier()
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    there = 0
    if device.kind == "cuda":
        import cupy

        with device.context:
            there = cupy.get_default_memory_pool().used_bytes()
    return {
        "here": 1024 * int(status["VmRSS"].split()[0]), "there": there,
        "threads": int(status["Threads"]), "files": len(os.listdir("/proc/self/fd")),
    }  # fmt: skip


def test_many_plans_leave_nothing_behind(comm, device, transports):
    transform_often(comm, device, transports, 20)
    before = held(comm, device)
    transform_often(comm, device, transports, 40, seed=1)
    after = held(comm, device)
    # The arrays of one of these plans take 6 MiB and more among all ranks.
    assert after["here"] - before["here"] < 4 << 20
    assert after["there"] <= before["there"]
    # The threads of the last plans may not have ended yet.
    assert after["threads"] <= before["threads"] + 8
    assert after["files"] <= before["files"]


def test_failing_transform_is_named(comm, device, monkeypatch):
    fft = plan(comm, device)

    def broken(self, graph, source, target, forward):
        def fail(stream):
            raise ValueError("out of luck")

        self._add(graph, fail, [source], [target], "fft axis 0", "fft")

    monkeypatch.setattr(AxisTransform, "_transform", broken)
    with pytest.raises(RunError, match=r"node 'fft axis 0' \(fft\) failed: out of luck"):
        fft.forward(np.zeros(fft.input_box.shape))


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

    if transport == "auto":
        for name in ("_HostMemory", "_CudaMemory"):
            monkeypatch.setattr(f"slipstream.exchange.shared_memory.{name}.__init__", scarce)
    else:
        monkeypatch.setattr("slipstream.fft.exchanges.device_buffers", scarce)
    with pytest.raises(InputError, match="no memory left for exchanges"):
        plan(comm, device, memory="64 MiB", transport=transport, streaming={"exchange": "device"})


def test_one_rank_without_memory_stops_all(comm, device, ranks, monkeypatch):
    empty = type(device).empty

    def scarce(self, shape, dtype):
        if comm is None or comm.rank == ranks - 1:
            raise InputError("no memory left for an array")
        return empty(self, shape, dtype)

    monkeypatch.setattr(type(device), "empty", scarce)
    with pytest.raises(InputError, match="no memory left for an array"):
        plan(comm, device, memory="24 MiB")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residency": "device", "memory": "1 GiB"}, "memory is for residency 'host' and 'auto'"),
        ({"residency": "device", "streaming": {}}, "streaming is for residency 'host' and 'auto'"),
        ({"residency": "moon"}, "residency 'moon'; accepted: device, host, auto"),
    ],
)
def test_options_without_effect_are_refused(comm, device, options, message):
    with pytest.raises(InputError, match=message):
        DistributedFFT(SHAPE, comm=comm, device=device, **options)


def test_many_transforms_with_random_options_leave_no_memory_behind(comm, device, monkeypatch):
    generator, alive = np.random.default_rng(0), []
    empty = type(device).empty

    def noted(self, shape, dtype):
        array = empty(self, shape, dtype)
        alive.append(weakref.ref(array))
        return array

    monkeypatch.setattr(type(device), "empty", noted)
    for _ in range(20):
        shape = tuple(int(n) for n in generator.integers(4, 12, 3))
        how = Streaming(
            pencils=int(generator.integers(1, 5)), streams=int(generator.integers(0, 3)),
            copies=COPIES[generator.integers(0, 3)],
        )  # fmt: skip
        fft = plan(comm, device, shape, streaming=how, memory="24 MiB")
        fft.forward(np.zeros(fft.input_box.shape))
    assert len(alive) > 20 * 5
    del fft
    gc.collect()
    assert not [array for array in alive if array() is not None]
