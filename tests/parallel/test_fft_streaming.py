"""Arrays on the host that stream through devices: numpy's numbers, whatever the options."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, plan_on_host, together, transforms, usual_transports
from fft_oracle import Oracle, check
from pairwise import every_pair
from slipstream.engine.collective import largest
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fft.line_transforms import ColumnPass
from slipstream.engine.outofcore.tile_slots import COPIES, Slot
from slipstream.engine.schedule import POLICIES
from slipstream.fft import DistributedFFT

SHAPE = (12, 10, 9)


def streaming(kinds=COPIES):
    """Return a strategy for everything that streaming lets one choose."""
    return st.fixed_dictionaries(
        {
            "tiles": st.one_of(st.none(), st.integers(1, 6), st.sampled_from([20, 60, 400])),
            "tiles_per_exchange": st.one_of(st.none(), st.integers(1, 6)),
            "streams": st.sampled_from([0, 0, 1, 2, 5]),
            "copies": st.sampled_from(kinds),
            "exchange": st.sampled_from(["host", "device"]),
        }
    )


@pytest.mark.slow
@alike(examples=25)
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


@pytest.mark.slow
@alike(examples=12)
@given(data=st.data())
def test_bits_depend_neither_on_the_policy_nor_on_what_overlaps(
    comm, device, ranks, transports, data
):
    options = {
        "fields": data.draw(st.integers(1, 2)),
        "residency": "host",
        "truncation": data.draw(st.sampled_from([None, "2/3"])),
    }
    tiles = data.draw(st.integers(1, 4))
    results = []
    for schedule in POLICIES:
        how = data.draw(streaming()) | {"tiles": tiles}
        if ranks > 1:
            usual = usual_transports(transports, device, how["exchange"])
            options["transport"] = data.draw(st.sampled_from(usual))
        forward, backward = together(
            comm, check, comm, device, SHAPE, "float64", streaming=how, schedule=schedule, **options
        )
        results.append((forward.tobytes(), backward.tobytes()))
    assert results[0] == results[1]


@pytest.mark.slow
@alike(examples=10)
@given(data=st.data())
def test_bricks_stream_too(comm, device, ranks, transports, data):
    boxes = {
        "input_boxes": data.draw(bricks(SHAPE, ranks)),
        "output_boxes": data.draw(bricks((12, 10, 5), ranks)),
    }
    how = data.draw(streaming())
    if ranks > 1:
        usual = usual_transports(transports, device, how["exchange"])
        boxes["transport"] = data.draw(st.sampled_from(usual))
    together(
        comm, check, comm, device, SHAPE, residency="host", dtype="float64", streaming=how, **boxes
    )


def test_memory_of_an_odd_number_of_reals_is_redistributed_as_complex_numbers_too(comm, device):
    together(comm, check, comm, device, (5,), "float32", truncation="2/3", residency="host")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streams": True}, "streaming: streams is True; accepted: 0 to 16"),
        ({"tiles": 0}, "streaming: tiles is 0; accepted: whole numbers of at least 1"),
        ({"streams": 17}, "streaming: streams is 17; accepted: 0 to 16"),
        ({"copies": "teleport"}, "copies 'teleport'; accepted: memcpy2D, zero-copy, packed"),
        ({"slabs": 3}, "accepted: a mapping with tiles, tiles_per_exchange, streams"),
        ({"devices": 0}, "streaming: devices is 0"),
        ({"exchange": "moon"}, "exchange 'moon'; accepted: host, device"),
        ({"exchange": "device", "devices": 2}, "exchange 'device' with 2 devices of a rank"),
    ],
)
def test_streaming_that_cannot_be_is_refused(comm, device, options, message):
    with pytest.raises(InputError, match=message):
        plan_on_host(comm, device, streaming=options)


def test_narrow_wire_is_for_devices(comm, device):
    with pytest.raises(InputError, match="wire 'float32' with residency 'host'; accepted: None"):
        plan_on_host(comm, device, wire="float32")


def test_exchange_between_gpus_is_asked_for(comm, device):
    with pytest.raises(
        InputError, match="transport 'nccl' .* add streaming={'exchange': 'device'}"
    ):
        plan_on_host(comm, device, transport="nccl")


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
@pytest.mark.parametrize(
    ("truncation", "fields", "dtype", "devices"),
    every_pair(
        itertools.product([None, "2/3", (3, 2, 2)], [1, 2], ["float64", "complex64"], [1, 2])
    ),
)
def test_arrays_may_share_one_memory(comm, device, dtype, fields, truncation, devices):
    if device.kind == "cuda":
        devices = 1  # tests do not know how many there are
    shape = (7, 10, 9)  # ranks have uneven parts of it
    fft = DistributedFFT(
        shape,
        dtype,
        fields=fields,
        truncation=truncation,
        comm=comm,
        device=device,
        residency="host",
        streaming={"devices": devices},
    )
    oracle = Oracle(shape, dtype, fields, truncation)
    points, modes = fft.empty_in_place()
    for _ in range(2):
        points[...] = oracle.input(fft)
        oracle.assert_modes(fft, fft.forward(points, modes))
        oracle.assert_points(fft, fft.backward(modes, points))


def test_padding_is_kept_where_it_is_not_in_the_memory_of_the_modes(comm, device):
    fft = plan_on_host(comm, device)
    nz, ny, nx = fft.input_box.shape
    stored, modes = np.full((nz, ny, 2 * (nx // 2 + 1)), 7.0), fft.empty_output()
    points = stored[..., :nx]
    fft.remember(points)  # so that it is taken as it is
    fft.forward(Oracle(SHAPE, "float64").input(fft), modes)
    fft.backward(modes, points)
    assert (stored[..., nx:] == 7.0).all()


def test_source_is_kept_where_the_result_is_another_array(comm, device):
    fft = plan_on_host(comm, device)
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
    roomy, narrow = (plan_on_host(None, device, shape, memory=m) for m in (4 * field, field))
    assert "between passes the array is on the device" in roomy.describe()
    assert "between passes the array is on the host" in narrow.describe()
    for fewer, more in zip(
        roomy.streamed.slabs.bus_bytes, narrow.streamed.slabs.bus_bytes, strict=True
    ):
        assert fewer < more
    oracle = Oracle(shape, "float64")
    results = [np.array(fft.forward(oracle.input(fft))) for fft in (roomy, narrow)]
    oracle.assert_modes(roomy, results[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-11)


def test_several_devices_of_a_rank_share_the_tiles(comm, device_kind):
    if device_kind == "cuda":
        return  # tests do not know how many there are
    check(
        comm,
        HostDevice(),
        SHAPE,
        "float64",
        2,
        residency="host",
        streaming={"devices": 3, "tiles": 4},
    )


def test_failing_transform_is_named(comm, device, monkeypatch):
    fft = plan_on_host(comm, device)

    def broken(self, graph, columns, spectral=None, signs=()):
        def fail(stream):
            raise ValueError("out of luck")

        graph.add(fail, reads=[columns], writes=[spectral], label="fft z", category="fft")

    monkeypatch.setattr(ColumnPass, "record_forward", broken)
    with pytest.raises(RunError, match=r"node 'fft z' \(fft\) failed: out of luck"):
        fft.forward(np.zeros(fft.input_box.shape))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"residency": "device", "memory": "1 GiB"},
            "memory is for residency 'host', 'disk' and 'auto'",
        ),
        (
            {"residency": "device", "streaming": {}},
            "streaming is for residency 'host', 'disk' and 'auto'",
        ),
        ({"residency": "moon"}, "residency 'moon' is unknown; accepted: device, host, disk, auto"),
    ],
)
def test_options_without_effect_are_refused(comm, device, options, message):
    with pytest.raises(InputError, match=message):
        DistributedFFT(SHAPE, comm=comm, device=device, **options)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["slab", "root"])
def test_slabs_have_the_bits_of_those_on_a_cpu(comm, device, layout):
    if device.kind != "cpu":
        return  # where kernels transform slabs that are on the device, and a library tiles
    for shape, options in (
        ((24, 20, 18), {"truncation": "2/3"}),
        ((13, 17, 11), {"fields": 2}),
        ((12, 10, 9), {"dtype": "complex64", "norm": "ortho"}),
        ((12, 10, 9), {"dtype": "complex128", "truncation": "2/3"}),
    ):
        options = {"layout": layout, "dtype": "float64", **options}
        here = DistributedFFT(shape, comm=comm, device=device, **options)
        points = here.empty_input()
        random = np.random.default_rng(1).random(points.shape)
        points[...] = random + (1j * random[::-1] if points.dtype.kind == "c" else 0)
        modes = here.forward(points)
        expected = modes.tobytes(), here.backward(modes.copy()).tobytes()
        for streaming in (
            {},
            {"tiles": 3},
            {"tiles": 60},
            {"exchange": "device", "tiles": 5, "tiles_per_exchange": 2},
        ):
            there = DistributedFFT(
                shape, comm=comm, device=device, residency="host", streaming=streaming, **options
            )
            found = there.forward(points.copy())
            assert (found.tobytes(), there.backward(found.copy()).tobytes()) == expected


@pytest.mark.slow
def test_a_device_may_be_smaller_than_a_plane(comm, device, monkeypatch):
    shape = (4, 96, 80)
    small = plan_on_host(comm, device, shape, streaming={"tiles": 5000}).streamed
    if device.kind == "cpu":
        assert small.device_bytes < 96 * 80 * 8
    fft = plan_on_host(comm, device, shape, memory=largest(comm, small.device_bytes))
    slabs = fft.streamed.slabs
    assert not slabs.passes.fields.shape.has_whole_planes
    crossed = {"record_in": 0, "record_out": 0}
    for name, record in [(name, getattr(Slot, name)) for name in crossed]:

        def counted(self, graph, target, source, name=name, record=record):
            crossed[name] += source.nbytes
            record(self, graph, target, source)

        monkeypatch.setattr(Slot, name, counted)
    oracle = Oracle(shape, "float64")
    oracle.assert_modes(fft, fft.forward(oracle.input(fft)))
    assert tuple(crossed.values()) == slabs.bus_bytes
    oracle.assert_points(fft, fft.backward(oracle.output(fft)))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_pencils_take_the_exchanges_of_those_on_a_device(comm, device, ranks, dtype):
    shape = (12, 10, 9)
    for grid in (None, (1, ranks), (ranks, 1)):
        options = {"layout": "pencil", "process_grid": grid, "truncation": "2/3", "dtype": dtype}
        oracle, results = Oracle(shape, dtype, truncation="2/3"), []
        between = {"transport": "mpi"} if device.kind == "cpu" else {}
        for how in (
            {"residency": "device"},
            {"residency": "host"},
            {"residency": "host", "streaming": {"exchange": "device", "tiles": 3}, **between},
        ):
            fft = DistributedFFT(shape, comm=comm, device=device, **how, **options)
            modes = fft.forward(oracle.input(fft))
            oracle.assert_modes(fft, modes)
            oracle.assert_points(fft, fft.backward(oracle.output(fft)))
            results.append((fft.exchanges, device.to_host(modes).tobytes()))
        assert len({exchanges for exchanges, _ in results}) == 1
        if device.kind == "cpu" and not device.tiled_transforms():
            assert len(set(results)) == 1


@pytest.mark.slow
def test_only_other_tiles_give_other_roundings(comm, device):
    shape = (48, 40, 36)
    oracle, results = Oracle(shape, "float64"), {}
    for options in (
        {},
        {"streams": 3},
        {"copies": "packed"},
        {"tiles_per_exchange": 3},
        {"exchange": "device"},
        {"tiles": 1},
        {"tiles": 100},
        *([{"devices": 2}] if device.kind == "cpu" else []),
    ):
        fft = plan_on_host(comm, device, shape, memory="64 MiB", streaming=options)
        points, modes = oracle.input(fft), oracle.output(fft)
        results[str(options)] = fft.forward(points), fft.backward(modes)
        oracle.assert_modes(fft, results[str(options)][0])
        oracle.assert_points(fft, results[str(options)][1])
    usual = [one.tobytes() for one in results["{}"]]
    for options, both in results.items():
        if "'tiles'" not in options:
            assert [one.tobytes() for one in both] == usual, options
