"""Compare estimates of the error by the size of voxels with the truth, in 100 media of known k.

python tests/support/resolution_errors.py --media 100 --seed 1

Square ducts, slits along the axes and inclined ones, with the flow along and across the steps of
their walls, pipes, lattices of spheres, and random media (smooth fields, spheres that overlap or do
not), of few voxels and at random places. Permeabilities are those of the shapes that voxels stand
for: of White's series, Poiseuille's law, Zick and Homsy (1982) for simple cubic lattices; of other
lattices and random media those of finer images, extrapolated in the size of voxels. For each kind a
line has the number of flows, in how many of them the true error was at most the estimate, the
median of estimated over true errors, and the medians of both.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.api.validation.reference_solutions import (
    cubic_spheres_permeability,
    square_duct_permeability,
)
from slipstream.engine.decomposition import whole
from slipstream.engine.device import HostDevice
from slipstream.lattice import permeability
from slipstream.lattice.percolation import keep_percolating
from slipstream.lattice.permeability_result import Permeability
from slipstream.lattice.samples import SPHERE_LATTICES, draw_spheres, random_pack

# Permeabilities of lattices of spheres in squares of their cell's edge, by solid fraction: from
# cells of 40 and 72 voxels. For simple lattices this way is within 0.6 % of Zick and Homsy.
_LATTICES = {
    "body-centred": {0.2: 0.012792, 0.45: 0.0021721, 0.6: 0.00070439},
    "face-centred": {0.2: 0.0081041, 0.45: 0.0012766, 0.6: 0.00036169},
    "simple": {c: cubic_spheres_permeability(c, 1.0) for c in (0.064, 0.125, 0.216, 0.343, 0.45)},
}


@dataclass(frozen=True)
class Medium:
    """An image, the axis of its flow, and the permeability of what it stands for."""

    kind: str
    image: np.ndarray
    axis: str
    permeability: Callable[[], float]

    def errors(self) -> tuple[float, float]:
        """Return the estimated error of k and the true one, relative."""
        found = flow(self.image, self.axis, tolerance=1e-4)
        return found.resolution_error, abs(found.k / self.permeability() - 1)


def flow(image: np.ndarray, axis: str = "z", tolerance: float = 1e-3) -> Permeability:
    """Return the flow through an image by one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return permeability(
            image, axis=axis, tolerance=tolerance, device=HostDevice(threads=1), max_steps=20_000
        )


def _extruded(section: np.ndarray) -> np.ndarray:
    return np.repeat(section[None].astype(np.uint8), 4, axis=0)


def duct(random: np.random.Generator) -> Medium:
    """Return a square duct."""
    width = int(random.integers(3, 21))
    section = np.zeros((width + 5, width + 4))
    y, x = random.integers(1, 5), random.integers(1, 4)
    section[y : y + width, x : x + width] = 1
    known = square_duct_permeability(width) * width**2 / section.size
    return Medium("ducts", _extruded(section), "z", lambda: known)


def slit(random: np.random.Generator) -> Medium:
    """Return a slit along the axes."""
    width = int(random.integers(2, 25))
    image, first = np.zeros((4, 4, width + 3), np.uint8), random.integers(0, 4)
    image[:, :, first : first + width] = 1
    return Medium("slits", image, "z", lambda: width**3 / 12 / (width + 3))


def inclined_slit(random: np.random.Generator) -> Medium:
    """Return a slit with a slope of small whole numbers, and a flow along or across its steps."""
    slopes = [(1, 1), (1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (1, 5), (2, 5)]
    p, q = slopes[random.integers(len(slopes))]
    length = math.hypot(p, q)
    # A whole number of periods of both numbers.
    edge = p * q * max(1, round(float(random.uniform(5, 11)) * length / (p * q)))
    width = float(random.uniform(0.4, 0.75)) * edge / length
    y, x = np.meshgrid(np.arange(edge) + 0.5, np.arange(edge) + 0.5, indexing="ij")
    section = (p * y + q * x - float(random.uniform(0, edge))) % edge < width * length
    along = width**3 / 12 * length / edge
    if random.random() < 0.5:
        return Medium("inclined slits", _extruded(section), "z", lambda: along)
    return Medium("inclined slits", _extruded(section), "y", lambda: along * (q / length) ** 2)


def pipe(random: np.random.Generator) -> Medium:
    """Return a pipe of circular section."""
    radius = float(random.uniform(2.2, 13))
    edge = int(2 * radius + 4)
    y, x = (np.arange(edge) + 0.5 - edge / 2 - random.uniform(-0.5, 0.5) for _ in range(2))
    section = y[:, None] ** 2 + x**2 < radius**2
    return Medium("pipes", _extruded(section), "z", lambda: math.pi * radius**4 / 8 / edge**2)


def spheres(random: np.random.Generator, lattice: str) -> Medium:
    """Return a cell of a lattice of spheres, anywhere between voxels."""
    edge = int(random.integers(12, 29))
    solids = list(_LATTICES[lattice])
    solid = solids[random.integers(len(solids))]
    cell = SPHERE_LATTICES[lattice].centres
    radius = (3 * solid / (4 * math.pi * len(cell))) ** (1 / 3) * edge
    centres = (cell + random.random(3)) % 1.0 * edge
    image = draw_spheres(centres, radius, (edge,) * 3, whole((edge,) * 3))
    return Medium(f"{lattice} spheres", image, "z", lambda: _LATTICES[lattice][solid] * edge**2)


def random_medium(random: np.random.Generator, kind: int) -> Medium:
    """Return a smooth field, overlapping spheres or a packing, known by finer images of it."""
    edge = int(random.integers(12, 18))
    make: Callable[[int], np.ndarray]
    if kind == 0:
        make = _smooth_field(random, edge)
    elif kind == 1:
        radius, solid = random.uniform(0.14, 0.25), random.uniform(0.3, 1.1)
        centres = random.random((max(2, round(solid / (4 / 3 * math.pi * radius**3))), 3))
        make = _spheres_at(centres, radius, edge)
    else:
        radius = random.uniform(0.13, 0.22)
        wanted = max(1, round(random.uniform(0.1, 0.3) / (4 / 3 * math.pi * radius**3)))
        seed = int(random.integers(1 << 30))
        make = _spheres_at(random_pack((1, 1, 1), radius, wanted, seed), radius, edge)

    def known() -> float:
        fine, finer = (flow(make(n)).k / n**2 for n in (2, 4))
        return 2 * finer - fine

    kinds = ("smooth fields", "overlapping spheres", "packings")
    return Medium(kinds[kind], make(1), "z", known)


def _spheres_at(centres: np.ndarray, radius: float, edge: int) -> Callable[[int], np.ndarray]:
    def make(finer: int) -> np.ndarray:
        size = edge * finer
        return draw_spheres(centres * size, radius * size, (size,) * 3, whole((size,) * 3))

    return make


def _smooth_field(random: np.random.Generator, edge: int) -> Callable[[int], np.ndarray]:
    """Return pores where a sum of a few long waves is below a level, at any resolution."""
    most, porosity = int(random.integers(2, 4)), random.uniform(0.3, 0.6)
    waves = np.arange(-most, most + 1)
    total = waves[:, None, None] + waves[:, None] + waves
    square = waves[:, None, None] ** 2 + waves[:, None] ** 2 + waves**2
    shape = square.shape
    amplitudes = random.normal(size=shape) + 1j * random.normal(size=shape)
    amplitudes *= np.exp(-2 * square / most**2)

    def field(size: int) -> np.ndarray:
        modes = np.zeros((size,) * 3, complex)
        # At the middles of voxels.
        modes[np.ix_(*[waves % size] * 3)] = amplitudes * np.exp(1j * np.pi * total / size)
        return np.fft.ifftn(modes).real * size**3

    level = np.quantile(field(64), porosity)
    return lambda finer: (field(edge * finer) < level).astype(np.uint8)


def is_open(image: np.ndarray) -> bool:
    """Whether anything can flow along z."""
    shape = image.shape
    return keep_percolating(image.copy(), shape, (True,) * 3, [0]).percolates[0]


def media(count: int, seed: int) -> Iterator[Medium]:
    """Yield media of all kinds in turn."""
    random = np.random.default_rng(seed)
    makers: list[Callable[[], Medium]] = [
        lambda: duct(random),
        lambda: slit(random),
        lambda: inclined_slit(random),
        lambda: pipe(random),
        lambda: spheres(random, "simple"),
        lambda: spheres(random, "body-centred"),
        lambda: spheres(random, "face-centred"),
        lambda: random_medium(random, int(random.integers(3))),
    ]
    made = 0
    for maker in itertools.cycle(makers):
        if made == count:
            return
        medium = maker()
        if medium.axis != "z" or is_open(medium.image):
            made += 1
            yield medium


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--media", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds: dict[str, list[tuple[float, float]]] = {}
    for medium in media(options.media, options.seed):
        kinds.setdefault(medium.kind, []).append(medium.errors())
    kinds = dict(sorted(kinds.items()))
    for kind, errors in {**kinds, "all": list(itertools.chain(*kinds.values()))}.items():
        estimates, truth = np.array(errors).T
        print(
            f"{kind:20} {len(truth):4} flows, {np.mean(truth <= estimates):7.1%} within, median"
            f" ratio {np.median(estimates / truth):.1f}, estimates {np.median(estimates):.1%}, true"
            f" errors {np.median(truth):.1%}"
        )


if __name__ == "__main__":
    main()
