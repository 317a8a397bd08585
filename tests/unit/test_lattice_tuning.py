"""The choice of a storage, and the memory that it needs."""

import tracemalloc

import numpy as np
import pytest

from lattice_oracle import portion_of, random_pores
from slipstream.decomposition import whole
from slipstream.device import HostDevice
from slipstream.errors import InputError
from slipstream.lattice import Fluid, PoreFlow, Storage, make_sample
from slipstream.lattice.memory import memory_needed
from slipstream.lattice.tuning import choose_storage

AUTO = dict.fromkeys(("propagation", "layout", "order", "encoding"), "auto")


@pytest.fixture(scope="module")
def portion():
    return portion_of(random_pores((6, 7, 40), 0.8), (True,) * 3)


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


@pytest.mark.parametrize("wishes", WISHES, ids=lambda wishes: "-".join(wishes.values()) or "none")
def test_what_is_chosen_is_as_wished_and_the_fastest_of_what_was_tried(portion, wishes):
    storage, seconds = choose_storage({**AUTO, **wishes}, portion, HostDevice())
    for candidate in {storage, *seconds}:
        assert vars(candidate).items() >= wishes.items()
    assert len(seconds) != 1
    if seconds:
        assert min(seconds.values()) == seconds[storage] > 0


def test_a_cpu_left_to_choose_takes_strips(portion):
    _, seconds = choose_storage(AUTO, portion, HostDevice())
    assert {(s.propagation, s.encoding) for s in seconds} == {("aa", "strips")}


def test_nothing_is_tried_where_nothing_is_left_to_choose(portion):
    storage = Storage("two-lattice", "bundle", "row-tiles", "wide", "mixed")
    assert choose_storage(vars(storage), portion, HostDevice()) == (storage, {})


@pytest.mark.parametrize("wish", [{"layout": "other"}, {"layout": "bundle", "encoding": "strips"}])
def test_wishes_that_cannot_be_met_are_refused(portion, wish):
    with pytest.raises(InputError, match="layout.*accepted"):
        choose_storage({**AUTO, **wish}, portion, HostDevice())


@pytest.mark.parametrize(
    "storage", [Storage(), Storage("two-lattice", encoding="wide"), Storage(precision="mixed")]
)
def test_memory_is_known_before_it_is_taken(storage):
    """Of images that are large enough: tables of what crosses their faces are not counted."""
    sample, device = make_sample("sandstone", (96,) * 3, radius=8, porosity=0.2), HostDevice()
    large = portion_of(sample.read(whole(sample.shape)), (True,) * 3)
    small = portion_of(np.ones((2, 2, 2), np.uint8), (True,) * 3)
    PoreFlow(small, Fluid(), storage, device)  # kernels take memory too
    tracemalloc.start()
    flow = PoreFlow(large, Fluid(), storage, device)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert memory_needed(flow.sites.count, 96**3, storage) == pytest.approx(taken, rel=0.1)
