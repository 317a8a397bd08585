"""Headlines of a benchmark, and how they compare with those of an earlier record.

A headline is a time that the benchmark is about, in seconds, by name. A record is compared only
with one of the same benchmark on the same kind of device, asked for with the same options: anything
else would compare different things.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.bench.requests import Request
from slipstream.errors import InputError

# Options that change what is shown or kept, not what is measured.
_ASIDE = ("json", "against", "tolerance", "plot", "timelines", "beside", "repetitions", "processes")


@dataclass(frozen=True)
class Headline:
    """A time that a benchmark is about, in seconds.

    Attributes
    ----------
    seconds : float
        The median of repetitions, on the slowest rank.
    spread : float
        The distance of the quartiles of the repetitions, over the median.
    bound : float, optional
        What the bandwidth of the same run allows.
    """

    seconds: float
    spread: float = 0.0
    bound: float | None = None


@dataclass(frozen=True)
class Change:
    """A headline, then and now; `is_worse` if it takes longer by more than was tolerated."""

    name: str
    before: float
    now: float
    is_worse: bool

    @property
    def ratio(self) -> float:
        """Time now over time then."""
        return self.now / self.before


class Median(float):
    """A median that knows how far apart the quartiles were, over the median."""

    spread: float = 0.0

    @classmethod
    def of(cls, samples: list[float]) -> Median:
        """Return the median of samples."""
        low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
        result = cls(middle)
        result.spread = float((high - low) / middle) if middle else 0.0
        return result

    def __truediv__(self, number: float) -> Median:
        result = Median(float(self) / number)
        result.spread = self.spread
        return result


def headline(seconds: float, bound: float | None = None) -> Headline:
    """Return a headline of what `harness.medians` measured."""
    return Headline(float(seconds), getattr(seconds, "spread", 0.0), bound)


def asked_of(request: Request) -> dict[str, Any]:
    """Return the options of a request that say what is measured, as a record has them."""
    options = {one.name: getattr(request, one.name) for one in fields(request)}
    kept = {name: value for name, value in options.items() if name not in _ASIDE}
    return json.loads(json.dumps(kept, default=str))


def headlines_as_json(headlines: Mapping[str, Headline]) -> dict[str, dict[str, Any]]:
    """Return headlines as a record has them."""
    return {name: asdict(one) for name, one in headlines.items()}


def read_headlines(
    path: Path, benchmark: str, device: str, asked: Mapping[str, Any]
) -> dict[str, float]:
    """Return the seconds of the headlines of a record; refuse one of something else."""
    option = f"--against {path}"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        theirs = {name: float(one["seconds"]) for name, one in record["headlines"].items()}
        # Of fields on the host, a record says so behind the name; so do the options.
        found = {"benchmark": record["benchmark"].split(" ")[0], "device": record["device"]}
        earlier = dict(record["asked"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{option}: no record with headlines; accepted: a file that 'slipstream bench"
            f" {benchmark} --json FILE' has written"
        ) from error
    for name, mine in {"benchmark": benchmark, "device": device}.items():
        if found[name] != mine:
            raise InputError(f"{option}: its {name} is {found[name]!r}, that of this run {mine!r}")
    for name in asked.keys() | earlier.keys():
        if asked.get(name) != earlier.get(name):
            raise InputError(
                f"{option}: it was measured with {name} = {earlier.get(name)!r}, this run with"
                f" {asked.get(name)!r}"
            )
    return theirs


def changes(
    before: Mapping[str, float], now: Mapping[str, Headline], tolerance: float
) -> list[Change]:
    """Return what has become of each headline of a record; one that is gone is worse."""
    missing = Headline(float("inf"))
    return [
        Change(
            name,
            seconds,
            now.get(name, missing).seconds,
            now.get(name, missing).seconds > seconds * (1 + tolerance),
        )
        for name, seconds in before.items()
    ]
