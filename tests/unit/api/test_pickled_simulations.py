"""Simulations that are copied, pickled, and sent to other processes."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest

from slipstream import Advection, Flow, InputError, PorousFlow, Turbulence
from slipstream.equations import Model, Scalar, laplacian

# Flows on so few points are hardly resolved, and so are such pores, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta", "ignore:.*pores of at most")


def turbulence(**options):
    given = {"points": 8, "viscosity": 0.02, "initial": "taylor-green", "device": "cpu"}
    return Turbulence(**given | options)


def diffusion(diffusivity: float):
    s = Scalar("s")
    return Model({s: diffusivity * laplacian(s)})


def of_a_function():
    start = {"s": lambda x, y, z: np.cos(x) + 0 * y * z}
    return Flow(diffusion, diffusivity=0.1, points=(8, 8, 1), step=0.01, initial=start)


def of_a_model():
    s = Scalar("s")
    model = Model({s: 0.1 * laplacian(s)})
    return Flow(model, points=(8, 8, 1), step=0.01, initial={"s": "cos(x)"})


def through_pores():
    image = np.random.default_rng(3).random((10, 10, 10)) > 0.2
    return PorousFlow(image, interval=10)


MADE = {
    "adaptive": turbulence,
    "forced": lambda: turbulence(step=0.01, forcing={"kind": "random", "amplitude": 0.1}),
    "function": of_a_function,
    "model": of_a_model,
    "pores": through_pores,
    "tracer": lambda: Advection(points=8, width=0.2),
}


def state(sim):
    return {name: sim.fields[name].gather() for name in sim.fields}


def assert_same(one, other):
    assert (one.steps, one.time) == (other.steps, other.time)
    mine, theirs = state(one), state(other)
    for name, values in mine.items():
        np.testing.assert_array_equal(values, theirs[name])


@pytest.mark.samples(6)
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_what_is_copied_or_pickled_goes_on_to_the_same_bits(name, again):
    sim = MADE[name]()
    fresh = again(sim)
    sim.step(20)
    other = again(sim)
    np.testing.assert_equal(other.diagnostics, sim.diagnostics)
    for one in (sim, other):
        one.step(20)
    fresh.step(40)
    assert_same(sim, other)
    assert_same(sim, fresh)


def test_what_was_changed_is_pickled(tmp_path):
    sim = turbulence(step=0.01)
    sim.step(2)
    sim.viscosity, sim.rotation = 0.05, 1.0
    other = pickle.loads(pickle.dumps(sim))
    assert (other.viscosity, other.rotation) == (0.05, 1.0)
    for one in (sim, other):
        one.step(2)
    assert_same(sim, other)


class Watched(Turbulence):
    history: list


def test_attributes_of_derived_classes_are_pickled():
    sim = Watched(points=8, viscosity=0.02)
    sim.history = [1, 2]
    other = pickle.loads(pickle.dumps(sim))
    assert (type(other), other.history, other.rank) == (Watched, [1, 2], 0)


def test_what_cannot_be_pickled_says_so():
    def local():
        return diffusion(0.1)

    sim = Flow(local, points=(8, 8, 1), step=0.01)
    with pytest.raises(InputError, match="pickle: the model cannot be pickled"):
        pickle.dumps(sim)
    sim.close()
    with pytest.raises(InputError, match="has been closed"):
        pickle.dumps(sim)
    with pytest.raises(InputError, match="has been closed"):
        copy.deepcopy(sim)


def energy_after(sim):
    sim.step(2)
    return sim.diagnostics["energy"]


def energy_of(viscosity):
    return energy_after(turbulence(viscosity=viscosity, step=0.01))


@pytest.mark.slow
def test_other_processes_go_on_with_simulations():
    viscosities = [0.01, 0.02]
    sims = [turbulence(viscosity=one, step=0.01) for one in viscosities]
    expected = [energy_of(one) for one in viscosities]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(energy_after, sims) == expected
        assert pool.map(energy_of, viscosities) == expected
        assert [one.steps for one in sims] == [0, 0]
        assert energy_after(pool.apply(stepped, (sims[0],))) != expected[0]


def stepped(sim):
    sim.step()
    return sim


def test_forked_processes_make_and_step_simulations():
    viscosities = [0.01, 0.02]
    sim = turbulence(viscosity=0.01, step=0.01)
    expected = [energy_of(one) for one in viscosities]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(energy_of, viscosities).get(60) == expected
        assert pool.apply_async(energy_after, (sim,)).get(60) == expected[0]
