"""The estimated errors of a permeability, by voxels and by iteration, exceed the true ones."""

import numpy as np
import pytest

from iteration_errors import smooth_field
from resolution_errors import duct, media, pipe, spheres
from slipstream.engine.device import HostDevice
from slipstream.lattice import make_sample, permeability

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* of the pore voxels are in pores",
    "ignore:the permeability along . may be off",
    "ignore:pore faces solid",
)
DEVICE = HostDevice(threads=1)
EXACT = {"tolerance": 1e-6, "device": DEVICE}


@pytest.mark.slow
@pytest.mark.parametrize("make", [duct, pipe, lambda random: spheres(random, "simple")])
def test_the_error_by_voxels_does_not_depend_on_where_the_faces_of_the_image_are(make):
    image = make(np.random.default_rng(5)).image
    image = np.concatenate([image] * -(-12 // len(image)))
    found = [
        permeability(np.roll(image, offset, (0, 1, 2)), coarse_start=True, **EXACT).resolution_error
        for offset in ((0, 0, 0), (1, 0, 1), (0, 3, 1))
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-4)
    assert found[0] > 1e-3


def test_the_error_by_voxels_falls_with_their_size_squared_where_walls_are_along_them():
    """In a slit it is half of the inverse square of the width."""
    found = {}
    for width in (8, 16, 32):
        slit = np.zeros((4, 4, width + 2), np.uint8)
        slit[:, :, 1:-1] = 1
        found[width] = permeability(slit, device=DEVICE).resolution_error
        assert 0.5 < found[width] * width**2 < 1
    assert found[16] / found[32] == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize(
    ("count", "least"),
    [
        pytest.param(14, 13, marks=pytest.mark.slow),
        pytest.param(100, 90, marks=pytest.mark.thorough),
    ],
)
def test_the_error_by_voxels_exceeds_the_true_one_but_not_by_much(count, least):
    estimates, truth = np.array([medium.errors() for medium in media(count, seed=1)]).T
    assert np.count_nonzero(truth <= estimates) >= least
    assert np.median(estimates / truth) <= 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no path leads", "ignore:not converged")
def test_without_vectors_the_error_of_the_iteration_exceeds_the_true_one_in_tight_media():
    """Pressure spreads through them more and more slowly."""
    random, ratios = np.random.default_rng(3), []
    while len(ratios) < 12:
        porosity, seed = random.uniform(0.2, 0.35), int(random.integers(1 << 30))
        image = smooth_field(16, porosity, random.uniform(1, 2), seed)
        if len(ratios) % 2:
            options = {"radius": random.uniform(3, 5), "porosity": porosity, "seed": seed}
            image = np.asarray(make_sample("sandstone", (16,) * 3, **options))
        exact = permeability(image, **EXACT)
        plain = {"vectors": 0, "interval": 20, "max_steps": 10_000, "device": DEVICE}
        found = permeability(image, tolerance=1e-2, **plain)
        if exact.k and exact.converged and found.converged:
            assert found.residual <= 1e-2
            ratios.append(abs(found.k / exact.k - 1) / found.residual)
    assert np.count_nonzero(np.array(ratios) <= 1) >= 11
    assert max(ratios) < 2
