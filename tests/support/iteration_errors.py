"""Compare estimates of the error of the iteration with the truth, in media nobody has tuned for.

python tests/support/iteration_errors.py --media 60 --seed 1 --precisions float64 float32

Media are smooth random fields, sandstones, packings and independent voxels, of 14 to 21 voxels
along an edge. For each precision and tolerance a line has the flows that converged, in how many of
them the true error was at most the estimate, the median of true over estimated errors, and the
mean number of steps.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from slipstream.device import HostDevice
from slipstream.errors import InputError
from slipstream.lattice import Storage, make_sample, permeability

TOLERANCES = {
    "float64": (1e-1, 3e-2, 1e-2, 1e-3, 1e-5, 1e-8),
    "mixed": (1e-1, 1e-2, 1e-3, 1e-5),
    "float32": (1e-1, 1e-2, 1e-3, 1e-5),
}


def smooth_field(size: int, porosity: float, width: float, seed: int) -> np.ndarray:
    """Return the pores of a periodic random field."""
    waves = np.fft.fftfreq(size) * 2 * np.pi
    square = waves[:, None, None] ** 2 + waves[None, :, None] ** 2 + waves**2
    noise = np.fft.fftn(np.random.default_rng(seed).normal(size=(size,) * 3))
    field = np.fft.ifftn(noise * np.exp(-square * width**2 / 2)).real
    return (field < np.quantile(field, porosity)).astype(np.uint8)


def media(count: int, seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield images and relaxation times."""
    random = np.random.default_rng(seed)
    for number in range(count):
        size, kind = int(random.integers(14, 22)), number % 4
        porosity, width = float(random.uniform(0.18, 0.6)), float(random.uniform(0.6, 3.0))
        own = int(random.integers(1 << 30))
        if kind == 0:
            image = smooth_field(size, porosity, width, own)
        elif kind == 1:
            radius = float(random.uniform(2, 6))
            sample = make_sample(
                "sandstone", (size,) * 3, radius=radius, porosity=porosity, seed=own
            )
            image = np.asarray(sample)
        elif kind == 2:
            radius = float(random.uniform(1.5, 4))
            options = {
                "radius": radius,
                "solid_fraction": float(random.uniform(0.1, 0.28)),
                "seed": own,
            }
            image = np.asarray(make_sample("random-pack", (size,) * 3, **options))
        else:
            image = (np.random.default_rng(own).random((size,) * 3) < max(porosity, 0.35)).astype(
                np.uint8
            )
        yield image, float(random.choice([0.6, 0.8, 1.0, 1.5]))


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--media", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", default=list(TOLERANCES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    device = HostDevice(threads=1)
    found: defaultdict[tuple[str, float], list[tuple[float, int]]] = defaultdict(list)
    for image, time in media(given.media, given.seed):
        settings = {
            "relaxation_time": time,
            "device": device,
            "max_steps": 20_000,
            "keep_fields": False,
        }
        try:
            exact = permeability(image, tolerance=1e-9, storage=Storage(), **settings)
        except InputError:  # no path
            continue
        for precision in given.precisions:
            for tolerance in TOLERANCES[precision]:
                storage = Storage(precision=precision)
                one = permeability(image, tolerance=tolerance, storage=storage, **settings)
                if one.converged:
                    ratio = abs(one.k / exact.k - 1) / one.iteration_error
                    found[precision, tolerance].append((ratio, one.steps))
    for (precision, tolerance), pairs in sorted(found.items()):
        ratios, steps = np.array(pairs).T
        print(
            f"{precision:8} {tolerance:6g}: {len(ratios):4} flows, {np.mean(ratios <= 1):7.2%}"
            f" within, median ratio {np.median(ratios):.3f}, worst {ratios.max():.2f},"
            f" {steps.mean():.0f} steps"
        )


if __name__ == "__main__":
    main()
