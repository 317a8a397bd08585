"""The choice of a storage, and the memory that it needs."""

import tracemalloc

import numpy as np
import pytest

from lattice_oracle import random_pores, subdomain_of
from slipstream.engine.decomposition import whole
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import Fluid, PoreFlow, Storage, make_sample
from slipstream.lattice.permeability import permeability
from slipstream.lattice.pore_flow import inlets
from slipstream.lattice.pore_step import PoreStep
from slipstream.lattice.storage_tuning import Share, choose_storage, memory_needed

AUTO = dict.fromkeys(("propagation", "layout", "order", "encoding"), "auto")


@pytest.fixture(scope="module")
def subdomain():
    return subdomain_of(random_pores((6, 7, 40), 0.8), (True,) * 3)


WISHES = [
    {},
    {"order": "row-tiles"},
    {"encoding": "strips"},
    {"encoding": "compact"},
    {"propagation": "two-lattice"},
    {"layout": "collision", "precision": "float32"},
    {"encoding": "wide", "precision": "mixed"},
    {"layout": "vector-bundle", "order": "raster"},
]


@pytest.mark.slow
@pytest.mark.parametrize("wishes", WISHES, ids=lambda wishes: "-".join(wishes.values()) or "none")
def test_what_is_chosen_is_as_wished_and_the_fastest_of_what_was_tried(subdomain, wishes):
    everything = {**AUTO, **wishes}
    storage, seconds = choose_storage(everything, subdomain, HostDevice(), is_measured=True)
    for candidate in {storage, *seconds}:
        assert candidate.choices.items() >= wishes.items()
    assert len(seconds) != 1
    if seconds:
        assert min(seconds.values()) == seconds[storage] > 0


def test_a_cpu_left_to_choose_takes_strips(subdomain):
    _, seconds = choose_storage(AUTO, subdomain, HostDevice(), is_measured=True)
    assert {(s.propagation, s.encoding) for s in seconds} == {("aa", "strips")}


def test_no_timing_decides_the_order_of_sums_on_cpus(subdomain, monkeypatch):
    monkeypatch.setattr("slipstream.lattice.storage_tuning.PoreFlow", None)
    for wishes in ({}, {"layout": "bundle"}, {"propagation": "two-lattice"}, {"order": "raster"}):
        storage, seconds = choose_storage({**AUTO, **wishes}, subdomain, HostDevice())
        assert storage.choices.items() >= wishes.items()
        assert seconds == {}


@pytest.mark.slow
def test_strips_are_tried_with_any_propagation(subdomain):
    wishes = {**AUTO, "propagation": "two-lattice"}
    _, seconds = choose_storage(wishes, subdomain, HostDevice(), is_measured=True)
    tried = {(s.propagation, s.layout, s.encoding) for s in seconds}
    assert tried == {("two-lattice", "stream", "strips")}
    assert len(seconds) == 2
    wishes = {**AUTO, "layout": "bundle"}
    _, seconds = choose_storage(wishes, subdomain, HostDevice(), is_measured=True)
    assert {s.encoding for s in seconds} == {"compact", "wide"}


def test_strips_are_not_for_gpus_whatever_else_is_wished(subdomain, monkeypatch):
    device = HostDevice()
    monkeypatch.setattr(device, "kind", "cuda")
    monkeypatch.setattr(device, "processor", "gpu")
    for wishes in ({}, {"layout": "stream"}, {"propagation": "two-lattice", "order": "raster"}):
        with pytest.raises(InputError, match=r"'strips' is for CPUs; .* GPU: auto, compact, wide$"):
            choose_storage({**AUTO, "encoding": "strips", **wishes}, subdomain, device)


def test_nothing_is_tried_where_memory_does_not_suffice_for_any(subdomain, monkeypatch):
    device = HostDevice()
    monkeypatch.setattr(device, "memory_free", lambda: 1000)
    monkeypatch.setattr("slipstream.lattice.storage_tuning.PoreFlow", None)
    with pytest.raises(InputError, match=r"image: this image needs .* 9\.31e-07 GiB free"):
        choose_storage(AUTO, subdomain, device)


def test_only_what_memory_suffices_for_is_tried(subdomain, monkeypatch):
    device, wishes = HostDevice(), {**AUTO, "layout": "bundle"}
    compact = Storage(layout="bundle")
    sites = np.count_nonzero(subdomain.own[1:-1, 1:-1, 1:-1])
    need = memory_needed(Share(sites, subdomain.box.size, {}), compact, "cpu")
    monkeypatch.setattr(device, "memory_free", lambda: need)
    assert choose_storage(wishes, subdomain, device) == (compact, {})
    # What a run needs besides the flow counts too.
    with pytest.raises(InputError, match=f"needs {(need + 1) / 2**30:.3g} GiB"):
        choose_storage(
            wishes, subdomain, device, need=lambda one: need + 1 + 9 * (one.encoding == "wide")
        )


def test_nothing_is_tried_where_nothing_is_left_to_choose(subdomain):
    storage = Storage("two-lattice", "bundle", "row-tiles", "wide", "mixed")
    assert choose_storage(storage.choices, subdomain, HostDevice()) == (storage, {})


@pytest.mark.parametrize("wish", [{"layout": "other"}, {"layout": "bundle", "encoding": "strips"}])
def test_wishes_that_cannot_be_met_are_refused(subdomain, wish):
    with pytest.raises(InputError, match="layout.*accepted"):
        choose_storage({**AUTO, **wish}, subdomain, HostDevice())


@pytest.mark.parametrize(
    "storage", [Storage(), Storage("two-lattice", encoding="wide"), Storage(precision="mixed")]
)
def test_memory_is_known_before_it_is_taken(storage):
    """Of images that are large enough: tables of what crosses their faces are not counted."""
    sample, device = make_sample("sandstone", (96,) * 3, radius=8, porosity=0.2), HostDevice()
    large = subdomain_of(sample.read(whole(sample.shape)), (True,) * 3)
    small = subdomain_of(np.ones((2, 2, 2), np.uint8), (True,) * 3)
    PoreFlow(small, Fluid(), storage, device)  # kernels take memory too
    tracemalloc.start()
    flow = PoreFlow(large, Fluid(), storage, device)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert memory_needed(Share(flow.sites.count, 96**3, {}), storage, "cpu") == pytest.approx(
        taken, rel=0.1
    )


@pytest.mark.parametrize("encoding", ["compact", "wide"])
@pytest.mark.parametrize("porosity", [0.5, 1.0])
def test_setting_up_small_flows_takes_no_more_memory_than_is_foretold(encoding, porosity):
    image, device = random_pores((48,) * 3, porosity), HostDevice()
    storage = Storage(encoding=encoding, precision="float32")
    PoreFlow(subdomain_of(image[:2, :2, :2] | 1, (True,) * 3), Fluid(), storage, device)
    subdomain = subdomain_of(image, (True,) * 3)
    tracemalloc.start()
    flow = PoreFlow(subdomain, Fluid(force=(1e-5, 0.0, 0.0)), storage, device)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.05 * memory_needed(Share(flow.sites.count, image.size, {}), storage, "cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_step_is_recorded_to_know_its_memory(monkeypatch):
    made, make = [], PoreStep.__init__

    def counted(step, *arguments):
        made.append(step)
        make(step, *arguments)

    monkeypatch.setattr(PoreStep, "__init__", counted)
    permeability(random_pores((8, 8, 8), 0.8), device="cpu", max_steps=4)
    assert len(made) == 1


def test_pressure_falls_along_the_axes_for_which_a_flow_was_made(subdomain):
    drop = Fluid(pressure_drop=(0.0, 1e-3, 0.0))
    flow = PoreFlow(subdomain, drop, Storage(), HostDevice())
    flow.drive(Fluid(force=(1e-5, 0.0, 0.0)))
    flow.drive(drop)
    with pytest.raises(InputError, match="pressure_drop .* accepted: along the same ones, or none"):
        flow.drive(Fluid(pressure_drop=(1e-3, 0.0, 0.0)))


def test_inlets_are_found_for_the_axes_along_which_pressure_falls(subdomain):
    ends, weights = inlets(subdomain)
    for axis in range(3):
        found, own = inlets(subdomain, [axis])
        through = weights[:, axis] != 0
        np.testing.assert_array_equal(found, ends[through])
        np.testing.assert_array_equal(own[:, axis], weights[through, axis])
        assert not own[:, [other for other in range(3) if other != axis]].any()
    assert [len(one) for one in inlets(subdomain, ())] == [0, 0]
