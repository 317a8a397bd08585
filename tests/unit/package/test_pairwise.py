"""That the few cases which tests run instead of all have every pair of values."""

import itertools

from pairwise import every_pair, every_value


def pairs(rows):
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


def test_every_pair_of_a_product_is_in_few_of_its_rows():
    rows = list(itertools.product("abcde", (1, 2, 3), (True, False), "xyz"))
    few = every_pair(rows)
    assert pairs(few) == pairs(rows)
    assert set(few) <= set(rows)
    assert len(few) < 20 < len(rows)


def test_every_value_of_a_product_is_in_fewer():
    rows = list(itertools.product("abcde", (1, 2, 3), (True, False)))
    few = every_value(rows)
    assert [set(column) for column in zip(*few, strict=True)] == [set("abcde"), {1, 2, 3}, {0, 1}]
    assert set(few) <= set(rows)
    assert len(few) == 5


def test_values_that_do_not_go_together_are_not_put_together():
    rows = [row for row in itertools.product("abc", (1, 2, 3), "xyz") if row[:2] != ("a", 1)]
    assert pairs(every_pair(rows)) == pairs(rows)


def test_of_one_column_every_value_is_kept():
    assert every_pair([("a",), ("b",), ("a",)]) == [("a",), ("b",)]
    assert every_pair([()]) == [()]
    assert every_pair([]) == []
