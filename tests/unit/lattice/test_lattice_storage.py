"""Every way to store populations against a dense method, and with the bits of every other way."""

import copy
import ctypes
import functools
import itertools
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice_oracle import (
    OPPOSITE,
    advanced,
    populations_of,
    random_populations,
    random_pores,
    resting,
    set_populations,
    site_numbers,
    subdomain_of,
    velocity_and_density,
)
from pairwise import every_pair
from slipstream.engine import kernels
from slipstream.engine.device import HostDevice
from slipstream.engine.device.cpu_device import HostKernel
from slipstream.engine.device.host_compiler import compile_library
from slipstream.engine.errors import InputError
from slipstream.lattice import Fluid, PoreFlow, Storage
from slipstream.lattice.pore_step import MAKERS_OF_LINKS, Sites, unit_of
from slipstream.lattice.velocity_set import (
    D3Q19,
    ENCODINGS,
    LAYOUTS,
    ORDERS,
    PROPAGATIONS,
    row_order,
)

PROPAGATIONS, LAYOUTS, ORDERS, ENCODINGS = map(tuple, (PROPAGATIONS, LAYOUTS, ORDERS, ENCODINGS))
IMAGE = random_pores((7, 9, 11))
PERIODICITIES = list(itertools.product((False, True), repeat=3))
SLOW = Fluid(0.8, force=(1e-3, 2e-3, -1e-3))
FAST = Fluid(0.7, 1 / 8, force=(1e-3, 2e-3, -1e-3), inertia=True)
# Populations are up to 0.01, and a few roundings of that size are made in each of six steps.
TOLERANCE = {"float64": 1e-16, "float32": 5e-8, "mixed": 5e-9, "float16": 4e-6}


def storages():
    """Return storages in which every two choices, that go together, meet."""
    everything = itertools.product(PROPAGATIONS, LAYOUTS, ORDERS, ENCODINGS, TOLERANCE)
    return every_pair(one for one in everything if one[3] != "strips" or one[1] == "stream")


STORAGES = [Storage(*one) for one in storages()]
NAMES = ["-".join(storage.choices.values()) for storage in STORAGES]


@pytest.fixture(scope="module")
def flow_of(device):
    """A function that makes a flow; kernels for all storages are compiled first, in parallel."""
    subdomain = subdomain_of(IMAGE, (True,) * 3)

    def compile_for(layout):
        for storage in STORAGES:
            if storage.layout == layout:
                PoreFlow(subdomain, SLOW, storage, device)

    if device.kind == "cpu":
        with ThreadPoolExecutor(len(LAYOUTS)) as pool:
            list(pool.map(compile_for, LAYOUTS))

    def make(image, periodic, fluid, storage, **options):
        return PoreFlow(subdomain_of(image, periodic), fluid, storage, device, **options)

    return make


def possible(device, storage):
    return storage.encoding != "strips" or device.kind == "cpu"


@functools.cache
def expected(periodic, start):
    """Return the populations of the image six steps after some that `start` makes."""
    return advanced(start(IMAGE), IMAGE, SLOW, periodic, 6)


def at_rest(image):
    return resting(image, SLOW)


# What the first storage of a precision gave, by what else was given; the others must agree.
FIRST = {}


def check_bits(found, *given):
    """Compare bits: operations are the same, and on the same numbers, wherever these lie."""
    np.testing.assert_array_equal(found, FIRST.setdefault(given, found))


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGES, ids=NAMES)
def test_velocity_and_density_are_those_of_the_dense_method(flow_of, device, storage):
    if not possible(device, storage):
        pytest.skip("for CPUs only")
    # Velocities are sums of 19 populations. A density is 1 with a rounding, or two of the oracle's.
    slack = 19 * TOLERANCE[storage.precision]
    slacks = [slack, slack, slack, slack + np.finfo(storage.real).eps]
    for periodic in PERIODICITIES:
        flow = flow_of(IMAGE, periodic, SLOW, storage)
        flow.advance(6)
        actual, wanted = (
            flow.fields(),
            velocity_and_density(expected(periodic, at_rest), IMAGE, SLOW),
        )
        for field, other, most in zip(actual, wanted, slacks, strict=True):
            np.testing.assert_allclose(field, other, rtol=0, atol=most)
        check_bits(actual, storage.precision, periodic)


@pytest.mark.parametrize("storage", STORAGES, ids=NAMES)
def test_every_population_is_that_of_the_dense_method(flow_of, device, storage):
    if not possible(device, storage):
        pytest.skip("for CPUs only")
    periodic = (True, False, True)
    flow = flow_of(IMAGE, periodic, SLOW, storage)
    set_populations(flow, random_populations(IMAGE))
    flow.advance(6)
    found, wanted = populations_of(flow), expected(periodic, random_populations)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[storage.precision])
    check_bits(found, storage.precision)


SOME = [
    Storage(),
    Storage("two-lattice", "vector-bundle", "row-tiles", "wide"),
    Storage("aa", "stream", "raster", "strips"),
    Storage("two-lattice", "stream", "row-tiles", "strips"),
]


@pytest.mark.parametrize("storage", SOME[1:3], ids=lambda storage: storage.encoding)
def test_flow_with_inertia_and_from_rest(flow_of, device, storage):
    if not possible(device, storage):
        pytest.skip("for CPUs only")
    for fluid, populations in ((FAST, random_populations(IMAGE)), (SLOW, None), (FAST, None)):
        flow = flow_of(IMAGE, (True, False, True), fluid, storage)
        if populations is None:
            populations = resting(IMAGE, fluid)
        else:
            set_populations(flow, populations)
        np.testing.assert_array_equal(populations_of(flow), populations)
        flow.advance(6)
        wanted = advanced(populations, IMAGE, fluid, (True, False, True), 6)
        np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=1e-16)
        assert flow.steps == 6


@pytest.mark.parametrize("storage", SOME, ids=lambda storage: storage.encoding)
@pytest.mark.parametrize("periodic", PERIODICITIES)
def test_pressure_falls_where_fluid_passes_a_face(flow_of, device, storage, periodic):
    """Diagonal populations pass two faces together; nothing passes walls."""
    if not possible(device, storage):
        pytest.skip("for CPUs only")
    fluid = Fluid(0.8, force=(1e-3, 0, 0), pressure_drop=(1e-3, -2e-3, 3e-3))
    flow = flow_of(IMAGE, periodic, fluid, storage)
    flow.advance(6)
    wanted = advanced(resting(IMAGE, fluid), IMAGE, fluid, periodic, 6)
    np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=1e-16)


@pytest.mark.parametrize("storage", SOME, ids=lambda storage: storage.encoding)
def test_sums_are_those_of_the_fields_in_this_step_and_the_one_before(flow_of, device, storage):
    if not possible(device, storage):
        pytest.skip("for CPUs only")
    fluid = Fluid(0.8, force=(1e-3, 0, 0), pressure_drop=(1e-3, -2e-3, 3e-3))
    # The latter has more sites than a row of a kernel's sums.
    for image in (IMAGE, np.ones((17, 18, 19), np.uint8)):
        periodic, populations = (True, False, True), random_populations(image)
        flow = flow_of(image, periodic, fluid, storage)
        set_populations(flow, populations)
        flow.advance(2)
        sums, fastest = flow.sums()
        velocity, density = flow.fields()[:3], flow.fields()[3]
        wanted = [*velocity.sum(axis=(1, 2, 3)), (density - 1).sum()]
        # Densities near 1 have an error of half a rounding each.
        np.testing.assert_allclose(sums[:4], wanted, rtol=1e-12, atol=1e-16 * image.size)
        assert fastest == pytest.approx(np.sqrt((velocity**2).sum(axis=0)).max(), rel=1e-14)
        assert (velocity[:, image == 0] == 0).all()
        assert (density[image == 0] == 1).all()
        before = advanced(populations, image, fluid, periodic, 1)
        before = velocity_and_density(before, image, fluid)[:3]
        mean = (velocity + before).sum(axis=(1, 2, 3)) / 2
        np.testing.assert_allclose(sums[4:], mean, rtol=1e-12, atol=1e-16 * image.size)


def test_driving_otherwise_keeps_the_velocity_and_resting_forgets_it(flow_of):
    flow = flow_of(IMAGE, (True,) * 3, SLOW, Storage())
    flow.advance(4)
    before, fields = populations_of(flow), flow.fields()
    other = Fluid(0.7, 1 / 8, force=(0, -1e-3, 1e-3))
    flow.drive(other)
    np.testing.assert_allclose(flow.fields(), fields, rtol=0, atol=1e-15)
    before = before + resting(IMAGE, other) - resting(IMAGE, SLOW)
    np.testing.assert_allclose(populations_of(flow), before, rtol=0, atol=1e-17)
    # No step has been done that way, so there is none before.
    assert (flow.sums()[0][4:] == flow.sums()[0][:3]).all()
    flow.advance(2)
    wanted = advanced(before, IMAGE, other, (True,) * 3, 2)
    np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=1e-16)
    flow.rest()
    assert flow.steps == 0
    np.testing.assert_array_equal(populations_of(flow), resting(IMAGE, other))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_policies_and_threads_give_the_same_bits(device, threads):
    if device.kind != "cpu":
        pytest.skip("threads of a CPU")
    results = []
    for storage, policy in itertools.product((SOME[0], SOME[2], SOME[3]), ("serial", "overlap")):
        own = HostDevice(threads=threads, lanes=threads)
        flow = PoreFlow(subdomain_of(IMAGE, (True,) * 3), SLOW, storage, own, policy=policy)
        set_populations(flow, random_populations(IMAGE))
        flow.advance(6)
        results.append(populations_of(flow))
    for one in results:
        np.testing.assert_array_equal(one, results[0])
    wanted = expected((True,) * 3, random_populations)
    np.testing.assert_allclose(results[0], wanted, rtol=0, atol=1e-16)


# -- links ---------------------------------------------------------------------------------------

# Image, periodic axes, and orders of sites in which links of some do not fit into compact ones.
COMPACT = {
    "walls only": (random_pores((9, 10, 40)), (False,) * 3, ()),
    "not around rows": (random_pores((9, 10, 40)), (True, True, False), ()),
    "around rows": (random_pores((3, 5, 300), 0.9), (True, True, True), ORDERS),
    "more sites than a strip's block": (random_pores((12, 20, 40), 0.7), (True,) * 3, ORDERS),
    "planes of more sites than an offset tells": (
        np.ones((2, 40, 1700), np.uint8),
        (False, True, False),
        (),
    ),
    "three such planes": (np.ones((3, 800, 42), np.uint8), (True, True, False), ["raster"]),
}


def links_of(device, image, periodic, storage):
    subdomain = subdomain_of(image, periodic)
    sites = Sites(device, subdomain.own, subdomain.images, storage.order)
    return sites, MAKERS_OF_LINKS[storage.encoding](sites, storage, sites.wide_links())


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("image", "periodic", "exceptional"), COMPACT.values(), ids=COMPACT)
def test_links_that_do_not_fit_are_exceptions(flow_of, device, image, periodic, exceptional, order):
    exceptions = links_of(device, image, periodic, Storage(order=order))[1].exceptions
    assert (exceptions > 0) == (order in exceptional)
    assert exceptions < image.sum() / 8
    start = random_populations(image)
    wanted = advanced(start, image, SLOW, periodic, 2)
    for storage in (Storage(order=order), Storage("aa", "stream", order, "strips")):
        if possible(device, storage):
            flow = flow_of(image, periodic, SLOW, storage)
            set_populations(flow, start)
            flow.advance(2)
            np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=1e-16)


@st.composite
def sparse_images(draw):
    """Return an image of few pores, axes of one and two voxels included, with one way along x."""
    shape = tuple(draw(st.integers(1, most)) for most in (4, 4, 40))
    image = random_pores(shape, draw(st.sampled_from([0, 0.1, 0.5, 0.9])), draw(st.integers(0, 99)))
    image[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 1
    return image


@pytest.mark.slow
@given(sparse_images(), st.sampled_from(PERIODICITIES), st.sampled_from(SOME))
def test_isolated_pores_and_axes_of_a_voxel_or_two(flow_of, device, image, periodic, storage):
    if not possible(device, storage):
        return
    start = random_populations(image)
    flow = flow_of(image, periodic, SLOW, storage)
    set_populations(flow, start)
    flow.advance(4)
    wanted = advanced(start, image, SLOW, periodic, 4)
    np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=1e-16)


class OlderProcessor(HostDevice):
    """Compiles steps for processors with shorter vectors, which cannot store some lanes."""

    def kernel(self, header, name, **constants):
        if not header.startswith("collide_and_stream"):
            return super().kernel(header, name, **constants)
        text = kernels.source(header, constants)
        kernel = HostKernel(text, name)
        # The library of this processor may have been loaded already, for the same text.
        kernel.load = lambda: getattr(ctypes.CDLL(str(compile_library(text))), name)
        return kernel


def processor_features():
    """Return the abilities of the processor, by the system's names."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split() for line in lines if line.startswith("flags")), [])


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="of these processors only")
@pytest.mark.parametrize(
    ("lacking", "precision", "feature"),
    [
        ("-mno-avx512f", "float64", "avx512f"),
        # Conversions of half precision: without packing, of shorter vectors, and by whole numbers.
        ("-mno-avx512vbmi2", "float16", "avx512_vbmi2"),
        ("-mno-avx512f", "float16", "f16c"),
        ("-mno-avx512f -mno-f16c", "float16", "f16c"),
    ],
)
def test_strips_on_older_processors(monkeypatch, lacking, precision, feature):
    if feature not in processor_features():
        pytest.skip(f"nothing to take away: without {feature} all other tests show this")
    monkeypatch.setenv("CXX", f"g++ {lacking}")
    image, storage = random_pores((5, 6, 70), 0.8), Storage(encoding="strips", precision=precision)
    flow = PoreFlow(subdomain_of(image, (True,) * 3), SLOW, storage, OlderProcessor())
    start = random_populations(image)
    set_populations(flow, start)
    flow.advance(4)
    wanted = advanced(start, image, SLOW, (True,) * 3, 4)
    found = populations_of(flow)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[precision])
    check_bits(found, "older", precision)


# -- half precision ------------------------------------------------------------------------------

HALF = Storage(precision="float16")


def test_half_precision_rounds_in_a_unit_that_suits_the_drive(flow_of):
    """To nearest, ties to even, gradually to zero, and to infinity for too large values."""
    for force in (1e-12, 1e-5, 1e6):
        flow = flow_of(np.ones((4, 4, 16), np.uint8), (True,) * 3, Fluid(force=(0, 0, force)), HALF)
        # Of the largest force times the length, in which pressures are 2^6 to 2^7.
        assert 64 <= 16 * force / flow.unit < 128
        sizes = np.geomspace(1e-8, 1e5, 240, dtype=np.float32)
        ties = 2048 + np.arange(16, dtype=np.float32)
        values = np.concatenate([sizes[::2], -sizes[1::2]])[: 256 - len(ties)]
        values = np.concatenate([values, ties])
        order = np.arange(len(values))
        with np.errstate(over="ignore"):
            wanted = values.astype(np.float16).astype(np.float32) * np.float32(flow.unit)
        flow.set_populations(order, 3, values * np.float32(flow.unit))
        np.testing.assert_array_equal(flow.populations(order, 3), wanted)


def test_fluid_at_rest_stays_so_in_half_precision(flow_of):
    flow = flow_of(IMAGE, (True,) * 3, Fluid(0.8), HALF)
    flow.advance(20)
    assert (populations_of(flow) == 0).all()


def test_another_drive_changes_the_unit_but_no_population(flow_of):
    flow = flow_of(IMAGE, (True,) * 3, SLOW, HALF)
    flow.advance(4)
    before, unit, kept = populations_of(flow), flow.unit, copy.deepcopy(flow.kept())
    flow.drive(Fluid(0.8, force=(1e-3, 2e-3, -1e-3), pressure_drop=(0.0, 0.0, 0.0)))
    assert flow.unit == unit
    stronger = Fluid(0.8, force=tuple(8 * one for one in SLOW.force))
    flow.drive(stronger)
    assert flow.unit == 8 * unit
    wanted = before + resting(IMAGE, stronger) - resting(IMAGE, SLOW)
    np.testing.assert_allclose(populations_of(flow), wanted, rtol=0, atol=TOLERANCE["float16"])
    flow.drive(SLOW)
    flow.restore(kept)
    np.testing.assert_array_equal(populations_of(flow), before)


@pytest.mark.parametrize(
    ("layout", "precision", "encoding"),
    [
        ("stream", "float32", "compact"),
        ("vector-bundle", "float32", "wide"),
        ("vector-collision", "float16", "compact"),
    ],
)
def test_two_sites_a_thread_and_short_places_lead_to_the_same_populations(
    layout, precision, encoding
):
    start, flows = random_populations(IMAGE), []
    storage = Storage(layout=layout, encoding=encoding, precision=precision)
    for own in (HostDevice(), HostDevice(tiled=True)):  # as GPUs do
        flows.append(PoreFlow(subdomain_of(IMAGE, (True, False, True)), SLOW, storage, own))
        set_populations(flows[-1], start)
        flows[-1].advance(4)
    np.testing.assert_array_equal(*map(populations_of, flows))


@pytest.mark.parametrize("order", ORDERS)
def test_sites_are_numbered_along_rows_and_rows_in_their_order(device, order):
    image = random_pores((19, 10, 12))
    sites, _ = links_of(device, image, (True,) * 3, Storage(order=order))
    numbers = sites.numbers(np.nonzero(image))
    np.testing.assert_array_equal(numbers, site_numbers(image, order))
    assert sites.count == image.sum() <= sites.stored < sites.count + 512
    # Not a multiple of 4096 bytes between directions, in either precision.
    assert sites.stored % 512 == max(48, unit_of(device))
    assert sites.stored % unit_of(device) == 0
    rows = row_order(19, 10, order)
    assert sorted(rows) == list(range(190))
    assert rows[:11].tolist() == [*range(8), *((8, 9, 10) if order == "raster" else (10, 11, 12))]


def test_wide_links_tell_the_site_upstream_or_that_it_is_solid(device):
    for periodic in PERIODICITIES:
        sites, _ = links_of(device, IMAGE, periodic, Storage())
        links = device.to_host(sites.wide_links())
        numbers = np.full(IMAGE.shape, 1 << 31)
        numbers[IMAGE != 0] = sites.numbers(np.nonzero(IMAGE))
        for q in range(1, 19):
            upstream = np.roll(numbers, D3Q19.velocities[q], (0, 1, 2))
            for axis, joined in enumerate(periodic):
                face = [slice(None)] * 3
                face[axis] = 0 if D3Q19.velocities[q][axis] > 0 else -1
                if D3Q19.velocities[q][axis] and not joined:
                    upstream[tuple(face)] = 1 << 31
            found = links[q - 1, numbers[IMAGE != 0]]
            np.testing.assert_array_equal(found, upstream[IMAGE != 0])


# -- numbers -------------------------------------------------------------------------------------


def test_moments_of_the_weights_are_those_of_a_gas_at_rest():
    c, unit = D3Q19.velocities, np.eye(3)
    assert len({tuple(velocity) for velocity in c}) == 19
    assert [D3Q19.opposite(q) for q in range(19)] == OPPOSITE
    assert D3Q19.weights.sum() == pytest.approx(1, rel=1e-15)
    second = np.einsum("q,qa,qb->ab", D3Q19.weights, c, c)
    np.testing.assert_allclose(second, D3Q19.sound_speed_squared * unit, rtol=0, atol=1e-15)
    fourth = np.einsum("q,qa,qb,qc,qd->abcd", D3Q19.weights, c, c, c, c)
    pairs = [np.einsum(f"{two}->abcd", unit, unit) for two in ("ab,cd", "ac,bd", "ad,bc")]
    np.testing.assert_allclose(
        fourth, D3Q19.sound_speed_squared**2 * sum(pairs), rtol=0, atol=1e-15
    )


def test_bytes_per_update_count_populations_twice_and_links_where_they_are_used():
    assert Storage().bytes_per_update(20.0) == (304, 324)
    assert Storage("two-lattice").bytes_per_update(72.0) == (376, 376)
    assert Storage(precision="mixed").bytes_per_update(20.0) == (152, 172)
    assert Storage(precision="float16").bytes_per_update(20.0) == (76, 96)


@pytest.mark.parametrize(("encoding", "least", "most"), [("wide", 72, 72), ("compact", 20, 20.5)])
def test_bytes_of_links(device, encoding, least, most):
    image = random_pores((20, 20, 20))
    links = links_of(device, image, (True,) * 3, Storage(encoding=encoding))[1]
    assert least <= links.bytes_per_site <= most


# -- rejected arguments --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["propagation", "layout", "order", "encoding", "precision"])
def test_unknown_storage_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"^{name} 'other' is unknown; accepted: [a-z0-9, -]*$"):
        Storage(**{name: "other"})


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_strips_need_streams(layout):
    with pytest.raises(InputError, match=f"strips.*'stream'.*'{layout}'.*accepted.*compact, wide$"):
        Storage(layout=layout, encoding="strips")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"relaxation_time": 0.5}, "relaxation_time is 0.5; accepted: a number more than 0.5"),
        ({"relaxation_time": float("nan")}, "relaxation_time is nan"),
        ({"magic": 0.0}, "magic is 0.0; accepted: a number more than 0"),
    ],
)
def test_fluids_out_of_range_are_refused(arguments, message):
    with pytest.raises(InputError, match=f"^{message}"):
        Fluid(**arguments)


def test_viscosity_vanishes_with_the_relaxation_time():
    assert Fluid(2.0).viscosity == 0.5
    assert Fluid(0.5 + 3e-9).viscosity == pytest.approx(1e-9)


def test_steps_come_in_pairs(flow_of):
    flow = flow_of(IMAGE, (True,) * 3, SLOW, Storage())
    with pytest.raises(InputError, match="pairs; accepted: even numbers, not 3$"):
        flow.advance(3)
    assert flow.steps == 0


def test_rows_wider_than_ranks_of_sites_are_refused(device):
    with pytest.raises(InputError, match="65536 voxels wide; accepted: up to 65535; use more"):
        Sites(device, np.zeros((3, 3, 65538), np.uint8), [], "raster")
