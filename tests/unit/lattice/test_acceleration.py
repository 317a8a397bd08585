"""Steady flows that are extrapolated: the same as by time steps alone, in fewer of them."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest

import lattice_flows
from flows import save
from lattice_flows import advance, start, state_of
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import Storage, make_sample, permeability
from slipstream.lattice.acceleration import vectors_needed, vectors_that_fit
from slipstream.show.solver_texts import description

DEVICE = HostDevice(threads=1)
PLAIN = {"storage": Storage(), "device": DEVICE}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* of the pore voxels are in pores"),
    pytest.mark.filterwarnings("ignore:pore faces solid"),
]


def smooth_noise(size, porosity, seed, width):
    """Return the pores of a periodic random field: narrow where it is tight."""
    waves = np.fft.fftfreq(size) * 2 * np.pi
    square = waves[:, None, None] ** 2 + waves[None, :, None] ** 2 + waves**2
    noise = np.fft.fftn(np.random.default_rng(seed).normal(size=(size,) * 3))
    field = np.fft.ifftn(noise * np.exp(-square * width**2 / 2)).real
    return (field < np.quantile(field, porosity)).astype(np.uint8)


@pytest.fixture(scope="module")
def tight():
    return smooth_noise(20, 0.22, 3, 2.0)


OPTIONS = {
    "walls": {"walls": "xy"},
    "buffer": {"buffer": 3},
    "mirror": {"mirror": True},
    "pressure drop": {"pressure_drop": 1e-4},
    "keep": {"isolated": "keep"},
    "small viscosity": {"relaxation_time": 0.6},
    "inertia": {"inertia": True, "force": 1e-4},
}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_steady_flow_is_that_of_time_steps_alone(options):
    image = smooth_noise(16, 0.4, 3, 1.5)
    settings = {"tolerance": 1e-9, "max_steps": 20_000, "relaxation_time": 1.0}
    settings |= {**options, **PLAIN}
    actual = permeability(image, **settings)
    expected = permeability(image, vectors=0, **settings)
    assert actual.converged and expected.converged
    assert actual.k == pytest.approx(expected.k, rel=3e-9)
    assert actual.steps <= expected.steps
    for name in ("velocity_z", "pressure"):
        theirs = expected.fields[name].data
        np.testing.assert_allclose(
            actual.fields[name].data, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max()
        )


@pytest.mark.slow
def test_the_relaxation_time_suits_the_pores(tight):
    """Twice the pores over the surface of walls is the width of a slit."""
    from slipstream import PorousFlow

    wide = np.ones((24, 12, 12), np.uint8)
    wide[:4] = 0
    options = {"axis": "x", "comm": None, **PLAIN}
    chosen = []
    for image, more in (
        (tight, {}),
        (wide, {}),
        (wide[2:7], {}),
        (wide, {"vectors": 0}),
        (wide, {"inertia": True}),
        (wide, {"precision": "float16"}),
        (wide, {"relaxation_time": 0.8}),
    ):
        flow = PorousFlow(image, **{**options, **more, "storage": None})
        flow.step(2)
        chosen.append(flow.relaxation_time)
    assert chosen == [1.25, 1.5, 1.38, 1.0, 1.0, 1.0, 0.8]
    pack = make_sample("random-pack", (16, 16, 16), radius=6, solid_fraction=0.2)
    plain, actual = (
        permeability(pack, relaxation_time=time, tolerance=1e-7, **PLAIN) for time in (1.0, "auto")
    )
    assert actual.k == pytest.approx(plain.k, rel=2e-7)
    assert actual.steps < plain.steps


@pytest.mark.slow
def test_a_tight_medium_takes_a_fraction_of_the_steps(tight):
    found, plain = (permeability(tight, vectors=n, tolerance=1e-5, **PLAIN) for n in (10, 0))
    assert found.converged
    assert found.steps < plain.steps / 4
    assert found.iteration_error == found.residual < 1e-5


@pytest.mark.slow
def test_all_storages_give_the_same_bits(tight):
    storages = [
        Storage(propagation, layout, order, encoding)
        for (propagation, order), (layout, encoding) in itertools.zip_longest(
            itertools.product(("aa", "two-lattice"), ("raster", "row-tiles")),
            [
                ("stream", "strips"),
                ("collision", "compact"),
                ("vector-bundle", "wide"),
                ("vector-collision", "compact"),
            ],
        )
    ]
    results = [permeability(tight, storage=one, device=DEVICE, tolerance=1e-4) for one in storages]
    for other in results[1:]:
        assert other.steps == results[0].steps
        for name in ("velocity", "density"):
            mine, theirs = results[0].fields[name].data, other.fields[name].data
            assert mine.tobytes() == theirs.tobytes()


def test_threads_give_the_same_bits(tight):
    one, two = (
        permeability(tight, storage=Storage(), device=HostDevice(threads=n)) for n in (1, 2)
    )
    assert one.fields["velocity"].data.tobytes() == two.fields["velocity"].data.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "most"), [("float64", 1e-17), ("float32", 1e-9)])
def test_mass_is_conserved_to_round_off(precision, most):
    case = lattice_flows.CASE.replace("vectors = 0", "vectors = 5")
    simulation = start(DEVICE, f"numerics.precision={precision}", "time.end=400", case=case)
    advance(simulation, 400)
    # Of densities that differ by 1e-3 from place to place.
    assert abs(simulation.diagnostics()["mass"]) < most


@pytest.mark.thorough
def test_estimates_are_above_the_error():
    """In more than nine of ten media; see docs/lattice.md for more of them."""
    held, count = 0, 0
    for seed in range(8):
        image = smooth_noise(12, 0.25 + 0.04 * seed, seed, 1 + 0.15 * seed)
        settings = {"axis": "y", "max_steps": 6000, "relaxation_time": (0.6, 1.0)[seed % 2]}
        try:
            exact = permeability(image, tolerance=1e-9, **settings, **PLAIN)
        except InputError:  # no path
            continue
        for tolerance in (1e-1, 1e-3, 1e-5):
            found = permeability(image, tolerance=tolerance, **settings, **PLAIN)
            assert found.converged
            count += 1
            held += abs(found.k / exact.k - 1) <= found.iteration_error <= tolerance
    assert held > 0.9 * count >= 15


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_a_tolerance_below_the_floor_of_a_flow_is_told(tight, precision):
    with pytest.warns(RuntimeWarning, match="round-off leaves the permeability .* from steady"):
        actual = permeability(tight, tolerance=1e-6, storage=Storage(precision=precision))
    exact = permeability(tight, tolerance=1e-9, **PLAIN)
    assert (actual.converged, actual.flow.ended) == (False, "round-off")
    assert abs(actual.k / exact.k - 1) < actual.iteration_error < 1e-2
    assert actual.steps < 3000
    case = lattice_flows.CASE.replace("porosity = 0.4", "porosity = 0.25")
    settings = ("time.end=6000", "convergence.tolerance=1e-6", "convergence.vectors=10")
    simulation = start(DEVICE, *settings, f"numerics.precision={precision}", case=case)
    advance(simulation, 6000)
    assert simulation.finished.startswith("round-off leaves")


@pytest.mark.slow
def test_half_precision_is_refused_where_its_error_exceeds_the_tolerance(tight):
    exact = permeability(tight, tolerance=1e-9, **PLAIN)
    found = permeability(tight, tolerance=0.2, storage=Storage(precision="float16"))
    assert abs(found.k / exact.k - 1) < found.iteration_error <= 0.2
    message = (
        "precision: 'float16' leaves the permeability an estimated .* from steady, above {}"
        " = 0.001; accepted: float32, mixed, float64, or a tolerance of at least [0-9.]*$"
    )
    with pytest.raises(InputError, match=f"^{message.format('tolerance')}"):
        permeability(tight, tolerance=1e-3, storage=Storage(precision="float16"))
    case = lattice_flows.CASE.replace("porosity = 0.4", "porosity = 0.25")
    settings = ["time.end=6000", "convergence.vectors=10", "numerics.precision=float16"]
    simulation = start(DEVICE, *settings, "convergence.tolerance=1e-3", case=case)
    with pytest.raises(InputError, match=rf"^numerics.{message.format('convergence.tolerance')}"):
        advance(simulation, 6000)
    assert simulation.step < 1000
    simulation = start(DEVICE, *settings, "convergence.tolerance=0", case=case)
    assert "nothing measures what that changes" in " ".join(simulation.warnings())


def test_a_copy_goes_on_with_the_same_bits():
    settings = ("time.end=400", "convergence.vectors=4", "convergence.tolerance=1e-7")
    first, copy = (start(DEVICE, *settings) for _ in range(2))
    advance(first, 70)
    copy.restore(first.kept())
    for simulation in (first, copy):
        advance(simulation, 100)
    assert state_of(copy)[1].tobytes() == state_of(first)[1].tobytes()
    assert copy.steadiness.residual == first.steadiness.residual


@pytest.mark.slow
def test_a_restart_begins_anew_and_comes_to_the_same_flow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ("time.end=4000", "convergence.vectors=10", "convergence.tolerance=1e-7")
    whole = advance(start(DEVICE, *settings), 4000)
    save(advance(start(DEVICE, *settings), 74), "first")
    later = start(DEVICE, *settings, "initial.restart=first")
    assert "a restart collects new ones" in description(later)["steady flow"]
    advance(later, 4000)
    assert later.finished.startswith("converged")
    assert later.steadiness.means().permeability == pytest.approx(
        whole.steadiness.means().permeability, rel=1e-7
    )


def test_a_change_of_the_drive_begins_anew(tight):
    from slipstream import PorousFlow

    flow = PorousFlow(tight, tolerance=1e-7, comm=None, **PLAIN)
    flow.step(90)
    porous = flow.solver.flow
    porous.drive(dataclasses.replace(porous.fluid, relaxation_time=0.8))
    flow.step(100)
    assert np.isfinite(flow.permeability)


def test_a_flow_that_is_to_be_followed_in_time_is_not_extrapolated(tight):
    from slipstream import PorousFlow

    flows = [
        PorousFlow(tight, comm=None, **options, **PLAIN)
        for options in ({"tolerance": 0}, {"vectors": 0})
    ]
    for flow in flows:
        flow.step(60)
    one, other = (flow.fields["density"][...] for flow in flows)
    assert one.tobytes() == other.tobytes()


def test_vectors_take_no_more_than_half_of_the_free_memory(tight, monkeypatch):
    simulation = start(DEVICE)
    flow = simulation.flow
    for wanted, room, expected in ((10, 10, 10), (10, 4.5, 4), (10, 2.5, 0), (2, 2, 2), (0, 9, 0)):
        sizes = flow.storage, flow.subdomain.shape
        one, two = (vectors_needed(flow.sites.stored, n, *sizes) for n in (1, 2))
        free = int(2 * (one + (two - one) * (room - 1)))
        monkeypatch.setattr(flow.device, "memory_free", lambda free=free: free)
        assert vectors_that_fit(wanted, flow, None) == expected


def test_vectors_keep_to_the_memory_of_a_run():
    flow = start(DEVICE, "convergence.vectors=10")
    sizes = flow.flow.sites.stored, flow.storage, flow.subdomain.shape
    own, seven = flow._own_memory(flow.storage), vectors_needed(sizes[0], 7, *sizes[1:])
    for memory, expected in ((own + seven, 7), (own + 10 * seven, 10), (own, 0)):
        limited = start(DEVICE, "convergence.vectors=10", f"run.memory={memory}")
        assert limited._vectors == expected
    message = "run.memory: 1000 is less than the [0-9]+ bytes that a rank needs without vectors"
    with pytest.raises(InputError, match=message):
        start(DEVICE, "run.memory=1000")


@pytest.mark.parametrize("vectors", [-1, 31, 2.5, "10", True])
def test_numbers_of_vectors_are_checked(tight, vectors):
    with pytest.raises(InputError, match="vectors: must be "):
        permeability(tight, vectors=vectors, **PLAIN)


@pytest.mark.thorough
@pytest.mark.slow
def test_flow_without_a_steady_state_ends_as_it_did():
    sample = make_sample("random-pack", (12, 14, 16), radius=4, solid_fraction=0.2)
    settings = {"inertia": True, "force": 1e-5, "relaxation_time": 0.505, "max_steps": 12_000}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        actual, plain = (
            permeability(sample, tolerance=1e-8, vectors=n, **settings, **PLAIN) for n in (10, 0)
        )
    assert any("time steps alone continue" in str(one.message) for one in caught)
    assert (actual.converged, actual.flow.ended) == (plain.converged, plain.flow.ended)
    assert actual.k == pytest.approx(plain.k, rel=0.1)
