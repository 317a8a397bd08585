"""Steps of fields that stay on the host: the same as where fields are on the device."""

import itertools

import numpy as np
import pytest

from flows import advance, leave_state, make_case, modes_of, own_part, start
from slipstream.engine.collective import largest
from slipstream.engine.errors import InputError, bytes_of, bytes_text
from slipstream.engine.fft import slab_tiles
from slipstream.engine.outofcore.tile_slots import Slot, TileDevice
from slipstream.show.solver_texts import description, step_description
from slipstream.spectral import memory_placement
from slipstream.spectral.cfl import courant_rate
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.spectral_simulation import SpectralSimulation

BOX = ("grid.points=[16, 12, 10]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
MODELS = {
    "hd": (),
    "rk4": ("time.integrator=rk4",),
    "heun": ("time.integrator=heun",),
    "explicit": ("numerics.integrating_factor=false",),
    # Powers of the wavenumber do not separate: factors of decay of every mode stream too.
    "hyperviscous": ("equation.viscosity_power=2", "equation.viscosity=0.001"),
    "shifted": ("numerics.dealiasing=phase-shift", "time.integrator=rk4"),
    "single": ("numerics.precision=float32",),
    "driven": (
        'forcing={ kind = "random", amplitude = 0.5, shells = [1, 2], correlation_time = 0.02 }',
    ),
    # The power that a force puts in is kept: its factor follows from the state, in every step.
    "injected": ('forcing={ kind = "random", shells = [1, 2], injection = 0.1 }',),
    # Of two planes and two ky, some ranks have none.
    "flat": ("grid.points=[16, 3, 2]",),
    "boussinesq": (
        "equation.model=boussinesq",
        "equation.diffusivity=0.02",
        "equation.buoyancy_frequency=2.0",
        "equation.rotation=1.0",
    ),
    "mhd": ("equation.model=mhd", "equation.resistivity=0.02", "equation.mean_field=0.7"),
    # No length has kernels of a GPU's own: its library's transforms take their scratch here.
    "odd": ("grid.points=[22, 26, 13]",),
}
STREAMED = ("run.residency=host",)
# Memory that ranks share and a GPU reaches takes its time to be made: for one model.
BY_MPI = (*STREAMED, "run.transport=mpi-p2p")
# Whether ranks differ in it: most of it is between a device and its host.
OPTIONS = {
    "{ tiles = 1 }": False,
    "{ tiles = 3, streams = 1 }": False,
    "{ tiles = 3, resident = false }": False,
    '{ tiles = 100, copies = "zero-copy" }': True,
    '{ tiles = 2, copies = "packed" }': False,
    '{ tiles = 100, copies = "zero-copy", resident = false }': False,
    '{ tiles = 2, copies = "packed", resident = false }': True,
    "{ tiles = 5, streams = 4 }": False,
    "{ tiles = 5, streams = 4, resident = false }": True,
    "{ devices = 2 }": True,
    "{ tiles = 4, tiles_per_exchange = 1 }": True,
    '{ tiles = 3, streams = 2, tiles_per_exchange = 3, update = "host" }': True,
}


def in_core(device, *settings, comm=None):
    """Return a simulation that is set as streamed ones are, wherever it then runs."""
    simulation = start(device, *settings, comm=comm)
    if device.kind == "cuda":
        state = start(device, *settings, *streaming(comm, device), comm=comm).flow.read_state()
        row = min(state.shape[-1], simulation.flow.state.shape[-1])
        simulation.flow.state[..., :row] = device.array(state[..., :row])
    return simulation


def streaming(comm, device):
    """Return the settings of fields on the host, whose ranks exchange by MPI where GPUs are."""
    return BY_MPI if comm is not None and device.kind == "cuda" else STREAMED


def devices_of_a_rank(device, comm):
    if device.kind == "cpu":
        return 2
    from slipstream.engine.device import cuda_device_count

    return min(2, cuda_device_count())


# Several ranks exchange products of other numbers, of other planes, or none, and add up powers.
EXCHANGED = (
    ("mhd", "true"),
    ("shifted", "true"),
    ("injected", "true"),
    ("flat", "true"),
    ("flat", "false"),
    ("boussinesq", "false"),
)


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "resident"),
    [
        pytest.param(*one, marks=() if one in EXCHANGED else pytest.mark.one_rank)
        for one in [(model, "true") for model in MODELS]
        + [(model, "false") for model in ("boussinesq", "single", "driven", "flat", "odd")]
    ],
)
def test_streamed_steps_give_the_bits_of_steps_on_the_device(comm, device, model, resident):
    settings = BOX + MODELS[model]
    # The last step is longer, which other factors of decay go with.
    expected = advance(advance(in_core(device, *settings, comm=comm), 2), 1, 0.015)
    how = STREAMED if model == "mhd" else streaming(comm, device)
    how = (*how, f"run.streaming={{ resident = {resident} }}")
    streamed = advance(advance(start(device, *settings, *how, comm=comm), 2), 1, 0.015)
    assert streamed.placement.residency == "host"
    assert isinstance(streamed.flow.state, np.ndarray)
    actual, wanted = modes_of(streamed), modes_of(expected)
    if device.kind == "cpu":
        assert actual.tobytes() == wanted.tobytes()
    # Factors of decay and patterns of force are then made by another processor's functions.
    tolerance = 1e-5 if model == "single" else 1e-12
    assert np.abs(actual - wanted).max(initial=0) <= tolerance * np.abs(wanted).max(initial=1e-300)
    assert courant_rate(streamed.flow) == pytest.approx(courant_rate(expected.flow), rel=tolerance)
    for name, value in expected.diagnostics().items():
        if not name.endswith("residual"):  # the small difference of large terms
            assert streamed.diagnostics()[name] == pytest.approx(
                value, rel=10 * tolerance, abs=1e-7, nan_ok=True
            )


@pytest.fixture(scope="module")
def streamed_by_default(comm, device):
    """The settings of a flow, and its modes after two steps that stream as they do by default."""
    settings = (*BOX, *MODELS["mhd"], *streaming(comm, device))
    return settings, modes_of(advance(start(device, *settings, comm=comm), 2))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        pytest.param(one, schedule, marks=() if OPTIONS[one] else pytest.mark.one_rank)
        for one, schedule in zip(OPTIONS, itertools.cycle(["overlap", "serial", "serial"]))
    ],
)
def test_no_way_to_stream_changes_a_bit(comm, device, streamed_by_default, options, schedule):
    if "devices" in options and devices_of_a_rank(device, comm) < 2:
        pytest.skip("needs two GPUs")
    settings, expected = streamed_by_default
    chosen = (f"run.streaming={options}", f"run.schedule={schedule}")
    actual = modes_of(advance(start(device, *settings, *chosen, comm=comm), 2))
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_tiles_of_planes_may_be_smaller_than_those_of_columns(
    comm, device, streamed_by_default, monkeypatch
):
    settings, expected = streamed_by_default
    monkeypatch.setattr(slab_tiles, "_PLANE_TILE", 256)
    simulation = start(device, *settings, comm=comm)
    shape = simulation.flow.passes.fields.shape
    assert shape.has_whole_planes and shape.planes == 1
    assert modes_of(advance(simulation, 2)).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("mhd", marks=pytest.mark.one_rank),
        "shifted",
        pytest.param("driven", marks=pytest.mark.one_rank),
    ],
)
def test_looking_at_a_state_does_not_change_what_follows(comm, device, model):
    """A step leaves behind what the next one begins with, in memory that others use in between."""
    settings = (*BOX, *MODELS[model], *streaming(comm, device))
    alone = advance(start(device, *settings, comm=comm), 4)
    watched = advance(start(device, *settings, comm=comm), 2)
    assert watched.flow.is_ahead
    watched.diagnostics(), watched.spectra(), list(watched.checkpoint())
    assert watched.flow.is_ahead
    list(watched.fields())
    assert not watched.flow.is_ahead
    advance(watched, 2)
    assert modes_of(watched).tobytes() == modes_of(alone).tobytes()


def counting(record, crossed, way):
    """Return a copy's recording that adds up the copied bytes."""

    def noted(self, graph, target, source):
        crossed[way] += source.nbytes
        record(self, graph, target, source)

    return noted


def crossed_in_a_step(simulation, monkeypatch):
    """Return the bytes that a recorded step copies in and out."""
    crossed = [0, 0]
    monkeypatch.setattr(Slot, "record_in", counting(Slot.record_in, crossed, 0))
    monkeypatch.setattr(Slot, "record_out", counting(Slot.record_out, crossed, 1))
    simulation.flow.record_step(begins=False)
    monkeypatch.undo()
    return tuple(crossed)


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how"),
    [
        pytest.param("hd", "", marks=pytest.mark.one_rank),
        ("shifted", ""),
        pytest.param("driven", "", marks=pytest.mark.one_rank),
        pytest.param("hyperviscous", "", marks=pytest.mark.one_rank),
        pytest.param("hd", "resident = false", marks=pytest.mark.one_rank),
        ("mhd", "resident = false"),
        pytest.param("shifted", "resident = false", marks=pytest.mark.one_rank),
        ("heun", 'update = "host"'),
        pytest.param("shifted", 'update = "host"', marks=pytest.mark.one_rank),
    ],
)
def test_bytes_over_the_bus_are_foretold(comm, device, monkeypatch, model, how):
    settings = (*BOX, *MODELS[model], *streaming(comm, device), f"run.streaming={{ {how} }}")
    streamed = start(device, *settings, comm=comm)
    resident = streamed.flow.passes.resident.ky
    assert resident == (0 if how else streamed.problem.geometry.columns_shape[1])
    crossed = crossed_in_a_step(streamed, monkeypatch)
    update = "host" if "update" in how else "device"
    assert crossed == crossings(streamed.problem, update, resident)
    assert all(bytes_text(one) in description(streamed)["bus"] for one in crossed)


@pytest.mark.thorough
@pytest.mark.one_rank
def test_bytes_of_tiles_smaller_than_a_plane_are_foretold(device, monkeypatch):
    options = "run.streaming={ tiles = 30 }"
    streamed = start(device, *BOX, "run.residency=host", options)
    assert not streamed.flow.passes.fields.shape.has_whole_planes
    crossed = crossed_in_a_step(streamed, monkeypatch)
    assert crossed == crossings(streamed.problem, "device", 0, 30)
    assert all(bytes_text(one) in description(streamed)["bus"] for one in crossed)


@pytest.mark.slow
def test_columns_stay_on_the_device_as_far_as_memory_allows(comm, device, ranks, monkeypatch):
    if ranks > 6:
        return  # too few ky for each
    settings = (*BOX, *MODELS["mhd"], *streaming(comm, device))
    tiles = max(1, 6 // ranks)  # of whole rows of modes
    none_stay = f"run.streaming={{ tiles = {tiles}, resident = false }}"
    streamed = start(device, *settings, none_stay, comm=comm)
    none = largest(comm, streamed.flow.passes.device_bytes)
    expected = modes_of(advance(streamed, 3))
    # On a CPU the fields themselves are in the same memory.
    fields = streamed.placement.fields_bytes if device.kind == "cpu" else 0
    fields = largest(comm, fields)
    kept = []
    for memory in (none, none + fields + (24 << 10), none + fields + (1 << 24)):
        some_stay = f"run.streaming={{ tiles = {tiles} }}", f"run.memory={memory}"
        some = start(device, *settings, *some_stay, comm=comm)
        passes = some.flow.passes
        assert passes.device_bytes <= memory
        kept.append(passes.resident.ky)
        crossed = crossed_in_a_step(some, monkeypatch)
        assert crossed == crossings(some.problem, "device", passes.resident.ky, passes.tiles)
        assert modes_of(advance(some, 3)).tobytes() == expected.tobytes()
    every = some.problem.geometry.columns_shape[1]
    assert kept[0] <= kept[1] <= kept[2] == every
    # Where slabs are uneven, the smaller ones have room in what the largest takes.
    assert largest(comm, every - kept[0]) > 0


def test_fewer_columns_stay_where_a_device_has_less_room_than_it_said(comm, device, monkeypatch):
    settings = (*BOX, *MODELS["mhd"], *streaming(comm, device), "run.streaming={ tiles = 6 }")
    whole = start(device, *settings, comm=comm)
    expected, ky = modes_of(advance(whole, 3)), whole.flow.passes.resident.ky
    empty = type(device).empty

    def scarce(self, shape, dtype):
        if len(shape) == 5 and shape[0] > 1:
            raise InputError("no memory left for as much")
        return empty(self, shape, dtype)

    monkeypatch.setattr(type(device), "empty", scarce)
    some = start(device, *settings, comm=comm)
    monkeypatch.undo()
    left = some.flow.passes.resident
    assert left.tiles == min(1, whole.flow.passes.resident.tiles)
    assert left.ky < ky or ky < 2
    assert some.flow.passes.device_bytes <= whole.flow.passes.device_bytes
    assert modes_of(advance(some, 3)).tobytes() == expected.tobytes()


@pytest.mark.several_ranks
@pytest.mark.parametrize("how", ["{ tiles = 3 }", "{ tiles = 3, resident = false }"])
def test_messages_of_mpi_give_the_same_bits_as_shared_memory(comm, device, how):
    settings = (*BOX, *MODELS["mhd"], f"run.streaming={how}")
    expected = modes_of(advance(in_core(device, *BOX, *MODELS["mhd"], comm=comm), 3))
    found = modes_of(advance(start(device, *settings, *BY_MPI, comm=comm), 3))
    assert found.tobytes() == expected.tobytes()


def test_a_step_of_flow_takes_its_state_over_the_bus_once_in_a_substage(device):
    """A midpoint step reads its state once per substage, and writes it once."""
    problem = SpectralSimulation(
        make_case(*BOX, *STREAMED, "time.integrator=rk2"), None, device
    ).problem
    g = problem.geometry
    state = 3 * np.prod(g.stored_shape) * 16
    plane = g.packed_size(g.planes) * 16
    inputs, products = 3, len(problem.model.products)
    inward, outward = crossings(problem, "device")
    assert inward == 2 * state + 2 * (inputs + products) * plane
    assert outward == state + 2 * (inputs + products) * plane


def test_too_little_memory_is_refused_before_any_field_is_made(comm, device):
    """The fields of this grid would fill most hosts."""
    case = make_case("grid.points=2048", *streaming(comm, device), "run.memory='1 MiB'")
    with pytest.raises(InputError, match=r"run.memory: 1 MiB .* too little .* at least \d+ [KM]iB"):
        SpectralSimulation(case, comm, device)


@pytest.mark.thorough
def test_too_little_memory_is_refused_with_the_smallest_that_would_do(comm, device):
    settings = ("grid.points=48", *streaming(comm, device))
    with pytest.raises(
        InputError, match=r"run.memory: .* too little .* at least \d+ [KM]iB"
    ) as caught:
        start(device, *settings, "run.memory=20 kB", comm=comm)
    least = str(caught.value).split("at least ")[1]
    streamed = start(device, *settings, f"run.memory={least}", comm=comm)
    assert streamed.flow.passes.device_bytes <= bytes_of(least)
    advance(streamed, 1)
    if device.kind == "cpu":  # its libraries need no separate memory
        with pytest.raises(InputError, match="too little"):
            start(device, *settings, f"run.memory={bytes_of(least) - 1024}", comm=comm)


@pytest.mark.slow
def test_device_is_taken_where_fields_fit_there(comm, device):
    roomy = start(device, "grid.points=48", "run.residency=auto", comm=comm)
    assert roomy.placement.residency == "device"
    assert "room" in description(roomy)["residency"]
    assert "residency" not in description(in_core(device, "grid.points=48"))
    assert step_description(roomy) == {}
    need = largest(comm, roomy.placement.fields_bytes)
    settings = ("grid.points=48", "run.residency=auto", f"run.memory={need * 3 // 4}")
    small = start(device, *settings, comm=comm)
    assert small.placement.residency == "host"
    assert small.flow.passes.device_bytes <= need * 3 // 4
    assert "each rank" in description(small)["memory per device"]
    stay = (
        f"columns of {small.flow.passes.resident.ky} of {small.problem.geometry.columns_shape[1]}"
    )
    assert step_description(small)["step"].startswith(stay)


def test_fields_that_exceed_the_limit_with_those_that_are_written_stay_on_the_host(comm, device):
    """On a CPU they lie in the same memory; a run does not say that it takes more than allowed."""
    roomy = start(device, "grid.points=48", "run.residency=auto", comm=comm)
    need = largest(comm, roomy.placement.need())
    for memory, residency in ((need, "device"), (need - 1, "host")):
        settings = ("grid.points=48", "run.residency=auto", f"run.memory={memory}")
        assert start(device, *settings, comm=comm).placement.residency == residency


def test_streamed_run_goes_on_from_one_on_the_device_on_another_number_of_ranks(
    comm, device, shared_folder
):
    serial = advance(in_core(device, *BOX), 2)
    leave_state(serial, shared_folder, comm)
    whole = modes_of(advance(serial, 2))
    settings = [one for one in BOX if not one.startswith("initial.")]
    shared = start(
        device, *settings, *streaming(comm, device), f"initial.restart={shared_folder}", comm=comm
    )
    advance(shared, 2)
    error = np.abs(modes_of(shared) - own_part(shared, whole)).max(initial=0.0)
    assert error <= 1e-12 * np.abs(whole).max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("run.memory=8 GiB",), "'memory' goes with residency"),
        (("run.streaming={ streams = 2 }",), "'streaming' goes with residency"),
        (("run.residency=host", "run.memory=8 parsecs"), "size '8 parsecs'; accepted: bytes"),
        (("run.residency=host", "run.streaming={ streams = 17 }"), "run.streaming.streams"),
        (("run.residency=host", "run.streaming={ slabs = 2 }"), "slabs"),
        (("run.residency=cloud",), "run.residency"),
        (("run.residency=host", "run.memory=true"), "run.memory: .* accepted: bytes"),
        (("run.residency=host", "run.transport=nccl"), "transport 'nccl' exchanges between GPUs"),
    ],
)
def test_residency_that_cannot_be_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        make_case(*settings)


def test_ranks_that_may_take_different_shares_of_memory_agree(comm, device, ranks, monkeypatch):
    """Free memory differs from rank to rank, and the smallest counts."""
    rank = 0 if comm is None else comm.rank
    monkeypatch.setattr(memory_placement, "memory_limit", lambda *_: 1 << 30 if rank else 20_000)
    with pytest.raises(InputError, match="run.memory: .* at least"):
        start(device, *BOX, *streaming(comm, device), comm=comm)


def test_memory_that_one_rank_alone_lacks_is_an_error_on_all(comm, device, ranks, monkeypatch):
    def scarce(self):
        if comm is None or comm.rank == ranks - 1:
            raise InputError("no memory left for scratch")

    monkeypatch.setattr(TileDevice, "provide_scratch", scarce)
    with pytest.raises(InputError, match="no memory left for scratch"):
        start(device, *BOX, *streaming(comm, device), comm=comm)
