"""Compare estimates of the error of the iteration with the truth, in media nobody has tuned for.

python tests/support/iteration_errors.py --media 60 --seed 1 --precisions float64 float32

Media are smooth random fields, sandstones, packings and independent voxels, of 14 to 21 voxels
along an edge. Each is computed once in each precision, as the flow on the way does not depend on
the tolerance: the estimates, and their steps, follow for all tolerances afterwards. For each
precision and tolerance a line has the flows that converged, in how many of them the true error was
at most the estimate, the median of true over estimated errors, the mean number of steps, and how
many flows took more steps than without vectors, to a true error of the tolerance. With --save, what
was found on the way goes to a file, which --load takes instead of media.

With --tight 64, media are smooth fields and sandstones of 64 voxels along an edge and porosities of
0.13 to 0.35, at the relaxation time that is chosen by default, with vectors and without.
"""

from __future__ import annotations

import argparse
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import Storage, convergence, make_sample, permeability
from slipstream.lattice.acceleration import PERIOD, Extrapolation
from slipstream.lattice.convergence import IterationError

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
        medium_seed = int(random.integers(1 << 30))
        if kind == 0:
            image = smooth_field(size, porosity, width, medium_seed)
        elif kind == 1:
            radius = float(random.uniform(2, 6))
            sample = make_sample(
                "sandstone", (size,) * 3, radius=radius, porosity=porosity, seed=medium_seed
            )
            image = np.asarray(sample)
        elif kind == 2:
            radius = float(random.uniform(1.5, 4))
            options = {
                "radius": radius,
                "solid_fraction": float(random.uniform(0.1, 0.28)),
                "seed": medium_seed,
            }
            image = np.asarray(make_sample("random-pack", (size,) * 3, **options))
        else:
            image = (
                np.random.default_rng(medium_seed).random((size,) * 3) < max(porosity, 0.35)
            ).astype(np.uint8)
        yield image, float(random.choice([0.6, 0.8, 1.0, 1.5]))


def tight_media(count: int, edge: int, seed: int) -> Iterator[tuple[np.ndarray, str]]:
    """Yield images of low porosity, and the relaxation time by default."""
    random = np.random.default_rng(seed)
    for number in range(count):
        porosity, width = float(random.uniform(0.13, 0.35)), float(random.uniform(2, 5))
        medium_seed = int(random.integers(1 << 30))
        if number % 2:
            yield smooth_field(edge, porosity, width, medium_seed), "auto"
        else:
            sample = {"radius": 2 * width, "porosity": porosity, "seed": medium_seed}
            yield np.asarray(make_sample("sandstone", (edge,) * 3, **sample)), "auto"


class Noting(IterationError):
    """Notes additions."""

    added: list[tuple[float, Extrapolation]] = []

    def add(self, value: float, found: Extrapolation) -> float:
        """Add a value, which is noted."""
        self.added.append((value, found))
        return super().add(value, found)


def ways(
    image: np.ndarray, time: float | str, precisions: list[str], plain: bool
) -> dict[str, Any]:
    """Return the values on the way to a steady flow in each precision, and the exact value."""
    settings = {
        "relaxation_time": time,
        "device": HostDevice(threads=1),
        "max_steps": 20_000,
        "keep_fields": False,
    }
    record: dict[str, Any] = {"porosity": image.mean()}
    for precision in ["float64", *(name for name in precisions if name != "float64")]:
        Noting.added = []
        tolerance = 1e-10 if precision == "float64" else 1e-6
        result = permeability(
            image, tolerance=tolerance, storage=Storage(precision=precision), **settings
        )
        record[precision] = Noting.added
        if precision == "float64":
            record["exact"] = result.k
    if plain:
        settings["max_steps"] = 60_000
        exact = record["exact"]
        recent: list[float] = []

        def is_there(step: Any) -> bool:
            recent.append(step.permeability)
            return time == "auto" and all(abs(k / exact - 1) < 5e-6 for k in recent[-9:])

        settings["callback"] = is_there
        result = permeability(image, tolerance=1e-6, vectors=0, interval=PERIOD, **settings)
        record["plain"] = result.history
    return record


def judged(
    added: list[tuple[float, Extrapolation]], exact: float, tolerance: float
) -> tuple[float, int] | None:
    """Return true over estimated error where a flow would have ended, and after which addition."""
    error = IterationError(tolerance)
    for number, (value, found) in enumerate(added):
        estimate = error.add(value, found)
        if error.converged:
            return abs(value / exact - 1) / estimate, number + 1
    return None


def steps_to(values: list[float], exact: float, tolerance: float) -> float:
    """Return the number of the value from which on all are within the tolerance."""
    beyond = np.flatnonzero(np.abs(np.array(values) / exact - 1) > tolerance)
    return float(beyond[-1] + 2 if len(beyond) else 1)


def show(every: list[dict[str, Any]]) -> None:
    """Print a table."""
    for precision, tolerances in TOLERANCES.items():
        flows = [one for one in every if precision in one]
        for tolerance in tolerances if flows else ():
            pairs = [judged(one[precision], one["exact"], tolerance) for one in flows]
            ratios, counts = np.array([pair for pair in pairs if pair is not None]).T
            print(
                f"{precision:8} {tolerance:6g}: {len(ratios):4} flows, {np.mean(ratios <= 1):7.2%}"
                f" within, median ratio {np.median(ratios):.3f}, worst {ratios.max():.2f},"
                f" {PERIOD * counts.mean():.0f} steps"
            )
    plain = [one for one in every if "plain" in one]
    for tolerance in (1e-2, 1e-3, 1e-5) if plain else ():
        ratios = np.array(
            [
                steps_to([value for value, _ in one["float64"]], one["exact"], tolerance)
                / steps_to([value for _, value in one["plain"]], one["exact"], tolerance)
                for one in plain
            ]
        )
        print(
            f"steps to {tolerance:g} over those without vectors: median {np.median(ratios):.3f},"
            f" most {ratios.max():.2f}, more in {np.sum(ratios > 1)} of {len(ratios)}"
        )
        porosities = np.array([one["porosity"] for one in plain])
        for name, chosen in (("above", porosities > 0.2), ("below", porosities <= 0.2)):
            if chosen.any():
                factor = 1 / np.median(ratios[chosen])
                print(f"  porosity {name} 0.2: {chosen.sum()} flows, 1/{factor:.1f} in the median")


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--media", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", default=list(TOLERANCES))
    parser.add_argument("--plain", action="store_true", help="flows without vectors too")
    parser.add_argument("--tight", type=int, help="edge of media of low porosity")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path, nargs="+")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every: list[dict[str, Any]] = []
    for path in options.load or ():
        every += pickle.loads(path.read_bytes())
    if not options.load:
        convergence.IterationError = Noting  # type: ignore[misc]
        chosen: Any = media(options.media, options.seed)
        if options.tight:
            chosen = tight_media(options.media, options.tight, options.seed)
        for image, time in chosen:
            try:
                every.append(ways(image, time, options.precisions, options.plain))
            except InputError:  # no path
                continue
    if options.save is not None:
        options.save.write_bytes(pickle.dumps(every))
    show(every)


if __name__ == "__main__":
    main()
