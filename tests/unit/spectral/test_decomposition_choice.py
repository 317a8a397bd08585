"""Slabs or pencils, where a case leaves it open."""

import pytest

from flows import make_case
from slipstream.engine.exchange import RankPlace
from slipstream.spectral.problem_of_case import with_decomposition


@pytest.mark.parametrize(
    ("processor", "points", "ranks", "of_node", "grid"),
    [
        ("gpu", 256, 64, 64, None),  # one node
        ("gpu", 256, 8, 4, None),  # few ranks
        ("gpu", 1024, 16, 8, None),
        ("gpu", 1024, 64, 8, (8, 8)),
        ("gpu", 1024, 512, 8, (8, 64)),  # the ranks of a node share planes
        ("gpu", 2048, 64, 8, None),  # large blocks
        ("gpu", 256, 64, 1, None),
        ("cpu", 256, 64, 4, None),
        ("cpu", 256, 256, 64, (16, 16)),
        ("cpu", 1024, 128, 64, None),
    ],
)
def test_many_ranks_of_several_nodes_take_pencils_if_blocks_are_small(
    processor, points, ranks, of_node, grid
):
    case = make_case(f"grid.points={points}")
    found = with_decomposition(case, RankPlace(0, ranks, of_node), processor)
    assert found.run.grid == grid
    assert found.run.decomposition == ("auto" if grid is None else "pencil")
    assert found is case or found.grid == case.grid


def test_a_stated_decomposition_stays():
    case = make_case("grid.points=1024", "run.decomposition=slab")
    assert with_decomposition(case, RankPlace(0, 512, 8), "gpu") is case
