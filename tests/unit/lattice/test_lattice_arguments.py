"""Accepted and rejected arguments of the functions and classes of `slipstream.lattice`."""

import numpy as np
import pytest

from lattice_oracle import Image, random_pores, subdomain_of
from refusals import refusal
from slipstream.engine.device import HostDevice
from slipstream.lattice import Fluid, PoreFlow, Storage, decompose, make_sample, permeability

PERIODIC = (True, True, True)


@pytest.fixture(scope="module")
def flow():
    return PoreFlow(
        subdomain_of(random_pores((4, 5, 6)), PERIODIC), Fluid(), Storage(), HostDevice()
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda flow: flow.advance(-2), "steps is -2; accepted: whole numbers of at least 0"),
        (lambda flow: flow.advance(2.0), "steps is 2.0; accepted: whole numbers"),
        (lambda flow: flow.advance(3), "steps come in pairs"),
        (lambda flow: flow.drive(1e-5), "fluid is of type float; accepted: Fluid"),
        (lambda flow: flow.fields((0, 5)), "planes is (0, 5); accepted: the first plane"),
        (lambda flow: flow.fields((3, 2)), "planes is (3, 2); accepted"),
        (lambda flow: flow.fields(2), "planes is 2; accepted"),
        (lambda flow: flow.populations(np.array([10**6]), 1), "order has 1000000 to 1000000; acc"),
        (lambda flow: flow.populations(np.array([-1]), 1), "order has -1 to -1; accepted"),
        (lambda flow: flow.populations(np.array([0.5]), 1), "order is float64 of shape (1,); acc"),
        (lambda flow: flow.populations(np.array([0]), 19), "direction is 19; accepted: 0 to 18"),
        (lambda flow: flow.set_populations(np.arange(3), 1, np.ones(4)), "values are float64 of s"),
        (lambda flow: flow.set_populations(np.arange(2), 1, ["a", "b"]), "values are <U1 of shape"),
    ],
)
def test_what_a_flow_cannot_do_is_refused_and_changes_nothing(flow, call, told):
    before = flow.fields().tobytes()
    assert refusal(call, flow).startswith(told)
    assert flow.fields().tobytes() == before


def made(**changes):
    subdomain = subdomain_of(np.ones((3, 3, 3), np.uint8), PERIODIC)
    given = {"subdomain": subdomain, "fluid": Fluid(), "storage": Storage(), "device": HostDevice()}
    return PoreFlow(**{**given, **changes})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: made(subdomain=np.ones((3, 3, 3))), "subdomain is of type ndarray; accepted: Sub"),
        (lambda: made(fluid=None), "fluid is of type NoneType; accepted: Fluid"),
        (lambda: made(storage="aa"), "storage is of type str; accepted: Storage"),
        (lambda: made(device="cpu"), "device is of type str; accepted: Device"),
        (lambda: made(device=0), "device is of type int; accepted: Device"),
        (lambda: made(policy="fast"), "policy 'fast' is unknown; accepted: serial, overlap"),
        (lambda: Storage(layout=["stream"]), "layout ['stream'] is unknown; accepted: stream"),
        (lambda: Fluid(force=1e-5), "force is 1e-05; accepted: three finite numbers"),
        (lambda: Fluid(force=(0, 0, np.nan)), "force is (0, 0, nan); accepted: three finite"),
        (lambda: Fluid(pressure_drop="xyz"), "pressure_drop is 'xyz'; accepted: three finite"),
        (lambda: Fluid(relaxation_time=True), "relaxation_time is True; accepted: a number more"),
        (lambda: Fluid(magic=np.inf), "magic is inf; accepted: a number more than 0"),
        (lambda: Fluid(inertia=2), "inertia is 2; accepted: True or False"),
        (lambda: make_sample(["duct"], (4, 4, 4)), "sample ['duct'] is unknown; accepted"),
        (lambda: make_sample("sandstone", (8,) * 3, radius="2"), "sample.radius is '2'; accepted"),
        (lambda: make_sample("sandstone", (8,) * 3, radius=2, seed=True), "sample.seed is True;"),
        (
            lambda: make_sample("spheres", (8,) * 3, radius=2, lattice=[]),
            "sample.lattice is []; acc",
        ),
        (lambda: decompose(np.ones((3, 3, 3)), PERIODIC, (0,)), "source is of type ndarray; accep"),
        (lambda: decompose(IMAGE, True, (0,)), "periodic is True; accepted: three booleans"),
        (lambda: decompose(IMAGE, (1, 2, 3), (0,)), "periodic is (1, 2, 3); accepted"),
        (lambda: decompose(IMAGE, PERIODIC, 0), "axes is 0; accepted: one or more of 0 (z)"),
        (lambda: decompose(IMAGE, PERIODIC, (3,)), "axes is (3,); accepted: one or more"),
        (lambda: decompose(IMAGE, PERIODIC, (0,), ["x"]), "partition ['x'] is unknown; accepted"),
        (lambda: decompose(IMAGE, PERIODIC, (0,), isolated="drop"), "isolated 'drop' is unknown;"),
        (lambda: decompose(IMAGE, PERIODIC, (0,), comm=1), "comm is 1; accepted: None or an intra"),
        (lambda: decompose(Image(np.full((3, 3, 3), 7)), PERIODIC, (0,)), "image: its read(box) "),
        (lambda: found(axis=["z"]), "axis: ('z',) is not accepted; accepted: x, y, z, all"),
        (lambda: found(precision="half"), "precision: 'half' is not accepted; accepted: float64"),
        (lambda: found(device=0), "device 0; accepted: auto, cpu, cuda, or an open device"),
        (lambda: found(force=True), "force: must be a number, not True"),
        (lambda: found(image=np.ma.ones((3, 3, 3))), "image is a masked array; accepted: a plain"),
        (
            lambda: found(image=np.ones(3)),
            "image: the array has shape (3,); accepted:",
        ),
        (lambda: found(image=3), "image is of type int; accepted: a path, or a NumPy array"),
        (lambda: found(buffer=True), "buffer: must be a whole number, not True"),
        (lambda: found(walls=["w"]), "walls[1]: 'w' is not accepted; accepted: x, y, z"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(call, told):
    assert refusal(call).startswith(told)


IMAGE = Image(np.ones((3, 4, 5), np.uint8))
CHANNEL = np.ones((2, 6, 3), np.uint8)
CHANNEL[:, [0, -1]] = 0


def found(**changes):
    return permeability(**{"image": CHANNEL, "device": "cpu", "tolerance": 1e-9, **changes})


def test_numbers_and_arrays_of_any_kind_are_taken_for_what_they_are():
    """A single of NumPy's is the number that it is, and makes nothing that is computed a single."""
    plain, frozen = found(voxel_size=2.0**-18, relaxation_time=0.75), CHANNEL.copy()
    frozen.flags.writeable = False
    other = {
        "voxel_size": np.float32(2.0**-18),
        "relaxation_time": np.float32(0.75),
        "magic": np.float64(3 / 16),
        "max_steps": np.int64(200_000),
        "interval": np.int32(100),
        "buffer": np.int8(0),
    }
    for image in (frozen, CHANNEL.astype(">i4"), np.asfortranarray(CHANNEL), CHANNEL != 0):
        result = found(image=image, **other)
        assert result.k == pytest.approx(plain.k, rel=1e-12)
        assert {type(result.k), type(result.k_lattice), type(result.velocity)} == {float}
        assert (type(result.converged), type(result.steps)) == (bool, int)
    assert Fluid(np.float32(0.75)).viscosity == Fluid(0.75).viscosity
    assert type(make_sample("sandstone", (8,) * 3, radius=np.float32(2)).radius) is float
