"""Tiers of the suite: no test is in none of them, and samples are always the same."""

import itertools

import pytest

import tiers


class Item:
    """A collected test, as far as tiers look at it."""

    obj = None

    def __init__(self, name, *marks):
        self.nodeid, self._marks = name, marks

    def iter_markers(self):
        return iter(mark.mark for mark in self._marks)

    def get_closest_marker(self, name):
        return next((mark for mark in self.iter_markers() if mark.name == name), None)


def parametrised(name, count, *marks):
    return [Item(f"{name}[{number}]", *marks) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "samples", "chosen"),
    [(5, 2, "04"), (5, 1, "0"), (5, 3, "024"), (3, 8, "012"), (1, 2, "0")],
)
def test_samples_are_spread_evenly_over_the_parameters(count, samples, chosen):
    items = parametrised("test_file.py::test_many", count, pytest.mark.samples(samples))
    names = {item.nodeid for item in tiers.take_samples(items)}
    assert names == {f"test_file.py::test_many[{number}]" for number in chosen}


def test_samples_of_one_function_are_not_those_of_another():
    marks = pytest.mark.samples(1)
    items = parametrised("a.py::test", 3, marks) + parametrised("b.py::test", 3, marks)
    assert len(tiers.take_samples(items)) == 2


def test_each_test_is_in_a_tier_or_beyond_it():
    kinds = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.mpi, pytest.mark.samples(1)]
    subsets = itertools.chain(*(itertools.combinations(kinds, n) for n in range(len(kinds) + 1)))
    items = list(
        itertools.chain(*(parametrised(f"{n}", 3, *marks) for n, marks in enumerate(subsets)))
    )
    sampled = tiers.take_samples(items)

    def members(tier):
        return {item for item in items if tiers.is_in_tier(item, tier, sampled)}

    assert members("all") == set(items)
    assert members("quick") < members("test")
    for tier in ("quick", "test"):
        assert members(tier) | members(f"beyond-{tier}") == set(items)
        assert not members(tier) & members(f"beyond-{tier}")


def test_tests_that_draw_examples_draw_new_ones_beyond_their_tier():
    item = Item("test_file.py::test_any")
    item.obj = type("Function", (), {"hypothesis": object()})
    assert tiers.is_in_tier(item, "quick", {item})
    assert tiers.is_in_tier(item, "beyond-test", {item})
