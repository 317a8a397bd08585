"""Connected pores by a plain search from voxel to voxel, and images to search in."""

import itertools
from collections import deque

import numpy as np
from hypothesis import strategies as st

from slipstream.lattice.percolation import Connectivity

# Faces and edges of a cube, not its corners.
NEIGHBOURS = [
    step for step in itertools.product((-1, 0, 1), repeat=3) if 1 <= np.abs(step).sum() <= 2
]
PERIODICITIES = list(itertools.product((False, True), repeat=3))


def expected(image, periodic, axes):
    """Return the remaining pores of an image, and its `Connectivity`."""
    kept, components, percolates = np.zeros_like(image), 0, [False] * 3
    seen = {}
    for voxel in map(tuple, np.argwhere(image)):
        if voxel in seen:
            continue
        component, winds = flood(image, periodic, voxel, seen)
        components += 1
        places = np.array(component)
        found = [
            winds[axis]
            if periodic[axis]
            else {0, image.shape[axis] - 1} <= set(places[:, axis].tolist())
            for axis in range(3)
        ]
        percolates = [one or other for one, other in zip(percolates, found, strict=True)]
        if any(found[axis] for axis in axes):
            kept[tuple(places.T)] = 1
    return kept, Connectivity(
        image.size, int(image.sum()), int(kept.sum()), components, tuple(percolates)
    )


def flood(image, periodic, start, seen):
    """Return the voxels that are connected to one, and along which axes they wind.

    `seen` gets, for each voxel, in which periodic image of the whole it was reached first.
    """
    seen[start], queue, winds = (0, 0, 0), deque([start]), [False] * 3
    component = [start]
    while queue:
        voxel = queue.popleft()
        for step in NEIGHBOURS:
            reached = [divmod(a + s, n) for a, s, n in zip(voxel, step, image.shape, strict=True)]
            if any(
                turn and not joined for (turn, _), joined in zip(reached, periodic, strict=True)
            ):
                continue
            neighbour = tuple(place for _, place in reached)
            if not image[neighbour]:
                continue
            turns = tuple(a + turn for a, (turn, _) in zip(seen[voxel], reached, strict=True))
            if neighbour not in seen:
                seen[neighbour] = turns
                component.append(neighbour)
                queue.append(neighbour)
            differs = [a != b for a, b in zip(seen[neighbour], turns, strict=True)]
            winds = [one or other for one, other in zip(winds, differs, strict=True)]
    return component, winds


def random_image(shape, porosity, seed):
    """Return an image whose voxels are pores independently of each other."""
    return (np.random.default_rng(seed).random(shape) < porosity).astype(np.uint8)


@st.composite
def images(draw, largest=(7, 6, 5)):
    """Return a small image, and as often one of long rows."""
    shape = tuple(draw(st.integers(1, n)) for n in largest)
    if draw(st.booleans()):
        shape = (*shape[:2], draw(st.integers(6, 40)))
    porosity = draw(st.sampled_from([0.05, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9]))
    return random_image(shape, porosity, draw(st.integers(0, 2**32 - 1)))


wanted_axes = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple)


def line(shape, places):
    """Return an image with pores at some places, counted around where they lie outside of it."""
    image = np.zeros(shape, np.uint8)
    image[tuple(np.array(list(places)).T % np.array(shape)[:, None])] = 1
    return image


def helix(turns_back):
    """Return a way around an axis through all planes, each a step further on a square.

    The square has 12 places. If the way comes back to where it began, it does so in 12 planes.
    """
    square = [(0, i) for i in range(3)] + [(i, 3) for i in range(3)]
    square += [(3, 3 - i) for i in range(3)] + [(3 - i, 0) for i in range(3)]
    planes = 12 if turns_back else 7
    places = [(z, 1 + square[z % 12][0], 1 + square[z % 12][1]) for z in range(planes)]
    # A step along z and y or x together leads to a neighbour, along all three it would not.
    return line((planes, 6, 6), places)


def slanted(size, steps):
    """Return the way from voxel to voxel by always the same step."""
    return line((size,) * 3, [tuple(i * s for s in steps) for i in range(size)])


# Name: image, periodic, axes along which it percolates.
NAMED = {
    "no pores": (np.zeros((4, 3, 5), np.uint8), (True, False, True), ()),
    "pores only": (np.ones((4, 3, 5), np.uint8), (True, False, True), (0, 1, 2)),
    "one voxel, its own neighbour": (np.ones((1, 1, 1), np.uint8), (True,) * 3, (0, 1, 2)),
    "one voxel between walls": (np.ones((1, 1, 1), np.uint8), (False,) * 3, (0, 1, 2)),
    "helix between walls": (helix(False), (False, True, True), (0,)),
    "helix from face to face": (helix(False), (True, True, True), ()),
    "helix that comes back": (helix(True), (True, True, True), (0,)),
    "slanted along x and z": (slanted(6, (1, 0, 1)), (True, True, True), (0, 2)),
    "slanted against x": (slanted(6, (1, 0, -1)), (True, False, True), (0, 2)),
    "slanted, y and z": (slanted(6, (-1, 1, 0)), (True, True, False), (0, 1)),
    "slanted, x has walls": (slanted(6, (1, 0, 1)), (True, True, False), (2,)),
    "slanted, by corners": (slanted(6, (1, 1, 1)), (True, True, True), ()),
    "across all seams and back": (
        line((5, 5, 5), itertools.product((-1, 0, 1), repeat=3)),
        (True,) * 3,
        (),
    ),
    "around x twice": (
        line((1, 8, 9), [(0, 4 * i // 9, i) for i in range(18)]),
        (False, True, True),
        (0, 1, 2),
    ),
}
